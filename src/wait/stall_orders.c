/* SPDX-License-Identifier: Apache-2.0 */
/* The orders of which reads may still be told. A job that lists its samples has an order for each
 * epoch, and its processes are ahead of what is known here: the next order is there, and some of
 * its samples are read, before the last reads of this one are decided. So an order is not forgotten
 * when another one comes; each pass belongs to one, and ranks go on from order to order.
 *
 * There is a fixed number of them. The oldest gives way, and what is open of it is judged as it is.
 * One thread at a time; pure. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "stall_priv.h"

struct stall_order *stall_order_find(struct stall *s, uint32_t id)
{
	struct stall_order *best = NULL;

	if (s->now && s->now->job.id == id && s->now->job.n_ranks)
		return s->now;
	for (uint32_t i = 0; i < STALL_ORDERS; i++) {
		struct stall_order *o = &s->order[i];

		/* None since then has its number as well. */
		if (o->seq && o->job.id == id && o->job.n_ranks && (!best || o->seq > best->seq))
			best = o;
	}
	return best;
}

/* A free one, or the oldest's. */
static struct stall_order *place_for_order(struct stall *s)
{
	struct stall_order *best = NULL;

	for (uint32_t i = 0; i < STALL_ORDERS; i++) {
		struct stall_order *o = &s->order[i];

		if (!o->seq)
			return o;
		if (o != s->now && (!best || o->seq < best->seq))
			best = o;
	}
	assert(best && best != s->now);
	stall_order_end(s, best);
	assert(best->n_open == 0);
	free(best->rank);
	*best = (struct stall_order){ 0 };
	return best;
}

static int set_ranks(struct stall *s, struct stall_order *o, const uint32_t *ranks)
{
	int rc = 0;

	if (o->job.n_ranks > STALL_RANKS_MAX)
		return -EINVAL;
	o->rank = calloc(MAX(o->job.n_ranks, 1), sizeof(*o->rank));
	if (!o->rank)
		return -ENOMEM;
	for (uint32_t i = 0; i < o->job.n_ranks && rc == 0; i++)
		rc = stall_rank_place(s, ranks ? ranks[i] : i, &o->rank[i].at);
	return rc;
}

static bool has_other_shape(const struct stall_job *a, const struct stall_job *b)
{
	return b->is_another || a->n_ranks != b->n_ranks || a->workers != b->workers ||
	       a->prefetch != b->prefetch || a->batch != b->batch;
}

int stall_set_job(struct stall *s, const struct stall_job *job)
{
	struct stall_order *o = place_for_order(s);
	uint32_t seq = s->now ? s->now->seq : 0, shape = s->now ? s->now->shape : 0;
	bool is_other = s->now && has_other_shape(&s->now->job, job);
	int rc;

	/* What was seen of another job's workers says nothing of this one's. */
	for (uint32_t i = 0; is_other && i < s->n_ranks; i++)
		s->rank[i]->seen_workers = 0;
	if (s->now)
		s->now->is_replaced = true;
	*o = (struct stall_order){ .seq = seq + 1, .shape = shape + is_other, .job = *job };
	o->job.ranks = NULL;
	s->now = o;
	s->node.has_switchback = stall_switch_shape(s, job, &(struct switchback){ 0 });
	rc = set_ranks(s, o, job->ranks);
	if (rc < 0)
		o->off = rc == -EINVAL ? STALL_TOO_MANY_RANKS : STALL_NO_MEMORY;
	return rc;
}

void stall_orders_free(struct stall *s)
{
	for (uint32_t i = 0; i < STALL_ORDERS; i++)
		free(s->order[i].rank);
}
