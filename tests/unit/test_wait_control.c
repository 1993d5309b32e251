/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control reads, and what the cache tells whoever accounts for reads: which sample, where in the
 * order, how it was served. Which samples are held out is seen from the cache's own bits, and every
 * read waits until the plan has come that far.
 */
#include <sched.h>
#include <string.h>

#include "cache_rig.h"
#include "src/cache/cache_priv.h"
#include "src/wait/sampling.h"

#define MIB (1u << 20)
enum { N = 60, SIZE = 5000, NOTES = 1000 };

struct seen {
	struct mutex mu;
	struct read_facts note[NOTES]; /* mu */
	uint32_t n;                         /* mu */
	struct cond cv;
	bool is_shut, is_held; /* mu: the planner waits at the end of its round */
	_Atomic uint64_t settled_ns;
	struct drive_watch watch;
	struct sampling sampling;
};

static void on_opened(void *ctx, const struct drive_open *open)
{
	(void)ctx;
	(void)open;
}

static void on_planned(void *ctx, enum plan_state state)
{
	struct seen *seen = ctx;

	(void)state;
	mutex_lock(&seen->mu);
	seen->is_held = seen->is_shut;
	cond_broadcast(&seen->cv);
	while (seen->is_shut)
		cond_wait(&seen->cv, &seen->mu);
	seen->is_held = false;
	mutex_unlock(&seen->mu);
}

/* Comes back when the planner hears of nothing until planner_resume(). */
static void planner_hold(struct seen *seen)
{
	mutex_lock(&seen->mu);
	seen->is_shut = true;
	while (!seen->is_held)
		cond_wait(&seen->cv, &seen->mu);
	mutex_unlock(&seen->mu);
}

static void planner_resume(struct seen *seen)
{
	mutex_lock(&seen->mu);
	seen->is_shut = false;
	cond_broadcast(&seen->cv);
	mutex_unlock(&seen->mu);
}

static void on_read(void *ctx, const struct read_facts *notes, uint32_t n)
{
	struct seen *seen = ctx;

	mutex_lock(&seen->mu);
	for (uint32_t i = 0; i < n && seen->n < NOTES; i++)
		seen->note[seen->n++] = notes[i];
	mutex_unlock(&seen->mu);
}

static void on_settled(void *ctx, uint64_t before_ns)
{
	struct seen *seen = ctx;

	atomic_store(&seen->settled_ns, before_ns);
}

static struct seen *seen_new(double share)
{
	struct sampling_params params = { .control_share = share, .clock = clock_monotonic() };
	struct seen *seen = calloc(1, sizeof(*seen));

	sampling_init(&seen->sampling, &params);
	seen->sampling.observed = on_read;
	seen->sampling.settled = on_settled;
	seen->sampling.ctx = seen;

	mutex_init(&seen->mu);
	cond_init(&seen->cv);
	seen->watch = (struct drive_watch){
		.opened = on_opened, .planned = on_planned, .ctx = seen
	};
	return seen;
}

static struct rig *rig_with(struct seen *seen, uint32_t n, bool has_store)
{
	return rig_new(&(struct rig_options){ .n = n,
					      .size = SIZE,
					      .order = "torch-randperm:seed=7",
					      .has_store = has_store,
					      .watch = &seen->watch,
					      .probe = &seen->sampling.probe,
		.drive_probe = &seen->sampling.drive_probe });
}

static void end(struct rig *rig, struct seen *seen)
{
	rig_free(rig);
	sampling_fini(&seen->sampling);
	cond_fini(&seen->cv);
	mutex_fini(&seen->mu);
	free(seen);
}

static bool is_control(const struct read_facts *facts)
{
	return (facts->traits.mark & WAIT_CONTROL) && !facts->traits.is_loaded;
}

static uint64_t rig_opened(struct rig *rig)
{
	struct drive_status st;

	drive_get_status(rig->drive, &st);
	return st.plan.opened;
}

static bool is_held_out(struct rig *rig, uint32_t sample)
{
	return probed_mark(rig->cache, (struct unit_id){ sample }) != 0;
}

static uint32_t count_held_out(struct rig *rig)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rig->options.n; i++)
		n += is_held_out(rig, i);
	return n;
}

/* READs before the open is heard of, as with a watcher that lags. */
static void read_pass(struct rig *rig, const struct order_epoch *epoch, enum read_class class)
{
	for (uint32_t i = 0; i < epoch->length; i++) {
		RIG_UNTIL(is_held_out(rig, epoch->sample[i]));
		CHECK_INT(rig_read_check(rig, epoch->sample[i], 0, 131072), class);
		cache_note_open(rig->cache, (struct entry_id){ epoch->sample[i] });
	}
}

/* Two passes: what the first has left in the arena is held out of the second all the same. */
static void held_out_samples_are_read_from_the_source(bool has_store)
{
	struct seen *seen = seen_new(1);
	struct rig *rig = rig_with(seen, N, has_store);
	bool has_come[2][N] = { { false } };
	struct order_epoch *epoch;
	struct err err = { 0 };

	CHECK_INT(order_epoch_new(rig->order, 0, &epoch, &err), 0);
	read_pass(rig, epoch, READ_MISS);
	read_pass(rig, epoch, READ_MISS);
	drive_stop(rig->drive);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_READS), 2 * N);
	CHECK_U64(rig_metric(rig, METRIC_READS_MISS), 2 * N);
	CHECK_U64(rig_metric(rig, METRIC_STORE_READS), 0);
	CHECK_U64(rig_metric(rig, METRIC_PREFETCH_FAILED), 0);
	CHECK_U64(rig_metric(rig, METRIC_STAGE_PUSHED), 0);
	CHECK_INT((int)seen->n, 2 * N);
	for (uint32_t i = 0; i < seen->n; i++) {
		const struct read_facts *note = &seen->note[i];

		CHECK(is_control(note) && note->has_use && !note->is_kernels);
		CHECK_INT(note->read_class, READ_MISS);
		CHECK_U64(note->use.length, N);
		CHECK_U64(note->bytes, SIZE);
		CHECK(note->use.pass < 2 && note->use.position < N && note->wait_ns > 0);
		CHECK_INT((int)epoch->sample[note->use.position], (int)note->unit.v);
		CHECK(!has_come[note->use.pass][note->use.position]);
		has_come[note->use.pass][note->use.position] = true;
	}
	order_epoch_free(epoch);
	end(rig, seen);
}

static void held_out_of_the_arena(void)
{
	held_out_samples_are_read_from_the_source(false);
}

static void held_out_of_the_store(void)
{
	held_out_samples_are_read_from_the_source(true);
}

static void share_is_held_out_and_the_rest_prefetched(void)
{
	enum { MANY = 1000 };
	struct seen *seen = seen_new(0.25);
	struct rig *rig = rig_with(seen, MANY, false);

	RIG_UNTIL(rig_metric(rig, METRIC_PREFETCH_ISSUED) + count_held_out(rig) == MANY);
	/* 250, with a deviation of 14; and the same in every run. */
	CHECK(count_held_out(rig) > 200 && count_held_out(rig) < 300);
	RIG_UNTIL(rig_metric(rig, METRIC_SOURCE_READS) == MANY - count_held_out(rig));
	CHECK_U64(rig_metric(rig, METRIC_PREFETCH_FAILED), 0);
	end(rig, seen);
}

static void nothing_is_held_out_when_there_is_enough(void)
{
	struct seen *seen = seen_new(1);
	struct rig *rig;

	sampling_has_enough(&seen->sampling, SIZE);
	rig = rig_with(seen, N, false);
	RIG_UNTIL(rig_metric(rig, METRIC_STAGE_PUSHED) == N);
	CHECK_INT((int)count_held_out(rig), 0);
	end(rig, seen);
}

static void staged_reads_are_told_with_their_place(void)
{
	struct seen *seen = seen_new(0);
	struct rig *rig = rig_with(seen, N, false);
	struct order_epoch *epoch;
	struct err err = { 0 };

	CHECK_INT(order_epoch_new(rig->order, 0, &epoch, &err), 0);
	for (uint32_t i = 0; i < N; i++) {
		RIG_UNTIL(bits_get(rig->cache->staged, epoch->sample[i]));
		cache_note_open(rig->cache, (struct entry_id){ epoch->sample[i] });
	}
	cache_note_open(rig->cache, rig->other); /* no sample: nothing is told */
	RIG_UNTIL(rig_metric(rig, METRIC_PREFETCH_USEFUL) == N);
	drive_stop(rig->drive);
	CHECK_INT((int)seen->n, N);
	for (uint32_t i = 0; i < seen->n; i++) {
		const struct read_facts *note = &seen->note[i];

		CHECK(!is_control(note) && note->has_use && !note->is_kernels);
		CHECK_INT(note->read_class, READ_STAGED);
		CHECK_INT((int)epoch->sample[note->use.position], (int)note->unit.v);
		CHECK(note->wait_ns == 0 && note->opened_ns > 0);
	}
	order_epoch_free(epoch);
	end(rig, seen);
}

/* Its size first, then its bytes: whether the plan hears of the second open with the first one or
 * later, it is the first one that has the place, and that the source was read for. */
static void sample_opened_twice_in_a_row_has_one_place(void)
{
	for (int is_late = 0; is_late < 2; is_late++) {
		struct seen *seen = seen_new(1);
		struct rig *rig = rig_with(seen, 20 * N, false); /* the next pass is far */
		struct order_epoch *epoch;
		struct err err = { 0 };
		uint32_t n_again = 0;

		CHECK_INT(order_epoch_new(rig->order, 0, &epoch, &err), 0);
		for (uint32_t i = 0; i < N; i++) {
			struct entry_id entry = { epoch->sample[i] };

			RIG_UNTIL(is_held_out(rig, entry.v));
			CHECK_INT(rig_read_check(rig, entry.v, 0, 131072), READ_MISS);
			if (!is_late)
				planner_hold(seen);
			cache_note_open(rig->cache, entry);
			if (is_late)
				RIG_UNTIL(rig_opened(rig) == 2 * i + 1);
			cache_note_open(rig->cache, entry);
			if (!is_late)
				planner_resume(seen);
			else
				RIG_UNTIL(rig_opened(rig) == 2 * i + 2);
		}
		drive_stop(rig->drive);
		CHECK_U64(rig_metric(rig, METRIC_READS_MISS), N);
		CHECK_U64(rig_metric(rig, METRIC_READS_STAGED), N);
		CHECK_INT((int)seen->n, is_late ? 2 * N : N);
		for (uint32_t i = 0; i < seen->n; i++) {
			const struct read_facts *note = &seen->note[i];

			CHECK(note->has_use);
			CHECK_INT((int)epoch->sample[note->use.position], (int)note->unit.v);
			n_again += note->is_again;
			if (note->is_again)
				continue;
			CHECK(is_control(note) && note->wait_ns > 0);
			CHECK_INT(note->again, !is_late);
			CHECK_INT(note->read_class, READ_MISS);
		}
		CHECK_INT((int)n_again, is_late ? N : 0);
		order_epoch_free(epoch);
		end(rig, seen);
	}
}

/* However long a read is under way, what was opened before it is all that is settled. */
static void what_is_settled_was_told(void)
{
	struct seen *seen = seen_new(0);
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 4, .size = SIZE, .probe = &seen->sampling.probe,
		.drive_probe = &seen->sampling.drive_probe });
	uint64_t began_ns, now_ns;
	struct rig_read *r;

	cache_note_open(rig->cache, (struct entry_id){ 0 });
	fault_io_pause(rig->io);
	began_ns = clock_now(clock_monotonic());
	r = rig_read_start(rig, 1, 0, SIZE);
	fault_io_wait_held(rig->io, 1);
	now_ns = clock_now(clock_monotonic());
	RIG_UNTIL(atomic_load(&seen->settled_ns) >= began_ns);
	CHECK_INT((int)seen->n, 1);
	account_sweep(rig->cache, now_ns + 3600 * NS_PER_S, false);
	CHECK(atomic_load(&seen->settled_ns) <= now_ns);
	fault_io_resume(rig->io);
	rig_read_wait(r);
	rig_read_free(r);
	account_sweep(rig->cache, now_ns + 7200 * NS_PER_S, false);
	CHECK(atomic_load(&seen->settled_ns) > now_ns);
	CHECK_INT((int)seen->n, 2);
	drive_stop(rig->drive);
	end(rig, seen);
}

/* What was read before does not fit the order, and the plan is made a second time: whoever was told
 * the number of the order still knows the reads by it. */
static void reads_of_an_order_told_late_are_known_by_its_number(void)
{
	enum { FILES = 1200, READS = 100 };
	struct seen *seen = seen_new(0);
	struct rig *rig = rig_new(&(struct rig_options){ .n = FILES,
							 .size = 100,
							 .arena_limit = 16 * MIB,
							 .arena_bytes = 1 * MIB,
							 .probe = &seen->sampling.probe,
		.drive_probe = &seen->sampling.drive_probe });
	struct order *order = rig_order(FILES, "torch-randperm:seed=2");
	struct order_epoch *epoch;
	struct err err = { 0 };
	uint32_t generation, placed = 0;

	CHECK_INT(order_epoch_new(order, 0, &epoch, &err), 0);
	for (uint32_t i = 0; i < READS; i++)
		cache_note_open(rig->cache, (struct entry_id){ i });
	RIG_UNTIL(rig_opened(rig) >= READS);
	CHECK_INT(drive_set_order(rig->drive, order), 0);
	generation = drive_generation(rig->drive);
	RIG_UNTIL(rig_count(rig, RIG_STORE, epoch->sample[0]) > 0);
	for (uint32_t i = 0; i < READS; i++)
		cache_note_open(rig->cache, (struct entry_id){ epoch->sample[i] });
	drive_stop(rig->drive);
	CHECK_INT((int)seen->n, 2 * READS);
	for (uint32_t i = 0; i < seen->n; i++) {
		const struct read_facts *note = &seen->note[i];

		if (!note->has_use)
			continue;
		placed++;
		CHECK_U64(note->generation, generation);
		CHECK_INT((int)epoch->sample[note->use.position], (int)note->unit.v);
	}
	CHECK_U64(placed, READS);
	order_epoch_free(epoch);
	end(rig, seen);
}

static void pages_that_nobody_pushed_are_the_kernels(void)
{
	struct seen *seen = seen_new(0);
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 4, .size = SIZE, .probe = &seen->sampling.probe,
		.drive_probe = &seen->sampling.drive_probe });

	cache_note_open(rig->cache, (struct entry_id){ 1 });
	drive_stop(rig->drive);
	CHECK_INT((int)seen->n, 1);
	CHECK(seen->note[0].is_kernels && !seen->note[0].has_use);
	CHECK_INT(seen->note[0].read_class, READ_STAGED);
	end(rig, seen);
}

/* In quick passes a sample is read again before its last open is decided; what is held out is read
 * before its open is heard of. Those are two reads. */
static void control_read_is_not_of_the_open_before(void)
{
	struct seen *seen = seen_new(1);
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 4, .size = SIZE, .watch = &seen->watch, .probe = &seen->sampling.probe,
		.drive_probe = &seen->sampling.drive_probe });
	const struct read_facts *first = &seen->note[0], *second = &seen->note[1];

	bits_set(rig->cache->staged, 1);
	cache_note_open(rig->cache, (struct entry_id){ 1 });
	bits_clear(rig->cache->staged, 1);
	bits_set(rig->cache->marked[0], 1);
	CHECK_INT(rig_read_check(rig, 1, 0, SIZE), READ_MISS);
	cache_note_open(rig->cache, (struct entry_id){ 1 });
	drive_stop(rig->drive);
	CHECK_INT((int)seen->n, 2);
	CHECK(first->read_class == READ_STAGED && !is_control(first) && first->wait_ns == 0);
	CHECK(second->read_class == READ_MISS && is_control(second) && second->wait_ns > 0);
	CHECK(second->opened_ns > first->opened_ns);
	CHECK_U64(rig_metric(rig, METRIC_READS_STAGED), 1);
	CHECK_U64(rig_metric(rig, METRIC_READS_MISS), 1);
	end(rig, seen);
}

/* Time in which the source was not at work for a read, here because nobody has asked it yet, is not
 * its own. */
static void time_within_this_mount_is_told_apart(void)
{
	struct seen *seen = seen_new(0);
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 4, .size = SIZE, .probe = &seen->sampling.probe,
		.drive_probe = &seen->sampling.drive_probe });
	const uint64_t pause_ns = 30 * NS_PER_MS;
	const struct read_facts *note = &seen->note[0];
	struct rig_read *r;
	uint64_t until;

	fault_io_pause(rig->io);
	r = rig_read_start(rig, 1, 0, SIZE);
	fault_io_wait_held(rig->io, 1);
	until = clock_now(clock_monotonic()) + pause_ns;
	while (clock_now(clock_monotonic()) < until)
		sched_yield();
	fault_io_resume(rig->io);
	rig_read_wait(r);
	rig_read_free(r);
	drive_stop(rig->drive);
	CHECK_INT((int)seen->n, 1);
	CHECK(note->traits.held_ns >= pause_ns && note->traits.held_ns <= note->wait_ns);
	end(rig, seen);
}

/* Two READs of one open at once, and a pause: the time in which one was under way counts, once. */
static void wait_is_the_time_in_which_a_read_is_under_way(void)
{
	struct seen *seen = seen_new(0);
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 4, .size = 2 * MIB, .probe = &seen->sampling.probe,
		.drive_probe = &seen->sampling.drive_probe });
	uint64_t before = clock_now(clock_monotonic()), after;
	struct rig_read *a, *b;

	fault_io_pause(rig->io);
	a = rig_read_start(rig, 1, 0, 131072);
	b = rig_read_start(rig, 1, MIB, 131072);
	fault_io_wait_held(rig->io, 2);
	fault_io_resume(rig->io);
	rig_read_wait(a);
	rig_read_wait(b);
	after = clock_now(clock_monotonic());
	rig_read_free(a);
	rig_read_free(b);
	cache_note_open(rig->cache, (struct entry_id){ 1 });
	drive_stop(rig->drive);
	CHECK_INT((int)seen->n, 1);
	CHECK(seen->note[0].wait_ns > 0 && seen->note[0].wait_ns <= after - before);
	CHECK(seen->note[0].opened_ns >= before && seen->note[0].opened_ns <= after);
	end(rig, seen);
}

/* Pushed, not opened, and not in the arena any more; or SAMPLE_NONE. */
static uint32_t find_alone(struct rig *rig)
{
	struct cache *c = rig->cache;

	for (uint32_t i = 0; i < rig->options.n; i++) {
		struct entry_id entry = { i };
		struct shard *s = shard_of(c, entry);
		bool is_held;

		mutex_lock(&s->mu);
		is_held = object_find_locked(c, s, entry, 0) != NULL;
		mutex_unlock(&s->mu);
		if (!is_held && bits_get(c->staged, i) && !bits_get(c->staged_opened, i))
			return i;
	}
	return SAMPLE_NONE;
}

static uint64_t rig_wasted(struct rig *rig)
{
	struct drive_status st;

	drive_get_status(rig->drive, &st);
	return st.plan.wasted;
}

/* What is set aside is fetched in vain, also where the kernel alone had it. */
static void what_only_the_kernel_has_is_set_aside_in_vain(void)
{
	enum { FIT = 100, PAGES = 8192, MANY = 400 };
	struct seen *seen = seen_new(1e-12);
	struct rig *rig = rig_new(&(struct rig_options){
		.n = MANY,
		.size = SIZE,
		.order = "torch-randperm:seed=7:batch=2:workers=1:prefetch_factor=2",
		.arena_limit = 4 << 20,
		.arena_bytes = FIT * PAGES,
		.stage_bytes = 32 * PAGES,
		.watch = &seen->watch,
		.probe = &seen->sampling.probe,
		.drive_probe = &seen->sampling.drive_probe });
	struct order_epoch *ep = NULL;
	uint32_t sample = SAMPLE_NONE;
	struct err err = { 0 };
	uint64_t wasted;

	CHECK_INT(order_epoch_new(rig->order, 0, &ep, &err), 0);
	for (uint32_t i = 0; i < 10 * MANY && sample == SAMPLE_NONE; i++) {
		uint32_t next = ep->sample[i % MANY];

		RIG_UNTIL(bits_get(rig->cache->staged, next));
		cache_note_open(rig->cache, (struct entry_id){ next });
		RIG_UNTIL(rig_opened(rig) > i);
		sample = find_alone(rig);
	}
	CHECK(sample != SAMPLE_NONE);
	wasted = rig_wasted(rig);
	cache_set_aside(rig->cache, (struct unit_id){ sample }, WAIT_CONTROL);
	RIG_UNTIL(rig_wasted(rig) == wasted + 1);
	order_epoch_free(ep);
	end(rig, seen);
}

static const struct check_test tests[] = {
	{ "what_only_the_kernel_has_is_set_aside_in_vain",
	  what_only_the_kernel_has_is_set_aside_in_vain },
	{ "samples_held_out_of_the_arena_are_read_from_the_source", held_out_of_the_arena },
	{ "samples_held_out_of_the_store_are_read_from_the_source", held_out_of_the_store },
	{ "a_share_is_held_out_and_the_rest_prefetched",
	  share_is_held_out_and_the_rest_prefetched },
	{ "nothing_is_held_out_when_there_is_enough", nothing_is_held_out_when_there_is_enough },
	{ "sample_opened_twice_in_a_row_has_one_place",
	  sample_opened_twice_in_a_row_has_one_place },
	{ "what_is_settled_was_told", what_is_settled_was_told },
	{ "staged_reads_are_told_with_their_place", staged_reads_are_told_with_their_place },
	{ "reads_of_an_order_told_late_are_known_by_its_number",
	  reads_of_an_order_told_late_are_known_by_its_number },
	{ "pages_that_nobody_pushed_are_the_kernels", pages_that_nobody_pushed_are_the_kernels },
	{ "a_control_read_is_not_of_the_open_before", control_read_is_not_of_the_open_before },
	{ "time_within_this_mount_is_told_apart", time_within_this_mount_is_told_apart },
	{ "wait_is_the_time_in_which_a_read_is_under_way",
	  wait_is_the_time_in_which_a_read_is_under_way },
};

CHECK_MAIN(tests)
