/* SPDX-License-Identifier: Apache-2.0 */
/* Several jobs that read one dataset through one plan, each in orders of its own: hits against
 * exact MIN over the sequence in which they really read, where paces are alike and where they are
 * not; jobs that come later and end earlier. Every answer comes at once and time is what the test
 * says, so these are counts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/ids.h"
#include "clairfs/base/tree.h"
#include "clairfs/plan.h"

#define N 8000u
#define EPOCHS 8u
#define JOBS 4u

struct crowd {
	uint32_t jobs, pace[JOBS]; /* reads of a job per round */
	uint64_t capacity, now, fetched, missed, reads;
	uint32_t *order[JOBS]; /* [EPOCHS * N] */
	uint64_t at[JOBS];     /* reads so far */
	uint32_t *line;        /* [JOBS * EPOCHS * N] all reads, as they come */
	struct plan *plan;
	bool is_there[N];
};

static void crowd_init(struct crowd *c, uint64_t seed)
{
	uint64_t state = seed;

	for (uint32_t j = 0; j < c->jobs; j++) {
		c->order[j] = calloc(EPOCHS * N, sizeof(uint32_t));
		c->at[j] = 0;
		for (uint32_t e = 0; e < EPOCHS; e++) {
			uint32_t *o = c->order[j] + e * N;

			for (uint32_t i = 0; i < N; i++) {
				uint32_t k = (uint32_t)check_rand_below(&state, i + 1);

				o[i] = o[k];
				o[k] = i;
			}
		}
	}
	c->line = calloc((size_t)JOBS * EPOCHS * N, sizeof(uint32_t));
	c->now = NS_PER_S;
}

static void crowd_fini(struct crowd *c)
{
	plan_free(c->plan);
	for (uint32_t j = 0; j < c->jobs; j++)
		free(c->order[j]);
	free(c->line);
}

static struct order_epoch *crowd_epoch(const struct crowd *c, uint32_t job, uint64_t epoch)
{
	struct order_epoch *ep = calloc(1, sizeof(*ep));

	CHECK(job < c->jobs && epoch < EPOCHS);
	*ep = (struct order_epoch){ .epoch = epoch, .length = N, .n = N };
	ep->sample = calloc(N, sizeof(uint32_t));
	ep->first = calloc(N, sizeof(uint32_t));
	memcpy(ep->sample, c->order[job] + epoch * N, N * sizeof(uint32_t));
	for (uint32_t i = 0; i < N; i++)
		ep->first[ep->sample[i]] = i;
	return ep;
}

static void crowd_answer(struct crowd *c, const struct plan_action *a)
{
	struct plan_event ev = { .unit = a->unit, .latency_ns = NS_PER_MS };

	switch (a->kind) {
	case PLAN_ACT_FETCH:
		CHECK(!c->is_there[a->unit.v]);
		c->fetched += !a->is_adopted;
		c->is_there[a->unit.v] = true;
		ev.kind = PLAN_EV_FETCHED;
		break;
	case PLAN_ACT_EPOCH:
		ev.kind = PLAN_EV_EPOCH;
		ev.epoch = a->epoch;
		ev.job = a->job;
		ev.version = a->version;
		ev.order_epoch = crowd_epoch(c, a->job, a->epoch);
		break;
	default:
		CHECK_INT(a->kind, PLAN_ACT_DROP);
		CHECK(c->is_there[a->unit.v]);
		c->is_there[a->unit.v] = false;
		return;
	}
	plan_event(c->plan, c->now, &ev);
}

static void crowd_step(struct crowd *c)
{
	uint64_t wake;
	bool is_busy;

	do {
		struct plan_action a;

		is_busy = false;
		wake = plan_step(c->plan, c->now);
		while (plan_next_action(c->plan, &a)) {
			crowd_answer(c, &a);
			is_busy = true;
		}
	} while (is_busy || wake <= c->now);
}

static void crowd_read(struct crowd *c, uint32_t job)
{
	uint32_t sample = c->order[job][c->at[job]++];

	c->line[c->reads++] = sample;
	c->missed += !c->is_there[sample];
	plan_event(c->plan, c->now,
		   &(struct plan_event){ .kind = PLAN_EV_OPENED, .unit = { sample } });
	crowd_step(c);
}

static void crowd_plan(struct crowd *c)
{
	struct order_info info = { .n = N, .world = 1, .n_ranks = 1, .epochs = EPOCHS };
	uint64_t size[N] = { 0 };
	struct plan_params p = { .n = N,
				 .size = size,
				 .order = &info,
				 .arena_bytes = c->capacity * 4096,
				 .inflight_min = 4,
				 .inflight_max = 4,
				 .span = 8 };

	CHECK_INT(plan_new(&p, &c->plan), 0);
	for (uint32_t j = 1; j < c->jobs; j++)
		CHECK_INT(plan_add_job(c->plan, &info), (int)j);
	crowd_step(c);
}

static double crowd_run(struct crowd *c)
{
	bool is_busy = true;

	crowd_plan(c);
	while (is_busy) {
		is_busy = false;
		c->now += NS_PER_MS;
		for (uint32_t j = 0; j < c->jobs; j++)
			for (uint32_t i = 0; i < c->pace[j] && c->at[j] < EPOCHS * N; i++) {
				crowd_read(c, j);
				is_busy = true;
			}
	}
	return 1 - (double)(c->fetched + c->missed) / (double)c->reads;
}

/* Exact MIN with bypass over the line. */
static double crowd_min(const struct crowd *c)
{
	uint32_t *next = calloc(c->reads, sizeof(*next)), last[N], key[N];
	struct tree kept;
	uint64_t hits = 0;

	for (uint32_t s = 0; s < N; s++)
		last[s] = key[s] = (uint32_t)(c->reads + s);
	for (uint64_t i = c->reads; i-- > 0;) {
		next[i] = last[c->line[i]];
		last[c->line[i]] = (uint32_t)i;
	}
	CHECK_INT(tree_init(&kept, c->reads + N), 0);
	for (uint64_t i = 0; i < c->reads; i++) {
		uint32_t s = c->line[i];
		uint64_t farthest;

		if (key[s] == i && tree_get(&kept, i)) {
			tree_clear(&kept, i);
			hits++;
		}
		key[s] = next[i];
		tree_set(&kept, next[i]);
		farthest = kept.count > c->capacity ? tree_max(&kept) : NO_POS;
		if (farthest != NO_POS)
			tree_clear(&kept, farthest);
	}
	tree_fini(&kept);
	free(next);
	return (double)hits / (double)c->reads;
}

static void compare(const uint32_t *pace, uint32_t jobs, double fraction, uint64_t seed)
{
	struct crowd c = { .jobs = jobs, .capacity = (uint64_t)(fraction * N) };
	double ours, best;

	memcpy(c.pace, pace, jobs * sizeof(*pace));
	crowd_init(&c, seed);
	ours = crowd_run(&c);
	best = crowd_min(&c);
	printf("# %u jobs, the second %u times as fast, memory %.2f: hits %.4f, MIN %.4f\n", jobs,
	       pace[1], fraction, ours, best);
	CHECK(ours >= best - 0.02);
	CHECK(ours <= best + 1e-9);
	crowd_fini(&c);
}

static void hits_of_jobs_in_step_are_near_exact_min(void)
{
	static const uint32_t pace[JOBS] = { 1, 1, 1, 1 };
	static const double fractions[] = { .1, .25, .5 };
	uint64_t seed = check_seed();

	for (uint32_t i = 0; i < ARRAY_LEN(fractions); i++) {
		compare(pace, 2, fractions[i], seed + i);
		compare(pace, 4, fractions[i], seed + i);
	}
}

static void hits_of_jobs_of_different_pace_are_near_exact_min(void)
{
	static const uint32_t pace[JOBS] = { 1, 3, 2, 1 };
	uint64_t seed = check_seed();

	compare(pace, 2, .25, seed);
	compare(pace, 4, .25, seed);
	compare(pace, 4, .5, seed);
}

static struct plan_status status_of(struct crowd *c, uint32_t job)
{
	struct plan_status st;

	CHECK(plan_get_job_status(c->plan, job, &st));
	return st;
}

static void each_job_is_followed_by_itself(void)
{
	struct crowd c = { .jobs = 3, .pace = { 1, 1, 1 }, .capacity = N / 4 };

	crowd_init(&c, check_seed());
	crowd_plan(&c);
	/* The first starts alone; the third reads twice as fast as the second. */
	for (uint32_t i = 0; i < 600; i++) {
		c.now += NS_PER_MS;
		crowd_read(&c, 0);
		if (i >= 200)
			crowd_read(&c, 1);
		if (i >= 200)
			crowd_read(&c, 2);
		if (i >= 200)
			crowd_read(&c, 2);
	}
	for (uint32_t j = 0; j < 3; j++) {
		struct plan_status st = status_of(&c, j);

		CHECK_INT(st.state, PLAN_FOLLOWING);
		/* Where two jobs are about to read the same sample, the wrong one may get it. */
		CHECK(st.position <= c.at[j] + 8 && st.position + 2 * 8 >= c.at[j]);
		CHECK(st.mismatches <= 2);
		CHECK_U64(st.other_percent, 0);
	}
	crowd_fini(&c);
}

static void a_job_that_ends_leaves_and_the_others_go_on(void)
{
	struct crowd c = { .jobs = 2, .pace = { 1, 1 }, .capacity = N / 2 };
	struct order_info info = { .n = N, .world = 1, .n_ranks = 1, .epochs = EPOCHS };
	struct plan_status st;

	crowd_init(&c, check_seed());
	crowd_plan(&c);
	for (uint32_t i = 0; i < N / 2; i++) {
		c.now += NS_PER_MS;
		crowd_read(&c, 0);
		crowd_read(&c, 1);
	}
	plan_end_job(c.plan, 1);
	CHECK(!plan_get_job_status(c.plan, 1, &st));
	for (uint32_t i = 0; i < 2 * N; i++) {
		c.now += NS_PER_MS;
		crowd_read(&c, 0);
	}
	CHECK_INT(status_of(&c, 0).state, PLAN_FOLLOWING);
	/* Its place is another one's, who starts at the beginning. */
	c.at[1] = 0;
	CHECK_INT(plan_add_job(c.plan, &info), 1);
	crowd_step(&c);
	for (uint32_t i = 0; i < N / 2; i++) {
		c.now += NS_PER_MS;
		crowd_read(&c, 0);
		crowd_read(&c, 1);
	}
	CHECK_INT(status_of(&c, 1).state, PLAN_FOLLOWING);
	CHECK(status_of(&c, 1).position >= N / 2 - 16 && status_of(&c, 1).position <= N / 2 + 8);
	/* One that has read all of it leaves by itself. */
	while (c.at[0] < (uint64_t)EPOCHS * N) {
		c.now += NS_PER_MS;
		crowd_read(&c, 0);
	}
	crowd_read(&c, 1);
	CHECK_INT(status_of(&c, 0).state, PLAN_FINISHED);
	plan_get_status(c.plan, &st);
	CHECK_INT(st.state, PLAN_FOLLOWING);
	CHECK_U64(st.epoch, 0);
	crowd_fini(&c);
}

static void no_more_jobs_than_there_are_places(void)
{
	struct order_info info = { .n = N, .world = 1, .n_ranks = 1, .epochs = EPOCHS }, other;
	struct crowd c = { .jobs = 1, .capacity = N / 2 };

	crowd_init(&c, check_seed());
	crowd_plan(&c);
	for (int j = 1; j < PLAN_JOBS; j++)
		CHECK_INT(plan_add_job(c.plan, &info), j);
	CHECK_INT(plan_add_job(c.plan, &info), -ENOSPC);
	other = info;
	other.n = N - 1;
	CHECK_INT(plan_add_job(c.plan, &other), -EINVAL);
	plan_end_job(c.plan, 3);
	CHECK_INT(plan_add_job(c.plan, &info), 3);
	crowd_fini(&c);
}

/* The first one's place, too. */
static void the_place_of_the_first_job_is_another_ones_later(void)
{
	struct order_info info = { .n = N, .world = 1, .n_ranks = 1, .epochs = EPOCHS };
	struct crowd c = { .jobs = 2, .pace = { 1, 1 }, .capacity = N / 4 };
	struct plan_use use;

	crowd_init(&c, check_seed());
	crowd_plan(&c);
	for (uint32_t i = 0; i < 1000; i++) {
		c.now += NS_PER_MS;
		crowd_read(&c, 0);
		crowd_read(&c, 1);
	}
	plan_end_job(c.plan, 0);
	CHECK(!plan_get_job_status(c.plan, 0, &(struct plan_status){ 0 }));
	CHECK_U64(status_of(&c, 1).placed, 1000);
	crowd_read(&c, 1);
	CHECK(plan_last_use(c.plan, &use));
	CHECK_U64(use.job, 1);
	CHECK_U64(use.position, 1000);
	CHECK_INT(plan_add_job(c.plan, &info), 0);
	c.at[0] = 0;
	crowd_step(&c);
	for (uint32_t i = 0; i < 1000; i++) {
		c.now += NS_PER_MS;
		crowd_read(&c, 0);
		crowd_read(&c, 1);
	}
	for (uint32_t j = 0; j < 2; j++)
		CHECK_INT(status_of(&c, j).state, PLAN_FOLLOWING);
	CHECK(status_of(&c, 0).position + 16 >= 1000);
	crowd_fini(&c);
}

/* Its last position was read, a few before it were given to another job. */
static void a_job_that_is_quiet_at_its_end_leaves(void)
{
	struct crowd c = { .jobs = 2, .pace = { 1, 1 }, .capacity = N / 4 };

	crowd_init(&c, check_seed());
	crowd_plan(&c);
	while (c.at[1] < (uint64_t)EPOCHS * N) {
		c.now += NS_PER_MS;
		if (c.at[1] % 2 == 0 && c.at[0] < (uint64_t)EPOCHS * N / 2)
			crowd_read(&c, 0);
		if (c.at[1] + 5 == (uint64_t)EPOCHS * N)
			c.at[1] += 2; /* not heard of */
		crowd_read(&c, 1);
	}
	CHECK(!status_of(&c, 1).is_over);
	c.now += 3 * NS_PER_S;
	crowd_step(&c);
	CHECK(status_of(&c, 1).is_over);
	CHECK_INT(status_of(&c, 1).state, PLAN_FINISHED);
	CHECK_INT(status_of(&c, 0).state, PLAN_FOLLOWING);
	crowd_fini(&c);
}

/* It has read for a while when it is added: what no other job was expected to read is its own. */
static void a_job_that_comes_late_is_shown_where_it_is(void)
{
	struct order_info info = { .n = N, .world = 1, .n_ranks = 1, .epochs = EPOCHS };
	struct crowd c = { .jobs = 2, .pace = { 1, 1 }, .capacity = N / 4 };
	struct plan_use use;

	crowd_init(&c, check_seed());
	crowd_plan(&c);
	plan_end_job(c.plan, 1);
	for (uint32_t i = 0; i < 1000; i++) {
		c.now += NS_PER_MS;
		crowd_read(&c, 0);
		crowd_read(&c, 1);
	}
	CHECK_INT(plan_add_job(c.plan, &info), 1);
	crowd_step(&c);
	CHECK(!plan_last_use(c.plan, &use));
	CHECK_INT(status_of(&c, 0).state, PLAN_FOLLOWING);
	CHECK(status_of(&c, 0).position >= 1000 - 8 && status_of(&c, 0).position <= 1000 + 8);
	CHECK_INT(status_of(&c, 1).state, PLAN_FOLLOWING);
	CHECK(status_of(&c, 1).position >= 1000 - 16 && status_of(&c, 1).position <= 1000 + 8);
	crowd_fini(&c);
}

static const struct check_test tests[] = {
	{ "hits_of_jobs_in_step_are_near_exact_min", hits_of_jobs_in_step_are_near_exact_min },
	{ "hits_of_jobs_of_different_pace_are_near_exact_min",
	  hits_of_jobs_of_different_pace_are_near_exact_min },
	{ "each_job_is_followed_by_itself", each_job_is_followed_by_itself },
	{ "a_job_that_ends_leaves_and_the_others_go_on",
	  a_job_that_ends_leaves_and_the_others_go_on },
	{ "no_more_jobs_than_there_are_places", no_more_jobs_than_there_are_places },
	{ "the_place_of_the_first_job_is_another_ones_later",
	  the_place_of_the_first_job_is_another_ones_later },
	{ "a_job_that_is_quiet_at_its_end_leaves", a_job_that_is_quiet_at_its_end_leaves },
	{ "a_job_that_comes_late_is_shown_where_it_is",
	  a_job_that_comes_late_is_shown_where_it_is },
};

CHECK_MAIN(tests)
