/* SPDX-License-Identifier: Apache-2.0 */
/* Who reads: validation sets, other jobs on the same mount; and what is said about it. */
#include "plan_story.h"

#define N 4500u
#define N_TRAIN 4000u

static uint64_t *validation_set(void)
{
	static uint64_t outside[N / 64 + 1];

	for (uint32_t i = N_TRAIN; i < N; i++)
		outside[i / 64] |= 1ull << i % 64;
	return outside;
}

/* Samples from N_TRAIN on are outside of the order. */
static struct story *story_with_validation(struct order_info *info)
{
	struct plan_params p;
	struct story *st;

	info->n = N;
	p = story_params(info);
	p.arena_bytes = 4096 * 1500;
	st = story_prepare(p, NULL);
	st->n_order = N_TRAIN;
	story_step(st);
	return st;
}

static void says(const struct story *st, const char *want)
{
	struct plan_status s = story_status(st);
	char text[PLAN_TEXT];

	plan_status_text(&s, text);
	CHECK_STR(text, want);
}

static void validate(struct story *st, uint32_t samples)
{
	for (uint32_t i = 0; i < samples; i++)
		story_open(st, N_TRAIN + i);
}

static void validation_between_epochs_changes_nothing(void)
{
	struct order_info info = {
		.world = 8, .n_ranks = 1, .epochs = 90, .outside = validation_set()
	};
	struct story *st = story_with_validation(&info);
	uint64_t fetches;

	validate(st, 20); /* a sanity check before the first epoch */
	CHECK_INT(story_status(st).state, PLAN_WAITING);
	says(st, "has read nothing of the order yet; has read 20 samples outside of the order");
	story_read(st, 0, 0, 2000);
	says(st, "reads epoch 0 (the last is 89), 50 % of it so far");
	story_read(st, 0, 2000, N_TRAIN);
	fetches = st->count[PLAN_ACT_FETCH];
	validate(st, 500);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	/* only in place of what was held, and the samples of the validation set */
	CHECK(st->count[PLAN_ACT_FETCH] - fetches <= 64 + 500);
	says(st, "has read an epoch to its end, and nothing yet of epoch 1 (the last is 89); "
		 "has read 500 of 500 validation samples expected after epoch 0");
	CHECK(story_status(st).lead >= 1000); /* the next epoch is ready */
	story_read(st, 1, 0, 100);
	says(st, "reads epoch 1 (the last is 89), 2 % of it so far; "
		 "expects 500 validation samples after epoch 1");
	validate(st, 500);
	story_read(st, 1, 100, 1000);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).mismatches, 0);
	CHECK_U64(story_status(st).outside, 1020);
	CHECK_U64(story_status(st).lost, 0);
	story_free(st);
}

static void samples_in_no_epoch_are_outside_where_all_ranks_are_here(void)
{
	struct order_info info = { .world = 1, .n_ranks = 1 };
	struct story *st = story_with_validation(&info);

	story_read(st, 0, 0, N_TRAIN);
	validate(st, 500);
	story_read(st, 1, 0, 100);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).mismatches, 0);
	CHECK_U64(story_status(st).outside, 500);
	story_free(st);
	/* else they may be another rank's, whose reads are against the order */
	info.world = 8;
	st = story_with_validation(&info);
	story_read(st, 0, 0, 1000);
	validate(st, 500);
	CHECK_INT(story_status(st).state, PLAN_LOST);
	CHECK_U64(story_status(st).lost, 1);
	CHECK_U64(story_status(st).outside, 0);
	story_free(st);
}

/* Of a wrong directory, or a list that is too short. */
static void order_of_other_samples_is_lost(void)
{
	struct order_info info = {
		.world = 1, .n_ranks = 1, .epochs = 90, .outside = validation_set()
	};
	struct story *st = story_with_validation(&info);

	validate(st, 500);
	CHECK_INT(story_status(st).state, PLAN_WAITING); /* a long sanity check */
	validate(st, 12);
	CHECK_INT(story_status(st).state, PLAN_WAITING);
	validate(st, 100);
	CHECK_INT(story_status(st).state, PLAN_LOST);
	CHECK_U64(story_status(st).lost, 1);
	CHECK_U64(story_status(st).lost_reads, 99); /* from which on others look for the order */
	CHECK_STR(story_status(st).why, "reads samples that are not in the order");
	says(st, "has read 612 samples that are not in the order");
	/* it was a long validation before the first epoch */
	story_read(st, 0, 0, 200);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_STR(story_status(st).why, "reads follow the order");
	CHECK_U64(story_status(st).position, 200);
	story_free(st);
}

static void validation_set_read_several_times_between_epochs_is_none(void)
{
	struct order_info info = {
		.world = 1, .n_ranks = 1, .epochs = 90, .outside = validation_set()
	};
	struct story *st = story_with_validation(&info);

	story_read(st, 0, 0, N_TRAIN);
	for (int i = 0; i < 5; i++)
		validate(st, 500);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).lost, 0);
	/* but somebody who reads nothing else any more is another job */
	validate(st, 500);
	CHECK_INT(story_status(st).state, PLAN_LOST);
	story_read(st, 1, 0, 100);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).epoch, 1);
	story_free(st);
}

static const struct order_info info_4000 = { .n = 4000, .world = 1, .n_ranks = 1 };

static struct story *story_small(void)
{
	struct plan_params p = story_params(&info_4000);

	p.arena_bytes = 4096 * 1500;
	return story_new(p, NULL);
}

/* The job reads [from, to) of an epoch; another one reads on in an order of its own: `others` reads
 * beside ten of the job. */
static void read_beside(struct story *st, uint64_t epoch, uint64_t from, uint64_t to,
			uint32_t others)
{
	static uint32_t at;

	for (uint64_t p = from; p < to; p++) {
		/* what the other one reads is not taken for read: all is there in time */
		if (story_status(st).state == PLAN_FOLLOWING)
			CHECK(story_status(st).lead > 0);
		story_read(st, epoch, p, p + 1);
		for (uint32_t k = 0; k < (p % 10 + 1) * others / 10 - p % 10 * others / 10; k++)
			story_open(st, story_sample(st, 70, at++ % 4000));
	}
}

/* Four workers begin a pass with a batch of 32 each; later what they read is ready, so that one after
 * the other takes a batch and all of it is in order. */
static void workers_that_begin_a_pass_together_are_no_surprise(void)
{
	struct plan_params p = story_params(&info_4000);
	struct story *st;

	p.span = 0;
	st = story_prepare(p, NULL);
	story_step(st);
	for (uint64_t epoch = 0; epoch < 4; epoch++) {
		for (uint64_t at = 0; at < 128; at++)
			story_open(st, story_sample(st, epoch, at % 4 * 32 + at / 4));
		story_read(st, epoch, 128, 4000);
		CHECK_U64(story_status(st).mismatches, 0);
		CHECK(story_status(st).span < 400); /* and yet it is learned */
	}
	CHECK_U64(story_status(st).resyncs, 0);
	story_free(st);
}

static void a_job_is_followed_beside_another_one(void)
{
	static const uint32_t others[] = { 2, 5, 10, 20 };

	for (uint32_t i = 0; i < ARRAY_LEN(others); i++) {
		struct story *st = story_small();

		story_read(st, 0, 0, 500);
		read_beside(st, 0, 500, 4000, others[i]);
		read_beside(st, 1, 0, 2000, others[i]);
		CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
		CHECK_U64(story_status(st).lost, 0);
		CHECK_U64(story_status(st).resyncs, 0);
		CHECK_U64(story_status(st).epoch, 1);
		CHECK(story_status(st).position >= 1900);
		CHECK(story_status(st).other_percent + 12 >= 100 * others[i] / (10 + others[i]));
		story_free(st);
	}
}

static void another_reader_is_spoken_of_while_it_is_there(void)
{
	struct story *st = story_small();

	story_read(st, 0, 0, 500);
	read_beside(st, 0, 500, 1500, 10);
	CHECK_STR(story_status(st).why, "some reads are in another order");
	CHECK(story_status(st).other_percent >= 40 && story_status(st).other_percent <= 52);
	story_read(st, 0, 1500, 1900);
	says(st, "reads epoch 0, 47 % of it so far");
	story_free(st);
}

static void two_jobs_that_start_together_are_told_apart(void)
{
	struct story *st = story_small();

	read_beside(st, 0, 0, 1000, 10);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK(story_status(st).position >= 950);
	story_free(st);
}

static void when_the_first_job_ends_the_second_is_found(void)
{
	struct story *st = story_small();

	story_read(st, 0, 0, 500);
	for (uint32_t i = 0; i < 2000; i++) {
		story_read(st, 0, 500 + i, 501 + i);
		story_read(st, 7, i, i + 1); /* the same spec, in a later epoch */
	}
	CHECK_U64(story_status(st).epoch, 0);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	story_read(st, 7, 2000, 3900);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).epoch, 7);
	CHECK_U64(story_status(st).position, 3900);
	story_free(st);
}

static void a_job_is_found_again_beside_another_one(void)
{
	struct story *st = story_small();

	story_read(st, 0, 0, 500);
	for (uint32_t i = 0; i < 600; i++) /* the job rests, the other one reads */
		story_open(st, story_sample(st, 70, i));
	CHECK_INT(story_status(st).state, PLAN_LOST);
	CHECK(story_status(st).lost_reads > 300);
	read_beside(st, 0, 500, 1200, 10);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).epoch, 0);
	CHECK(story_status(st).position >= 1100);
	CHECK_U64(story_status(st).lost_reads, 0);
	story_free(st);
}

static void a_wrong_order_is_left_beside_another_reader_as_well(void)
{
	struct story *st = story_small();

	for (uint32_t i = 0; i < 300; i++) {
		story_open(st, story_sample(st, 70, i));
		story_open(st, story_sample(st, 71, i));
	}
	CHECK_INT(story_status(st).state, PLAN_LOST);
	CHECK(!plan_is_confirmed(st->plan));
	says(st, "does not read in the order that was told, for 568 reads");
	story_free(st);
}

static void every_state_has_words(void)
{
	struct order_info two = { .n = 4000, .world = 1, .n_ranks = 1, .epochs = 2 };
	struct plan_params p = story_params(&two);
	struct story *st = story_new(p, NULL);

	says(st, "has read nothing of the order yet");
	story_read(st, 0, 0, 5);
	says(st, "seems to read epoch 0 (the last is 1), 0 % of it so far; "
		 "the first reads are being compared with the order");
	story_read(st, 0, 5, 1000);
	story_read(st, 1, 0, 400);
	says(st, "reads epoch 1 (the last is 1), 10 % of it so far; left an epoch before its end");
	story_read(st, 1, 400, 4000);
	says(st, "has read all epochs");
	story_read(st, 0, 0, 4000);
	story_read(st, 0, 0, 400);
	says(st, "reads epoch 0 (the last is 1), 10 % of it so far; "
		 "reads epoch 0 again: set_epoch is not called");
	story_free(st);
	st = story_prepare(p, NULL);
	st->is_auto[PLAN_ACT_EPOCH] = false;
	for (int i = 0; i < 8; i++) {
		story_step(st);
		story_event(st, (struct plan_event){
					.kind = PLAN_EV_EPOCH, .epoch = 0, .status = -ENOMEM });
		st->now += 100 * NS_PER_S;
	}
	says(st, "cannot be followed; the order cannot be computed");
	story_free(st);
	p.order = NULL;
	st = story_new(p, NULL);
	story_open(st, 3);
	says(st, "reads in an order that nobody told");
	story_free(st);
}

/* Whether `n` reads of epoch 3, from this position on, fit into an epoch. */
static bool fits(struct story *st, uint64_t epoch, uint32_t from, uint32_t n, uint32_t step)
{
	struct order_epoch *ep = story_epoch(st, epoch);
	uint32_t reads[256];
	struct order_info info = info_4000;
	bool is_fit;

	info.workers = 2;
	info.batch = 8;
	for (uint32_t i = 0; i < n; i++)
		reads[i] = step == 1 || i % step ? story_sample(st, 3, from + i)
						 : story_sample(st, 70, i);
	is_fit = plan_epoch_fits(&info, ep, reads, n);
	order_epoch_free(ep);
	return is_fit;
}

static void orders_can_be_tried_without_a_plan(void)
{
	struct story *st = story_small();

	CHECK(fits(st, 3, 0, 32, 1));
	CHECK(fits(st, 3, 2900, 64, 1));
	CHECK(fits(st, 3, 2900, 200, 2)); /* every second read is another one's */
	CHECK(!fits(st, 3, 2900, 31, 1));
	for (uint64_t epoch = 0; epoch < STORY_EPOCHS; epoch++)
		CHECK(epoch == 3 || epoch == 70 ||
		      (!fits(st, epoch, 0, 256, 1) && !fits(st, epoch, 500, 200, 2)));
	story_free(st);
}

static void no_reads_fit_an_epoch_that_is_too_short(void)
{
	struct order_info info = { .n = 200, .world = 1, .n_ranks = 1 };
	struct story *st = story_new(story_params(&info), NULL);
	struct order_epoch *ep = story_epoch(st, 0);
	uint32_t reads[200];

	for (uint32_t i = 0; i < 200; i++)
		reads[i] = i;
	CHECK(!plan_epoch_fits(&info, ep, reads, 200));
	order_epoch_free(ep);
	story_free(st);
}

static const struct check_test tests[] = {
	{ "orders_can_be_tried_without_a_plan", orders_can_be_tried_without_a_plan },
	{ "no_reads_fit_an_epoch_that_is_too_short", no_reads_fit_an_epoch_that_is_too_short },
	{ "validation_between_epochs_changes_nothing", validation_between_epochs_changes_nothing },
	{ "order_of_other_samples_is_lost", order_of_other_samples_is_lost },
	{ "validation_set_read_several_times_between_epochs_is_none",
	  validation_set_read_several_times_between_epochs_is_none },
	{ "samples_in_no_epoch_are_outside_where_all_ranks_are_here",
	  samples_in_no_epoch_are_outside_where_all_ranks_are_here },
	{ "workers_that_begin_a_pass_together_are_no_surprise",
	  workers_that_begin_a_pass_together_are_no_surprise },
	{ "a_job_is_followed_beside_another_one", a_job_is_followed_beside_another_one },
	{ "another_reader_is_spoken_of_while_it_is_there",
	  another_reader_is_spoken_of_while_it_is_there },
	{ "two_jobs_that_start_together_are_told_apart",
	  two_jobs_that_start_together_are_told_apart },
	{ "when_the_first_job_ends_the_second_is_found",
	  when_the_first_job_ends_the_second_is_found },
	{ "a_job_is_found_again_beside_another_one", a_job_is_found_again_beside_another_one },
	{ "a_wrong_order_is_left_beside_another_reader_as_well",
	  a_wrong_order_is_left_beside_another_reader_as_well },
	{ "every_state_has_words", every_state_has_words },
};
CHECK_MAIN(tests)
