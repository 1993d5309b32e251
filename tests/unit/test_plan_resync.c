/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the position again after the job did something the order did not say. */
#include "plan_story.h"

static struct order_info info_of(uint64_t epochs)
{
	return (struct order_info){ .n = 4000, .world = 1, .n_ranks = 1, .epochs = epochs };
}

static struct story *story_of(const struct order_info *info)
{
	struct plan_params p = story_params(info);
	struct story *st;

	p.arena_bytes = 4096 * 1500;
	st = story_prepare(p, NULL);
	story_step(st);
	return st;
}

static void follows(const struct story *st, uint64_t epoch, uint64_t position, const char *why)
{
	struct plan_status s = story_status(st);

	CHECK_INT(s.state, PLAN_FOLLOWING);
	CHECK_U64(s.epoch, epoch);
	CHECK_U64(s.position, position);
	CHECK_STR(s.why, why);
}

static void a_job_that_resumes_in_the_middle_is_found(void)
{
	struct order_info info = info_of(0);
	struct story *st = story_of(&info);

	story_read(st, 0, 2560, 2600);
	follows(st, 0, 2600, "resumed in the middle of an epoch");
	CHECK_U64(story_status(st).resyncs, 1);
	story_read(st, 0, 2600, 2700);
	CHECK(story_status(st).lead > 100);
	story_free(st);
}

static void start_step_says_where_the_first_epoch_begins(void)
{
	struct order_info info = info_of(0);
	struct story *st;

	info.batch = 20;
	info.start_step = 50;
	st = story_of(&info);
	CHECK_U64(story_status(st).position, 1000);
	story_read(st, 0, 1000, 4000);
	story_read(st, 1, 0, 100);
	follows(st, 1, 100, "reads follow the order");
	CHECK_U64(story_status(st).mismatches, 0);
	story_free(st);
	/* beyond the end: the epoch counts as read */
	info.start_step = 1000;
	st = story_of(&info);
	story_read(st, 1, 0, 100);
	follows(st, 1, 100, "reads follow the order");
	story_free(st);
}

static void an_epoch_left_early_rolls_over_and_clears_the_stage(void)
{
	struct order_info info = info_of(0);
	struct story *st = story_of(&info);

	story_read(st, 0, 0, 1000);
	story_read(st, 1, 0, 50);
	follows(st, 1, 50, "left an epoch before its end");
	/* what was staged for the rest of epoch 0 does not take room */
	CHECK_U64(story_status(st).stage_bytes, 64 * 4096);
	story_read(st, 1, 50, 500);
	CHECK_U64(story_status(st).match_percent, 100);
	story_free(st);
}

static void the_last_batch_may_be_dropped(void)
{
	struct order_info info = info_of(0);
	struct story *st = story_of(&info);

	for (uint64_t epoch = 0; epoch < 4; epoch++)
		story_read(st, epoch, 0, 3970);
	follows(st, 3, 3970, "reads follow the order");
	CHECK_U64(story_status(st).mismatches, 0);
	story_free(st);
}

static void a_forgotten_set_epoch_is_noticed_once(void)
{
	struct order_info info = info_of(0);
	struct story *st = story_of(&info);
	bool was_lost = false;

	for (int pass = 0; pass < 4; pass++) {
		for (uint64_t p = 0; p < 4000; p++) {
			story_read(st, 0, p, p + 1);
			was_lost = was_lost || story_status(st).state == PLAN_LOST;
		}
	}
	CHECK(!was_lost);
	follows(st, 0, 0, "reads epoch 0 again: set_epoch is not called");
	CHECK_U64(story_status(st).resyncs, 1);
	story_free(st);
}

static void a_job_one_epoch_ahead_or_behind_is_found(void)
{
	struct order_info info = info_of(0);
	struct story *st;

	info.start_epoch = 3;
	for (uint64_t epoch = 2; epoch <= 5; epoch++) {
		st = story_of(&info);
		story_read(st, epoch, 0, 200);
		CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
		CHECK_U64(story_status(st).epoch, epoch);
		CHECK_U64(story_status(st).position, 200);
		story_read(st, epoch, 200, 4000);
		story_read(st, epoch + 1, 0, 40);
		CHECK_U64(story_status(st).epoch, epoch + 1);
		CHECK(story_status(st).mismatches <= 60);
		story_free(st);
	}
}

static void a_second_run_is_followed_like_the_first(void)
{
	struct order_info info = info_of(2);
	struct story *st = story_of(&info);
	uint64_t fetched;

	for (int job = 0; job < 3; job++) {
		story_read(st, 0, 0, 4000);
		story_read(st, 1, 0, 4000);
		CHECK_INT(story_status(st).state, PLAN_FINISHED);
		CHECK_STR(story_status(st).why, "all epochs of the order were read");
		/* nothing is fetched for a job that may never come */
		fetched = st->count[PLAN_ACT_FETCH];
		st->now += 60 * NS_PER_S;
		story_step(st);
		CHECK_U64(st->count[PLAN_ACT_FETCH], fetched);
	}
	CHECK_U64(story_status(st).resyncs, 0);
	story_free(st);
}

static void more_epochs_than_announced_are_followed(void)
{
	struct order_info info = info_of(2);
	struct story *st = story_of(&info);

	for (uint64_t epoch = 0; epoch < 5; epoch++)
		story_read(st, epoch, 0, 4000);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).resyncs, 1);
	story_free(st);
}

/* Two workers, the second of which begins with a sample that the next epoch begins with, too. */
static void a_first_read_that_fits_the_next_epoch_hides_no_repetition(void)
{
	struct order_info info = info_of(0);
	struct story *st = story_of(&info);
	uint64_t at = 100;

	story_read(st, 0, 0, 4000);
	for (; at < 200; at++)
		if (story_sample(st, 1, at - 100) < 400)
			break;
	CHECK(at < 200);
	at = story_sample(st, 1, at - 100); /* epoch 0 has every sample at its own number */
	story_read(st, 0, at, at + 1);
	for (uint64_t p = 0; p < 300; p++)
		if (p != at)
			story_read(st, 0, p, p + 1);
	follows(st, 0, 300, "reads epoch 0 again: set_epoch is not called");
	CHECK_U64(story_status(st).lost, 0);
	story_free(st);
}

static void a_job_killed_and_started_again_is_found(void)
{
	struct order_info info = info_of(0);
	struct story *st = story_of(&info);

	story_read(st, 0, 0, 4000);
	story_read(st, 1, 0, 4000);
	story_read(st, 2, 0, 1000);
	story_read(st, 0, 0, 250);
	follows(st, 0, 250, "started again from the first epoch");
	/* and within its first epoch */
	story_read(st, 0, 250, 1500);
	story_read(st, 0, 0, 250);
	follows(st, 0, 250, "started again from the first epoch");
	story_free(st);
}

static void opens_nobody_saw_are_no_mismatch(void)
{
	struct order_info info = info_of(0);
	struct story *st = story_of(&info);

	story_read(st, 0, 0, 1000);
	story_event(st, (struct plan_event){ .kind = PLAN_EV_BLIND });
	story_read(st, 0, 1800, 1900);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).position, 1900);
	CHECK_U64(story_status(st).match_percent, 100);
	story_free(st);
}

static void an_epoch_that_cannot_be_computed_is_asked_for_again(void)
{
	struct order_info info = info_of(0);
	struct plan_params p = story_params(&info);
	struct story *st = story_prepare(p, NULL);
	uint64_t asked;

	st->is_auto[PLAN_ACT_EPOCH] = false;
	story_step(st);
	CHECK_U64(story_logged(st, PLAN_ACT_EPOCH), 1);
	for (int i = 0; i < 100; i++) {
		asked = st->n_log;
		story_event(st, (struct plan_event){
					.kind = PLAN_EV_EPOCH, .epoch = 0, .status = -ENOMEM });
		story_step(st);
		CHECK_U64(st->n_log, asked); /* not at once */
		st->now += 100 * NS_PER_S;
		story_step(st);
		if (st->n_log == asked)
			break;
	}
	CHECK_U64(story_logged(st, PLAN_ACT_EPOCH), 8);
	CHECK_INT(story_status(st).state, PLAN_LOST);
	CHECK_STR(story_status(st).why, "the order cannot be computed");
	story_open(st, 5);
	story_free(st);
}

static void reads_before_the_order_is_there_count_when_it_comes(void)
{
	struct order_info info = info_of(0);
	struct plan_params p = story_params(&info);
	struct story *st = story_prepare(p, NULL);

	st->is_auto[PLAN_ACT_EPOCH] = false;
	story_step(st);
	story_read(st, 0, 0, 40);
	CHECK_INT(story_status(st).state, PLAN_WAITING);
	story_answer(st, &st->log[0]);
	story_step(st);
	follows(st, 0, 40, "reads follow the order");
	story_free(st);
}

static void a_job_resumed_in_an_unknown_epoch_is_found(void)
{
	static const uint64_t epochs[] = { 3, 9, 30, 50 };

	for (uint32_t i = 0; i < ARRAY_LEN(epochs); i++) {
		struct order_info info = info_of(i % 2 ? 0 : 64);
		struct story *st = story_of(&info);

		story_read(st, epochs[i], 100, 3900);
		follows(st, epochs[i], 3900, "reads a later epoch than the order says");
		story_read(st, epochs[i], 3900, 4000);
		story_read(st, epochs[i] + 1, 0, 100);
		CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
		story_free(st);
	}
}

static void epochs_the_job_does_not_have_are_not_tried(void)
{
	struct order_info info = info_of(6);
	struct story *st = story_of(&info);

	for (uint32_t i = 0; i < 4000; i++)
		story_open(st, (i * 1237 + 2000) % 4000);
	CHECK_INT(story_status(st).state, PLAN_LOST);
	for (uint32_t e = 6; e < STORY_EPOCHS; e++)
		CHECK(!st->order[e]);
	CHECK(st->order[5] != NULL);
	story_free(st);
}

/* It may have been started anew, or set no epoch: what is known is what it reads. */
static void epoch_0_of_a_job_that_was_to_be_later_is_named(void)
{
	struct order_info info = info_of(0);
	struct story *st;

	info.start_epoch = 5;
	st = story_of(&info);
	story_read(st, 0, 0, 200);
	follows(st, 0, 200, "reads epoch 0, though a later one was told");
	story_free(st);
}

static void any_epoch_may_be_the_one_that_is_repeated(void)
{
	struct order_info info = info_of(0);
	struct story *st;

	info.start_epoch = 5; /* a restarted job, which sets its epoch once */
	st = story_of(&info);
	for (int pass = 0; pass < 4; pass++)
		story_read(st, 5, 0, 4000);
	story_read(st, 5, 0, 500);
	follows(st, 5, 500, "reads the same epoch again: set_epoch is not called");
	CHECK_U64(story_status(st).resyncs, 1);
	/* and it calls set_epoch again */
	story_read(st, 5, 500, 4000);
	story_read(st, 6, 0, 500);
	follows(st, 6, 500, "reads a later epoch than the order says");
	story_read(st, 6, 500, 4000);
	story_read(st, 7, 0, 500);
	follows(st, 7, 500, "reads follow the order");
	story_free(st);
}

#define NOISE_RUNS 40u

/* As where the kernel reads on beyond records: one event in nine is nobody's. Of a lost job so few may lie in one
 * half of the epoch with the rest, which says nothing of where its readers are. */
static void a_few_reads_of_nobody_make_no_wide_window(void)
{
	uint64_t seed = check_seed();
	uint32_t n_found = 0;

	for (uint32_t run = 0; run < NOISE_RUNS; run++) {
		struct order_info info = info_of(0);
		struct story *st = story_of(&info);
		struct plan_status s;

		story_read(st, 0, 0, 600);
		for (uint32_t i = 0; i < 300; i++)
			story_open(st, (uint32_t)check_rand_below(&seed, 4000));
		CHECK_INT(story_status(st).state, PLAN_LOST);
		for (uint64_t p = 800; p < 2600; p++) {
			story_read(st, 0, p, p + 1);
			if (check_rand_below(&seed, 8) == 0)
				story_open(st, (uint32_t)check_rand_below(&seed, 4000));
		}
		s = story_status(st);
		n_found += s.state != PLAN_LOST && s.span < 1000 && s.position >= 2000;
		story_free(st);
	}
	CHECK(n_found >= NOISE_RUNS * 3 / 4);
}

#define WORKERS 4
#define BATCH 16

/* Positions [from, to) by four workers that take a batch of 16 each, all four at once. */
static void read_workers(struct story *st, uint64_t epoch, uint64_t from, uint64_t to)
{
	for (uint64_t round = from; round < to; round += WORKERS * BATCH)
		for (uint64_t i = 0; i < WORKERS * BATCH; i++) {
			uint64_t p = round + i % WORKERS * BATCH + i / WORKERS;

			if (p < to)
				story_read(st, epoch, p, p + 1);
		}
}

static struct story *story_of_workers(void)
{
	struct order_info info = info_of(0);
	struct plan_params p;
	struct story *st;

	info.workers = WORKERS;
	info.batch = BATCH;
	p = story_params(&info);
	p.span = 0;
	p.arena_bytes = 4096 * 1500;
	st = story_prepare(p, NULL);
	story_step(st);
	return st;
}

static void the_readers_of_a_resumed_job_are_found_at_their_batches(void)
{
	struct story *st = story_of_workers();

	read_workers(st, 0, 1600, 1728);
	follows(st, 0, 1728, "resumed in the middle of an epoch");
	read_workers(st, 0, 1728, 4000);
	read_workers(st, 1, 0, 512);
	follows(st, 1, 512, "reads follow the order");
	CHECK_U64(story_status(st).resyncs, 1);
	story_free(st);
}

/* max_steps: workers are some batches ahead when the job leaves the epoch. */
static void a_job_that_leaves_every_epoch_early_is_followed(void)
{
	struct story *st = story_of_workers();
	uint64_t at_start = 0;

	for (uint64_t epoch = 0; epoch < 6; epoch++) {
		read_workers(st, epoch, 0, 640);
		at_start = story_status(st).mismatches;
		read_workers(st, epoch, 640, 1000 + 64);
		CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
		CHECK_U64(story_status(st).epoch, epoch);
		CHECK_U64(story_status(st).mismatches, at_start);
	}
	CHECK_U64(story_status(st).lost, 0);
	CHECK(story_status(st).mismatches <= 5 * 64);
	story_free(st);
}

static void what_was_found_out_is_said_until_the_pass_is_over(void)
{
	struct order_info info = info_of(0);
	struct story *st = story_of(&info);

	story_read(st, 0, 2560, 3900);
	follows(st, 0, 3900, "resumed in the middle of an epoch");
	story_read(st, 0, 3900, 4000);
	story_read(st, 1, 0, 100);
	follows(st, 1, 100, "reads follow the order");
	story_free(st);
}

static const struct check_test tests[] = {
	{ "epoch_0_of_a_job_that_was_to_be_later_is_named",
	  epoch_0_of_a_job_that_was_to_be_later_is_named },
	{ "any_epoch_may_be_the_one_that_is_repeated", any_epoch_may_be_the_one_that_is_repeated },
	{ "the_readers_of_a_resumed_job_are_found_at_their_batches",
	  the_readers_of_a_resumed_job_are_found_at_their_batches },
	{ "a_job_that_leaves_every_epoch_early_is_followed",
	  a_job_that_leaves_every_epoch_early_is_followed },
	{ "what_was_found_out_is_said_until_the_pass_is_over",
	  what_was_found_out_is_said_until_the_pass_is_over },
	{ "a_job_resumed_in_an_unknown_epoch_is_found",
	  a_job_resumed_in_an_unknown_epoch_is_found },
	{ "epochs_the_job_does_not_have_are_not_tried",
	  epochs_the_job_does_not_have_are_not_tried },
	{ "a_job_that_resumes_in_the_middle_is_found", a_job_that_resumes_in_the_middle_is_found },
	{ "start_step_says_where_the_first_epoch_begins",
	  start_step_says_where_the_first_epoch_begins },
	{ "an_epoch_left_early_rolls_over_and_clears_the_stage",
	  an_epoch_left_early_rolls_over_and_clears_the_stage },
	{ "the_last_batch_may_be_dropped", the_last_batch_may_be_dropped },
	{ "a_forgotten_set_epoch_is_noticed_once", a_forgotten_set_epoch_is_noticed_once },
	{ "a_job_one_epoch_ahead_or_behind_is_found", a_job_one_epoch_ahead_or_behind_is_found },
	{ "a_second_run_is_followed_like_the_first", a_second_run_is_followed_like_the_first },
	{ "more_epochs_than_announced_are_followed", more_epochs_than_announced_are_followed },
	{ "a_first_read_that_fits_the_next_epoch_hides_no_repetition",
	  a_first_read_that_fits_the_next_epoch_hides_no_repetition },
	{ "a_job_killed_and_started_again_is_found", a_job_killed_and_started_again_is_found },
	{ "a_few_reads_of_nobody_make_no_wide_window", a_few_reads_of_nobody_make_no_wide_window },
	{ "opens_nobody_saw_are_no_mismatch", opens_nobody_saw_are_no_mismatch },
	{ "an_epoch_that_cannot_be_computed_is_asked_for_again",
	  an_epoch_that_cannot_be_computed_is_asked_for_again },
	{ "reads_before_the_order_is_there_count_when_it_comes",
	  reads_before_the_order_is_there_count_when_it_comes },
};
CHECK_MAIN(tests)
