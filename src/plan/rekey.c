/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of jobs that have left. At ten million samples forgetting them all at once would be a third
 * of a second in which nothing is answered, so a job that goes leaves its keys and sets where they
 * are, and each step looks at so many samples: a key of a job that is over is taken away, and the
 * sample stands where the others need it, or nowhere. Until then its old key is an estimate: it
 * says when the sample leaves the arena if nobody else needs it, and nothing is fetched or pushed
 * for it. New passes come first (epochs.c): a sample that the next order needs has its new key
 * before the old one goes.
 *
 * What was pushed for a job that is over is forgotten where no other one needs it. The buckets of
 * uses.c are emptied in the same way. Must never look at more samples in a step than are left of
 * WORK_MOST. Planner thread. */
#include "plan_priv.h"

#define AHEAD 16 /* samples that are brought near the processor */

static bool rekey_is_due(const struct plan *plan, uint32_t sample)
{
	uint32_t flags = plan->item[sample].flags;

	if ((plan->uses.is_leaving && flags & FAR_MASK) || (!plan->n_jobs && flags & STAGED))
		return true;
	for (uint32_t i = 0; i < plan->top_home; i++) {
		const struct plan_job *job = plan->keyed[i];

		if (job && job->is_over && *job_key(plan, job, sample) != NO_KEY)
			return true;
	}
	return false;
}

static void rekey_one(struct plan *plan, uint32_t sample)
{
	struct item *it = &plan->item[sample];
	bool is_needed = false;

	item_out(plan, sample);
	for (uint32_t i = 0; i < plan->top_home; i++) {
		const struct plan_job *job = plan->keyed[i];

		if (job && job->is_over)
			*job_key(plan, job, sample) = NO_KEY;
		else if (job)
			is_needed = is_needed || *job_key(plan, job, sample) != NO_KEY;
	}
	if (plan->uses.is_leaving)
		it->flags &= ~(uint32_t)FAR_MASK;
	if (!is_needed)
		stage_forget(plan, sample);
	item_in(plan, sample);
}

/* So many more samples were looked at. */
static void rekey_count(struct plan *plan, uint32_t n)
{
	for (uint32_t i = plan->top_home; i-- > 0;) {
		struct plan_job *job = plan->keyed[i];

		if (!job || !job->is_over)
			continue;
		job->rekeyed += MIN(n, plan->n - job->rekeyed);
		if (job->rekeyed == plan->n)
			jobs_unkeyed(plan, job);
	}
	uses_left(plan, n);
}

static bool rekey_is_wanted(const struct plan *plan)
{
	return plan->n_leaving || plan->uses.is_leaving;
}

static void rekey_some(struct plan *plan, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t sample = plan->rekey_at;

		plan->rekey_at = sample + 1 < plan->n ? sample + 1 : 0;
		if (sample + AHEAD < plan->n)
			__builtin_prefetch(&plan->item[sample + AHEAD]);
		if (rekey_is_due(plan, sample))
			rekey_one(plan, sample);
	}
	rekey_count(plan, n);
}

/* Whether a job is about to know when it needs what. */
static bool rekey_may_wait(const struct plan *plan)
{
	const struct plan_job *job;

	for (uint32_t at = 0; (job = jobs_next(plan, &at));)
		if (!job_cur(job)->ep && !job->has_failed_epoch)
			return true;
	return false;
}

bool rekey_step(struct plan *plan)
{
	uint32_t n = MIN(plan->work, plan->n);

	if (!rekey_is_wanted(plan) || rekey_may_wait(plan))
		return false;
	plan->work -= n;
	rekey_some(plan, n);
	return rekey_is_wanted(plan);
}

void rekey_all(struct plan *plan)
{
	if (rekey_is_wanted(plan))
		rekey_some(plan, plan->n);
}
