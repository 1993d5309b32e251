/* SPDX-License-Identifier: Apache-2.0 */
/* How far ahead of the readers room is made for a missing unit. Too near, and whenever the source
 * is slow for a while the readers wait; too far, and residents that are worth keeping are given up
 * for units that would have come in time anyway, each of which is a read of the source more.
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

void horizon_init(struct plan_job *job)
{
	job->horizon.reach = 1;
}

/* The source was at times much slower than at others, and that was felt. */
static bool horizon_swings(const struct plan_job *job)
{
	return job->horizon.slowest_late_ns > job->horizon.fastest_ns * 3 / 2;
}

/* In the first pass nothing can be there in time, so that reads are late says little, and what was
 * learned only counts once the source was seen to swing. */
static double horizon_reach(const struct plan_job *job)
{
	const struct horizon *h = &job->horizon;
	bool is_learned = job_cur(job)->index || horizon_swings(job);

	return is_learned ? h->reach : MIN(h->reach, 1);
}

/* Where readers may be that keep in step, as far as that is known. */
static uint64_t horizon_readers(const struct plan_job *job)
{
	return job->reader_span ? MIN(job->reader_span, job->span)
				      : job->span;
}

/* Half of the arena; all of it where the source swings: then nothing is kept for being worth it,
 * and the source works whenever it can. With several jobs: what one of them keeps ready beyond its
 * readers is room that the hits of all are made of. */
static uint64_t horizon_most(const struct plan *plan, const struct plan_job *job)
{
	uint64_t share = plan->arena_pages / plan->mean_pages / plan->n_jobs;

	if (plan->n_jobs > 1)
		share = MIN(MAX(share / 8, horizon_readers(job)), share / 2);
	else if (!horizon_swings(job))
		share /= 2;
	return MAX(share, 8);
}

static uint64_t horizon_at(const struct plan *plan, const struct plan_job *job, double reach)
{
	const struct budget *b = &plan->budget;
	double slow_ns = b->latency_ns + 4 * b->deviation_ns;
	uint64_t most = horizon_most(plan, job), h;
	uint64_t readers = horizon_readers(job);
	double more = (double)readers / 16 + (double)(2 * plan->inflight_source) / plan->n_jobs +
		      2 * job->pace.rate * slow_ns / (double)NS_PER_S;

	h = readers + (uint64_t)(more * reach);
	if (reach > 1)
		h += (uint64_t)((double)readers / 2 * (reach - 1));
	if (job->state == PLAN_SLOWED || job->is_unprovable)
		h /= 4;
	return MIN(MAX(h, 8), most);
}

uint64_t horizon_ahead(const struct plan *plan, const struct plan_job *job)
{
	return horizon_at(plan, job, horizon_reach(job));
}

uint64_t horizon_near(const struct plan *plan, const struct plan_job *job)
{
	const struct budget *b = &plan->budget;
	uint64_t all = job->ahead, due;

	if (!alone_is_possible(plan) || job->horizon.is_deep)
		return all;
	if (!alone_pages(plan))
		return MIN(all, horizon_at(plan, job, MIN(horizon_reach(job), 2)));
	due = plan->inflight_source + horizon_readers(job) +
	      (uint64_t)(job->pace.rate * b->latency_ns / (double)NS_PER_S);
	return MIN(all, MAX(due, 8));
}

/* The store answers at once: beyond the readers what is in it only takes room. */
uint64_t horizon_of_store(const struct plan *plan, const struct plan_job *job)
{
	return MIN(horizon_ahead(plan, job), horizon_readers(job) + 2 * plan->inflight_store);
}

/* A unit was opened that its readers must wait for. */
static void horizon_late(struct plan *plan, struct plan_job *job)
{
	uint64_t every = MAX(job->span, SCORE_READS);

	job->horizon.is_late_pass = job->horizon.is_late_window = true;
	if (++job->horizon.late * LATE_PART <= every)
		return;
	/* Not beyond what has an effect: it must come back as fast as it went. */
	if (horizon_ahead(plan, job) < horizon_most(plan, job))
		job->horizon.reach =
			MIN(job->horizon.reach * (horizon_swings(job) ? 4 : 2), REACH_MOST);
	job->horizon.late = 0;
	job->horizon.calm_until =
		job->reads + job->reached + 2 * every; /* what is on its way was asked for late */
}

void horizon_opened(struct plan *plan, struct plan_job *job, uint32_t unit)
{
	const struct item *it = &plan->item[unit];
	bool is_absent = item_state(it) == ABSENT;

	if (!job->horizon.pass_began_ns)
		job->horizon.pass_began_ns = plan->now_ns;
	/* Others may read anything: that says nothing about those who follow the order. */
	if (job->state != PLAN_FOLLOWING ||
	    job_due(plan, job, unit) >= job_low(job) + job->span)
		return;
	if (is_absent && !(it->flags & PINNED))
		job->horizon.asked_pages += it->pages;
	if (is_absent && (it->flags & (PINNED | HELD_OUT) || it->pages > plan->max_pages))
		return; /* of no source, or not prefetched on purpose */
	if (item_state(it) != ARENA && job->reads + job->reached >= job->horizon.calm_until)
		horizon_late(plan, job);
}

void horizon_asked(struct plan_job *job, uint32_t pages)
{
	job->horizon.asked_pages += pages;
}

void horizon_unasked(struct plan_job *job, uint32_t pages)
{
	struct horizon *h = &job->horizon;

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

void horizon_fetched(struct plan_job *job, uint64_t now_ns, uint64_t latency_ns)
{
	uint64_t every = MAX(job_cur(job)->length / WINDOWS, SCORE_READS);
	struct horizon *h = &job->horizon;

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
static void horizon_judge_waits(struct plan *plan, struct plan_job *job)
{
	struct horizon *h = &job->horizon;
	uint64_t all = horizon_waits(plan), waited = all - h->waits_before;
	uint64_t passed = plan->now_ns - h->pass_began_ns;

	h->is_deep = h->reach > 1 && waited * WAIT_LONGEST < passed &&
		     (h->is_deep || waited * WAIT_SHORTEST > passed);
	h->pass_began_ns = plan->now_ns;
	h->waits_before = all;
}

static void horizon_shrink(struct plan_job *job, double factor)
{
	assert(factor > 1);
	job->horizon.reach = MAX(job->horizon.reach / factor, REACH_LEAST);
}

/* A pass has ended: whether more was read than must be. */
void horizon_rolled(struct plan *plan, struct plan_job *job, const struct slot *old)
{
	uint64_t length = old->length + job_valid(job)->consumed.count;
	uint64_t all = (uint64_t)((double)plan->mean_pages * (double)length);
	uint64_t kept = later_kept_pages(plan), had = job->horizon.asked_pages + MIN(kept, all);

	if (old->index && old->low == old->length && had > all + all / OVER_PART)
		horizon_shrink(job, had > all + 2 * (all / OVER_PART) ? 4 : 2);
	else if (!horizon_swings(job) && job->horizon.reach > 1)
		job->horizon.reach = old->index ? 1 + (job->horizon.reach - 1) / 2 : 1;
	else if (!job->horizon.is_late_pass && job->horizon.reach > 1)
		job->horizon.reach = MAX(job->horizon.reach * 15 / 16, 1);
	job->horizon.asked_pages = 0;
	job->horizon.late = 0;
	horizon_judge_waits(plan, job);
	job->horizon.is_late_pass = false;
	/* A new judgement, with the last one's weight: one calm pass does not end it. */
	job->horizon.slowest_late_ns -= job->horizon.slowest_late_ns / 16;
}
