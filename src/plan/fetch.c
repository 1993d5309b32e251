/* SPDX-License-Identifier: Apache-2.0 */
/* What to fetch: the missing unit that is due first, again and again (earliest deadline first),
 * over the end of the pass into the next one. Units in the store come in the same order, but only
 * within the horizon: reading them early would fill the arena with what can be had at any time.
 *
 * Until the reads have confirmed the order at most half of the arena is filled with what they have not
 * read, and nothing is evicted but what they have, or other orders have left, so a wrong order costs one
 * arena-half of reads. It must never fetch a position that was consumed: the sets hold only keys. */
#include "plan_priv.h"

#include <errno.h>

/* Neither the source nor the unit is to blame: worth another try. */
bool fetch_is_transient(int status)
{
	return status == -ENOMEM || status == -EAGAIN || status == -ECANCELED || status == -ESTALE;
}

/* First position of the set, in the line of what is read next. */
static uint64_t fetch_first(const struct plan_job *job, enum slot_set set)
{
	const struct slot *cur = job_cur(job), *next = job_next(job), *valid;
	uint64_t pos = cur->ep ? tree_next(&cur->set[set], cur->low) : NO_POS;

	if (pos != NO_POS)
		return pos;
	valid = job_valid(job);
	pos = valid->ep ? tree_next(&valid->set[set], valid->low) : NO_POS;
	if (pos != NO_POS)
		return job_virtual(job, valid, pos);
	if (!next->ep || next->is_rerun)
		return NO_POS;
	pos = tree_next(&next->set[set], next->low);
	return pos == NO_POS ? NO_POS : job_virtual(job, next, pos);
}

static uint32_t fetch_unit_at(const struct plan_job *job, uint64_t due)
{
	uint64_t pos;
	const struct slot *slot = job_slot_at(job, due, &pos);

	assert(slot->ep && pos < slot->length && !bitmap_get(&slot->consumed, pos));
	return slot->ep->sample[pos];
}

/* Room that reads far ahead leave to what comes from the store, late and in small steps: else each
 * of those would push out one that the source was asked for already. */
static uint64_t fetch_reserve(const struct plan *plan, uint64_t horizon)
{
	double share = (double)plan->pinned_pages / ((double)plan->mean_pages * (double)plan->n_sized);
	double pages = (double)(horizon * plan->mean_pages) * MIN(share, 1);

	return MIN((uint64_t)pages, plan->arena_pages / 4);
}

/* While all reads agree, what they have read does not count for the half: as few as are enough to
 * confirm the order may be of more than that. Nothing that is not read yet gives way. What is on its
 * way counts until it is there, from the store as well. */
static bool fetch_has_room_while_agreed(struct plan *plan, struct plan_job *job,
					const struct item *it, uint64_t when, bool is_near)
{
	uint64_t unread = plan->fresh_pages + plan->fetching_pages;

	if (plan->n_jobs > 1 || !score_is_agreed(job) ||
	    unread + it->pages > usable_pages(plan) / 2)
		return false;
	return plan->used_pages + it->pages <= usable_pages(plan) ||
	       (is_near && retain_make_room(plan, job, it->pages, when, ROOM_OF_READ));
}

/* Before the order is confirmed. What cannot be verified, or by few reads only as its samples are
 * cut, must not run dry: it goes on within half of the arena, a little ahead of the readers. Else what
 * is due later gives way only for a unit that had its turn and is missing after all. */
static bool fetch_has_room_in_doubt(struct plan *plan, struct plan_job *job, const struct item *it,
				    uint64_t when, bool is_near)
{
	uint64_t half = usable_pages(plan) / 2;
	/* Of several jobs it would be at the cost of one that is followed, which brings it back. */
	bool may_roll = job->is_unprovable || (job->inner && plan->n_jobs == 1);

	if (plan->used_pages + it->pages <= half ||
	    fetch_has_room_while_agreed(plan, job, it, when, is_near))
		return true;
	/* That other orders have filled it is no reason to wait: what is due soon comes at the cost
	 * of what is needed last, the rest at that of what nobody needs. */
	if (job->is_heir && job->doubt_pages + it->pages <= half &&
	    (is_near ? retain_make_room(plan, job, it->pages, when, ROOM_NEAR)
		     : retain_make_room_unneeded(plan, it->pages)))
		return true;
	return is_near && (may_roll || it->flags & AGAIN) &&
	       retain_make_room(plan, job, it->pages + half, when, ROOM_NEAR);
}

static bool fetch_has_room(struct plan *plan, struct plan_job *job, const struct item *it,
			   uint64_t due)
{
	uint64_t lead = due - job_low(job), pages = it->pages, horizon = job->ahead;
	uint64_t when = jobs_when(plan, job, due);

	if (job->state <= PLAN_CHECKING)
		return fetch_has_room_in_doubt(plan, job, it, when, lead <= horizon);
	if (job->state == PLAN_SLOWED && lead > MAX(job->span, horizon))
		return false;
	if (lead > waste_lead_most(job))
		return false;
	if (lead > horizon)
		return retain_make_room(plan, job,
					pages + fetch_reserve(plan, horizon_of_store(plan, job)),
					when, ROOM_FAR);
	return retain_make_room(plan, job, pages, when,
				lead > job->near ? ROOM_SOON : ROOM_NEAR);
}

static void fetch_issue(struct plan *plan, struct plan_job *job, uint32_t unit, bool is_store)
{
	struct item *it = &plan->item[unit];

	assert(item_state(it) == ABSENT && it->pages <= plan->max_pages);
	plan_act(plan, job, PLAN_ACT_FETCH, unit);
	item_out(plan, unit);
	item_set_state(plan, unit, FETCHING);
	if (is_store) {
		it->flags |= FROM_STORE;
		plan->inflight_store++;
	} else {
		plan->inflight_source++;
		budget_spend(plan, (uint64_t)it->pages * PAGE_BYTES);
		job->doubt_pages += job->state <= PLAN_CHECKING ? it->pages : 0;
		horizon_asked(job, it->pages);
		waste_fetched(job);
	}
	item_in(plan, unit);
	plan->issued++;
}

/* A reader came first and has its bytes from the source, or is about to: they are kept for the next
 * pass as long as there is room for nothing better. Who carries this out joins the reader's
 * request, or finds what it brought: nobody is asked for it, so no limit of requests applies. */
void fetch_adopt(struct plan *plan, struct plan_job *job, uint32_t unit)
{
	struct item *it = &plan->item[unit];
	const struct plan_job *home;
	uint64_t when;

	if (job->state != PLAN_FOLLOWING)
		return;
	home = jobs_home(plan, unit, &when);
	if (!home || home->is_over || !item_is_wanted(plan, it) ||
	    actions_left(plan) <= ACTIONS_MAX / 8 ||
	    plan->inflight_adopted == plan->params.inflight_max ||
	    !retain_make_room(plan, job, it->pages, when, ROOM_FAR))
		return;
	assert(item_state(it) == ABSENT);
	plan_act(plan, job, PLAN_ACT_FETCH, unit)->is_adopted = true;
	item_out(plan, unit);
	item_set_state(plan, unit, FETCHING);
	it->flags |= ADOPTED | OPENED;
	horizon_awaited(plan, true);
	item_in(plan, unit);
	plan->inflight_adopted++;
	plan->issued++;
}

static bool fetch_store_allows(const struct plan *plan)
{
	const struct plan_params *p = &plan->params;

	return plan->inflight_store < MAX(p->inflight_max / 2, 1) &&
	       plan->inflight_store + plan->inflight_source < p->inflight_max;
}

/* What may be had from the store now: its first position, or NO_POS. Until the order is confirmed
 * nothing makes room again, so what is due later must not take it, however long the store's answers
 * take: *source is then as far as the store's first. */
static uint64_t fetch_from_store(const struct plan *plan, const struct plan_job *job,
				 uint64_t horizon, uint64_t *source)
{
	bool is_strict = job->state <= PLAN_CHECKING && !job->is_unprovable;
	bool is_allowed = fetch_store_allows(plan);
	uint64_t first = is_strict || is_allowed ? fetch_first(job, SET_STORE) : NO_POS;

	if (is_strict && first < *source)
		*source = NO_POS;
	if (first == NO_POS || !is_allowed)
		return NO_POS;
	return is_strict || first - job_low(job) <= horizon ? first : NO_POS;
}

/* What a job is to be given next. */
struct wish {
	struct plan_job *job;
	uint64_t due, source, when; /* source: the first that is to come from there */
	bool is_store;
};

static bool fetch_wish_of_job(const struct plan *plan, struct plan_job *job, bool is_source_open,
			      struct wish *ret)
{
	uint64_t source, store;

	if (job->is_blocked)
		return false;
	source = is_source_open ? fetch_first(job, SET_WANT) : NO_POS;
	store = fetch_from_store(plan, job, job->ahead_store, &source);
	*ret = (struct wish){ .job = job, .due = MIN(source, store), .source = source };
	ret->is_store = ret->due == store;
	if (ret->due == NO_POS)
		return false;
	ret->when = jobs_when(plan, job, ret->due);
	return true;
}

/* Of what the jobs wait for, what is needed first. */
static bool fetch_next_wish(struct plan *plan, bool is_source_open, struct wish *ret)
{
	bool is_found = false;

	struct plan_job *job;

	for (uint32_t at = 0; (job = jobs_next(plan, &at));) {
		struct wish w;

		if (!fetch_wish_of_job(plan, job, is_source_open, &w) ||
		    (is_found && w.when >= ret->when))
			continue;
		*ret = w;
		is_found = true;
	}
	return is_found;
}

/* No room for it. What is due first may still find some; but far ahead it would only push out
 * others of its group. */
static void fetch_refused(struct plan_job *job, const struct wish *w, uint64_t last)
{
	if (w->is_store || last == w->source || w->source - job_low(job) > job->ahead) {
		job->is_blocked = true;
		return;
	}
	group_forget(job);
	job->is_grouped = false;
}

static void fetch_begin(struct plan *plan)
{
	struct plan_job *job;

	for (uint32_t at = 0; (job = jobs_next(plan, &at));) {
		job->ahead = horizon_ahead(plan, job);
		job->near = horizon_near(plan, job);
		job->ahead_store = horizon_of_store(plan, job); /* before this step's own */
		job->is_blocked = !job_is_prefetching(job);
		job->is_grouped = true;
	}
}

uint64_t fetch_step(struct plan *plan, uint64_t now_ns)
{
	uint64_t wake = UINT64_MAX;
	bool is_source_open = true;
	struct wish w = { .due = NO_POS };

	if (now_ns < plan->usable_not_before_ns)
		return jobs_are_prefetching(plan) ? plan->usable_not_before_ns : UINT64_MAX;
	fetch_begin(plan);
	while (actions_left(plan) > ACTIONS_MAX / 8 && fetch_next_wish(plan, is_source_open, &w)) {
		uint64_t last = w.due, due = w.due;
		uint32_t unit;

		if (!w.is_store && w.job->is_grouped)
			due = group_next(plan, w.job, due, &last);
		unit = fetch_unit_at(w.job, due);
		if (reach_defers(plan, w.job, unit))
			continue;
		if (!w.is_store &&
		    !budget_allows(plan, now_ns, (uint64_t)plan->item[unit].pages * PAGE_BYTES,
				   &wake))
			is_source_open = false;
		else if (!fetch_has_room(plan, w.job, &plan->item[unit], last))
			fetch_refused(w.job, &w, last);
		else
			fetch_issue(plan, w.job, unit, w.is_store);
	}
	return wake;
}
