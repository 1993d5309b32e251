/* SPDX-License-Identifier: Apache-2.0 */
/* When the plan believes the order, and when it stops to. */
#include "plan_story.h"
#include "src/plan/plan_priv.h"

static const struct order_info info_4000 = { .n = 4000, .world = 1, .n_ranks = 1 };

static void thirty_two_agreeing_reads_confirm_the_order(void)
{
	struct story *st = story_new(story_params(&info_4000), NULL);

	story_read(st, 0, 0, 31);
	CHECK_INT(story_status(st).state, PLAN_CHECKING);
	CHECK(!plan_is_confirmed(st->plan));
	story_read(st, 0, 31, 32);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK(plan_is_confirmed(st->plan));
	CHECK_U64(story_status(st).match_percent, 100);
	story_free(st);
}

static void tiny_epochs_are_followed(void)
{
	static const uint32_t sizes[] = { 1, 2, 3, 10, 50, 63 };

	for (uint32_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct order_info info = { .n = sizes[i], .world = 1, .n_ranks = 1 };
		struct story *st = story_new(story_params(&info), NULL);

		for (uint32_t epoch = 0; epoch < 6; epoch++)
			story_read(st, epoch, 0, sizes[i]);
		CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
		CHECK_U64(story_status(st).mismatches, 0);
		CHECK_U64(st->count[PLAN_ACT_FETCH], sizes[i]);
		CHECK(plan_is_confirmed(st->plan));
		/* the readers stand at the start of epoch 6 */
		CHECK_U64(story_status(st).epoch * sizes[i] + story_status(st).position,
			  6 * sizes[i]);
		story_free(st);
	}
}

static void files_opened_twice_are_no_mismatch(void)
{
	struct story *st = story_new(story_params(&info_4000), NULL);

	for (uint32_t epoch = 0; epoch < 3; epoch++) {
		for (uint32_t pos = 0; pos < 4000; pos++) {
			story_open(st, story_sample(st, epoch, pos));
			story_open(st, story_sample(st, epoch, pos));
			if (pos >= 50)
				story_open(st, story_sample(st, epoch, pos - 50));
		}
	}
	CHECK_U64(story_status(st).mismatches, 0);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(st->count[PLAN_ACT_FETCH], 4000);
	story_free(st);
}

static uint32_t scattered(uint32_t i)
{
	return (i * 1237 + 2000) % 4000;
}

static void a_wrong_order_costs_half_an_arena_and_stops(void)
{
	struct plan_params p = story_params(&info_4000);
	struct story *st;

	p.arena_bytes = 4096 * 1000;
	st = story_new(p, NULL);
	for (uint32_t i = 0; i < 1000; i++) {
		story_open(st, scattered(i));
		if (i == 199)
			CHECK_INT(story_status(st).state, PLAN_LOST);
	}
	CHECK_U64(st->count[PLAN_ACT_FETCH], 500);
	CHECK_U64(st->count[PLAN_ACT_DROP], 0);
	CHECK(!plan_is_confirmed(st->plan));
	CHECK_STR(story_status(st).why, "reads do not follow the order");
	story_free(st);
}

static void an_order_that_turns_wrong_is_left_within_200_reads(void)
{
	struct plan_params p = story_params(&info_4000);
	struct story *st;
	uint64_t fetched, drops;
	uint32_t i = 0;

	p.arena_bytes = 4096 * 1000;
	st = story_new(p, NULL);
	story_read(st, 0, 0, 1000);
	while (story_status(st).state != PLAN_LOST)
		story_open(st, scattered(i++));
	CHECK(i <= 200);
	fetched = st->count[PLAN_ACT_FETCH];
	drops = st->count[PLAN_ACT_DROP];
	for (uint32_t k = 0; k < 1000; k++)
		story_open(st, scattered(i++));
	CHECK_U64(st->count[PLAN_ACT_FETCH], fetched);
	CHECK_U64(st->count[PLAN_ACT_DROP],
		  drops); /* the residents stay, as in a cache that never evicts */
	story_free(st);
}

static void a_job_that_leaves_its_order_now_and_then_slows_it_down(void)
{
	struct story *st = story_new(story_params(&info_4000), NULL);
	uint32_t far = 3900;

	story_read(st, 0, 0, 300);
	for (uint32_t i = 0; i < 256; i++) {
		story_open(st, i % 4 ? 300 + i : far--);
	}
	CHECK_INT(story_status(st).state, PLAN_SLOWED);
	CHECK(story_status(st).match_percent >= 70 && story_status(st).match_percent <= 80);
	CHECK_STR(story_status(st).why, "some reads are not where the order expects them");
	story_read(st, 0, 556, 900);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	story_free(st);
}

static void samples_the_job_leaves_out_do_not_hold_it_up(void)
{
	struct story *st = story_new(story_params(&info_4000), NULL);

	for (uint32_t pos = 0; pos < 3000; pos++)
		if (pos % 97 != 50)
			story_open(st, pos);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).mismatches, 0);
	CHECK(story_status(st).position >= 3000 - 97 - 64);
	story_free(st);
}

static void the_span_follows_from_the_jobs_shape_or_is_learned(void)
{
	struct order_info info = { .n = 100000,
				   .world = 2,
				   .n_ranks = 2,
				   .batch = 16,
				   .workers = 4,
				   .prefetch_factor = 3 };
	struct plan_params p = story_params(&info);
	struct story *st;

	p.span = 0;
	st = story_new(p, NULL);
	CHECK(story_status(st).span >= 4 * 3 * 16 * 2 &&
	      story_status(st).span <= 2 * 4 * 3 * 16 * 2);
	story_free(st);
	info.batch = 0;
	st = story_new(p, NULL);
	CHECK_U64(story_status(st).span, 4096);
	story_read(st, 0, 0, 10000); /* one reader, strictly in order */
	CHECK(story_status(st).span <= 64);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	story_free(st);
}

static const struct order_info info_1200 = { .n = 1200, .world = 1, .n_ranks = 1 };

static struct story *story_wide(uint32_t span)
{
	struct plan_params p = story_params(&info_1200);

	p.span = span;
	p.arena_bytes = 4096 * 200;
	return story_new(p, NULL);
}

/* Passes in an order of the job's own; never believed. */
static void read_other_orders(struct story *st, uint32_t passes)
{
	uint64_t state = 99;
	uint32_t sample[1200];

	for (uint32_t i = 0; i < 1200; i++)
		sample[i] = i;
	for (uint32_t pass = 0; pass < passes; pass++) {
		for (uint32_t i = 1200; i > 1; i--) {
			uint32_t j = (uint32_t)check_rand_below(&state, i), t = sample[j];

			sample[j] = sample[i - 1];
			sample[i - 1] = t;
		}
		for (uint32_t i = 0; i < 1200; i++) {
			story_open(st, sample[i]);
			CHECK(story_status(st).state != PLAN_FOLLOWING);
		}
	}
}

static void a_wrong_order_is_found_out_where_most_reads_agree_by_chance(void)
{
	struct story *st = story_wide(800);

	read_other_orders(st, 3);
	CHECK_INT(story_status(st).state, PLAN_LOST);
	CHECK(!plan_is_confirmed(st->plan));
	story_free(st);
}

static void a_wrong_order_in_a_window_as_large_as_the_dataset_is_not_confirmed(void)
{
	struct story *st = story_wide(3000);

	read_other_orders(st, 3);
	CHECK_INT(story_status(st).state, PLAN_CHECKING);
	CHECK(!plan_is_confirmed(st->plan));
	CHECK_STR(story_status(st).why,
		  "cannot be verified: the loader's window is as large as the dataset");
	story_free(st);
}

/* Eight workers, a batch of 50 each. */
static uint32_t of_workers(uint32_t i)
{
	return i / 400 * 400 + i % 8 * 50 + i % 400 / 8;
}

static void a_right_order_is_followed_whatever_the_window(void)
{
	static const uint32_t spans[] = { 500, 800, 1200, 3000 };

	for (uint32_t k = 0; k < ARRAY_LEN(spans); k++) {
		struct story *st = story_wide(spans[k]);

		for (uint32_t i = 0; i < 3 * 1200; i++) {
			story_open(st, story_sample(st, i / 1200, of_workers(i % 1200)));
			CHECK(i < 300 || story_status(st).state == PLAN_FOLLOWING);
		}
		CHECK(plan_is_confirmed(st->plan));
		CHECK_U64(story_status(st).mismatches, 0);
		story_free(st);
	}
}

static void what_was_proven_is_taken_back_when_the_reads_become_any(void)
{
	struct story *st = story_wide(3000);
	uint64_t state = 5;

	story_read(st, 0, 0, 1200);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	for (uint32_t i = 0; i < 1200; i++) {
		story_open(st, (uint32_t)check_rand_below(&state, 1200));
		CHECK(i < 600 || story_status(st).state != PLAN_FOLLOWING);
	}
	story_free(st);
}

/* Readers all over the dataset: nothing can be proven, and prefetching must not run dry. */
static void what_cannot_be_verified_is_prefetched_all_the_same(void)
{
	struct story *st = story_wide(3000);
	uint64_t before = 0, useful = 0;

	for (uint32_t i = 0; i < 4 * 1200; i++) {
		uint32_t at = i % 1200;

		if (i == 3 * 1200) {
			before = st->count[PLAN_ACT_FETCH];
			useful = story_status(st).useful;
		}
		story_open(st, story_sample(st, i / 1200, at % 24 * 50 + at / 24));
	}
	CHECK_INT(story_status(st).state, PLAN_CHECKING);
	CHECK(story_status(st).arena_bytes <= 4096 * 100); /* half of it */
	CHECK(st->count[PLAN_ACT_FETCH] - before >= 25);
	CHECK(story_status(st).useful - useful >= 25);
	story_free(st);
}

static void what_was_got_ready_for_a_lost_order_makes_room(void)
{
	struct plan_params p = story_params(&info_4000);
	struct story *st;
	uint32_t i = 0;

	p.arena_bytes = 4096 * 1000;
	st = story_new(p, NULL);
	story_read(st, 0, 0, 100);
	CHECK(story_status(st).arena_bytes >= 4096 * 990);
	CHECK(story_status(st).stage_bytes > 0);
	while (story_status(st).state != PLAN_LOST)
		story_open(st, scattered(i++));
	story_step(st);
	CHECK_U64(story_status(st).stage_bytes, 0);
	/* half of it unread, and what was read and is still there: that stays */
	CHECK(story_status(st).arena_bytes <= 4096 * (500 + 100 + i));
	CHECK(story_status(st).arena_bytes >= 4096 * 500);
	story_free(st);
}

/* What was proven stays so when the job begins anew; but it has not read anything yet. */
static void no_reads_agree_with_nothing(void)
{
	struct plan_job job = { .is_proven = true };

	CHECK(!score_is_agreed(&job));
	score_push(&job, true);
	CHECK(score_is_agreed(&job));
	score_push(&job, false);
	CHECK(!score_is_agreed(&job));
}

static const struct check_test tests[] = {
	{ "no_reads_agree_with_nothing", no_reads_agree_with_nothing },
	{ "a_wrong_order_is_found_out_where_most_reads_agree_by_chance",
	  a_wrong_order_is_found_out_where_most_reads_agree_by_chance },
	{ "a_wrong_order_in_a_window_as_large_as_the_dataset_is_not_confirmed",
	  a_wrong_order_in_a_window_as_large_as_the_dataset_is_not_confirmed },
	{ "a_right_order_is_followed_whatever_the_window",
	  a_right_order_is_followed_whatever_the_window },
	{ "what_was_proven_is_taken_back_when_the_reads_become_any",
	  what_was_proven_is_taken_back_when_the_reads_become_any },
	{ "what_cannot_be_verified_is_prefetched_all_the_same",
	  what_cannot_be_verified_is_prefetched_all_the_same },
	{ "what_was_got_ready_for_a_lost_order_makes_room",
	  what_was_got_ready_for_a_lost_order_makes_room },
	{ "thirty_two_agreeing_reads_confirm_the_order",
	  thirty_two_agreeing_reads_confirm_the_order },
	{ "tiny_epochs_are_followed", tiny_epochs_are_followed },
	{ "files_opened_twice_are_no_mismatch", files_opened_twice_are_no_mismatch },
	{ "a_wrong_order_costs_half_an_arena_and_stops",
	  a_wrong_order_costs_half_an_arena_and_stops },
	{ "an_order_that_turns_wrong_is_left_within_200_reads",
	  an_order_that_turns_wrong_is_left_within_200_reads },
	{ "a_job_that_leaves_its_order_now_and_then_slows_it_down",
	  a_job_that_leaves_its_order_now_and_then_slows_it_down },
	{ "samples_the_job_leaves_out_do_not_hold_it_up",
	  samples_the_job_leaves_out_do_not_hold_it_up },
	{ "the_span_follows_from_the_jobs_shape_or_is_learned",
	  the_span_follows_from_the_jobs_shape_or_is_learned },
};
CHECK_MAIN(tests)
