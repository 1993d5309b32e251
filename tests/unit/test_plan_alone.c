/* SPDX-License-Identifier: Apache-2.0 */
/* The stage as the prefetch buffer: what waits in the kernel makes room in the arena where all else
 * there is worth keeping, and what happens when the kernel does not keep it. */
#include "plan_story.h"

#define N 400u
#define FIT 100u

static const struct order_info info = { .n = N, .world = 1, .n_ranks = 1, .epochs = 60 };

static struct story *begin(uint64_t stage_samples, uint64_t store_samples)
{
	struct plan_params p = story_params(&info);
	struct story *st;

	p.arena_bytes = 4096 * FIT;
	p.stage_bytes = 4096 * stage_samples;
	p.store_bytes = 4096 * store_samples;
	p.span = 16;
	st = story_new(p, NULL);
	story_read(st, 0, 0, N);
	return st;
}

static uint64_t fetches_of_an_epoch(struct story *st, uint64_t epoch)
{
	uint64_t before = st->count[PLAN_ACT_FETCH];

	story_read(st, epoch, 0, N);
	printf("# epoch %d: %d fetches\n", (int)epoch,
	       (int)(st->count[PLAN_ACT_FETCH] - before));
	return st->count[PLAN_ACT_FETCH] - before;
}

/* The next read; how many samples were dropped that the kernel has, and the last of them. */
static uint32_t left_alone(struct story *st, uint64_t epoch, uint64_t pos, uint32_t *ret_last)
{
	uint32_t n = 0;

	st->n_log = 0;
	story_open(st, story_sample(st, epoch, pos));
	for (uint32_t i = 0; i < st->n_log; i++) {
		if (st->log[i].kind != PLAN_ACT_DROP || !st->in_kernel[st->log[i].unit.v])
			continue;
		*ret_last = st->log[i].unit.v;
		n++;
	}
	return n;
}

static uint32_t left_alone_in(struct story *st, uint64_t epoch)
{
	uint32_t n = 0, last;

	for (uint64_t pos = 0; pos < N; pos++)
		n += left_alone(st, epoch, pos, &last);
	return n;
}

/* At the end of an epoch, until one was left alone; returns it. */
static uint32_t leave_one_alone(struct story *st, uint64_t epoch, uint64_t *ret_pos)
{
	uint32_t sample = 0;

	story_read(st, epoch, 0, N - 60);
	for (*ret_pos = N - 60; *ret_pos < N; ++*ret_pos)
		if (left_alone(st, epoch, *ret_pos, &sample))
			break;
	CHECK(*ret_pos < N);
	++*ret_pos;
	return sample;
}

static void an_epoch_reads_what_does_not_fit_and_no_more(void)
{
	struct story *st = begin(32, 0), *none = begin(0, 0);

	for (uint64_t epoch = 1; epoch < 8; epoch++) {
		CHECK(fetches_of_an_epoch(st, epoch) <= N - FIT + 4);
		/* without a stage what is held ready is at the cost of hits */
		CHECK(fetches_of_an_epoch(none, epoch) >= N - FIT + 12);
	}
	CHECK_U64(story_status(st).wasted, 0);
	CHECK_U64(story_status(st).late, 0);
	story_free(st);
	story_free(none);
}

static void what_was_left_alone_is_of_use_when_it_is_read(void)
{
	struct story *st = begin(32, 0);
	struct plan_status now;
	uint32_t n = 0;

	for (uint64_t epoch = 1; epoch < 4; epoch++)
		n += left_alone_in(st, epoch);
	now = story_status(st);
	printf("# %u were alone, %d fetched, %d of use\n", n, (int)now.issued, (int)now.useful);
	CHECK(n > 2 * FIT);
	CHECK(now.issued - now.useful <= FIT); /* what is ready for the next epoch */
	CHECK_U64(now.late, 0);
	CHECK_U64(now.wasted, 0);
	story_free(st);
}

/* It is fetched again before it is due. */
static void what_the_kernel_drops_is_missing(void)
{
	struct story *st = begin(32, 0);
	uint64_t pos;
	uint32_t sample = leave_one_alone(st, 1, &pos);

	CHECK(!st->is_there[sample]);
	story_unstaged(st, sample);
	for (; pos < 2 * N && story_sample(st, 1 + pos / N, pos % N) != sample; pos++)
		story_open(st, story_sample(st, 1 + pos / N, pos % N));
	CHECK(st->is_there[sample] || st->in_kernel[sample]); /* pushed once more, perhaps */
	story_free(st);
}

static void drop_many(struct story *st)
{
	uint32_t n = 0;

	for (uint32_t s = 0; s < N && n < 24; s++) {
		if (!st->in_kernel[s])
			continue;
		story_unstaged(st, s);
		n++;
	}
	CHECK(n == 24);
	story_step(st);
}

/* For sixteen seconds and more; after that it is tried again. */
static void a_kernel_that_drops_pages_is_not_relied_on(void)
{
	struct story *st = begin(32, 0);

	story_read(st, 1, 0, N / 2);
	drop_many(st);
	story_read(st, 1, N / 2, N);
	CHECK_U64(left_alone_in(st, 2), 0);
	st->now += 40 * NS_PER_S;
	CHECK(left_alone_in(st, 3) > 0);
	CHECK(fetches_of_an_epoch(st, 4) <= N - FIT + 4);
	story_free(st);
}

/* Where opens are told by the kernel and not by a watch, they come before the READs. */
static void drops_that_show_after_the_open_count_as_well(void)
{
	struct story *st = begin(32, 0);
	uint32_t last, n = 0, drops = 0;

	for (uint64_t epoch = 1; epoch < 4; epoch++)
		for (uint64_t pos = 0; pos < N; pos++) {
			uint32_t sample = story_sample(st, epoch, pos);
			bool is_dropped = st->in_kernel[sample] && pos % 2;

			n += left_alone(st, epoch, pos, &last);
			drops += is_dropped;
			if (is_dropped)
				story_unstaged(st, sample);
			if (drops == 24)
				n = 0; /* by now it is known */
		}
	CHECK(drops > 24);
	CHECK_U64(n, 0);
	story_free(st);
}

static void with_little_memory_nothing_is_left_alone(void)
{
	struct story *st = begin(32, 0);

	plan_set_memory(st->plan, 4096 * FIT / 2, 4096 * 32);
	story_read(st, 1, 0, N);
	CHECK_U64(left_alone_in(st, 2), 0);
	plan_set_memory(st->plan, 4096 * FIT, 4096 * 32);
	story_read(st, 3, 0, N);
	CHECK(left_alone_in(st, 4) > 0);
	story_free(st);
}

/* One in some hundred reads crosses the push of its pages. */
static void single_reads_that_cross_a_push_prove_nothing(void)
{
	struct story *st = begin(32, 0);

	for (uint64_t epoch = 1; epoch < 6; epoch++) {
		uint64_t before = st->count[PLAN_ACT_FETCH];

		for (uint64_t pos = 0; pos < N; pos++) {
			uint32_t sample = story_sample(st, epoch, pos);

			if (pos % 200 == 100 && st->in_kernel[sample])
				story_unstaged(st, sample);
			story_open(st, sample);
		}
		CHECK(st->count[PLAN_ACT_FETCH] - before <= N - FIT + 8);
	}
	story_free(st);
}

/* What the store is to get must not be gone before it was read. */
static void with_a_store_nothing_is_left_alone(void)
{
	struct story *st = begin(32, 200);

	CHECK_U64(left_alone_in(st, 1), 0);
	CHECK_U64(left_alone_in(st, 2), 0);
	story_free(st);
}

static const struct check_test tests[] = {
	{ "an_epoch_reads_what_does_not_fit_and_no_more",
	  an_epoch_reads_what_does_not_fit_and_no_more },
	{ "what_was_left_alone_is_of_use_when_it_is_read",
	  what_was_left_alone_is_of_use_when_it_is_read },
	{ "what_the_kernel_drops_is_missing", what_the_kernel_drops_is_missing },
	{ "a_kernel_that_drops_pages_is_not_relied_on",
	  a_kernel_that_drops_pages_is_not_relied_on },
	{ "drops_that_show_after_the_open_count_as_well",
	  drops_that_show_after_the_open_count_as_well },
	{ "with_little_memory_nothing_is_left_alone", with_little_memory_nothing_is_left_alone },
	{ "single_reads_that_cross_a_push_prove_nothing",
	  single_reads_that_cross_a_push_prove_nothing },
	{ "with_a_store_nothing_is_left_alone", with_a_store_nothing_is_left_alone },
};

CHECK_MAIN(tests)
