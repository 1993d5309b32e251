/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of jobs that have left. At ten million units forgetting them all at once would be a third
 * of a second in which nothing is answered, so a job that goes leaves its keys and sets where they
 * are, and each step looks at a share of the units: a key of a job that is over is taken away,
 * and the unit stands where the others need it, or nowhere. Until then its old key is an
 * estimate: it says when the unit leaves the arena if nobody else needs it, and nothing is
 * fetched or pushed for it. New passes come first (epochs.c): a unit that the next order needs
 * has its new key before the old one goes.
 *
 * What was pushed for a job that is over, and is not about to be read by another one, is forgotten
 * before all else, and beside new passes: it takes the stage's room. The buckets of later.c are
 * emptied like the sets. Must never look at more units in a step than are left of WORK_MOST: a job
 * that finds no place for its keys waits for one (jobs.c).
 * Planner thread. */
#include "plan_priv.h"

static bool rekey_is_wanted(const struct plan *plan)
{
	return plan->n_leaving || plan->later.is_leaving;
}

bool rekey_is_awaited(const struct plan *plan)
{
	const struct plan_job *job;

	for (uint32_t at = 0; (job = jobs_next(plan, &at));)
		if (!job_cur(job)->ep && !job->has_failed_epoch && job->state != PLAN_LOST &&
		    job->home != NO_HOME)
			return true;
	return false;
}

/* What is pushed stands first in its line. */
static void rekey_pushed(struct plan *plan, struct plan_job *job)
{
	for (; job->pushed_at < job->stage_end && plan->work; job->pushed_at++) {
		uint64_t pos;
		const struct slot *slot = job_slot_at(job, job->pushed_at, &pos);
		uint32_t unit;

		plan->work--;
		if (!slot->ep || pos >= slot->length)
			continue;
		unit = slot->ep->sample[pos];
		if (!(plan->item[unit].flags & STAGED) || stage_is_due(plan, unit))
			continue;
		item_out(plan, unit);
		stage_forget(plan, unit);
		item_in(plan, unit);
	}
}

static bool rekey_has_key(const struct plan *plan, uint32_t unit)
{
	for (uint32_t i = 0; i < plan->top_home; i++) {
		const struct plan_job *job = plan->keyed[i];

		if (job && job->is_over && *job_key(plan, job, unit) != NO_KEY)
			return true;
	}
	return false;
}

/* What is missing, or is kept for another job, stands in sets of this one that nobody asks for any
 * more and that go with it. So only those have to be taken out that are kept for it or stand in a
 * bucket, and what was pushed. */
static bool rekey_is_moved(const struct plan *plan, uint32_t unit, bool has_key)
{
	const struct item *it = &plan->item[unit];

	if (it->flags & STAGED)
		return !stage_is_due(plan, unit);
	return item_is_evictable(it) && (!has_key || item_home(plan, it)->is_over);
}

static void rekey_take_keys(struct plan *plan, uint32_t unit)
{
	for (uint32_t i = 0; i < plan->top_home; i++) {
		const struct plan_job *job = plan->keyed[i];

		if (job && job->is_over)
			*job_key(plan, job, unit) = NO_KEY;
	}
	if (plan->later.is_leaving)
		plan->item[unit].flags &= ~(uint32_t)BUCKET_MASK;
}

static void rekey_unit(struct plan *plan, uint32_t unit)
{
	uint32_t flags = plan->item[unit].flags;
	bool has_key = rekey_has_key(plan, unit);

	if (!has_key && !(plan->later.is_leaving && flags & BUCKET_MASK) &&
	    (plan->n_jobs || !(flags & STAGED)))
		return;
	if (!rekey_is_moved(plan, unit, has_key)) {
		rekey_take_keys(plan, unit);
		return;
	}
	item_out(plan, unit);
	rekey_take_keys(plan, unit);
	stage_forget(plan, unit);
	item_in(plan, unit);
}

/* So many more units were looked at. */
static void rekey_count(struct plan *plan, uint32_t n)
{
	for (uint32_t i = plan->top_home; i-- > 0;) {
		struct plan_job *job = plan->keyed[i];

		if (!job || !job->is_over)
			continue;
		assert(job->rekeyed < plan->n);
		job->rekeyed += MIN(n, plan->n - job->rekeyed);
		if (job->rekeyed == plan->n)
			jobs_unkeyed(plan, job);
	}
	later_left(plan, n);
}

static void rekey_share(struct plan *plan, uint32_t n)
{
	assert(n <= plan->n);
	plan->touched += n;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t unit = plan->rekey_at;

		plan->rekey_at = unit + 1 < plan->n ? unit + 1 : 0;
		rekey_unit(plan, unit);
	}
	rekey_count(plan, n);
}

bool rekey_step(struct plan *plan)
{
	uint32_t n;

	if (!rekey_is_wanted(plan) || rekey_is_awaited(plan))
		return false;
	for (uint32_t i = 0; i < plan->top_home; i++)
		if (plan->keyed[i] && plan->keyed[i]->is_over)
			rekey_pushed(plan, plan->keyed[i]);
	n = retain_knows_keys(plan) ? MIN(plan->work, plan->n) : 0;
	plan->work -= n;
	rekey_share(plan, n);
	return rekey_is_wanted(plan);
}
