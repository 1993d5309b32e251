/* SPDX-License-Identifier: Apache-2.0 */
/* Units of larger files in the cache: held, pushed but for their tracer page, counted and dropped one
 * by one. Nothing plans: what whoever plans would ask for is the test's. */
#include "units_rig.h"

#define MIB ((uint64_t)1 << 20)
#define PAGE 4096u

/* Ten units, and a file that is one. */
static struct rig *rig_of_units(struct clock *clock)
{
	static const uint64_t sizes[] = { 38 * MIB + 1000, 5000 };

	return rig_new(&(struct rig_options){
		.n = 2, .sizes = sizes, .arena_limit = 64 * MIB, .clock = clock, .is_not_started = true });
}

static void a_unit_is_held_and_let_go_alone(void)
{
	struct rig *rig = rig_of_units(NULL);
	uint64_t before;

	CHECK_INT(unit_hold(rig, 2), 0);
	CHECK_U64(rig_source_bytes(rig), 4 * MIB);
	CHECK_INT(unit_hold(rig, 3), 0);
	CHECK_INT(unit_hold(rig, 9), 0); /* the last one */
	CHECK_U64(rig_source_bytes(rig), 10 * MIB + 1000);
	CHECK_INT(rig_read_check(rig, 0, 8 * MIB, 100000), READ_ARENA);
	CHECK_INT(rig_read_check(rig, 0, 12 * MIB - 50000, 100000), READ_ARENA); /* of two */
	CHECK_INT(rig_read_check(rig, 0, 7 * MIB, 4096), READ_MISS);
	cache_release(rig->cache, (struct unit_id){ 2 }, false);
	CHECK_INT(rig_read_check(rig, 0, 13 * MIB, 100000), READ_ARENA);
	before = rig_source_bytes(rig);
	CHECK_INT(rig_read_check(rig, 0, 10 * MIB, 4096), READ_MISS);
	CHECK(rig_source_bytes(rig) > before);
	CHECK_INT(hold_of(rig->cache, (struct unit_id){ 3 }), HOLD_HELD);
	CHECK_INT(hold_of(rig->cache, (struct unit_id){ 2 }), HOLD_NONE);
	cache_release(rig->cache, (struct unit_id){ 3 }, false);
	cache_release(rig->cache, (struct unit_id){ 9 }, true); /* stays for whoever reads it */
	CHECK_INT(rig_read_check(rig, 0, 37 * MIB, 4096), READ_ARENA);
	rig_free(rig);
}

static void the_first_page_of_a_unit_is_not_pushed_and_says_who_comes(void)
{
	struct rig *rig = rig_of_units(NULL);
	struct cache_push p;

	CHECK_INT(unit_hold(rig, 1), 0);
	CHECK_INT(cache_push_begin(rig->cache, (struct unit_id){ 1 }, &p), 0);
	CHECK_U64(p.first, 4);
	CHECK_U64(p.end, 8);
	CHECK_U64(p.tracer_bytes, PAGE);
	CHECK_INT(cache_push_end(rig->cache, &p, -EAGAIN), -EAGAIN);
	unit_push(rig, 1);
	CHECK_INT(rig_read_check(rig, 0, 4 * MIB, PAGE), READ_ARENA);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 1), 1);
	CHECK_U64(unit_told(rig, NEWS_UNSTAGED, 1), 0);
	/* More than that page: the kernel has not got what was pushed. */
	CHECK_INT(rig_read_check(rig, 0, 4 * MIB + PAGE, 100000), READ_ARENA);
	CHECK_U64(unit_told(rig, NEWS_UNSTAGED, 1), 1);
	CHECK_INT(rig_read_check(rig, 0, 8 * MIB - 50000, 100000), READ_MISS); /* into the next one */
	CHECK_U64(unit_told(rig, NEWS_REACHED, 2), 1);
	CHECK_INT(rig_read_check(rig, 0, 9 * MIB, 100000), READ_MISS);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 2), 1);
	/* Of a file that is one the open says it, and all of it is pushed. */
	CHECK_INT(unit_hold(rig, 10), 0);
	CHECK_INT(cache_push_begin(rig->cache, (struct unit_id){ 10 }, &p), 0);
	CHECK_U64(p.tracer_bytes, 0);
	CHECK_INT(cache_push_end(rig->cache, &p, 0), 0);
	rig_read_check(rig, 1, 0, PAGE);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 10), 0);
	rig_free(rig);
}

/* What left the arena while the kernel has it: the tracer's READ asks nobody. */
static void the_tracer_page_outlives_its_unit(void)
{
	struct rig *rig = rig_of_units(NULL);
	uint64_t before;

	CHECK_INT(unit_hold(rig, 1), 0);
	unit_push(rig, 1);
	cache_release(rig->cache, (struct unit_id){ 1 }, false);
	CHECK_U64(arena_used(rig->arena), PAGE);
	before = rig_source_bytes(rig);
	CHECK_INT(rig_read_check(rig, 0, 4 * MIB, PAGE), READ_ARENA);
	CHECK_U64(rig_source_bytes(rig), before);
	RIG_UNTIL(arena_used(rig->arena) == 0); /* it came, and is of no use any more */
	/* Here again before it was read: there is one copy. */
	CHECK_INT(unit_hold(rig, 1), 0);
	unit_push(rig, 1);
	cache_release(rig->cache, (struct unit_id){ 1 }, false);
	CHECK_INT(unit_hold(rig, 1), 0);
	CHECK_U64(arena_used(rig->arena), 4 * MIB);
	cache_release(rig->cache, (struct unit_id){ 1 }, false);
	/* Another file now. */
	CHECK_U64(arena_used(rig->arena), PAGE);
	rig_replace(rig, 0, 20 * MIB);
	rig_read_check(rig, 0, 8 * MIB, PAGE); /* by which that is seen */
	RIG_UNTIL(arena_used(rig->arena) == 0);
	CHECK_INT(rig_read_check(rig, 0, 4 * MIB, PAGE), READ_MISS);
	rig_free(rig);
}

static uint64_t total_bytes(struct rig *rig)
{
	uint64_t bytes = 0;

	account_sweep(rig->cache, clock_now(rig->cache->p.clock), true);
	for (int class = 0; class < READ_CLASSES; class ++)
		bytes += rig_metric(rig, METRIC_READ_BYTES_STAGED + class);
	return bytes;
}

static void pushed_pages_count_when_their_tracer_was_read(void)
{
	struct rig *rig = rig_of_units(NULL);

	for (uint32_t unit = 0; unit < 3; unit++) {
		CHECK_INT(unit_hold(rig, unit), 0);
		unit_push(rig, unit);
	}
	cache_note_open(rig->cache, (struct entry_id){ 0 });
	CHECK_U64(total_bytes(rig), 0); /* opened, and that is all */
	rig_read_check(rig, 0, 0, PAGE);
	CHECK_U64(total_bytes(rig), 4 * MIB);
	CHECK_U64(rig_metric(rig, METRIC_READ_BYTES_ARENA), PAGE);
	rig_read_check(rig, 0, 8 * MIB, PAGE);
	CHECK_U64(total_bytes(rig), 8 * MIB); /* unit 1 was jumped over */
	rig_read_check(rig, 0, 6 * MIB, 100000); /* in the middle of it: the kernel had no pages */
	CHECK_U64(total_bytes(rig), 8 * MIB + 100000);
	rig_read_check(rig, 0, 16 * MIB - 8192, 16384); /* of two units, and nobody has pushed them */
	CHECK_U64(total_bytes(rig), 8 * MIB + 100000 + 16384);
	CHECK_U64(rig_metric(rig, METRIC_READ_BYTES_STAGED), 8 * MIB - 2 * PAGE);
	rig_free(rig);
}

/* An epoch that follows soon: nothing of the last one is decided when the file is read again. */
static void a_push_counts_for_the_read_that_comes_before_its_open(void)
{
	struct rig *rig = rig_of_units(NULL);

	CHECK_INT(unit_hold(rig, 0), 0);
	for (uint32_t epoch = 1; epoch <= 3; epoch++) {
		unit_push(rig, 0);
		rig_read_check(rig, 0, 0, PAGE);
		cache_note_open(rig->cache, (struct entry_id){ 0 });
	}
	CHECK_U64(total_bytes(rig), 12 * MIB);
	CHECK_U64(unit_told(rig, NEWS_OPENED, 0), 3);
	/* One that has it open asks for that page again: the kernel had dropped it. */
	rig_read_check(rig, 0, 0, PAGE);
	CHECK_U64(total_bytes(rig), 12 * MIB + PAGE);
	rig_free(rig);
}

/* The stager drops the first page before it pushes the rest, and the reader is there. */
static void push_and_read_meanwhile(struct rig *rig, uint32_t unit)
{
	struct cache_push p;
	struct cache_copy copy;

	CHECK_INT(cache_push_begin(rig->cache, (struct unit_id){ unit }, &p), 0);
	for (uint32_t i = p.first; i < p.end; i++) {
		CHECK_INT(cache_push_pin(rig->cache, &p, i, &copy), 0);
		cache_push_unpin(rig->cache, &p, &copy, true);
		if (i == p.first)
			rig_read_check(rig, 0, unit * 4 * MIB, PAGE);
	}
	CHECK_INT(cache_push_end(rig->cache, &p, 0), 0);
}

struct meanwhile {
	bool is_heard_of;      /* the open, before its first READ */
	bool was_pushed;       /* for that open, and this push is for the next pass */
	uint64_t later_ns;     /* between both READs of the page */
	uint64_t mib, n_opens; /* counted and told */
};

static void push_under_a_reader(const struct meanwhile *m)
{
	struct manual_clock mc = { .clock = { .now_ns = manual_now }, .now_ns = 1000 * NS_PER_S };
	struct rig *rig = rig_of_units(&mc.clock);

	CHECK_INT(unit_hold(rig, 0), 0);
	if (m->was_pushed)
		unit_push(rig, 0);
	if (m->is_heard_of)
		cache_note_open(rig->cache, (struct entry_id){ 0 });
	rig_read_check(rig, 0, 0, m->was_pushed ? PAGE : 4 * PAGE);
	atomic_fetch_add(&mc.now_ns, m->later_ns);
	push_and_read_meanwhile(rig, 0);
	if (!m->is_heard_of)
		cache_note_open(rig->cache, (struct entry_id){ 0 });
	CHECK_U64(total_bytes(rig), m->mib * MIB);
	CHECK_U64(unit_told(rig, NEWS_OPENED, 0), m->n_opens);
	rig_free(rig);
}

static void a_push_counts_once_for_who_reads_meanwhile(void)
{
	static const struct meanwhile cases[] = {
		{ .is_heard_of = true, .mib = 4, .n_opens = 1 },
		{ .is_heard_of = true, .later_ns = 900 * NS_PER_MS, .mib = 4, .n_opens = 1 },
		{ .is_heard_of = true, .was_pushed = true, .mib = 4, .n_opens = 1 },
		{ .is_heard_of = true, .was_pushed = true, .later_ns = 900 * NS_PER_MS, .mib = 4, .n_opens = 1 },
		{ .mib = 4, .n_opens = 1 },
		{ .later_ns = 249 * NS_PER_MS, .mib = 4, .n_opens = 1 },
		{ .was_pushed = true, .later_ns = 249 * NS_PER_MS, .mib = 4, .n_opens = 1 },
		/* The first one would have been heard of by now: two opens. */
		{ .later_ns = 250 * NS_PER_MS, .mib = 8, .n_opens = 2 },
		{ .was_pushed = true, .later_ns = 250 * NS_PER_MS, .mib = 8, .n_opens = 2 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		push_under_a_reader(&cases[i]);
}

/* What was pushed for the pass before is no sign of the kernel's while it is pushed for the next one. */
static void a_push_that_begins_ends_the_one_that_was_used(void)
{
	struct rig *rig = rig_of_units(NULL);
	struct cache_push p;

	CHECK_INT(unit_hold(rig, 1), 0);
	unit_push(rig, 1);
	CHECK_INT(cache_push_begin(rig->cache, (struct unit_id){ 1 }, &p), 0);
	CHECK(bits_get(rig->cache->staged, 1)); /* nobody has come to it */
	CHECK_INT(cache_push_end(rig->cache, &p, -EAGAIN), -EAGAIN);
	rig_read_check(rig, 0, 4 * MIB, PAGE);
	CHECK_INT(cache_push_begin(rig->cache, (struct unit_id){ 1 }, &p), 0);
	account_sweep(rig->cache, clock_now(rig->cache->p.clock), true);
	rig_read_check(rig, 0, 5 * MIB, 100000);
	CHECK_U64(unit_told(rig, NEWS_UNSTAGED, 1), 0);
	CHECK_INT(cache_push_end(rig->cache, &p, 0), 0);
	CHECK(bits_get(rig->cache->staged, 1));
	account_sweep(rig->cache, clock_now(rig->cache->p.clock), true);
	rig_read_check(rig, 0, 6 * MIB, 100000); /* its pages are gone again */
	CHECK_U64(unit_told(rig, NEWS_UNSTAGED, 1), 1);
	rig_free(rig);
}

static void a_change_takes_all_units_of_the_file(void)
{
	struct fault_io_rule wait = { .kind = FAULT_IO_HOLD, .repeat = 64 };
	struct rig *rig = rig_of_units(NULL);
	struct unit_asked a = { .fetch = { .answer_to = &a.answer } };
	struct file_identity known;
	struct stat st;

	CHECK_INT(unit_hold(rig, 1), 0);
	CHECK_INT(unit_hold(rig, 4), 0);
	CHECK_INT(unit_hold(rig, 10), 0);
	fault_io_set(rig->io, &wait);
	CHECK_INT(cache_hold(rig->cache, (struct unit_id){ 7 }, &a.fetch), 0);
	fault_io_wait_held(rig->io, 1);
	rig_replace(rig, 0, 30 * MIB);
	AUTO_FREE char *path = rig_path(rig, 0);

	dataset_identity(rig->dataset, rig_entry(rig, 0), &known);
	CHECK_INT(stat(path, &st), 0);
	change_file(rig->cache, rig_entry(rig, 0), &known, &st);
	for (uint32_t unit = 0; unit < 11; unit++)
		CHECK_U64(unit_told(rig, NEWS_LOST_COPY, unit), unit == 1 || unit == 4);
	/* From 38 to 30 MiB: units 7 to 9 have fewer bytes. */
	for (uint32_t unit = 0; unit < 10; unit++)
		CHECK_U64(unit_told(rig, NEWS_RESIZED, unit), unit >= 7);
	fault_io_set(rig->io, NULL);
	fault_io_resume(rig->io);
	RIG_UNTIL(unit_is_answered(rig, &a));
	CHECK_INT(a.fetch.status, -ESTALE);
	CHECK_INT(hold_of(rig->cache, (struct unit_id){ 10 }), HOLD_HELD);
	CHECK_INT(unit_hold(rig, 7), 0); /* two MiB of it are left */
	CHECK_INT(unit_hold(rig, 8), 0); /* and nothing */
	CHECK_INT(rig_read_check(rig, 0, 29 * MIB, 4096), READ_ARENA);
	rig_free(rig);
}

/* A unit is set aside for a control read: the others stay where they are. */
static void a_unit_is_set_aside_alone(void)
{
	struct fault_io_rule wait = { .kind = FAULT_IO_HOLD, .repeat = 64 };
	struct rig *rig = rig_of_units(NULL);
	struct unit_asked a = { .fetch = { .answer_to = &a.answer } };
	struct unit_id unit = { 2 };

	probed_fini(rig->cache);
	rig->cache->p.sets_aside = true;
	CHECK_INT(probed_init(rig->cache), 0);
	CHECK_INT(unit_hold(rig, 2), 0);
	CHECK_INT(unit_hold(rig, 3), 0);
	unit_push(rig, 3);
	cache_set_aside(rig->cache, unit, 1);
	CHECK_U64(unit_told(rig, NEWS_LOST_COPY, 2), 1);
	CHECK_INT(probed_mark(rig->cache, unit), 1);
	CHECK_INT(hold_of(rig->cache, (struct unit_id){ 3 }), HOLD_HELD);
	CHECK(bits_get(rig->cache->staged, 3));
	for (uint64_t at = 8 * MIB; at < 12 * MIB; at += MIB)
		rig_read_check(rig, 0, at, 4096);
	RIG_UNTIL(probed_mark(rig->cache, unit) == 0);
	/* One that is being fetched would lack what was here already. */
	fault_io_set(rig->io, &wait);
	CHECK_INT(cache_hold(rig->cache, (struct unit_id){ 5 }, &a.fetch), 0);
	fault_io_wait_held(rig->io, 1);
	cache_set_aside(rig->cache, (struct unit_id){ 5 }, 1);
	fault_io_set(rig->io, NULL);
	fault_io_resume(rig->io);
	RIG_UNTIL(unit_is_answered(rig, &a));
	CHECK_INT(a.fetch.status, -ESTALE);
	CHECK_INT(hold_of(rig->cache, (struct unit_id){ 5 }), HOLD_NONE);
	CHECK_INT(rig_read_check(rig, 0, 13 * MIB, 4096), READ_ARENA);
	rig_free(rig);
}

/* The watch has not told of it, or lost it: it is an open all the same, and one. */
static void opens_that_are_not_heard_of_are_told(void)
{
	struct rig *rig = rig_of_units(NULL);
	uint64_t now;

	for (uint64_t at = 0; at < 4 * MIB; at += MIB / 2)
		rig_read_check(rig, 0, at, MIB / 2);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 0), 0); /* of a first unit the open is what counts */
	now = clock_now(rig->cache->p.clock);
	account_sweep(rig->cache, now + 6 * NS_PER_S, false);
	CHECK_U64(unit_told(rig, NEWS_OPENED, 0), 1);
	/* Kept open, and read from the beginning again. */
	rig_read_check(rig, 0, 0, PAGE);
	account_sweep(rig->cache, now + 60 * NS_PER_S, false);
	CHECK_U64(unit_told(rig, NEWS_OPENED, 0), 2);
	rig_free(rig);
}

static void an_open_that_comes_after_its_first_read_is_one(void)
{
	struct rig *rig = rig_of_units(NULL);

	rig_read_check(rig, 0, 0, MIB / 8);
	cache_note_open(rig->cache, (struct entry_id){ 0 });
	rig_read_check(rig, 0, MIB / 8, MIB / 8);
	CHECK_U64(total_bytes(rig), MIB / 4);
	CHECK_U64(unit_told(rig, NEWS_OPENED, 0), 1);
	CHECK_U64(rig_metric(rig, METRIC_READS_STAGED), 0);
	rig_free(rig);
}

static void what_cannot_be_adopted_whole_stays_for_its_reader(void)
{
	struct rig *rig = rig_of_units(NULL);
	struct unit_asked a = { .fetch = { .answer_to = &a.answer, .is_adopting = true } };

	CHECK_INT(unit_hold(rig, 1), 0);
	cache_release(rig->cache, (struct unit_id){ 1 }, true);
	CHECK(evict_one(rig->cache)); /* its first piece is the oldest */
	CHECK_INT(cache_hold(rig->cache, (struct unit_id){ 1 }, &a.fetch), 0);
	RIG_UNTIL(unit_is_answered(rig, &a));
	CHECK_INT(a.fetch.status, -EAGAIN);
	CHECK_INT(rig_read_check(rig, 0, 7 * MIB, 4096), READ_ARENA);
	CHECK_INT(rig_read_check(rig, 0, 4 * MIB, 4096), READ_MISS);
	rig_free(rig);
}

static void a_unit_is_fetched_again_alone(void)
{
	struct rig *rig = rig_of_units(NULL);

	CHECK_INT(unit_hold(rig, 1), 0);
	CHECK_INT(unit_hold(rig, 2), 0);
	cache_fetch_again(rig->cache, (struct unit_id){ 1 });
	CHECK_U64(unit_told(rig, NEWS_LOST_COPY, 1), 1);
	CHECK_U64(unit_told(rig, NEWS_LOST_COPY, 2), 0);
	CHECK_INT(hold_of(rig->cache, (struct unit_id){ 2 }), HOLD_HELD);
	CHECK_INT(rig_read_check(rig, 0, 9 * MIB, 4096), READ_ARENA);
	CHECK_INT(rig_read_check(rig, 0, 5 * MIB, 4096), READ_MISS);
	rig_free(rig);
}

/* Tracer pages that nobody will read. */
static void a_tracer_page_goes_with_what_the_kernel_has_lost(void)
{
	struct rig *rig = rig_of_units(NULL);

	for (uint32_t unit = 1; unit < 4; unit++) {
		CHECK_INT(unit_hold(rig, unit), 0);
		unit_push(rig, unit);
		cache_release(rig->cache, (struct unit_id){ unit }, false);
	}
	CHECK_U64(atomic_load(&rig->cache->n_tracers), 3);
	rig_read_check(rig, 0, 5 * MIB, 100000); /* in the middle: its pages are gone */
	CHECK_U64(unit_told(rig, NEWS_UNSTAGED, 1), 1);
	CHECK_U64(atomic_load(&rig->cache->n_tracers), 2);
	cache_note_forget(rig->cache, (struct entry_id){ 0 });
	CHECK_U64(atomic_load(&rig->cache->n_tracers), 0);
	RIG_UNTIL(arena_used(rig->arena) == 0);
	/* A push that ends when its reader was there already leaves nothing to wait for. */
	CHECK_INT(unit_hold(rig, 5), 0);
	unit_push(rig, 5);
	rig_read_check(rig, 0, 20 * MIB, PAGE);
	cache_release(rig->cache, (struct unit_id){ 5 }, false);
	CHECK_U64(atomic_load(&rig->cache->n_tracers), 0);
	rig_free(rig);
}

/* While a READ of two units is with the source, neither is decided. */
static void a_read_of_two_units_is_in_flight_in_both(void)
{
	struct fault_io_rule wait = { .kind = FAULT_IO_HOLD, .repeat = 64 };
	struct rig *rig = rig_of_units(NULL);
	struct rig_read *r;

	fault_io_set(rig->io, &wait);
	r = rig_read_start(rig, 0, 4 * MIB - 50000, 100000);
	fault_io_wait_held(rig->io, 1);
	account_sweep(rig->cache, clock_now(rig->cache->p.clock) + 20 * NS_PER_S, false);
	CHECK_U64(rig_metric(rig, METRIC_READS_STAGED), 0);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 1), 1);
	fault_io_set(rig->io, NULL);
	fault_io_resume(rig->io);
	rig_read_wait(r);
	rig_read_free(r);
	CHECK_U64(total_bytes(rig), 100000);
	CHECK_U64(rig_metric(rig, METRIC_READ_BYTES_STAGED), 0);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 1), 1);
	rig_free(rig);
}

/* Whoever looks for records hears of READs of files that are cut, and of no others. */
static void reads_of_cut_files_are_noted(void)
{
	static const uint64_t sizes[] = { 38 * MIB + 1000, 5000, 15 * MIB };
	struct read_note note[4];
	struct reads *reads;
	struct rig *rig;

	CHECK_INT(reads_new(&reads), 0);
	rig = rig_new(&(struct rig_options){
		.n = 3, .sizes = sizes, .arena_limit = 64 * MIB, .is_not_started = true, .reads = reads });
	rig_read_check(rig, 1, 0, PAGE);
	rig_read_check(rig, 2, 3 * MIB, 100000);
	rig_read_check(rig, 0, 5 * MIB + PAGE, 100000);
	rig_read_check(rig, 0, 38 * MIB, 1000); /* from memory or the source, at the end of the file */
	CHECK_U64(reads_take(reads, note, 4), 2);
	CHECK_U64(note[0].entry.v, rig_entry(rig, 0).v);
	CHECK_U64(note[0].offset, 5 * MIB + PAGE);
	CHECK_U64(note[0].length, 100000);
	CHECK(note[0].at_ns > 0 && note[1].at_ns >= note[0].at_ns);
	CHECK_U64(note[1].offset, 38 * MIB);
	rig_free(rig);
	reads_free(reads);
}

static const struct check_test tests[] = {
	{ "reads_of_cut_files_are_noted", reads_of_cut_files_are_noted },
	{ "opens_that_are_not_heard_of_are_told", opens_that_are_not_heard_of_are_told },
	{ "an_open_that_comes_after_its_first_read_is_one",
	  an_open_that_comes_after_its_first_read_is_one },
	{ "what_cannot_be_adopted_whole_stays_for_its_reader",
	  what_cannot_be_adopted_whole_stays_for_its_reader },
	{ "a_unit_is_fetched_again_alone", a_unit_is_fetched_again_alone },
	{ "a_tracer_page_goes_with_what_the_kernel_has_lost",
	  a_tracer_page_goes_with_what_the_kernel_has_lost },
	{ "a_read_of_two_units_is_in_flight_in_both", a_read_of_two_units_is_in_flight_in_both },
	{ "a_unit_is_held_and_let_go_alone", a_unit_is_held_and_let_go_alone },
	{ "the_first_page_of_a_unit_is_not_pushed_and_says_who_comes",
	  the_first_page_of_a_unit_is_not_pushed_and_says_who_comes },
	{ "the_tracer_page_outlives_its_unit", the_tracer_page_outlives_its_unit },
	{ "pushed_pages_count_when_their_tracer_was_read",
	  pushed_pages_count_when_their_tracer_was_read },
	{ "a_push_counts_for_the_read_that_comes_before_its_open",
	  a_push_counts_for_the_read_that_comes_before_its_open },
	{ "a_push_counts_once_for_who_reads_meanwhile", a_push_counts_once_for_who_reads_meanwhile },
	{ "a_push_that_begins_ends_the_one_that_was_used", a_push_that_begins_ends_the_one_that_was_used },
	{ "a_change_takes_all_units_of_the_file", a_change_takes_all_units_of_the_file },
	{ "a_unit_is_set_aside_alone", a_unit_is_set_aside_alone },
};
CHECK_MAIN(tests)
