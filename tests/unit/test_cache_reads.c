/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of READs: nothing is lost while there is room, what finds none is counted and waits for nobody, and who
 * sleeps is woken. */
#include <string.h>

#include "check.h"
#include "clairfs/base/thr.h"
#include "clairfs/cache/reads.h"

static struct reads *ring(void)
{
	struct reads *r;

	CHECK_INT(reads_new(&r), 0);
	return r;
}

static void put(struct reads *r, uint32_t entry, uint64_t offset)
{
	const struct read_note note = { .entry = { entry }, .length = 4096, .offset = offset, .at_ns = 7, .reader = 9 };

	reads_note(r, &note);
}

static void notes_come_in_their_order(void)
{
	struct reads *r = ring();
	struct read_note note[16];

	CHECK_U64(reads_take(r, note, 16), 0);
	for (uint64_t round = 0; round < 3 * READS_MAX; round += 10) { /* several times around */
		for (uint32_t i = 0; i < 10; i++)
			put(r, i, round + i);
		CHECK_U64(reads_take(r, note, 4), 4);
		CHECK_U64(reads_take(r, note + 4, 12), 6);
		for (uint32_t i = 0; i < 10; i++) {
			CHECK_U64(note[i].entry.v, i);
			CHECK_U64(note[i].offset, round + i);
			CHECK_U64(note[i].length, 4096);
			CHECK_U64(note[i].at_ns, 7);
			CHECK_U64(note[i].reader, 9);
		}
	}
	CHECK_U64(reads_lost(r), 0);
	reads_free(r);
	reads_free(NULL);
}

static void what_finds_no_room_is_counted(void)
{
	struct reads *r = ring();
	struct read_note note[16];
	uint64_t n = 0, got;

	for (uint64_t i = 0; i < READS_MAX + 100; i++)
		put(r, 0, i);
	CHECK_U64(reads_lost(r), 100);
	while ((got = reads_take(r, note, 16)))
		for (uint32_t i = 0; i < got; i++)
			CHECK_U64(note[i].offset, n++);
	CHECK_U64(n, READS_MAX);
	put(r, 0, 5);
	CHECK_U64(reads_take(r, note, 16), 1);
	CHECK_U64(reads_lost(r), 100);
	reads_free(r);
}

#define WRITERS 4
#define EACH 50000u

struct writer {
	struct reads *r;
	uint32_t number;
};

static void *write_all(void *arg)
{
	const struct writer *w = arg;

	for (uint64_t i = 0; i < EACH; i++)
		put(w->r, w->number, i);
	return NULL;
}

/* Each writer's come in its order, each once; and the taker, which sleeps now and then, gets what was not dropped. */
static void many_write_and_one_sleeps(void)
{
	struct reads *r = ring();
	struct writer w[WRITERS];
	struct thr thr[WRITERS] = { 0 };
	uint64_t next[WRITERS] = { 0 }, taken = 0;
	struct read_note note[64];
	struct err err;

	for (uint32_t i = 0; i < WRITERS; i++) {
		w[i] = (struct writer){ r, i };
		CHECK_INT(thr_start(&thr[i], "writer", write_all, &w[i], &err), 0);
	}
	while (taken + reads_lost(r) < (uint64_t)WRITERS * EACH) {
		uint32_t n = reads_take(r, note, 64);

		for (uint32_t i = 0; i < n; i++) {
			uint32_t from = note[i].entry.v;

			CHECK(from < WRITERS && note[i].offset >= next[from]);
			next[from] = note[i].offset + 1;
		}
		taken += n;
		/* The last ones may have been dropped since: then nobody would wake it. */
		if (n == 0 && taken + reads_lost(r) + READS_MAX < (uint64_t)WRITERS * EACH)
			reads_wait(r);
	}
	CHECK_U64(taken + reads_lost(r), (uint64_t)WRITERS * EACH);
	for (uint32_t i = 0; i < WRITERS; i++)
		thr_join(&thr[i]);
	CHECK_U64(reads_take(r, note, 64), 0);
	reads_free(r);
}

static void wake_is_not_lost(void)
{
	struct reads *r = ring();
	struct read_note note;

	reads_wake(r); /* before it sleeps */
	reads_wait(r);
	put(r, 1, 1);
	reads_wait(r); /* there is one */
	CHECK_U64(reads_take(r, &note, 1), 1);
	reads_free(r);
}

static const struct check_test tests[] = {
	{ "notes_come_in_their_order", notes_come_in_their_order },
	{ "what_finds_no_room_is_counted", what_finds_no_room_is_counted },
	{ "many_write_and_one_sleeps", many_write_and_one_sleeps },
	{ "wake_is_not_lost", wake_is_not_lost },
};

CHECK_MAIN(tests)
