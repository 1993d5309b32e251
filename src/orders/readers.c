/* SPDX-License-Identifier: Apache-2.0 */
/* Who reads on a mount. The kernel says which thread a READ is of; /proc says of which process, and
 * who forked it (teller.c). An open that the kernel serves from its pages has no READ, so this is
 * known of some opens only: of nearly all of a job that no order was found of, as nothing of it is
 * fetched ahead.
 *
 * Everything is bounded: a process that starts thousands of others, each of which reads, takes the
 * places of readers that nobody has found an order of, and no more.
 *
 * Pure: what /proc says is told. One thread. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "clairfs/base/cleanup.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/compare.h"
#include "clairfs/base/ids.h"
#include "readers.h"

#define KNOWN_NS (10 * NS_PER_S) /* that a thread is this reader's */
#define PROBES 8
#define APART_OF 64              /* opens that are looked at */
#define LAST_OF 16
#define LAST_MOST 13 /* of these: others' are where an order has them now and then */
#define ONLY_OPENS 8
#define FIT_TIMES 2 /* positions for each open: what others read, or the kernel had */
#define FIT_MORE 64 /* that workers are apart */

/* Where this thread is in the table; else where it may be put: a free place, or one that is too old,
 * or the first one. */
static uint32_t tid_slot_of(const struct readers *r, uint32_t tid, uint64_t now_ns)
{
	uint32_t first = tid * 2654435761u >> 24, put = READER_NONE;

	for (uint32_t i = 0; i < PROBES; i++) {
		uint32_t slot = (first + i) % READER_TIDS;

		if (r->tid[slot].tid == tid)
			return slot;
		if (put == READER_NONE && (!r->tid[slot].tid || now_ns >= r->tid[slot].until_ns))
			put = slot;
	}
	return put == READER_NONE ? first : put;
}

uint32_t readers_find(const struct readers *r, uint32_t tid, uint64_t now_ns)
{
	uint32_t slot = tid_slot_of(r, tid, now_ns);

	if (!tid || r->tid[slot].tid != tid || now_ns >= r->tid[slot].until_ns)
		return READER_NONE;
	return r->tid[slot].reader;
}

static bool is_one_process(const struct process_id *a, const struct process_id *b)
{
	return a->pid == b->pid && a->start == b->start;
}

/* A free place, or that of the one that was quiet the longest. */
static uint32_t place_for(struct readers *r)
{
	uint32_t at = READER_NONE;

	for (uint32_t i = 0; i < READERS_MAX; i++) {
		const struct reader *one = &r->reader[i];

		if (!one->who.id.pid)
			return i;
		if (!one->owner && (at == READER_NONE || one->last < r->reader[at].last))
			at = i;
	}
	if (at != READER_NONE)
		readers_remove(r, at);
	return at;
}

uint32_t readers_learn(struct readers *r, uint32_t tid, const struct teller *who, uint64_t now_ns)
{
	uint32_t at = 0, slot;

	if (!tid || !who->id.pid)
		return READER_NONE;
	while (at < READERS_MAX && !is_one_process(&r->reader[at].who.id, &who->id))
		at++;
	if (at == READERS_MAX) {
		at = place_for(r);
		if (at == READER_NONE)
			return READER_NONE;
		r->reader[at] = (struct reader){ .who = *who, .last = r->opens };
	}
	slot = tid_slot_of(r, tid, now_ns);
	r->tid[slot].tid = tid;
	r->tid[slot].reader = at;
	r->tid[slot].until_ns = now_ns + KNOWN_NS;
	return at;
}

bool readers_is_placed(const struct readers *r, uint32_t at)
{
	const struct reader *one = &r->reader[at];
	const uint64_t last = (1u << LAST_OF) - 1;

	assert(at < READERS_MAX);
	return one->n_opens >= LAST_OF && __builtin_popcountll(one->placed & last) >= LAST_MOST;
}

/* The only one that no order explains, or READER_NONE. */
static uint32_t only_apart(const struct readers *r)
{
	uint32_t at = READER_NONE;

	for (uint32_t i = 0; i < READERS_MAX; i++) {
		const struct reader *one = &r->reader[i];
		bool is_apart = one->who.id.pid && !one->is_explained && one->n_opens >= ONLY_OPENS &&
				!readers_is_placed(r, i);

		if (is_apart && at != READER_NONE)
			return READER_NONE;
		if (is_apart)
			at = i;
	}
	return at;
}

/* What nobody was seen to read before this one showed was its as well. */
static void take_unseen(struct readers *r, uint32_t at)
{
	struct reader *one = &r->reader[at];
	uint64_t from = r->n_last - MIN(r->n_last, (uint64_t)READER_RECENT);

	one->n_kept = 0;
	for (uint64_t i = from; i < r->n_last; i++) {
		uint32_t of = r->last[i % READER_RECENT].reader;

		if (of == at || of == READER_NONE)
			one->kept[one->n_kept++] = r->last[i % READER_RECENT].sample;
	}
}

static void note_last(struct readers *r, uint32_t at, uint32_t sample)
{
	r->last[r->n_last % READER_RECENT].sample = sample;
	r->last[r->n_last++ % READER_RECENT].reader = at;
}

void readers_opened(struct readers *r, uint32_t at, uint32_t sample, bool is_placed)
{
	struct reader *one = &r->reader[at];

	assert(at < READERS_MAX && one->n_kept <= READER_KEPT);
	one->last = ++r->opens;
	one->recent[one->n_opens++ % READER_RECENT] = sample;
	one->placed = one->placed << 1 | is_placed;
	note_last(r, at, sample);
	if (one->n_kept < READER_KEPT && !one->is_explained)
		one->kept[one->n_kept++] = sample;
	if (one->n_opens == ONLY_OPENS && only_apart(r) == at)
		take_unseen(r, at);
	if (one->n_kept && readers_is_placed(r, at))
		one->n_kept = 0; /* they are explained by now */
}

uint32_t readers_opened_unseen(struct readers *r, uint32_t sample)
{
	uint32_t at = only_apart(r);

	if (at == READER_NONE)
		note_last(r, READER_NONE, sample);
	else
		readers_opened(r, at, sample, false);
	return at;
}

bool readers_is_apart(const struct readers *r, uint32_t at)
{
	const struct reader *one = &r->reader[at];

	assert(at < READERS_MAX);
	return one->who.id.pid && one->n_kept >= READER_LEAST &&
	       __builtin_popcountll(one->placed) <= APART_OF / 4;
}

bool readers_fits(const struct readers *r, uint32_t at, const struct order_epoch *epoch,
		  uint32_t ranks)
{
	const struct reader *one = &r->reader[at];
	uint32_t n = (uint32_t)MIN(one->n_opens, (uint64_t)READER_RECENT), want = n - n / 4;
	uint64_t span = FIT_TIMES * (uint64_t)n * MAX(ranks, 1u) + FIT_MORE;
	uint32_t pos[READER_RECENT];

	if (n < READER_LEAST / 2 || span > epoch->length / 3)
		return false;
	for (uint32_t i = 0; i < n; i++)
		pos[i] = epoch->first[one->recent[i]];
	qsort(pos, n, sizeof(pos[0]), compare_u32);
	for (uint32_t i = 0; i + want <= n; i++)
		if (pos[i + want - 1] != SAMPLE_NONE && pos[i + want - 1] - pos[i] < span)
			return true;
	return false;
}

void readers_begin_again(struct readers *r)
{
	for (uint32_t i = 0; i < READERS_MAX; i++) {
		if (r->reader[i].owner)
			continue;
		r->reader[i].n_kept = 0;
		r->reader[i].is_explained = false;
	}
}

void readers_remove(struct readers *r, uint32_t at)
{
	assert(at < READERS_MAX);
	for (uint32_t i = 0; i < READER_TIDS; i++)
		if (r->tid[i].reader == at)
			r->tid[i].tid = 0;
	memset(&r->reader[at], 0, sizeof(r->reader[at]));
}
