/* SPDX-License-Identifier: Apache-2.0 */
/* What to push into the kernel's page cache: the units due next, as many as fit into the stage
 * limit counted from the readers in positions, not in what happens to be there. Staging whatever is
 * in the arena would fill the limit with units that are due much later, whose pages some kernels
 * drop within seconds.
 *
 * The kernel dropping unread pages shrinks the limit (once per half second, by a quarter); it
 * recovers over half a minute. The arena copy stays until the unit was opened, so a dropped page
 * costs no read of the source; but for those that alone.c leaves to the kernel.
 *
 * Some kernels drop whatever nobody has read for two seconds. Shrinking by quarters until they are
 * content took four seconds and cost a tenth of all reads their pages, and growing back as fast did
 * so again and again. So more than one drop in 64 pushes means distrust: then the window is what is
 * due within half a second, or what the readers are apart; whatever was pushed before is pushed once
 * more when it comes into the window (a push of pages that are there costs a copy); and it grows
 * only after a pause, which is longer each time that drops follow.
 *
 * How many inodes the kernel may know ahead of the readers is the executive's to say: it refuses a
 * STAGE with PLAN_NO_INODES. That says nothing about the unit, which stays where it is. From then
 * on each unit that is opened (or dropped by the kernel) buys one STAGE, each sixteenth two, so
 * that the window follows the readers at the size it has and grows when there is room again. Once
 * they buy more than there is to stage the bound is forgotten. */
#include "plan_priv.h"

#include <errno.h>

#define SHRINK_NS (NS_PER_S / 2)
#define RECOVER_S 32.0
#define SOON_S 0.5       /* what is due within is safe from any kernel */
#define PAUSE_NS (32 * NS_PER_S)
#define PAUSE_MOST_NS (1024 * NS_PER_S)
#define DOUBT_MOST 65536u /* positions */
#define GROW_S 8.0 /* after a pause: by as much as it is */
#define RETRY_NS (50 * NS_PER_MS)
#define CREDIT 16u                 /* what a STAGE costs while there is a bound */
#define CREDIT_MOST (256 * CREDIT) /* beyond, there is none */
#define AHEAD 16                   /* positions whose units are brought near the processor */

static uint64_t stage_weight(const struct plan *plan, uint32_t unit)
{
	uint32_t pages = plan->item[unit].pages;

	return pages <= plan->max_pages && pages <= plan->stage_pages ? pages : 0;
}

/* Keeps stage_end the farthest position such that what is unread below it fits into the limit. */
static void stage_extend(struct plan *plan, struct plan_job *job)
{
	uint64_t low = job_low(job), limit = (uint64_t)plan->stage_limit / plan->n_jobs;

	if (job->is_stage_dirty || job->stage_end < low) {
		job->stage_end = low;
		job->stage_sum = 0;
		job->alone_at = low;
		job->is_stage_dirty = false;
	}
	for (;;) {
		uint64_t pos, weight = 0;
		const struct slot *slot = job_slot_at(job, job->stage_end, &pos);

		if (!slot->ep || slot->is_rerun || pos >= slot->length)
			return;
		if (pos + AHEAD < slot->length)
			__builtin_prefetch(&plan->item[slot->ep->sample[pos + AHEAD]]);
		if (!bitmap_get(&slot->consumed, pos))
			weight = stage_weight(plan, slot->ep->sample[pos]);
		if (job->stage_sum + weight > limit)
			return;
		job->stage_sum += weight;
		job->stage_end++;
	}
}

void stage_consumed(struct plan *plan, struct plan_job *job, uint64_t due, uint32_t unit)
{
	if (job->is_stage_dirty || due >= job->stage_end)
		return;
	assert(job->stage_sum >= stage_weight(plan, unit));
	job->stage_sum -= stage_weight(plan, unit);
}

void stage_forget(struct plan *plan, uint32_t unit)
{
	struct item *it = &plan->item[unit];

	if (!(it->flags & STAGED))
		return;
	assert(plan->staged_pages >= it->pages);
	plan->staged_pages -= it->pages;
	plan->wasted += (it->flags & ALONE_FRESH) != 0;
	plan->n_untraced -= (it->flags & UNTRACED) != 0;
	it->flags &= ~(uint32_t)(STAGED | ALONE | ALONE_FRESH | UNTRACED);
}

/* The next one to stage within the window, or UNIT_NONE. */
static uint32_t stage_next(const struct plan_job *job)
{
	const struct slot *slots[SLOTS] = { job_cur(job), job_valid(job), job_next(job) };

	for (uint32_t i = 0; i < SLOTS; i++) {
		const struct slot *slot = slots[i];
		uint64_t pos = slot->ep ? tree_next(&slot->set[SET_STAGE], slot->low) : NO_POS;

		if (pos == NO_POS)
			continue;
		return job_virtual(job, slot, pos) < job->stage_end ? slot->ep->sample[pos]
									   : UNIT_NONE.v;
	}
	return UNIT_NONE.v;
}

static void stage_recover(struct plan *plan, uint64_t now_ns)
{
	uint64_t since_ns = MAX(plan->stage_grown_ns, MIN(plan->stage_not_before_ns, now_ns));
	double passed_s = (double)(now_ns - since_ns) / (double)NS_PER_S;
	double grown = passed_s / RECOVER_S * (double)plan->stage_pages;

	plan->stage_grown_ns = now_ns;
	if (plan->stage_pause_ns)
		grown = MIN(grown, passed_s / GROW_S * plan->stage_limit);
	plan->stage_limit += grown;
	if (plan->stage_limit < (double)plan->stage_most)
		return;
	plan->stage_limit = (double)plan->stage_most;
	if (now_ns > plan->stage_not_before_ns) /* or memory is short, and it is the limit that sank */
		plan->stage_pause_ns = 0;
}

/* Units whose inode the kernel did not know a moment ago, fetches that were cancelled. */
static uint64_t stage_retry(struct plan *plan, uint64_t now_ns)
{
	while (plan->retry_count) {
		const struct retry *r = &plan->retry[plan->retry_head];

		if (r->at_ns > now_ns)
			return r->at_ns;
		plan->retry_head = (plan->retry_head + 1) % RETRY_QUEUE;
		plan->retry_count--;
		item_out(plan, r->unit);
		plan->item[r->unit].flags &= ~r->flag;
		item_in(plan, r->unit);
	}
	return UINT64_MAX;
}

/* What has left the kernel since the last step may have made room for as much. */
static void stage_earn(struct plan *plan)
{
	uint64_t left = plan->opened + plan->reached + plan->unstaged, n = left - plan->stage_left;

	plan->stage_left = left;
	if (!plan->is_stage_bounded)
		return;
	plan->stage_credit += (uint32_t)MIN(n, CREDIT_MOST) * (CREDIT + 1);
	plan->is_stage_bounded = plan->stage_credit < CREDIT_MOST;
}

static bool stage_spend(struct plan *plan)
{
	if (!plan->is_stage_bounded)
		return true;
	if (plan->stage_credit < CREDIT)
		return false;
	plan->stage_credit -= CREDIT;
	return true;
}

static void stage_job(struct plan *plan, struct plan_job *job)
{
	stage_extend(plan, job);
	while (actions_left(plan) > ACTIONS_MAX / 4) {
		uint32_t unit = stage_next(job);
		struct item *it;
		bool is_due;

		if (unit == UNIT_NONE.v)
			break;
		it = &plan->item[unit];
		assert(item_state(it) == ARENA && !(it->flags & (STAGED | STAGING | HELD)));
		/* What is due at once is not kept out by what was staged ahead before the limit
		 * shrank. */
		is_due = job_due(plan, job, unit) < job_low(job) + job->span;
		if (plan->staged_pages + it->pages >
		    (is_due ? plan->stage_most : (uint64_t)plan->stage_limit))
			break;
		if (!stage_spend(plan))
			break;
		plan_act(plan, job, PLAN_ACT_STAGE, unit)->may_be_whole =
			tracers_skip(plan, job, unit);
		item_out(plan, unit);
		it->flags |= STAGING;
		plan->staged_pages += it->pages;
		item_in(plan, unit);
	}
}

uint64_t stage_step(struct plan *plan, uint64_t now_ns)
{
	uint64_t wake = stage_retry(plan, now_ns);
	struct plan_job *job;

	stage_recover(plan, now_ns);
	stage_earn(plan);
	for (uint32_t at = 0; (job = jobs_next(plan, &at));)
		if (job_is_prefetching(job) && plan->stage_pages)
			stage_job(plan, job);
	return wake;
}

bool stage_is_due(const struct plan *plan, uint32_t unit)
{
	const struct plan_job *job;

	for (uint32_t at = 0; (job = jobs_next(plan, &at));)
		if (job_due(plan, job, unit) < job->stage_end)
			return true;
	return false;
}

bool stage_is_wanted(const struct plan *plan, uint32_t unit)
{
	const struct plan_job *job;

	for (uint32_t at = 0; (job = jobs_next(plan, &at));)
		if (job_is_prefetching(job) && job_due(plan, job, unit) < job->stage_end)
			return true;
	return false;
}

bool stage_try_again(struct plan *plan, uint64_t now_ns, uint32_t unit, uint32_t flag)
{
	struct item *it = &plan->item[unit];
	uint32_t tries = (it->flags & TRY_MASK) >> TRY_SHIFT;

	assert(flag == NO_FETCH || flag == NO_STAGE);
	it->flags |= flag;
	if (tries >= 2 || plan->retry_count == RETRY_QUEUE)
		return false;
	it->flags = (it->flags & ~(uint32_t)TRY_MASK) | (tries + 1) << TRY_SHIFT;
	plan->retry[(plan->retry_head + plan->retry_count++) % RETRY_QUEUE] =
		(struct retry){ now_ns + (RETRY_NS << tries), unit, flag };
	return true;
}

void stage_answered(struct plan *plan, uint64_t now_ns, uint32_t unit, int status)
{
	struct plan_job *first = jobs_first(plan);
	struct item *it = &plan->item[unit];

	assert(it->flags & STAGING && (status <= 0 || status == PLAN_STAGED_WHOLE));
	item_out(plan, unit);
	it->flags &= ~(uint32_t)STAGING;
	/* Opened, changed or passed over in the meantime: then it is not waiting in the kernel for
	 * a reader. */
	if (status >= 0 && item_state(it) == ARENA && !(it->flags & HELD) &&
	    stage_is_due(plan, unit))
		it->flags |= status == PLAN_STAGED_WHOLE ? STAGED | UNTRACED : STAGED;
	else
		plan->staged_pages -= it->pages;
	plan->n_untraced += (it->flags & UNTRACED) != 0;
	if (it->flags & STAGED)
		alone_staged(plan, first, job_due(plan, first, unit));
	if (status == PLAN_NO_INODES && !plan->is_stage_bounded) {
		plan->is_stage_bounded = true;
		plan->stage_credit = 0;
	}
	if (status == -ENOENT)
		stage_try_again(plan, now_ns, unit, NO_STAGE);
	else if (status < 0 && status != PLAN_NO_INODES)
		it->flags |= NO_STAGE;
	item_in(plan, unit);
}

uint64_t stage_apart(const struct plan_job *job)
{
	uint64_t apart = MAX(job->begin_apart, job->began_apart);
	uint64_t usual = job->reader_span ? job->reader_span : MAX(job->span / 4, apart);

	return MIN(usual, job->span);
}

static double stage_readers(const struct plan *plan)
{
	const struct plan_job *job;
	uint64_t n = 0;

	for (uint32_t at = 0; (job = jobs_next(plan, &at));)
		n += stage_apart(job);
	return (double)n;
}

static void stage_shrink(struct plan *plan, uint64_t now_ns, double most)
{
	double least = MAX(MIN(stage_readers(plan) * (double)plan->mean_pages,
			       (double)plan->stage_pages / 16),
			   4 * (double)plan->mean_pages),
	       used;

	stage_recover(plan, now_ns);
	used = MIN(plan->stage_limit, (double)plan->staged_pages); /* less than that has an effect */
	plan->stage_shrunk_ns = MAX(now_ns, 1);
	plan->stage_limit = MIN(MAX(MIN(used * 3 / 4, most), least), (double)plan->stage_most);
	jobs_stage_dirty(plan);
}

static bool stage_was_shrunk(const struct plan *plan, uint64_t now_ns)
{
	return plan->stage_shrunk_ns && now_ns < plan->stage_shrunk_ns + SHRINK_NS;
}

/* What was pushed until now may be gone; what has left the arena since is alone.c's. From the reader
 * on, as that is what is due first, and no farther than takes a few milliseconds. */
static void stage_doubt_of(struct plan *plan, const struct plan_job *job)
{
	uint64_t low = job_low(job), most = plan->stage_most / MAX(plan->mean_pages, 1), pos;
	uint64_t end = low + MIN(job->span + most, DOUBT_MOST);

	for (uint64_t at = low; at < end && plan->staged_pages; at++) {
		const struct slot *slot = job_slot_at(job, at, &pos);
		uint32_t unit;

		if (!slot->ep || pos >= slot->length)
			break;
		unit = slot->ep->sample[pos];
		if ((plan->item[unit].flags & (STAGED | ALONE)) != STAGED)
			continue;
		item_out(plan, unit);
		stage_forget(plan, unit);
		item_in(plan, unit);
	}
}

static void stage_doubt(struct plan *plan)
{
	const struct plan_job *job;

	for (uint32_t at = 0; (job = jobs_next(plan, &at));)
		stage_doubt_of(plan, job);
}

void stage_distrust(struct plan *plan, uint64_t now_ns)
{
	double soon = MAX(plan->budget.pace.rate * SOON_S, 2 * stage_readers(plan));
	bool is_known = plan->stage_pause_ns && now_ns < plan->stage_not_before_ns;

	if (is_known && stage_was_shrunk(plan, now_ns))
		return;
	if (!is_known)
		plan->stage_pause_ns =
			MIN(MAX(2 * plan->stage_pause_ns, PAUSE_NS), PAUSE_MOST_NS);
	stage_shrink(plan, now_ns, soon * (double)plan->mean_pages);
	stage_doubt(plan);
	plan->stage_not_before_ns = now_ns + plan->stage_pause_ns;
}

void stage_unstaged(struct plan *plan, uint64_t now_ns, uint32_t unit)
{
	plan->unstaged++;
	alone_dropped(plan, jobs_first(plan), now_ns, unit);
	if (!(plan->item[unit].flags & STAGED))
		return;
	item_out(plan, unit);
	stage_forget(plan, unit);
	item_in(plan, unit);
	if (!stage_was_shrunk(plan, now_ns))
		stage_shrink(plan, now_ns, (double)plan->stage_most);
}
