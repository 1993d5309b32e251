/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the plan a story by hand: reads, answers, time; records what it wants. Header-only, for
 * tests/unit/test_plan_*.c.
 *
 * Samples are one page each unless sizes are given. Epoch 0 reads sample p at position p, the
 * others are shuffled (all are like epoch 0 with is_unshuffled). What the plan asks for is answered
 * at once where is_auto says so, and counted; the rest waits in log[] for the test. */
#ifndef CLAIRFS_TESTS_PLAN_STORY_H
#define CLAIRFS_TESTS_PLAN_STORY_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/ids.h"
#include "clairfs/plan.h"

#define STORY_LOG 20000
#define STORY_EPOCHS 80

struct story {
	struct plan *plan;
	uint32_t n;
	uint32_t n_order; /* of these the order has the first ones; 0: all */
	bool is_unshuffled;
	uint32_t *order[STORY_EPOCHS];
	uint64_t now, *size;
	uint64_t start_epoch, start; /* where the job begins */
	bool *is_there;   /* in memory, by sample */
	bool *in_kernel;  /* pushed and neither opened nor reported as dropped */
	uint64_t byte_ns; /* of a fetch per byte, instead of a millisecond in all */
	bool is_auto[6];  /* by enum plan_action_kind */
	uint64_t count[6];
	bool is_of_records; /* units are pushed whole where they may be */
	bool *is_whole;     /* in_kernel, so that nobody hears of its reader */
	uint32_t *n_come;   /* how often each was said to have been read */
	bool *was_there;    /* is_there then */
	uint32_t mark;      /* actions on samples from this one on are counted apart */
	uint64_t marked[6]; /* likewise by kind */
	struct plan_action log[STORY_LOG]; /* not answered automatically, and all DROPs */
	uint32_t n_log;
	uint64_t wake;
};

static inline uint32_t story_sample(struct story *st, uint64_t epoch, uint64_t pos)
{
	uint64_t state = epoch;

	uint32_t n = st->n_order ? st->n_order : st->n;

	CHECK(epoch < STORY_EPOCHS && pos < n);
	if (!st->order[epoch]) {
		st->order[epoch] = calloc(st->n, sizeof(uint32_t));
		for (uint32_t i = 0; i < n; i++)
			st->order[epoch][i] = i;
		for (uint32_t i = n; i > 1 && epoch && !st->is_unshuffled; i--) {
			uint32_t j = (uint32_t)check_rand_below(&state, i), t = st->order[epoch][j];

			st->order[epoch][j] = st->order[epoch][i - 1];
			st->order[epoch][i - 1] = t;
		}
	}
	return st->order[epoch][pos];
}

static inline struct order_epoch *story_epoch(struct story *st, uint64_t epoch)
{
	struct order_epoch *ep = calloc(1, sizeof(*ep));

	*ep = (struct order_epoch){ .epoch = epoch, .n = st->n };
	ep->length = st->n_order ? st->n_order : st->n;
	ep->start = epoch == st->start_epoch ? MIN(st->start, ep->length) : 0;
	ep->sample = calloc(st->n, sizeof(uint32_t));
	ep->first = calloc(st->n, sizeof(uint32_t));
	memset(ep->first, 0xff, st->n * sizeof(uint32_t)); /* SAMPLE_NONE */
	for (uint32_t p = 0; p < ep->length; p++) {
		ep->sample[p] = story_sample(st, epoch, p);
		ep->first[ep->sample[p]] = p;
	}
	return ep;
}

static inline void story_event(struct story *st, struct plan_event ev)
{
	plan_event(st->plan, st->now, &ev);
}

static inline void story_fetched(struct story *st, uint32_t sample, int status)
{
	st->is_there[sample] = status == 0;
	story_event(st,
		    (struct plan_event){ .kind = PLAN_EV_FETCHED,
					 .unit = { sample },
					 .status = status,
					 .latency_ns = st->byte_ns ? st->byte_ns * st->size[sample]
								   : NS_PER_MS,
					 .bytes = st->size[sample] });
}

static inline void story_answer(struct story *st, const struct plan_action *a)
{
	switch (a->kind) {
	case PLAN_ACT_FETCH:
		story_fetched(st, a->unit.v, 0);
		break;
	case PLAN_ACT_STAGE:
		st->in_kernel[a->unit.v] = true;
		st->is_whole[a->unit.v] = st->is_of_records && a->may_be_whole;
		story_event(st, (struct plan_event){ .kind = PLAN_EV_STAGED,
						     .unit = a->unit,
						     .status = st->is_whole[a->unit.v] ? PLAN_STAGED_WHOLE : 0 });
		break;
	case PLAN_ACT_COME:
		st->n_come[a->unit.v]++;
		st->was_there[a->unit.v] = st->is_there[a->unit.v];
		break;
	case PLAN_ACT_PIN:
		story_event(st, (struct plan_event){ .kind = PLAN_EV_PINNED, .unit = a->unit });
		break;
	case PLAN_ACT_EPOCH:
		story_event(st, (struct plan_event){ .kind = PLAN_EV_EPOCH,
						     .epoch = a->epoch,
						     .job = a->job,
						     .version = a->version,
						     .order_epoch = story_epoch(st, a->epoch) });
		break;
	case PLAN_ACT_DROP:
		st->is_there[a->unit.v] = false;
		break;
	}
}

/* Lets the plan decide until it wants nothing more. */
static inline void story_step(struct story *st)
{
	struct plan_action a[4096];
	uint32_t n;

	do {
		st->wake = plan_step(st->plan, st->now);
		for (n = 0; n < 4096 && plan_next_action(st->plan, &a[n]); n++) {
			st->count[a[n].kind]++;
			if (st->mark && a[n].kind != PLAN_ACT_EPOCH && a[n].unit.v >= st->mark)
				st->marked[a[n].kind]++;
		}
		for (uint32_t i = 0; i < n; i++) {
			if (a[i].is_adopted) { /* no reader of a story has asked the source */
				story_fetched(st, a[i].unit.v, -EAGAIN);
				continue;
			}
			if (st->is_auto[a[i].kind] || a[i].kind == PLAN_ACT_DROP)
				story_answer(st, &a[i]);
			if ((!st->is_auto[a[i].kind] || a[i].kind == PLAN_ACT_DROP) &&
			    st->n_log < STORY_LOG)
				st->log[st->n_log++] = a[i];
		}
	} while (n || st->wake <= st->now);
}

/* Parameters every story starts from: everything fits, readers stand within 64 positions. */
static inline struct plan_params story_params(const struct order_info *info)
{
	return (struct plan_params){ .n = (uint32_t)info->n,
				     .order = info,
				     .arena_bytes = 4096 * 2 * info->n + 32768,
				     .stage_bytes = 4096 * 64,
				     .inflight_min = 8,
				     .inflight_max = 8,
				     .span = 64 };
}

/* With nothing decided yet, so that is_auto can be changed first. */
static inline struct story *story_prepare(struct plan_params params, const uint64_t *sizes)
{
	struct story *st = calloc(1, sizeof(*st));
	uint64_t *size = calloc(params.n + 1, sizeof(*size));

	st->size = size;
	st->is_there = calloc(params.n + 1, sizeof(*st->is_there));
	st->in_kernel = calloc(params.n + 1, sizeof(*st->in_kernel));
	st->is_whole = calloc(params.n + 1, sizeof(*st->is_whole));
	st->n_come = calloc(params.n + 1, sizeof(*st->n_come));
	st->was_there = calloc(params.n + 1, sizeof(*st->was_there));
	st->n = params.n;
	st->now = NS_PER_S;
	memset(st->is_auto, true, sizeof(st->is_auto));
	for (uint32_t i = 0; i < params.n; i++)
		size[i] = sizes ? sizes[i] : 4096;
	if (params.order) {
		st->start_epoch = params.order->start_epoch;
		st->start = params.order->start_step * params.order->batch * params.order->n_ranks;
	}
	params.size = size;
	CHECK_INT(plan_new(&params, &st->plan), 0);
	return st;
}

static inline struct story *story_new(struct plan_params params, const uint64_t *sizes)
{
	struct story *st = story_prepare(params, sizes);

	story_step(st);
	return st;
}

static inline void story_free(struct story *st)
{
	plan_free(st->plan);
	free(st->size);
	free(st->is_there);
	free(st->in_kernel);
	free(st->is_whole);
	free(st->n_come);
	free(st->was_there);
	for (uint32_t i = 0; i < STORY_EPOCHS; i++)
		free(st->order[i]);
	free(st);
}

/* Somebody opens a sample, a tenth of a millisecond later. */
static inline void story_open(struct story *st, uint32_t sample)
{
	st->now += NS_PER_MS / 10;
	st->in_kernel[sample] = false;
	story_event(st, (struct plan_event){ .kind = PLAN_EV_OPENED, .unit = { sample } });
	story_step(st);
}

/* Likewise, of a record. True: somebody heard of that. */
static inline bool story_come(struct story *st, uint32_t sample)
{
	if (!st->in_kernel[sample] || !st->is_whole[sample]) {
		story_open(st, sample);
		return true;
	}
	st->now += NS_PER_MS / 10;
	st->in_kernel[sample] = false; /* who has read it drops it */
	story_step(st);
	return false;
}

/* The kernel has dropped its pages, as a READ shows. */
static inline void story_unstaged(struct story *st, uint32_t sample)
{
	st->in_kernel[sample] = false;
	story_event(st, (struct plan_event){ .kind = PLAN_EV_UNSTAGED, .unit = { sample } });
}

/* It drops what is not asked for, which nobody hears of before it is read. */
static inline void story_drop_pages(struct story *st)
{
	memset(st->in_kernel, 0, st->n * sizeof(*st->in_kernel));
}

/* The job reads these positions of an epoch, one after the other. */
static inline void story_read(struct story *st, uint64_t epoch, uint64_t from, uint64_t to)
{
	for (uint64_t p = from; p < to; p++)
		story_open(st, story_sample(st, epoch, p));
}

static inline struct plan_status story_status(const struct story *st)
{
	struct plan_status status;

	plan_get_status(st->plan, &status);
	return status;
}

static inline uint32_t story_logged(const struct story *st, enum plan_action_kind kind)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < st->n_log; i++)
		n += st->log[i].kind == kind;
	return n;
}

static inline bool story_has_logged(const struct story *st, enum plan_action_kind kind,
				    uint32_t sample)
{
	for (uint32_t i = 0; i < st->n_log; i++)
		if (st->log[i].kind == kind && st->log[i].unit.v == sample)
			return true;
	return false;
}

#endif
