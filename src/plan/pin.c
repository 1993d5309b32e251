/* SPDX-License-Identifier: Apache-2.0 */
/* What is written to the store: once, and never again; a pin that is never replaced never wears the
 * drive. Which units are worth it is decided by choose.c; they are written from the arena when
 * they come by. A few are in flight at once, so a slow drive delays few drops; the store saying
 * "full" once ends it until somebody says that it has room again. It must never pin more than the
 * budget. */
#include "plan_priv.h"

#include <errno.h>

#define PIN_FAILURES_MAX 16u

static bool pin_is_wanted(const struct plan *plan, const struct item *it)
{
	return item_state(it) == ARENA && !(it->flags & (PINNED | PINNING)) &&
	       !plan->is_pinning_over && plan->pinned_pages + it->pages <= plan->store_pages;
}

void pin_offer(struct plan *plan, uint32_t unit)
{
	if (!pin_is_wanted(plan, &plan->item[unit]) || plan->pin_count == PIN_QUEUE)
		return; /* a full queue loses nothing: the unit comes by again after it was read
			 */
	plan->pin_queue[(plan->pin_head + plan->pin_count++) % PIN_QUEUE] = unit;
}

bool pin_step(struct plan *plan)
{
	if (!plan->choice.is_done)
		return choose_step(plan, jobs_first(plan));
	while (plan->pin_count && plan->n_pinning < PINS_MAX && actions_left(plan)) {
		uint32_t unit = plan->pin_queue[plan->pin_head];
		struct item *it = &plan->item[unit];

		plan->pin_head = (plan->pin_head + 1) % PIN_QUEUE;
		plan->pin_count--;
		if (!pin_is_wanted(plan, it) || !choose_wants(plan, unit))
			continue;
		assert(item_state(it) == ARENA && plan->pinned_pages + it->pages <= plan->store_pages);
		choose_taken(plan, unit, true);
		plan_act(plan, jobs_first(plan), PLAN_ACT_PIN, unit);
		item_out(plan, unit);
		it->flags |= PINNING;
		plan->pinned_pages += it->pages;
		plan->n_pinning++;
		item_in(plan, unit);
	}
	return false;
}

/* The unit changed or the daemon stops: says nothing about the store. */
static bool pin_is_harmless(int status)
{
	return status == -ESTALE || status == -ECANCELED || status == -EAGAIN || status == -ENOMEM;
}

void pin_answered(struct plan *plan, uint32_t unit, int status)
{
	struct item *it = &plan->item[unit];

	assert(it->flags & PINNING && plan->n_pinning > 0 && status <= 0);
	plan->n_pinning--;
	item_out(plan, unit);
	it->flags &= ~(uint32_t)PINNING;
	if (status == 0) {
		it->flags |= PINNED;
		plan->pin_failures = 0;
	} else {
		plan->pinned_pages -= it->pages;
		choose_taken(plan, unit, false);
		plan->pin_failures += !pin_is_harmless(status);
	}
	if (status == -ENOSPC || plan->pin_failures == PIN_FAILURES_MAX)
		plan->is_pinning_over = true;
	item_in(plan, unit);
	/* Read while it was being written: it would have gone already. */
	if (it->flags & PINNED && item_state(it) == ARENA && actions_left(plan) &&
	    !(it->flags & (FRESH | HELD | STAGED | STAGING)))
		retain_drop(plan, jobs_first(plan), unit);
}

void pin_again(struct plan *plan)
{
	plan->is_pinning_over = false;
	plan->pin_failures = 0;
}

void pin_lost(struct plan *plan, uint32_t unit)
{
	struct item *it = &plan->item[unit];

	if (!(it->flags & PINNED))
		return;
	assert(plan->pinned_pages >= it->pages && !(it->flags & PINNING));
	item_out(plan, unit);
	it->flags = (it->flags & ~(uint32_t)PINNED) | AGAIN;
	plan->pinned_pages -= it->pages;
	choose_taken(plan, unit, false);
	item_in(plan, unit);
}

/* Found in the store by a plan that did not put it there. What is beyond the budget is not counted
 * on: it is written "again" when it is due, which costs nothing. */
void pin_kept(struct plan *plan, uint32_t unit)
{
	struct item *it = &plan->item[unit];

	if (it->flags & (PINNED | PINNING) || plan->pinned_pages + it->pages > plan->store_pages)
		return;
	choose_taken(plan, unit, true);
	item_out(plan, unit);
	it->flags |= PINNED;
	plan->pinned_pages += it->pages;
	item_in(plan, unit);
}
