/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. Brute force: page by page. */
#include "ahead_model.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/text.h"

struct model *model_new(uint64_t room)
{
	struct model *m = calloc(1, sizeof(*m));

	CHECK(m != NULL);
	m->room = room;
	m->now_ns = NS_PER_S;
	return m;
}

void model_free(struct model *m)
{
	for (int i = 0; i < FILES; i++) {
		free(m->there[i]);
		free(m->kernel[i]);
	}
	free(m->queue);
	free(m);
}

void file_new(struct model *m, uint32_t file, uint64_t size)
{
	for (uint64_t p = 0; m->there[file] && p <= m->size[file] / PAGE; p++)
		m->unused -= m->there[file][p] == 2 ? PAGE : 0;
	free(m->there[file]);
	m->of[file]++;
	m->size[file] = size;
	m->there[file] = calloc(size / PAGE + 1, 1);
	CHECK(m->there[file] != NULL);
}

/* As if that had come by way of a cache of n pages. */
static void remember(struct model *m, uint32_t file, uint64_t page)
{
	enum { QUEUE = 1 << 20 };

	if (!m->n_pages)
		return;
	if (!m->queue)
		m->queue = calloc(QUEUE, sizeof(*m->queue));
	CHECK(m->queue != NULL);
	m->queue[m->next++ % QUEUE] = (struct page){ file, m->of[file], page };
	while (m->next - m->first > MIN(m->n_pages, (uint64_t)QUEUE)) {
		const struct page *old = &m->queue[m->first++ % QUEUE];
		uint8_t *there = &m->there[old->file][old->page];

		if (old->of != m->of[old->file])
			continue;
		m->unused -= *there == 2 ? PAGE : 0;
		*there = 0;
	}
}

/* Brute force: page by page. Returns the bytes that were not there. */
static uint64_t fetch(struct model *m, uint32_t file, uint64_t from, uint64_t to, uint8_t as)
{
	uint64_t bytes = 0;

	for (uint64_t p = from / PAGE; p * PAGE < to; p++) {
		uint8_t *page = &m->there[file][p];

		if (as == 1 && *page == 2)
			m->unused -= PAGE;
		if (as == 2 && !*page)
			m->unused += PAGE;
		bytes += *page ? 0 : MIN((uint64_t)PAGE, m->size[file] - p * PAGE);
		if (!*page)
			remember(m, file, p);
		*page = *page && as == 2 ? *page : as;
	}
	m->sent += bytes;
	ahead_spend(&m->ahead, file, bytes);
	if (bytes)
		ahead_answered(&m->ahead, m->now_ns, bytes, LATENCY_MS * NS_PER_MS);
	return bytes;
}

/* What a READ asked for goes with its answer where the kernel has it then, and so does what was fetched
 * ahead for it. Pieces stay. */
static uint64_t fetch_once(struct model *m, uint32_t file, uint64_t from, uint64_t to)
{
	uint64_t bytes = 0;

	for (uint64_t p = from / PAGE; p * PAGE < to; p++) {
		uint8_t *page = &m->there[file][p], was = *page;

		bytes += fetch(m, file, p * PAGE, MIN((p + 1) * PAGE, to), 1);
		*page = was == 1 || !m->kernel[file];
	}
	return bytes;
}

bool model_read(struct model *m, uint32_t file, uint64_t offset, uint32_t length)
{
	uint64_t end = MIN(offset + length, m->size[file]);
	struct ahead_read r = { .file = file,
				.reader = m->reader,
				.length = (uint32_t)(end - offset),
				.offset = offset,
				.size = m->size[file],
				.now_ns = m->now_ns,
				.room = m->room,
				.unused = m->unused };
	uint64_t whole_bytes = m->ahead.whole_bytes;
	struct ahead_advice advice;
	bool is_missed;

	ahead_read(&m->ahead, &r, &advice);
	/* Once more, of the same file, is paid for by what was asked of it: see the bound. */
	if (m->ahead.whole_bytes > whole_bytes && m->whole_size[file] != m->size[file]) {
		m->was_whole += m->whole_size[file] = m->size[file];
		m->n_whole++;
	}
	CHECK(advice.from <= advice.to && advice.to <= m->size[file]);
	CHECK(advice.from == advice.to || advice.from >= end);
	CHECK(advice.to - advice.from <= AHEAD_MOST);
	if (advice.is_whole)
		is_missed = fetch(m, file, offset / MIB * MIB,
				  MIN((end + MIB - 1) / MIB * MIB, m->size[file]), 1) > 0;
	else
		is_missed = fetch_once(m, file, offset, end) > 0;
	m->n_ahead += advice.from < advice.to;
	if (advice.from < advice.to && m->is_failing) {
		bool is_whole = ahead_spend(&m->ahead, file, advice.to - advice.from);

		ahead_refund(&m->ahead, file, advice.to - advice.from, is_whole);
		ahead_lost(&m->ahead, file, advice.from);
	} else {
		(void)fetch(m, file, advice.from, advice.to, 2);
	}
	m->now_ns += is_missed ? LATENCY_MS * NS_PER_MS : 20000;
	m->asked += r.length;
	m->n_reads++;
	m->n_missed += is_missed;
	return is_missed;
}

void run_of(struct model *m, uint32_t file, uint64_t from, uint64_t to, uint32_t step)
{
	for (uint64_t at = from; at < to; at += step)
		model_read(m, file, at, (uint32_t)MIN(step, to - at));
}

uint64_t page_below(uint64_t *seed, uint64_t below)
{
	return check_rand_below(seed, below / PAGE) * PAGE;
}

void kernel_new(struct model *m, uint32_t file)
{
	free(m->kernel[file]);
	m->kernel[file] = calloc(m->size[file] / PAGE + 1, 1);
	CHECK(m->kernel[file] != NULL);
}

void kernel_read(struct model *m, uint32_t file, uint64_t at, uint64_t length)
{
	uint64_t page = at / PAGE, end = DIV_ROUND_UP(MIN(at + length, m->size[file]), PAGE);

	while (page < end) {
		uint64_t n = 0;

		while (page + n < end && n < 131072 / PAGE && !m->kernel[file][page + n])
			m->kernel[file][page + n++] = 1;
		if (n)
			model_read(m, file, page * PAGE, (uint32_t)(n * PAGE)); /* cut at the end */
		page += MAX(n, 1u);
	}
}
