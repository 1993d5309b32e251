/* SPDX-License-Identifier: Apache-2.0 */
/* What is pushed into the kernel, and what happens when the kernel drops it again. */
#include "plan_sim.h"
#include "plan_story.h"

static const struct order_info info_400 = { .n = 400, .world = 1, .n_ranks = 1 };

static void the_next_samples_are_staged_in_order_and_no_more(void)
{
	struct story *st = story_prepare(story_params(&info_400), NULL);

	st->is_auto[PLAN_ACT_STAGE] = false;
	story_step(st);
	CHECK_U64(story_logged(st, PLAN_ACT_STAGE), 64);
	for (uint32_t i = 0; i < 64; i++)
		CHECK_U64(st->log[i].unit.v, i);
	CHECK_U64(story_status(st).stage_bytes, 64 * 4096);
	for (uint32_t i = 0; i < 64; i++)
		story_answer(st, &st->log[i]);
	story_step(st);
	CHECK_U64(story_logged(st, PLAN_ACT_STAGE), 64);
	/* one read makes room for one */
	story_open(st, 0);
	CHECK_U64(story_logged(st, PLAN_ACT_STAGE), 65);
	CHECK_U64(st->log[64].unit.v, 64);
	story_free(st);
}

static void a_sample_that_is_late_keeps_its_place_in_the_stage(void)
{
	struct story *st = story_prepare(story_params(&info_400), NULL);

	st->is_auto[PLAN_ACT_FETCH] = false;
	story_step(st);
	/* everything arrives but sample 3 */
	for (uint32_t i = 0; i < st->n_log && i < 200; i++) {
		if (st->log[i].kind == PLAN_ACT_FETCH && st->log[i].unit.v != 3)
			story_fetched(st, st->log[i].unit.v, 0);
		story_step(st);
	}
	CHECK_U64(st->count[PLAN_ACT_STAGE], 63);
	story_fetched(st, 3, 0);
	story_step(st);
	CHECK_U64(st->count[PLAN_ACT_STAGE], 64);
	story_free(st);
}

static void the_arena_copy_stays_until_it_was_opened(void)
{
	struct plan_params p = story_params(&info_400);
	struct story *st;

	p.store_bytes = 400 * 4096;
	st = story_new(p, NULL);
	st->now += 60 * NS_PER_S;
	story_step(st);
	CHECK_U64(st->count[PLAN_ACT_DROP], 0);
	story_free(st);
}

static void dropped_pages_cost_a_push_and_shrink_the_stage(void)
{
	struct story *st = story_new(story_params(&info_400), NULL);
	uint64_t fetched, staged, limit;

	story_read(st, 0, 0, 40);
	fetched = st->count[PLAN_ACT_FETCH];
	staged = st->count[PLAN_ACT_STAGE];
	CHECK_U64(story_status(st).stage_limit_bytes, 64 * 4096);
	for (uint32_t s = 40; s < 104; s++)
		story_event(st, (struct plan_event){ .kind = PLAN_EV_UNSTAGED, .unit = { s } });
	limit = story_status(st).stage_limit_bytes;
	/* for the first one and for so many, not 64 times: what is due soon is left */
	CHECK(limit >= 31 * 4096 && limit <= 32 * 4096);
	story_step(st);
	CHECK(st->count[PLAN_ACT_STAGE] - staged >= 31 && st->count[PLAN_ACT_STAGE] - staged <= 32);
	CHECK_U64(st->count[PLAN_ACT_FETCH], fetched);
	/* again and again: a floor stays */
	for (int i = 0; i < 40; i++) {
		uint32_t s = 40;

		st->now += 600 * NS_PER_MS;
		story_event(st, (struct plan_event){ .kind = PLAN_EV_UNSTAGED, .unit = { s } });
		story_step(st);
	}
	CHECK(story_status(st).stage_limit_bytes >= 4 * 4096);
	CHECK(story_status(st).stage_limit_bytes < 16 * 4096);
	/* and it recovers when the kernel is content */
	for (int i = 0; i < 120; i++) {
		st->now += NS_PER_S;
		story_step(st);
	}
	CHECK_U64(story_status(st).stage_limit_bytes, 64 * 4096);
	story_free(st);
}

static void pages_dropped_after_the_open_mean_nothing(void)
{
	struct story *st = story_new(story_params(&info_400), NULL);
	uint64_t staged;

	story_read(st, 0, 0, 40);
	staged = st->count[PLAN_ACT_STAGE];
	story_event(st, (struct plan_event){ .kind = PLAN_EV_UNSTAGED, .unit = { 39 } });
	story_step(st);
	CHECK_U64(st->count[PLAN_ACT_STAGE], staged);
	CHECK_U64(story_status(st).stage_limit_bytes, 64 * 4096);
	story_free(st);
}

/* Answers every STAGE of sample 5 with this status for ten seconds; returns how often it was tried.
 */
static uint32_t tries_with(int status)
{
	struct story *st = story_prepare(story_params(&info_400), NULL);
	uint32_t tries = 0;

	st->is_auto[PLAN_ACT_STAGE] = false;
	for (int i = 0; i < 100; i++) {
		story_step(st);
		for (uint32_t k = 0; k < st->n_log; k++) {
			struct plan_event ev = { .kind = PLAN_EV_STAGED,
						 .unit = st->log[k].unit };

			if (st->log[k].kind != PLAN_ACT_STAGE)
				continue;
			ev.status = ev.unit.v == 5 ? status : 0;
			tries += ev.unit.v == 5;
			story_event(st, ev);
		}
		st->n_log = 0;
		st->now += 100 * NS_PER_MS;
	}
	CHECK_U64(st->count[PLAN_ACT_DROP], 0);
	story_free(st);
	return tries;
}

static void an_unknown_inode_is_tried_three_times_a_busy_one_once(void)
{
	CHECK_U64(tries_with(-ENOENT), 3);
	CHECK_U64(tries_with(-EAGAIN), 1);
}

static void opened_while_it_is_pushed_is_not_staged(void)
{
	struct story *st = story_prepare(story_params(&info_400), NULL);

	st->is_auto[PLAN_ACT_STAGE] = false;
	story_step(st);
	story_open(st, 0);
	for (uint32_t i = 0; i < 64; i++)
		story_answer(st, &st->log[i]);
	CHECK_U64(story_status(st).stage_bytes, 63 * 4096);
	story_step(st);
	CHECK(story_has_logged(st, PLAN_ACT_STAGE, 64));
	story_free(st);
}

/* Refuses every STAGE that was asked for; returns how many. */
static uint32_t refuse_all(struct story *st)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < st->n_log; i++) {
		struct plan_event ev = { .kind = PLAN_EV_STAGED,
					 .unit = st->log[i].unit,
					 .status = PLAN_NO_INODES };

		if (st->log[i].kind != PLAN_ACT_STAGE)
			continue;
		n++;
		story_event(st, ev);
	}
	st->n_log = 0;
	return n;
}

static void a_refused_sample_waits_for_an_open_and_is_not_given_up(void)
{
	struct story *st = story_prepare(story_params(&info_400), NULL);

	st->is_auto[PLAN_ACT_STAGE] = false;
	story_step(st);
	CHECK_U64(refuse_all(st), 64);
	CHECK_U64(story_status(st).stage_bytes, 0);
	/* Time alone changes nothing: nothing is asked for again and again. */
	for (int i = 0; i < 100; i++) {
		st->now += 100 * NS_PER_MS;
		story_step(st);
	}
	CHECK_U64(refuse_all(st), 0);
	/* Each open is one chance, for what is due first. */
	story_open(st, 0);
	CHECK_U64(story_logged(st, PLAN_ACT_STAGE), 1);
	CHECK(story_has_logged(st, PLAN_ACT_STAGE, 1));
	CHECK_U64(refuse_all(st), 1);
	story_open(st, 1);
	CHECK(story_has_logged(st, PLAN_ACT_STAGE, 2));
	CHECK_U64(refuse_all(st), 1);
	/* So is what the kernel forgets. */
	story_event(st, (struct plan_event){ .kind = PLAN_EV_UNSTAGED, .unit = { 0 } });
	story_step(st);
	CHECK(story_has_logged(st, PLAN_ACT_STAGE, 2));
	story_free(st);
}

/* The shape of ImageNet: a job of a steady pace, a stage of many small samples, and a planner that
 * is farther ahead than the kernel may know inodes. */
static struct sim_params small_samples(void)
{
	return (struct sim_params){ .n = 60000,
				    .sample_bytes = 4096,
				    .arena_samples = 70000,
				    .stage_samples = 65536,
				    .inflight_min = 4,
				    .inflight_max = 64,
				    .info = { .n = 60000, .world = 1, .n_ranks = 1 },
				    .latency_ns = NS_PER_MS,
				    .bytes_per_s = 10000000000,
				    .parallel = 64,
				    .inodes_ahead = 16384,
				    .ranks = 1,
				    .workers = 4,
				    .prefetch_factor = 2,
				    .batch = 32,
				    .sample_cpu_ns = 200000,
				    .step_ns = 8 * NS_PER_MS,
				    .seed = 1 };
}

static void refusals_keep_nothing_out_of_the_stage(void)
{
	struct sim_params p = small_samples();
	struct sim *sim = sim_new(&p);
	struct sim_counts c;

	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		c = sim_epoch(sim, 1, epoch, 0, p.n);
		CHECK_U64(c.reads, p.n);
		CHECK(c.refused > 0 || epoch);
		CHECK(c.staged * 100 >= c.reads * 98);
		/* What is refused costs a look: no more than one in eight, and a first round. */
		CHECK(c.refused <= p.n / 8 + 4096);
	}
	sim_free(sim);
}

/* The job leaves an epoch early: what was staged for it stays known until it is opened, somewhere in
 * the next one. */
static void inodes_that_nobody_opens_are_lived_with(void)
{
	struct sim_params p = small_samples();
	struct sim *sim = sim_new(&p);
	struct sim_counts c;

	sim_epoch(sim, 1, 0, 0, 20000);
	c = sim_epoch(sim, 1, 1, 0, p.n);
	CHECK_U64(c.reads, p.n);
	CHECK(c.staged * 100 >= c.reads * 90);
	CHECK(c.refused <= p.n + 4096);
	sim_free(sim);
}

static const struct check_test tests[] = {
	{ "the_next_samples_are_staged_in_order_and_no_more",
	  the_next_samples_are_staged_in_order_and_no_more },
	{ "a_sample_that_is_late_keeps_its_place_in_the_stage",
	  a_sample_that_is_late_keeps_its_place_in_the_stage },
	{ "the_arena_copy_stays_until_it_was_opened", the_arena_copy_stays_until_it_was_opened },
	{ "dropped_pages_cost_a_push_and_shrink_the_stage",
	  dropped_pages_cost_a_push_and_shrink_the_stage },
	{ "pages_dropped_after_the_open_mean_nothing", pages_dropped_after_the_open_mean_nothing },
	{ "an_unknown_inode_is_tried_three_times_a_busy_one_once",
	  an_unknown_inode_is_tried_three_times_a_busy_one_once },
	{ "opened_while_it_is_pushed_is_not_staged", opened_while_it_is_pushed_is_not_staged },
	{ "a_refused_sample_waits_for_an_open_and_is_not_given_up",
	  a_refused_sample_waits_for_an_open_and_is_not_given_up },
	{ "refusals_keep_nothing_out_of_the_stage", refusals_keep_nothing_out_of_the_stage },
	{ "inodes_that_nobody_opens_are_lived_with", inodes_that_nobody_opens_are_lived_with },
};
CHECK_MAIN(tests)
