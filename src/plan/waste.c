/* SPDX-License-Identifier: Apache-2.0 */
/* What is fetched and not read in its pass. An order may be right and a job read its beginning only:
 * a subset, a few classes, so many batches. Then reads follow it perfectly, and everything that is
 * fetched ahead of the place where the job turns back is in vain, up to the whole dataset. Where
 * that is more than a tenth of what was fetched, only what is due soon is fetched, until passes
 * come without it: that costs what the last readers' distance holds, once a pass.
 *
 * The first pass shows its end when it is too late. Files in their order, when nobody said so, may
 * be the first of them (order_info.may_be_left): there the lead grows with what was read.
 * Where readers leave samples before their end, what is within a sample is fetched once they are there
 * (reach.c).
 * Must not hold back what is due soon: that is what readers would wait for. Planner thread. */
#include "plan_priv.h"

#define PART 10    /* one of so many in vain is too many */
#define LEAST 64.0 /* fetched: fewer say nothing */

void waste_fetched(struct plan_job *job)
{
	job->waste.fetched++;
}

/* False: it was read, or it was not fetched. */
static bool waste_forget(struct plan *plan, uint32_t unit)
{
	if (!(plan->item[unit].flags & (FRESH | ALONE_FRESH)))
		return false;
	item_out(plan, unit);
	item_set_fresh(plan, &plan->item[unit], false);
	plan->item[unit].flags &= ~(uint32_t)ALONE_FRESH;
	item_in(plan, unit);
	return true;
}

/* Counted as wasted, so no more as what was not read yet. */
static uint64_t waste_count(struct plan *plan, const struct slot *old)
{
	uint64_t n = 0;

	for (uint64_t pos = bitmap_next_clear(&old->consumed, old->low); pos < old->length;
	     pos = bitmap_next_clear(&old->consumed, pos + 1)) {
		uint32_t unit = old->ep->sample[pos];

		n += waste_forget(plan, unit);
	}
	return n;
}

static bool waste_is_much(const struct plan_job *job)
{
	const struct waste *w = &job->waste;

	return w->fetched >= LEAST && w->wasted * PART > w->fetched &&
	       w->wasted > (double)job->span;
}

static bool waste_is_left(const struct plan_job *job)
{
	const struct waste *w = &job->waste;

	return w->fetched >= LEAST && w->left * PART > w->fetched;
}

/* What is left of samples is seen as the readers move on, long before the pass ends. */
void waste_left(struct plan *plan, struct plan_job *job, uint32_t unit)
{
	if (plan->n_jobs > 1 || !waste_forget(plan, unit))
		return;
	plan->wasted++;
	job->waste.wasted++;
	job->waste.left++;
	job->waste.is_much = job->waste.is_much || waste_is_much(job);
	job->waste.is_left = job->waste.is_left || waste_is_left(job);
}

void waste_rolled(struct plan *plan, struct plan_job *job, const struct slot *old)
{
	struct waste *w = &job->waste;
	/* What one job did not read may be another's. */
	uint64_t n = plan->n_jobs > 1 ? 0 : waste_count(plan, old);

	plan->wasted += n;
	w->wasted += (double)n;
	w->is_much = waste_is_much(job);
	w->is_left = waste_is_left(job);
	w->left /= 2;
	w->fetched /= 2;
	w->wasted /= 2;
}

uint64_t waste_lead_most(const struct plan_job *job)
{
	const struct slot *cur = job_cur(job);
	uint64_t soon = MAX(job->span, job->ahead);

	if (job->waste.is_much)
		return soon;
	if (job->info.may_be_left && !cur->index)
		return soon + cur->consumed.count / PART;
	return UINT64_MAX;
}
