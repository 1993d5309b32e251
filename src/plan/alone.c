/* SPDX-License-Identifier: Apache-2.0 */
/* The stage as the prefetch buffer. At the end of a pass everything in the arena is a hit of the
 * next one, and yet the next missing units must be somewhere until they are read: each one that
 * takes the room of a resident there costs a read of the source in the next pass. Those that were
 * pushed are in the kernel already, so their copies in the arena go first, the one that is due
 * first before others: the kernel need not keep it for long. When it has been read it would have
 * been no better than the resident that stays instead of it.
 *
 * Must never be done for far reads, nor when something better is known: a unit that is read
 * again in the same pass. With a store everything that leaves goes there first. A kernel that
 * drops pushed pages cannot be relied on: then it is let be for a while, for longer each time that
 * it cost reads. */
#include "plan_priv.h"

#define DROP_COST 64u  /* one drop in so many pushes is none */
#define DROPS_MOST 16u /* more than that */
#define PAUSE_NS (16 * NS_PER_S)
#define PAUSE_MOST_NS (1024 * NS_PER_S)

bool alone_is_possible(const struct plan *plan)
{
	return plan->n_jobs == 1 && !plan->later.mask && plan->stage_most && !plan->store_pages;
}

uint64_t alone_pages(const struct plan *plan)
{
	/* When memory is short the kernel drops pages, too. */
	bool is_kept = plan->now_ns >= plan->alone_not_before_ns &&
		       plan->arena_pages == plan->full_pages;

	return alone_is_possible(plan) && is_kept ? plan->stage_most : 0;
}

/* The next pass will hit it if it stays. */
static bool alone_is_kept(const struct plan_job *job, const struct slot *slot, uint32_t unit)
{
	const struct slot *next = job_next(job);

	return slot != next && next->ep && next->ep->first[unit] < next->worth_end;
}

/* In the arena and pushed, for this position, and for no other one in its pass. */
static bool alone_may_leave(const struct plan *plan, const struct plan_job *job,
			    const struct slot *slot, uint64_t pos)
{
	uint32_t unit = slot->ep->sample[pos];
	const struct item *it = &plan->item[unit];

	return item_state(it) == ARENA && (it->flags & STAGED) &&
	       !(it->flags & (STAGING | PINNING | HELD)) && !slot->ep->next_same &&
	       *job_key(plan, job, unit) == key_make(job, slot, pos) &&
	       !alone_is_kept(job, slot, unit);
}

static void alone_leave(struct plan *plan, struct plan_job *job, uint32_t unit)
{
	struct item *it = &plan->item[unit];
	uint32_t fresh = it->flags & FRESH ? ALONE_FRESH : 0;

	assert(item_state(it) == ARENA && it->flags & STAGED && !plan->store_pages);
	plan_act(plan, job, PLAN_ACT_DROP, unit);
	item_out(plan, unit);
	item_set_state(plan, unit, ABSENT);
	it->flags |= ALONE | fresh;
	item_in(plan, unit);
}

bool alone_make_room(struct plan *plan, struct plan_job *job)
{
	if (!alone_pages(plan) || job->state != PLAN_FOLLOWING || job->is_stage_dirty)
		return false;
	for (job->alone_at = MAX(job->alone_at, job_low(job)); job->alone_at < job->stage_end;
	     job->alone_at++) {
		uint64_t pos;
		const struct slot *slot = job_slot_at(job, job->alone_at, &pos);

		if (!slot->ep || pos >= slot->length || !alone_may_leave(plan, job, slot, pos))
			continue;
		alone_leave(plan, job, slot->ep->sample[pos]);
		return true;
	}
	return false;
}

void alone_staged(struct plan *plan, struct plan_job *job, uint64_t due)
{
	job->alone_at = MIN(job->alone_at, due);
	plan->alone_drops -= MIN(plan->alone_drops, 1);
}

/* Those that are alone by now are fetched again, before they are due if there is time. */
static void alone_give_up(struct plan *plan, struct plan_job *job)
{
	for (uint64_t at = job_low(job); at < job->stage_end; at++) {
		uint64_t pos;
		const struct slot *slot = job_slot_at(job, at, &pos);
		uint32_t unit = slot->ep && pos < slot->length ? slot->ep->sample[pos]
								 : UNIT_NONE.v;

		if (unit == UNIT_NONE.v || !(plan->item[unit].flags & ALONE))
			continue;
		item_out(plan, unit);
		stage_forget(plan, unit);
		item_in(plan, unit);
	}
}

void alone_opened(struct plan *plan, uint32_t unit)
{
	const struct item *it = &plan->item[unit];

	if (!(it->flags & STAGED))
		return;
	plan->alone_recent[plan->alone_recent_head++ % ALONE_RECENT] =
		(struct alone_recent){ unit, (it->flags & ALONE) != 0 };
}

/* The READ that shows it may come after its open was told. Much later it shows nothing: what the
 * reader had of the kernel is dropped as anything that was read. */
static bool alone_was_staged(struct plan *plan, uint32_t unit, bool *ret_was_alone)
{
	*ret_was_alone = (plan->item[unit].flags & ALONE) != 0;
	if (plan->item[unit].flags & STAGED)
		return true;
	for (uint32_t i = 0; i < MIN(ALONE_RECENT, plan->alone_recent_head); i++) {
		struct alone_recent *r = &plan->alone_recent[i];

		if (r->unit != unit)
			continue;
		*ret_was_alone = r->was_alone;
		r->unit = UNIT_NONE.v;
		return true;
	}
	return false;
}

/* Whichever it was: the next one may be alone. One READ in some hundreds is no drop: it was on its
 * way when the pages were pushed. */
void alone_dropped(struct plan *plan, struct plan_job *job, uint64_t now_ns, uint32_t unit)
{
	uint64_t pause = MAX(plan->alone_pause_ns, PAUSE_NS);
	bool was_alone;

	if (!alone_was_staged(plan, unit, &was_alone))
		return;
	plan->alone_drops += DROP_COST;
	if (plan->alone_drops < DROPS_MOST * DROP_COST)
		return;
	plan->alone_drops = 0;
	if (was_alone)
		pause = MIN(2 * pause, PAUSE_MOST_NS);
	plan->alone_pause_ns = pause;
	plan->alone_not_before_ns = now_ns + pause;
	if (alone_is_possible(plan) && !job->is_stage_dirty)
		alone_give_up(plan, job);
	stage_distrust(plan, now_ns);
}
