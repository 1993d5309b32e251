/* SPDX-License-Identifier: Apache-2.0 */
/* Who reads: which opens are a reader's, who reads something that no order has, and that a process
 * which starts thousands of others takes no more than the places of those that nobody knows. */
#include <string.h>

#include "check.h"
#include "src/orders/readers.h"

#define SECOND UINT64_C(1000000000)

static struct readers r;

static struct teller process(int pid)
{
	return (struct teller){ .id = { pid, 7 }, .is_itself = true };
}

static uint32_t learn(int pid, uint32_t tid)
{
	struct teller who = process(pid);

	return readers_learn(&r, tid, &who, SECOND);
}

static void open_some(uint32_t at, uint32_t first, uint32_t n, bool is_placed)
{
	for (uint32_t i = 0; i < n; i++)
		readers_opened(&r, at, first + i, is_placed);
}

static void threads_are_their_process(void)
{
	struct teller nobody = { .is_itself = false };
	uint32_t at;

	memset(&r, 0, sizeof(r));
	CHECK_U64(readers_find(&r, 11, SECOND), READER_NONE);
	at = learn(10, 11);
	CHECK(at != READER_NONE);
	CHECK_U64(learn(10, 12), at);
	CHECK(learn(20, 21) != at);
	CHECK_U64(readers_find(&r, 11, SECOND), at);
	CHECK_U64(readers_find(&r, 12, SECOND), at);
	CHECK_U64(readers_find(&r, 0, SECOND), READER_NONE);
	CHECK_U64(readers_find(&r, 11, 100 * SECOND), READER_NONE); /* it may be another's by then */
	CHECK_U64(readers_learn(&r, 13, &nobody, SECOND), READER_NONE);
	CHECK_U64(learn(10, 0), READER_NONE);
	readers_remove(&r, at);
	CHECK_U64(readers_find(&r, 12, SECOND), READER_NONE);
}

static void who_reads_what_no_order_has_is_apart(void)
{
	uint32_t a, b;

	memset(&r, 0, sizeof(r));
	a = learn(10, 11);
	b = learn(20, 21);
	open_some(a, 0, READER_LEAST - 1, false);
	CHECK(!readers_is_apart(&r, a));
	open_some(a, 100, 1, false);
	CHECK(readers_is_apart(&r, a) && !readers_is_apart(&r, b));
	CHECK_U64(r.reader[a].n_kept, READER_LEAST);
	CHECK_U64(r.reader[a].kept[READER_LEAST - 1], 100);
	/* Here and there it is where another's order has one. */
	for (uint32_t i = 0; i < 64; i++)
		readers_opened(&r, a, 200 + i, i % 5 == 0);
	CHECK(readers_is_apart(&r, a) && !readers_is_placed(&r, a));
	/* Its own order is in force. */
	open_some(a, 300, 64, true);
	CHECK(!readers_is_apart(&r, a) && readers_is_placed(&r, a));
	CHECK_U64(r.reader[a].n_kept, 0);
	open_some(b, 0, 64, true);
	CHECK(!readers_is_apart(&r, b));
}

/* Opens that the kernel serves have no READ. */
static void what_nobody_is_seen_to_read_is_the_only_one_s(void)
{
	uint32_t a, b;

	memset(&r, 0, sizeof(r));
	a = learn(10, 11);
	r.reader[a].is_explained = true;
	b = learn(20, 21);
	CHECK_U64(readers_opened_unseen(&r, 1000), READER_NONE);
	open_some(a, 0, 3, false);
	CHECK_U64(readers_opened_unseen(&r, 1001), READER_NONE);
	open_some(b, 1002, 8, false);
	CHECK_U64(readers_opened_unseen(&r, 1010), b);
	CHECK_U64(r.reader[b].n_kept, 11);
	for (uint32_t i = 0; i < 11; i++) /* also from before it showed */
		CHECK_U64(r.reader[b].kept[i], 1000 + i);
	open_some(learn(30, 31), 2000, 8, false);
	CHECK_U64(readers_opened_unseen(&r, 3000), READER_NONE); /* of two it may be either's */
}

static struct order_epoch epoch_of(uint32_t n, uint32_t *first)
{
	for (uint32_t i = 0; i < n; i++) /* a permutation, as 7919 is a prime */
		first[(uint64_t)i * 7919 % n] = i;
	return (struct order_epoch){ .length = n, .n = n, .first = first };
}

static void an_order_fits_who_reads_it(void)
{
	static uint32_t first[10000];
	struct order_epoch ep = epoch_of(10000, first), small = epoch_of(10000, first);
	uint32_t a, b, c;

	memset(&r, 0, sizeof(r));
	a = learn(10, 11);
	b = learn(20, 21);
	c = learn(30, 31);
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t pos = 5000 + 2 * (i ^ 3); /* rank 0 of 2, by several workers */

		readers_opened(&r, a, (uint32_t)((uint64_t)pos * 7919 % 10000), false);
		readers_opened(&r, b, i * 150, false);
	}
	CHECK(readers_fits(&r, a, &ep, 2));
	CHECK(!readers_fits(&r, b, &ep, 2));
	CHECK(!readers_fits(&r, c, &ep, 2)); /* has read nothing */
	small.length = 500;
	CHECK(!readers_fits(&r, a, &small, 2));
}

/* Each reads a file or two and is gone. */
static void a_crowd_takes_no_place_of_a_known_one(void)
{
	uint32_t a, b;

	memset(&r, 0, sizeof(r));
	a = learn(10, 11);
	b = learn(20, 21);
	r.reader[a].owner = 1;
	open_some(a, 0, 40, false);
	for (int pid = 1000; pid < 20000; pid++) {
		uint32_t at = learn(pid, (uint32_t)pid);

		CHECK(at < READERS_MAX && at != a);
		readers_opened(&r, at, 5, false);
		CHECK(!readers_is_apart(&r, at));
	}
	CHECK_U64(readers_find(&r, 21, SECOND), READER_NONE); /* quiet for the longest */
	CHECK(r.reader[b].who.id.pid != 20);
	CHECK(readers_is_apart(&r, a));
	for (uint32_t i = 0; i < READERS_MAX; i++)
		r.reader[i].owner = 1;
	CHECK_U64(learn(5, 5), READER_NONE); /* no room */
}

static const struct check_test tests[] = {
	{ "threads_are_their_process", threads_are_their_process },
	{ "who_reads_what_no_order_has_is_apart", who_reads_what_no_order_has_is_apart },
	{ "what_nobody_is_seen_to_read_is_the_only_one_s",
	  what_nobody_is_seen_to_read_is_the_only_one_s },
	{ "an_order_fits_who_reads_it", an_order_fits_who_reads_it },
	{ "a_crowd_takes_no_place_of_a_known_one", a_crowd_takes_no_place_of_a_known_one },
};
CHECK_MAIN(tests)
