/* SPDX-License-Identifier: Apache-2.0 */
/* One plan while orders come, change and end: what it has in memory, pushed and on its way stays and
 * serves the next order, answers that were on their way to the last one do no harm, and no call
 * looks at more than its share of ten million samples. Epochs stand for orders: the story reads
 * another one in each. */
#include "../lib/plan_story.h"
#include "src/plan/plan_priv.h"

#define MANY 10000000u

static struct order_info info_of(uint32_t n, uint64_t start)
{
	return (struct order_info){
		.n = n, .world = 1, .n_ranks = 1, .start_epoch = start, .epochs = 3
	};
}

static void change(struct story *st, uint64_t start)
{
	struct order_info info = info_of(st->n, start);

	CHECK_INT(plan_change_job(st->plan, 0, &info), 0);
	story_step(st);
}

static void what_is_in_memory_serves_the_next_order(void)
{
	struct order_info info = info_of(500, 1);
	struct story *st = story_new(story_params(&info), NULL);

	story_read(st, 1, 0, 500);
	CHECK_U64(st->count[PLAN_ACT_FETCH], 500);
	change(st, 20);
	CHECK_INT(story_status(st).state, PLAN_WAITING);
	CHECK_U64(story_status(st).lead, 1000); /* both of its first epochs */
	story_read(st, 20, 0, 500);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(st->count[PLAN_ACT_FETCH], 500);
	CHECK_U64(st->count[PLAN_ACT_DROP], 0);
	story_free(st);
}

static void a_fetch_on_its_way_is_for_whoever_comes_next(void)
{
	struct order_info info = info_of(200, 1);
	struct story *st = story_prepare(story_params(&info), NULL);

	st->is_auto[PLAN_ACT_FETCH] = false;
	story_step(st);
	CHECK_U64(st->n_log, 8);
	change(st, 30);
	CHECK_U64(story_status(st).inflight, 8);
	for (uint32_t i = 0; i < 8; i++)
		story_fetched(st, st->log[i].unit.v, 0);
	CHECK_U64(story_status(st).inflight, 0);
	st->is_auto[PLAN_ACT_FETCH] = true;
	story_step(st);
	story_read(st, 30, 0, 200);
	CHECK_U64(st->count[PLAN_ACT_FETCH], 200);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	story_free(st);
}

/* A job comes, and goes, while others' fetches and pushes are on their way. */
static void answers_are_taken_whoever_has_come_or_gone(void)
{
	struct order_info info = info_of(200, 1), other = info_of(200, 40);
	struct story *st = story_prepare(story_params(&info), NULL);
	uint32_t n;

	st->is_auto[PLAN_ACT_FETCH] = false;
	story_step(st);
	CHECK_INT(plan_add_job(st->plan, &other), 1);
	story_step(st);
	n = st->n_log;
	CHECK_U64(n, 8);
	plan_end_job(st->plan, 0);
	story_step(st);
	for (uint32_t i = 0; i < n; i++)
		story_fetched(st, st->log[i].unit.v, i % 4 ? 0 : -EIO);
	st->is_auto[PLAN_ACT_FETCH] = true;
	st->is_auto[PLAN_ACT_STAGE] = false;
	story_step(st);
	n = st->n_log;
	for (uint32_t i = 8; i < n; i++) /* pushes on their way when it changes its order */
		CHECK_INT(st->log[i].kind, PLAN_ACT_STAGE);
	CHECK(n > 8);
	CHECK_INT(plan_change_job(st->plan, 1, &info), 0);
	for (uint32_t i = 8; i < n; i++)
		story_answer(st, &st->log[i]);
	st->is_auto[PLAN_ACT_STAGE] = true;
	story_step(st);
	story_read(st, 1, 0, 200);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).inflight, 0);
	story_free(st);
}

static struct plan_action last_epoch(const struct story *st)
{
	for (uint32_t i = st->n_log; i-- > 0;)
		if (st->log[i].kind == PLAN_ACT_EPOCH)
			return st->log[i];
	CHECK(!"no epoch was asked for");
	return st->log[0];
}

static void an_epoch_of_the_order_before_is_nobodys(void)
{
	struct order_info info = info_of(100, 1);
	struct story *st = story_prepare(story_params(&info), NULL);
	struct plan_action first, second;

	st->is_auto[PLAN_ACT_EPOCH] = false;
	story_step(st);
	first = last_epoch(st);
	change(st, 1); /* even of the same number */
	second = last_epoch(st);
	CHECK_U64(second.epoch, first.epoch);
	CHECK_U64(second.job, first.job);
	CHECK(second.version != first.version);
	story_answer(st, &first);
	CHECK_U64(story_status(st).length, 0);
	story_answer(st, &second);
	CHECK_U64(story_status(st).length, 100);
	story_step(st);
	first = last_epoch(st); /* the next one */
	plan_end_job(st->plan, 0);
	story_answer(st, &first);
	story_step(st);
	CHECK_INT(story_status(st).state, PLAN_NO_ORDER);
	story_free(st);
}

/* Memory is full of what the last order wanted, and so is the stage. */
static void the_first_samples_of_the_next_order_come_before_it_reads(void)
{
	struct order_info info = info_of(1000, 1);
	struct plan_params p = story_params(&info);
	struct story *st;

	p.arena_bytes = 300 * 4096;
	st = story_new(p, NULL);
	story_read(st, 1, 0, 600);
	CHECK_U64(story_status(st).arena_bytes, 300 * 4096);
	CHECK(story_status(st).stage_bytes > 60 * 4096);
	change(st, 30);
	st->now += 2 * NS_PER_S; /* what was read a moment ago is held */
	story_step(st);
	for (uint32_t i = 0; i < 60; i++) {
		CHECK(st->is_there[story_sample(st, 30, i)]);
		CHECK(st->in_kernel[story_sample(st, 30, i)]);
	}
	CHECK_INT(story_status(st).state, PLAN_WAITING);
	story_free(st);
}

/* No more than half of the memory is filled for an order that nobody has read by. */
static void an_order_that_is_not_confirmed_gets_half_of_the_memory(void)
{
	struct order_info info = info_of(1000, 1);
	struct plan_params p = story_params(&info);
	uint64_t before;
	struct story *st;

	p.arena_bytes = 300 * 4096;
	st = story_new(p, NULL);
	story_read(st, 1, 0, 600);
	before = st->count[PLAN_ACT_FETCH];
	change(st, 30);
	CHECK(st->count[PLAN_ACT_FETCH] > before);
	CHECK(st->count[PLAN_ACT_FETCH] <= before + 150);
	story_free(st);
}

static void after_the_last_job_everything_is_left_to_the_executive(void)
{
	struct order_info info = info_of(300, 1);
	struct story *st = story_prepare(story_params(&info), NULL);
	uint32_t left = 0;

	st->is_auto[PLAN_ACT_FETCH] = false;
	story_step(st);
	for (uint32_t i = 0; i < 4; i++)
		story_fetched(st, st->log[i].unit.v, 0);
	story_step(st);
	story_open(st, st->log[0].unit.v); /* its reader may still read it */
	plan_end_job(st->plan, 0);
	story_step(st);
	CHECK_INT(story_status(st).state, PLAN_NO_ORDER);
	for (uint32_t i = 4; i < 8; i++)
		story_fetched(st, st->log[i].unit.v, 0);
	st->now += 2 * NS_PER_S;
	story_step(st);
	for (uint32_t i = 0; i < st->n_log; i++) {
		CHECK(st->log[i].kind != PLAN_ACT_DROP || st->log[i].is_left);
		left += st->log[i].kind == PLAN_ACT_DROP;
	}
	CHECK(left >= 8);
	CHECK_U64(story_status(st).arena_bytes,
		  (uint64_t)story_status(st).inflight * 4096);
	CHECK_U64(story_status(st).stage_bytes, 0);
	story_free(st);
}

static void after_it_a_new_order_begins_as_ever(void)
{
	struct order_info info = info_of(300, 1), next = info_of(300, 50);
	struct story *st = story_new(story_params(&info), NULL);

	story_read(st, 1, 0, 100);
	plan_end_job(st->plan, 0);
	story_step(st);
	CHECK_U64(story_status(st).arena_bytes, 0);
	story_open(st, 7); /* an ordinary cache */
	CHECK_INT(plan_add_job(st->plan, &next), 0);
	story_step(st);
	story_read(st, 50, 0, 300);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	story_free(st);
}

/* --- the last opens --- */

static void a_job_that_tells_its_order_late_is_shown_what_it_read(void)
{
	struct order_info info = info_of(1200, 5);
	struct plan_params p = story_params(&info);
	struct unit_id opens[8];
	struct story *st;

	p.order = NULL;
	st = story_new(p, NULL);
	story_read(st, 5, 0, 400);
	CHECK_U64(plan_last_opens(st->plan, opens, 8), 8);
	for (uint32_t i = 0; i < 8; i++)
		CHECK_U64(opens[i].v, story_sample(st, 5, 392 + i));
	CHECK_INT(plan_add_job(st->plan, &info), 0);
	story_step(st);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).position, 400);
	CHECK_U64(story_status(st).mismatches, 0);
	CHECK(!st->count[PLAN_ACT_DROP]);
	story_free(st);
}

/* Too few to tell but by trying: then it is as if nothing had been opened. */
static void opens_of_somebody_else_are_left_out(void)
{
	struct order_info info = info_of(1200, 5);
	struct plan_params p = story_params(&info);
	struct story *st;

	p.order = NULL;
	st = story_new(p, NULL);
	story_read(st, 9, 0, 100);
	CHECK_INT(plan_add_job(st->plan, &info), 0);
	story_step(st);
	CHECK_INT(story_status(st).state, PLAN_WAITING);
	CHECK_U64(story_status(st).position, 0);
	CHECK(st->is_there[story_sample(st, 5, 0)]);
	story_read(st, 5, 0, 100);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).lost, 0);
	story_free(st);
}

/* --- shares --- */

/* A hundred thousand positions of ten million samples. */
static struct order_epoch *long_epoch(uint64_t epoch)
{
	struct order_epoch *ep = calloc(1, sizeof(*ep));

	*ep = (struct order_epoch){ .epoch = epoch, .n = MANY, .length = MANY / 100 };
	ep->sample = malloc(ep->length * sizeof(uint32_t));
	ep->first = malloc(MANY * sizeof(uint32_t));
	CHECK(ep->sample && ep->first);
	memset(ep->first, 0xff, MANY * sizeof(uint32_t)); /* SAMPLE_NONE */
	for (uint32_t i = 0; i < ep->length; i++) {
		ep->sample[i] = i * 100 + (uint32_t)(epoch % 100);
		ep->first[ep->sample[i]] = i;
	}
	return ep;
}

struct share {
	struct plan *plan;
	uint64_t now, steps, touched, most;
};

/* What was looked at since the last time, by one call. */
static void share_count(struct share *s)
{
	s->most = MAX(s->most, s->plan->touched - s->touched);
	s->touched = s->plan->touched;
}

static void share_act(struct share *s, const struct plan_action *a)
{
	struct plan_event ev = { .unit = a->unit, .latency_ns = NS_PER_MS, .job = a->job };

	if (a->kind == PLAN_ACT_DROP)
		return;
	ev.kind = a->kind == PLAN_ACT_FETCH ? PLAN_EV_FETCHED : PLAN_EV_STAGED;
	if (a->kind == PLAN_ACT_EPOCH) {
		ev.kind = PLAN_EV_EPOCH;
		ev.epoch = a->epoch;
		ev.version = a->version;
		ev.order_epoch = long_epoch(a->epoch);
	}
	plan_event(s->plan, s->now, &ev);
	share_count(s);
}

static void share_settle(struct share *s)
{
	struct plan_action a;
	uint64_t wake;
	bool is_busy;

	do {
		wake = plan_step(s->plan, s->now);
		share_count(s);
		s->steps++;
		for (is_busy = false; plan_next_action(s->plan, &a); is_busy = true)
			share_act(s, &a);
	} while (is_busy || wake <= s->now);
}

/* Counted, as time says little on a machine that does other things. */
static void no_call_looks_at_more_than_its_share_of_ten_million_samples(void)
{
	struct order_info info = info_of(MANY, 1);
	uint64_t *size = calloc(MANY, sizeof(*size));
	struct plan_params p = { .n = MANY,
				 .size = size,
				 .arena_bytes = 20000 * 4096ull,
				 .stage_bytes = 1000 * 4096ull,
				 .inflight_min = 64,
				 .inflight_max = 64,
				 .span = 64 };
	struct share s = { .now = NS_PER_S };

	CHECK(size != NULL);
	CHECK_INT(plan_new(&p, &s.plan), 0);
	free(size);
	info.is_same_every_epoch = true;
	s.touched = s.plan->touched;
	CHECK_INT(plan_add_job(s.plan, &info), 0);
	share_count(&s);
	CHECK_U64(s.most, 0);
	share_settle(&s);
	info.start_epoch = 2;
	CHECK_INT(plan_add_job(s.plan, &info), 1);
	share_count(&s);
	share_settle(&s);
	info.start_epoch = 3;
	CHECK_INT(plan_change_job(s.plan, 0, &info), 0);
	share_count(&s);
	s.steps = 0;
	share_settle(&s);
	CHECK(s.steps >= MANY / WORK_MOST); /* all of them were looked at, in the end */
	CHECK_U64(s.plan->n_leaving, 0);
	plan_end_job(s.plan, 1);
	share_count(&s);
	share_settle(&s);
	plan_end_job(s.plan, 0);
	share_count(&s);
	share_settle(&s);
	CHECK_U64(s.plan->used_pages, 0);
	/* each may be looked at and enter its sets; and what the actions are about */
	CHECK(s.most >= s.plan->work_most && s.plan->work_most <= WORK_MOST);
	CHECK(s.most <= 2 * s.plan->work_most + 2 * ACTIONS_MAX);
	plan_free(s.plan);
}

static const struct check_test tests[] = {
	{ "what_is_in_memory_serves_the_next_order", what_is_in_memory_serves_the_next_order },
	{ "a_fetch_on_its_way_is_for_whoever_comes_next",
	  a_fetch_on_its_way_is_for_whoever_comes_next },
	{ "answers_are_taken_whoever_has_come_or_gone",
	  answers_are_taken_whoever_has_come_or_gone },
	{ "an_epoch_of_the_order_before_is_nobodys", an_epoch_of_the_order_before_is_nobodys },
	{ "the_first_samples_of_the_next_order_come_before_it_reads",
	  the_first_samples_of_the_next_order_come_before_it_reads },
	{ "an_order_that_is_not_confirmed_gets_half_of_the_memory",
	  an_order_that_is_not_confirmed_gets_half_of_the_memory },
	{ "after_the_last_job_everything_is_left_to_the_executive",
	  after_the_last_job_everything_is_left_to_the_executive },
	{ "after_it_a_new_order_begins_as_ever", after_it_a_new_order_begins_as_ever },
	{ "a_job_that_tells_its_order_late_is_shown_what_it_read",
	  a_job_that_tells_its_order_late_is_shown_what_it_read },
	{ "opens_of_somebody_else_are_left_out", opens_of_somebody_else_are_left_out },
	{ "no_call_looks_at_more_than_its_share_of_ten_million_samples",
	  no_call_looks_at_more_than_its_share_of_ten_million_samples },
};
CHECK_MAIN(tests)
