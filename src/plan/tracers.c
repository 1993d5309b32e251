/* SPDX-License-Identifier: Apache-2.0 */
/* A tracer page costs its reader a READ, which is more than a page cache takes for a record. So of a job
 * of records whose order is followed only some keep theirs: one in each MiB that is pushed, in the order
 * in which it reads, and one each 2 ms of it at most. The executive may push those between whole (it
 * answers PLAN_STAGED_WHOLE); nobody hears of their readers then. What stands before a position that is
 * heard of, up to the last one that is not read, was read as well: workers take whole batches, so that
 * may be early by a few records of others. They are held then as anything that was opened. Where a READ
 * was lost on the way those before it follow when their distance is more than readers are apart.
 *
 * The beginning of a pass and its end keep them: where it begins shows which one it is, and nothing is
 * left open behind it. So does what is pushed again, out of its turn.
 *
 * That a unit is taken as read is told by COME, once. Must never take one that was not pushed whole. */
#include "plan_priv.h"

#define RUN_BYTES (1u << 20)
#define RUN_S 0.002
#define RUN_MOST 256u              /* positions */
#define BACK_MOST (4 * RUN_MOST)   /* that are looked at for one that is heard of */

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

bool tracers_skip(struct plan *plan, struct plan_job *job, uint32_t unit)
{
	uint32_t key = *job_key(plan, job, unit);
	struct tracers *t = &job->tracers;
	const struct slot *slot;
	uint64_t pos;

	if (key == NO_KEY)
		return false;
	slot = key_slot(job, key);
	pos = key_pos(key);
	if (slot->pass == t->pass && pos <= t->pos)
		return false;
	if (slot->pass != t->pass || !tracers_may_skip(plan, job, slot, pos)) {
		*t = (struct tracers){ slot->pass, pos, 0, 0 };
		return false;
	}
	t->pos = pos;
	t->pages += plan->item[unit].pages;
	t->n++;
	if (t->n < RUN_MOST &&
	    (t->pages < RUN_BYTES / PAGE_BYTES || t->n < job->pace.rate * RUN_S))
		return true;
	t->pages = t->n = 0;
	return false;
}

bool tracers_take(struct plan *plan, struct plan_job *job, struct slot *slot, uint64_t pos)
{
	uint32_t unit = slot->ep->sample[pos];

	if (!(plan->item[unit].flags & UNTRACED) || !actions_left(plan) ||
	    *job_key(plan, job, unit) != key_make(job, slot, pos))
		return false;
	plan_act(plan, job, PLAN_ACT_COME, unit);
	plan->reached++;
	job->reached++;
	retain_opened(plan, job, plan->now_ns, unit);
	budget_read(plan, job, plan->now_ns);
	score_kept(job);
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

void tracers_heard(struct plan *plan, struct plan_job *job, uint32_t unit)
{
	struct slot *const slots[] = { job_cur(job), job_next(job) };
	uint64_t end = job_order_low(job) + job->span;

	for (size_t i = 0; plan->n_untraced && i < ARRAY_LEN(slots) && slots[i]->ep; i++) {
		uint64_t pos = window_first_use(slots[i], plan, job, unit), begin;

		if (pos == NO_POS)
			continue;
		begin = tracers_begin(plan, slots[i], pos);
		if (job_order_pos(job, slots[i], begin) < end) /* else it is another reader's */
			tracers_take_before(plan, job, slots[i], begin, pos);
		return;
	}
}

void tracers_rolled(struct plan *plan, struct plan_job *job, struct slot *slot)
{
	for (uint64_t pos = slot->low; plan->n_untraced && pos < slot->length; pos++)
		if (!bitmap_get(&slot->consumed, pos))
			(void)tracers_take(plan, job, slot, pos);
}
