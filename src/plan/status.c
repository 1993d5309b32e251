/* SPDX-License-Identifier: Apache-2.0 */
/* What the plan says about itself. Every figure is one the plan decides by, none is computed for
 * show. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "plan_priv.h"

const char *const plan_state_names[] = {
	[PLAN_NO_ORDER] = "no_order",   [PLAN_WAITING] = "waiting", [PLAN_CHECKING] = "checking",
	[PLAN_FOLLOWING] = "following", [PLAN_SLOWED] = "slowed",   [PLAN_LOST] = "lost",
	[PLAN_FINISHED] = "finished",
};

/* Every word that is said about a job. What a state means by itself, then what was found out when
 * the position was looked for. */
static const char *const why_words[WHY_COUNT] = {
	[WHY_OF_STATE] = "",
	[WHY_NO_ORDER] = "no order was given",
	[WHY_NOTHING_READ] = "nothing has been read yet",
	[WHY_COMPUTING] = "the order is new and its first epoch is being computed",
	[WHY_COMPARING] = "the first reads are being compared with the order",
	[WHY_FOLLOWS] = "reads follow the order",
	[WHY_OTHER_READER] = "some reads are in another order",
	[WHY_STRAYS] = "some reads are not where the order expects them",
	[WHY_UNPROVABLE] = "cannot be verified: the loader's window is as large as the dataset",
	[WHY_NOT_FOLLOWED] = "reads do not follow the order",
	[WHY_OUTSIDE] = "reads samples that are not in the order",
	[WHY_TRYING_LATER] = "reads do not follow the order: trying later epochs",
	[WHY_NO_EPOCH] = "the order cannot be computed",
	[WHY_NO_MEMORY] = "no memory for the order",
	[WHY_FINISHED] = "all epochs of the order were read",
	[WHY_JUMPED] = "jumped ahead in the epoch",
	[WHY_RESUMED] = "resumed in the middle of an epoch",
	[WHY_EPOCH_AGAIN] = "started the epoch again",
	[WHY_RUN_AGAIN] = "started again from the first epoch",
	[WHY_REPEATS_0] = "reads epoch 0 again: set_epoch is not called",
	[WHY_REPEATS] = "reads the same epoch again: set_epoch is not called",
	[WHY_READS_0] = "reads epoch 0, though a later one was told",
	[WHY_LEFT_EARLY] = "left an epoch before its end",
	[WHY_NEXT_ALREADY] = "is in a later epoch than the order says",
	[WHY_EARLIER_EPOCH] = "reads an earlier epoch than the order says",
	[WHY_LATER_EPOCH] = "reads a later epoch than the order says",
};

/* From the low-water mark to the first position whose sample is missing. */
static uint64_t status_lead(const struct plan_job *job)
{
	const struct slot *slots[SLOTS] = { job_cur(job), job_valid(job), job_next(job) };
	uint64_t low = job_low(job), end = low;

	for (uint32_t i = 0; i < SLOTS; i++) {
		uint64_t first = slots[i]->absorbed;

		if (!slots[i]->ep && slots[i] == job_valid(job))
			continue;
		if (!slots[i]->ep)
			break;

		for (uint32_t s = SET_WANT; s <= SET_GAP; s++)
			first = MIN(first, tree_next(&slots[i]->set[s], slots[i]->low));
		end = MAX(end, job_virtual(job, slots[i], first));
		if (first < slots[i]->length)
			break;
	}
	return end - low;
}

/* Share of the reads that seem to be somebody else's. Not at the start of a pass: there all workers of
 * the job itself begin at once, and are farther apart than they have ever been. Nor where most of the
 * last ones are a little further on in the order: one of the workers has got no CPU for a while. */
static uint32_t status_others(const struct plan_job *job, const struct slot *slot)
{
	bool is_young = slot->low < MIN(2 * SCORE_READS, slot->length / 4);
	int out = __builtin_popcountll(job->recent_out),
	    near = __builtin_popcountll(job->recent_out & job->recent_near);

	if (is_young)
		return 0;
	if (score_strangers(job) && job->state >= PLAN_CHECKING && job->state <= PLAN_SLOWED)
		return score_strangers(job);
	return job->is_shared && 2 * near < out ? 100 - score_percent(job) : 0;
}

/* Lost right after its epochs were over: what it reads then is no other run of them. */
static bool status_is_read_on(const struct plan_job *job)
{
	return job->state == PLAN_LOST && job->finished_opened &&
	       job->lost_opened - job->finished_opened <= SCORE_READS;
}

static enum plan_why status_why(const struct plan *plan, const struct plan_job *job, uint32_t others)
{
	if (job->state == PLAN_WAITING && !job_cur(job)->ep && plan->recent.count)
		return WHY_COMPUTING;
	return others && job->why == WHY_FOLLOWS ? WHY_OTHER_READER : job->why;
}

/* The pass that the job is at: the next one when it has read this one to its end. */
static const struct slot *status_slot(const struct plan_job *job)
{
	const struct slot *slot = job_cur(job), *next = job_next(job);

	return slot->ep && slot->low == slot->length && next->ep && !next->is_rerun ? next : slot;
}

static void status_of(const struct plan *plan, const struct plan_job *job,
		      struct plan_status *ret)
{
	const struct slot *slot = status_slot(job);
	uint32_t others = status_others(job, slot);

	*ret = (struct plan_status){
		.state = job->state,
		.why = why_words[status_why(plan, job, others)],
		.epoch = slot->ep ? slot->epoch : job->info.start_epoch,
		.position = slot->low,
		.length = slot->length,
		.lead = status_lead(job),
		.match_percent = score_percent(job),
		.inflight = plan->inflight_source + plan->inflight_store,
		.inflight_limit = budget_limit(plan),
		.arena_bytes = plan->used_pages * PAGE_BYTES,
		.stage_bytes = plan->staged_pages * PAGE_BYTES,
		.stage_limit_bytes = (uint64_t)plan->stage_limit * PAGE_BYTES,
		.pinned_bytes = plan->pinned_pages * PAGE_BYTES,
		.span = job->span,
		.epochs_known = later_known(plan, job),
		.opened = plan->opened,
		.issued = plan->issued,
		.asked = plan->asked,
		.useful = plan->useful,
		.late = plan->late,
		.wasted = plan->wasted,
		.failed = plan->failed,
		.mismatches = job->mismatches,
		.resyncs = job->resyncs,
		.outside = job->outside,
		.outside_run = job->outside_run,
		.is_read_on = status_is_read_on(job),
		.valid_length = job_valid(job)->length,
		.valid_read = job_valid(job)->consumed.count,
		.valid_epoch = job_cur(job)->epoch,
		.valid_foreseen = job->valid.foreseen,
		.other_percent = others,
		.last_epoch = job->has_epochs_end ? job->info.start_epoch + job->info.epochs - 1
						  : UINT64_MAX,
		.placed = job->placed,
		.is_over = job->is_over,
		.lost = job->lost,
		.lost_reads = job->state == PLAN_LOST ? plan->opened - job->lost_opened : 0,
		.is_pinning_over = plan->is_pinning_over,
		.is_unread = slot->ep && job->placed && slot->consumed.count == 0,
	};
}

void plan_get_status(const struct plan *plan, struct plan_status *ret)
{
	status_of(plan, jobs_first(plan), ret);
}

bool plan_get_job_status(const struct plan *plan, uint32_t job, struct plan_status *ret)
{
	if (job >= PLAN_JOBS || !plan->jobs[job])
		return false;
	status_of(plan, plan->jobs[job], ret);
	return true;
}

bool plan_is_confirmed(const struct plan *plan)
{
	return jobs_first(plan)->is_confirmed;
}

static bool status_is_said(const struct plan_status *st, enum plan_why why)
{
	return strcmp(plan_status_why(st), why_words[why]) == 0;
}

const char *plan_status_why(const struct plan_status *st)
{
	static const enum plan_why of_who_told[] = { WHY_JUMPED,       WHY_RESUMED,
						     WHY_READS_0,      WHY_NEXT_ALREADY,
						     WHY_EARLIER_EPOCH, WHY_LATER_EPOCH };

	if (!st->why)
		return ""; /* the plan has not spoken yet */
	for (size_t i = 0; st->is_found && i < ARRAY_LEN(of_who_told); i++)
		if (strcmp(st->why, why_words[of_who_told[i]]) == 0)
			return why_words[WHY_FOLLOWS];
	if (strcmp(st->why, why_words[WHY_OTHER_READER]) == 0 && !st->other_percent)
		return why_words[WHY_FOLLOWS];
	return st->why;
}

/* Whether the readers stand where an epoch ends or begins. */
static bool status_is_between(const struct plan_status *st)
{
	return st->position <= st->span || st->position + st->span >= st->length;
}

static int status_text_reading(const struct plan_status *st, char *out, size_t size)
{
	uint64_t percent = st->length ? st->position * 100 / st->length : 0;
	const char *reads = "reads";
	char last[64] = "";
	int n;

	if (st->is_unread)
		reads = "has read an epoch to its end, and nothing yet of";
	else if (st->state == PLAN_CHECKING)
		reads = "seems to read";
	if (st->last_epoch != UINT64_MAX)
		snprintf(last, sizeof(last), " (the last is %" PRIu64 ")", st->last_epoch);
	/* A seed and an epoch cannot be told apart by what is read. */
	n = snprintf(out, size, "%s epoch %" PRIu64 "%s%s", reads, st->epoch,
		     st->is_found ? " of the order that was found" : "", last);
	if (st->is_unread)
		return n;
	return n + snprintf(out + n, size - (size_t)n, ", %" PRIu64 " %% of it so far", percent);
}

static int status_text_state(const struct plan_status *st, char *out, size_t size)
{
	switch (st->state) {
	case PLAN_NO_ORDER:
		return snprintf(out, size, "%s",
				st->opened ? "reads in an order that nobody told"
					   : "has read nothing yet");
	case PLAN_WAITING:
		return snprintf(out, size, "has read nothing of the order yet");
	case PLAN_LOST:
		if (status_is_said(st, WHY_NO_EPOCH) || status_is_said(st, WHY_NO_MEMORY))
			return snprintf(out, size, "cannot be followed");
		if (status_is_said(st, WHY_OUTSIDE))
			return snprintf(out, size,
					"has read %" PRIu64 " samples that are not in the order",
					st->outside_run);
		if (st->is_read_on)
			return snprintf(out, size,
					"has read all epochs of the order that was %s, and %" PRIu64
					" samples after that",
					st->is_found ? "found" : "told", st->lost_reads);
		return snprintf(out, size,
				"does not read in the order that was %s, for %" PRIu64 " reads",
				st->is_found ? "found" : "told", st->lost_reads);
	case PLAN_FINISHED:
		return snprintf(out, size, "has read all epochs");
	default:
		return status_text_reading(st, out, size);
	}
}

static void status_text_validation(const struct plan_status *st, char *out, size_t size)
{
	if (st->valid_read)
		snprintf(out, size,
			 "; has read %" PRIu64 " of %" PRIu64
			 " validation samples expected after epoch %" PRIu64,
			 st->valid_read, st->valid_length, st->valid_epoch);
	else if (st->valid_length)
		snprintf(out, size, "; expects %" PRIu64 " validation samples after epoch %" PRIu64,
			 st->valid_length, st->valid_epoch);
}

void plan_status_text(const struct plan_status *st, char out[PLAN_TEXT])
{
	bool is_reading = st->state >= PLAN_CHECKING && st->state <= PLAN_SLOWED;
	int n = status_text_state(st, out, PLAN_TEXT);

	if (st->state == PLAN_LOST && status_is_said(st, WHY_OUTSIDE))
		return;
	if (is_reading && st->other_percent)
		n += snprintf(
			out + n, PLAN_TEXT - (size_t)n,
			"; %u %% of the reads are in another order (another job, rank or loader)",
			st->other_percent);
	else if (is_reading ? !status_is_said(st, WHY_FOLLOWS)
			    : st->state == PLAN_LOST && !status_is_said(st, WHY_NOT_FOLLOWED))
		n += snprintf(out + n, PLAN_TEXT - (size_t)n, "; %s",
			      plan_status_why(st));
	if (st->outside_run && !st->valid_read)
		n += snprintf(out + n, PLAN_TEXT - (size_t)n,
			      "; %shas read %" PRIu64 " samples outside of the order",
			      is_reading && status_is_between(st) ? "between epochs: " : "",
			      st->outside_run);
	if (is_reading || st->state == PLAN_FINISHED)
		status_text_validation(st, out + n, PLAN_TEXT - (size_t)n);
}
