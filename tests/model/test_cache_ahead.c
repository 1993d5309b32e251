/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a miss fetches (src/cache/ahead.c), against a cache that is a set of bytes of 4096: readers
 * of all kinds, alone and mixed. For each kind what it may cost the source, in bytes and in requests
 * that somebody had to wait for, and for random mixtures of them the bound that holds for anything.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/bitmap.h"
#include "clairfs/base/cleanup.h"
#include "clairfs/base/clock.h"
#include "src/cache/ahead_priv.h"

#define PAGE 4096u
#define MIB (1u << 20)
enum { FILES = 64, LATENCY_MS = 10 };

struct page {
	uint32_t file, of; /* of: which file of that number */
	uint64_t page;
};

struct model {
	struct ahead ahead;
	uint8_t *there[FILES]; /* per page: 1: here; 2: here, ahead, and nobody came for it */
	uint64_t size[FILES];
	uint32_t of[FILES];
	uint64_t room, unused, now_ns;
	uint64_t asked, sent, n_reads, n_missed; /* bytes, and READs */
	uint64_t n_ahead; /* times that something was fetched ahead */
	/* Bytes of files that came to be fetched in whole pieces, and files: each once. */
	uint64_t was_whole, n_whole;
	uint64_t whole_size[FILES];
	uint8_t *kernel[FILES]; /* per page: the kernel has it; NULL: it keeps nothing */
	uint32_t reader;
	bool is_failing;    /* what is fetched ahead */
	/* Memory: what came first goes first, beyond so many pages. 0: all stays. */
	struct page *queue;
	uint64_t n_pages, first, next;
};

static struct model *model_new(uint64_t room)
{
	struct model *m = calloc(1, sizeof(*m));

	CHECK(m != NULL);
	m->room = room;
	m->now_ns = NS_PER_S;
	return m;
}

static void model_free(struct model *m)
{
	for (int i = 0; i < FILES; i++) {
		free(m->there[i]);
		free(m->kernel[i]);
	}
	free(m->queue);
	free(m);
}

static void file_new(struct model *m, uint32_t file, uint64_t size)
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

/* One READ; true when somebody waited for the source. */
static bool model_read(struct model *m, uint32_t file, uint64_t offset, uint32_t length)
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

static void run_of(struct model *m, uint32_t file, uint64_t from, uint64_t to, uint32_t step)
{
	for (uint64_t at = from; at < to; at += step)
		model_read(m, file, at, (uint32_t)MIN(step, to - at));
}

static uint64_t page_below(uint64_t *seed, uint64_t below)
{
	return check_rand_below(seed, below / PAGE) * PAGE;
}

static void kernel_new(struct model *m, uint32_t file)
{
	free(m->kernel[file]);
	m->kernel[file] = calloc(m->size[file] / PAGE + 1, 1);
	CHECK(m->kernel[file] != NULL);
}

/* As read() at a place where nothing is read ahead: READs of the pages that the kernel has not. */
static void kernel_read(struct model *m, uint32_t file, uint64_t at, uint64_t length)
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

/* --- each kind alone --- */

static void stream_is_fetched_once_and_waits_at_its_beginning(void)
{
	static const uint32_t steps[] = { 4096, 16384, 131072, MIB };

	for (uint32_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct model *m = model_new(256 * MIB);

		file_new(m, 0, 100 * MIB + 5000);
		run_of(m, 0, 0, m->size[0], steps[i]);
		CHECK(m->sent <= m->size[0] + PAGE);
		CHECK(m->n_missed <= 3);
		CHECK(m->n_ahead <= 100 + 16); /* in pieces, but for the beginning */
		CHECK_U64(m->unused, 0);
		model_free(m);
	}
}

static void random_reads_cost_what_they_ask_for(void)
{
	static const uint32_t lengths[] = { 4096, 24 * 4096, 131072, MIB };
	uint64_t seed = check_seed();

	for (uint32_t i = 0; i < ARRAY_LEN(lengths); i++) {
		struct model *m = model_new(64 * MIB);

		for (uint32_t f = 0; f < 4; f++)
			file_new(m, f, 300 * MIB);
		for (uint32_t n = 0; n < 100 * MIB / lengths[i] && n < 1200; n++)
			model_read(m, (uint32_t)check_rand_below(&seed, 4),
				   page_below(&seed, 299 * MIB), lengths[i]);
		CHECK(m->sent <= m->asked + m->asked / 20 + 2 * MIB);
		model_free(m);
	}
}

static void shuffle(uint64_t *seed, uint32_t *of, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		of[i] = i;
	for (uint32_t i = n; i > 1; i--) {
		uint32_t k = (uint32_t)check_rand_below(seed, i), was = of[i - 1];

		of[i - 1] = of[k];
		of[k] = was;
	}
}

/* Epochs of all records of a file in a new order each, whether it fits or not. In the first one the
 * kernel keeps what it has; it has lost all of it before each of the others. */
static void epochs_of_records_cost_what_they_ask_for(void)
{
	enum { N = 2600, RECORD = 100000 };
	static const uint64_t rooms[] = { 64 * MIB, 512 * MIB };
	uint64_t seed = check_seed();
	uint32_t of[N];

	for (uint32_t i = 0; i < ARRAY_LEN(rooms); i++) {
		struct model *m = model_new(rooms[i]);

		file_new(m, 0, (uint64_t)N * RECORD);
		for (uint32_t epoch = 0; epoch < 4; epoch++) {
			kernel_new(m, 0);
			m->asked = m->sent = 0;
			shuffle(&seed, of, N);
			for (uint32_t n = 0; n < N; n++)
				kernel_read(m, 0, (uint64_t)of[n] * RECORD, RECORD);
			CHECK_U64(m->asked, m->size[0]);
			CHECK(m->sent <= m->asked + m->asked / 10);
		}
		CHECK(m->was_whole > 0 || i == 0);
		model_free(m);
	}
}

/* Every second record of a file, of one READ and of several. */
static void records_that_are_left_out_are_not_fetched(void)
{
	static const uint32_t lengths[] = { 4096, 100000, 131072, 262144, 524288, MIB, 3 * MIB };

	for (uint32_t i = 0; i < ARRAY_LEN(lengths); i++) {
		struct model *m = model_new(512 * MIB);

		file_new(m, 0, 512 * MIB);
		kernel_new(m, 0);
		m->reader = 7;
		for (uint64_t at = 0; at + lengths[i] <= m->size[0]; at += 2ull * lengths[i])
			kernel_read(m, 0, at, lengths[i]);
		/* A first READ like the advice to read all, and what it takes to know better. */
		CHECK(m->sent <= m->asked + AHEAD_MOST / 2 + 4ull * 2 * lengths[i]);
		model_free(m);
	}
}

/* Parts that lie so near to each other that the kernel's READs may be as far apart: in a stream that is
 * fetched ahead what is between would come as well. */
static void small_gaps_are_fetched_only_where_they_are_little(void)
{
	static const uint32_t gaps[] = { 4096, 16384, 65536, 131072, 262144 - 4096 };

	for (uint32_t i = 0; i < ARRAY_LEN(gaps); i++) {
		struct model *m = model_new(512 * MIB);
		uint64_t step = 3ull * 131072 + gaps[i];

		m->reader = 7;
		file_new(m, 0, 256 * MIB);
		for (uint64_t at = MIB; at + step <= m->size[0]; at += step)
			run_of(m, 0, at, at + 3ull * 131072, 131072);
		CHECK(m->sent <= m->asked + m->asked / 20);
		if (gaps[i] == 4096) /* one stream for all that */
			CHECK(m->n_missed <= 8);
		model_free(m);
	}
}

/* From the end to the beginning, in blocks. */
static void backward_reader_costs_what_it_asks_for(void)
{
	static const uint32_t lengths[] = { 4096, 100000, 131072, 262144, MIB, 4 * MIB };

	for (uint32_t i = 0; i < ARRAY_LEN(lengths); i++) {
		struct model *m = model_new(512 * MIB);

		file_new(m, 0, 256 * MIB);
		kernel_new(m, 0);
		m->reader = 7;
		for (uint64_t at = m->size[0] / lengths[i] * lengths[i]; at; at -= lengths[i])
			kernel_read(m, 0, at - lengths[i], lengths[i]);
		CHECK(m->sent <= m->asked + m->asked / 10);
		model_free(m);
	}
}

/* Twelve workers, each in its part of the same file; whose turn it is is random. */
static void streams_of_one_file_are_told_apart(void)
{
	enum { N = 12 };
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed(), at[N], end[N], left = N;

	file_new(m, 0, N * 16ull * MIB);
	for (uint32_t i = 0; i < N; i++) {
		at[i] = i * 16ull * MIB;
		end[i] = at[i] + 16ull * MIB;
	}
	while (left) {
		uint32_t i = (uint32_t)check_rand_below(&seed, N);

		if (at[i] >= end[i])
			continue;
		model_read(m, 0, at[i], 131072);
		at[i] += 131072;
		left -= at[i] >= end[i];
	}
	CHECK_U64(m->sent, m->size[0]);
	CHECK(m->n_missed <= 3 * N);
	model_free(m);
}

/* The kernel's READs of one stream overtake each other. */
static void overtaken_reads_do_not_end_a_stream(void)
{
	struct model *m = model_new(256 * MIB);

	file_new(m, 0, 64 * MIB);
	run_of(m, 0, 0, 4 * MIB, 131072);
	m->n_missed = 0;
	for (uint64_t at = 4 * MIB; at < 60 * MIB; at += 2 * 131072) {
		model_read(m, 0, at + 131072, 131072);
		model_read(m, 0, at, 131072);
	}
	CHECK(m->n_missed <= 2);
	CHECK(m->sent <= 64 * MIB);
	model_free(m);
}

/* LMDB: a value is 25 pages, read one by one, anywhere. */
static void short_runs_are_learned(void)
{
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed(), missed;

	file_new(m, 0, 1024ull * MIB);
	for (uint32_t n = 0; n < 200; n++) {
		uint64_t at = page_below(&seed, 1000ull * MIB);

		run_of(m, 0, at, at + 25 * PAGE, PAGE);
	}
	missed = m->n_missed;
	m->n_missed = m->asked = m->sent = 0;
	for (uint32_t n = 0; n < 200; n++) {
		uint64_t at = page_below(&seed, 1000ull * MIB);

		run_of(m, 0, at, at + 25 * PAGE, PAGE);
	}
	CHECK(m->n_missed <= 200 * 3);
	CHECK(missed <= 200 * 10);
	CHECK(m->sent <= m->asked + m->asked / 10);
	model_free(m);
}

static void row_groups_are_not_passed_by_much(void)
{
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed();

	file_new(m, 0, 2048ull * MIB);
	for (uint32_t n = 0; n < 60; n++) {
		uint64_t at = page_below(&seed, 2000ull * MIB);

		run_of(m, 0, at, at + 8 * MIB, 131072);
	}
	CHECK(m->sent <= m->asked + m->asked / 10);
	CHECK(m->n_missed <= 60 * 6);
	model_free(m);
}

static void headers_of_many_files_are_paid_for_to_a_limit(void)
{
	struct model *m = model_new(64 * MIB);

	for (uint32_t n = 0; n < 20 * FILES; n++) {
		file_new(m, n % FILES, 100 * MIB + n * PAGE); /* another size: another file */
		model_read(m, n % FILES, 0, n % 2 ? 16384 : 131072);
	}
	CHECK(m->sent <= m->asked + m->asked / AHEAD_SHARE + 16 * MIB + MIB);
	model_free(m);
}

static void advice_to_read_all_of_it_is_taken(void)
{
	struct model *m = model_new(256 * MIB);

	file_new(m, 0, 12 * MIB);
	model_read(m, 0, 0, 131072);
	CHECK_U64(m->sent, 12 * MIB);
	model_free(m);
}

/* Where a file is known to be read otherwise, a READ of its beginning is one like the others. */
static void file_that_is_read_at_random_is_not_fetched_whole_for_its_first_read(void)
{
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed();

	file_new(m, 0, 200 * MIB);
	for (uint32_t n = 0; n < 60; n++)
		model_read(m, 0, MIB + page_below(&seed, 190 * MIB), 131072);
	m->sent = 0;
	model_read(m, 0, 0, 131072);
	CHECK_U64(m->sent, 131072);
	model_free(m);
}

static void hints_that_nobody_came_for_are_not_taken(void)
{
	struct model *m = model_new(1024ull * MIB);
	uint64_t sent;

	/* The same file: what was fetched for its first one is gone. */
	file_new(m, 0, 12 * MIB);
	model_read(m, 0, 0, 131072);
	CHECK_U64(m->sent, 12 * MIB);
	file_new(m, 0, 12 * MIB);
	model_read(m, 0, 0, 131072);
	CHECK_U64(m->sent, 12 * MIB + 131072);
	/* Headers of 128 KiB, and never more: the next files are others. */
	for (uint32_t n = 0; n < 10; n++) {
		file_new(m, 1, 3 * MIB + n * PAGE);
		model_read(m, 1, 0, 131072);
	}
	sent = m->sent;
	for (uint32_t n = 10; n < 110; n++) {
		file_new(m, 1, 3 * MIB + n * PAGE);
		model_read(m, 1, 0, 131072);
	}
	CHECK(m->sent - sent <= 100 * 131072 + 7 * 3 * MIB);
	/* Readers that do come for all of it: soon they are believed again. */
	for (uint32_t n = 0; n < 300; n++) {
		file_new(m, 1, 3 * MIB + (200 + n) * PAGE);
		model_read(m, 1, 0, 131072);
		for (uint64_t at = m->size[1] / 131072 * 131072; at; at -= 131072)
			if (at < m->size[1])
				model_read(m, 1, at, 131072);
	}
	file_new(m, 1, 4 * MIB);
	sent = m->sent;
	model_read(m, 1, 0, 131072);
	CHECK_U64(m->sent - sent, 4 * MIB);
	model_free(m);
}

/* An arena that is full of the plan's for a while, or a source that errs: nothing ahead comes. */
static void what_did_not_come_is_not_paid_for(void)
{
	struct model *m = model_new(256 * MIB);

	file_new(m, 0, 400 * MIB);
	m->is_failing = true;
	run_of(m, 0, 0, 300 * MIB, 131072);
	CHECK_U64(m->sent, 300 * MIB);
	CHECK(m->n_missed + 8 >= m->n_reads); /* the first one brought a piece */
	m->is_failing = false;
	m->n_missed = 0;
	run_of(m, 0, 300 * MIB, 400 * MIB, 131072);
	CHECK(m->n_missed <= 3);
	CHECK_U64(m->sent, 400 * MIB);
	CHECK_U64(m->ahead.spent, 400 * MIB);
	model_free(m);
}

/* A second reader jumps about in what was fetched ahead of the first one. */
static void reader_further_on_does_not_take_a_stream(void)
{
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed(), n_missed = 0, longest = 0;

	file_new(m, 0, 200 * MIB);
	run_of(m, 0, 0, 20 * MIB, 131072);
	for (uint64_t at = 20 * MIB; at < 180 * MIB; at += 131072) {
		n_missed += model_read(m, 0, at, 131072);
		model_read(m, 0, at + MIB + page_below(&seed, 6 * MIB), PAGE);
	}
	CHECK(n_missed <= 3);
	CHECK(m->sent <= m->asked + AHEAD_MOST);
	for (int set = 0; set < AHEAD_SETS; set++)
		for (int i = 0; i < AHEAD_STREAMS; i++)
			longest = MAX(longest, m->ahead.file[set][0].stream[i].run);
	CHECK_U64(longest, 180 * MIB);
	model_free(m);
}

/* Records that lie one over the other: the kernel has the beginning of the second, and its READ
 * begins where another one's ended. */
static void records_that_overlap_are_no_streams(void)
{
	struct model *m = model_new(64 * MIB);
	uint64_t seed = check_seed();

	file_new(m, 0, 64 * MIB);
	for (uint32_t n = 0; n < 30; n++) {
		uint64_t at = MIB + page_below(&seed, 60 * MIB);

		model_read(m, 0, at, 25 * PAGE);
		if (n >= 8 && n % 4 == 0)
			model_read(m, 0, at + 25 * PAGE, 12 * PAGE);
	}
	CHECK(m->sent <= m->asked + 16 * PAGE);
	model_free(m);
}

/* The memory that it would fit into is taken by others again and again. */
static void pieces_that_are_gone_before_they_are_used_are_given_up(void)
{
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed();

	m->n_pages = 8 * MIB / PAGE;
	file_new(m, 0, 50 * MIB);
	for (uint32_t n = 0; n < 20000; n++)
		model_read(m, 0, page_below(&seed, 50 * MIB - 24 * PAGE), 24 * PAGE);
	CHECK(m->was_whole > 0);
	CHECK(m->sent <= m->asked + m->asked / 10 + 50 * MIB);
	model_free(m);
}

/* The plan takes the room, and gives it back again and again. */
static void room_that_comes_and_goes_is_not_filled_each_time(void)
{
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed();

	file_new(m, 0, 50 * MIB);
	kernel_new(m, 0);
	for (uint32_t n = 0; n < 20000; n++) {
		m->room = n % 600 < 100 ? MIB : 256 * MIB;
		if (n % 600 == 0) { /* with all that was in it */
			file_new(m, 0, 50 * MIB);
			kernel_new(m, 0);
		}
		model_read(m, 0, page_below(&seed, 50 * MIB - 24 * PAGE), 24 * PAGE);
	}
	CHECK(m->was_whole > 0);
	CHECK(m->sent <= m->asked + m->asked / 10 + 50 * MIB);
	model_free(m);
}

/* Once files were read to their end, others are begun with all that is allowed. */
static void files_read_to_their_end_are_expected_to_be(void)
{
	struct model *m = model_new(256 * MIB);

	for (uint32_t f = 0; f < 8; f++) {
		file_new(m, f, 8 * MIB);
		m->n_missed = 0;
		run_of(m, f, 0, 8 * MIB, 16384);
	}
	CHECK_U64(m->n_missed, 1);
	CHECK_U64(m->sent, 8 * 8 * MIB);
	model_free(m);
}

/* It was read whole once, and fits: then each piece of it comes once, and at once. */
static void file_that_fits_and_is_read_again_comes_in_pieces(void)
{
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed();

	file_new(m, 0, 50 * MIB);
	for (uint32_t n = 0; n < 2 * 50 * 11; n++)
		model_read(m, 0, page_below(&seed, 50 * MIB - 24 * PAGE), 24 * PAGE);
	file_new(m, 0, 50 * MIB); /* the same file; the cache has lost it */
	m->n_missed = m->sent = 0;
	for (uint32_t n = 0; n < 50 * 11; n++)
		model_read(m, 0, page_below(&seed, 50 * MIB - 24 * PAGE), 24 * PAGE);
	CHECK(m->sent <= 50 * MIB);
	CHECK(m->n_missed <= 51);
	m->room = 20 * MIB; /* memory is short: it does not fit any more */
	file_new(m, 0, 50 * MIB);
	m->sent = m->asked = 0;
	for (uint32_t n = 0; n < 10; n++)
		model_read(m, 0, page_below(&seed, 40 * MIB), 24 * PAGE);
	CHECK(m->sent <= m->asked + m->asked / 2 + MIB);
	model_free(m);
}

static void reach_follows_the_source_and_is_shared(void)
{
	struct model *m = model_new(1024ull * MIB);
	struct ahead *a = &m->ahead;

	/* 1 GB/s and 5 ms: 20 MB, more than a stream may have */
	for (int i = 0; i < 200; i++) {
		m->now_ns += NS_PER_MS;
		ahead_answered(a, m->now_ns, 1000000, 5 * NS_PER_MS);
	}
	CHECK_U64(ahead_reach(a), AHEAD_MOST);
	a->n_streams = 10;
	CHECK(ahead_reach(a) > 19 * 100000 && ahead_reach(a) < 21 * 100000);
	/* Answers that came from the memory of the source's client say nothing of the source. */
	a->n_streams = 0;
	for (int i = 0; i < 1000; i++) {
		m->now_ns += 50 * NS_PER_MS;
		ahead_answered(a, m->now_ns, i % 20 ? 50000000 : 4096,
			       i % 20 ? 5 * NS_PER_MS : 20000);
	}
	CHECK_U64(ahead_reach(a), AHEAD_MOST);
	/* One that is far away, but slow */
	memset(a, 0, sizeof(*a));
	for (int i = 0; i < 200; i++) {
		m->now_ns += 10 * NS_PER_MS;
		ahead_answered(a, m->now_ns, 100000, 100 * NS_PER_MS);
	}
	CHECK_U64(ahead_reach(a), 4 * MIB);
	model_free(m);
}

/* --- anything --- */

struct any {
	uint64_t seed, at[FILES];
	uint32_t n_files;
	uint64_t most; /* bytes of a file, beyond 2 MiB */
	bool is_scattered; /* no READ goes on where another one ended */
};

static void new_any(struct model *m, struct any *any, uint32_t f)
{
	file_new(m, f,
		 2 * MIB + page_below(&any->seed, any->most) + check_rand_below(&any->seed, PAGE));
	any->at[f] = 0;
}

static void step_any(struct model *m, struct any *any)
{
	uint64_t *seed = &any->seed, *at = any->at;
	uint32_t f = (uint32_t)check_rand_below(seed, any->n_files);
	uint32_t length = (uint32_t)(check_rand_below(seed, 32) + 1) * PAGE;

	switch (check_rand_below(seed, 8)) {
	case 0: /* a new file of that name; of few files seldom */
		if (check_rand_below(seed, FILES) < any->n_files)
			new_any(m, any, f);
		break;
	case 1:
		at[f] = page_below(seed, m->size[f]);
		break;
	case 2:
		at[f] = at[f] > 131072 ? at[f] - 131072 : 0;
		break;
	case 3:
		at[f] += 65536;
		break;
	default:
		break;
	}
	for (uint64_t n = check_rand_below(seed, 40); n && at[f] < m->size[f]; n--) {
		model_read(m, f, at[f], length);
		at[f] = any->is_scattered ? page_below(seed, m->size[f]) : at[f] + length;
	}
}

/* Whatever readers do, and however little of what was fetched is still there when they come, and of
 * the room: what was sent is what was asked for, a part of it, and the credit; and files that were
 * read whole are fetched once more. To be taken for such again they must have been read so often that
 * it is another part of what was asked for. */
static void nothing_costs_more_than_the_bound(void)
{
	struct any any = { .seed = check_seed() };

	for (uint32_t round = 0; round < 24; round++) {
		uint64_t room = (16ull + check_rand_below(&any.seed, 300)) * MIB;
		uint64_t credit = MIN((uint64_t)AHEAD_CREDIT, room / 4);
		struct model *m = model_new(room);

		any.n_files = round % 4 < 2 ? FILES : 3; /* these are read many times */
		any.most = any.n_files == FILES ? 64 * MIB : 6 * MIB;
		if (round % 2) /* others take the rest of it */
			m->n_pages = (1 + check_rand_below(&any.seed, room / MIB)) * MIB / PAGE;
		any.is_scattered = round % 8 == 7;
		if (any.is_scattered)
			m->n_pages = MIB / PAGE;
		for (uint32_t f = 0; f < FILES; f++)
			new_any(m, &any, f);
		for (uint32_t n = 0; n < 600; n++) {
			if (round % 3 == 0) /* the plan takes some, and gives it back */
				m->room = check_rand_below(&any.seed, room) + 1;
			step_any(m, &any);
			CHECK(round % 3 == 0 || m->ahead.whole_bytes <= m->room);
			CHECK(m->sent <= m->asked + m->asked / AHEAD_SHARE + credit +
						 m->was_whole + m->was_whole / 8 +
						 m->asked / 14 + /* 9/8 of one in 16 */
						 m->n_whole * 2 * MIB); /* the last pieces */
			CHECK(m->unused <= room / 2 + PAGE);
		}
		model_free(m);
	}
}

static const struct check_test tests[] = {
	{ "stream_is_fetched_once_and_waits_at_its_beginning",
	  stream_is_fetched_once_and_waits_at_its_beginning },
	{ "random_reads_cost_what_they_ask_for", random_reads_cost_what_they_ask_for },
	{ "epochs_of_records_cost_what_they_ask_for", epochs_of_records_cost_what_they_ask_for },
	{ "records_that_are_left_out_are_not_fetched", records_that_are_left_out_are_not_fetched },
	{ "small_gaps_are_fetched_only_where_they_are_little",
	  small_gaps_are_fetched_only_where_they_are_little },
	{ "backward_reader_costs_what_it_asks_for", backward_reader_costs_what_it_asks_for },
	{ "streams_of_one_file_are_told_apart", streams_of_one_file_are_told_apart },
	{ "overtaken_reads_do_not_end_a_stream", overtaken_reads_do_not_end_a_stream },
	{ "short_runs_are_learned", short_runs_are_learned },
	{ "row_groups_are_not_passed_by_much", row_groups_are_not_passed_by_much },
	{ "headers_of_many_files_are_paid_for_to_a_limit",
	  headers_of_many_files_are_paid_for_to_a_limit },
	{ "advice_to_read_all_of_it_is_taken", advice_to_read_all_of_it_is_taken },
	{ "file_that_is_read_at_random_is_not_fetched_whole_for_its_first_read",
	  file_that_is_read_at_random_is_not_fetched_whole_for_its_first_read },
	{ "hints_that_nobody_came_for_are_not_taken", hints_that_nobody_came_for_are_not_taken },
	{ "what_did_not_come_is_not_paid_for", what_did_not_come_is_not_paid_for },
	{ "reader_further_on_does_not_take_a_stream", reader_further_on_does_not_take_a_stream },
	{ "records_that_overlap_are_no_streams", records_that_overlap_are_no_streams },
	{ "pieces_that_are_gone_before_they_are_used_are_given_up",
	  pieces_that_are_gone_before_they_are_used_are_given_up },
	{ "room_that_comes_and_goes_is_not_filled_each_time",
	  room_that_comes_and_goes_is_not_filled_each_time },
	{ "files_read_to_their_end_are_expected_to_be",
	  files_read_to_their_end_are_expected_to_be },
	{ "file_that_fits_and_is_read_again_comes_in_pieces",
	  file_that_fits_and_is_read_again_comes_in_pieces },
	{ "reach_follows_the_source_and_is_shared", reach_follows_the_source_and_is_shared },
	{ "nothing_costs_more_than_the_bound", nothing_costs_more_than_the_bound },
};
CHECK_MAIN(tests)
