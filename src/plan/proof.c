/* SPDX-License-Identifier: Apache-2.0 */
/* Whether agreement proves anything. Where the readers' window is a large part of what is left to
 * read, most reads of any order at all fall into it, so their share says nothing. What tells an
 * order from a guess is how early among the positions not read yet a read comes: for a guess the
 * rank is uniform, mean 1/2, for a job that follows it is small. The sum over the last reads,
 * against its standard deviation under "any order", is the proof: beyond 6 deviations it is taken
 * (once in a thousand million), below 2 it is taken back.
 *
 * Only the first half of a pass counts: later even right readers are spread over most of the rest,
 * and the doubt of that would outweigh what was proven. Integers, so that sums over a ring stay
 * exact. */
#include "plan_priv.h"

#define ONE 65536
#define TAKEN 6
#define TAKEN_BACK 2
#define LIKELY 3
#define LEAST_READS 4u
#define DOUBT_READS (SCORE_READS / 2) /* fewer take nothing back */
#define USES_MAX 8u
#define TINY 3u /* positions: every read of such an epoch is as early as it can be */

/* A unit with several uses left is found at the earliest of them, also by guessing. */
static double proof_least_of_uses(const struct slot *slot, uint64_t pos, double rank)
{
	double later = 1 - rank;
	uint32_t next = slot->ep->next_same ? slot->ep->next_same[pos] : SAMPLE_NONE;

	for (uint32_t i = 1; i < USES_MAX && next != SAMPLE_NONE; i++) {
		later *= 1 - rank;
		next = slot->ep->next_same[next];
	}
	return 1 - later;
}

static void proof_add_evidence(struct plan_job *job, struct evidence p)
{
	struct evidence *at = &job->evidence[job->evidence_head];

	if (job->evidence_count == SCORE_READS) {
		job->proof_early -= at->early;
		assert(job->proof_variance >= at->variance);
		job->proof_variance -= at->variance;
	} else {
		job->evidence_count++;
	}
	*at = p;
	job->proof_early += p.early;
	job->proof_variance += p.variance;
	job->evidence_head = (job->evidence_head + 1) % SCORE_READS;
}

/* Before the position is marked as read; NO_POS: the unit is due in no pass that is known. That
 * is against the order, unless another reader is known of, who reads what the job has read already.
 */
void proof_weigh_read(struct plan_job *job, const struct slot *slot, uint64_t pos)
{
	double left = (double)(slot->length - slot->consumed.count), rank = 1;

	if (2 * slot->consumed.count > slot->length || (pos == NO_POS && job->is_shared))
		return;
	if (pos != NO_POS) {
		rank = ((double)window_unread_below(slot, pos) + 0.5) / left;
		rank = proof_least_of_uses(slot, pos, rank);
	}
	proof_add_evidence(job,
			   (struct evidence){ (int32_t)((0.5 - rank) * ONE),
					      (uint32_t)(ONE / 12.0 * (1 - 1 / (left * left))) });
}

void proof_reset(struct plan_job *job)
{
	job->evidence_count = job->evidence_head = 0;
	job->proof_early = 0;
	job->proof_variance = 0;
}

static bool proof_exceeds(const struct plan_job *job, double deviations)
{
	double early = (double)job->proof_early / ONE;

	return early > 0 &&
	       early * early > deviations * deviations * (double)job->proof_variance / ONE;
}

/* Not proven yet, but more than a guess. */
bool proof_is_likely(const struct plan_job *job)
{
	return job->is_proven || (job->evidence_count >= LEAST_READS && proof_exceeds(job, LIKELY));
}

/* There is hardly an order to tell from others, and nothing to lose: all of the epoch fits into any
 * window. */
static bool proof_is_idle(const struct plan_job *job)
{
	return job_cur(job)->ep && !job->inner && job_cur(job)->length <= TINY &&
	       job->reads >= 2 * TINY && job->verdict_in == job->verdict_count;
}

void proof_judge(struct plan_job *job)
{
	if (proof_is_idle(job)) {
		job->is_proven = true;
		return;
	}
	if (job->evidence_count >= LEAST_READS && proof_exceeds(job, TAKEN))
		job->is_proven = true;
	else if (job->evidence_count >= DOUBT_READS && !proof_exceeds(job, TAKEN_BACK))
		job->is_proven = false;
}
