/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One order for another while the cache runs: nothing is lost, leaked or read wrongly, the new
 * order is followed from where the job is, and opens of somebody else do not keep it from starting.
 */
#include <stdio.h>

#include "cache_rig.h"
#include "clairfs/cache/reads.h"
#include "src/cache/cache_priv.h"

#define KIB (1u << 10)
#define MIB (1u << 20)

static void set_order(struct rig *rig, const char *text)
{
	CHECK_INT(drive_set_order(rig->drive, text ? rig_order(rig->options.n, text) : NULL), 0);
}

static struct order_epoch *make_epoch(struct rig *rig, const char *text, uint64_t epoch)
{
	struct order *order = rig_order(rig->options.n, text);
	struct order_epoch *ep;
	struct err err = { 0 };

	CHECK_INT(order_epoch_new(order, epoch, &ep, &err), 0);
	order_free(order);
	return ep;
}

static struct plan_status status(struct rig *rig)
{
	struct drive_status st;

	drive_get_status(rig->drive, &st);
	return st.plan;
}

static void open_some(struct rig *rig, const struct order_epoch *ep, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++)
		cache_note_open(rig->cache, (struct entry_id){ ep->sample[i] });
}

static bool is_staged(struct rig *rig, uint32_t sample)
{
	return rig_count(rig, RIG_STORE, sample) > 0;
}

static void order_given_to_a_running_cache_is_followed(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 200, .size = 5000 });
	struct order_epoch *ep = make_epoch(rig, "torch-randperm:seed=7", 0);

	CHECK_INT(status(rig).state, PLAN_NO_ORDER);
	CHECK(cache_may_refuse_open(rig->cache));
	set_order(rig, "torch-randperm:seed=7");
	RIG_UNTIL(is_staged(rig, ep->sample[0]));
	CHECK(!cache_may_refuse_open(rig->cache));
	for (uint32_t i = 0; i < 200; i++) {
		RIG_UNTIL(is_staged(rig, ep->sample[i]));
		open_some(rig, ep, i, i + 1);
	}
	RIG_UNTIL(status(rig).state == PLAN_FOLLOWING);
	RIG_UNTIL(cache_may_refuse_open(rig->cache));
	set_order(rig, NULL);
	RIG_UNTIL(status(rig).state == PLAN_NO_ORDER);
	CHECK_STR(status(rig).why, "the order was taken back");
	order_epoch_free(ep);
	rig_free(rig);
}

static void job_that_tells_its_order_late_is_followed_at_once(void)
{
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 1200, .size = 100, .arena_limit = 16 * MIB, .arena_bytes = 1 * MIB });
	const char *text = "torch-randperm:seed=11";
	struct order_epoch *ep = make_epoch(rig, text, 0);

	open_some(rig, ep, 0, 400);
	RIG_UNTIL(status(rig).opened >= 400);
	set_order(rig, text);
	RIG_UNTIL(status(rig).state == PLAN_FOLLOWING && status(rig).position == 400);
	RIG_UNTIL(is_staged(rig, ep->sample[400]));
	CHECK(!is_staged(rig, ep->sample[0]));
	CHECK_U64(rig_metric(rig, METRIC_ORDER_MISMATCHES), 0);
	order_epoch_free(ep);
	rig_free(rig);
}

/* In the middle of an epoch, with more behind it than is remembered. */
static void position_far_in_an_epoch_is_found(void)
{
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 4700, .size = 10, .arena_limit = 32 * MIB, .arena_bytes = 1 * MIB });
	const char *text = "torch-randperm:seed=12";
	struct order_epoch *ep = make_epoch(rig, text, 0);

	open_some(rig, ep, 0, 4500);
	RIG_UNTIL(status(rig).opened >= 4500);
	set_order(rig, text);
	RIG_UNTIL(status(rig).state == PLAN_FOLLOWING && status(rig).position == 4500);
	RIG_UNTIL(is_staged(rig, ep->sample[4500]));
	order_epoch_free(ep);
	rig_free(rig);
}

/* Few enough of them that the plan has to try, or so many that the epoch itself says it. */
static void opens_of_another_job_do_not_spoil_a_new_order(void)
{
	static const uint32_t opens[] = { 100, 400 };

	for (size_t i = 0; i < ARRAY_LEN(opens); i++) {
		struct rig *rig = rig_new(&(struct rig_options){
			.n = 1200, .size = 100, .arena_limit = 16 * MIB, .arena_bytes = 1 * MIB });
		struct order_epoch *before = make_epoch(rig, "torch-randperm:seed=1", 0);
		struct order_epoch *ep = make_epoch(rig, "torch-randperm:seed=2", 0);

		open_some(rig, before, 0, opens[i]);
		RIG_UNTIL(status(rig).opened >= opens[i]);
		set_order(rig, "torch-randperm:seed=2");
		RIG_UNTIL(is_staged(rig, ep->sample[0]));
		CHECK_INT(status(rig).state, PLAN_WAITING);
		CHECK_U64(rig_metric(rig, METRIC_ORDER_MISMATCHES), 0);
		open_some(rig, ep, 0, 100);
		RIG_UNTIL(status(rig).state == PLAN_FOLLOWING && status(rig).position == 100);
		order_epoch_free(before);
		order_epoch_free(ep);
		rig_free(rig);
	}
}

static void second_order_replaces_the_first(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1000,
							 .size = 100,
							 .order = "torch-randperm:seed=1",
							 .arena_limit = 16 * MIB,
							 .arena_bytes = 1 * MIB });
	struct order_epoch *first = make_epoch(rig, "torch-randperm:seed=1", 0);
	struct order_epoch *second = make_epoch(rig, "torch-randperm:seed=2", 0);

	open_some(rig, first, 0, 300);
	RIG_UNTIL(status(rig).state == PLAN_FOLLOWING);
	set_order(rig, "torch-randperm:seed=2");
	RIG_UNTIL(status(rig).state == PLAN_WAITING && is_staged(rig, second->sample[0]));
	open_some(rig, second, 0, 300);
	RIG_UNTIL(status(rig).state == PLAN_FOLLOWING && status(rig).position == 300);
	order_epoch_free(first);
	order_epoch_free(second);
	rig_free(rig);
}

static void what_was_prefetched_stays_without_the_source(void)
{
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 20, .size = 5000, .order = "sequential" });
	uint64_t reads;

	RIG_UNTIL(rig_metric(rig, METRIC_STAGE_PUSHED) >= 20);
	set_order(rig, NULL);
	reads = rig_metric(rig, METRIC_SOURCE_READS);
	CHECK_INT(rig_read_check(rig, 3, 0, 8192), READ_ARENA);
	set_order(rig, "torch-randperm:seed=3");
	RIG_UNTIL(rig_metric(rig, METRIC_STAGE_PUSHED) >= 40);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_READS), reads);
	rig_free(rig);
}

static void fetches_under_way_serve_readers_and_the_new_order(void)
{
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 30, .size = 3 * MIB, .order = "sequential", .is_not_started = true });
	struct rig_read *r;
	struct err err = { 0 };

	fault_io_pause(rig->io);
	CHECK_INT(drive_start(rig->drive, &err), 0);
	fault_io_wait_held(rig->io, 6);
	r = rig_read_start(rig, 0, 0, 4096);
	set_order(rig, "sequential:epochs=3");
	set_order(rig, "torch-randperm:seed=9");
	set_order(rig, "sequential");
	fault_io_resume(rig->io);
	rig_read_wait(r);
	rig_check_bytes(r, 0, 3 * MIB);
	CHECK_INT(r->read.read_class, READ_LATE);
	rig_read_free(r);
	/* Sample 0 has been opened: whether it is staged as well depends on when the plan hears. */
	RIG_UNTIL(is_staged(rig, 1));
	CHECK_U64(rig_metric(rig, METRIC_PREFETCH_FAILED), 0);
	rig_free(rig);
}

/* A fetch of an old version of a file, out of the table, whose plan is gone before it ends. */
static void file_that_changes_under_a_fetch_of_a_gone_plan(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 4,
							 .size = 2 * MIB,
							 .order = "sequential",
							 .revalidate_ns = NS_PER_MS,
							 .is_not_started = true });
	struct err err = { 0 };

	fault_io_pause(rig->io);
	CHECK_INT(drive_start(rig->drive, &err), 0);
	fault_io_wait_held(rig->io, 4);
	rig_replace(rig, 0, 2 * MIB + 5);
	rig_wait_metric(rig, METRIC_SOURCE_CHANGED, 1);
	set_order(rig, "sequential:epochs=2");
	fault_io_resume(rig->io);
	RIG_UNTIL(is_staged(rig, 0));
	rig_read_check(rig, 0, MIB - 100, 1000);
	rig_free(rig);
}

/* The plan is made once, of the sizes of the start. */
static void file_that_grew_before_an_order_has_its_new_size(void)
{
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 2, .size = 5000, .revalidate_ns = NS_PER_MS });

	rig_read_check(rig, 0, 0, 8192);
	rig_replace(rig, 0, 50000);
	rig_wait_metric(rig, METRIC_SOURCE_CHANGED, 1);
	set_order(rig, "sequential");
	RIG_UNTIL(is_staged(rig, 0) && is_staged(rig, 1));
	RIG_UNTIL(status(rig).arena_bytes == 53248 + 8192);
	rig_free(rig);
}

/* Neither the next order nor readers when there is none have the source read again. */
static void what_is_in_memory_outlives_orders(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 60,
							 .size = 5000,
							 .order = "sequential",
							 .arena_limit = 16 * MIB,
							 .arena_bytes = 8 * MIB });
	struct order_epoch *ep = make_epoch(rig, "torch-randperm:seed=4", 0);

	RIG_UNTIL(status(rig).arena_bytes == 60 * 8192);
	set_order(rig, "torch-randperm:seed=4");
	CHECK_U64(status(rig).arena_bytes, 60 * 8192);
	for (uint32_t i = 0; i < 60; i++) {
		RIG_UNTIL(is_staged(rig, ep->sample[i]));
		open_some(rig, ep, i, i + 1);
	}
	RIG_UNTIL(status(rig).state == PLAN_FOLLOWING);
	set_order(rig, NULL);
	RIG_UNTIL(status(rig).arena_bytes == 0);
	for (uint32_t i = 0; i < 60; i++)
		rig_read_check(rig, i, 0, 8192);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_READS), 60);
	CHECK_U64(rig_metric(rig, METRIC_EVICTIONS), 0);
	order_epoch_free(ep);
	rig_free(rig);
}

static void samples_in_the_store_are_known_to_the_next_order(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 60,
							 .size = 50000,
							 .order = "sequential",
							 .arena_limit = 3 * MIB,
							 .arena_bytes = 1 * MIB,
							 .stage_bytes = 256 << 10,
							 .has_store = true });
	struct order_epoch *ep = make_epoch(rig, "sequential", 0);

	for (uint32_t i = 0; i < 60; i++) {
		RIG_UNTIL(is_staged(rig, i));
		open_some(rig, ep, i, i + 1);
	}
	RIG_UNTIL(rig_metric(rig, METRIC_STORE_BYTES_WRITTEN) >= 60 * 50000);
	set_order(rig, "torch-randperm:seed=4");
	RIG_UNTIL(status(rig).pinned_bytes == 60 * 53248);
	CHECK(rig_metric(rig, METRIC_SOURCE_READS) <= 61);
	order_epoch_free(ep);
	ep = make_epoch(rig, "torch-randperm:seed=4", 0);
	for (uint32_t i = 0; i < 60; i++) {
		open_some(rig, ep, i, i + 1);
		rig_read_check(rig, ep->sample[i], 0, 65536);
	}
	CHECK(rig_metric(rig, METRIC_STORE_READS) > 0);
	CHECK(rig_metric(rig, METRIC_SOURCE_READS) <= 61);
	CHECK(rig_metric(rig, METRIC_STORE_BYTES_WRITTEN) < 61 * 60000);
	order_epoch_free(ep);
	rig_free(rig);
}

/* --- load --- */

struct reader {
	struct thr thr;
	struct rig *rig;
	uint64_t seed;
	_Atomic bool *is_over;
	uint64_t n_reads;
};

static void *read_on(void *arg)
{
	struct reader *r = arg;
	uint64_t state = r->seed;

	while (!atomic_load(r->is_over) || r->n_reads < 20) {
		/* Sample 0 changes all the time and is not read. */
		uint32_t sample = 1 + (uint32_t)check_rand_below(&state, r->rig->options.n - 1);

		cache_note_open(r->rig->cache, (struct entry_id){ sample });
		rig_read_check(r->rig, sample, check_rand_below(&state, 4) * 4096, 65536);
		if (check_rand_below(&state, 16) == 0)
			cache_note_forget(r->rig->cache, (struct entry_id){ sample });
		r->n_reads++;
	}
	return NULL;
}

static void switch_often(struct rig *rig, uint32_t times)
{
	static const char *const texts[] = { "torch-randperm:seed=1",
					     "sequential",
					     NULL,
					     "torch-distributed:seed=3:world=2:rank=1",
					     "torch-distributed:seed=4",
					     NULL };

	for (uint32_t i = 0; i < times; i++) {
		set_order(rig, texts[i % ARRAY_LEN(texts)]);
		if (i % 5 == 0)
			rig_replace(rig, 0, 10000 + i);
		/* Time for fetches, pushes and pins to be under way at the next one: as many as
		 * come, none is waited for. */
		rig_read_check(rig, 1 + i % (rig->options.n - 1), 0, 131072);
		rig_pause(rig_deadline());
	}
}

static void switching_under_load_loses_nothing(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 120,
							 .size = 90000,
							 .arena_limit = 6 * MIB,
							 .arena_bytes = 3 * MIB,
							 .stage_bytes = 1 * MIB,
							 .has_store = true,
							 .revalidate_ns = 2 * NS_PER_MS });
	struct reader readers[4] = { 0 };
	_Atomic bool is_over = false;
	struct err err = { 0 };

	for (uint32_t i = 0; i < 4; i++) {
		readers[i] = (struct reader){ .rig = rig, .seed = i, .is_over = &is_over };
		CHECK_INT(thr_start(&readers[i].thr, "reader", read_on, &readers[i], &err), 0);
	}
	switch_often(rig, 150);
	atomic_store(&is_over, true);
	for (uint32_t i = 0; i < 4; i++)
		thr_join(&readers[i].thr);
	set_order(rig, "sequential");
	RIG_UNTIL(status(rig).issued > 0);
	rig_free(rig); /* checks that the arena is empty then */
}

static void stopping_in_the_middle_of_a_switch(void)
{
	for (int i = 0; i < 10; i++) {
		struct rig *rig = rig_new(&(struct rig_options){
			.n = 40, .size = 100 * KIB, .order = "sequential", .has_store = true });

		for (int k = 0; k <= i; k++)
			set_order(rig, k % 2 ? "torch-randperm:seed=2" : "torch-distributed");
		rig_free(rig);
	}
}

static void cache_that_does_not_run_takes_no_order(void)
{
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 4, .size = 10, .is_not_started = true });
	struct err err = { 0 };

	CHECK_INT(drive_set_order(rig->drive, rig_order(rig->options.n, "sequential")), -ECANCELED);
	CHECK_INT(drive_start(rig->drive, &err), 0);
	set_order(rig, "sequential");
	drive_stop(rig->drive);
	CHECK_INT(drive_set_order(rig->drive, rig_order(rig->options.n, "sequential")), -ECANCELED);
	rig_free(rig);
}

static void the_last_opens_are_told(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 200, .size = 10 });
	struct sample_id seen[8000];

	CHECK_U64(drive_last_opens(rig->drive, seen, 100), 0);
	for (uint32_t i = 0; i < 150; i++)
		cache_note_open(rig->cache, (struct entry_id){ i });
	RIG_UNTIL(status(rig).opened >= 150);
	CHECK_U64(drive_last_opens(rig->drive, seen, 100), 100);
	for (uint32_t i = 0; i < 100; i++)
		CHECK_U64(seen[i].v, 50 + i);
	CHECK_U64(drive_last_opens(rig->drive, seen, 8000), 150);
	CHECK_U64(seen[0].v, 0);
	for (uint32_t i = 0; i < 5000; i++)
		cache_note_open(rig->cache, (struct entry_id){ i % 200 });
	RIG_UNTIL(status(rig).opened >= 5150);
	CHECK_U64(drive_last_opens(rig->drive, seen, 8000), 4096);
	CHECK_U64(seen[4095].v, 4999 % 200);
	drive_stop(rig->drive);
	CHECK_U64(drive_last_opens(rig->drive, seen, 100), 0);
	rig_free(rig);
}

/* The plan keeps units of them. */
static void the_last_opens_are_samples(void)
{
	static const uint64_t sizes[] = { 100, 38 << 20, 5000 };
	struct rig *rig = rig_new(&(struct rig_options){ .n = 3, .sizes = sizes });
	struct sample_id seen[4];

	for (uint32_t i = 3; i-- > 0;)
		cache_note_open(rig->cache, (struct entry_id){ i });
	RIG_UNTIL(status(rig).opened >= 3);
	CHECK_U64(drive_last_opens(rig->drive, seen, 4), 3);
	for (uint32_t i = 0; i < 3; i++)
		CHECK_U64(seen[i].v, 2 - i);
	rig_free(rig);
}

/* How many samples are pushed, after each of the planner's rounds. */
struct staged_watch {
	struct rig *_Atomic rig;
	uint32_t last, most; /* planner; most that were less after a round */
	struct drive_watch watch;
};

static uint32_t count_staged(const struct cache *c, uint32_t n)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < n; i++)
		count += bits_get(c->staged, i);
	return count;
}

static void on_opened(void *ctx, const struct drive_open *open)
{
	(void)ctx;
	(void)open;
}

static void on_planned(void *ctx, enum plan_state state)
{
	struct staged_watch *w = ctx;
	struct rig *rig = atomic_load(&w->rig);
	uint32_t n;

	(void)state;
	if (!rig)
		return;
	n = count_staged(rig->cache, rig->options.n);
	w->most = MAX(w->most, w->last - MIN(w->last, n));
	w->last = n;
}

/* It is the planner that gives back, and readers of the next job wait for what it does next. */
static void a_large_stage_is_given_back_a_share_at_a_time(void)
{
	enum { N = 3000 };
	struct staged_watch w = { .rig = NULL };
	struct rig *rig;

	w.watch = (struct drive_watch){ .opened = on_opened, .planned = on_planned, .ctx = &w };
	rig = rig_new(&(struct rig_options){ .n = N,
					     .size = 10,
					     .order = "sequential",
					     .arena_limit = 80 * MIB,
					     .arena_bytes = 40 * MIB,
					     .watch = &w.watch });
	RIG_UNTIL(rig_metric(rig, METRIC_STAGE_PUSHED) >= N);
	atomic_store(&w.rig, rig);
	set_order(rig, NULL);
	RIG_UNTIL(rig_count(rig, RIG_INVAL, N - 1) > 0);
	RIG_UNTIL(count_staged(rig->cache, N) == 0);
	for (uint32_t i = 0; i < N; i++)
		RIG_UNTIL(rig_count(rig, RIG_INVAL, i) > 0);
	drive_stop(rig->drive);
	CHECK_U64(w.last, 0);
	printf("# at most %u in a round\n", w.most);
	CHECK(w.most > 0 && w.most <= 512);
	rig_free(rig);
}

/* Whoever opens the file has come to none of its records, the first one neither; with no order nobody else says so. */
static void records_that_were_found_are_noted_where_a_reader_comes(void)
{
	static const uint64_t sizes[] = { 300 * 100000, 5000 };
	const struct dataset_found found = { .stride = 100000, .n = 300 };
	struct unit_id come;
	struct read_note note[4];
	struct reads *reads;
	struct rig *rig;
	uint32_t first;

	CHECK_INT(reads_new(&reads), 0);
	rig = rig_new(&(struct rig_options){
		.n = 2, .sizes = sizes, .arena_limit = 64 * MIB, .reads = reads, .reserves = true });
	CHECK_INT(dataset_cut_found(rig->dataset, &found, &first), 0);
	drive_note_cut(rig->drive, found.entry);
	for (int i = 0; i < 80; i++)
		cache_note_open(rig->cache, found.entry);
	come.v = dataset_n_file_units(rig->dataset) + 7;
	drive_note_come(rig->drive, &come, 1);
	RIG_UNTIL((first = reads_take(reads, note, ARRAY_LEN(note))) > 0);
	CHECK_U64(first, 1);
	CHECK(note[0].is_record && note[0].offset == 7 * found.stride);
	rig_free(rig);
	reads_free(reads);
}

static const struct check_test tests[] = {
	{ "records_that_were_found_are_noted_where_a_reader_comes",
	  records_that_were_found_are_noted_where_a_reader_comes },
	{ "a_large_stage_is_given_back_a_share_at_a_time",
	  a_large_stage_is_given_back_a_share_at_a_time },
	{ "the_last_opens_are_told", the_last_opens_are_told },
	{ "the_last_opens_are_samples", the_last_opens_are_samples },
	{ "order_given_to_a_running_cache_is_followed",
	  order_given_to_a_running_cache_is_followed },
	{ "job_that_tells_its_order_late_is_followed_at_once",
	  job_that_tells_its_order_late_is_followed_at_once },
	{ "position_far_in_an_epoch_is_found", position_far_in_an_epoch_is_found },
	{ "opens_of_another_job_do_not_spoil_a_new_order",
	  opens_of_another_job_do_not_spoil_a_new_order },
	{ "second_order_replaces_the_first", second_order_replaces_the_first },
	{ "what_was_prefetched_stays_without_the_source",
	  what_was_prefetched_stays_without_the_source },
	{ "fetches_under_way_serve_readers_and_the_new_order",
	  fetches_under_way_serve_readers_and_the_new_order },
	{ "file_that_changes_under_a_fetch_of_a_gone_plan",
	  file_that_changes_under_a_fetch_of_a_gone_plan },
	{ "file_that_grew_before_an_order_has_its_new_size",
	  file_that_grew_before_an_order_has_its_new_size },
	{ "what_is_in_memory_outlives_orders", what_is_in_memory_outlives_orders },
	{ "samples_in_the_store_are_known_to_the_next_order",
	  samples_in_the_store_are_known_to_the_next_order },
	{ "switching_under_load_loses_nothing", switching_under_load_loses_nothing },
	{ "stopping_in_the_middle_of_a_switch", stopping_in_the_middle_of_a_switch },
	{ "cache_that_does_not_run_takes_no_order", cache_that_does_not_run_takes_no_order },
};
CHECK_MAIN(tests)
