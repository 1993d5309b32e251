/* SPDX-License-Identifier: Apache-2.0 */
/* What stays in the arena after it was read, and what goes. */
#include "clairfs/base/clock.h"
#include "plan_story.h"
#include "src/plan/plan_priv.h"

static const struct order_info info_400 = { .n = 400, .world = 1, .n_ranks = 1 };

static void what_fits_is_read_from_the_source_once(void)
{
	struct story *st = story_new(story_params(&info_400), NULL);

	for (uint32_t epoch = 0; epoch < 4; epoch++)
		story_read(st, epoch, 0, 400);
	CHECK_U64(st->count[PLAN_ACT_FETCH], 400);
	CHECK_U64(st->count[PLAN_ACT_DROP], 0);
	CHECK_U64(story_status(st).useful, 400);
	CHECK_U64(story_status(st).late, 0);
	story_free(st);
}

static void a_steady_epoch_reads_what_does_not_fit_and_a_window(void)
{
	struct order_info info = { .n = 4000, .world = 1, .n_ranks = 1 };
	struct plan_params p = story_params(&info);
	struct story *st;
	uint64_t before;

	p.arena_bytes = 4096 * 2000;
	st = story_new(p, NULL);
	story_read(st, 0, 0, 4000);
	story_read(st, 1, 0, 4000);
	before = st->count[PLAN_ACT_FETCH];
	story_read(st, 2, 0, 4000);
	CHECK(st->count[PLAN_ACT_FETCH] - before >= 2000 - 2 * 64);
	CHECK(st->count[PLAN_ACT_FETCH] - before <= 2000 + 5 * 64);
	CHECK_U64(story_status(st).late, 0);
	story_free(st);
}

/* Every DROP must be of a sample whose next use is later than everything still to be fetched before
 * it. */
static void nothing_is_dropped_that_is_due_before_what_comes_in(void)
{
	struct plan_params p = story_params(&info_400);
	struct story *st;

	p.arena_bytes = 4096 * 120;
	p.inflight_min = p.inflight_max = 1;
	st = story_prepare(p, NULL);
	st->is_auto[PLAN_ACT_FETCH] = false;
	story_step(st);
	for (uint32_t r = 0; r < 1000; r++) {
		for (uint32_t i = 0; i < st->n_log; i++) {
			const struct plan_action a = st->log[i];

			if (a.kind != PLAN_ACT_FETCH)
				continue;
			/* drops that made room for it come right before it; what the kernel holds
			 * is there all the same */
			for (uint32_t k = i; k-- > 0 && st->log[k].kind == PLAN_ACT_DROP;)
				CHECK(st->log[k].position > a.position ||
				      st->in_kernel[st->log[k].unit.v]);
			story_fetched(st, a.unit.v, 0);
		}
		st->n_log = 0;
		story_open(st, story_sample(st, r / 400, r % 400));
	}
	CHECK(st->count[PLAN_ACT_DROP] > 500);
	story_free(st);
}

static void an_opened_sample_is_held_for_span_opens_or_a_second(void)
{
	struct order_info info = { .n = 400, .world = 1, .n_ranks = 1, .epochs = 1 };
	struct plan_params p = story_params(&info);
	struct story *st;
	uint64_t drops = 0;

	/* All of it goes into the store at once, so it is dropped as soon as it may be. */
	p.store_bytes = 4096 * 400;
	st = story_new(p, NULL);
	for (uint32_t r = 0; r < 64; r++) {
		story_open(st, r);
		CHECK_U64(st->count[PLAN_ACT_DROP], 0);
	}
	story_open(st, 64);
	CHECK(story_has_logged(st, PLAN_ACT_DROP, 0));
	CHECK_U64(st->count[PLAN_ACT_DROP], 1);
	/* Nobody reads on: the rest goes when its second is over, not before. */
	drops = st->count[PLAN_ACT_DROP];
	st->now = st->now + NS_PER_S - NS_PER_MS * 64 / 10 - 1;
	story_step(st);
	CHECK_U64(st->count[PLAN_ACT_DROP], drops);
	CHECK(st->wake > st->now && st->wake <= st->now + NS_PER_S);
	st->now += NS_PER_S;
	story_step(st);
	CHECK_U64(st->count[PLAN_ACT_DROP], 65);
	story_free(st);
}

static void a_lost_copy_is_fetched_again_if_it_is_still_due(void)
{
	struct story *st = story_new(story_params(&info_400), NULL);
	uint64_t before;

	story_read(st, 0, 0, 50);
	before = st->count[PLAN_ACT_FETCH];
	story_event(st, (struct plan_event){ .kind = PLAN_EV_LOST_COPY, .unit = { 60 } });
	story_step(st);
	CHECK_U64(st->count[PLAN_ACT_FETCH], before + 1);
	/* a copy that is not there cannot get lost */
	story_event(st, (struct plan_event){ .kind = PLAN_EV_LOST_COPY, .unit = { 60 } });
	story_event(st, (struct plan_event){ .kind = PLAN_EV_LOST_COPY, .unit = { 60 } });
	story_step(st);
	CHECK_U64(st->count[PLAN_ACT_FETCH], before + 2);
	story_free(st);
}

static void files_that_grow_push_others_out(void)
{
	struct plan_params p = story_params(&info_400);
	struct story *st;

	p.arena_bytes = 4096 * 100;
	st = story_new(p, NULL);
	story_read(st, 0, 0, 40);
	CHECK_U64(story_status(st).arena_bytes, 4096 * 100);
	for (uint32_t s = 41; s < 51; s++)
		story_event(st, (struct plan_event){
					.kind = PLAN_EV_RESIZED, .unit = { s }, .bytes = 5000 });
	story_step(st);
	CHECK(story_status(st).arena_bytes <= 4096 * 100);
	CHECK(st->count[PLAN_ACT_DROP] >= 10);
	story_free(st);
}

static void a_smaller_arena_is_kept_to_and_a_larger_one_used_again(void)
{
	struct story *st = story_new(story_params(&info_400), NULL);
	struct plan_status before;
	uint64_t drops;

	story_read(st, 0, 0, 400);
	CHECK_U64(story_status(st).arena_bytes, 4096 * 400);
	plan_set_memory(st->plan, 4096 * 100, 4096 * 16);
	story_step(st);
	CHECK(story_status(st).arena_bytes <= 4096 * 200); /* but for what is in use */
	before = story_status(st);
	for (uint32_t p = 0; p < 400; p++) {
		story_read(st, 1, p, p + 1);
		if (p >= 100)
			CHECK(story_status(st).arena_bytes <= 4096 * 100);
		CHECK(p < 100 || story_status(st).stage_bytes <= 4096 * 16);
	}
	CHECK_U64(story_status(st).late, 0); /* what is due is fetched and staged all the same */
	CHECK(story_status(st).useful >= before.useful + 250);
	plan_set_memory(st->plan, UINT64_MAX, UINT64_MAX);
	story_read(st, 2, 0, 400);
	drops = st->count[PLAN_ACT_DROP];
	story_read(st, 3, 0, 400);
	CHECK_U64(st->count[PLAN_ACT_DROP], drops);
	CHECK_U64(story_status(st).arena_bytes, 4096 * 400);
	story_free(st);
}

/* An arena of 400 pages; the test answers what is fetched. */
static struct story *story_unanswered(void)
{
	struct plan_params p = story_params(&info_400);
	struct story *st;

	p.arena_bytes = 4096 * 400;
	st = story_prepare(p, NULL);
	st->is_auto[PLAN_ACT_FETCH] = false;
	return st;
}

/* And answers from here on. */
static void refuse_all(struct story *st)
{
	CHECK(st->n_log >= 8);
	for (uint32_t i = 0, n = st->n_log; i < n; i++)
		story_fetched(st, st->log[i].unit.v, -ENOMEM);
	st->is_auto[PLAN_ACT_FETCH] = true;
}

/* It still holds what is to leave: that is no hole. */
static void what_a_smaller_arena_refuses_is_no_hole(void)
{
	struct story *st = story_unanswered();

	story_step(st);
	plan_set_memory(st->plan, 4096 * 100, 4096 * 16);
	refuse_all(st);
	plan_set_memory(st->plan, UINT64_MAX, UINT64_MAX);
	story_read(st, 0, 0, 400);
	CHECK_U64(story_status(st).arena_bytes, 4096 * 400);
	story_free(st);
}

static void what_it_refused_is_no_hole_in_the_larger_one(void)
{
	struct story *st = story_unanswered();

	plan_set_memory(st->plan, 4096 * 100, 4096 * 16);
	story_step(st);
	plan_set_memory(st->plan, UINT64_MAX, UINT64_MAX);
	refuse_all(st);
	story_step(st);
	CHECK_U64(story_status(st).arena_bytes, 4096 * 200); /* half, as nothing was read yet */
	story_free(st);
}

/* What is cut is cut of what was there: half of the 100, at worst. */
static void memory_that_comes_back_has_no_holes(void)
{
	struct story *st = story_unanswered();

	plan_set_memory(st->plan, 4096 * 100, 4096 * 16);
	story_step(st);
	refuse_all(st);
	plan_set_memory(st->plan, UINT64_MAX, UINT64_MAX);
	st->now += 200 * NS_PER_MS;
	story_step(st);
	/* half of 350, as nothing was read yet */
	CHECK(story_status(st).arena_bytes >= 4096ull * 175);
	CHECK(story_status(st).arena_bytes < 4096ull * 180);
	story_free(st);
}

/* A sample that never found room would keep those behind it out. */
static void some_of_the_largest_samples_always_fit(void)
{
	uint64_t sizes[400];
	struct story *st;

	for (uint32_t i = 0; i < 400; i++)
		sizes[i] = i % 10 ? 100 : 8192;
	st = story_new(story_params(&info_400), sizes);
	plan_set_memory(st->plan, 0, 0);
	story_read(st, 0, 0, 400);
	story_read(st, 1, 0, 400);
	CHECK(story_status(st).arena_bytes <= 4 * 8192);
	CHECK(story_status(st).useful > 400);
	story_free(st);
}

/* Their bytes are those of units that are there. */
static void units_that_are_not_there_yet_count_for_nothing(void)
{
	struct plan_params p = story_params(&info_400);
	uint64_t sizes[400], now = NS_PER_S;
	struct plan *plan;

	for (uint32_t i = 0; i < 400; i++)
		sizes[i] = i < 100 ? 16384 : PLAN_NO_SIZE;
	p.size = sizes;
	p.order = NULL;
	CHECK_INT(plan_new(&p, &plan), 0);
	CHECK_U64(plan->n_sized, 100);
	CHECK_U64(plan->mean_pages, 4);
	for (uint32_t i = 100; i < 200; i++)
		plan_event(plan, now++, &(struct plan_event){ .kind = PLAN_EV_RESIZED,
							      .unit = { i },
							      .bytes = 8000 });
	CHECK_U64(plan->n_sized, 200);
	CHECK_U64(plan->mean_pages, 2);
	CHECK_U64(plan->item[150].pages, 2);
	CHECK_U64(plan->grown_pages, 0);
	plan_event(plan, now++,
		   &(struct plan_event){ .kind = PLAN_EV_RESIZED, .unit = { 150 }, .bytes = 9000 });
	CHECK_U64(plan->n_sized, 200);
	CHECK_U64(plan->item[150].pages, 3);
	CHECK_U64(plan->grown_pages, 1);
	(void)plan_step(plan, now);
	plan_free(plan);
}

/* Nothing is to be known of them in later epochs: none has them. */
static void units_that_come_are_outside_of_an_order_that_was_there_before(void)
{
	struct order_info info = { .n = 400, .world = 1, .n_ranks = 1 };
	struct plan_params p = story_params(&info);
	uint64_t sizes[400], outside[DIV_ROUND_UP(400, 64)] = { 0 };
	struct story *st;

	for (uint32_t i = 0; i < 400; i++) {
		sizes[i] = i < 300 ? 4096 : PLAN_NO_SIZE;
		outside[i / 64] |= (uint64_t)(i >= 200) << i % 64;
	}
	info.outside = outside;
	p.arena_bytes = 4096 * 100;
	st = story_prepare(p, sizes);
	st->n_order = st->mark = 200;
	CHECK_U64(st->plan->jobs[0]->n_outside, 100);
	for (uint32_t i = 0; i < 200; i++) /* each of them twice */
		plan_event(st->plan, st->now, &(struct plan_event){ .kind = PLAN_EV_RESIZED,
								    .unit = { 300 + i % 100 },
								    .bytes = 4096 });
	CHECK_U64(st->plan->jobs[0]->n_outside, 200);
	story_step(st);
	story_read(st, 0, 0, 200);
	CHECK(st->plan->later.is_judged && !st->plan->later.mask);
	story_free(st);
}

static const struct check_test tests[] = {
	{ "units_that_come_are_outside_of_an_order_that_was_there_before",
	  units_that_come_are_outside_of_an_order_that_was_there_before },
	{ "units_that_are_not_there_yet_count_for_nothing",
	  units_that_are_not_there_yet_count_for_nothing },
	{ "a_smaller_arena_is_kept_to_and_a_larger_one_used_again",
	  a_smaller_arena_is_kept_to_and_a_larger_one_used_again },
	{ "what_a_smaller_arena_refuses_is_no_hole", what_a_smaller_arena_refuses_is_no_hole },
	{ "what_it_refused_is_no_hole_in_the_larger_one",
	  what_it_refused_is_no_hole_in_the_larger_one },
	{ "memory_that_comes_back_has_no_holes", memory_that_comes_back_has_no_holes },
	{ "some_of_the_largest_samples_always_fit", some_of_the_largest_samples_always_fit },
	{ "what_fits_is_read_from_the_source_once", what_fits_is_read_from_the_source_once },
	{ "a_steady_epoch_reads_what_does_not_fit_and_a_window",
	  a_steady_epoch_reads_what_does_not_fit_and_a_window },
	{ "nothing_is_dropped_that_is_due_before_what_comes_in",
	  nothing_is_dropped_that_is_due_before_what_comes_in },
	{ "an_opened_sample_is_held_for_span_opens_or_a_second",
	  an_opened_sample_is_held_for_span_opens_or_a_second },
	{ "a_lost_copy_is_fetched_again_if_it_is_still_due",
	  a_lost_copy_is_fetched_again_if_it_is_still_due },
	{ "files_that_grow_push_others_out", files_that_grow_push_others_out },
};
CHECK_MAIN(tests)
