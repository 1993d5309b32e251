/* SPDX-License-Identifier: Apache-2.0 */
/* What is in the arena, and what leaves it. The rule is MIN with two brakes: the resident whose
 * next use is farthest goes first; never one that is due before what it would make room for; and
 * one worth keeping (its next use lies among the first arena-full of the next pass) only when the
 * missing unit is due soon. Without the second brake a fast source reads nearly the whole dataset
 * every epoch, without its exception a slow one stalls at the end of each.
 *
 * A unit that was opened is held for a while: its reader may not have read it yet and the kernel
 * may drop its pages. It must never be dropped while it is being staged or pinned. */
#include "plan_priv.h"

#include <errno.h>
#include <stdlib.h>

#define AHEAD 4 /* holds whose look-ups begin now */

void item_set_fresh(struct plan *plan, struct item *it, bool is_fresh)
{
	if (is_fresh == ((it->flags & FRESH) != 0))
		return;
	it->flags ^= FRESH;
	if (is_fresh)
		plan->fresh_pages += it->pages;
	else
		plan->fresh_pages -= it->pages;
}

/* The copy is gone: its hold must not release a later one of the same unit. */
static void retain_forget_hold(struct plan *plan, uint32_t unit)
{
	for (uint32_t i = plan->hold_count; i-- > 0;) {
		struct hold *h = &plan->hold[(plan->hold_head + i) % plan->hold_size];

		if (h->unit == unit) {
			h->unit = UNIT_NONE.v;
			return;
		}
	}
}

void item_set_state(struct plan *plan, uint32_t unit, uint32_t state)
{
	struct item *it = &plan->item[unit];

	if (item_state(it) == ABSENT && state != ABSENT)
		plan->used_pages += it->pages;
	if (state == FETCHING) {
		plan->fetching_pages += it->pages;
	} else if (item_state(it) == FETCHING) {
		assert(plan->fetching_pages >= it->pages);
		plan->fetching_pages -= it->pages;
	}
	if (item_state(it) != ABSENT && state == ABSENT) {
		assert(plan->used_pages >= it->pages);
		plan->used_pages -= it->pages;
		if (it->flags & HELD) {
			plan->held_pages -= it->pages;
			retain_forget_hold(plan, unit);
		}
		item_set_fresh(plan, it, false);
		it->flags &= ~(uint32_t)HELD;
	}
	it->flags = (it->flags & ~(uint32_t)STATE_MASK) | state;
}

/* Between item_out and item_in: the unit is ABSENT afterwards. */
static void retain_remove(struct plan *plan, uint32_t unit)
{
	if (plan->item[unit].flags & FRESH)
		plan->wasted++;
	item_set_state(plan, unit, ABSENT);
}

void retain_drop(struct plan *plan, struct plan_job *job, uint32_t unit)
{
	assert(item_state(&plan->item[unit]) == ARENA);
	assert(!(plan->item[unit].flags & (STAGING | PINNING)));
	plan_act(plan, job, PLAN_ACT_DROP, unit);
	item_out(plan, unit);
	retain_remove(plan, unit);
	item_in(plan, unit);
}

/* A ring that grows: the reads of one hold time. Without memory the oldest is let go early, which
 * costs at worst a read. */
static bool retain_grow_holds(struct plan *plan)
{
	uint32_t size = MAX(plan->hold_size * 2, 256);
	struct hold *bigger = calloc(size, sizeof(*bigger));

	if (!bigger)
		return false;
	for (uint32_t i = 0; i < plan->hold_count; i++)
		bigger[i] = plan->hold[(plan->hold_head + i) % plan->hold_size];
	free(plan->hold);
	plan->hold = bigger;
	plan->hold_size = size;
	plan->hold_head = 0;
	return true;
}

static void retain_push_hold(struct plan *plan, uint64_t now_ns, uint32_t unit)
{
	struct item *it = &plan->item[unit];

	if (plan->hold_count == plan->hold_size && !retain_grow_holds(plan))
		return;
	plan->hold[(plan->hold_head + plan->hold_count++) % plan->hold_size] =
		(struct hold){ plan->opened + plan->reached, now_ns, unit };
	it->flags |= HELD;
	plan->held_pages += it->pages;
}

void retain_opened(struct plan *plan, struct plan_job *job, uint64_t now_ns, uint32_t unit)
{
	struct item *it = &plan->item[unit];

	alone_opened(plan, unit);
	if (!(it->flags & ALONE))
		horizon_opened(plan, job, unit);
	item_out(plan, unit);
	plan->useful += (it->flags & ALONE_FRESH) != 0;
	it->flags &= ~(uint32_t)ALONE_FRESH;
	stage_forget(plan, unit);
	if (item_state(it) == FETCHING) {
		plan->budget.is_awaited = true;
		if (!(it->flags & OPENED)) {
			horizon_awaited(plan, true);
			plan->late++;
		}
		it->flags |= OPENED;
	} else if (item_state(it) == ARENA) {
		if (it->flags & FRESH)
			plan->useful++;
		item_set_fresh(plan, it, false);
		if (!(it->flags & HELD))
			retain_push_hold(plan, now_ns, unit);
	}
	item_in(plan, unit);
}

static void retain_source_answered(struct plan *plan, struct plan_job *job, uint64_t now_ns,
				   uint32_t pages, const struct plan_event *ev)
{
	budget_fetched(plan, now_ns, ev->latency_ns, ev->status);
	if (ev->status != 0)
		return;
	horizon_fetched(job, now_ns, ev->latency_ns);
	choose_fetched(plan, pages, ev->latency_ns);
}

static void retain_not_fetched(struct plan *plan, uint64_t now_ns, const struct plan_event *ev)
{
	struct item *it = &plan->item[ev->unit.v];

	plan->failed += !(it->flags & ADOPTED);
	item_set_state(plan, ev->unit.v, ABSENT);
	if (ev->status != -ENOMEM)
		it->flags |= AGAIN;
	/* Without room it is tried again as soon as there is some. */
	if (it->flags & ADOPTED)
		; /* says nothing about the source */
	else if (fetch_is_transient(ev->status) && ev->status != -ENOMEM)
		stage_try_again(plan, now_ns, ev->unit.v, NO_FETCH);
	else if (!(it->flags & OPENED) && ev->status != -ENOMEM)
		it->flags |= NO_FETCH | (ev->status == PLAN_HELD_OUT ? HELD_OUT : 0);
}

void retain_fetched(struct plan *plan, uint64_t now_ns, const struct plan_event *ev)
{
	struct plan_job *job = jobs_first(plan);
	struct item *it = &plan->item[ev->unit.v];
	bool is_store = (it->flags & FROM_STORE) != 0;

	assert(item_state(it) == FETCHING && ev->status <= 0);
	if (it->flags & ADOPTED) {
		assert(plan->inflight_adopted > 0);
		plan->inflight_adopted--;
	} else if (is_store) {
		assert(plan->inflight_store > 0);
		plan->inflight_store--;
	} else {
		assert(plan->inflight_source > 0);
		plan->inflight_source--;
		plan->asked += ev->status != PLAN_HELD_OUT && (ev->status != 0 || ev->latency_ns);
		if (ev->status == 0 && !ev->latency_ns)
			horizon_unasked(job, it->pages); /* it was there already */
		else
			retain_source_answered(plan, job, now_ns, it->pages, ev);
	}
	usable_answered(plan, now_ns, it->pages, ev->status);
	item_out(plan, ev->unit.v);
	if (ev->status == PLAN_HELD_OUT) { /* as if it had not been asked for */
		plan->issued--;
		plan->failed--;
	}
	if (ev->status == 0) {
		item_set_state(plan, ev->unit.v, ARENA);
		if (it->flags & OPENED)
			retain_push_hold(plan, now_ns, ev->unit.v);
		else
			item_set_fresh(plan, it, true);
	} else {
		retain_not_fetched(plan, now_ns, ev);
	}
	if (it->flags & OPENED)
		horizon_awaited(plan, false);
	it->flags &= ~(uint32_t)(OPENED | FROM_STORE | ADOPTED);
	item_in(plan, ev->unit.v);
	if (ev->status == 0 && !is_store)
		pin_offer(plan, ev->unit.v);
}

/* Tiers are exclusive: what the store has need not stay here. Everything else stays until its room
 * is needed. */
static void retain_release_hold(struct plan *plan, struct plan_job *job, uint32_t unit)
{
	struct item *it;

	if (unit == UNIT_NONE.v)
		return; /* its copy was lost meanwhile */
	it = &plan->item[unit];
	assert(it->flags & HELD);
	item_out(plan, unit);
	it->flags &= ~(uint32_t)HELD;
	plan->held_pages -= it->pages;
	item_in(plan, unit);
	if (it->flags & PINNED && !(it->flags & (PINNING | STAGING | STAGED)))
		retain_drop(plan, job, unit);
	else
		pin_offer(plan, unit);
}

/* What was pushed for an order that turned out to be wrong waits for nobody, unless another job is
 * about to read it. At most so many units are looked at; returns how many were not. */
static uint32_t retain_forget_pushed(struct plan *plan, uint32_t most)
{
	uint32_t end = plan->forget_at + MIN(plan->n - plan->forget_at, most);

	assert(plan->forget_at <= plan->n);
	plan->touched += end - plan->forget_at;
	most -= end - plan->forget_at;
	for (; plan->forget_at < end && plan->staged_pages; plan->forget_at++) {
		uint32_t unit = plan->forget_at;

		if (!(plan->item[unit].flags & STAGED) || stage_is_wanted(plan, unit))
			continue;
		item_out(plan, unit);
		stage_forget(plan, unit);
		item_in(plan, unit);
	}
	if (!plan->staged_pages)
		plan->forget_at = plan->n;
	return most;
}

/* The first share of it at once: a small dataset whole. */
void retain_lost(struct plan *plan)
{
	plan->forget_at = plan->lost_next = 0;
	retain_forget_pushed(plan, plan->work_most);
	jobs_stage_dirty(plan);
}

bool retain_lost_step(struct plan *plan)
{
	plan->work = retain_forget_pushed(plan, plan->work);
	return plan->forget_at < plan->n;
}

/* While the order is lost: what was fetched for it and never read keeps half of the arena at most;
 * what was read stays. */
static void retain_shed(struct plan *plan, struct plan_job *job)
{
	while (plan->n_jobs && !jobs_are_prefetching(plan) && plan->lost_next < plan->n &&
	       actions_left(plan) && plan->fresh_pages > plan->arena_pages / 2) {
		uint32_t unit = plan->lost_next++;
		const struct item *it = &plan->item[unit];

		if (it->flags & FRESH && item_is_evictable(it))
			retain_drop(plan, job, unit);
	}
}

/* Releases the oldest. One of the next will go into these words of the sets, and is perhaps the
 * next victim, which is looked up by position: all of them are far apart, and begin to come now. */
static void retain_pop_hold(struct plan *plan, struct plan_job *job)
{
	uint32_t unit = plan->hold[plan->hold_head].unit, soon;
	const struct item *it;

	assert(plan->hold_count);
	plan->hold_head = (plan->hold_head + 1) % plan->hold_size;
	plan->hold_count--;
	retain_release_hold(plan, job, unit);
	soon = plan->hold[(plan->hold_head + AHEAD) % plan->hold_size].unit;
	if (plan->hold_count <= AHEAD || soon == UNIT_NONE.v)
		return;
	it = &plan->item[soon];
	if (it->key != NO_KEY) {
		const struct slot *slot = key_slot(plan->item_job, it->key);
		uint32_t pos = key_pos(it->key);

		__builtin_prefetch(&slot->set[SET_KEEP].level[0][pos / 64]);
		__builtin_prefetch(&slot->set[SET_STAGE].level[0][pos / 64]);
		__builtin_prefetch(&slot->set[SET_WANT].level[0][pos / 64]);
		__builtin_prefetch(&slot->ep->sample[pos]);
	}
}

uint64_t retain_step(struct plan *plan, uint64_t now_ns)
{
	struct plan_job *first = jobs_first(plan);
	/* What is taken as read may be read as much later as readers are apart. */
	uint64_t reads = plan->n_untraced ? MAX(plan->hold_reads, first->span) : plan->hold_reads;
	uint64_t hold_ns = plan->n_untraced ? HOLD_TAKEN_NS : HOLD_NS;

	retain_shed(plan, first);
	if (plan->used_pages > usable_pages(plan))
		retain_make_room(plan, first, 0, 0, ROOM_NEAR);
	while (plan->hold_count && actions_left(plan)) {
		const struct hold *h = &plan->hold[plan->hold_head];

		/* A small arena is not paralysed by what was read: at most a quarter of it is held.
		 */
		if (plan->opened + plan->reached - h->read < reads && now_ns < h->at_ns + hold_ns &&
		    plan->held_pages <= plan->arena_pages / 4)
			return h->at_ns + hold_ns;
		retain_pop_hold(plan, first);
	}
	return plan->hold_count ? now_ns : UINT64_MAX;
}

bool retain_knows_keys(const struct plan *plan)
{
	for (uint32_t i = 0; i < plan->top_home; i++) {
		const struct plan_job *job = plan->keyed[i];

		for (uint32_t s = 0; job && !job->is_over && s < SLOTS; s++)
			if (job->slots[s].ep && job->slots[s].absorbed < job->slots[s].length)
				return false;
	}
	return true;
}

/* Of those that are at home with this job, the one that it needs last, or UNIT_NONE. */
static uint32_t retain_last_of(const struct plan_job *job)
{
	const struct slot *slots[SLOTS] = { job_next(job), job_valid(job), job_cur(job) };

	for (uint32_t i = 0; i < SLOTS; i++) {
		uint64_t pos = slots[i]->ep ? tree_max(&slots[i]->set[SET_KEEP]) : NO_POS;

		if (pos != NO_POS)
			return slots[i]->ep->sample[pos];
	}
	return UNIT_NONE.v;
}

/* Of all homes the unit that is needed last, or UNIT_NONE. */
static uint32_t retain_last_of_all(const struct plan *plan, uint64_t *ret_when)
{
	uint32_t last = UNIT_NONE.v;

	*ret_when = 0;
	for (uint32_t i = 0; i < plan->top_home; i++) {
		const struct plan_job *job = plan->keyed[i];
		uint32_t s = job ? retain_last_of(job) : UNIT_NONE.v;
		uint64_t when;

		if (s == UNIT_NONE.v)
			continue;
		when = jobs_when(plan, job, job_due(plan, job, s));
		if (last == UNIT_NONE.v || when > *ret_when) {
			last = s;
			*ret_when = when;
		}
	}
	return last;
}

/* The unit moves to whoever needs it first by now. False: not in this step any more. */
static bool retain_rehome(struct plan *plan, uint32_t unit)
{
	plan->is_cut = plan->is_cut || !plan->work;
	if (!plan->work)
		return false;
	plan->work--;
	assert(item_is_evictable(&plan->item[unit]));
	item_out(plan, unit);
	item_in(plan, unit);
	return true;
}

static bool retain_is_at_home(const struct plan *plan, uint32_t unit)
{
	uint64_t when;

	if (plan->n_jobs == 1 && !plan->n_leaving)
		return true;
	return jobs_home(plan, unit, &when) == item_home(plan, &plan->item[unit]);
}

/* The keyed resident that is needed last by whoever needs it first. A home is as old as the
 * unit's last change, and the paces were others then, or a job was at work that has left: it is
 * looked at again for the one that would leave, until that one is right. */
static uint32_t retain_last(struct plan *plan, uint64_t *ret_when)
{
	uint32_t last;

	do {
		last = retain_last_of_all(plan, ret_when);
		if (last == UNIT_NONE.v || retain_is_at_home(plan, last))
			return last;
	} while (retain_rehome(plan, last));
	return UNIT_NONE.v;
}

/* Of those at home with a job that is over, one that no job at work needs. Those that one needs
 * find their way home. */
static uint64_t retain_orphan(struct plan *plan, const struct plan_job *job)
{
	uint64_t when;
	uint32_t last;

	do {
		last = retain_last_of(job);
		if (last == UNIT_NONE.v)
			return NO_POS;
		if (jobs_home(plan, last, &when)->is_over)
			return last;
	} while (retain_rehome(plan, last));
	return NO_POS;
}

/* A resident that no job at work needs, or NO_POS: those of jobs that are over after those of none,
 * and not while a job is about to know what it needs. */
static uint64_t retain_unneeded(struct plan *plan)
{
	uint64_t bit = retain_knows_keys(plan) ? tree_max(&plan->unkeyed) : NO_POS;

	if (bit != NO_POS || !plan->n_leaving || !retain_knows_keys(plan) || rekey_is_awaited(plan))
		return bit;
	for (uint32_t i = 0; i < plan->top_home && bit == NO_POS && !plan->is_cut; i++) {
		const struct plan_job *job = plan->keyed[i];

		if (job && job->is_over)
			bit = retain_orphan(plan, job);
	}
	return bit;
}

/* The resident that is needed last, or UNIT_NONE; *ret_when: NO_POS when no use is known. What
 * nobody needs may still be found with the next step: nothing else leaves instead of it. */
static uint32_t retain_victim(struct plan *plan, const struct plan_job *job, uint64_t *ret_when)
{
	uint64_t bit = retain_unneeded(plan);

	*ret_when = NO_POS;
	if (bit == NO_POS && plan->is_cut)
		return UNIT_NONE.v;
	if (bit == NO_POS)
		bit = later_last(plan, job);
	return bit == NO_POS ? retain_last(plan, ret_when) : (uint32_t)bit;
}

/* Whether a read of the source is saved by keeping it rather than what is fetched far ahead. */
static bool retain_is_worth(const struct plan *plan, const struct plan_job *job, uint32_t unit,
			    uint64_t when)
{
	const struct slot *next = job_next(job);
	uint64_t end = job_virtual(job, next, next->ep ? next->worth_end : 0);

	if (plan->n_jobs > 1)
		return when < plan->worth.within;
	return when < end - job_low(job) || later_is_near(plan, job, unit);
}

/* A wrong order must not fill more than was promised. */
static uint64_t retain_soon_pages(const struct plan *plan, const struct plan_job *job)
{
	return alone_pages(plan) && job->state == PLAN_FOLLOWING ? usable_soon_pages(plan)
								 : usable_pages(plan);
}

bool retain_make_room(struct plan *plan, struct plan_job *job, uint64_t pages, uint64_t when,
		      enum room_for what)
{
	while (plan->used_pages + pages > usable_pages(plan)) {
		uint64_t victim_when;
		uint32_t victim = retain_victim(plan, job, &victim_when);

		bool is_harm = victim == UNIT_NONE.v || victim_when <= when ||
			       (what == ROOM_OF_READ && plan->item[victim].flags & FRESH);

		if (actions_left(plan) < 2)
			return false;
		if (is_harm || retain_is_worth(plan, job, victim, victim_when)) {
			if (what != ROOM_FAR && alone_make_room(plan, job))
				continue;
			if (what != ROOM_FAR &&
			    plan->used_pages + pages <= retain_soon_pages(plan, job))
				return true;
			if (is_harm || what < ROOM_NEAR)
				return false;
		}
		retain_drop(plan, job, victim);
	}
	return true;
}

bool retain_make_room_unneeded(struct plan *plan, uint64_t pages)
{
	while (plan->used_pages + pages > usable_pages(plan)) {
		uint64_t bit = retain_unneeded(plan);

		if (bit == NO_POS || actions_left(plan) < 2)
			return false;
		retain_drop(plan, jobs_first(plan), (uint32_t)bit);
	}
	return true;
}

bool retain_let_go(struct plan *plan)
{
	while (!plan->n_jobs && plan->unkeyed.count && plan->work && actions_left(plan)) {
		uint32_t unit = (uint32_t)tree_max(&plan->unkeyed);

		plan->work--;
		plan_act(plan, plan->nobody, PLAN_ACT_DROP, unit)->is_left = true;
		item_out(plan, unit);
		retain_remove(plan, unit);
		item_in(plan, unit);
	}
	return !plan->n_jobs && plan->unkeyed.count;
}

/* It is there now: of jobs that do not number it, it is one that they leave out. */
static void retain_first_size(struct plan *plan, uint32_t unit)
{
	struct plan_job *job;

	plan_sized(plan, 0); /* its bytes are counted already, as those of other units of its file */
	for (uint32_t at = 0; (job = jobs_next(plan, &at));)
		job->n_outside += job->unnumbered && job->unnumbered[unit / 64] >> unit % 64 & 1;
}

void retain_resized(struct plan *plan, uint32_t unit, uint64_t bytes)
{
	struct item *it = &plan->item[unit];
	uint64_t pages = bytes / PAGE_BYTES + (bytes % PAGE_BYTES != 0), was = it->pages;

	item_out(plan, unit);
	it->pages = (uint32_t)MIN(MAX(pages, 1), UINT32_MAX);
	if (!was)
		retain_first_size(plan, unit);
	if (it->pages <= plan->max_pages)
		plan->largest = MAX(plan->largest, it->pages);
	if (was && it->pages > was)
		plan->grown_pages += it->pages - was;
	if (item_state(it) != ABSENT)
		plan->used_pages += it->pages - was;
	if (item_state(it) == FETCHING)
		plan->fetching_pages += it->pages - was;
	if (it->flags & HELD)
		plan->held_pages += it->pages - was;
	if (it->flags & FRESH)
		plan->fresh_pages += it->pages - was;
	if (it->flags & (STAGED | STAGING))
		plan->staged_pages += it->pages - was;
	if (it->flags & (PINNED | PINNING))
		plan->pinned_pages += it->pages - was;
	jobs_stage_dirty(plan);
	item_in(plan, unit);
}

void retain_lost_copy(struct plan *plan, uint32_t unit)
{
	item_out(plan, unit);
	stage_forget(plan, unit); /* the pages are those of the old file */
	if (item_state(&plan->item[unit]) == ARENA)
		retain_remove(plan, unit);
	item_in(plan, unit);
}
