/* SPDX-License-Identifier: Apache-2.0 */
/* The plan with the real arena, larger than main memory may be (its pages are never touched).
 * Samples of mixed sizes leave holes in it, so it refuses before the plan's budget is used up. */
#include <errno.h>
#include <stdlib.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "clairfs/order.h"
#include "clairfs/plan.h"
#include "clairfs/tier.h"

#define RAM (4608ull << 20)
#define LARGEST (1u << 20)
#define MEAN 110000u
#define SPEC "torch-distributed:seed=1:world=1:ranks=0:batch=16:workers=4"
#define READ_NS 200000u

struct job {
	uint32_t n, *size;
	void **mem;
	bool *in_kernel;
	struct order *order;
	struct arena *arena;
	struct plan *plan;
	uint64_t now, fetches, refused, opens, hits;
};

/* 5 to 660 KiB, the mean is MEAN: most are small and a few large, as image files are. */
static uint32_t some_size(uint64_t *state)
{
	uint32_t octave = (uint32_t)(check_rand_below(state, 4) + check_rand_below(state, 4));
	uint64_t base = 5200ull << octave;

	return (uint32_t)(base + check_rand_below(state, base));
}

static struct job *job_new(uint64_t budget)
{
	struct job *j = calloc(1, sizeof(*j));
	struct order_params op = { .n = (uint32_t)(2 * RAM / MEAN) };
	struct order_spec *spec;
	uint64_t *size = calloc(op.n, sizeof(*size)), state = 7;
	struct err err;

	j->n = (uint32_t)op.n;
	j->now = NS_PER_S;
	j->size = calloc(j->n, sizeof(*j->size));
	j->mem = calloc(j->n, sizeof(*j->mem));
	j->in_kernel = calloc(j->n, sizeof(*j->in_kernel));
	for (uint32_t i = 0; i < j->n; i++)
		size[i] = j->size[i] = some_size(&state);
	CHECK_INT(order_spec_parse(SPEC, &spec, &err), 0);
	CHECK_INT(order_new(spec, &op, &j->order, &err), 0);
	order_spec_free(spec);
	CHECK_INT(arena_new(RAM, &j->arena, &err), 0);
	CHECK_INT(plan_new(&(struct plan_params){ .n = j->n,
						  .size = size,
						  .order = order_info(j->order),
						  .arena_bytes = budget,
						  .stage_bytes = RAM / 4,
						  .inflight_min = 4,
						  .inflight_max = 48 },
			   &j->plan),
		  0);
	free(size);
	return j;
}

static void job_free(struct job *j)
{
	for (uint32_t i = 0; i < j->n; i++)
		if (j->mem[i])
			arena_release(j->arena, j->mem[i], j->size[i]);
	plan_free(j->plan);
	arena_free(j->arena);
	order_free(j->order);
	free(j->mem);
	free(j->in_kernel);
	free(j->size);
	free(j);
}

static void job_answer(struct job *j, const struct plan_action *a)
{
	struct plan_event ev = { .unit = a->unit, .epoch = a->epoch };
	struct err err;

	switch (a->kind) {
	case PLAN_ACT_FETCH:
		ev.kind = PLAN_EV_FETCHED;
		ev.latency_ns = 5 * NS_PER_MS;
		ev.bytes = j->size[a->unit.v];
		j->mem[a->unit.v] = arena_alloc(j->arena, j->size[a->unit.v]);
		ev.status = j->mem[a->unit.v] ? 0 : -ENOMEM;
		j->refused += ev.status < 0;
		j->fetches++;
		break;
	case PLAN_ACT_STAGE:
		j->in_kernel[a->unit.v] = true;
		ev.kind = PLAN_EV_STAGED;
		break;
	case PLAN_ACT_EPOCH:
		ev.kind = PLAN_EV_EPOCH;
		ev.status = order_epoch_new(j->order, a->epoch, &ev.order_epoch, &err);
		break;
	default:
		arena_release(j->arena, j->mem[a->unit.v], j->size[a->unit.v]);
		j->mem[a->unit.v] = NULL;
		return;
	}
	plan_event(j->plan, j->now, &ev);
}

static void job_step(struct job *j)
{
	struct plan_action a;

	plan_step(j->plan, j->now);
	while (plan_next_action(j->plan, &a))
		job_answer(j, &a);
	j->now += READ_NS;
}

static void job_read(struct job *j, uint64_t epoch)
{
	struct order_epoch *ep;
	struct err err;

	j->fetches = j->refused = j->opens = j->hits = 0;
	CHECK_INT(order_epoch_new(j->order, epoch, &ep, &err), 0);
	for (uint64_t i = 0; i < ep->length; i++) {
		job_step(j);
		job_step(j);
		j->opens++;
		j->hits += j->mem[ep->sample[i]] || j->in_kernel[ep->sample[i]];
		j->in_kernel[ep->sample[i]] = false;
		plan_event(j->plan, j->now,
			   &(struct plan_event){ .kind = PLAN_EV_OPENED,
						 .unit = { ep->sample[i] } });
	}
	order_epoch_free(ep);
}

static void an_arena_with_holes_is_no_end_of_prefetching(void)
{
	/* one percent and a bit is left: much less than the holes take */
	struct job *j = job_new(RAM - (64ull << 20));
	uint64_t refused = 0;

	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		job_read(j, epoch);
		CHECK(j->hits * 1000 >= j->opens * 995);
		CHECK(j->refused * 100 <= j->fetches);
		refused += j->refused;
	}
	CHECK(refused > 0); /* else the arena never was full and this shows nothing */
	job_free(j);
}

static void a_tenth_left_over_is_enough_for_the_holes(void)
{
	struct job *j = job_new(RAM - RAM / 10);

	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		job_read(j, epoch);
		CHECK(j->hits * 1000 >= j->opens * 995);
		CHECK(j->refused * 1000 <= j->fetches);
	}
	job_free(j);
}

static const struct check_test tests[] = {
	{ "an_arena_with_holes_is_no_end_of_prefetching",
	  an_arena_with_holes_is_no_end_of_prefetching },
	{ "a_tenth_left_over_is_enough_for_the_holes", a_tenth_left_over_is_enough_for_the_holes },
};
CHECK_MAIN(tests)
