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

static enum plan_why score_state_why(const struct plan_job *job, enum plan_state state)
{
	switch (state) {
	case PLAN_FOLLOWING:
		if (job->is_shared)
			return WHY_OTHER_READER;
		return job->note ? job->note : WHY_FOLLOWS;
	case PLAN_SLOWED:
		return WHY_STRAYS;
	case PLAN_LOST:
		return WHY_NOT_FOLLOWED;
	default:
		return job->why;
	}
}

void plan_enter(struct plan *plan, struct plan_job *job, enum plan_state state, enum plan_why why)
{
	if (state == PLAN_LOST && job->state != PLAN_LOST) {
		job->lost++;
		job->lost_opened = plan->opened;
	}
	job->state = state;
	if (state == PLAN_FOLLOWING)
		job->is_confirmed = true;
	if (state == PLAN_FINISHED)
		job->finished_opened = MAX(plan->opened, 1);
	job->is_unprovable = false;
	if (state == PLAN_LOST) {
		job->note = WHY_OF_STATE;
		job->is_proven = job->is_shared = false;
		retain_lost(plan);
	}
	job->why = why ? why : score_state_why(job, state);
}

void score_read(struct plan_job *job, uint32_t unit)
{
	job->history[job->history_head] = unit;
	job->history_head = (job->history_head + 1) % SCORE_READS;
	job->history_count = MIN(job->history_count + 1, SCORE_READS);
	job->reads++;
}

void score_push(struct plan_job *job, bool is_in)
{
	uint64_t *word = &job->verdict[job->verdict_head / 64],
		 bit = 1ull << job->verdict_head % 64;

	if (job->verdict_count == SCORE_READS)
		job->verdict_in -= (*word & bit) != 0;
	else
		job->verdict_count++;
	*word = is_in ? *word | bit : *word & ~bit;
	job->verdict_in += is_in;
	assert(job->verdict_in <= job->verdict_count);
	job->verdict_head = (job->verdict_head + 1) % SCORE_READS;
	job->recent_out = job->recent_out << 1 | !is_in;
	job->recent_near <<= 1;
}

void score_strange(struct plan_job *job, bool is_strange)
{
	uint64_t *word = &job->strange[job->strange_head / 64],
		 bit = 1ull << job->strange_head % 64;

	if (job->strange_count == SCORE_READS)
		job->strange_in -= (*word & bit) != 0;
	else
		job->strange_count++;
	*word = is_strange ? *word | bit : *word & ~bit;
	job->strange_in += is_strange;
	assert(job->strange_in <= job->strange_count);
	job->strange_head = (job->strange_head + 1) % SCORE_READS;
}

uint32_t score_strangers(const struct plan_job *job)
{
	uint64_t length = job_cur(job)->ep ? job_samples(job, job_cur(job)->length) : 0;
	uint32_t percent = job->strange_count ? job->strange_in * 100 / job->strange_count : 0;

	return length && length <= SMALL && job->strange_count >= MIN(SYNC_READS, length) &&
			       job->is_confirmed && percent >= STRANGERS_LEAST
		       ? percent
		       : 0;
}

void score_reset(struct plan_job *job)
{
	job->strange_count = job->strange_head = job->strange_in = 0;
	job->verdict_count = job->verdict_head = job->verdict_in = 0;
	job->recent_out = job->recent_near = 0;
	job->kept_positions = job->left_positions = 0;
	proof_reset(job);
}

uint32_t score_percent(const struct plan_job *job)
{
	return job->verdict_count ? job->verdict_in * 100 / job->verdict_count
					: 0;
}

/* Every read was where the order expects it, and so early that chance is unlikely. */
bool score_is_agreed(const struct plan_job *job)
{
	return job->verdict_count && job->verdict_in == job->verdict_count && proof_is_likely(job);
}

/* Reads that are enough to judge by. */
uint32_t score_need(const struct plan_job *job)
{
	uint64_t length = job_cur(job)->ep ? job_samples(job, job_cur(job)->length) : SYNC_READS;

	return (uint32_t)MIN(SYNC_READS, MAX(length, 1));
}

static void score_age(struct plan_job *job)
{
	if (job->kept_positions + job->left_positions < SCORE_READS)
		return;
	job->kept_positions /= 2;
	job->left_positions /= 2;
}

void score_kept(struct plan_job *job)
{
	job->kept_positions++;
	score_age(job);
}

void score_left(struct plan_job *job)
{
	job->left_positions++;
	score_age(job);
}

/* More than a reader who takes any units would hit the window with. */
static bool score_is_no_chance(const struct plan *plan, const struct plan_job *job, uint32_t in,
			       uint32_t reads)
{
	uint64_t units = MAX(plan->n_sized - MIN(plan->n_sized, job->n_outside), 1);
	double mean = (double)reads * (double)MIN(job->span, units) / (double)units;
	double over = (double)in - mean;

	return over > 3 && over * over > 16 * mean;
}

/* Whether one reader goes on with the order, position by position, and what does not fit are reads
 * of somebody else. A job that strays from its order leaves positions out; a wrong order gets no
 * farther than chance takes it. */
static bool score_is_shared(const struct plan *plan, const struct plan_job *job)
{
	uint32_t last = MIN(job->verdict_count, 64);
	uint64_t out = last ? job->recent_out << (64 - last) : 0;

	return proof_is_likely(job) &&
	       8 * job->left_positions <= job->kept_positions &&
	       score_is_no_chance(plan, job, last - (uint32_t)__builtin_popcountll(out), last) &&
	       score_is_no_chance(plan, job, job->verdict_in, job->verdict_count);
}

/* What the reads agree with is no more than any order would give. */
static void score_unproven(struct plan *plan, struct plan_job *job, uint32_t percent)
{
	if (job->verdict_count < 2 * SYNC_READS)
		return;
	if (percent < 95) {
		plan_enter(plan, job, PLAN_LOST, WHY_OF_STATE);
	} else if (!job->is_unprovable && job->verdict_count >= SCORE_READS / 2) {
		plan_enter(plan, job, PLAN_CHECKING, WHY_UNPROVABLE);
		job->is_unprovable = true;
	}
}

void score_judge(struct plan *plan, struct plan_job *job)
{
	uint32_t percent = score_percent(job);
	enum plan_state state = job->state;
	bool was_shared = job->is_shared;

	if (job->verdict_count < score_need(job) || state == PLAN_LOST ||
	    state == PLAN_NO_ORDER)
		return;
	job->is_shared = percent < 95 && score_is_shared(plan, job);
	if (percent < 50 && !job->is_shared) {
		plan_enter(plan, job, PLAN_LOST, WHY_OF_STATE);
		return;
	}
	if (state == PLAN_FINISHED)
		return;
	proof_judge(job);
	if (!job->is_proven) {
		if (!job->is_shared)
			score_unproven(plan, job, percent);
		return;
	}
	if (percent >= 95 || job->is_shared)
		state = PLAN_FOLLOWING;
	else if (state != PLAN_CHECKING || job->verdict_count >= 2 * SYNC_READS)
		state = PLAN_SLOWED;
	if (state != job->state || was_shared != job->is_shared)
		plan_enter(plan, job, state, WHY_OF_STATE);
}
