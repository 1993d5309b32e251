/* SPDX-License-Identifier: Apache-2.0 */
/* A tracer page costs its reader a READ, which is more than a page cache takes for a record. So of a job
 * of records whose order is followed only some keep theirs: one in each MiB of what it reads, and one each
 * 2 ms of its pace at most, by their places in the order. So what is pushed again, or out of its turn, is
 * no other one. The executive may push those between whole (it answers PLAN_STAGED_WHOLE); nobody hears of
 * their readers then. What stands before a position that is heard of, back to one that is not read, was
 * read as well. Workers take whole batches, so that may be early by a few records of others: all are held,
 * as anything that was opened, and for longer (retain_step). Where a READ was lost on the way those before
 * it follow when they are farther back than readers are apart.
 *
 * The beginning of a pass and its end keep them: where it begins shows which one it is, and nothing is
 * left open behind it.
 *
 * That a unit is taken as read is told by COME, once. Must never take one that was not pushed whole. */
#include "plan_priv.h"

#define RUN_BYTES (1u << 20)
#define RUN_S 0.002
#define RUN_MOST 256u            /* positions */
#define BACK_MOST (4 * RUN_MOST) /* that are looked at for one that is heard of */

/* Nothing is there to be found out at this position. */
static bool tracers_may_skip(const struct plan *plan, const struct plan_job *job,
			     const struct slot *slot, uint64_t pos)
{
	uint32_t ends = MAX(job->info.n_ranks, 1);

	return plan->n_jobs == 1 && job->state == PLAN_FOLLOWING && slot != job_valid(job) &&
	       !slot->is_rerun && !slot->ep->next_same &&
	       !job_is_inner(job, slot->ep->sample[pos]) && pos >= SYNC_READS &&
	       pos + ends < slot->length;
}

/* Positions from one to the next. A power of two, so that other paces have some of the same ones. */
static uint64_t tracers_every(const struct plan *plan, const struct plan_job *job)
{
	uint64_t by_bytes = DIV_ROUND_UP(RUN_BYTES / PAGE_BYTES, MAX(plan->mean_pages, 1));
	double least = MAX((double)by_bytes, job->pace.rate * RUN_S);
	uint64_t every = 1;

	while ((double)every < least && every < RUN_MOST)
		every *= 2;
	return every;
}

bool tracers_skip(const struct plan *plan, const struct plan_job *job, uint32_t unit)
{
	uint32_t key = *job_key(plan, job, unit);

	return key != NO_KEY && tracers_may_skip(plan, job, key_slot(job, key), key_pos(key)) &&
	       key_pos(key) % tracers_every(plan, job);
}

static void tracers_tell(struct plan *plan, const struct plan_job *job, const struct slot *slot,
			 uint64_t pos)
{
	struct plan_use use = window_use_at(job, slot, pos);
	struct plan_action *a = plan_act(plan, job, PLAN_ACT_COME, slot->ep->sample[pos]);

	a->pass = use.pass;
	a->position = use.place;
	a->epoch = use.places;
}

bool tracers_take(struct plan *plan, struct plan_job *job, struct slot *slot, uint64_t pos)
{
	uint32_t unit = slot->ep->sample[pos];

	if (!(plan->item[unit].flags & UNTRACED) || actions_left(plan) <= ACTIONS_MAX / 8 ||
	    *job_key(plan, job, unit) != key_make(job, slot, pos))
		return false;
	tracers_tell(plan, job, slot, pos);
	plan->reached++;
	job->reached++;
	retain_opened(plan, job, plan->now_ns, unit);
	budget_read(plan, job, plan->now_ns);
	/* What others read beside it is told as before: it must not weigh more than it does. */
	score_kept(job);
	score_push(job, true);
	score_strange(job, false);
	job->placed++;
	job->next_streak += slot == job_next(job);
	window_set_consumed(plan, job, slot, pos);
	return true;
}

/* Where what was pushed whole directly before the position begins; what is read already is left out. */
static uint64_t tracers_begin(const struct plan *plan, const struct slot *slot, uint64_t pos)
{
	uint64_t least = MAX(slot->low, pos - MIN(pos, BACK_MOST)), begin = pos;

	for (uint64_t at = pos; at-- > least;) {
		if (bitmap_get(&slot->consumed, at))
			continue;
		if (!(plan->item[slot->ep->sample[at]].flags & UNTRACED))
			break;
		begin = at;
	}
	return begin;
}

static void tracers_take_before(struct plan *plan, struct plan_job *job, struct slot *slot,
				uint64_t begin, uint64_t pos)
{
	uint64_t apart = stage_apart(job);
	uint64_t far = pos > slot->low + apart ? pos - apart : slot->low;

	for (uint64_t at = MAX(slot->low, pos - MIN(pos, BACK_MOST)); at < pos; at++)
		if ((at < far || at >= begin) && !bitmap_get(&slot->consumed, at))
			(void)tracers_take(plan, job, slot, at);
}

/* One that is heard of again at the end of a pass says nothing of the next one. */
static bool tracers_is_next_begun(const struct plan_job *job, uint32_t unit)
{
	return job_next(job)->consumed.count >= SYNC_READS / 4 &&
	       !window_was_just_read(job, job_cur(job), unit);
}

void tracers_heard(struct plan *plan, struct plan_job *job, uint32_t unit)
{
	struct slot *const slots[] = { job_cur(job), job_next(job) };
	uint64_t end = job_order_low(job) + job->span, length = job_cur(job)->length;

	for (size_t i = 0; plan->n_untraced && i < ARRAY_LEN(slots) && slots[i]->ep; i++) {
		uint64_t pos = window_first_use(slots[i], plan, job, unit), begin;

		if (pos == NO_POS)
			continue;
		if (i && !tracers_is_next_begun(job, unit))
			return;
		begin = tracers_begin(plan, slots[i], pos);
		if (i && end > length) /* as window_find has it */
			end = length + slots[i]->low + job->span;
		if (job_order_pos(job, slots[i], begin) < end) /* else it is another reader's */
			tracers_take_before(plan, job, slots[i], begin, pos);
		return;
	}
}

/* Of a pass that was left early nobody knows how far it was read, so nothing more of it counts. */
void tracers_rolled(struct plan *plan, struct plan_job *job, struct slot *slot)
{
	uint64_t near = job->span + 2 * tracers_every(plan, job);

	if (slot->length - slot->low > near)
		return;
	for (uint64_t pos = slot->low; plan->n_untraced && pos < slot->length; pos++)
		if (!bitmap_get(&slot->consumed, pos))
			(void)tracers_take(plan, job, slot, pos);
}
