/* SPDX-License-Identifier: Apache-2.0 */
/* What the step has done in the simulator. FETCH asks the source or the store, STAGE takes a stager's
 * time and is served first come first served, PIN writes to the store, EPOCH takes as long as computing an
 * epoch does. There is no probe that holds anything back, nobody else puts anything into the store, and
 * the last job ends with the run: those hands are not there.
 *
 * A sample that is read before it was asked for stays in memory as long as there is room that the
 * plan does not use (plain), as in the daemon; a FETCH of it asks nobody then. The asserts are the
 * plan's contract, checked from outside. */
#include "hands.h"

#include <errno.h>

#define STAGERS 2.0
#define STAGE_NS 20e3 /* per sample, and per byte: two GB/s */
#define STAGE_NS_PER_BYTE 0.5
#define EPOCH_NS 25ull /* per sample: a shuffle and its inverse */

static uint64_t paged(const struct model *m, uint32_t sample)
{
	return MAX(ALIGN_UP(setup_size(m->run->s, sample), PAGE), PAGE);
}

static void plain_remove(struct model *m, uint32_t sample)
{
	struct clairfs *c = m->state;

	assert(m->where[sample] & PLAIN);
	m->where[sample] &= ~(uint32_t)PLAIN;
	c->plain_bytes -= paged(m, sample);
	arrivals_remove(c->plain, sample);
}

/* False: what the plan has leaves no room. */
static bool plain_make_room(struct model *m, uint64_t bytes)
{
	struct clairfs *c = m->state;

	while (c->planned_bytes + c->plain_bytes + bytes > c->room && c->plain_bytes)
		plain_remove(m, arrivals_first(c->plain));
	return c->planned_bytes + c->plain_bytes + bytes <= c->room;
}

void hands_keep_plain(struct model *m, uint32_t sample)
{
	struct clairfs *c = m->state;

	if (!plain_make_room(m, paged(m, sample)))
		return;
	m->where[sample] |= PLAIN;
	c->plain_bytes += paged(m, sample);
	arrivals_append(c->plain, sample);
}

static void model_take(struct model *m, uint32_t sample, int status)
{
	struct clairfs *c = m->state;

	assert(c->n_there < 2 * m->run->s->p.inflight);
	c->there[c->n_there++] = (struct taking){ sample, status };
}

static void fetch(struct model *m, const struct plan_action *a)
{
	struct clairfs *c = m->state;
	uint32_t *where = &m->where[a->unit.v], req;
	bool is_there = (*where & PLAIN) != 0;

	assert(!(*where & IN_CACHE) && a->is_pinned == ((*where & IN_STORE) != 0));
	if (is_there)
		plain_remove(m, a->unit.v);
	c->planned_bytes += paged(m, a->unit.v);
	plain_make_room(m, 0);
	if (is_there) {
		*where |= IN_CACHE;
		model_take(m, a->unit.v, 0);
		return;
	}
	if (*where & FETCHING) { /* for a reader who is waiting */
		struct request *under_way = &m->run->request[where_request(*where)];

		assert(!under_way->is_planned && under_way->kind == REQ_DEMAND);
		under_way->is_planned = true;
		return;
	}
	if (a->is_adopted) {
		c->planned_bytes -= paged(m, a->unit.v);
		model_take(m, a->unit.v, -EAGAIN);
		return;
	}
	req = run_request(m, a->job, a->unit.v, REQ_AHEAD, a->is_pinned);
	if (req != NONE)
		*where = (*where & IN_STORE) | FETCHING | req << WHERE_SHIFT;
}

static bool staging_grow(struct clairfs *c)
{
	uint32_t size = c->staging_size * 2 + 1024;
	struct staging *bigger = calloc(size, sizeof(*bigger));

	if (!bigger)
		return false;
	for (uint32_t i = 0; i < c->staging_count; i++)
		bigger[i] = c->staging[(c->staging_head + i) % c->staging_size];
	free(c->staging);
	c->staging = bigger;
	c->staging_size = size;
	c->staging_head = 0;
	return true;
}

static void stage(struct model *m, uint32_t sample)
{
	struct clairfs *c = m->state;
	double took = STAGE_NS + STAGE_NS_PER_BYTE * (double)setup_size(m->run->s, sample);

	assert(m->where[sample] & IN_CACHE);
	if (c->staging_count == c->staging_size && !staging_grow(c)) {
		run_fail(m->run, -ENOMEM);
		return;
	}
	c->stager_free = MAX(c->stager_free, (double)m->run->now) + took / STAGERS;
	c->staging[(c->staging_head + c->staging_count++) % c->staging_size] =
		(struct staging){ (uint64_t)c->stager_free, sample };
	m->where[sample] |= STAGING;
}

static void act(struct model *m, const struct plan_action *a)
{
	struct clairfs *c = m->state;

	switch (a->kind) {
	case PLAN_ACT_FETCH:
		fetch(m, a);
		break;
	case PLAN_ACT_STAGE:
		stage(m, a->unit.v);
		break;
	case PLAN_ACT_DROP:
		assert(m->where[a->unit.v] & IN_CACHE);
		m->where[a->unit.v] &= IN_STORE | STAGED; /* what was pushed stays in the kernel */
		c->planned_bytes -= paged(m, a->unit.v);
		break;
	case PLAN_ACT_PIN:
		assert(m->where[a->unit.v] & IN_CACHE && !(m->where[a->unit.v] & IN_STORE));
		run_request(m, a->job, a->unit.v, REQ_PIN, true);
		break;
	case PLAN_ACT_EPOCH: /* hand_epoch */
	case PLAN_ACT_COME:  /* nothing is pushed whole here */
		break;
	}
}

/* --- the table --- */

void hands_carry_out(struct model *m)
{
	struct clairfs *c = m->state;

	for (uint32_t i = 0; i < c->n_next; i++)
		act(m, &c->next[i]);
	c->n_next = 0;
}

/* A few later, in their order: the states of their samples are fetched from memory together. */
static void hand_drop(void *ctx, const struct plan_action *a)
{
	struct model *m = ctx;
	struct clairfs *c = m->state;

	__builtin_prefetch(&m->where[a->unit.v]);
	c->next[c->n_next++] = *a;
	if (c->n_next == AHEAD)
		hands_carry_out(m);
}

static int hand_send(void *ctx, const struct plan_action *a)
{
	hand_drop(ctx, a);
	return 0;
}

static int hand_epoch(void *ctx, const struct plan_action *a, struct order_ref *take_order)
{
	struct model *m = ctx;
	struct clairfs *c = m->state;
	struct computing *e = &c->epoch[a->job];
	int rc;

	assert(!e->epoch);
	rc = order_ref_epoch(take_order, a->epoch, &e->epoch, m->run->err);
	if (rc < 0) {
		run_fail(m->run, rc);
		return rc; /* and the reference is not ours */
	}
	order_ref_put(take_order);
	e->number = a->epoch;
	e->version = a->version;
	e->at = m->run->now + EPOCH_NS * m->run->s->n;
	return 0;
}

const struct step_hands clairfs_hands = { .fetch = hand_send,
					  .stage = hand_send,
					  .pin = hand_send,
					  .epoch = hand_epoch,
					  .drop = hand_drop };
