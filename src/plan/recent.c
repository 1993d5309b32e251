/* SPDX-License-Identifier: Apache-2.0 */
/* The last opens, for a job that tells its order after it has begun. When its first epoch is there
 * it is shown those that may be its own: those that were where no other job was expected, and of a
 * job that is alone those of one pass. They may as well be somebody else's: when they do not agree
 * with the order they are left out, and it is as if the job had been added with its epoch. Then
 * nothing is lost, and a wrong start is worse than none: a job that is lost prefetches nothing.
 *
 * Whether they agree is seen from the epoch before, or where that says nothing (few opens, a short
 * epoch) by trying it. What it read since its order was told is shown in any case. Only the job
 * learns from it: what the opens meant for the arena was decided when they came. */
#include "plan_priv.h"

#include <errno.h>
#include <stdlib.h>

enum { ECHO_DISTANCE = 64, SEEN_SIZE = 4 * RECENT_MAX };
/* With fewer opens, or in a shorter epoch, these might fit by chance. */
enum { FIT_READS = 256, FIT_LENGTH = 1024, OTHERS_LEAST = 64 };

static uint32_t recent_at(const struct recent *r, uint32_t ago)
{
	assert(ago < RECENT_MAX);
	return (r->head + 2 * RECENT_MAX - 1 - ago) % RECENT_MAX;
}

void recent_opened(struct plan *plan, uint32_t unit)
{
	struct recent *r = &plan->recent;

	r->unit[r->head] = unit;
	r->is_placed[r->head] = false;
	r->head = (r->head + 1) % RECENT_MAX;
	r->count = MIN(r->count + 1, RECENT_MAX);
}

void recent_placed(struct plan *plan)
{
	plan->recent.is_placed[recent_at(&plan->recent, 0)] = true;
}

uint32_t plan_last_opens(const struct plan *plan, struct unit_id *ret_unit, uint32_t max)
{
	const struct recent *r = &plan->recent;
	uint32_t n = MIN(r->count, max);

	for (uint32_t i = 0; i < n; i++)
		ret_unit[i] = (struct unit_id){ r->unit[recent_at(r, n - 1 - i)] };
	return n;
}

/* How many of the last opens may be of one pass: in a pass no unit comes again, but for jobs that
 * open a file more than once in a row. */
static uint32_t recent_pass(const struct recent *r)
{
	struct {
		uint32_t unit, ago; /* ago + 1; 0: free */
	} *seen = calloc(SEEN_SIZE, sizeof(*seen));
	uint32_t ago;

	for (ago = 0; seen && ago < r->count; ago++) {
		uint32_t unit = r->unit[recent_at(r, ago)];
		uint32_t at = unit * 2654435761u % SEEN_SIZE;

		while (seen[at].ago && seen[at].unit != unit)
			at = (at + 1) % SEEN_SIZE;
		if (seen[at].ago && ago + 1 - seen[at].ago > ECHO_DISTANCE)
			break;
		seen[at].unit = unit;
		seen[at].ago = ago + 1;
	}
	free(seen);
	return ago;
}

/* The last ones, in order; is_unplaced: of those that no job was expected to make. */
static uint32_t recent_reads(const struct recent *r, bool is_unplaced, uint32_t reads[FIT_READS])
{
	uint32_t n = 0;

	for (uint32_t ago = 0; ago < r->count && n < FIT_READS; ago++)
		if (!is_unplaced || !r->is_placed[recent_at(r, ago)])
			reads[FIT_READS - ++n] = r->unit[recent_at(r, ago)];
	return n;
}

/* A job that is alone: how many of the last opens may be its own. */
static uint32_t recent_of_one(const struct plan *plan, const struct plan_job *job)
{
	const struct recent *r = &plan->recent;
	const struct slot *cur = job_cur(job);
	uint32_t reads[FIT_READS];
	struct order_info info = job->info;

	info.outside = job->unnumbered;
	if (cur->length < 4 * job->span) /* any reads seem to agree */
		return 0;
	if (job_samples(job, cur->length) >= FIT_LENGTH && recent_reads(r, false, reads) == FIT_READS &&
	    !plan_epoch_fits(&info, cur->ep, reads, FIT_READS))
		return 0;
	return recent_pass(r);
}

static uint32_t recent_of_several(const struct plan *plan, const struct plan_job *job)
{
	const struct recent *r = &plan->recent;
	uint32_t reads[FIT_READS], n = recent_reads(r, true, reads);
	struct order_info info = job->info;

	info.outside = job->unnumbered;
	if (n < OTHERS_LEAST ||
	    !plan_epoch_fits(&info, job_cur(job)->ep, &reads[FIT_READS - n], n))
		return 0;
	return r->count;
}

/* Whether the job believes what it was shown. */
static bool recent_is_agreed(const struct plan_job *job)
{
	return job->state == PLAN_FOLLOWING || job->state == PLAN_FINISHED ||
	       (job->state == PLAN_CHECKING && score_percent(job) >= 95);
}

/* The last `n`, oldest first; of several jobs those that are nobody else's, and of those that it has
 * not been compared with as a whole only what fits it. `heard`: of the last so many it was told when
 * they came, if its order does not number them. */
static void recent_tell(struct plan *plan, struct plan_job *job, uint32_t n, uint32_t heard,
			bool is_compared)
{
	const struct recent *r = &plan->recent;

	while (n-- > 0) {
		uint32_t at = recent_at(r, n), unit = r->unit[at];
		bool is_own = plan->n_jobs == 1 ||
			      (!r->is_placed[at] &&
			       (is_compared || window_fits(plan, job, unit)));

		if (is_own && !(n < heard && window_is_outside(plan, job, unit)))
			window_read(plan, job, plan->now_ns, unit);
	}
	plan->has_last_use = false;
}

int recent_show(struct plan *plan, struct plan_job *job)
{
	uint32_t since = (uint32_t)MIN(plan->opened - job->told_opened, plan->recent.count);
	uint32_t n = plan->n_jobs == 1 ? recent_of_one(plan, job) : recent_of_several(plan, job);
	struct order_epoch *ep = job_cur(job)->ep;

	assert(ep && !job_next(job)->ep);
	if (n <= since) {
		recent_tell(plan, job, since, since, false);
		return 0;
	}
	recent_tell(plan, job, n, since, true);
	job->mismatches = 0; /* found in hindsight, not by reads */
	if (recent_is_agreed(job))
		return 0;
	jobs_restart(plan, job);
	if (epochs_set_first(job, ep) < 0)
		return -ENOMEM;
	recent_tell(plan, job, since, 0, false);
	return 0;
}
