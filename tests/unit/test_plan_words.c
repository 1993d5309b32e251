/* SPDX-License-Identifier: Apache-2.0 */
/* What is said about a job says no more than is known: an order that was found has been read before
 * it was, its epochs have any number; opens that were not seen are no jump; and a job that has read
 * an epoch does not read the next one for ever. */
#include "plan_story.h"

static struct story *story_of_epochs(uint64_t start_epoch, uint64_t epochs)
{
	struct order_info info = { .n = 4000,
				   .world = 1,
				   .n_ranks = 1,
				   .start_epoch = start_epoch,
				   .epochs = epochs };
	struct plan_params p = story_params(&info);
	struct story *st;

	p.arena_bytes = 4096 * 1500;
	st = story_prepare(p, NULL);
	story_step(st);
	return st;
}

static struct story *story_of(uint64_t start_epoch)
{
	return story_of_epochs(start_epoch, 0);
}

/* Of the order as if nobody had told it, and as if somebody had. */
static void says(const struct story *st, const char *told, const char *found)
{
	struct plan_status s = story_status(st);
	char text[PLAN_TEXT];

	plan_status_text(&s, text);
	CHECK_STR(text, told);
	s.is_found = true;
	plan_status_text(&s, text);
	CHECK_STR(text, found);
}

static void an_order_that_was_found_late_is_no_job_that_was_resumed(void)
{
	struct story *st = story_of(16);
	struct plan_status s;

	story_read(st, 16, 2560, 2600);
	says(st, "reads epoch 16, 65 % of it so far; resumed in the middle of an epoch",
	     "reads epoch 16 of the order that was found, 65 % of it so far");
	s = story_status(st);
	CHECK_STR(plan_status_why(&s), "resumed in the middle of an epoch");
	s.is_found = true;
	CHECK_STR(plan_status_why(&s), "reads follow the order");
	story_free(st);
}

static void an_order_that_was_found_is_not_called_told(void)
{
	struct story *st = story_of(0);

	says(st, "has read nothing of the order yet", "has read nothing of the order yet");
	for (uint32_t i = 0; i < 600; i++)
		story_open(st, story_sample(st, 70, i));
	says(st, "does not read in the order that was told, for 568 reads",
	     "does not read in the order that was found, for 568 reads");
	story_free(st);
}

/* A loader without a seed has an order of one epoch; the next one is looked for. */
static void what_is_read_behind_the_last_epoch_is_said_to_be_that(void)
{
	struct story *st = story_of_epochs(0, 1);

	story_read(st, 0, 0, 4000);
	says(st, "has read all epochs", "has read all epochs");
	for (uint32_t i = 0; i < 600; i++)
		story_open(st, story_sample(st, 70, i));
	says(st, "has read all epochs of the order that was told, and 432 samples after that",
	     "has read all epochs of the order that was found, and 432 samples after that");
	story_free(st);
}

static void a_jump_is_one_that_leaves_samples_out(void)
{
	struct story *st = story_of(0);

	story_read(st, 0, 0, 1000);
	story_read(st, 0, 2500, 2600);
	says(st, "reads epoch 0, 65 % of it so far; jumped ahead in the epoch",
	     "reads epoch 0 of the order that was found, 65 % of it so far");
	story_free(st);
}

static void opens_that_were_not_seen_are_no_jump(void)
{
	struct story *st = story_of(0);

	story_read(st, 0, 0, 1000);
	story_event(st, (struct plan_event){ .kind = PLAN_EV_BLIND });
	story_read(st, 0, 2500, 2600);
	CHECK_U64(story_status(st).position, 2600);
	says(st, "reads epoch 0, 65 % of it so far",
	     "reads epoch 0 of the order that was found, 65 % of it so far");
	story_free(st);
}

static void after_an_epoch_the_next_one_is_not_read_yet(void)
{
	struct story *st = story_of(3);

	story_read(st, 3, 0, 4000);
	says(st, "has read an epoch to its end, and nothing yet of epoch 4",
	     "has read an epoch to its end, and nothing yet of epoch 4 of the order that was "
	     "found");
	story_read(st, 4, 0, 80);
	says(st, "reads epoch 4, 2 % of it so far",
	     "reads epoch 4 of the order that was found, 2 % of it so far");
	story_free(st);
}

/* Three workers begin their batches at once. */
static void workers_that_are_far_apart_at_the_start_are_no_other_reader(void)
{
	struct story *st = story_of(3);

	story_read(st, 3, 0, 4000);
	for (uint64_t i = 0; i < 35; i++) {
		story_read(st, 4, i, i + 1);
		story_read(st, 4, 35 + i, 36 + i);
		story_read(st, 4, 70 + i, 71 + i);
	}
	CHECK_STR(story_status(st).why, "some reads are in another order");
	says(st, "reads epoch 4, 2 % of it so far",
	     "reads epoch 4 of the order that was found, 2 % of it so far");
	story_free(st);
}

/* In the middle of an epoch one of four starves, and then another reader comes. */
static void a_worker_without_a_cpu_is_no_other_reader(void)
{
	struct story *st = story_of(3);

	story_read(st, 3, 0, 2000);
	for (uint64_t i = 0; i < 35; i++) {
		story_read(st, 3, 2000 + i, 2001 + i);
		story_read(st, 3, 2035 + i, 2036 + i);
		story_read(st, 3, 2070 + i, 2071 + i);
	}
	CHECK_STR(story_status(st).why, "some reads are in another order");
	says(st, "reads epoch 3, 52 % of it so far",
	     "reads epoch 3 of the order that was found, 52 % of it so far");
	for (uint32_t i = 0; i < 100; i++) {
		story_read(st, 3, 2105 + i, 2106 + i);
		story_open(st, story_sample(st, 70, i));
	}
	CHECK(story_status(st).other_percent > 30);
	story_free(st);
}

static void without_an_order_nobody_reads_before_something_was_read(void)
{
	struct order_info info = { .n = 4000, .world = 1, .n_ranks = 1 };
	struct plan_params p = story_params(&info);
	struct story *st;

	p.order = NULL;
	st = story_prepare(p, NULL);
	says(st, "has read nothing yet", "has read nothing yet");
	story_open(st, 7);
	says(st, "reads in an order that nobody told", "reads in an order that nobody told");
	story_free(st);
}

static void a_status_that_nobody_has_filled_in_has_words(void)
{
	struct plan_status s = { .state = PLAN_NO_ORDER, .is_found = true };
	char text[PLAN_TEXT];

	CHECK_STR(plan_status_why(&s), "");
	plan_status_text(&s, text);
	CHECK_STR(text, "has read nothing yet");
}

/* One job over so few samples that its window may be all of them, and so many reads of a hundred
 * that are of somebody who reads anything. What is said of them in the middle of a late epoch. */
static uint32_t strangers_in_a_small_set(uint32_t n, uint32_t span, uint32_t percent, char *text)
{
	struct order_info info = { .n = n, .world = 1, .n_ranks = 1 };
	struct plan_params p = story_params(&info);
	struct plan_status s;
	uint64_t state = 42;
	struct story *st;

	p.span = span;
	st = story_prepare(p, NULL);
	story_step(st);
	for (uint64_t epoch = 0; epoch < 4; epoch++)
		for (uint64_t i = 0; i < (epoch < 3 ? n : n / 2); i++) {
			/* Two workers, each with a batch of four; and each sample is opened twice. */
			uint64_t at = i / 8 * 8 + (i % 2 * 4 + i % 8 / 2);

			story_open(st, story_sample(st, epoch, at < n / 8 * 8 ? at : i));
			story_open(st, story_sample(st, epoch, at < n / 8 * 8 ? at : i));
			while (check_rand_below(&state, 100) < percent)
				story_open(st, (uint32_t)check_rand_below(&state, n));
		}
	s = story_status(st);
	plan_status_text(&s, text);
	printf("# %u samples, span %u, %u %% of others: %s\n", n, span, percent, text);
	story_free(st);
	return s.other_percent;
}

static void another_reader_of_a_small_set_is_seen(void)
{
	static const uint32_t sizes[] = { 50, 72, 100, 200, 360, 500 }, spans[] = { 0, 16, 32 };
	char text[PLAN_TEXT];

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		for (size_t k = 0; k < ARRAY_LEN(spans); k++) {
			uint32_t percent;

			CHECK_U64(strangers_in_a_small_set(sizes[i], spans[k], 0, text), 0);
			CHECK(strncmp(text, "reads epoch 3, ", 15) == 0);
			CHECK(strstr(text, "another") == NULL);
			percent = strangers_in_a_small_set(sizes[i], spans[k], 50, text);
			CHECK(percent >= 20 && percent <= 75);
			CHECK(strstr(text, "of the reads are in another order") != NULL);
		}
}

static const struct check_test tests[] = {
	{ "another_reader_of_a_small_set_is_seen", another_reader_of_a_small_set_is_seen },
	{ "a_status_that_nobody_has_filled_in_has_words",
	  a_status_that_nobody_has_filled_in_has_words },
	{ "an_order_that_was_found_late_is_no_job_that_was_resumed",
	  an_order_that_was_found_late_is_no_job_that_was_resumed },
	{ "an_order_that_was_found_is_not_called_told",
	  an_order_that_was_found_is_not_called_told },
	{ "what_is_read_behind_the_last_epoch_is_said_to_be_that",
	  what_is_read_behind_the_last_epoch_is_said_to_be_that },
	{ "a_jump_is_one_that_leaves_samples_out", a_jump_is_one_that_leaves_samples_out },
	{ "opens_that_were_not_seen_are_no_jump", opens_that_were_not_seen_are_no_jump },
	{ "after_an_epoch_the_next_one_is_not_read_yet",
	  after_an_epoch_the_next_one_is_not_read_yet },
	{ "workers_that_are_far_apart_at_the_start_are_no_other_reader",
	  workers_that_are_far_apart_at_the_start_are_no_other_reader },
	{ "a_worker_without_a_cpu_is_no_other_reader",
	  a_worker_without_a_cpu_is_no_other_reader },
	{ "without_an_order_nobody_reads_before_something_was_read",
	  without_an_order_nobody_reads_before_something_was_read },
};
CHECK_MAIN(tests)
