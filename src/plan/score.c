/* SPDX-License-Identifier: Apache-2.0 */
/* Whether to believe the order: the share of the last 256 reads that were where the order expects
 * them. 32 agreeing reads confirm it (fewer when the epoch is shorter), below 95 % the plan gets
 * careful, below half it stops prefetching - so a wrong order is found within 200 reads even after
 * 256 good ones. Repeated opens never get here. */
#include "plan_priv.h"

/* Epochs of which the readers' window is a large part, so that who reads anything in any order is
 * hardly ever outside of it. */
#define SMALL (2 * SCORE_READS)
#define STRANGERS_LEAST 6u /* percent; some are the job's own */

static enum plan_why state_why(const struct plan *plan, enum plan_state state)
{
	switch (state) {
	case PLAN_FOLLOWING:
		if (plan->job->is_shared)
			return WHY_OTHER_READER;
		return plan->job->note ? plan->job->note : WHY_FOLLOWS;
	case PLAN_SLOWED:
		return WHY_STRAYS;
	case PLAN_LOST:
		return WHY_NOT_FOLLOWED;
	default:
		return plan->job->why;
	}
}

void plan_enter(struct plan *plan, enum plan_state state, enum plan_why why)
{
	if (state == PLAN_LOST && plan->job->state != PLAN_LOST) {
		plan->job->lost++;
		plan->job->lost_opened = plan->opened;
	}
	plan->job->state = state;
	if (state == PLAN_FOLLOWING)
		plan->job->is_confirmed = true;
	if (state == PLAN_FINISHED)
		plan->job->finished_opened = MAX(plan->opened, 1);
	plan->job->is_unprovable = false;
	if (state == PLAN_LOST) {
		plan->job->note = WHY_OF_STATE;
		plan->job->is_proven = plan->job->is_shared = false;
		retain_lost(plan);
	}
	plan->job->why = why ? why : state_why(plan, state);
}

void score_read(struct plan *plan, uint32_t sample)
{
	plan->job->history[plan->job->history_head] = sample;
	plan->job->history_head = (plan->job->history_head + 1) % SCORE_READS;
	plan->job->history_count = MIN(plan->job->history_count + 1, SCORE_READS);
	plan->job->reads++;
}

void score_push(struct plan *plan, bool is_in)
{
	uint64_t *word = &plan->job->verdict[plan->job->verdict_head / 64],
		 bit = 1ull << plan->job->verdict_head % 64;

	if (plan->job->verdict_count == SCORE_READS)
		plan->job->verdict_in -= (*word & bit) != 0;
	else
		plan->job->verdict_count++;
	*word = is_in ? *word | bit : *word & ~bit;
	plan->job->verdict_in += is_in;
	plan->job->verdict_head = (plan->job->verdict_head + 1) % SCORE_READS;
	plan->job->recent_out = plan->job->recent_out << 1 | !is_in;
	plan->job->recent_near <<= 1;
}

void score_strange(struct plan *plan, bool is_strange)
{
	struct plan_job *job = plan->job;
	uint64_t *word = &job->strange[job->strange_head / 64],
		 bit = 1ull << job->strange_head % 64;

	if (job->strange_count == SCORE_READS)
		job->strange_in -= (*word & bit) != 0;
	else
		job->strange_count++;
	*word = is_strange ? *word | bit : *word & ~bit;
	job->strange_in += is_strange;
	job->strange_head = (job->strange_head + 1) % SCORE_READS;
}

uint32_t score_strangers(const struct plan *plan)
{
	const struct plan_job *job = plan->job;
	uint64_t length = cur_slot(plan)->ep ? cur_slot(plan)->length : 0;
	uint32_t percent = job->strange_count ? job->strange_in * 100 / job->strange_count : 0;

	return length && length <= SMALL && job->strange_count >= MIN(SYNC_READS, length) &&
			       job->is_confirmed && percent >= STRANGERS_LEAST
		       ? percent
		       : 0;
}

void score_reset(struct plan *plan)
{
	plan->job->strange_count = plan->job->strange_head = plan->job->strange_in = 0;
	plan->job->verdict_count = plan->job->verdict_head = plan->job->verdict_in = 0;
	plan->job->recent_out = plan->job->recent_near = 0;
	plan->job->kept_positions = plan->job->left_positions = 0;
	proof_reset(plan);
}

uint32_t score_percent(const struct plan *plan)
{
	return plan->job->verdict_count ? plan->job->verdict_in * 100 / plan->job->verdict_count
					: 0;
}

/* Reads that are enough to judge by. */
uint32_t score_need(const struct plan *plan)
{
	uint64_t length = cur_slot(plan)->ep ? cur_slot(plan)->length : SYNC_READS;

	return (uint32_t)MIN(SYNC_READS, MAX(length, 1));
}

static void score_age(struct plan *plan)
{
	if (plan->job->kept_positions + plan->job->left_positions < SCORE_READS)
		return;
	plan->job->kept_positions /= 2;
	plan->job->left_positions /= 2;
}

void score_kept(struct plan *plan)
{
	plan->job->kept_positions++;
	score_age(plan);
}

void score_left(struct plan *plan)
{
	plan->job->left_positions++;
	score_age(plan);
}

/* More than a reader who takes any samples would hit the window with. */
static bool score_is_no_chance(const struct plan *plan, uint32_t in, uint32_t reads)
{
	uint64_t samples = MAX(plan->n - plan->job->n_outside, 1);
	double mean = (double)reads * (double)MIN(plan->job->span, samples) / (double)samples;
	double over = (double)in - mean;

	return over > 3 && over * over > 16 * mean;
}

/* Whether one reader goes on with the order, position by position, and what does not fit are reads
 * of somebody else. A job that strays from its order leaves positions out; a wrong order gets no
 * farther than chance takes it. */
static bool score_is_shared(const struct plan *plan)
{
	uint32_t last = MIN(plan->job->verdict_count, 64);
	uint64_t out = last ? plan->job->recent_out << (64 - last) : 0;

	return proof_is_likely(plan) &&
	       8 * plan->job->left_positions <= plan->job->kept_positions &&
	       score_is_no_chance(plan, last - (uint32_t)__builtin_popcountll(out), last) &&
	       score_is_no_chance(plan, plan->job->verdict_in, plan->job->verdict_count);
}

/* What the reads agree with is no more than any order would give. */
static void score_unproven(struct plan *plan, uint32_t percent)
{
	if (plan->job->verdict_count < 2 * SYNC_READS)
		return;
	if (percent < 95) {
		plan_enter(plan, PLAN_LOST, WHY_OF_STATE);
	} else if (!plan->job->is_unprovable && plan->job->verdict_count >= SCORE_READS / 2) {
		plan_enter(plan, PLAN_CHECKING, WHY_UNPROVABLE);
		plan->job->is_unprovable = true;
	}
}

void score_judge(struct plan *plan)
{
	uint32_t percent = score_percent(plan);
	enum plan_state state = plan->job->state;
	bool was_shared = plan->job->is_shared;

	if (plan->job->verdict_count < score_need(plan) || state == PLAN_LOST ||
	    state == PLAN_NO_ORDER)
		return;
	plan->job->is_shared = percent < 95 && score_is_shared(plan);
	if (percent < 50 && !plan->job->is_shared) {
		plan_enter(plan, PLAN_LOST, WHY_OF_STATE);
		return;
	}
	if (state == PLAN_FINISHED)
		return;
	proof_judge(plan);
	if (!plan->job->is_proven) {
		if (!plan->job->is_shared)
			score_unproven(plan, percent);
		return;
	}
	if (percent >= 95 || plan->job->is_shared)
		state = PLAN_FOLLOWING;
	else if (state != PLAN_CHECKING || plan->job->verdict_count >= 2 * SYNC_READS)
		state = PLAN_SLOWED;
	if (state != plan->job->state || was_shared != plan->job->is_shared)
		plan_enter(plan, state, WHY_OF_STATE);
}
