/* SPDX-License-Identifier: Apache-2.0 */
/* The validation set that a job reads between its epochs: nobody announces it, so it is learned,
 * and from then on the first samples are there before it is read, the rest is followed, and what
 * comes not, or in another order, costs little. */
#include "plan_story.h"

#define N_TRAIN 1000u
#define N_VALID 300u
#define N (N_TRAIN + N_VALID)
#define FIRST 16u /* reads of the first time, before the rest is foreseen */

static uint64_t *validation_set(void)
{
	static uint64_t outside[N / 64 + 1];

	for (uint32_t i = N_TRAIN; i < N; i++)
		outside[i / 64] |= 1ull << i % 64;
	return outside;
}

static struct order_info info_of(uint64_t epochs)
{
	return (struct order_info){
		.n = N, .world = 1, .n_ranks = 1, .epochs = epochs, .outside = validation_set()
	};
}

/* A third of everything fits; 64 samples are staged. */
static struct story *begin_apart(const struct order_info *info, uint32_t span)
{
	struct plan_params p = story_params(info);
	struct story *st;

	p.arena_bytes = 4096 * 430;
	p.span = span;
	st = story_prepare(p, NULL);
	st->n_order = st->mark = N_TRAIN;
	story_step(st);
	return st;
}

/* Readers are 64 positions apart. */
static struct story *begin(const struct order_info *info)
{
	return begin_apart(info, 64);
}

static void validate(struct story *st, uint32_t samples)
{
	for (uint32_t i = 0; i < samples; i++)
		story_open(st, N_TRAIN + i);
}

/* How many of these reads find their sample in memory. */
static uint32_t hits_in_validation(struct story *st, uint32_t samples)
{
	uint32_t hits = 0;

	for (uint32_t i = 0; i < samples; i++) {
		hits += st->is_there[N_TRAIN + i] || st->in_kernel[N_TRAIN + i];
		story_open(st, N_TRAIN + i);
	}
	return hits;
}

static void says(const struct story *st, const char *want)
{
	struct plan_status s = story_status(st);
	char text[PLAN_TEXT];

	plan_status_text(&s, text);
	CHECK_STR(text, want);
}

static void what_was_read_once_is_there_the_next_time(void)
{
	struct order_info info = info_of(90);
	struct story *st = begin(&info);

	story_read(st, 0, 0, N_TRAIN);
	CHECK_U64(st->marked[PLAN_ACT_FETCH], 0);
	CHECK_INT(hits_in_validation(st, N_VALID), N_VALID - FIRST);
	story_read(st, 1, 0, 500);
	CHECK_U64(story_status(st).valid_length, N_VALID);
	says(st, "reads epoch 1 (the last is 89), 50 % of it so far; "
		 "expects 300 validation samples after epoch 1");
	story_read(st, 1, 500, N_TRAIN);
	says(st, "has read an epoch to its end, and nothing yet of epoch 2 (the last is 89); "
		 "expects 300 validation samples after epoch 1");
	CHECK_INT(hits_in_validation(st, 100), 100);
	says(st, "has read an epoch to its end, and nothing yet of epoch 2 (the last is 89); "
		 "has read 100 of 300 validation samples expected after epoch 1");
	for (uint32_t i = 100; i < N_VALID; i++)
		story_open(st, N_TRAIN + i);
	CHECK_U64(story_status(st).valid_foreseen, 2 * N_VALID - FIRST);
	CHECK(story_status(st).lead >= 64); /* and the next epoch is ready behind it */
	story_read(st, 2, 0, N_TRAIN);
	CHECK_INT(hits_in_validation(st, N_VALID), N_VALID);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).mismatches, 0);
	CHECK_U64(story_status(st).outside, 3 * N_VALID);
	story_free(st);
}

/* Nothing is known of it, but the first reads are a run: its rest is foreseen, as far as it goes. */
static void the_first_time_it_is_expected_to_go_on_as_it_began(void)
{
	struct order_info info = info_of(90);
	struct story *st = begin(&info);
	uint64_t fetched;

	story_read(st, 0, 0, N_TRAIN);
	for (uint32_t i = 0; i < FIRST - 1; i++)
		story_open(st, N_TRAIN + 100 + (i ^ 1)); /* two readers, from somewhere on */
	CHECK_U64(st->marked[PLAN_ACT_FETCH], 0);
	story_open(st, N_TRAIN + 100 + FIRST - 2);
	CHECK_U64(story_status(st).valid_length, 200);
	CHECK(st->marked[PLAN_ACT_FETCH] > 0);
	/* The job had enough of it: what was fetched in vain is little, and no strike. */
	fetched = st->marked[PLAN_ACT_FETCH];
	CHECK(fetched <= 200 - FIRST);
	story_read(st, 1, 0, N_TRAIN);
	CHECK(hits_in_validation(st, N_VALID) >= FIRST); /* of the run that was read then */
	story_free(st);
}

/* Units of records may be found later: until then nobody can have them. */
static void what_is_not_there_yet_is_not_expected(void)
{
	struct order_info info = info_of(0);
	struct plan_params p = story_params(&info);
	uint64_t sizes[N];
	struct story *st;

	for (uint32_t i = 0; i < N; i++)
		sizes[i] = i < N - 100 ? 4096 : PLAN_NO_SIZE;
	p.arena_bytes = 4096 * 430;
	p.span = 64;
	st = story_prepare(p, sizes);
	st->n_order = st->mark = N_TRAIN;
	story_step(st);
	for (uint32_t i = 0; i < N; i++)
		CHECK(sizes[i] != PLAN_NO_SIZE || !st->is_there[i]);
	story_read(st, 0, 0, N_TRAIN);
	validate(st, 2 * FIRST);
	CHECK_U64(story_status(st).valid_length, N_VALID - 100);
	story_step(st);
	for (uint32_t i = 0; i < N; i++)
		CHECK(sizes[i] != PLAN_NO_SIZE || !st->is_there[i]);
	story_free(st);
}

static void files_here_and_there_are_the_beginning_of_nothing(void)
{
	struct order_info info = info_of(90);
	struct story *st = begin(&info);

	story_read(st, 0, 0, N_TRAIN);
	for (uint32_t i = 0; i < 60; i++)
		story_open(st, N_TRAIN + i * 53 % N_VALID);
	CHECK_U64(st->marked[PLAN_ACT_FETCH], 0);
	CHECK_U64(story_status(st).valid_length, 0);
	story_free(st);
}

static void its_first_samples_are_staged_while_the_epoch_ends(void)
{
	struct order_info info = info_of(90);
	struct story *st = begin(&info);
	uint32_t n;
	uint64_t n_first;

	story_read(st, 0, 0, N_TRAIN);
	validate(st, N_VALID);
	n_first = st->marked[PLAN_ACT_STAGE];
	story_read(st, 1, 0, N_TRAIN - 100);
	CHECK_U64(st->marked[PLAN_ACT_STAGE], n_first); /* not before it is due */
	st->is_auto[PLAN_ACT_STAGE] = false;
	for (uint64_t pos = N_TRAIN - 100; pos < N_TRAIN; pos++) {
		n = st->n_log = 0;
		story_read(st, 1, pos, pos + 1);
		for (; n < st->n_log; n++)
			if (st->log[n].kind == PLAN_ACT_STAGE) {
				/* due after all of this epoch, before all of the next */
				if (st->log[n].unit.v >= N_TRAIN)
					CHECK_U64(st->log[n].position,
						  (1ull << 32) + st->log[n].unit.v);
				story_answer(st, &st->log[n]);
			}
	}
	CHECK_U64(st->marked[PLAN_ACT_STAGE], n_first + 64);
	CHECK_U64(story_status(st).stage_bytes, 64 * 4096);
	story_free(st);
}

/* Worker w takes the blocks w, w + 2, ... of 8; who is faster is never the same. */
static void two_workers(struct story *st, uint64_t *rnd)
{
	uint32_t at[2] = { 0, 8 }, left = N_VALID;

	while (left) {
		uint32_t w = (uint32_t)check_rand_below(rnd, 2);

		if (at[w] >= N_VALID || at[w] > at[!w] + 32)
			w = !w;
		story_open(st, N_TRAIN + at[w]);
		at[w] += at[w] % 8 == 7 ? 9 : 1;
		left--;
	}
}

static void two_workers_are_one_reader(void)
{
	struct order_info info = info_of(90);
	struct story *st = begin(&info);
	uint64_t rnd = check_seed(), before;

	story_read(st, 0, 0, N_TRAIN);
	two_workers(st, &rnd);
	for (uint64_t epoch = 1; epoch < 4; epoch++) {
		story_read(st, epoch, 0, N_TRAIN);
		before = story_status(st).valid_foreseen;
		two_workers(st, &rnd);
		CHECK(story_status(st).valid_foreseen - before >= N_VALID * 9 / 10);
	}
	story_free(st);
}

static void a_part_of_it_is_what_is_expected_then(void)
{
	struct order_info info = info_of(90);
	struct story *st = begin(&info);

	story_read(st, 0, 0, N_TRAIN);
	validate(st, N_VALID);
	story_read(st, 1, 0, N_TRAIN);
	validate(st, 50);
	story_read(st, 2, 0, 500);
	story_drop_pages(st); /* of those that were pushed for nothing */
	CHECK_U64(story_status(st).valid_length, 50);
	story_read(st, 2, 500, N_TRAIN);
	CHECK_INT(hits_in_validation(st, N_VALID), 50);
	story_read(st, 3, 0, N_TRAIN);
	CHECK_INT(hits_in_validation(st, N_VALID), N_VALID); /* all of it again */
	story_free(st);
}

/* In 16 epochs it is another order each time, then it is one. The same orders in every run: in one of 170 two
 * of them are alike enough by chance. */
static void any_order_until_it_is_one(uint32_t span)
{
	struct order_info info = info_of(0);
	struct story *st = begin_apart(&info, span);
	uint64_t rnd = 1, tries = 0, fetched;

	for (uint64_t epoch = 0; epoch < 16; epoch++) {
		uint32_t any[N_VALID];

		fetched = st->marked[PLAN_ACT_FETCH];
		story_read(st, epoch, 0, N_TRAIN);
		tries += st->marked[PLAN_ACT_FETCH] > fetched;
		for (uint32_t i = 0; i < N_VALID; i++) {
			uint32_t j = (uint32_t)check_rand_below(&rnd, i + 1);

			any[i] = any[j];
			any[j] = N_TRAIN + i;
		}
		for (uint32_t i = 0; i < N_VALID; i++)
			story_open(st, any[i]);
		/* Among near readers the one try may end well, by chance. */
		if (epoch != 1 || span < N_VALID / 4)
			CHECK_U64(story_status(st).valid_length, 0);
	}
	CHECK_U64(tries, 1);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	/* It is read in one order after all: twice is believed. */
	for (uint64_t epoch = 16; epoch < 18; epoch++) {
		story_read(st, epoch, 0, N_TRAIN);
		validate(st, N_VALID);
	}
	story_read(st, 18, 0, N_TRAIN);
	CHECK_INT(hits_in_validation(st, N_VALID), N_VALID);
	story_free(st);
}

static void any_order_is_given_up_until_it_is_one(void)
{
	any_order_until_it_is_one(64);
}

/* Nearly three of four stand by chance about where they stood. */
static void chance_is_no_order(void)
{
	any_order_until_it_is_one(128);
}

/* Another half of it twice in turn: every time two agree, the third does not. */
static void what_is_always_something_else_is_let_by_more_and_more(void)
{
	struct order_info info = info_of(0);
	struct story *st = begin(&info);
	uint64_t tries = 0, fetched;

	for (uint64_t epoch = 0; epoch < 76; epoch++) {
		uint32_t first = epoch / 2 % 2 ? N_VALID / 2 : 0;

		fetched = st->marked[PLAN_ACT_FETCH];
		story_read(st, epoch, 0, N_TRAIN);
		tries += st->marked[PLAN_ACT_FETCH] > fetched;
		for (uint32_t i = 0; i < N_VALID / 2; i++)
			story_open(st, N_TRAIN + first + i);
	}
	CHECK(tries >= 3 && tries <= 8);
	story_free(st);
}

/* Epochs from `from` up to `to`; it is read after every one of which `every` is a divisor. Returns
 * after how many of those that were not followed by it something was fetched for it. */
static uint64_t epochs_in_vain(struct story *st, uint64_t from, uint64_t to, uint64_t every)
{
	uint64_t in_vain = 0;

	for (uint64_t epoch = from; epoch < to; epoch++) {
		uint64_t fetched = st->marked[PLAN_ACT_FETCH];

		story_read(st, epoch, 0, N_TRAIN);
		if ((epoch + 1) % every == 0)
			validate(st, N_VALID);
		else
			in_vain += st->marked[PLAN_ACT_FETCH] > fetched;
	}
	return in_vain;
}

static void every_third_epoch_is_learned_from_the_first_time(void)
{
	struct order_info info = info_of(0);
	struct story *st = begin(&info);

	CHECK_U64(epochs_in_vain(st, 0, 12, 3), 0);
	CHECK_U64(story_status(st).valid_foreseen, 4 * N_VALID - FIRST);
	story_free(st);
}

static void a_wrong_guess_of_how_often_is_made_once(void)
{
	struct order_info info = info_of(0);
	struct story *st;

	info.start_epoch = 4; /* resumed: the first time comes after two epochs, then three */
	st = begin(&info);
	CHECK_U64(epochs_in_vain(st, 4, 24, 3), 1);
	CHECK_U64(story_status(st).valid_foreseen, 6 * N_VALID - FIRST);
	story_free(st);
}

static void one_that_is_left_out_costs_the_next_one_only(void)
{
	struct order_info info = info_of(0);
	struct story *st = begin(&info);

	for (uint64_t epoch = 0; epoch < 12; epoch++) {
		story_read(st, epoch, 0, N_TRAIN / 2);
		story_drop_pages(st); /* of those that were pushed for nothing */
		story_read(st, epoch, N_TRAIN / 2, N_TRAIN);
		if (epoch != 5)
			CHECK_INT(hits_in_validation(st, N_VALID),
				  epoch == 0   ? N_VALID - FIRST
					     : epoch == 6 ? 0
							  : N_VALID);
	}
	story_free(st);
}

static void from_every_epoch_to_every_third(void)
{
	struct order_info info = info_of(0);
	struct story *st = begin(&info);

	CHECK_U64(epochs_in_vain(st, 0, 3, 1), 0);
	CHECK_U64(epochs_in_vain(st, 3, 12, 3), 2); /* what has held is tried once more */
	CHECK_U64(epochs_in_vain(st, 12, 24, 3), 0);
	CHECK_U64(story_status(st).valid_foreseen, (3 + 5) * N_VALID - FIRST);
	story_free(st);
}

static void from_every_epoch_to_never(void)
{
	struct order_info info = info_of(0);
	struct story *st = begin(&info);

	CHECK_U64(epochs_in_vain(st, 0, 3, 1), 0);
	CHECK_U64(epochs_in_vain(st, 3, 20, 1000), 1);
	CHECK_U64(story_status(st).valid_length, 0);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).mismatches, 0);
	story_free(st);
}

static void a_few_stray_files_are_none(void)
{
	struct order_info info = info_of(90);
	struct story *st = begin(&info);

	for (uint64_t epoch = 0; epoch < 4; epoch++) {
		story_read(st, epoch, 0, 500);
		story_open(st, N_TRAIN + 250);
		story_read(st, epoch, 500, N_TRAIN);
		for (uint32_t i = 0; i < 7; i++)
			story_open(st, N_TRAIN + 10 * i);
		for (uint32_t i = 0; i < 7; i++) /* and again */
			story_open(st, N_TRAIN + 10 * i);
	}
	CHECK_U64(st->marked[PLAN_ACT_FETCH], 0);
	CHECK_U64(story_status(st).valid_length, 0);
	story_free(st);
}

static void in_the_middle_of_an_epoch_nothing_is_learned_or_followed(void)
{
	struct order_info info = info_of(90);
	struct story *st = begin(&info);

	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		story_read(st, epoch, 0, 500);
		validate(st, N_VALID);
		story_read(st, epoch, 500, N_TRAIN);
		CHECK_U64(story_status(st).valid_length, 0);
	}
	story_free(st);
	st = begin(&info);
	story_read(st, 0, 0, N_TRAIN);
	validate(st, N_VALID);
	story_read(st, 1, 0, 500);
	validate(st, N_VALID); /* somebody else: it is still expected */
	CHECK_U64(story_status(st).valid_length, N_VALID);
	CHECK_U64(story_status(st).valid_read, 0);
	story_read(st, 1, 500, N_TRAIN);
	CHECK_INT(hits_in_validation(st, N_VALID), N_VALID);
	story_free(st);
}

static void it_is_followed_behind_the_last_epoch(void)
{
	struct order_info info = info_of(2);
	struct story *st = begin(&info);

	story_read(st, 0, 0, N_TRAIN);
	validate(st, N_VALID);
	story_read(st, 1, 0, N_TRAIN);
	CHECK_INT(story_status(st).state, PLAN_FINISHED);
	says(st, "has read all epochs; expects 300 validation samples after epoch 1");
	CHECK_INT(hits_in_validation(st, N_VALID), N_VALID);
	CHECK_INT(story_status(st).state, PLAN_FINISHED);
	CHECK_U64(story_status(st).lost, 0);
	story_free(st);
}

static void files_that_are_opened_twice_are_read_once(void)
{
	struct order_info info = info_of(90);
	struct story *st = begin(&info);

	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		story_read(st, epoch, 0, N_TRAIN);
		for (uint32_t i = 0; i < 2 * N_VALID; i++)
			story_open(st, N_TRAIN + i / 2);
	}
	CHECK_U64(story_status(st).valid_foreseen, 3 * N_VALID - FIRST);
	story_free(st);
}

static void a_job_that_repeats_its_epoch_has_one_too(void)
{
	struct order_info info = info_of(90);
	struct story *st = begin(&info);

	for (uint32_t pass = 0; pass < 4; pass++) {
		story_read(st, 0, 0, N_TRAIN);
		validate(st, N_VALID);
	}
	CHECK_STR(story_status(st).why, "reads epoch 0 again: set_epoch is not called");
	CHECK_U64(story_status(st).valid_foreseen, 4 * N_VALID - FIRST);
	story_free(st);
}

static void without_being_told_it_is_what_no_epoch_has(void)
{
	struct order_info info = info_of(90);
	struct story *st;

	info.outside = NULL;
	st = begin(&info);
	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		story_read(st, epoch, 0, N_TRAIN);
		validate(st, N_VALID);
	}
	CHECK_U64(story_status(st).valid_foreseen, 3 * N_VALID - FIRST);
	CHECK_U64(story_status(st).mismatches, 0);
	story_free(st);
}

/* With room for all of it nothing is fetched twice. */
static void what_fits_stays(void)
{
	struct order_info info = info_of(90);
	struct plan_params p = story_params(&info);
	struct story *st = story_prepare(p, NULL);

	st->n_order = st->mark = N_TRAIN;
	story_step(st);
	for (uint64_t epoch = 0; epoch < 5; epoch++) {
		story_read(st, epoch, 0, N_TRAIN);
		validate(st, N_VALID);
	}
	CHECK_U64(st->marked[PLAN_ACT_FETCH], N_VALID);
	CHECK_U64(st->count[PLAN_ACT_FETCH], N);
	CHECK_U64(st->count[PLAN_ACT_DROP], 0);
	story_free(st);
}

/* It takes its place in the line and no other: what fits of both together is hit in every epoch. */
static void reads_of_a_steady_epoch_are_those_of_all_samples(void)
{
	struct order_info info = info_of(90);
	struct story *st = begin(&info);
	uint64_t before;

	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		story_read(st, epoch, 0, N_TRAIN);
		validate(st, N_VALID);
	}
	before = st->count[PLAN_ACT_FETCH];
	for (uint64_t epoch = 3; epoch < 7; epoch++) {
		story_read(st, epoch, 0, N_TRAIN);
		validate(st, N_VALID);
	}
	/* but for the horizon, as at the end of each epoch */
	CHECK(st->count[PLAN_ACT_FETCH] - before <= 4 * (N - 430 + 160));
	CHECK_U64(story_status(st).late, 0);
	story_free(st);
}

static void of_several_jobs_each_has_its_own(void)
{
	struct order_info info = info_of(90), other = info_of(90);
	struct story *st = begin(&info);
	struct plan_status s;

	story_read(st, 0, 0, 300);
	CHECK_INT(plan_add_job(st->plan, &other), 1);
	story_step(st);
	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		story_read(st, epoch, epoch ? 0 : 300, N_TRAIN);
		validate(st, N_VALID);
	}
	CHECK_U64(story_status(st).valid_foreseen, 3 * N_VALID - FIRST);
	CHECK(plan_get_job_status(st->plan, 1, &s));
	CHECK_U64(s.valid_foreseen, 0);
	plan_end_job(st->plan, 1);
	story_step(st);
	story_read(st, 3, 0, N_TRAIN);
	validate(st, N_VALID);
	CHECK_U64(story_status(st).valid_foreseen, 4 * N_VALID - FIRST);
	story_free(st);
}

static const struct check_test tests[] = {
	{ "what_was_read_once_is_there_the_next_time", what_was_read_once_is_there_the_next_time },
	{ "the_first_time_it_is_expected_to_go_on_as_it_began",
	  the_first_time_it_is_expected_to_go_on_as_it_began },
	{ "what_is_not_there_yet_is_not_expected", what_is_not_there_yet_is_not_expected },
	{ "files_here_and_there_are_the_beginning_of_nothing",
	  files_here_and_there_are_the_beginning_of_nothing },
	{ "its_first_samples_are_staged_while_the_epoch_ends",
	  its_first_samples_are_staged_while_the_epoch_ends },
	{ "two_workers_are_one_reader", two_workers_are_one_reader },
	{ "a_part_of_it_is_what_is_expected_then", a_part_of_it_is_what_is_expected_then },
	{ "any_order_is_given_up_until_it_is_one", any_order_is_given_up_until_it_is_one },
	{ "chance_is_no_order", chance_is_no_order },
	{ "what_is_always_something_else_is_let_by_more_and_more",
	  what_is_always_something_else_is_let_by_more_and_more },
	{ "every_third_epoch_is_learned_from_the_first_time",
	  every_third_epoch_is_learned_from_the_first_time },
	{ "a_wrong_guess_of_how_often_is_made_once", a_wrong_guess_of_how_often_is_made_once },
	{ "one_that_is_left_out_costs_the_next_one_only",
	  one_that_is_left_out_costs_the_next_one_only },
	{ "from_every_epoch_to_every_third", from_every_epoch_to_every_third },
	{ "from_every_epoch_to_never", from_every_epoch_to_never },
	{ "a_few_stray_files_are_none", a_few_stray_files_are_none },
	{ "in_the_middle_of_an_epoch_nothing_is_learned_or_followed",
	  in_the_middle_of_an_epoch_nothing_is_learned_or_followed },
	{ "it_is_followed_behind_the_last_epoch", it_is_followed_behind_the_last_epoch },
	{ "files_that_are_opened_twice_are_read_once", files_that_are_opened_twice_are_read_once },
	{ "a_job_that_repeats_its_epoch_has_one_too", a_job_that_repeats_its_epoch_has_one_too },
	{ "without_being_told_it_is_what_no_epoch_has",
	  without_being_told_it_is_what_no_epoch_has },
	{ "what_fits_stays", what_fits_stays },
	{ "reads_of_a_steady_epoch_are_those_of_all_samples",
	  reads_of_a_steady_epoch_are_those_of_all_samples },
	{ "of_several_jobs_each_has_its_own", of_several_jobs_each_has_its_own },
};
CHECK_MAIN(tests)
