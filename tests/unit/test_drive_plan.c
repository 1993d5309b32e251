/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole chain with an order: prefetch, stage, drop, pin, and what readers see meanwhile. Opens
 * are told by hand; tests wait for counters and for what the stage has recorded.
 */
#include <stdio.h>

#include "cache_rig.h"
#include "probe_kit.h"
#include "src/cache/cache_priv.h"
#include "src/cache/news_priv.h"
#include "src/drive/drive_priv.h"

#define MIB (1u << 20)

static bool is_staged(struct rig *rig, uint32_t sample, uint32_t times)
{
	return rig_count(rig, RIG_STORE, sample) >= times;
}

static void open_sample(struct rig *rig, uint32_t sample)
{
	cache_note_open(rig->cache, (struct entry_id){ sample });
}

static void an_epoch_is_staged_before_it_is_read(void)
{
	struct rig *rig = rig_new(
		&(struct rig_options){ .n = 200,
				       .size = 20000,
				       .order = "torch-randperm:seed=7",
				       .arena_limit = 8 * MIB, /* a part of the dataset at a time */
				       .arena_bytes = 2 * MIB,
				       .stage_bytes = 512 << 10 });
	struct order_epoch *epoch;
	struct err err = { 0 };
	struct cache_status st;

	CHECK_INT(order_epoch_new(rig->order, 0, &epoch, &err), 0);
	for (uint32_t i = 0; i < epoch->length; i++) {
		RIG_UNTIL(is_staged(rig, epoch->sample[i], 1));
		open_sample(rig, epoch->sample[i]);
	}
	order_epoch_free(epoch);
	RIG_UNTIL(rig_metric(rig, METRIC_PREFETCH_USEFUL) >= 200);
	CHECK_U64(rig_metric(rig, METRIC_STAGE_EVICTED_READS), 0);
	CHECK(rig_metric(rig, METRIC_STAGE_PUSHED_BYTES) >= 200 * 20000);
	cache_get_status(rig->cache, &st);
	CHECK(cache_may_refuse_open(rig->cache));
	CHECK(!st.is_degraded);
	CHECK(arena_used(rig->arena) <= 2 * MIB + MIB);
	drive_stop(rig->drive);
	CHECK_U64(rig_metric(rig, METRIC_READS_STAGED), 200);
	CHECK_U64(rig_metric(rig, METRIC_READ_BYTES_STAGED), 200 * 20000);
	rig_free(rig);
}

static void reads_beside_the_plan_are_right_whatever_they_are_served_by(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 100,
							 .size = 30000,
							 .order = "torch-randperm:seed=1",
							 .arena_limit = 2 * MIB,
							 .arena_bytes = 1 * MIB });
	struct order_epoch *epoch;
	struct err err = { 0 };
	uint64_t reads = 0;

	CHECK_INT(order_epoch_new(rig->order, 0, &epoch, &err), 0);
	for (uint32_t i = 0; i < epoch->length; i++) {
		open_sample(rig, epoch->sample[i]);
		rig_read_check(rig, epoch->sample[i], 0, 131072);
	}
	order_epoch_free(epoch);
	drive_stop(rig->drive);
	for (uint32_t i = 0; i < READ_CLASSES; i++)
		reads += rig_metric(rig, METRIC_READS_STAGED + i);
	CHECK_U64(reads, 100);
	rig_free(rig);
}

static struct rig *held_prefetch(uint64_t size, unsigned n_held)
{
	struct rig *rig = rig_new(
		&(struct rig_options){ .n = 40,
				       .size = size,
				       .order = "sequential",
				       .arena_limit = 64 * MIB,
				       .stagers = 1, /* pushes come in the order of the plan */
				       .is_not_started = true });
	struct err err = { 0 };

	fault_io_pause(rig->io);
	CHECK_INT(drive_start(rig->drive, &err), 0);
	fault_io_wait_held(rig->io, n_held);
	return rig;
}

static void reader_joins_a_prefetch_in_flight(void)
{
	struct rig *rig = held_prefetch(5000, 1);
	unsigned seen = fault_io_seen(rig->io);
	struct rig_read *r = rig_read_start(rig, 0, 0, 4096);

	CHECK(fault_io_seen(rig->io) - seen < 8);
	fault_io_resume(rig->io);
	rig_read_wait(r);
	rig_check_bytes(r, 0, 5000);
	CHECK_INT(r->read.read_class, READ_LATE);
	rig_read_free(r);
	RIG_UNTIL(is_staged(rig, 1, 1));
	rig_free(rig);
}

static void prefetch_that_waits_becomes_urgent_when_it_is_read(void)
{
	/* Two samples of four pieces take all slots; the next sample's pieces wait. */
	struct rig *rig = held_prefetch(4 * MIB, 8);
	struct rig_read *r;
	struct cache_status st;

	cache_get_status(rig->cache, &st);
	CHECK_U64(fault_io_seen(rig->io), 8);
	r = rig_read_start(rig, 2, 0, 4096);
	fault_io_wait_held(rig->io, 9);
	fault_io_resume(rig->io);
	rig_read_wait(r);
	rig_check_bytes(r, 0, 4 * MIB);
	rig_read_free(r);
	rig_free(rig);
}

struct slow_answer {
	struct cache_read read;
	struct rig *rig;
	uint32_t pushes_meanwhile;
	_Atomic bool is_done;
};

/* The answer takes until the next sample has been pushed. */
static void answer_slowly(struct cache_read *read, int status, const struct iovec *iov, int n_iov)
{
	struct slow_answer *a = container_of(read, struct slow_answer, read);

	(void)iov;
	CHECK_INT(status, 0);
	CHECK_INT(n_iov, 1);
	RIG_UNTIL(is_staged(a->rig, 1, 1));
	a->pushes_meanwhile = rig_count(a->rig, RIG_STORE, 0);
	atomic_store(&a->is_done, true);
}

static void sample_is_not_pushed_while_a_read_of_it_is_answered(void)
{
	struct rig *rig = held_prefetch(5000, 2);
	struct slow_answer a = { .rig = rig, .read = { .length = 4096, .done = answer_slowly } };

	cache_read(rig->cache, &a.read);
	fault_io_resume(rig->io);
	RIG_UNTIL(atomic_load(&a.is_done));
	CHECK_U64(a.pushes_meanwhile, 0);
	rig_free(rig);
}

static void failed_prefetch_leaves_the_reader_to_the_source(void)
{
	struct rig *rig = held_prefetch(5000, 1);
	struct rig_read *r = rig_read_start(rig, 0, 0, 4096);

	fault_io_set(rig->io,
		     &(struct fault_io_rule){ .kind = FAULT_IO_FAIL, .repeat = 1, .status = -EIO });
	fault_io_resume(rig->io);
	rig_read_wait(r);
	rig_check_bytes(r, 0, 5000);
	CHECK_INT(fault_io_fired(rig->io), 1);
	rig_read_free(r);
	rig_wait_metric(rig, METRIC_PREFETCH_FAILED, 1);
	rig_free(rig);
}

static void unknown_inode_is_looked_up_and_pushed_again(void)
{
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 4, .size = 5000, .order = "sequential", .is_not_started = true });
	struct err err = { 0 };

	rig->fail_stores = 1;
	rig->stage_status = -ENOENT;
	CHECK_INT(drive_start(rig->drive, &err), 0);
	RIG_UNTIL(rig_metric(rig, METRIC_STAGE_PUSHED) >= 4);
	CHECK_U64(rig_metric(rig, METRIC_STAGE_UNKNOWN_INODE), 1);
	CHECK_U64(rig_count(rig, RIG_LOOKUP, 0) + rig_count(rig, RIG_LOOKUP, 1) +
			  rig_count(rig, RIG_LOOKUP, 2) + rig_count(rig, RIG_LOOKUP, 3),
		  1);
	rig_free(rig);
}

static void read_of_a_staged_sample_means_the_kernel_dropped_it(void)
{
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 4, .size = 5000, .order = "sequential" });

	RIG_UNTIL(rig_metric(rig, METRIC_STAGE_PUSHED) >= 4);
	rig_hold_stage(rig, true); /* or the plan has it pushed again before the next read */
	rig_read_check(rig, 0, 0, 4096);
	rig_read_check(rig, 0, 4096, 4096);
	CHECK_U64(rig_metric(rig, METRIC_STAGE_EVICTED_READS), 1);
	cache_note_forget(rig->cache, (struct entry_id){ 1 });
	rig_read_check(rig, 1, 0, 4096);
	CHECK_U64(rig_metric(rig, METRIC_STAGE_EVICTED_READS), 1);
	rig_hold_stage(rig, false);
	rig_free(rig);
}

static void change_inside_a_push(struct rig *rig, uint32_t entry)
{
	if (entry != 0 || atomic_load(&rig->version[0]))
		return;
	rig_replace(rig, 0, 7000);
	rig_wait_metric(rig, METRIC_SOURCE_CHANGED, 1);
}

/* What is pushed goes to the inode of before, which the name does not lead to any more. */
static void push_of_an_old_version_is_not_seen_in_the_new_inode(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 2,
							 .size = 5000,
							 .order = "sequential",
							 .revalidate_ns = NS_PER_MS,
							 .is_not_started = true });
	struct err err = { 0 };

	rig->on_store = change_inside_a_push;
	CHECK_INT(drive_start(rig->drive, &err), 0);
	RIG_UNTIL(is_staged(rig, 0, 1));
	RIG_UNTIL(rig_find(rig, RIG_NAME, 0, 0) >= 0);
	CHECK_U64(dataset_renewal(rig->dataset, rig_entry(rig, 0)), 1);
	rig_read_check(rig, 0, 0, 65536);
	rig_free(rig);
}

static void stop_while_everything_is_busy(void)
{
	for (int i = 0; i < 12; i++) {
		struct rig *rig = rig_new(&(struct rig_options){ .n = 20,
								 .size = 2 * MIB + 77,
								 .order = "torch-randperm:seed=3",
								 .has_store = true });
		struct rig_read *reads[10];

		fault_io_set(rig->io,
			     &(struct fault_io_rule){ .kind = FAULT_IO_DELAY,
						      .delay_ns = (uint64_t)i * NS_PER_MS / 4 });
		for (uint32_t k = 0; k < 10; k++) {
			open_sample(rig, k);
			reads[k] = rig_read_start(rig, k, MIB - 4096, 8192);
		}
		drive_stop(rig->drive);
		for (uint32_t k = 0; k < 10; k++) {
			CHECK_INT(reads[k]->n_done, 1);
			rig_check_bytes(reads[k], 0, 2 * MIB + 77);
			rig_read_free(reads[k]);
		}
		rig_free(rig);
	}
}

static void kept_identity(struct rig *rig, uint32_t sample, struct file_identity *ret)
{
	struct file_identity id;

	dataset_identity(rig->dataset, (struct entry_id){ sample }, &id);
	CHECK_INT(dataset_kept_identity(rig->dataset, (struct entry_id){ sample }, &id, ret), 0);
}

static void samples_are_pinned_and_read_from_the_store(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 100,
							 .size = 50000,
							 .order = "torch-randperm:seed=5",
							 .arena_limit = 3 * MIB,
							 .arena_bytes = 1 * MIB,
							 .stage_bytes = 256 << 10,
							 .has_store = true });
	struct err err = { 0 };

	for (uint64_t e = 0; e < 3; e++) {
		struct order_epoch *epoch;

		CHECK_INT(order_epoch_new(rig->order, e, &epoch, &err), 0);
		for (uint32_t i = 0; i < epoch->length; i++) {
			open_sample(rig, epoch->sample[i]);
			rig_read_check(rig, epoch->sample[i], 0, 65536);
		}
		order_epoch_free(epoch);
		RIG_UNTIL(rig_metric(rig, METRIC_STORE_BYTES_WRITTEN) > 0);
	}
	RIG_UNTIL(rig_metric(rig, METRIC_STORE_READS) > 0);
	rig_free(rig);
}

static void the_smallest_samples_go_into_the_store(void)
{
	uint64_t sizes[60];
	struct order_epoch *epoch;
	struct err err = { 0 };
	struct rig *rig;

	for (uint32_t i = 0; i < 60; i++)
		sizes[i] = i % 2 ? 4000 : 200000;
	rig = rig_new(&(struct rig_options){ .n = 60,
					     .sizes = sizes,
					     .order = "torch-randperm:seed=5",
					     .has_store = true,
					     .store_bytes = 45 * 4096,
					     .pin_rule = PLAN_PIN_SMALLEST });
	CHECK_INT(order_epoch_new(rig->order, 0, &epoch, &err), 0);
	for (uint32_t i = 0; i < epoch->length; i++) {
		open_sample(rig, epoch->sample[i]);
		rig_read_check(rig, epoch->sample[i], 0, 65536);
	}
	order_epoch_free(epoch);
	rig_wait_metric(rig, METRIC_STORE_BYTES_WRITTEN, 30 * 4000);
	for (uint32_t i = 0; i < 60; i++) {
		struct file_identity id;

		kept_identity(rig, i, &id);
		RIG_UNTIL(store_has(rig->store, (struct piece_key){ { i }, 0 }, &id) == (i % 2));
	}
	rig_free(rig);
}

/* The thread that computes epochs also looks ahead for a node that reads a part of each. */
static void later_epochs_of_a_node_of_many_become_known(void)
{
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 200,
		.size = 5000,
		.order = "torch-distributed:seed=3:world=8:ranks=2:epochs=20",
		.arena_limit = 2 * MIB,
		.arena_bytes = 40 * 8192 });
	struct err err = { 0 };
	struct drive_status st;

	for (uint64_t e = 0; e < 4; e++) {
		struct order_epoch *epoch;

		CHECK_INT(order_epoch_new(rig->order, e, &epoch, &err), 0);
		for (uint32_t i = 0; i < epoch->length; i++) {
			open_sample(rig, epoch->sample[i]);
			rig_read_check(rig, epoch->sample[i], 0, 65536);
		}
		order_epoch_free(epoch);
	}
	/* Read are 0 to 3; then 3 is or was the current one and the next one has its keys. */
	RIG_UNTIL((drive_get_status(rig->drive, &st), st.plan.epochs_known == 15));
	rig_free(rig);
}

/* More events than there is room for: what happened to samples still comes, and only opens may be
 * lost. */
static void events_of_samples_are_not_lost_when_the_planner_is_late(void)
{
	const enum news_kind kinds[] = { NEWS_LOST_COPY, NEWS_RESIZED, NEWS_UNPINNED,
					 NEWS_UNSTAGED };
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 70, .size = 100, .order = "sequential", .is_not_started = true });
	struct news *news = rig->drive->news;
	struct unit_id last = { 69 };
	struct cache_status status;
	struct err err;

	for (uint32_t i = 0; i < NEWS_MAX; i++)
		note_unit(rig->cache, NEWS_UNSTAGED, (struct unit_id){ 0 });
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		note_unit(rig->cache, kinds[i], last);
	for (size_t i = 0; i < NEWS_LATE_KINDS; i++)
		CHECK_U64(news->late_fill[i][1], 1u << 5);
	news_fetched_anew(news, last);
	CHECK_U64(news->late_fill[0][1], 0);
	CHECK_INT(drive_start(rig->drive, &err), 0);
	rig_read_check(rig, 69, 0, 100);
	RIG_UNTIL(rig_metric(rig, METRIC_PREFETCH_ISSUED) >= 69);
	drive_stop(rig->drive);
	cache_get_status(rig->cache, &status);
	CHECK(!status.is_degraded);
	for (size_t i = 0; i < NEWS_LATE_KINDS; i++) /* whichever of the two it is now */
		CHECK_U64(news->late_fill[i][1] | news->late_drain[i][1], 0);
	rig_free(rig);
}

/* --- a fetch of what a reader has just asked for --- */

/* One fetch of a sample, answered or not; nothing plans. */
struct asked {
	struct cache_fetch fetch;
	struct news_answer answer;
};

static void adopt(struct rig *rig, struct asked *a, uint32_t sample)
{
	*a = (struct asked){ .fetch = { .is_adopting = true, .answer_to = &a->answer } };
	CHECK_INT(cache_hold(rig->cache, (struct unit_id){ sample }, &a->fetch), 0);
}

static bool has_answer(struct rig *rig)
{
	struct news *n = rig->drive->news;
	bool has;

	mutex_lock(&n->mu);
	has = !list_is_empty(&n->answers);
	mutex_unlock(&n->mu);
	return has;
}

static int answered_status(struct rig *rig, const struct asked *a)
{
	struct news *n = rig->drive->news;
	const struct list *node;

	mutex_lock(&n->mu);
	node = list_pop_head(&n->answers);
	mutex_unlock(&n->mu);
	CHECK(node == &a->answer.node);
	return a->fetch.status;
}

/* Without a planner: the actions are the test's. */
static void adopted_fetch_asks_nobody(void)
{
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 4, .size = 5000, .is_not_started = true });
	struct asked asked;
	struct rig_read *r;

	/* Neither there nor under way. */
	adopt(rig, &asked, 0);
	CHECK_INT(answered_status(rig, &asked), -EAGAIN);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_READS), 0);
	/* There. */
	rig_read_check(rig, 0, 0, 8192);
	adopt(rig, &asked, 0);
	CHECK_INT(answered_status(rig, &asked), 0);
	/* Under way: it ends with the reader's request. */
	fault_io_pause(rig->io);
	r = rig_read_start(rig, 1, 0, 4096);
	fault_io_wait_held(rig->io, 1);
	adopt(rig, &asked, 1);
	CHECK(!has_answer(rig));
	fault_io_resume(rig->io);
	rig_read_wait(r);
	rig_read_free(r);
	RIG_UNTIL(has_answer(rig));
	CHECK_INT(answered_status(rig, &asked), 0);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_READS), 2);
	CHECK_INT(rig_read_check(rig, 1, 0, 4096), READ_ARENA);
	for (uint32_t i = 0; i < 2; i++)
		cache_release(rig->cache, (struct unit_id){ i }, false);
	rig_free(rig);
}

/* A probe that says no for a while; and once more, but what it has said is old before it is heard:
 * whoever has the news finds the queue being pumped and goes. */
struct fickle {
	struct probe probe;
	struct rig *_Atomic rig;
	_Atomic bool is_changing, is_let;
};

static void on_reads(void *ctx, const struct read_facts *facts, uint32_t n)
{
	(void)ctx;
	(void)facts;
	(void)n;
}

static bool changes_its_mind(void *ctx)
{
	struct fickle *f = ctx;

	if (atomic_load(&f->is_let))
		return true;
	if (!atomic_load(&f->is_changing))
		return false;
	atomic_store(&f->is_let, true);
	prefetch_pump(atomic_load(&f->rig)->cache); /* as another thread would */
	return false;
}

static uint32_t count_waiting(struct rig *rig)
{
	struct prefetch_queue *q = &rig->cache->prefetch;
	uint32_t n = 0;

	mutex_lock(&q->mu);
	for (struct list *node = q->queue.next; node != &q->queue; node = node->next)
		n++;
	n = q->is_pumping ? 0 : n;
	mutex_unlock(&q->mu);
	return n;
}

/* The plan has asked for as many as it will until one of them is answered. */
static bool all_are_waiting(struct rig *rig, uint32_t n)
{
	struct drive_status st;

	drive_get_status(rig->drive, &st);
	return st.plan.inflight_limit && count_waiting(rig) == MIN(n, st.plan.inflight_limit);
}

static void prefetches_do_not_miss_that_they_may_go(void)
{
	enum { FEW = 4 };
	struct fickle f = { .rig = NULL };
	struct rig *rig;

	f.probe = probe_kit(&f, on_reads, NULL);
	f.probe.may_prefetch = changes_its_mind;
	rig = rig_new(&(struct rig_options){
		.n = FEW, .size = 5000, .order = "sequential", .probe = &f.probe });
	atomic_store(&f.rig, rig);
	RIG_UNTIL(all_are_waiting(rig, FEW));
	atomic_store(&f.is_changing, true);
	prefetch_pump(rig->cache);
	RIG_UNTIL(rig_metric(rig, METRIC_STAGE_PUSHED) >= FEW);
	rig_free(rig);
}

static const struct check_test tests[] = {
	{ "prefetches_do_not_miss_that_they_may_go", prefetches_do_not_miss_that_they_may_go },
	{ "adopted_fetch_asks_nobody", adopted_fetch_asks_nobody },
	{ "an_epoch_is_staged_before_it_is_read", an_epoch_is_staged_before_it_is_read },
	{ "reads_beside_the_plan_are_right_whatever_they_are_served_by",
	  reads_beside_the_plan_are_right_whatever_they_are_served_by },
	{ "reader_joins_a_prefetch_in_flight", reader_joins_a_prefetch_in_flight },
	{ "prefetch_that_waits_becomes_urgent_when_it_is_read",
	  prefetch_that_waits_becomes_urgent_when_it_is_read },
	{ "sample_is_not_pushed_while_a_read_of_it_is_answered",
	  sample_is_not_pushed_while_a_read_of_it_is_answered },
	{ "failed_prefetch_leaves_the_reader_to_the_source",
	  failed_prefetch_leaves_the_reader_to_the_source },
	{ "unknown_inode_is_looked_up_and_pushed_again",
	  unknown_inode_is_looked_up_and_pushed_again },
	{ "read_of_a_staged_sample_means_the_kernel_dropped_it",
	  read_of_a_staged_sample_means_the_kernel_dropped_it },
	{ "push_of_an_old_version_is_not_seen_in_the_new_inode",
	  push_of_an_old_version_is_not_seen_in_the_new_inode },
	{ "stop_while_everything_is_busy", stop_while_everything_is_busy },
	{ "samples_are_pinned_and_read_from_the_store",
	  samples_are_pinned_and_read_from_the_store },
	{ "the_smallest_samples_go_into_the_store", the_smallest_samples_go_into_the_store },
	{ "later_epochs_of_a_node_of_many_become_known",
	  later_epochs_of_a_node_of_many_become_known },
	{ "events_of_samples_are_not_lost_when_the_planner_is_late",
	  events_of_samples_are_not_lost_when_the_planner_is_late },
};
CHECK_MAIN(tests)
