/* SPDX-License-Identifier: Apache-2.0 */
/* How far ahead of the readers room is made for a missing sample. Too near, and whenever the source
 * is slow for a while the readers wait; too far, and residents that are worth keeping are given up
 * for samples that would have come in time anyway, each of which is a read of the source more.
 *
 * The readers' own distance is always within; what is consumed during slow fetches comes on top,
 * times a reach that learns: reads that come late double it (the source has longer outages than
 * its latency says), or more where the source was seen to swing; a pass that asked the source for
 * much more than no policy could do without halves it, and passes without any of that bring it
 * slowly back. So the outage that is ridden out is the longest of the last passes, and what that
 * costs is bounded.
 *
 * Where the stage can be the prefetch buffer (alone.c) residents are given up only for what is due
 * before a fetch could be answered; the rest of the horizon has what the kernel holds. Only where
 * readers wait all the same it has residents, too ("deep"). Planner thread. */
#include "plan_priv.h"

#define REACH_MOST 64.0
#define WINDOWS 64u /* of a pass */
#define REACH_LEAST 0.25
#define LATE_PART 64u /* one read of so many is late: too near */
#define WAIT_SHORTEST 12u /* readers wait for so much of a pass: a 12th */
#define WAIT_LONGEST 3u
#define OVER_PART 20u /* of a pass may be read beyond what must be */

void horizon_init(struct plan *plan)
{
	plan->job->horizon.reach = 1;
}

/* The source was at times much slower than at others, and that was felt. */
static bool horizon_swings(const struct plan *plan)
{
	return plan->job->horizon.slowest_late_ns > plan->job->horizon.fastest_ns * 3 / 2;
}

/* In the first pass nothing can be there in time, so that reads are late says little, and what was
 * learned only counts once the source was seen to swing. */
static double horizon_reach(const struct plan *plan)
{
	const struct horizon *h = &plan->job->horizon;
	bool is_learned = cur_slot(plan)->index || horizon_swings(plan);

	return is_learned ? h->reach : MIN(h->reach, 1);
}

/* Where readers may be that keep in step, as far as that is known. */
static uint64_t horizon_readers(const struct plan *plan)
{
	return plan->job->reader_span ? MIN(plan->job->reader_span, plan->job->span)
				      : plan->job->span;
}

/* Half of the arena; all of it where the source swings: then nothing is kept for being worth it,
 * and the source works whenever it can. With several jobs: what one of them keeps ready beyond its
 * readers is room that the hits of all are made of. */
static uint64_t horizon_most(const struct plan *plan)
{
	uint64_t share = plan->arena_pages / plan->mean_pages / plan->n_jobs;

	if (plan->n_jobs > 1)
		share = MIN(MAX(share / 8, horizon_readers(plan)), share / 2);
	else if (!horizon_swings(plan))
		share /= 2;
	return MAX(share, 8);
}

static uint64_t horizon_at(const struct plan *plan, double reach)
{
	const struct budget *b = &plan->budget;
	double slow_ns = b->latency_ns + 4 * b->deviation_ns;
	uint64_t most = horizon_most(plan), h;
	uint64_t readers = horizon_readers(plan);
	double more = (double)readers / 16 + (double)(2 * plan->inflight_source) / plan->n_jobs +
		      2 * plan->job->pace.rate * slow_ns / (double)NS_PER_S;

	h = readers + (uint64_t)(more * reach);
	if (reach > 1)
		h += (uint64_t)((double)readers / 2 * (reach - 1));
	if (plan->job->state == PLAN_SLOWED || plan->job->is_unprovable)
		h /= 4;
	return MIN(MAX(h, 8), most);
}

uint64_t fetch_horizon(const struct plan *plan)
{
	return horizon_at(plan, horizon_reach(plan));
}

uint64_t fetch_near(const struct plan *plan)
{
	const struct budget *b = &plan->budget;
	uint64_t all = plan->job->ahead, due;

	if (!alone_is_possible(plan) || plan->job->horizon.is_deep)
		return all;
	if (!alone_pages(plan))
		return MIN(all, horizon_at(plan, MIN(horizon_reach(plan), 2)));
	due = plan->inflight_source + horizon_readers(plan) +
	      (uint64_t)(plan->job->pace.rate * b->latency_ns / (double)NS_PER_S);
	return MIN(all, MAX(due, 8));
}

/* The store answers at once: beyond the readers what is in it only takes room. */
uint64_t fetch_store_horizon(const struct plan *plan)
{
	return MIN(fetch_horizon(plan), horizon_readers(plan) + 2 * plan->inflight_store);
}

/* A sample was opened that its readers must wait for. */
static void horizon_late(struct plan *plan)
{
	uint64_t every = MAX(plan->job->span, SCORE_READS);

	plan->job->horizon.is_late_pass = plan->job->horizon.is_late_window = true;
	if (++plan->job->horizon.late * LATE_PART <= every)
		return;
	/* Not beyond what has an effect: it must come back as fast as it went. */
	if (fetch_horizon(plan) < horizon_most(plan))
		plan->job->horizon.reach =
			MIN(plan->job->horizon.reach * (horizon_swings(plan) ? 4 : 2), REACH_MOST);
	plan->job->horizon.late = 0;
	plan->job->horizon.calm_until =
		plan->job->reads + 2 * every; /* what is on its way was asked for late */
}

void horizon_opened(struct plan *plan, uint32_t sample)
{
	const struct item *it = &plan->item[sample];
	bool is_absent = item_state(it) == ABSENT;

	if (!plan->job->horizon.pass_began_ns)
		plan->job->horizon.pass_began_ns = plan->now_ns;
	/* Others may read anything: that says nothing about those who follow the order. */
	if (plan->job->state != PLAN_FOLLOWING ||
	    job_due(plan, plan->job, sample) >= plan_low(plan) + plan->job->span)
		return;
	if (is_absent && !(it->flags & PINNED))
		plan->job->horizon.asked_pages += it->pages;
	if (is_absent && (it->flags & (PINNED | HELD_OUT) || it->pages > plan->max_pages))
		return; /* of no source, or not prefetched on purpose */
	if (item_state(it) != ARENA && plan->job->reads >= plan->job->horizon.calm_until)
		horizon_late(plan);
}

void horizon_asked(struct plan *plan, uint32_t pages)
{
	plan->job->horizon.asked_pages += pages;
}

void horizon_unasked(struct plan *plan, uint32_t pages)
{
	struct horizon *h = &plan->job->horizon;

	h->asked_pages -= MIN(h->asked_pages, pages);
}

/* A window that took long may be one in which little was asked for (the limit of requests was being
 * found out, there was no room), and one with long answers one in which much was. Of a source that
 * was slow both are true. */
static void horizon_window(struct horizon *h, uint64_t took, uint64_t latency_ns)
{
	if (!h->fastest_ns || took < h->fastest_ns) {
		h->fastest_ns = took;
		h->fastest_latency_ns = latency_ns;
	}
	if (h->is_late_window && latency_ns > h->fastest_latency_ns * 3 / 2)
		h->slowest_late_ns = MAX(h->slowest_late_ns, took);
}

void horizon_fetched(struct plan *plan, uint64_t now_ns, uint64_t latency_ns)
{
	uint64_t every = MAX(cur_slot(plan)->length / WINDOWS, SCORE_READS);
	struct horizon *h = &plan->job->horizon;

	h->latency_ns += latency_ns;
	if (++h->done < every)
		return;
	/* The first ones are of a source that is still being sounded out. */
	if (++h->windows > 4)
		horizon_window(h, now_ns - h->began_ns, h->latency_ns / h->done);
	h->began_ns = now_ns;
	h->latency_ns = 0;
	h->done = 0;
	h->is_late_window = false;
}

/* Total time in which readers waited for fetches. */
static uint64_t horizon_waits(struct plan *plan)
{
	struct awaited *a = &plan->awaited;

	if (a->n)
		a->ns += plan->now_ns - a->since_ns;
	a->since_ns = plan->now_ns;
	return a->ns;
}

void horizon_awaited(struct plan *plan, bool is_begin)
{
	horizon_waits(plan);
	assert(is_begin || plan->awaited.n);
	plan->awaited.n += is_begin ? 1 : -1u;
}

/* Readers that wait for much of a pass although a reach was learned want more than the stage holds.
 * Those that wait all the time are faster than the source: for them a read more is time lost. */
static void horizon_judge_waits(struct plan *plan)
{
	struct horizon *h = &plan->job->horizon;
	uint64_t all = horizon_waits(plan), waited = all - h->waits_before;
	uint64_t passed = plan->now_ns - h->pass_began_ns;

	h->is_deep = h->reach > 1 && waited * WAIT_LONGEST < passed &&
		     (h->is_deep || waited * WAIT_SHORTEST > passed);
	h->pass_began_ns = plan->now_ns;
	h->waits_before = all;
}

static void horizon_shrink(struct plan *plan, double factor)
{
	plan->job->horizon.reach = MAX(plan->job->horizon.reach / factor, REACH_LEAST);
}

/* A pass has ended: whether more was read than must be. */
void horizon_rolled(struct plan *plan, const struct slot *old)
{
	uint64_t length = old->length + valid_slot(plan)->consumed.count;
	uint64_t all = (uint64_t)((double)plan->mean_pages * (double)length);
	uint64_t kept = uses_kept_pages(plan),
		 had = plan->job->horizon.asked_pages + MIN(kept, all);

	if (old->index && old->low == old->length && had > all + all / OVER_PART)
		horizon_shrink(plan, had > all + 2 * (all / OVER_PART) ? 4 : 2);
	else if (!horizon_swings(plan) && plan->job->horizon.reach > 1)
		plan->job->horizon.reach = old->index ? 1 + (plan->job->horizon.reach - 1) / 2 : 1;
	else if (!plan->job->horizon.is_late_pass && plan->job->horizon.reach > 1)
		plan->job->horizon.reach = MAX(plan->job->horizon.reach * 15 / 16, 1);
	plan->job->horizon.asked_pages = 0;
	plan->job->horizon.late = 0;
	horizon_judge_waits(plan);
	plan->job->horizon.is_late_pass = false;
	/* A new judgement, with the last one's weight: one calm pass does not end it. */
	plan->job->horizon.slowest_late_ns -= plan->job->horizon.slowest_late_ns / 16;
}
