/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache steps aside: samples of blocks that were chosen are held out, once the order is
 * confirmed, and no others. Reads go in the order's order, each when the plan has dealt with its
 * sample: it is pushed, or held out. So nothing depends on who is faster.
 */
#include <inttypes.h>
#include <stdio.h>

#include "cache_rig.h"
#include "src/cache/cache_priv.h"
#include "src/wait/sampling.h"

enum { N = 600, SIZE = 5000, PAGES = 8192, RANKS_MAX = 2, NOTES = 4 * N };
#define SHARE 0.1
#define LOADER ":batch=2:workers=1:prefetch_factor=2"
#define ORDER "torch-randperm:seed=7"

struct seen {
	struct mutex mu;
	struct read_facts note[NOTES]; /* mu */
	uint32_t n;                         /* mu */
	struct sampling sampling;
};

static void on_read(void *ctx, const struct read_facts *notes, uint32_t n)
{
	struct seen *seen = ctx;

	mutex_lock(&seen->mu);
	for (uint32_t i = 0; i < n && seen->n < NOTES; i++)
		seen->note[seen->n++] = notes[i];
	mutex_unlock(&seen->mu);
}

static struct seen *seen_new(double share)
{
	struct sampling_params params = { .switchback_share = share,
					  .n_samples = N,
					  .clock = clock_monotonic() };
	struct seen *seen = calloc(1, sizeof(*seen));

	mutex_init(&seen->mu);
	sampling_init(&seen->sampling, &params);
	seen->sampling.observed = on_read;
	seen->sampling.ctx = seen;
	return seen;
}

/* The plan looks a fifth of the dataset ahead and pushes a dozen samples. */
static struct rig *rig_with(struct seen *seen, const char *order, bool has_store)
{
	return rig_new(&(struct rig_options){ .n = N,
					      .size = SIZE,
					      .order = order,
					      .arena_limit = 4 << 20,
					      .arena_bytes = N / 5 * PAGES,
					      .stage_bytes = 12 * PAGES,
					      .has_store = has_store,
					      .probe = &seen->sampling.probe,
		.drive_probe = &seen->sampling.drive_probe });
}

static void end(struct rig *rig, struct seen *seen)
{
	rig_free(rig);
	sampling_fini(&seen->sampling);
	mutex_fini(&seen->mu);
	free(seen);
}

static bool is_through(struct rig *rig, uint32_t sample)
{
	return probed_mark(rig->cache, (struct unit_id){ sample }) == WAIT_SWITCHBACK;
}

static uint64_t rig_opened(struct rig *rig)
{
	struct drive_status st;

	drive_get_status(rig->drive, &st);
	return st.plan.opened;
}

static bool is_pushed(struct rig *rig, uint32_t sample)
{
	return bits_get(rig->cache->staged, sample);
}

static bool is_chosen(uint32_t n_ranks, uint64_t pass, uint64_t position)
{
	struct switchback_loader loader = {
		.n_samples = N, .workers = 1, .prefetch = 2, .batch = 2
	};
	struct switchback s;

	CHECK(switchback_init(&s, SHARE, &loader));
	return switchback_has(&s, pass, position / n_ranks);
}

/* What was asked for before the order was confirmed may be pushed all the same: that is less than
 * an arena behind that moment. */
static bool is_sure(uint64_t pass, uint64_t at, uint32_t confirmed)
{
	return pass || (confirmed != UINT32_MAX && at > confirmed + N / 4);
}

/* In a block nothing is fetched ahead, so the reader does not wait for that. Whether it still is in
 * one is known when the plan has heard of all that was opened. */
static bool is_held_back(struct rig *rig, uint64_t opened)
{
	if (probed_lets_prefetch(rig->cache))
		return false;
	RIG_UNTIL(rig_opened(rig) >= opened);
	return !probed_lets_prefetch(rig->cache);
}

/* The plan has dealt with the sample that is read next. */
static bool is_dealt_with(struct rig *rig, uint32_t sample, uint64_t opened, bool is_due)
{
	return is_through(rig, sample) ||
	       (!is_due && (is_pushed(rig, sample) || is_held_back(rig, opened)));
}

static void wait_dealt_with(struct rig *rig, uint32_t sample, uint64_t opened, bool is_due)
{
	uint64_t until = rig_deadline();
	bool is_met, is_late = false;
	struct drive_status st;

	while (!(is_met = is_dealt_with(rig, sample, opened, is_due)) && !is_late) /* as RIG_UNTIL */
		is_late = !rig_pause(until);
	if (is_met)
		return;
	drive_get_status(rig->drive, &st);
	printf("# opened %" PRIu64 " of %" PRIu64 ", due %d, pushed %d, prefetches %d, plan %d, asked %" PRIu64
	       ", useful %" PRIu64 ", late %" PRIu64 ", wasted %" PRIu64 ", failed %" PRIu64 "\n",
	       st.plan.opened, opened, is_due, is_pushed(rig, sample), probed_lets_prefetch(rig->cache),
	       (int)st.plan.state, st.plan.asked, st.plan.useful, st.plan.late, st.plan.wasted,
	       st.plan.failed);
	CHECK(!"the plan has not dealt with a sample");
}

/* One pass in order; *ret_confirmed: the position from which on the order was confirmed. READs come
 * before the opens are heard of, as with a watcher that lags. */
static void read_pass(struct rig *rig, const struct order_epoch *epoch, uint32_t n_ranks,
		      uint32_t *ret_confirmed)
{
	for (uint32_t i = 0; i < epoch->length; i++) {
		struct entry_id entry = { epoch->sample[i] };
		bool is_due = n_ranks && is_chosen(n_ranks, epoch->epoch, i) &&
			      is_sure(epoch->epoch, i, *ret_confirmed);

		if (*ret_confirmed == UINT32_MAX && cache_may_refuse_open(rig->cache))
			*ret_confirmed = i;
		wait_dealt_with(rig, entry.v, epoch->epoch * N + i, is_due);
		if (is_through(rig, entry.v)) /* being fetched, where it was asked for before */
			CHECK(rig_read_check(rig, entry.v, 0, 131072) == READ_MISS ||
			      !is_sure(epoch->epoch, i, *ret_confirmed));
		else if (!is_pushed(rig, entry.v))
			(void)rig_read_check(rig, entry.v, 0, 131072);
		cache_note_open(rig->cache, entry);
	}
}

/* Every read has its class. Until then a READ of the next pass would be taken for one of this. */
static bool is_decided(struct rig *rig, uint64_t reads)
{
	uint64_t n = 0;

	for (int class = 0; class < READ_CLASSES; class ++)
		n += rig_metric(rig, METRIC_READS_STAGED + class);
	return n >= reads;
}

/* Two passes. */
static void blocks_are_held_out(const char *order, uint32_t n_ranks, bool has_store)
{
	struct seen *seen = seen_new(SHARE);
	struct rig *rig = rig_with(seen, order, has_store);
	uint32_t confirmed = UINT32_MAX, through = 0, staged = 0, strays = 0;
	struct order_epoch *epoch[2];
	struct err err = { 0 };

	for (uint64_t pass = 0; pass < 2; pass++) {
		CHECK_INT(order_epoch_new(rig->order, pass, &epoch[pass], &err), 0);
		read_pass(rig, epoch[pass], n_ranks, &confirmed);
		if (pass == 0)
			RIG_UNTIL(is_decided(rig, N));
	}
	CHECK(confirmed < N / 2);
	drive_stop(rig->drive);
	CHECK_INT((int)seen->n, 2 * N);
	for (uint32_t i = 0; i < seen->n; i++) {
		const struct read_facts *note = &seen->note[i];
		uint64_t pass = note->use.pass, at = note->use.position;

		CHECK(note->has_use && pass < 2 && at < N && !(note->traits.mark & WAIT_CONTROL));
		CHECK_INT((int)epoch[pass]->sample[at], (int)note->unit.v);
		if (is_sure(pass, at, confirmed) && is_chosen(n_ranks, pass, at))
			CHECK((note->traits.mark == WAIT_SWITCHBACK));
		/* Held out for its next use when the plan had not heard of this one yet. */
		strays += (note->traits.mark == WAIT_SWITCHBACK) && is_sure(pass, at, confirmed) &&
			  !is_chosen(n_ranks, pass, at);
		if (note->traits.mark == WAIT_SWITCHBACK && is_sure(pass, at, confirmed))
			CHECK_INT(note->read_class, READ_MISS);
		through += (note->traits.mark == WAIT_SWITCHBACK);
		staged += !(note->traits.mark == WAIT_SWITCHBACK) && note->read_class == READ_STAGED;
	}
	CHECK(through >= 16 && staged > N && strays <= N / 20);
	CHECK_U64(rig_metric(rig, METRIC_PREFETCH_FAILED), 0);
	order_epoch_free(epoch[0]);
	order_epoch_free(epoch[1]);
	end(rig, seen);
}

static void of_one_rank(void)
{
	blocks_are_held_out(ORDER LOADER, 1, false);
}

static void of_two_ranks(void)
{
	blocks_are_held_out("torch-distributed:seed=7:world=2:ranks=0-1" LOADER, 2, false);
}

static void of_what_the_store_has(void)
{
	blocks_are_held_out(ORDER LOADER, 1, true);
}

/* All of the dataset is in memory before anything is known of the job, and nothing is ever pushed:
 * no action tells of these samples any more. */
static void blocks_are_held_out_of_what_is_kept(void)
{
	struct seen *seen = seen_new(SHARE);
	struct rig *rig = rig_new(&(struct rig_options){ .n = N,
							 .size = SIZE,
							 .order = ORDER LOADER,
							 .is_stage_off = true,
							 .probe = &seen->sampling.probe,
		.drive_probe = &seen->sampling.drive_probe });
	uint32_t confirmed = UINT32_MAX, through = 0;
	struct order_epoch *epoch;
	struct err err = { 0 };

	CHECK_INT(order_epoch_new(rig->order, 0, &epoch, &err), 0);
	RIG_UNTIL(rig_metric(rig, METRIC_SOURCE_READS) >= N);
	for (uint32_t i = 0; i < N; i++) {
		struct entry_id entry = { epoch->sample[i] };

		if (confirmed == UINT32_MAX && cache_may_refuse_open(rig->cache))
			confirmed = i;
		if (is_chosen(1, 0, i) && is_sure(0, i, confirmed)) {
			RIG_UNTIL(is_through(rig, entry.v));
			CHECK_INT(rig_read_check(rig, entry.v, 0, 131072), READ_MISS);
			through++;
		} else {
			(void)rig_read_check(rig, entry.v, 0, 131072);
		}
		cache_note_open(rig->cache, entry);
		/* The plan is not left behind, so the order is confirmed early. */
		RIG_UNTIL(rig_opened(rig) > i);
	}
	CHECK(through > 0);
	order_epoch_free(epoch);
	end(rig, seen);
}

/* Nothing is chosen before reads have confirmed the order: all of a first look-ahead is fetched. */
static void nothing_is_held_out_before_the_order_is_confirmed(void)
{
	struct seen *seen = seen_new(SHARE);
	struct rig *rig = rig_with(seen, ORDER LOADER, false);
	struct order_epoch *epoch;
	struct err err = { 0 };
	uint32_t chosen = 0;

	CHECK_INT(order_epoch_new(rig->order, 0, &epoch, &err), 0);
	RIG_UNTIL(rig_metric(rig, METRIC_STAGE_PUSHED) >= 12);
	for (uint32_t i = 0; i < N; i++) {
		CHECK(!is_through(rig, epoch->sample[i]));
		chosen += is_chosen(1, 0, i);
	}
	CHECK(chosen > 0);
	order_epoch_free(epoch);
	end(rig, seen);
}

/* Off, and on with an order that says nothing of the loader. */
static void nothing_is_held_out(const char *order, double share)
{
	struct seen *seen = seen_new(share);
	struct rig *rig = rig_with(seen, order, false);
	uint32_t confirmed = UINT32_MAX;
	struct order_epoch *epoch;
	struct err err = { 0 };

	CHECK_INT(order_epoch_new(rig->order, 0, &epoch, &err), 0);
	read_pass(rig, epoch, 0, &confirmed);
	CHECK(confirmed != UINT32_MAX);
	drive_stop(rig->drive);
	for (uint32_t i = 0; i < seen->n; i++)
		CHECK(!seen->note[i].traits.mark);
	CHECK_U64(rig_metric(rig, METRIC_READS_MISS), 0);
	order_epoch_free(epoch);
	end(rig, seen);
}

static void off(void)
{
	nothing_is_held_out(ORDER LOADER, 0);
}

static void without_a_loader(void)
{
	nothing_is_held_out(ORDER ":batch=2", SHARE);
}

static const struct check_test tests[] = {
	{ "blocks_are_read_from_the_source_and_the_others_are_pushed", of_one_rank },
	{ "blocks_are_of_each_rank", of_two_ranks },
	{ "blocks_are_held_out_of_the_store", of_what_the_store_has },
	{ "blocks_are_held_out_of_what_is_kept", blocks_are_held_out_of_what_is_kept },
	{ "nothing_is_held_out_before_the_order_is_confirmed",
	  nothing_is_held_out_before_the_order_is_confirmed },
	{ "nothing_is_held_out_when_it_is_off", off },
	{ "nothing_is_held_out_of_an_order_without_a_loader", without_a_loader },
};

CHECK_MAIN(tests)
