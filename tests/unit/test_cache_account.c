/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How reads are counted: every open of a sample, and every READ of another file, in exactly one
 * class; the time is the test's own.
 */
#include "cache_rig.h"
#include "probe_kit.h"
#include "src/cache/cache_priv.h"

#define MIB (1u << 20)
#define SIZE 10000u

static struct manual_clock *clock_new(void)
{
	struct manual_clock *mc = calloc(1, sizeof(*mc));

	mc->clock.now_ns = manual_now;
	atomic_store(&mc->now_ns, NS_PER_S);
	return mc;
}

static struct rig *new_rig(struct manual_clock *mc)
{
	return rig_new(&(struct rig_options){
		.n = 8, .size = SIZE, .other_size = 3000, .clock = &mc->clock });
}

static uint64_t total(struct rig *rig)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < READ_CLASSES; i++)
		sum += rig_metric(rig, METRIC_READS_STAGED + i);
	return sum;
}

static uint64_t total_bytes(struct rig *rig)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < READ_CLASSES; i++)
		sum += rig_metric(rig, METRIC_READ_BYTES_STAGED + i);
	return sum;
}

static void note(struct rig *rig, uint32_t sample)
{
	cache_note_open(rig->cache, (struct entry_id){ sample });
}

static void open_without_read_was_served_by_the_kernel(void)
{
	struct manual_clock *mc = clock_new();
	struct rig *rig = new_rig(mc);

	note(rig, 0);
	CHECK_U64(total(rig), 0);
	atomic_fetch_add(&mc->now_ns, 2 * NS_PER_S);
	rig_wait_metric(rig, METRIC_READS_STAGED, 1);
	RIG_UNTIL(rig_metric(rig, METRIC_READ_BYTES_STAGED) == SIZE);
	CHECK_U64(total(rig), 1);
	rig_free(rig);
	free(mc);
}

static void slowest_read_of_an_open_decides_whatever_comes_first(void)
{
	for (int is_open_first = 0; is_open_first < 2; is_open_first++) {
		struct manual_clock *mc = clock_new();
		struct rig *rig = new_rig(mc);

		if (is_open_first)
			note(rig, 0);
		CHECK_INT(rig_read_check(rig, 0, 0, 4096), READ_MISS);
		if (!is_open_first)
			note(rig, 0);
		CHECK_INT(rig_read_check(rig, 0, 4096, 65536), READ_ARENA);
		atomic_fetch_add(&mc->now_ns, 2 * NS_PER_S);
		rig_wait_metric(rig, METRIC_READS_MISS, 1);
		CHECK_U64(total(rig), 1);
		CHECK_U64(rig_metric(rig, METRIC_READ_BYTES_MISS), 4096);
		CHECK_U64(rig_metric(rig, METRIC_READ_BYTES_ARENA), SIZE - 4096);
		CHECK_U64(total_bytes(rig), SIZE);
		rig_free(rig);
		free(mc);
	}
}

static void pages_that_no_read_asked_for_count_as_staged(void)
{
	struct manual_clock *mc = clock_new();
	struct rig *rig = new_rig(mc);

	note(rig, 0);
	rig_read_check(rig, 0, 8192, 4096);
	note(rig, 0); /* the next open decides the one before */
	CHECK_U64(rig_metric(rig, METRIC_READS_MISS), 1);
	CHECK_U64(rig_metric(rig, METRIC_READ_BYTES_STAGED), 8192);
	drive_stop(rig->drive); /* and the end decides the last one */
	CHECK_U64(rig_metric(rig, METRIC_READS_STAGED), 1);
	CHECK_U64(total(rig), 2);
	CHECK_U64(total_bytes(rig), 2 * SIZE);
	rig_free(rig);
	free(mc);
}

static void late_open_of_counted_reads_is_not_counted_again(void)
{
	struct manual_clock *mc = clock_new();
	struct rig *rig = new_rig(mc);

	rig_read_check(rig, 0, 0, 65536);
	atomic_fetch_add(&mc->now_ns, 2 * NS_PER_S);
	rig_wait_metric(rig, METRIC_READS_MISS, 1); /* nobody saw an open */
	note(rig, 0);
	drive_stop(rig->drive);
	CHECK_U64(total(rig), 1);
	rig_free(rig);
	free(mc);
}

/* Epochs that follow each other quickly: READs of the second one come while the first one's open is
 * undecided, and before the second open is heard of. */
static void read_before_its_open_is_not_taken_for_the_open_before(void)
{
	for (int n_pieces = 1; n_pieces <= 3; n_pieces += 2) {
		struct manual_clock *mc = clock_new();
		struct rig *rig = new_rig(mc);
		uint32_t length = n_pieces == 1 ? 65536 : 4096;

		note(rig, 0);
		for (uint32_t i = 0; i < (uint32_t)n_pieces; i++)
			rig_read_check(rig, 0, i * length, length);
		for (uint32_t i = 0; i < (uint32_t)n_pieces; i++)
			rig_read_check(rig, 0, i * length, length);
		note(rig, 0);
		drive_stop(rig->drive);
		CHECK_U64(total(rig), 2);
		CHECK_U64(rig_metric(rig, METRIC_READS_MISS), 1);
		CHECK_U64(rig_metric(rig, METRIC_READS_ARENA), 1);
		CHECK_U64(total_bytes(rig), 2 * SIZE);
		rig_free(rig);
		free(mc);
	}
}

/* The first reads of a sample, and again those of a second pass, before either open is heard of. */
static void reads_of_two_late_opens_are_two(void)
{
	for (int late = 0; late < 2; late++) {
		struct manual_clock *mc = clock_new();
		struct rig *rig = new_rig(mc);

		rig_read_check(rig, 0, 0, 65536);
		rig_read_check(rig, 0, 0, 65536);
		for (int i = 0; i < late; i++) {
			atomic_fetch_add(&mc->now_ns, 2 * NS_PER_S);
			account_sweep(rig->cache, clock_now(&mc->clock), false);
		}
		note(rig, 0);
		note(rig, 0);
		drive_stop(rig->drive);
		CHECK_U64(total(rig), 2);
		CHECK_U64(rig_metric(rig, METRIC_READS_STAGED), 0);
		CHECK_U64(total_bytes(rig), 2 * SIZE);
		rig_free(rig);
		free(mc);
	}
}

/* Before the plan can be told that nobody saw them being opened. */
static void reads_of_two_opens_that_are_never_heard_of_are_two(void)
{
	struct manual_clock *mc = clock_new();
	struct rig *rig = new_rig(mc);

	rig_read_check(rig, 0, 0, 65536);
	rig_read_check(rig, 0, 0, 65536);
	rig_read_check(rig, 0, 0, 4096); /* of no open: a page that was dropped */
	drive_stop(rig->drive);
	CHECK_U64(total(rig), 2);
	CHECK_U64(total_bytes(rig), 2 * SIZE + 4096);
	rig_free(rig);
	free(mc);
}

static void each_read_of_another_file_counts(void)
{
	struct manual_clock *mc = clock_new();
	struct rig *rig = new_rig(mc);

	rig_read_check(rig, 8, 0, 4096);
	rig_read_check(rig, 8, 0, 4096);
	rig_read_check(rig, 8, 0, 4096);
	note(rig, 8);
	CHECK_U64(rig_metric(rig, METRIC_READS_MISS), 1);
	CHECK_U64(rig_metric(rig, METRIC_READS_ARENA), 2);
	CHECK_U64(rig_metric(rig, METRIC_SAMPLE_OPENS), 0);
	CHECK_U64(total_bytes(rig), 9000);
	rig_free(rig);
	free(mc);
}

static void classes_add_up_to_the_opens(void)
{
	struct manual_clock *mc = clock_new();
	struct rig *rig = new_rig(mc);
	uint64_t seed = check_seed(), n = 2000;

	for (uint64_t i = 0; i < n; i++) {
		uint32_t sample = (uint32_t)check_rand_below(&seed, 8);
		bool is_read = check_rand_below(&seed, 2), is_first = check_rand_below(&seed, 2);

		if (is_first)
			note(rig, sample);
		if (is_read)
			rig_read_check(rig, sample, check_rand_below(&seed, SIZE / 2), 4096);
		if (!is_first)
			note(rig, sample);
		/* what was read and not noted yet must not be taken for the next open's */
		if (!is_first && is_read)
			note(rig, sample), n++, i++;
		if (check_rand_below(&seed, 10) == 0)
			atomic_fetch_add(&mc->now_ns, NS_PER_S / 4);
	}
	drive_stop(rig->drive);
	CHECK_U64(total(rig), rig_metric(rig, METRIC_SAMPLE_OPENS));
	rig_free(rig);
	free(mc);
}

static void failed_read_makes_its_open_a_miss_without_bytes(void)
{
	struct fault_io_rule rule = { FAULT_IO_FAIL, .status = -EIO };
	struct manual_clock *mc = clock_new();
	struct rig *rig = new_rig(mc);

	fault_io_set(rig->io, &rule);
	note(rig, 0);
	CHECK_INT(rig_read_status(rig, 0, 0, 4096), -EIO);
	CHECK_INT(rig_read_status(rig, 0, 4096, 4096), -EIO);
	atomic_fetch_add(&mc->now_ns, 2 * NS_PER_S);
	RIG_UNTIL(total(rig) == 1);
	fault_io_set(rig->io, NULL);
	CHECK_U64(rig_metric(rig, METRIC_READS_MISS), 1);
	CHECK_U64(total_bytes(rig), 0);
	drive_stop(rig->drive);
	CHECK_U64(total(rig), 1);
	CHECK_U64(rig_metric(rig, METRIC_READ_ERRORS), 2);
	rig_free(rig);
	free(mc);
}

static void read_in_flight_keeps_its_open_undecided(void)
{
	struct manual_clock *mc = clock_new();
	struct rig *rig = new_rig(mc);
	struct rig_read *r;

	fault_io_pause(rig->io);
	note(rig, 0);
	r = rig_read_start(rig, 0, 0, 65536);
	fault_io_wait_held(rig->io, 1);
	note(rig, 1);
	atomic_fetch_add(&mc->now_ns, 20 * NS_PER_S);
	for (uint64_t i = 0; i < 3; i++) /* by the test's thread and by the planner */
		account_sweep(rig->cache, clock_now(&mc->clock), false);
	RIG_UNTIL(total(rig) == 1); /* that of sample 1 */
	note(rig, 0);               /* of a second reader, who waits for the same pages */
	CHECK_U64(total(rig), 1);
	fault_io_resume(rig->io);
	rig_read_wait(r);
	rig_read_free(r);
	drive_stop(rig->drive);
	CHECK_U64(rig_metric(rig, METRIC_READS_MISS), 2);
	CHECK_U64(rig_metric(rig, METRIC_READS_STAGED), 1);
	CHECK_U64(rig_metric(rig, METRIC_READ_BYTES_MISS), SIZE);
	CHECK_U64(total_bytes(rig), 3 * SIZE);
	rig_free(rig);
	free(mc);
}

static void partly_read_samples_do_not_hold_up_the_others(void)
{
	struct manual_clock *mc = clock_new();
	struct rig *rig = new_rig(mc);

	for (uint32_t i = 0; i < 4; i++) {
		note(rig, i);
		rig_read_check(rig, i, 0, 4096);
	}
	for (uint32_t i = 4; i < 8; i++)
		note(rig, i);
	atomic_fetch_add(&mc->now_ns, 2 * NS_PER_S);
	account_sweep(rig->cache, clock_now(&mc->clock), false);
	CHECK_U64(rig_metric(rig, METRIC_READS_STAGED), 4);
	CHECK_U64(total(rig), 4);
	atomic_fetch_add(&mc->now_ns, 4 * NS_PER_S);
	account_sweep(rig->cache, clock_now(&mc->clock), false);
	CHECK_U64(rig_metric(rig, METRIC_READS_MISS), 4);
	rig_free(rig);
	free(mc);
}

/* A READ for pages that were pushed and are gone counts; one of the next pass, after an open that
 * the push has served, does not. */
static void push_that_served_its_open_is_used_up(void)
{
	struct manual_clock *mc = clock_new();
	struct rig *rig = new_rig(mc);

	for (uint32_t i = 0; i < 3; i++) {
		bits_set(rig->cache->staged, i);
		note(rig, i);
	}
	rig_read_check(rig, 0, 0, 4096); /* of that open: the pages were dropped before it */
	CHECK_U64(rig_metric(rig, METRIC_STAGE_EVICTED_READS), 1);
	atomic_fetch_add(&mc->now_ns, 2 * NS_PER_S);
	account_sweep(rig->cache, clock_now(&mc->clock), false);
	rig_read_check(rig, 1, 0, 4096); /* the next pass */
	CHECK_U64(rig_metric(rig, METRIC_STAGE_EVICTED_READS), 1);
	bits_clear(rig->cache->staged_opened, 2);
	bits_set(rig->cache->staged, 2); /* pushed again, for the next pass */
	rig_read_check(rig, 2, 0, 4096);
	CHECK_U64(rig_metric(rig, METRIC_STAGE_EVICTED_READS), 2);
	rig_free(rig);
	free(mc);
}

/* Passes of less than a second: what a READ of this one finds pushed may be for the next, and what
 * it does not find may have served the last. */
static void in_short_passes_pushes_of_other_opens_are_not_missed(void)
{
	struct manual_clock *mc = clock_new();
	struct rig *rig = new_rig(mc);

	note(rig, 0); /* it was not pushed; its READ is on its way */
	bits_set(rig->cache->staged, 0);
	rig_read_check(rig, 0, 0, 4096);
	CHECK_U64(rig_metric(rig, METRIC_STAGE_EVICTED_READS), 0);
	CHECK(bits_get(rig->cache->staged, 0)); /* for the next pass still */
	rig_read_check(rig, 0, 4096, 65536);
	CHECK_U64(rig_metric(rig, METRIC_STAGE_EVICTED_READS), 0);
	rig_read_check(rig, 0, 0, 4096); /* all was read: this is the next pass */
	CHECK_U64(rig_metric(rig, METRIC_STAGE_EVICTED_READS), 1);

	bits_set(rig->cache->staged, 1);
	note(rig, 1); /* served by the push, and nothing is pushed after it */
	atomic_fetch_add(&mc->now_ns, NS_PER_S / 2);
	rig_read_check(rig, 1, 0, 4096);
	CHECK_U64(rig_metric(rig, METRIC_STAGE_EVICTED_READS), 1);
	CHECK(!bits_get(rig->cache->staged, 1));
	rig_free(rig);
	free(mc);
}

/* What is told to be settled, against a model: no open that began before then is untold, and once
 * all are told it is as late as it may be. */
struct settled_watch {
	struct probe probe;
	_Atomic uint64_t before_ns, opened_ns[64]; /* 0: nothing untold */
};

static void on_read(void *ctx, const struct read_facts *notes, uint32_t n)
{
	struct settled_watch *w = ctx;

	for (uint32_t i = 0; i < n; i++) /* all of its opens are told by the first note or later */
		if (notes[i].unit.v < 64)
			atomic_store(&w->opened_ns[notes[i].unit.v], 0);
}

static void on_settled(void *ctx, uint64_t before_ns)
{
	struct settled_watch *w = ctx;

	for (uint32_t i = 0; i < 64; i++) {
		uint64_t opened = atomic_load(&w->opened_ns[i]);

		CHECK(!opened || before_ns <= opened);
	}
	atomic_store(&w->before_ns, before_ns);
}

static void nothing_is_settled_before_it_is_told(void)
{
	struct manual_clock *mc = clock_new();
	struct settled_watch w = { .before_ns = 0 };
	uint64_t seed = check_seed();
	struct rig *rig;

	w.probe = probe_kit(&w, on_read, on_settled);
	rig = rig_new(&(struct rig_options){
		.n = 64, .size = SIZE, .clock = &mc->clock, .probe = &w.probe });
	for (uint32_t i = 0; i < 3000; i++) {
		uint32_t sample = (uint32_t)check_rand_below(&seed, 64);
		uint64_t none = 0;

		atomic_compare_exchange_strong(&w.opened_ns[sample], &none,
					       atomic_load(&mc->now_ns));
		note(rig, sample);
		if (check_rand_below(&seed, 4) == 0)
			rig_read_check(rig, sample, 0, check_rand_below(&seed, 2) ? 65536 : 4096);
		atomic_fetch_add(&mc->now_ns, check_rand_below(&seed, NS_PER_S / 8));
	}
	atomic_fetch_add(&mc->now_ns, 20 * NS_PER_S);
	RIG_UNTIL(atomic_load(&w.before_ns) == atomic_load(&mc->now_ns) - NS_PER_S / 4);
	rig_free(rig);
	free(mc);
}

/* Samples inside a shard: each open reads one, and no open is worth the whole file. */
static void opens_of_a_large_file_are_worth_what_was_read(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 30 * MIB });
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < 10; i++) {
		cache_note_open(rig->cache, (struct entry_id){ 0 });
		rig_read_check(rig, 0, (i * 7 % 10) * 3 * (uint64_t)MIB, 4096);
	}
	cache_note_open(rig->cache, (struct entry_id){ 0 }); /* of pages that the kernel has */
	drive_stop(rig->drive);
	for (int class = 0; class < READ_CLASSES; class ++)
		bytes += rig_metric(rig, METRIC_READ_BYTES_STAGED + class);
	CHECK_U64(rig_metric(rig, METRIC_READ_BYTES_STAGED), 0);
	CHECK_U64(bytes, 10 * 4096);
	CHECK_U64(rig_metric(rig, METRIC_READS_MISS), 10);
	CHECK_U64(total(rig), 10);
	rig_free(rig);
}

/* One open for good, and records of all over it: each READ is a read of the class it was, at once. */
static void reads_of_a_large_file_count_one_by_one(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 2, .sizes = (uint64_t[]){ 3 * MIB, 5000 } });

	cache_note_open(rig->cache, (struct entry_id){ 0 });
	CHECK_INT(rig_read_check(rig, 0, 2 * MIB, 4096), READ_MISS);
	CHECK_INT(rig_read_check(rig, 0, 2 * MIB, 8192), READ_MISS);
	CHECK_INT(rig_read_check(rig, 0, MIB, 100000), READ_MISS);
	CHECK_INT(rig_read_status(rig, 0, 3 * MIB, 4096), 0); /* behind its end */
	CHECK_U64(rig_metric(rig, METRIC_READS_MISS), 3);
	CHECK_U64(total(rig), 3);
	CHECK_U64(total_bytes(rig), 4096 + 8192 + 100000);
	fault_io_set(rig->io, &(struct fault_io_rule){ .kind = FAULT_IO_FAIL, .status = -EIO });
	CHECK_INT(rig_read_status(rig, 0, 512 << 10, 4096), -EIO);
	fault_io_set(rig->io, NULL);
	CHECK_U64(rig_metric(rig, METRIC_READS_MISS), 4);
	drive_stop(rig->drive);
	CHECK_U64(total(rig), 4);
	CHECK_U64(total_bytes(rig), 4096 + 8192 + 100000);
	rig_free(rig);
}

static uint64_t staged_by(struct rig *rig, uint32_t sample, bool is_pushed)
{
	uint64_t before = rig_metric(rig, METRIC_READ_BYTES_STAGED);

	if (is_pushed)
		bits_set(rig->cache->pushed, sample);
	account_open(rig->cache, (struct unit_id){ sample }, clock_now(rig->cache->p.clock));
	account_sweep(rig->cache, clock_now(rig->cache->p.clock), true);
	return rig_metric(rig, METRIC_READ_BYTES_STAGED) - before;
}

/* What was pushed is worth as much as such opens ask for otherwise, and once. */
static void pushed_pages_of_a_large_file_are_worth_what_is_asked_for(void)
{
	struct manual_clock *mc = clock_new();
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 4, .size = 4 * MIB, .clock = &mc->clock, .is_not_started = true });
	uint64_t before;

	CHECK_U64(staged_by(rig, 0, false), 0); /* of pages that the kernel has */
	CHECK_U64(staged_by(rig, 0, true), 4 * MIB); /* nothing is known yet */
	CHECK_U64(rig_metric(rig, METRIC_READS_STAGED), 1 + 32);
	CHECK_U64(staged_by(rig, 0, false), 0);
	/* An open that had to ask: for an eighth of the file. */
	account_open(rig->cache, (struct unit_id){ 1 }, clock_now(&mc->clock));
	CHECK_INT(rig_read_check(rig, 1, 2 * MIB, 512 << 10), READ_MISS);
	account_sweep(rig->cache, clock_now(&mc->clock), true);
	CHECK_U64(staged_by(rig, 2, true), 512 << 10);
	/* The kernel had dropped some of its pages. */
	bits_set(rig->cache->pushed, 3);
	account_open(rig->cache, (struct unit_id){ 3 }, clock_now(&mc->clock));
	CHECK_INT(rig_read_check(rig, 3, MIB, 128 << 10), READ_MISS);
	before = rig_metric(rig, METRIC_READ_BYTES_STAGED);
	account_sweep(rig->cache, clock_now(&mc->clock), true);
	CHECK_U64(rig_metric(rig, METRIC_READ_BYTES_STAGED) - before, 384 << 10);
	/* Another one was pushed while it was read. */
	account_open(rig->cache, (struct unit_id){ 0 }, clock_now(&mc->clock));
	CHECK_INT(rig_read_check(rig, 0, 2 * MIB, 128 << 10), READ_MISS);
	bits_set(rig->cache->pushed, 0);
	before = rig_metric(rig, METRIC_READ_BYTES_STAGED);
	account_sweep(rig->cache, clock_now(&mc->clock), true);
	CHECK_U64(rig_metric(rig, METRIC_READ_BYTES_STAGED) - before, 384 << 10);
	CHECK_U64(staged_by(rig, 0, false), 0);
	/* The file was replaced before it was opened. */
	bits_set(rig->cache->pushed, 2);
	account_unpushed(rig->cache, (struct unit_id){ 2 });
	CHECK_U64(staged_by(rig, 2, false), 0);
	rig_free(rig);
	free(mc);
}

struct told {
	struct probe probe;
	uint64_t bytes[4];
};

static void on_told(void *ctx, const struct read_facts *notes, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		((struct told *)ctx)->bytes[notes[i].unit.v] += notes[i].bytes;
}

static void nobody_cares(void *ctx, uint64_t before_ns)
{
	(void)ctx;
	(void)before_ns;
}

/* GPU wait and its page cache hear of the bytes that were asked for; of small files: of all. */
static void what_is_told_of_a_large_file_is_what_was_asked_for(void)
{
	static const uint64_t sizes[] = { 4 * MIB, 4 * MIB, 5000, 4 * MIB };
	struct manual_clock *mc = clock_new();
	struct told told = { .bytes = { 0 } };
	struct rig *rig;

	told.probe = probe_kit(&told, on_told, nobody_cares);
	rig = rig_new(&(struct rig_options){ .n = 4,
					     .sizes = sizes,
					     .clock = &mc->clock,
					     .probe = &told.probe,
					     .is_not_started = true });
	account_open(rig->cache, (struct unit_id){ 0 }, clock_now(&mc->clock));
	CHECK_INT(rig_read_check(rig, 0, 2 * MIB, 512 << 10), READ_MISS);
	CHECK_INT(rig_read_check(rig, 0, 3 * MIB, 512 << 10), READ_MISS);
	account_open(rig->cache, (struct unit_id){ 2 }, clock_now(&mc->clock));
	CHECK_INT(rig_read_check(rig, 2, 0, 4096), READ_MISS);
	account_sweep(rig->cache, clock_now(&mc->clock), true);
	CHECK_U64(told.bytes[0], MIB);
	CHECK_U64(told.bytes[2], 5000);
	(void)staged_by(rig, 1, true);
	CHECK_U64(told.bytes[1], MIB); /* as much as of the other one */
	(void)staged_by(rig, 3, false);
	CHECK_U64(told.bytes[3], MIB);
	rig_free(rig);
	free(mc);
}

static void what_opens_ask_for_is_learned(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 3 * MIB, .is_not_started = true });
	struct cache *c = rig->cache;
	struct unit_id unit = { 0 };

	CHECK_U64(cache_asked_of(c, unit), 3 * MIB);
	asked_learn(c, 3 * MIB, 3 * MIB);
	CHECK_U64(cache_asked_of(c, unit), 3 * MIB);
	for (int i = 0; i < 200; i++)
		asked_learn(c, 100 * MIB, MIB);
	CHECK(cache_asked_of(c, unit) <= 3 * (MIB + MIB / 50) / 100);
	for (int i = 0; i < 60; i++)
		asked_learn(c, 100 * MIB, 300 * (uint64_t)MIB);
	CHECK_U64(cache_asked_of(c, unit), 3 * MIB); /* all is reached, not only neared */
	asked_learn(c, 1ull << 60, 0);
	CHECK(cache_asked_of(c, unit) > 0);
	rig_free(rig);
}

static const struct check_test tests[] = {
	{ "in_short_passes_pushes_of_other_opens_are_not_missed",
	  in_short_passes_pushes_of_other_opens_are_not_missed },
	{ "nothing_is_settled_before_it_is_told", nothing_is_settled_before_it_is_told },
	{ "open_without_read_was_served_by_the_kernel",
	  open_without_read_was_served_by_the_kernel },
	{ "slowest_read_of_an_open_decides_whatever_comes_first",
	  slowest_read_of_an_open_decides_whatever_comes_first },
	{ "pages_that_no_read_asked_for_count_as_staged",
	  pages_that_no_read_asked_for_count_as_staged },
	{ "late_open_of_counted_reads_is_not_counted_again",
	  late_open_of_counted_reads_is_not_counted_again },
	{ "read_before_its_open_is_not_taken_for_the_open_before",
	  read_before_its_open_is_not_taken_for_the_open_before },
	{ "reads_of_two_late_opens_are_two", reads_of_two_late_opens_are_two },
	{ "reads_of_two_opens_that_are_never_heard_of_are_two",
	  reads_of_two_opens_that_are_never_heard_of_are_two },
	{ "each_read_of_another_file_counts", each_read_of_another_file_counts },
	{ "failed_read_makes_its_open_a_miss_without_bytes",
	  failed_read_makes_its_open_a_miss_without_bytes },
	{ "read_in_flight_keeps_its_open_undecided", read_in_flight_keeps_its_open_undecided },
	{ "partly_read_samples_do_not_hold_up_the_others",
	  partly_read_samples_do_not_hold_up_the_others },
	{ "push_that_served_its_open_is_used_up", push_that_served_its_open_is_used_up },
	{ "classes_add_up_to_the_opens", classes_add_up_to_the_opens },
	{ "reads_of_a_large_file_count_one_by_one", reads_of_a_large_file_count_one_by_one },
	{ "pushed_pages_of_a_large_file_are_worth_what_is_asked_for",
	  pushed_pages_of_a_large_file_are_worth_what_is_asked_for },
	{ "what_is_told_of_a_large_file_is_what_was_asked_for",
	  what_is_told_of_a_large_file_is_what_was_asked_for },
	{ "what_opens_ask_for_is_learned", what_opens_ask_for_is_learned },
	{ "opens_of_a_large_file_are_worth_what_was_read",
	  opens_of_a_large_file_are_worth_what_was_read },
};
CHECK_MAIN(tests)
