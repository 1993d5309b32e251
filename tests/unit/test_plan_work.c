/* SPDX-License-Identifier: Apache-2.0 */
/* How much one call of the plan does, counted in samples that it looks at: jobs that come and go
 * faster than their keys can be forgotten, orders that turn out to be wrong, passes that repeat
 * samples. And what is left of a job in the plan that has begun again with another one: nothing. */
#include "../lib/plan_story.h"
#include "src/plan/plan_priv.h"

int __real_tree_init(struct tree *t, uint64_t size);
int __wrap_tree_init(struct tree *t, uint64_t size);

static uint32_t no_memory_for; /* each so manyth tree; 0: there is enough */
static uint32_t n_trees;

int __wrap_tree_init(struct tree *t, uint64_t size)
{
	if (no_memory_for && ++n_trees % no_memory_for == 0) {
		*t = (struct tree){ 0 };
		return -ENOMEM;
	}
	return __real_tree_init(t, size);
}

/* --- a plan whose epochs the test makes --- */

struct desk {
	struct plan *plan;
	uint32_t n;
	uint64_t now, touched, most;
	bool is_withheld[PLAN_JOBS]; /* epochs of these are not computed */
	struct plan_action epoch[PLAN_JOBS]; /* the last that was asked for */
	uint64_t staged[PLAN_JOBS]; /* pushes for each */
	/* The epochs of everyone; NULL: all samples from the job's number on. */
	struct order_epoch *(*make)(uint32_t n, uint32_t job, uint64_t epoch);
};

/* The most that a call has looked at. */
static void desk_count(struct desk *d)
{
	d->most = MAX(d->most, d->plan->touched - d->touched);
	d->touched = d->plan->touched;
}

static struct order_epoch *epoch_new(uint32_t n, uint64_t epoch, uint64_t length)
{
	struct order_epoch *ep = calloc(1, sizeof(*ep));

	CHECK(ep != NULL);
	*ep = (struct order_epoch){ .epoch = epoch, .n = n, .length = length };
	ep->sample = malloc(length * sizeof(uint32_t));
	ep->first = malloc(n * sizeof(uint32_t));
	CHECK(ep->sample && ep->first);
	memset(ep->first, 0xff, n * sizeof(uint32_t)); /* SAMPLE_NONE */
	return ep;
}

static struct order_epoch *epoch_of_all(uint32_t n, uint32_t job, uint64_t epoch)
{
	struct order_epoch *ep = epoch_new(n, epoch, n);

	for (uint32_t i = 0; i < n; i++) {
		ep->sample[i] = (i + job) % n;
		ep->first[ep->sample[i]] = i;
	}
	return ep;
}

/* Every fourth sample, others in each epoch. */
static struct order_epoch *epoch_of_a_node(uint32_t n, uint32_t job, uint64_t epoch)
{
	struct order_epoch *ep = epoch_new(n, epoch, n / 4);

	(void)job;
	for (uint32_t i = 0; i < n / 4; i++) {
		ep->sample[i] = 4 * i + (uint32_t)(epoch % 4);
		ep->first[ep->sample[i]] = i;
	}
	return ep;
}

/* A quarter of the samples, each twice. */
static struct order_epoch *epoch_of_pairs(uint32_t n, uint32_t job, uint64_t epoch)
{
	struct order_epoch *ep = epoch_new(n, epoch, n / 2);

	(void)job;
	ep->next_same = malloc(ep->length * sizeof(uint32_t));
	CHECK(ep->next_same != NULL);
	for (uint32_t i = 0; i < n / 2; i++) {
		ep->sample[i] = 4 * (i / 2) + (uint32_t)(epoch % 4);
		ep->next_same[i] = i % 2 ? SAMPLE_NONE : i + 1;
		if (i % 2 == 0)
			ep->first[ep->sample[i]] = i;
	}
	return ep;
}

/* All samples, the last one twice. */
static struct order_epoch *epoch_with_one_pair(uint32_t n, uint32_t job, uint64_t epoch)
{
	struct order_epoch *ep = epoch_new(n, epoch, n + 1);

	(void)job;
	ep->next_same = malloc(ep->length * sizeof(uint32_t));
	CHECK(ep->next_same != NULL);
	for (uint32_t i = 0; i <= n; i++) {
		ep->sample[i] = i < n ? i : n - 1;
		ep->next_same[i] = i == n - 1 ? n : SAMPLE_NONE;
		if (i < n)
			ep->first[i] = i;
	}
	return ep;
}

static void desk_epoch(struct desk *d, const struct plan_action *a)
{
	struct plan_event ev = { .kind = PLAN_EV_EPOCH,
				 .epoch = a->epoch,
				 .job = a->job,
				 .version = a->version };

	ev.order_epoch = (d->make ? d->make : epoch_of_all)(d->n, a->job, a->epoch);
	plan_event(d->plan, d->now, &ev);
	desk_count(d);
}

static void desk_act(struct desk *d, const struct plan_action *a)
{
	struct plan_event ev = { .unit = a->unit, .latency_ns = NS_PER_MS };

	switch (a->kind) {
	case PLAN_ACT_DROP:
		return;
	case PLAN_ACT_EPOCH:
		d->epoch[a->job] = *a;
		if (!d->is_withheld[a->job])
			desk_epoch(d, a);
		return;
	case PLAN_ACT_STAGE:
		d->staged[a->job]++;
		ev.kind = PLAN_EV_STAGED;
		break;
	default:
		ev.kind = PLAN_EV_FETCHED;
		ev.status = a->is_adopted ? -EAGAIN : 0;
		break;
	}
	plan_event(d->plan, d->now, &ev);
	desk_count(d);
}

/* Returns whether it wants to be called again at once. */
static bool desk_step(struct desk *d)
{
	static struct plan_action a[ACTIONS_MAX];
	uint64_t wake = plan_step(d->plan, d->now);
	uint32_t n = 0;

	desk_count(d);
	while (n < ACTIONS_MAX && plan_next_action(d->plan, &a[n]))
		n++;
	for (uint32_t i = 0; i < n; i++)
		desk_act(d, &a[i]);
	return n || wake <= d->now;
}

static void desk_settle(struct desk *d)
{
	while (desk_step(d))
		;
}

static void desk_read(struct desk *d, uint32_t sample)
{
	struct plan_event ev = { .kind = PLAN_EV_OPENED, .unit = { sample } };

	d->now += NS_PER_MS / 4;
	plan_event(d->plan, d->now, &ev);
	desk_count(d);
	desk_settle(d);
}

static void desk_new(struct desk *d, uint32_t n, uint64_t arena_pages, uint64_t stage_pages)
{
	struct plan_params p = { .n = n,
				 .size = calloc(n, sizeof(uint64_t)),
				 .arena_bytes = arena_pages * PAGE_BYTES,
				 .stage_bytes = stage_pages * PAGE_BYTES,
				 .inflight_min = 64,
				 .inflight_max = 64,
				 .span = 64 };

	*d = (struct desk){ .n = n, .now = NS_PER_S };
	CHECK(p.size != NULL);
	CHECK_INT(plan_new(&p, &d->plan), 0);
	free((void *)p.size);
	d->touched = d->plan->touched;
}

static struct order_info info_of(const struct desk *d)
{
	return (struct order_info){ .n = d->n, .world = 1, .n_ranks = 1, .start_epoch = 1 };
}

static int desk_add(struct desk *d)
{
	struct order_info info = info_of(d);
	int job = plan_add_job(d->plan, &info);

	desk_count(d);
	return job;
}

static void desk_change(struct desk *d, uint32_t job)
{
	struct order_info info = info_of(d);

	CHECK_INT(plan_change_job(d->plan, job, &info), 0);
	desk_count(d);
}

static struct plan_status desk_status(const struct desk *d, uint32_t job)
{
	struct plan_status st;

	CHECK(plan_get_job_status(d->plan, job, &st));
	return st;
}

/* --- jobs that come and go --- */

/* Until all places for keys are taken, by jobs that are over and those that have come after them:
 * keys go when no first epoch is waited for, and that of job 7 does not come. */
static void take_all_places(struct desk *d)
{
	d->is_withheld[7] = true;
	for (int i = 0; i < PLAN_JOBS; i++)
		CHECK_INT(desk_add(d), i);
	desk_settle(d);
	for (uint32_t i = 0; i < 7; i++)
		desk_change(d, i);
	desk_settle(d);
	CHECK_U64(d->plan->top_home, KEYED_MAX - 1);
	desk_change(d, 0);
	desk_settle(d);
	CHECK_U64(d->plan->top_home, KEYED_MAX);
}

/* It waits for a place, instead of all samples being looked at. */
static void an_order_that_finds_no_place_waits_for_one(void)
{
	struct desk d;

	desk_new(&d, 60000, 4000, 0);
	d.plan->work_most = 1000;
	take_all_places(&d);
	d.most = 0;
	desk_change(&d, 1);
	desk_change(&d, 2);
	desk_change(&d, 3);
	plan_end_job(d.plan, 2);
	desk_count(&d);
	CHECK_U64(d.most, 0);
	desk_settle(&d);
	CHECK_U64(desk_status(&d, 1).length, 0);
	CHECK_U64(desk_status(&d, 3).length, 0);
	CHECK(d.plan->n_leaving > 0);

	d.is_withheld[7] = false;
	desk_epoch(&d, &d.epoch[7]);
	desk_settle(&d);
	CHECK_U64(d.plan->n_leaving, 0);
	for (uint32_t i = 0; i < PLAN_JOBS; i++)
		if (i != 2)
			CHECK_U64(desk_status(&d, i).length, d.n);
	/* looked at and put into their sets; and what is fetched beside it */
	CHECK(d.most >= d.plan->work_most);
	CHECK(d.most <= 2 * d.plan->work_most + 256);
	plan_free(d.plan);
}

/* All that is left of it is freed with the plan. */
static void a_plan_may_end_while_one_waits(void)
{
	struct desk d;

	desk_new(&d, 500, 100, 0);
	take_all_places(&d);
	desk_change(&d, 1);
	CHECK_U64(d.plan->jobs[1]->home, NO_HOME);
	desk_change(&d, 1);
	CHECK_U64(d.plan->jobs[1]->home, NO_HOME);
	plan_free(d.plan);
}

/* --- orders that are wrong --- */

static void pushes_of_a_wrong_order_are_forgotten_a_share_at_a_time(void)
{
	struct desk d;

	desk_new(&d, 60000, 20000, 6000);
	d.plan->work_most = 1000;
	CHECK_INT(desk_add(&d), 0);
	desk_settle(&d);
	CHECK(desk_status(&d, 0).stage_bytes == 6000 * PAGE_BYTES);
	d.most = 0;
	for (uint32_t i = 0; desk_status(&d, 0).state != PLAN_LOST; i++)
		desk_read(&d, (30000 + i * 7919) % d.n);
	CHECK_U64(desk_status(&d, 0).stage_bytes, 0);
	CHECK(d.most <= 2 * d.plan->work_most + 256);
	plan_free(d.plan);
}

/* Each reads its own half; the other half is outside. */
static struct order_epoch *epoch_of_half(uint32_t n, uint32_t job, uint64_t epoch)
{
	struct order_epoch *ep = epoch_new(n, epoch, n / 2);

	for (uint32_t i = 0; i < n / 2; i++) {
		ep->sample[i] = i + (job ? n / 2 : 0);
		ep->first[ep->sample[i]] = i;
	}
	return ep;
}

static void what_is_pushed_for_one_job_stays_when_another_one_is_lost(void)
{
	enum { HALF = 640 };
	uint64_t outside[2][2 * HALF / 64] = { { 0 } };
	struct desk d;

	desk_new(&d, 2 * HALF, 2 * HALF, 200);
	d.make = epoch_of_half;
	memset(&outside[0][HALF / 64], 0xff, sizeof(outside[0]) / 2);
	memset(&outside[1][0], 0xff, sizeof(outside[1]) / 2);
	for (int i = 0; i < 2; i++) {
		struct order_info info = info_of(&d);

		info.outside = outside[i];
		CHECK_INT(plan_add_job(d.plan, &info), i);
	}
	desk_settle(&d);
	for (uint32_t i = 0; i < 100; i++) {
		desk_read(&d, i);
		desk_read(&d, HALF + i);
	}
	CHECK_INT(desk_status(&d, 0).state, PLAN_FOLLOWING);
	CHECK_INT(desk_status(&d, 1).state, PLAN_FOLLOWING);
	d.staged[0] = 0;
	for (uint32_t i = 0; desk_status(&d, 1).state != PLAN_LOST; i++) {
		CHECK(i < 400);
		desk_read(&d, HALF + (300 + i * 211) % HALF);
	}
	CHECK_U64(d.staged[0], 0);
	CHECK(desk_status(&d, 0).stage_bytes >= 90 * PAGE_BYTES);
	for (uint32_t i = 100; i < 190; i++)
		CHECK(d.plan->item[i].flags & STAGED);
	plan_free(d.plan);
}

/* --- what does not last --- */

/* A job that told its order late, after reads that do not agree with it: it begins twice, and the
 * second time finds no memory. */
static struct story *begin_without_memory(void)
{
	struct order_info info = { .n = 1200, .world = 1, .n_ranks = 1, .start_epoch = 5 };
	struct plan_params p = story_params(&info);
	struct story *st;

	p.order = NULL;
	st = story_new(p, NULL);
	story_read(st, 9, 0, 100);
	n_trees = 0;
	no_memory_for = SET_COUNT + 1;
	CHECK_INT(plan_add_job(st->plan, &info), 0);
	story_step(st);
	CHECK_U64(n_trees, SET_COUNT + 1);
	CHECK_U64(story_status(st).length, 0);
	CHECK_U64(st->count[PLAN_ACT_FETCH], 0);
	return st;
}

static void an_order_without_memory_begins_when_there_is_some(void)
{
	struct story *st = begin_without_memory();

	no_memory_for = 0;
	CHECK_INT(story_status(st).state, PLAN_WAITING);
	CHECK_U64(story_status(st).lost, 0);
	st->now = st->wake;
	story_step(st);
	story_read(st, 5, 0, 100);
	CHECK_INT(story_status(st).state, PLAN_FOLLOWING);
	CHECK_U64(story_status(st).position, 100);
	story_free(st);
}

/* It is given up, and is nobody's burden: keys of others go. */
static void an_order_that_never_finds_memory_is_lost(void)
{
	struct order_info other = { .n = 1200, .world = 1, .n_ranks = 1, .start_epoch = 30 };
	struct story *st = begin_without_memory();

	for (int i = 0; i < 7; i++) {
		CHECK_INT(story_status(st).state, PLAN_WAITING);
		n_trees = 0;
		st->now = st->wake;
		story_step(st);
		CHECK_U64(n_trees, SET_COUNT + 1);
	}
	no_memory_for = 0;
	CHECK_INT(story_status(st).state, PLAN_LOST);
	CHECK(st->wake > st->now + 3600 * NS_PER_S);
	CHECK_INT(plan_add_job(st->plan, &other), 1);
	story_step(st);
	CHECK_INT(plan_change_job(st->plan, 1, &other), 0);
	story_step(st);
	CHECK_U64(st->plan->n_leaving, 0);
	story_free(st);
}

static void what_is_known_of_later_epochs_ends_with_its_job(void)
{
	uint64_t known;
	struct desk d;

	desk_new(&d, 4000, 3000, 0);
	d.make = epoch_of_a_node;
	CHECK_INT(desk_add(&d), 0);
	desk_settle(&d);
	known = desk_status(&d, 0).epochs_known;
	CHECK(known > 32 && d.plan->later.mask);
	CHECK_U64(d.plan->later.judged, 0); /* no sample comes twice: nothing has to be counted */

	d.make = epoch_of_all;
	CHECK_INT(desk_add(&d), 1);
	CHECK_U64(desk_status(&d, 0).epochs_known, 0);
	plan_end_job(d.plan, 0);
	desk_settle(&d);
	CHECK(!d.plan->later.mask && !d.plan->later.is_leaving && d.plan->later.is_judged);
	CHECK_U64(desk_status(&d, 1).epochs_known, 0);

	d.make = epoch_of_a_node;
	desk_change(&d, 1);
	desk_settle(&d);
	CHECK_U64(desk_status(&d, 1).epochs_known, known);
	plan_free(d.plan);
}

/* A step at a time until something was counted. */
static void begin_to_count(struct desk *d)
{
	for (int i = 0; i < 1000 && !d->plan->later.judged; i++)
		desk_step(d);
	CHECK(d->plan->later.judged && !d->plan->later.is_judged);
}

static void samples_left_out_are_counted_a_share_at_a_time(void)
{
	uint32_t judged, most = 0;
	struct desk d;

	desk_new(&d, 300000, 1000, 0);
	d.make = epoch_of_pairs;
	CHECK_INT(desk_add(&d), 0);
	begin_to_count(&d);
	while (!d.plan->later.is_judged) {
		judged = d.plan->later.judged;
		CHECK(desk_step(&d));
		most = MAX(most, d.plan->later.judged - judged);
	}
	CHECK(most > 0 && most <= 2 * 65536);
	CHECK(d.plan->later.mask != NULL); /* three quarters are left out */
	plan_free(d.plan);
}

/* The count of one order says nothing of the next one. */
static void a_count_that_was_begun_ends_with_its_order(void)
{
	struct desk d;

	desk_new(&d, 300000, 1000, 0);
	d.make = epoch_of_pairs;
	CHECK_INT(desk_add(&d), 0);
	begin_to_count(&d);
	CHECK(d.plan->later.judged_out > d.n / 16);
	d.make = epoch_with_one_pair;
	desk_change(&d, 0);
	CHECK_U64(d.plan->later.judged, 0);
	desk_settle(&d);
	CHECK(d.plan->later.is_judged && !d.plan->later.mask);
	plan_free(d.plan);
}

static const struct check_test tests[] = {
	{ "an_order_that_finds_no_place_waits_for_one",
	  an_order_that_finds_no_place_waits_for_one },
	{ "a_plan_may_end_while_one_waits", a_plan_may_end_while_one_waits },
	{ "pushes_of_a_wrong_order_are_forgotten_a_share_at_a_time",
	  pushes_of_a_wrong_order_are_forgotten_a_share_at_a_time },
	{ "what_is_pushed_for_one_job_stays_when_another_one_is_lost",
	  what_is_pushed_for_one_job_stays_when_another_one_is_lost },
	{ "an_order_without_memory_begins_when_there_is_some",
	  an_order_without_memory_begins_when_there_is_some },
	{ "an_order_that_never_finds_memory_is_lost", an_order_that_never_finds_memory_is_lost },
	{ "what_is_known_of_later_epochs_ends_with_its_job",
	  what_is_known_of_later_epochs_ends_with_its_job },
	{ "samples_left_out_are_counted_a_share_at_a_time",
	  samples_left_out_are_counted_a_share_at_a_time },
	{ "a_count_that_was_begun_ends_with_its_order",
	  a_count_that_was_begun_ends_with_its_order },
};
CHECK_MAIN(tests)
