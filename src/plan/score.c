/* SPDX-License-Identifier: Apache-2.0 */
/* Whether to believe the order: the share of the last 256 reads that were where the order expects
 * them. 32 agreeing reads confirm it (fewer when the epoch is shorter), below 95 % the plan gets
 * careful, below half it stops prefetching - so a wrong order is found within 200 reads even after
 * 256 good ones. Repeated opens never get here. */
#include "plan_priv.h"

static const char *state_why(const struct plan *plan, enum plan_state state)
{
	switch (state) {
	case PLAN_FOLLOWING:
		return plan->note ? plan->note : "reads follow the order";
	case PLAN_SLOWED:
		return "some reads are not where the order expects them";
	case PLAN_LOST:
		return "reads do not follow the order";
	default:
		return plan->why;
	}
}

void plan_enter(struct plan *plan, enum plan_state state, const char *why)
{
	plan->state = state;
	if (state == PLAN_FOLLOWING)
		plan->is_confirmed = true;
	plan->is_unprovable = false;
	if (state == PLAN_LOST) {
		plan->note = NULL;
		plan->is_proven = false;
		retain_lost(plan);
	}
	plan->why = why ? why : state_why(plan, state);
}

void score_read(struct plan *plan, uint32_t sample)
{
	plan->history[plan->history_head] = sample;
	plan->history_head = (plan->history_head + 1) % SCORE_READS;
	plan->history_count = MIN(plan->history_count + 1, SCORE_READS);
	plan->reads++;
}

void score_push(struct plan *plan, bool is_in)
{
	uint64_t *word = &plan->verdict[plan->verdict_head / 64],
		 bit = 1ull << plan->verdict_head % 64;

	if (plan->verdict_count == SCORE_READS)
		plan->verdict_in -= (*word & bit) != 0;
	else
		plan->verdict_count++;
	*word = is_in ? *word | bit : *word & ~bit;
	plan->verdict_in += is_in;
	plan->verdict_head = (plan->verdict_head + 1) % SCORE_READS;
	plan->recent_out = plan->recent_out << 1 | !is_in;
}

void score_reset(struct plan *plan)
{
	plan->verdict_count = plan->verdict_head = plan->verdict_in = plan->recent_out = 0;
	proof_reset(plan);
}

uint32_t score_percent(const struct plan *plan)
{
	return plan->verdict_count ? plan->verdict_in * 100 / plan->verdict_count : 0;
}

/* Reads that are enough to judge by. */
uint32_t score_need(const struct plan *plan)
{
	uint64_t length = cur_slot(plan)->ep ? cur_slot(plan)->length : SYNC_READS;

	return (uint32_t)MIN(SYNC_READS, MAX(length, 1));
}

/* What the reads agree with is no more than any order would give. */
static void score_unproven(struct plan *plan, uint32_t percent)
{
	if (plan->verdict_count < 2 * SYNC_READS)
		return;
	if (percent < 95) {
		plan_enter(plan, PLAN_LOST, NULL);
	} else if (!plan->is_unprovable && plan->verdict_count >= SCORE_READS / 2) {
		plan_enter(plan, PLAN_CHECKING,
			   "cannot be verified: the loader's window is as large as the dataset");
		plan->is_unprovable = true;
	}
}

void score_judge(struct plan *plan)
{
	uint32_t percent = score_percent(plan);
	enum plan_state state = plan->state;

	if (plan->verdict_count < score_need(plan) || state == PLAN_LOST || state == PLAN_NO_ORDER)
		return;
	if (percent < 50) {
		plan_enter(plan, PLAN_LOST, NULL);
		return;
	}
	if (state == PLAN_FINISHED)
		return;
	proof_judge(plan);
	if (!plan->is_proven) {
		score_unproven(plan, percent);
		return;
	}
	if (percent >= 95)
		state = PLAN_FOLLOWING;
	else if (state != PLAN_CHECKING || plan->verdict_count >= 2 * SYNC_READS)
		state = PLAN_SLOWED;
	if (state != plan->state)
		plan_enter(plan, state, NULL);
}
