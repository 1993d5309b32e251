/* SPDX-License-Identifier: Apache-2.0 */
/* A reader has come to the next part of a sample that it had opened: its second unit, or a later
 * one. The unit is used up like one that is opened: window, key of its next use, counters, stage.
 * But where a reader goes within a file is no evidence for or against the order. So it is never
 * scored, starts no search and is not among the last opens.
 *
 * Who tells may tell it twice, late, or not at all (a page that was not read, a ring that was full).
 * So it counts where it can only be meant: in the pass in which its sample was opened, or, if that
 * open was missed, within the window of the pass that is being read. Everything else is ignored.
 * What is told before the open of its sample counts when that is told: opens are heard of late, and a
 * reader of pages that the kernel has is at the next unit within a millisecond. What is never told is
 * passed over with the window (window.c) or when the pass ends. Must never move a job to another place.
 * Planner thread. */
#include "plan_priv.h"

#define FAR 4u /* spans: within, a unit is expected whose sample was opened */
#define EARLY_NS (NS_PER_S / 4) /* opens are heard of later by this at most */

struct reach {
	struct plan_job *job;
	struct slot *slot;
	uint64_t pos, ahead; /* ahead of the readers */
	bool is_open;        /* its sample was opened in this pass */
};

/* The first unit of the sample. */
static uint32_t reach_first(const struct plan_job *job, uint32_t unit)
{
	uint32_t word = unit / 64;
	uint64_t outer = ~job->inner[word] & (~0ull >> (63 - unit % 64));

	while (!outer && word)
		outer = ~job->inner[--word];
	return outer ? word * 64 + 63 - (uint32_t)__builtin_clzll(outer) : 0;
}

/* One more than its last unit. */
static uint64_t reach_end(const struct plan *plan, const struct plan_job *job, uint32_t unit)
{
	uint32_t word = (unit + 1) / 64, words = (uint32_t)DIV_ROUND_UP((uint64_t)plan->n, 64);
	uint64_t outer = word < words ? ~job->inner[word] & (~0ull << (unit + 1) % 64) : 0;

	while (!outer && ++word < words)
		outer = ~job->inner[word];
	return outer ? MIN(word * 64ull + (uint32_t)__builtin_ctzll(outer), plan->n) : plan->n;
}

static bool reach_is_open(const struct plan_job *job, const struct slot *slot, uint32_t unit)
{
	uint32_t pos = slot->ep->first[reach_first(job, unit)];

	return pos != SAMPLE_NONE && bitmap_get(&slot->consumed, pos);
}

static bool reach_in_cur(const struct plan *plan, struct plan_job *job, uint32_t unit,
			 struct reach *ret)
{
	struct slot *cur = job_cur(job);
	uint64_t pos = window_first_use(cur, plan, job, unit);

	if (pos == NO_POS)
		return false;
	*ret = (struct reach){ job, cur, pos, pos - cur->low, reach_is_open(job, cur, unit) };
	return ret->ahead < job->span || (ret->is_open && ret->ahead < FAR * job->span);
}

/* Where its sample was not opened there, it is the same unit of the pass before, once more. */
static bool reach_in_next(const struct plan *plan, struct plan_job *job, uint32_t unit,
			  struct reach *ret)
{
	const struct slot *cur = job_cur(job);
	struct slot *next = job_next(job);
	uint64_t pos = next->ep ? window_first_use(next, plan, job, unit) : NO_POS;

	if (pos == NO_POS)
		return false;
	*ret = (struct reach){ job, next, pos, pos - next->low, reach_is_open(job, next, unit) };
	if (ret->is_open)
		return ret->ahead < FAR * job->span;
	return !next->is_rerun && cur->length - cur->low + pos < job->span &&
	       !window_was_just_read(job, cur, unit);
}

static bool reach_in(const struct plan *plan, struct plan_job *job, uint32_t unit,
		     struct reach *ret)
{
	struct reach next;
	bool is_next;

	if (!job_is_inner(job, unit) || !job_cur(job)->ep || job->state == PLAN_LOST ||
	    job->state == PLAN_NO_ORDER || window_is_outside(plan, job, unit))
		return false;
	/* What was left of the sample in the pass before may still be open there. */
	is_next = reach_in_next(plan, job, unit, &next);
	if (!(is_next && next.is_open) && reach_in_cur(plan, job, unit, ret))
		return true;
	if (is_next)
		*ret = next;
	return is_next;
}

/* Of several jobs the one that has opened the sample, and stands nearest to it. */
static bool reach_find(const struct plan *plan, uint32_t unit, struct reach *ret)
{
	struct plan_job *job;

	*ret = (struct reach){ .job = NULL };
	for (uint32_t at = 0; (job = jobs_next(plan, &at));) {
		struct reach r = { .job = NULL };

		if (!reach_in(plan, job, unit, &r))
			continue;
		if (!ret->job || r.is_open > ret->is_open ||
		    (r.is_open == ret->is_open && r.ahead < ret->ahead))
			*ret = r;
	}
	return ret->job != NULL;
}

/* As much again as was read of it, so what is fetched in vain is no more than what is read. */
void reach_allow(struct plan *plan, const struct plan_job *job, uint32_t unit)
{
	uint64_t end;

	if (!job->inner || !job->waste.is_left)
		return;
	end = unit + (uint64_t)(job_is_inner(job, unit) ? unit - reach_first(job, unit) : 0) + 2;
	for (uint32_t u = unit + 1; u < MIN(end, plan->n) && job_is_inner(job, u); u++) {
		item_out(plan, u);
		plan->item[u].flags &= ~(uint32_t)NO_FETCH;
		plan->item[u].flags |= AGAIN;
		item_in(plan, u);
	}
}

bool reach_defers(struct plan *plan, const struct plan_job *job, uint32_t unit)
{
	struct item *it = &plan->item[unit];

	if (!job->waste.is_left || !job_is_inner(job, unit) || it->flags & AGAIN || plan->n_jobs > 1)
		return false;
	item_out(plan, unit);
	it->flags |= NO_FETCH;
	item_in(plan, unit);
	return true;
}

static void early_push(struct early_reads *reads, uint64_t now_ns, uint32_t unit)
{
	reads->read[reads->head] = (struct early){ now_ns + EARLY_NS, unit };
	reads->head = (reads->head + 1) % EARLY_READS;
	reads->count = MIN(reads->count + 1, EARLY_READS);
}

/* From the oldest on. */
static struct early *early_at(struct early_reads *reads, uint32_t i)
{
	return &reads->read[(reads->head + EARLY_READS - reads->count + i) % EARLY_READS];
}

static void early_forget(struct early_reads *reads, uint64_t now_ns)
{
	while (reads->count && now_ns >= early_at(reads, 0)->until_ns)
		reads->count--;
}

/* The last one that had its place in these, or UNIT_NONE. */
static uint32_t early_last_in(struct early_reads *reads, uint64_t first, uint64_t end)
{
	for (uint32_t i = reads->count; i-- > 0;) {
		uint32_t unit = early_at(reads, i)->unit;

		if (unit >= first && unit < end)
			return unit;
	}
	return UNIT_NONE.v;
}

/* For the open of its sample, unless it is told once more: its reader has not gone on since. Who has
 * gone on, and is there again, has begun the sample anew. */
static void reach_keep_early(struct plan *plan, uint64_t now_ns, uint32_t unit)
{
	struct plan_job *job;
	bool is_inner = false;

	early_forget(&plan->last_reached, now_ns);
	for (uint32_t at = 0; (job = jobs_next(plan, &at));) {
		if (!job_is_inner(job, unit))
			continue;
		is_inner = true;
		if (early_last_in(&plan->last_reached, reach_first(job, unit),
				  reach_end(plan, job, unit)) == unit)
			return;
	}
	if (is_inner)
		early_push(&plan->early, now_ns, unit);
}

static void reach_take(struct plan *plan, uint64_t now_ns, uint32_t unit, const struct reach *r)
{
	bool is_alone = (plan->item[unit].flags & ALONE) != 0;
	struct plan_job *job = r->job;

	early_push(&plan->last_reached, now_ns, unit);
	plan->reached++;
	job->reached++;
	if (job->state == PLAN_FINISHED) /* it had only paused */
		plan_enter(plan, job, job->is_proven ? PLAN_FOLLOWING : PLAN_CHECKING,
			   WHY_OF_STATE);
	retain_opened(plan, job, now_ns, unit);
	budget_read(plan, job, now_ns);
	if (r->ahead >= job->span &&
	    (r->slot == job_cur(job) || job_cur(job)->low == job_cur(job)->length))
		window_slide(plan, job, r->slot, r->pos);
	window_remember(plan, job, r->slot, r->pos);
	window_set_consumed(plan, job, r->slot, r->pos);
	if (plan->n_jobs > 1)
		worth_read(plan, now_ns, unit);
	reach_allow(plan, job, unit);
	window_ended(plan, job);
	if (!is_alone)
		fetch_adopt(plan, job, unit);
}

/* Of the sample that begins with `unit`; in the order in which they were told. */
static void reach_take_early(struct plan *plan, const struct plan_job *job, uint64_t now_ns,
			     uint32_t unit)
{
	uint64_t end = reach_end(plan, job, unit);

	for (uint32_t i = 0; i < plan->early.count; i++) {
		struct early *e = early_at(&plan->early, i);
		uint32_t inner = e->unit;
		struct reach r;

		if (inner <= unit || inner >= end)
			continue;
		e->unit = UNIT_NONE.v;
		if (reach_find(plan, inner, &r))
			reach_take(plan, now_ns, inner, &r);
	}
}

void reach_opened(struct plan *plan, const struct plan_job *job, uint64_t now_ns, uint32_t unit)
{
	const struct plan_use use = plan->last_use; /* of the open */

	early_forget(&plan->early, now_ns);
	if (plan->early.count && job->inner && !job_is_inner(job, unit))
		reach_take_early(plan, job, now_ns, unit);
	plan->last_use = use;
}

/* Of a validation set: it comes back as it was read. True: it is of one. */
static bool reach_outside(struct plan *plan, uint64_t now_ns, uint32_t unit)
{
	struct plan_job *job;
	bool is_news = false;

	for (uint32_t at = 0; (job = jobs_next(plan, &at));) {
		if (!job_is_inner(job, unit) || !job_cur(job)->ep ||
		    !window_is_outside(plan, job, unit) || !valid_is_news(job, unit))
			continue;
		if (!is_news)
			retain_opened(plan, job, now_ns, unit);
		is_news = true;
		valid_read(plan, job, now_ns, unit);
	}
	plan->reached += is_news;
	return is_news;
}

void reach_read(struct plan *plan, uint64_t now_ns, uint32_t unit)
{
	struct reach r;

	plan->has_last_use = false;
	if (reach_find(plan, unit, &r))
		reach_take(plan, now_ns, unit, &r);
	else if (!reach_outside(plan, now_ns, unit))
		reach_keep_early(plan, now_ns, unit);
}
