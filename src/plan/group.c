/* SPDX-License-Identifier: Apache-2.0 */
/* In which order the source is asked where time allows. Units are numbered as they lie there:
 * neighbours in number are neighbours in a directory, or in a file. While the readers are far away
 * the next missing units are asked for in that order, up to a group of them at a time, so that
 * servers meet the same directory, and drives the same region, several times in a row.
 *
 * No deadline may pay for it: a group is as large as can come in during half of what the readers
 * leave beyond their own distance and slow fetches; when they come nearer it is what is due first
 * again, at once. Planner thread. */
#include "plan_priv.h"

#include <stdlib.h>

#include "clairfs/base/compare.h"

/* How many requests may be sent in any order when this one is due first. */
static uint64_t group_size(const struct plan *plan, const struct plan_job *job, uint64_t first)
{
	const struct budget *b = &plan->budget;
	double slow_ns = b->latency_ns + 4 * b->deviation_ns, per_fetch;
	double slack = (double)(first - job_low(job)) - (double)job->span -
		       2 * job->pace.rate * slow_ns / (double)NS_PER_S;

	if (slack <= 0 || !b->latency_ns || job->state > PLAN_FOLLOWING)
		return 0;
	/* Positions that are read while one more request is served. */
	per_fetch = job->pace.rate * b->latency_ns / (double)NS_PER_S / budget_limit(plan);
	return slack >= 2 * per_fetch * GROUP_MAX ? GROUP_MAX : (uint64_t)(slack / (2 * per_fetch));
}

static bool group_is_wanted(const struct plan *plan, const struct plan_job *job, uint32_t unit)
{
	uint32_t key = *job_key(plan, job, unit);

	return job_due(plan, job, unit) < job->group.end &&
	       tree_get(&key_slot(job, key)->set[SET_WANT], key_pos(key));
}

/* The next so many that are missing, of one pass. */
static void group_fill(struct plan *plan, struct plan_job *job, uint64_t first, uint64_t size)
{
	uint64_t pos;
	const struct slot *slot = job_slot_at(job, first, &pos);
	struct group *g = &job->group;

	assert(slot->ep && size <= GROUP_MAX);
	g->at = g->count = 0;
	for (; pos != NO_POS && g->count < size; pos = tree_next(&slot->set[SET_WANT], pos + 1)) {
		__builtin_prefetch(&plan->item[slot->ep->sample[pos]]);
		g->unit[g->count++] = slot->ep->sample[pos];
		g->end = job_virtual(job, slot, pos) + 1;
	}
	qsort(g->unit, g->count, sizeof(*g->unit), compare_u32);
}

void group_forget(struct plan_job *job)
{
	job->group.count = 0;
}

uint64_t group_next(struct plan *plan, struct plan_job *job, uint64_t first, uint64_t *ret_last)
{
	struct group *g = &job->group;
	uint64_t size = group_size(plan, job, first);

	if (size < 2) {
		g->count = 0;
		return first;
	}
	while (g->at < g->count && !group_is_wanted(plan, job, g->unit[g->at]))
		g->at++;
	if (g->at >= g->count)
		group_fill(plan, job, first, size);
	assert(g->at < g->count); /* the first one is missing */
	*ret_last = g->end - 1;
	return job_due(plan, job, g->unit[g->at]);
}
