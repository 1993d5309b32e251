/* SPDX-License-Identifier: Apache-2.0 */
/* Records of a file that become its units while it is read: what was held, pushed or under way by its old units
 * goes on as it was and is right, and from that moment on readers come to records. Nothing plans: what
 * whoever plans would ask for is the test's. */
#include <string.h>

#include "units_rig.h"

#define MIB ((uint64_t)1 << 20)
#define PAGE 4096u
#define STRIDE 100000u
#define OLD 8u /* units of the file */
#define FROM (OLD + 1)

/* A file of 300 records, and one that is one unit. */
static struct rig *rig_of(struct reads *reads)
{
	static const uint64_t sizes[] = { 300 * STRIDE, 5000 };

	return rig_new(&(struct rig_options){ .n = 2,
					      .sizes = sizes,
					      .arena_limit = 64 * MIB,
					      .is_not_started = true,
					      .reads = reads,
					      .reserves = true });
}

static void cut_for(struct rig *rig, uint32_t around)
{
	const struct dataset_found found = {
		.entry = { 0 }, .stride = STRIDE, .n = 300, .around = around
	};
	uint32_t first;

	CHECK_INT(dataset_cut_found(rig->dataset, &found, &first), 0);
	CHECK_U64(first, 0);
	cache_note_cut(rig->cache, found.entry);
}

static void cut(struct rig *rig)
{
	cut_for(rig, 0);
}

static void what_is_held_by_an_old_number_is_right(void)
{
	struct rig *rig = rig_of(NULL);
	uint64_t before;

	CHECK_U64(dataset_n_file_units(rig->dataset), FROM);
	CHECK_INT(unit_hold(rig, 1), 0);
	CHECK_INT(unit_hold(rig, 2), 0);
	unit_push(rig, 2);
	cut(rig);
	for (uint32_t i = 0; i < 300; i++)
		CHECK_U64(unit_told(rig, NEWS_RESIZED, FROM + i), 1);
	CHECK_U64(unit_told(rig, NEWS_RESIZED, FROM + 300), 0);
	before = rig_source_bytes(rig);
	CHECK_INT(rig_read_check(rig, 0, 5 * MIB, MIB), READ_ARENA);
	CHECK_U64(unit_told(rig, NEWS_REACHED, FROM + 60), 1); /* to the end of this one and others */
	unit_push(rig, 1);
	CHECK_U64(rig_source_bytes(rig), before);
	/* And beside it the record of the same bytes. */
	CHECK_INT(unit_hold(rig, FROM + 60), 0); /* 6000000 to 6100000 */
	CHECK_U64(rig_source_bytes(rig), before + 6103040 - 5996544);
	unit_let_go(rig, 1);
	unit_let_go(rig, 2);
	CHECK_INT(rig_read_check(rig, 0, 6000640, 65536), READ_ARENA); /* not to its end */
	CHECK_INT(rig_read_check(rig, 0, 5 * MIB, PAGE), READ_MISS);
	unit_push(rig, FROM + 60);
	CHECK_INT(rig_read_check(rig, 0, 6004736 - PAGE, PAGE), READ_ARENA); /* the first page of its own */
	CHECK_U64(unit_told(rig, NEWS_REACHED, FROM + 60), 2);
	unit_let_go(rig, FROM + 60);
	CHECK_INT(unit_hold(rig, 3), 0); /* who has not heard of it yet */
	unit_let_go(rig, 3);
	rig_free(rig);
}

/* It was counted for one of the old units, and ends so. */
static void a_read_that_is_under_way_ends_as_it_began(void)
{
	struct fault_io_rule wait = { .kind = FAULT_IO_HOLD, .repeat = 64 };
	struct unit_asked a = { .fetch = { .answer_to = &a.answer } };
	struct rig *rig = rig_of(NULL);
	struct rig_read *r;

	fault_io_set(rig->io, &wait);
	r = rig_read_start(rig, 0, 8 * MIB - 65536, 131072);
	CHECK_INT(cache_hold(rig->cache, (struct unit_id){ 3 }, &a.fetch), 0);
	fault_io_wait_held(rig->io, 1);
	cut(rig);
	fault_io_set(rig->io, NULL);
	fault_io_resume(rig->io);
	rig_read_wait(r);
	CHECK_INT(r->status, 0);
	rig_check_bytes(r, 0, 300 * STRIDE);
	rig_read_free(r);
	RIG_UNTIL(unit_is_answered(rig, &a));
	CHECK_INT(a.fetch.status, 0);
	CHECK_INT(rig_read_check(rig, 0, 13 * MIB, 100), READ_ARENA);
	unit_let_go(rig, 3);
	account_sweep(rig->cache, clock_now(rig->cache->p.clock), true);
	rig_free(rig);
}

static void a_change_takes_old_units_and_records(void)
{
	struct rig *rig = rig_of(NULL);

	CHECK_INT(unit_hold(rig, 1), 0);
	CHECK_INT(unit_hold(rig, 2), 0);
	unit_push(rig, 2);
	cut(rig);
	CHECK_INT(unit_hold(rig, FROM + 7), 0);
	unit_push(rig, FROM + 7);
	rig_replace(rig, 0, 20 * MIB);
	rig_read_check(rig, 0, 17 * MIB, PAGE);
	for (uint32_t unit = 0; unit < FROM + 300; unit++) {
		CHECK_U64(unit_told(rig, NEWS_LOST_COPY, unit), unit == 1 || unit == 2 || unit == FROM + 7);
		CHECK_U64(unit_told(rig, NEWS_UNSTAGED, unit), unit == 2 || unit == FROM + 7);
	}
	CHECK_INT(unit_hold(rig, FROM + 7), 0);
	CHECK_INT(rig_read_check(rig, 0, 700416, 90000), READ_ARENA);
	CHECK_INT(unit_hold(rig, FROM + 250), 0); /* of which nothing is there any more */
	unit_let_go(rig, FROM + 7);
	unit_let_go(rig, FROM + 250);
	rig_free(rig);
}

/* Whose size it was before is not asked about again, as there may be a million of them. */
static void only_records_that_change_have_another_size(void)
{
	enum { END = 20 << 20, FIRST = 209 }; /* from 20900000 on, the one before it to 20901888 */
	struct rig *rig = rig_of(NULL);
	struct news *n = rig->drive->news;

	cut(rig);
	for (int grows = 0; grows < 2; grows++) {
		mutex_lock(&n->mu);
		memset(n->late_fill[NEWS_RESIZED], 0,
		       DIV_ROUND_UP(dataset_n_units(rig->dataset), 64) * sizeof(uint64_t));
		mutex_unlock(&n->mu);
		rig_replace(rig, 0, grows ? 25 * MIB : END);
		rig_read_check(rig, 0, 17 * MIB, PAGE);
		for (uint32_t i = 0; i < 300; i++)
			CHECK_U64(unit_told(rig, NEWS_RESIZED, FROM + i), i >= FIRST);
	}
	rig_free(rig);
}

/* Who looks for records hears of READs until then. */
static void reads_are_noted_until_the_file_is_in_records(void)
{
	struct read_note note[4];
	struct reads *reads;
	struct rig *rig;

	CHECK_INT(reads_new(&reads), 0);
	rig = rig_of(reads);
	rig_read_check(rig, 0, 200704, 98304);
	cut(rig);
	rig_read_check(rig, 0, 300000 / PAGE * PAGE, 2 * 65536);
	CHECK_U64(unit_told(rig, NEWS_REACHED, FROM + 3), 1);
	CHECK_U64(reads_take(reads, note, ARRAY_LEN(note)), 1);
	CHECK_U64(note[0].offset, 200704);
	rig_free(rig);
	reads_free(reads);
}

/* The kernel asks for as much before the page that is missing as from there on. */
static void check_around(uint32_t around)
{
	enum { RECORD = 70 * STRIDE / PAGE * PAGE, OWN = 6000640 };
	struct rig *rig = rig_of(NULL);

	cut_for(rig, around);
	rig_read_check(rig, 0, RECORD - around, 2 * around);
	for (uint32_t i = 0; i < 300; i++)
		CHECK_U64(unit_told(rig, NEWS_REACHED, FROM + i), i == 70);
	rig_read_check(rig, 0, RECORD + 2 * around, around); /* of a part somebody had all around it */
	CHECK_U64(unit_told(rig, NEWS_REACHED, FROM + 71) + unit_told(rig, NEWS_REACHED, FROM + 72), 0);
	CHECK_INT(unit_hold(rig, FROM + 60), 0);
	unit_push(rig, FROM + 60);
	rig_read_check(rig, 0, OWN - around, around); /* the end of the one before it */
	CHECK_U64(unit_told(rig, NEWS_REACHED, FROM + 59) + unit_told(rig, NEWS_REACHED, FROM + 60), 0);
	rig_read_check(rig, 0, OWN - around, around + PAGE); /* with the page that was not pushed */
	CHECK_U64(unit_told(rig, NEWS_REACHED, FROM + 59), 0);
	CHECK_U64(unit_told(rig, NEWS_REACHED, FROM + 60), 1);
	rig_read_check(rig, 0, 0, PAGE);
	unit_let_go(rig, FROM + 60);
	rig_free(rig);
}

static void of_a_mapped_file_the_middle_of_a_read_is_what_it_is_for(void)
{
	check_around(65536);
	check_around(524288); /* of a mount with a read-ahead of 1 MiB */
}

/* Its next job may not map it: then each READ is of a record, and no page around it. */
static void who_reads_what_was_mapped_is_told_of(void)
{
	enum { FIRST = 1998848, OWN = 2002944, OWN_END = 2097152, END = 2101248 }; /* of record 20 */
	struct rig *rig = rig_of(NULL);

	cut_for(rig, 65536);
	rig_read_check(rig, 0, FIRST, END - FIRST);
	CHECK_U64(unit_told(rig, NEWS_REACHED, FROM + 20), 1);
	rig_read_check(rig, 0, OWN, OWN_END - OWN); /* the kernel has the pages that it shares */
	CHECK_U64(unit_told(rig, NEWS_REACHED, FROM + 20), 2);
	rig_read_check(rig, 0, FIRST - PAGE, END - FIRST);
	rig_read_check(rig, 0, FIRST, END + PAGE - FIRST);
	rig_read_check(rig, 0, OWN + PAGE, OWN_END - OWN - PAGE);
	rig_read_check(rig, 0, OWN, OWN_END - OWN - PAGE);
	rig_read_check(rig, 0, 299 * STRIDE / PAGE * PAGE, 26 * PAGE); /* beyond the end of the file */
	for (uint32_t i = 0; i < 300; i++)
		CHECK_U64(unit_told(rig, NEWS_REACHED, FROM + i), i == 20 ? 2 : i == 299);
	rig_free(rig);
}

static void what_was_read_before_is_told(void)
{
	const struct unit_id come[] = { { FROM + 9 }, { FROM + 2 } };
	struct rig *rig = rig_of(NULL);

	cut(rig);
	cache_note_come(rig->cache, come, ARRAY_LEN(come));
	CHECK_U64(unit_told(rig, NEWS_REACHED, FROM + 9), 1);
	CHECK_U64(unit_told(rig, NEWS_REACHED, FROM + 2), 1);
	rig_free(rig);
}

enum { READERS = 3, READS = 150, TIMES = 8 };

static void *read_on(void *arg)
{
	struct rig *rig = arg;
	uint64_t at = 0;

	for (uint32_t i = 0; i < READS; i++) {
		at = (at + 7 * STRIDE + 4321) % (299 * STRIDE) / PAGE * PAGE;
		(void)rig_read_check(rig, 0, at, 65536 + i % 8 * PAGE);
	}
	return NULL;
}

static void cut_beside_readers(void)
{
	struct thr thr[READERS] = { { .is_started = false } };
	struct rig *rig = rig_of(NULL);
	struct err err = { 0 };

	for (uint32_t i = 0; i < READERS; i++)
		CHECK_INT(thr_start(&thr[i], "reader", read_on, rig, &err), 0);
	CHECK_INT(unit_hold(rig, 4), 0);
	unit_push(rig, 4);
	cut(rig);
	for (uint32_t i = 0; i < 40; i++)
		CHECK_INT(unit_hold(rig, FROM + 3 * i), 0);
	unit_let_go(rig, 4);
	for (uint32_t i = 0; i < 40; i++)
		unit_let_go(rig, FROM + 3 * i);
	for (uint32_t i = 0; i < READERS; i++)
		thr_join(&thr[i]);
	rig_free(rig);
}

static void readers_do_not_notice(void)
{
	for (int i = 0; i < TIMES; i++)
		cut_beside_readers();
}

static const struct check_test tests[] = {
	{ "what_is_held_by_an_old_number_is_right", what_is_held_by_an_old_number_is_right },
	{ "a_read_that_is_under_way_ends_as_it_began", a_read_that_is_under_way_ends_as_it_began },
	{ "a_change_takes_old_units_and_records", a_change_takes_old_units_and_records },
	{ "only_records_that_change_have_another_size", only_records_that_change_have_another_size },
	{ "reads_are_noted_until_the_file_is_in_records",
	  reads_are_noted_until_the_file_is_in_records },
	{ "of_a_mapped_file_the_middle_of_a_read_is_what_it_is_for",
	  of_a_mapped_file_the_middle_of_a_read_is_what_it_is_for },
	{ "who_reads_what_was_mapped_is_told_of", who_reads_what_was_mapped_is_told_of },
	{ "what_was_read_before_is_told", what_was_read_before_is_told },
	{ "readers_do_not_notice", readers_do_not_notice },
};
CHECK_MAIN(tests)
