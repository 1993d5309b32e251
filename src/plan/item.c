/* SPDX-License-Identifier: Apache-2.0 */
/* Which sets a unit is in, by its flags and the keys that jobs have given it. A unit leaves its
 * sets (item_out), is changed, and enters those that it belongs into then (item_in): nothing else
 * touches the trees, so no set has a member twice or one that it should not have. Planner thread. */
#include "plan_priv.h"

/* The sets a keyed unit belongs to, at the key of each job; SET_KEEP is for its home only. */
static uint32_t item_sets(const struct plan *plan, const struct item *it)
{
	if (item_state(it) == ARENA)
		return it->flags & (HELD | STAGED | STAGING | NO_STAGE) ||
				       it->pages > plan->stage_pages
			       ? 0
			       : 1u << SET_STAGE;
	if (it->flags & (HELD_OUT | ALONE))
		return 0;
	if (item_state(it) == FETCHING || (it->flags & (NO_FETCH | STAGING | PINNING)) ||
	    it->pages > plan->max_pages || !it->pages)
		return 1u << SET_GAP;
	return 1u << (it->flags & PINNED ? SET_STORE : SET_WANT);
}

bool item_is_wanted(const struct plan *plan, const struct item *it)
{
	return item_sets(plan, it) == 1u << SET_WANT;
}

/* Leaves the sets of all jobs but `but`, whose sets are about to be made anew. */
static void item_leave(struct plan *plan, uint32_t unit, const struct plan_job *but)
{
	struct item *it = &plan->item[unit];
	uint32_t sets = item_sets(plan, it);

	for (uint32_t i = 0; i < plan->top_home; i++) {
		struct plan_job *job = plan->keyed[i];
		uint32_t key = job ? *job_key(plan, job, unit) : NO_KEY, of_job = sets;

		if (key == NO_KEY || job == but)
			continue;
		if (item_is_evictable(it) && item_home(plan, it) == job)
			of_job |= 1u << SET_KEEP;
		for (; of_job; of_job &= of_job - 1)
			tree_clear(&key_slot(job, key)->set[__builtin_ctz(of_job)], key_pos(key));
	}
}

static bool item_has_key(const struct plan *plan, uint32_t unit)
{
	for (uint32_t i = 0; i < plan->top_home; i++)
		if (plan->keyed[i] && *job_key(plan, plan->keyed[i], unit) != NO_KEY)
			return true;
	return false;
}

void item_out(struct plan *plan, uint32_t unit)
{
	if (item_is_evictable(&plan->item[unit]) && !item_has_key(plan, unit))
		later_leave(plan, unit);
	else
		item_leave(plan, unit, NULL);
}

/* The set of those without a key, or bucket, was emptied already. */
void item_out_of_others(struct plan *plan, const struct plan_job *job, uint32_t unit)
{
	if (plan->top_home > 1)
		item_leave(plan, unit, job);
}

void item_in(struct plan *plan, uint32_t unit)
{
	struct item *it = &plan->item[unit];
	uint32_t sets = item_sets(plan, it);
	struct plan_job *home = NULL;
	uint64_t when;

	plan->touched++;
	if (item_is_evictable(it)) {
		home = jobs_home(plan, unit, &when);
		it->flags &= ~(uint32_t)HOME_MASK;
		if (home)
			it->flags |= home->home << HOME_SHIFT;
		else
			later_enter(plan, unit);
		assert(!home || plan->keyed[home->home] == home);
	}
	for (uint32_t i = 0; i < plan->top_home; i++) {
		struct plan_job *job = plan->keyed[i];
		uint32_t key = job ? *job_key(plan, job, unit) : NO_KEY,
			 of_job = sets | (job == home ? 1u << SET_KEEP : 0);

		if (key == NO_KEY)
			continue;
		for (; of_job; of_job &= of_job - 1)
			tree_set(&key_slot(job, key)->set[__builtin_ctz(of_job)], key_pos(key));
	}
}

void item_next_key(struct plan *plan, struct plan_job *job, uint32_t unit)
{
	struct item *it = &plan->item[unit];
	uint32_t key = NO_KEY;

	for (uint32_t i = 0; i < 2 && key == NO_KEY; i++) {
		struct slot *slot = i ? job_next(job) : job_cur(job);
		uint64_t pos = slot->ep ? window_first_use(slot, plan, job, unit) : NO_POS;

		if (pos >= slot->absorbed)
			continue;
		assert(!bitmap_get(&slot->consumed, pos));
		key = key_make(job, slot, pos);
	}
	item_out(plan, unit);
	it->flags &= ~(uint32_t)(NO_FETCH | NO_STAGE | HELD_OUT | TRY_MASK | AGAIN);
	*job_key(plan, job, unit) = key;
	later_find_bucket(plan, job, unit);
	item_in(plan, unit);
}
