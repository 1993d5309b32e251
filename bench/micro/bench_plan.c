/* SPDX-License-Identifier: Apache-2.0 */
/* What the plan costs per read: (1) evict-last-and-insert in the set of residents, at 10^6 and 10^7
 * positions, half of them resident; (2) a whole open at 10^6 samples with half of them in the
 * arena: the OPENED event, the step, and whatever fetches, stages and drops it leads to with their
 * answers, over two epochs of a shuffled order; taking in a new epoch is part of it; (3) the same
 * for one node of 16, where the first epoch also takes in the 64 epochs that are looked ahead; (4)
 * the longest single call of the plan while a second job comes, and goes: for so long nothing else
 * is decided.
 * Everything is in one thread on one object, as in the planner thread. Beside it: bytes per sample,
 * of the plan itself and with the epochs it has loaded.
 *
 * Time is the thread's CPU time, so that a busy machine matters less. One JSON line per result,
 * with what it should be at most. */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/plan/plan_priv.h"

#define ROUNDS 5
#define SAMPLES 1000000u

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* target: what it should be at most, 0: none. */
static void report(const char *name, uint64_t n, double target, double *values, int rounds)
{
	qsort(values, (size_t)rounds, sizeof(*values), compare_double);
	printf("{\"name\": \"%s\", \"unit\": \"ns\", \"n\": %" PRIu64
	       ", \"value\": %.1f, \"best\": %.1f, \"worst\": %.1f, \"target\": %.0f}\n",
	       name, n, values[rounds / 2], values[0], values[rounds - 1], target);
}

/* A random member or non-member turned over. */
static uint64_t tree_flip_random(struct tree *t, uint64_t *state, bool is_member)
{
	for (;;) {
		uint64_t bit = (*state = mix(*state)) % t->size;

		if (tree_get(t, bit) != is_member)
			continue;
		if (is_member)
			tree_clear(t, bit);
		else
			tree_set(t, bit);
		return bit;
	}
}

static void bench_tree(uint64_t n)
{
	uint64_t ops = n / 20, state = 1, *bits = calloc(ops, sizeof(*bits));
	double values[ROUNDS];

	for (int round = 0; round < ROUNDS; round++) {
		struct tree t;
		double began;

		if (tree_init(&t, n) < 0 || !bits)
			abort();
		for (uint64_t i = 0; i < n / 2; i++)
			tree_flip_random(&t, &state, false);
		for (uint64_t i = 0; i < ops; i++)
			bits[i] = tree_flip_random(&t, &state, false);
		for (uint64_t i = 0; i < ops; i++)
			tree_clear(&t, bits[i]);
		began = now_ns();
		for (uint64_t i = 0; i < ops; i++) {
			tree_clear(&t, tree_max(&t));
			tree_set(&t, bits[i]);
		}
		values[round] = (now_ns() - began) / (double)ops;
		tree_fini(&t);
	}
	report("plan_evict_insert", n, 80, values, ROUNDS);
	free(bits);
}

/* One node's part of an epoch that is shuffled. */
static struct order_epoch *epoch_new(uint32_t n, uint32_t length, uint64_t epoch)
{
	struct order_epoch *ep = calloc(1, sizeof(*ep));
	uint64_t state = mix(epoch);

	if (!ep)
		abort();
	*ep = (struct order_epoch){ .epoch = epoch, .length = length, .n = n };
	ep->sample = mem_alloc(n, sizeof(uint32_t)); /* as orders do */
	ep->first = mem_alloc(n, sizeof(uint32_t));
	if (!ep->sample || !ep->first)
		abort();
	for (uint32_t i = 0; i < n; i++)
		ep->sample[i] = i;
	for (uint32_t i = n; i > 1; i--) {
		uint32_t j = (uint32_t)((state = mix(state)) % i), t = ep->sample[i - 1];

		ep->sample[i - 1] = ep->sample[j];
		ep->sample[j] = t;
	}
	memset(ep->first, 0xff, n * sizeof(*ep->first));
	for (uint32_t i = 0; i < length; i++)
		ep->first[ep->sample[i]] = i;
	return ep;
}

struct run {
	struct plan *plan;
	uint32_t n, world;
	uint64_t now;
	double away_ns; /* spent computing epochs, which is not the plan's work */
};

/* What the plan has decided, done at once. */
static void run_answer(struct run *r)
{
	struct plan_action a;

	while (plan_next_action(r->plan, &a)) {
		struct plan_event ev = { .unit = a.unit,
					 .epoch = a.epoch,
					 .job = a.job,
					 .version = a.version,
					 .latency_ns = 1000000 };
		double began;

		switch (a.kind) {
		case PLAN_ACT_FETCH:
			ev.kind = PLAN_EV_FETCHED;
			break;
		case PLAN_ACT_STAGE:
			ev.kind = PLAN_EV_STAGED;
			break;
		case PLAN_ACT_PIN:
			ev.kind = PLAN_EV_PINNED;
			break;
		case PLAN_ACT_DROP:
		case PLAN_ACT_COME:
			continue;
		case PLAN_ACT_EPOCH:
			began = now_ns();
			ev.kind = PLAN_EV_EPOCH;
			ev.order_epoch = epoch_new(r->n, r->n / r->world, a.epoch + 100 * a.job);
			ev.order_epoch->epoch = a.epoch;
			r->away_ns += now_ns() - began;
			break;
		}
		plan_event(r->plan, r->now, &ev);
	}
}

static uint64_t run_step(struct run *r)
{
	uint64_t wake = plan_step(r->plan, r->now);

	run_answer(r);
	return wake;
}

/* Until it wants nothing more now. */
static void run_settle(struct run *r)
{
	while (run_step(r) <= r->now || r->plan->action_count)
		;
	for (uint64_t issued = 0; issued != r->plan->issued;) {
		issued = r->plan->issued;
		run_step(r);
	}
}

static void bench_open(uint32_t world)
{
	struct order_info info = { .n = SAMPLES, .world = world, .n_ranks = 1 };
	uint32_t length = SAMPLES / world;
	uint64_t *size = calloc(SAMPLES, sizeof(*size));
	struct plan_params params = { .n = SAMPLES,
				      .size = size,
				      .order = &info,
				      .arena_bytes = length / 2 * 4096ull,
				      .stage_bytes = 4096 * 4096ull,
				      .inflight_min = 64,
				      .inflight_max = 256,
				      .span = 1024 };
	double values[2], worst = 0;
	struct run r = { .n = SAMPLES, .now = 1000, .world = world };
	size_t before, used;
	double epoch_bytes;

	if (!size)
		abort();
	before = mallinfo2().uordblks + mallinfo2().hblkhd;
	if (plan_new(&params, &r.plan) < 0)
		abort();
	run_settle(&r);
	used = mallinfo2().uordblks + mallinfo2().hblkhd - before;
	/* of each epoch that is loaded, 4 per position and 4 per sample */
	epoch_bytes = (4 + 4.0 / world) *
		      ((r.plan->jobs[0]->slots[0].ep != NULL) + (r.plan->jobs[0]->slots[1].ep != NULL));
	for (int round = 0; round < 2; round++) {
		struct order_epoch *ep = epoch_new(SAMPLES, length, (uint64_t)round);
		double began = now_ns();

		r.away_ns = 0;
		for (uint32_t i = 0; i < length; i++) {
			struct plan_event ev = { .kind = PLAN_EV_OPENED, .unit = { ep->sample[i] } };
			double t = i % 16 ? 0 : now_ns(), away = r.away_ns, took;

			r.now += 20000;
			plan_event(r.plan, r.now, &ev);
			run_step(&r);
			took = t ? now_ns() - t - (r.away_ns - away) : 0;
			worst = MAX(took, worst);
		}
		values[round] = (now_ns() - began - r.away_ns) / length;
		order_epoch_free(ep);
	}
	report(world > 1 ? "plan_open_of_16_nodes" : "plan_open", SAMPLES, 1000, values, 2);
	printf("{\"name\": \"plan_memory\", \"unit\": \"bytes/sample\", \"n\": %u, \"world\": %u, "
	       "\"value\": %.1f, \"with_epochs\": %.1f, \"target\": %.1f}\n",
	       SAMPLES, world, (double)used / SAMPLES - epoch_bytes, (double)used / SAMPLES,
	       world > 1 ? 12.75 + 8.0 / world + 8 : 20.75);
	printf("{\"name\": \"plan_open_worst_sampled\", \"unit\": \"ns\", \"n\": %u, \"value\": %.0f}\n",
	       SAMPLES, worst);
	plan_free(r.plan);
	free(size);
}

/* The longest call until nothing more is wanted, beside `most`. */
static double pause_settle(struct run *r, double most)
{
	uint64_t wake;

	do {
		double began = now_ns();

		/* Actions are handed out and answered in calls of their own, which are many. */
		wake = plan_step(r->plan, r->now);
		most = MAX(most, now_ns() - began);
		run_answer(r);
	} while (wake <= r->now || r->plan->action_count);
	return most;
}

static void bench_jobs(uint32_t n, int rounds)
{
	struct order_info info = { .n = n, .world = 1, .n_ranks = 1, .epochs = 9 };
	uint64_t *size = calloc(n, sizeof(*size));
	struct plan_params params = { .n = n,
				      .size = size,
				      .order = &info,
				      .arena_bytes = n / 2 * 4096ull,
				      .stage_bytes = 4096 * 4096ull,
				      .inflight_min = 64,
				      .inflight_max = 256,
				      .span = 1024 };
	struct run r = { .n = n, .now = 1000, .world = 1 };
	double come[ROUNDS], go[ROUNDS];

	if (!size || plan_new(&params, &r.plan) < 0)
		abort();
	free(size);
	run_settle(&r);
	for (int round = 0; round < rounds; round++) {
		double began = now_ns();
		int job = plan_add_job(r.plan, &info);

		if (job < 0)
			abort();
		come[round] = pause_settle(&r, now_ns() - began);
		began = now_ns();
		plan_end_job(r.plan, (uint32_t)job);
		go[round] = pause_settle(&r, now_ns() - began);
	}
	report("plan_pause_job_comes", n, 2e6, come, rounds);
	report("plan_pause_job_goes", n, 2e6, go, rounds);
	plan_free(r.plan);
}

int main(void)
{
	bench_tree(1000000);
	bench_tree(10000000);
	bench_open(1);
	bench_open(16);
	bench_jobs(SAMPLES, ROUNDS);
	bench_jobs(10 * SAMPLES, 1);
	return 0;
}
