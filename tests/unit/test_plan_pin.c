/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept in the store. */
#include "plan_story.h"

static const struct order_info info_400 = { .n = 400, .world = 1, .n_ranks = 1 };

static struct plan_params params_with_store(uint64_t samples)
{
	struct plan_params p = story_params(&info_400);

	p.store_bytes = samples * 4096;
	return p;
}

static void pins_are_written_once_first_come_within_the_budget(void)
{
	struct story *st = story_new(params_with_store(100), NULL);

	for (uint32_t epoch = 0; epoch < 3; epoch++)
		story_read(st, epoch, 0, 400);
	CHECK_U64(st->count[PLAN_ACT_PIN], 100);
	CHECK_U64(story_status(st).pinned_bytes, 100 * 4096);
	story_free(st);
}

static void few_pins_are_in_flight_at_once(void)
{
	struct story *st = story_prepare(params_with_store(400), NULL);

	st->is_auto[PLAN_ACT_PIN] = false;
	story_step(st);
	CHECK_U64(story_logged(st, PLAN_ACT_PIN), 16);
	/* reading and fetching go on without them */
	story_read(st, 0, 0, 400);
	CHECK_U64(story_status(st).late, 0);
	CHECK_U64(story_logged(st, PLAN_ACT_PIN), 16);
	story_answer(st, &st->log[0]);
	story_step(st);
	CHECK_U64(story_logged(st, PLAN_ACT_PIN), 17);
	story_free(st);
}

static void a_full_store_ends_pinning(void)
{
	struct story *st = story_prepare(params_with_store(400), NULL);
	uint32_t asked;

	st->is_auto[PLAN_ACT_PIN] = false;
	story_step(st);
	asked = story_logged(st, PLAN_ACT_PIN);
	story_event(st, (struct plan_event){ .kind = PLAN_EV_PINNED,
					     .unit = st->log[0].unit,
					     .status = -ENOSPC });
	for (uint32_t i = 1; i < asked; i++)
		story_answer(st, &st->log[i]);
	st->n_log = 0;
	for (uint32_t epoch = 0; epoch < 2; epoch++)
		story_read(st, epoch, 0, 400);
	CHECK_U64(story_logged(st, PLAN_ACT_PIN), 0);
	CHECK_U64(story_status(st).pinned_bytes, (asked - 1) * 4096);
	story_free(st);
}

/* Also when an answer of before comes after it: then it is told once more. */
static void room_that_comes_back_is_used(void)
{
	struct story *st = story_prepare(params_with_store(400), NULL);
	uint32_t asked;

	st->is_auto[PLAN_ACT_PIN] = false;
	story_step(st);
	asked = story_logged(st, PLAN_ACT_PIN);
	for (uint32_t i = 0; i < asked; i++) {
		story_event(st, (struct plan_event){ .kind = PLAN_EV_PINNED,
						     .unit = st->log[i].unit,
						     .status = -ENOSPC });
		CHECK(story_status(st).is_pinning_over);
		story_event(st, (struct plan_event){ .kind = PLAN_EV_PIN_ROOM });
		CHECK(!story_status(st).is_pinning_over);
	}
	st->n_log = 0;
	st->is_auto[PLAN_ACT_PIN] = true;
	for (uint32_t epoch = 0; epoch < 2; epoch++)
		story_read(st, epoch, 0, 400);
	CHECK_U64(story_status(st).pinned_bytes, 400 * 4096);
	story_free(st);
}

static void tiers_are_exclusive(void)
{
	struct plan_params p = params_with_store(400);
	struct story *st;
	uint64_t fetched;

	p.arena_bytes = 4096 * 200;
	st = story_prepare(p, NULL);
	story_step(st);
	story_read(st, 0, 0, 400);
	st->now += 2 * NS_PER_S;
	story_step(st);
	/* all of it was pinned and read: nothing but the horizon of the next epoch is in the arena
	 */
	CHECK_U64(story_status(st).pinned_bytes, 400 * 4096);
	CHECK(story_status(st).arena_bytes <= 4096 * 150);
	fetched = st->count[PLAN_ACT_FETCH];
	st->n_log = 0;
	st->is_auto[PLAN_ACT_FETCH] = false;
	for (uint32_t pos = 0; pos < 400; pos++) {
		for (uint32_t i = 0; i < st->n_log; i++) {
			const struct plan_action a = st->log[i];

			if (a.kind != PLAN_ACT_FETCH)
				continue;
			CHECK(a.is_pinned);
			story_fetched(st, a.unit.v, 0);
		}
		st->n_log = 0;
		story_open(st, story_sample(st, 1, pos));
	}
	CHECK(st->count[PLAN_ACT_FETCH] > fetched + 200);
	story_free(st);
}

static void what_the_store_lost_comes_from_the_source_again(void)
{
	struct plan_params p = params_with_store(400);
	struct story *st;

	p.arena_bytes = 4096 * 200;
	st = story_new(p, NULL);
	story_read(st, 0, 0, 300);
	for (uint32_t s = 0; s < 400; s++)
		story_event(st, (struct plan_event){ .kind = PLAN_EV_UNPINNED, .unit = { s } });
	st->is_auto[PLAN_ACT_PIN] = false;
	st->is_auto[PLAN_ACT_FETCH] = false;
	st->n_log = 0;
	story_read(st, 0, 300, 400);
	CHECK(story_logged(st, PLAN_ACT_FETCH) > 0);
	for (uint32_t i = 0; i < st->n_log; i++)
		CHECK(st->log[i].kind != PLAN_ACT_FETCH || !st->log[i].is_pinned);
	story_free(st);
}

/* A plan that takes over from another one. */
static void what_the_store_has_already_is_not_asked_of_the_source(void)
{
	struct story *st = story_prepare(params_with_store(100), NULL);

	for (uint32_t s = 0; s < 150; s++)
		for (uint32_t twice = 0; twice < 2; twice++)
			story_event(st, (struct plan_event){ .kind = PLAN_EV_KEPT, .unit = { s } });
	/* Never beyond the budget. */
	CHECK_U64(story_status(st).pinned_bytes, 100 * 4096);
	st->is_auto[PLAN_ACT_FETCH] = false;
	story_step(st);
	CHECK(story_logged(st, PLAN_ACT_FETCH) > 0);
	for (uint32_t i = 0; i < st->n_log; i++)
		CHECK(st->log[i].kind != PLAN_ACT_FETCH ||
		      st->log[i].is_pinned == (st->log[i].unit.v < 100));
	story_free(st);
}

static void answer_all(struct story *st, bool is_pinned)
{
	for (uint32_t i = 0; i < st->n_log; i++) {
		struct plan_action a = st->log[i];

		if (a.kind != PLAN_ACT_FETCH || a.is_pinned != is_pinned)
			continue;
		st->log[i].kind = PLAN_ACT_DROP; /* once */
		story_answer(st, &a);
	}
	story_step(st);
}

/* Until the order is confirmed nothing is given up for them again. */
static void samples_due_later_take_no_room_while_a_slow_store_answers(void)
{
	struct plan_params p = params_with_store(400);
	struct story *st;
	uint64_t asked = 0;

	p.arena_bytes = 100 * 4096;
	st = story_prepare(p, NULL);
	for (uint32_t s = 8; s < 400; s += 2)
		story_event(st, (struct plan_event){ .kind = PLAN_EV_KEPT, .unit = { s } });
	st->is_auto[PLAN_ACT_FETCH] = false;
	st->is_auto[PLAN_ACT_PIN] = false;
	story_step(st);
	while (st->count[PLAN_ACT_FETCH] > asked) {
		asked = st->count[PLAN_ACT_FETCH];
		for (uint32_t i = 0; i < 20; i++)
			answer_all(st, false);
		answer_all(st, true);
	}
	CHECK(asked >= 40 && asked <= 50);
	CHECK_U64(story_status(st).lead, asked);
	story_free(st);
}

static void keep(struct story *st, enum plan_event_kind kind, uint32_t from, uint32_t to)
{
	for (uint32_t s = from; s < to; s++)
		story_event(st, (struct plan_event){ .kind = kind, .unit = { s } });
}

/* The store is full of what the order does not read, and gives it up, more than once. What the order
 * reads is larger, so that it stands elsewhere among what is worth keeping. */
static void room_that_others_leave_is_used(void)
{
	uint64_t outside[7] = { 0, 0, 0, ~0xffull, ~0ull, ~0ull, 0xffff }; /* from 200 on */
	struct order_info info = info_400;
	struct plan_params p = params_with_store(100);
	uint64_t sizes[400];
	struct story *st;

	for (uint32_t i = 0; i < 400; i++)
		sizes[i] = i < 200 ? 2 * 4096 : 4096;
	info.outside = outside;
	p.order = &info;
	p.arena_bytes *= 2;
	p.pin_rule = PLAN_PIN_SMALLEST;
	st = story_prepare(p, sizes);
	st->n_order = 200;
	for (uint32_t round = 0; round < 2; round++) {
		keep(st, PLAN_EV_KEPT, 200, 300);
		CHECK_U64(story_status(st).pinned_bytes, 100 * 4096);
		story_read(st, 2 * round, 0, 200);
		CHECK_U64(st->count[PLAN_ACT_PIN], 50 * round);
		keep(st, PLAN_EV_UNPINNED, 200, 300);
		CHECK_U64(story_status(st).pinned_bytes, 0);
		story_read(st, 2 * round + 1, 0, 200);
		CHECK_U64(st->count[PLAN_ACT_PIN], 50 * (round + 1));
		CHECK_U64(story_status(st).pinned_bytes, 100 * 4096);
		keep(st, PLAN_EV_UNPINNED, 0, 200);
		CHECK_U64(story_status(st).pinned_bytes, 0);
	}
	story_free(st);
}

static void told_of_a_sample_that_is_being_pinned(void)
{
	struct story *st = story_prepare(params_with_store(400), NULL);
	uint32_t sample = 0;

	st->is_auto[PLAN_ACT_PIN] = false;
	story_step(st);
	CHECK(story_logged(st, PLAN_ACT_PIN) > 0);
	for (uint32_t i = 0; i < st->n_log; i++)
		if (st->log[i].kind == PLAN_ACT_PIN)
			sample = st->log[i].unit.v;
	story_event(st, (struct plan_event){ .kind = PLAN_EV_KEPT, .unit = { sample } });
	story_event(st, (struct plan_event){ .kind = PLAN_EV_PINNED, .unit = { sample } });
	CHECK_U64(story_status(st).pinned_bytes, story_logged(st, PLAN_ACT_PIN) * 4096ull);
	story_free(st);
}

/* 40 answers of this status; whether pinning goes on afterwards. */
static bool goes_on_after(int status)
{
	struct story *st = story_prepare(params_with_store(400), NULL);
	uint32_t answered = 0, before;
	bool goes_on;

	st->is_auto[PLAN_ACT_PIN] = false;
	story_step(st);
	for (uint32_t i = 0; i < st->n_log && answered < 40; i++) {
		if (st->log[i].kind != PLAN_ACT_PIN)
			continue;
		story_event(st, (struct plan_event){ .kind = PLAN_EV_PINNED,
						     .unit = st->log[i].unit,
						     .status = status });
		answered++;
		story_step(st);
	}
	before = story_logged(st, PLAN_ACT_PIN);
	CHECK(answered >= 16);
	goes_on = before > answered;
	story_free(st);
	return goes_on;
}

static void only_a_drive_that_fails_ends_pinning(void)
{
	CHECK(!goes_on_after(-EIO));
	CHECK(goes_on_after(-ESTALE));
	CHECK(goes_on_after(-ECANCELED));
}

/* A copy that is lost and fetched again while it is held: the first hold must not end the second.
 */
static void a_hold_ends_only_itself(void)
{
	struct story *st = story_prepare(params_with_store(400), NULL);
	uint32_t sample = 0, pos = 20;

	story_step(st);
	story_read(st, 0, 0, 390);
	while (pos < 50 && (story_sample(st, 1, pos) < 330 || story_sample(st, 1, pos) >= 390))
		pos++;
	CHECK(pos < 50); /* near enough to come back from the store at once */
	sample = story_sample(st, 1, pos);
	story_event(st, (struct plan_event){ .kind = PLAN_EV_LOST_COPY, .unit = { sample } });
	story_step(st); /* and it is fetched again */
	st->now += 900 * NS_PER_MS;
	story_open(st, sample);
	st->n_log = 0;
	st->now += 500 * NS_PER_MS;
	story_step(st);
	CHECK(!story_has_logged(st, PLAN_ACT_DROP, sample));
	st->now += 600 * NS_PER_MS;
	story_step(st);
	CHECK(story_has_logged(st, PLAN_ACT_DROP, sample));
	story_free(st);
}

/* Pages of what is in the store after an epoch, half of the samples having one page and half three;
 * there is room for a third of the bytes. */
static uint64_t pinned_of_mixed_sizes(enum plan_pin_rule rule, uint64_t byte_ns, uint32_t *small)
{
	struct plan_params p = params_with_store(266);
	uint64_t sizes[400], pages = 0;
	struct story *st;

	for (uint32_t i = 0; i < 400; i++)
		sizes[i] = i % 2 ? 4096 : 3 * 4096;
	p.arena_bytes *= 3;
	p.pin_rule = rule;
	st = story_prepare(p, sizes);
	st->byte_ns = byte_ns;
	st->is_auto[PLAN_ACT_PIN] = false;
	*small = 0;
	story_step(st);
	for (uint32_t pos = 0; pos < 800; pos++) {
		for (uint32_t i = 0; i < st->n_log; i++) {
			if (st->log[i].kind != PLAN_ACT_PIN)
				continue;
			*small += st->log[i].unit.v % 2;
			pages += st->log[i].unit.v % 2 ? 1 : 3;
			story_answer(st, &st->log[i]);
		}
		st->n_log = 0;
		story_open(st, story_sample(st, pos / 400, pos % 400));
	}
	CHECK_U64(story_status(st).pinned_bytes, pages * 4096);
	story_free(st);
	return pages;
}

static void the_smallest_are_pinned_when_requests_cost_more_than_bytes(void)
{
	uint32_t small;

	CHECK_U64(pinned_of_mixed_sizes(PLAN_PIN_AUTO, 0, &small), 266);
	CHECK_U64(small, 200);
	CHECK_U64(pinned_of_mixed_sizes(PLAN_PIN_SMALLEST, 100, &small), 266);
	CHECK_U64(small, 200);
}

static void pins_are_first_come_when_bytes_cost_more_than_requests(void)
{
	uint32_t small;

	/* about as many of both; and all of the room is used, but for less than a sample */
	CHECK(pinned_of_mixed_sizes(PLAN_PIN_AUTO, 100, &small) >= 264);
	CHECK(small >= 55 && small <= 80);
	CHECK(pinned_of_mixed_sizes(PLAN_PIN_FIRST, 0, &small) >= 264);
	CHECK(small >= 55 && small <= 80);
}

/* Half have three pages, come first and are worth less; of 66 pages that are left for them a store
 * that was written before has 60 already. */
static void what_the_store_has_already_is_of_its_class(void)
{
	struct plan_params p = params_with_store(266);
	uint32_t small = 0, large = 0;
	uint64_t sizes[400];
	struct story *st;

	for (uint32_t i = 0; i < 400; i++)
		sizes[i] = i < 200 ? 3 * 4096 : 4096;
	p.arena_bytes *= 3;
	p.pin_rule = PLAN_PIN_SMALLEST;
	st = story_prepare(p, sizes);
	st->is_auto[PLAN_ACT_PIN] = false;
	st->is_auto[PLAN_ACT_FETCH] = false;
	story_step(st); /* what to choose is known, nothing is there yet */
	for (uint32_t s = 0; s < 20; s++)
		story_event(st, (struct plan_event){ .kind = PLAN_EV_KEPT, .unit = { s } });
	answer_all(st, false);
	answer_all(st, true);
	st->is_auto[PLAN_ACT_FETCH] = true;
	for (uint32_t pos = 0; pos < 800; pos++) {
		for (uint32_t i = 0; i < st->n_log; i++) {
			if (st->log[i].kind != PLAN_ACT_PIN)
				continue;
			small += sizes[st->log[i].unit.v] == 4096;
			large += sizes[st->log[i].unit.v] != 4096;
			story_answer(st, &st->log[i]);
		}
		st->n_log = 0;
		story_open(st, story_sample(st, pos / 400, pos % 400));
	}
	CHECK_U64(small, 200);
	CHECK_U64(large, 2);
	story_free(st);
}

static const struct check_test tests[] = {
	{ "what_the_store_has_already_is_of_its_class",
	  what_the_store_has_already_is_of_its_class },
	{ "the_smallest_are_pinned_when_requests_cost_more_than_bytes",
	  the_smallest_are_pinned_when_requests_cost_more_than_bytes },
	{ "pins_are_first_come_when_bytes_cost_more_than_requests",
	  pins_are_first_come_when_bytes_cost_more_than_requests },
	{ "only_a_drive_that_fails_ends_pinning", only_a_drive_that_fails_ends_pinning },
	{ "a_hold_ends_only_itself", a_hold_ends_only_itself },
	{ "pins_are_written_once_first_come_within_the_budget",
	  pins_are_written_once_first_come_within_the_budget },
	{ "few_pins_are_in_flight_at_once", few_pins_are_in_flight_at_once },
	{ "a_full_store_ends_pinning", a_full_store_ends_pinning },
	{ "room_that_comes_back_is_used", room_that_comes_back_is_used },
	{ "tiers_are_exclusive", tiers_are_exclusive },
	{ "what_the_store_lost_comes_from_the_source_again",
	  what_the_store_lost_comes_from_the_source_again },
	{ "what_the_store_has_already_is_not_asked_of_the_source",
	  what_the_store_has_already_is_not_asked_of_the_source },
	{ "samples_due_later_take_no_room_while_a_slow_store_answers",
	  samples_due_later_take_no_room_while_a_slow_store_answers },
	{ "room_that_others_leave_is_used", room_that_others_leave_is_used },
	{ "told_of_a_sample_that_is_being_pinned", told_of_a_sample_that_is_being_pinned },
};
CHECK_MAIN(tests)
