/* SPDX-License-Identifier: Apache-2.0 */
/* What the plan fetches, in which order, and what it leaves alone. */
#include "plan_story.h"

static const struct order_info info_400 = { .n = 400, .world = 1, .n_ranks = 1 };

static void parameters_that_contradict_are_refused(void)
{
	uint64_t size[400] = { 0 };
	struct plan_params p = story_params(&info_400), bad;
	struct order_info other = { .n = 399, .world = 1, .n_ranks = 1 };
	struct plan *plan;

	p.size = size;
	bad = p;
	bad.inflight_min = 9;
	CHECK_INT(plan_new(&bad, &plan), -EINVAL);
	bad = p;
	bad.order = &other;
	CHECK_INT(plan_new(&bad, &plan), -EINVAL);
}

static void without_an_order_it_only_counts(void)
{
	struct plan_params p = story_params(&info_400);
	struct story *st;

	p.order = NULL;
	st = story_new(p, NULL);
	story_open(st, 7);
	CHECK_INT(story_status(st).state, PLAN_NO_ORDER);
	CHECK_U64(story_status(st).opened, 1);
	CHECK_U64(st->count[PLAN_ACT_FETCH], 0);
	CHECK(!plan_is_confirmed(st->plan));
	story_free(st);
}

static void the_start_is_fetched_before_anything_is_read_up_to_half_the_arena(void)
{
	struct plan_params p = story_params(&info_400);
	struct story *st;

	p.arena_bytes = 4096 * 100;
	st = story_new(p, NULL);
	CHECK_INT(story_status(st).state, PLAN_WAITING);
	CHECK_U64(st->count[PLAN_ACT_FETCH], 50);
	CHECK_U64(story_status(st).lead, 50);
	story_free(st);
}

/* Of so few samples nearly all have to be read before the order is confirmed, and memory has room for
 * less than that. How many were there when their reader came; in the second half one is of another order. */
static uint32_t there_of_few(bool strays)
{
	struct order_info info = { .n = 40, .world = 1, .n_ranks = 1 };
	struct plan_params p = story_params(&info);
	uint32_t n = 0;
	struct story *st;

	p.arena_bytes = 4096 * 16;
	p.stage_bytes = 4096 * 4;
	p.span = 8;
	st = story_new(p, NULL);
	CHECK_U64(st->count[PLAN_ACT_FETCH], 8);
	for (uint32_t pos = 0; pos < 30; pos++) {
		if (strays && pos == 7)
			story_open(st, 39);
		n += st->is_there[pos];
		story_open(st, pos);
		CHECK_INT(story_status(st).state, PLAN_CHECKING);
		for (; st->n_log; st->n_log--) /* none of those that are needed */
			CHECK(strays || st->log[st->n_log - 1].unit.v <= pos);
	}
	story_free(st);
	return n;
}

static void few_samples_that_agree_do_not_run_dry(void)
{
	CHECK_U64(there_of_few(false), 30);
	CHECK(there_of_few(true) < 24);
}

/* Likewise, all from the store, which begins to be slow. What is there and not read, or on its way. */
static void what_is_on_its_way_from_the_store_counts_for_the_half(void)
{
	struct order_info info = { .n = 40, .world = 1, .n_ranks = 1 };
	struct plan_params p = story_params(&info);
	struct story *st;

	p.arena_bytes = 4096 * 16;
	p.store_bytes = 4096 * 40;
	p.span = 8;
	st = story_prepare(p, NULL);
	for (uint32_t i = 0; i < 40; i++)
		story_event(st, (struct plan_event){ .kind = PLAN_EV_KEPT, .unit = { i } });
	story_step(st);
	CHECK_U64(st->count[PLAN_ACT_FETCH], 8);
	for (uint32_t pos = 0; pos < 12; pos++) {
		uint32_t n;

		st->is_auto[PLAN_ACT_FETCH] = pos < 8;
		story_open(st, pos);
		CHECK_INT(story_status(st).state, PLAN_CHECKING);
		n = (uint32_t)story_logged(st, PLAN_ACT_FETCH);
		for (uint32_t i = pos + 1; i < 40; i++)
			n += st->is_there[i];
		CHECK(n <= 8);
	}
	CHECK(story_logged(st, PLAN_ACT_FETCH) > 0);
	story_free(st);
}

static void fetches_in_the_order_of_positions(void)
{
	struct story *st = story_prepare(story_params(&info_400), NULL);

	st->is_auto[PLAN_ACT_FETCH] = false;
	story_step(st);
	CHECK_U64(st->n_log, 8);
	for (uint32_t i = 0; i < 8; i++) {
		CHECK_U64(st->log[i].unit.v, i);
		CHECK_U64(st->log[i].position, i);
	}
	/* answered by hand, the last one first: the next ones still come by position */
	for (uint32_t i = 0; i < 8; i++) {
		story_fetched(st, 7 - i, 0);
		story_step(st);
		CHECK_U64(st->log[st->n_log - 1].unit.v, 8 + i);
	}
	story_free(st);
}

static void what_was_read_is_not_fetched_any_more(void)
{
	struct plan_params p = story_params(&info_400);
	struct story *st;

	/* Two workers: one reads positions 40.., the other 0..: all of it faster than fetches come
	 * back. */
	p.inflight_min = p.inflight_max = 2;
	st = story_prepare(p, NULL);
	st->is_auto[PLAN_ACT_FETCH] = false;
	story_step(st);
	CHECK_U64(story_logged(st, PLAN_ACT_FETCH), 2);
	for (uint32_t i = 0; i < 20; i++) {
		story_open(st, 40 + i);
		story_open(st, i);
	}
	story_fetched(st, 0, 0);
	story_fetched(st, 1, 0);
	story_step(st);
	for (uint32_t i = 2; i < 60; i++) {
		const struct plan_action a = st->log[i];

		CHECK(a.kind == PLAN_ACT_FETCH && a.unit.v >= 20);
		CHECK(a.unit.v < 40 || a.unit.v >= 60);
		story_fetched(st, a.unit.v, 0);
		story_step(st);
	}
	CHECK_U64(story_status(st).late, 2);
	CHECK_U64(story_status(st).position, 20);
	story_free(st);
}

/* Samples are numbered as they lie in the source: far from the readers they come in that order. */
static void far_ahead_neighbours_are_asked_for_together(void)
{
	struct order_info info = { .n = 4000, .world = 1, .n_ranks = 1, .start_epoch = 1 };
	struct plan_params p = story_params(&info);
	struct story *st;
	uint32_t up = 0, last = 0, first[64], n = 0;

	p.arena_bytes *= 2;
	st = story_prepare(p, NULL);
	st->is_auto[PLAN_ACT_FETCH] = false;
	for (story_step(st); n < 4000; story_step(st)) {
		uint32_t had = st->n_log, sample;

		CHECK(had > 0);
		sample = st->log[0].unit.v;
		for (uint32_t i = 1; i < had; i++)
			st->log[i - 1] = st->log[i];
		st->n_log--;
		if (n < 64)
			first[n] = sample;
		up += sample > last;
		last = sample;
		n++;
		story_fetched(st, sample, 0);
	}
	/* a new group begins every 256; by position every other step would be downwards */
	CHECK(up >= n - 64 - 2 * n / 256);
	/* what is due first came first: a job may begin at any moment */
	for (uint32_t i = 0; i < 64; i++)
		CHECK_U64(first[i], story_sample(st, 1, i));
	story_free(st);
}

static void fetching_runs_over_the_end_of_the_epoch(void)
{
	struct plan_params p = story_params(&info_400);
	struct order_info info = info_400;
	struct story *st;

	p.order = &info;
	p.arena_bytes = 4096 * 100;
	st = story_prepare(p, NULL);
	st->is_unshuffled = true; /* the next epoch starts with sample 0 again */
	story_step(st);
	story_read(st, 0, 0, 390);
	/* 0.. of the next epoch are there before this one ends */
	CHECK(story_status(st).lead > 40);
	story_read(st, 0, 390, 400);
	story_read(st, 0, 0, 40);
	CHECK_U64(story_status(st).epoch, 1);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).late, 0);
	story_free(st);
}

static void a_sample_that_is_too_large_is_left_to_its_reader(void)
{
	struct plan_params p = story_params(&info_400);
	uint64_t size[400];
	struct story *st;

	for (uint32_t i = 0; i < 400; i++)
		size[i] = i == 5 ? p.arena_bytes / 4 + 4096 : 100;
	st = story_new(p, size);
	story_read(st, 0, 0, 400);
	story_read(st, 1, 0, 100);
	CHECK_U64(st->count[PLAN_ACT_FETCH], 399);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	story_free(st);
}

static void a_failed_fetch_is_tried_again_for_the_next_use_only(void)
{
	struct plan_params p = story_params(&info_400);
	struct story *st = story_prepare(p, NULL);
	uint32_t tries = 0;

	st->is_auto[PLAN_ACT_FETCH] = false;
	story_step(st);
	for (uint32_t epoch = 0; epoch < 2; epoch++) {
		for (uint32_t pos = 0; pos < 400; pos++) {
			for (uint32_t i = 0; i < st->n_log; i++) {
				const struct plan_action a = st->log[i];

				if (a.kind != PLAN_ACT_FETCH)
					continue;
				tries += a.unit.v == 390;
				story_fetched(st, a.unit.v, a.unit.v == 390 ? -EIO : 0);
			}
			st->n_log = 0;
			story_open(st, story_sample(st, epoch, pos));
			story_step(st);
			if (epoch == 0 && pos == 389)
				CHECK_U64(tries, 1);
		}
	}
	/* once more for epoch 1; read there, it may be wanted for epoch 2 */
	CHECK(tries == 2 || tries == 3);
	CHECK_U64(story_status(st).failed, tries);
	story_free(st);
}

static void the_cap_on_bytes_per_second_holds_and_demand_reads_count(void)
{
	struct plan_params p = story_params(&info_400);
	struct story *st;
	uint64_t before;

	p.source_bytes_per_s = 4096 * 10;
	st = story_new(p, NULL);
	for (int ms = 0; ms < 10000; ms += 100) {
		st->now += 100 * NS_PER_MS;
		story_step(st);
	}
	/* 10 per second, and a quarter of a second at once */
	CHECK(st->count[PLAN_ACT_FETCH] >= 99 && st->count[PLAN_ACT_FETCH] <= 103);
	CHECK(st->wake > st->now && st->wake <= st->now + NS_PER_S);
	before = st->count[PLAN_ACT_FETCH];
	for (int ms = 0; ms < 10000; ms += 100) {
		st->now += 100 * NS_PER_MS;
		story_event(st, (struct plan_event){ .kind = PLAN_EV_DEMAND, .bytes = 4096 });
		story_step(st);
	}
	CHECK(st->count[PLAN_ACT_FETCH] - before <= 3);
	story_free(st);
}

/* Cancelled, refused for want of memory, overtaken by a change: neither the source nor the sample
 * is to blame. */
static void what_says_nothing_about_the_source_is_tried_again(void)
{
	static const int statuses[] = { -ENOMEM, -EAGAIN, -ECANCELED, -ESTALE };

	for (uint32_t k = 0; k < ARRAY_LEN(statuses); k++) {
		struct story *st = story_prepare(story_params(&info_400), NULL);
		uint32_t refused = 0;

		st->is_auto[PLAN_ACT_FETCH] = false;
		story_step(st);
		while (refused < st->n_log && refused < 20) { /* more than pauses the source */
			story_fetched(st, st->log[refused].unit.v, statuses[k]);
			refused++;
			st->now += 2 * NS_PER_MS;
			story_step(st);
		}
		CHECK_U64(refused, 20);
		st->is_auto[PLAN_ACT_FETCH] = true;
		for (uint32_t i = refused; i < st->n_log; i++)
			story_answer(st, &st->log[i]);
		for (uint32_t i = 0; i < 20; i++) {
			st->now += 200 * NS_PER_MS;
			story_step(st);
		}
		/* refused without any reason, the room is half of what it was, and half of it waits
		 */
		CHECK(story_status(st).lead >= (statuses[k] == -ENOMEM ? 200 : 400));
		story_free(st);
	}
}

static void a_sample_that_is_always_cancelled_is_given_up_for_this_use(void)
{
	struct story *st = story_prepare(story_params(&info_400), NULL);
	uint32_t first, asked = 0;

	st->is_auto[PLAN_ACT_FETCH] = false;
	story_step(st);
	first = st->log[0].unit.v;
	for (uint32_t i = 0; i < st->n_log; i++) {
		asked += st->log[i].unit.v == first;
		story_fetched(st, st->log[i].unit.v, st->log[i].unit.v == first ? -ESTALE : 0);
		st->now += 10 * NS_PER_MS;
		story_step(st);
	}
	CHECK_U64(asked, 3);
	story_free(st);
}

/* An arena that refuses at 94 % of the budget, for good. */
static void where_the_arena_refuses_something_is_dropped(void)
{
	struct plan_params p = story_params(&info_400);
	struct story *st;
	uint64_t late = 0;
	uint32_t done = 0;

	p.arena_bytes = 4096 * 200;
	st = story_prepare(p, NULL);
	st->is_auto[PLAN_ACT_FETCH] = false;
	story_step(st);
	for (uint64_t at = 0; at < 3 * 400; at++) {
		for (; done < st->n_log; done++) {
			uint64_t used = story_status(st).arena_bytes / 4096;

			if (st->log[done].kind == PLAN_ACT_FETCH)
				story_fetched(st, st->log[done].unit.v, used > 188 ? -ENOMEM : 0);
		}
		st->n_log = done = 0;
		st->now += 200 * NS_PER_MS;
		story_step(st);
		late = at < 400 ? 0 : MAX(late, at >= 400 && story_status(st).lead == 0);
		story_open(st, story_sample(st, at / 400, at % 400));
	}
	CHECK_U64(late, 0);
	CHECK(story_status(st).arena_bytes <= 4096 * 196);
	story_free(st);
}

/* Nothing has been read, the half that an unconfirmed order may have is full, and what is due first
 * is missing after all. */
static void what_is_due_first_is_fetched_again_though_the_rest_has_taken_the_room(void)
{
	struct plan_params p = story_params(&info_400);
	struct story *st;
	uint32_t n = 0;

	p.arena_bytes = 128 * 4096;
	st = story_prepare(p, NULL);
	st->is_auto[PLAN_ACT_FETCH] = false;
	story_step(st);
	while (n < st->n_log) {
		struct plan_action a = st->log[n++];

		if (a.kind != PLAN_ACT_FETCH || a.unit.v == 5)
			continue;
		story_answer(st, &a);
		story_step(st);
	}
	CHECK_U64(story_status(st).lead, 5);
	n = story_logged(st, PLAN_ACT_FETCH);
	story_fetched(st, 5, -ESTALE);
	st->now += NS_PER_S;
	story_step(st);
	CHECK_U64(story_logged(st, PLAN_ACT_FETCH), n + 1);
	CHECK_U64(st->log[st->n_log - 1].unit.v, 5);
	story_answer(st, &st->log[st->n_log - 1]);
	CHECK(story_status(st).lead >= n - 1);
	story_free(st);
}

/* Twelve bytes per sample, and eight for each pass that is loaded, beside sets of bits. */
static void the_plan_knows_what_its_tables_take(void)
{
	static const struct order_info info = { .n = 200000, .world = 1, .n_ranks = 1 };
	struct story *st = story_prepare(story_params(&info), NULL);
	uint64_t n = info.n, empty = plan_table_bytes(st->plan), loaded;

	CHECK(empty >= 12 * n && empty <= 14 * n + (1 << 20));
	story_step(st);
	story_read(st, 0, 0, 10);
	loaded = plan_table_bytes(st->plan);
	CHECK(loaded - empty >= 2 * 8 * n && loaded - empty <= 2 * 10 * n);
	story_free(st);
}

static const struct check_test tests[] = {
	{ "what_is_due_first_is_fetched_again_though_the_rest_has_taken_the_room",
	  what_is_due_first_is_fetched_again_though_the_rest_has_taken_the_room },
	{ "what_says_nothing_about_the_source_is_tried_again",
	  what_says_nothing_about_the_source_is_tried_again },
	{ "a_sample_that_is_always_cancelled_is_given_up_for_this_use",
	  a_sample_that_is_always_cancelled_is_given_up_for_this_use },
	{ "where_the_arena_refuses_something_is_dropped",
	  where_the_arena_refuses_something_is_dropped },
	{ "parameters_that_contradict_are_refused", parameters_that_contradict_are_refused },
	{ "without_an_order_it_only_counts", without_an_order_it_only_counts },
	{ "the_start_is_fetched_before_anything_is_read_up_to_half_the_arena",
	  the_start_is_fetched_before_anything_is_read_up_to_half_the_arena },
	{ "few_samples_that_agree_do_not_run_dry", few_samples_that_agree_do_not_run_dry },
	{ "what_is_on_its_way_from_the_store_counts_for_the_half",
	  what_is_on_its_way_from_the_store_counts_for_the_half },
	{ "fetches_in_the_order_of_positions", fetches_in_the_order_of_positions },
	{ "what_was_read_is_not_fetched_any_more", what_was_read_is_not_fetched_any_more },
	{ "far_ahead_neighbours_are_asked_for_together",
	  far_ahead_neighbours_are_asked_for_together },
	{ "fetching_runs_over_the_end_of_the_epoch", fetching_runs_over_the_end_of_the_epoch },
	{ "a_sample_that_is_too_large_is_left_to_its_reader",
	  a_sample_that_is_too_large_is_left_to_its_reader },
	{ "a_failed_fetch_is_tried_again_for_the_next_use_only",
	  a_failed_fetch_is_tried_again_for_the_next_use_only },
	{ "the_cap_on_bytes_per_second_holds_and_demand_reads_count",
	  the_cap_on_bytes_per_second_holds_and_demand_reads_count },
	{ "the_plan_knows_what_its_tables_take", the_plan_knows_what_its_tables_take },
};
CHECK_MAIN(tests)
