/* SPDX-License-Identifier: Apache-2.0 */
/* Where a read belongs. The readers of a job (workers, ranks) stand at a set of positions, not at
 * one: a read is as expected when its unit has an unread position within `span` of the low-water
 * mark, the first position not read. Two passes form one line of positions, so the end of an epoch
 * needs no rule of its own.
 *
 * A hole (a unit the job skips, or an open nobody saw) must not hold the low-water mark for ever:
 * when the positions behind it were read densely and reads arrive beyond the window, it is passed
 * over. An open of what was read a moment ago says nothing, jobs open files twice. Must never give
 * one position away twice. */
#include "plan_priv.h"

#include <string.h>

#include "clairfs/base/cleanup.h"

enum fit {
	FIT_IN,
	FIT_OUT,
	FIT_REPEAT,
	FIT_UNKNOWN, /* perhaps of a pass that is not loaded yet */
};

struct use {
	struct slot *slot;
	uint64_t pos;
};

/* Steps along the positions of one unit, at most. */
#define CHAIN_MAX 64u
#define ECHO_MAX 1024u
#define OUTSIDE_FIRST 512u
#define BEGINNING 512u /* reads of a pass */
#define FEW_READS 8u /* of the next pass, when all samples of this one were opened */
#define END_QUIET_NS (2 * NS_PER_S)
/* Of samples that are cut all are opened long before they are read: a pause is no end. */
#define CUT_QUIET_NS (60 * NS_PER_S)

static uint64_t window_chain_next(const struct order_epoch *ep, uint64_t pos)
{
	uint32_t next = ep->next_same ? ep->next_same[pos] : SAMPLE_NONE;

	return next == SAMPLE_NONE ? NO_POS : next;
}

uint64_t window_first_use(const struct slot *slot, const struct plan *plan,
			  const struct plan_job *job, uint32_t unit)
{
	uint32_t key = *job_key(plan, job, unit);
	bool is_keyed = key != NO_KEY && key_slot(job, key) == slot;
	/* Everything before the key is consumed; `first` would be a cache miss more. */
	uint64_t pos = is_keyed ? key_pos(key) : slot->ep->first[unit];

	if (!is_keyed && pos == SAMPLE_NONE)
		return NO_POS;
	if (!slot->consumed.count)
		return pos;
	for (uint32_t i = 0; i < CHAIN_MAX && pos != NO_POS; i++) {
		if (!bitmap_get(&slot->consumed, pos))
			return pos;
		pos = window_chain_next(slot->ep, pos);
	}
	return NO_POS;
}

uint64_t window_unread_below(const struct slot *slot, uint64_t end)
{
	uint64_t count = 0;

	for (uint64_t pos = slot->low; pos < end; pos = ALIGN_DOWN(pos, 64) + 64) {
		uint64_t word = ~slot->consumed.words[pos / 64] & ~0ull << pos % 64;

		if (end - ALIGN_DOWN(pos, 64) < 64)
			word &= ~(~0ull << end % 64);
		count += (uint64_t)__builtin_popcountll(word);
	}
	return count;
}

bool window_was_just_read(const struct plan_job *job, const struct slot *slot, uint32_t unit)
{
	uint64_t pos = slot->ep->first[unit];

	if (pos == SAMPLE_NONE)
		return false;
	for (uint32_t i = 0; i < CHAIN_MAX && pos != NO_POS && bitmap_get(&slot->consumed, pos);
	     i++) {
		if (pos + 2 * job->span >= slot->low && pos <= slot->low + job->span)
			return true;
		pos = window_chain_next(slot->ep, pos);
	}
	return false;
}

/* Among the last few reads. */
bool window_is_recent(const struct plan *plan, const struct plan_job *job, uint32_t unit)
{
	uint32_t n = (uint32_t)MIN(MIN(64, job_samples(job, plan->n) / 4), job->history_count);

	for (uint32_t i = 1; i <= n; i++)
		if (job->history[(job->history_head + SCORE_READS - i) % SCORE_READS] ==
		    unit)
			return true;
	return false;
}

/* Samples in these positions, and how many of them were opened. */
static uint64_t window_count_samples(const struct plan_job *job, const struct slot *slot,
				     uint64_t from, uint64_t to, uint64_t *ret_opened)
{
	uint64_t count = 0;

	*ret_opened = 0;
	for (uint64_t pos = from; pos < to; pos++) {
		if (job_is_inner(job, slot->ep->sample[pos]))
			continue;
		count++;
		*ret_opened += bitmap_get(&slot->consumed, pos);
	}
	return count;
}

/* No sample of the pass is left to be opened; false also when that is not near. */
static bool window_is_all_opened(const struct plan_job *job, const struct slot *slot)
{
	uint64_t opened;

	return slot->length - slot->low <= 4 * job->span &&
	       window_count_samples(job, slot, slot->low, slot->length, &opened) == opened;
}

/* And some of it was read: who opens files and does no more may be at the beginning of any pass. */
static bool window_is_gone_through(const struct plan_job *job, const struct slot *slot)
{
	return 8 * slot->consumed.count >= slot->length && window_is_all_opened(job, slot);
}

static bool window_is_dense(const struct slot *slot, uint64_t from, uint64_t to)
{
	uint64_t count = 0;

	for (uint64_t pos = from; pos < to; pos = ALIGN_DOWN(pos, 64) + 64) {
		uint64_t word = slot->consumed.words[pos / 64] & ~0ull << pos % 64;

		if (to - ALIGN_DOWN(pos, 64) < 64)
			word &= ~(~0ull << to % 64);
		count += (uint64_t)__builtin_popcountll(word);
	}
	return 2 * count >= to - from;
}

/* Most of what lies there was read; or many samples there were opened (the last ones not yet by all
 * readers), and what is left of them their readers did not want, or nobody heard of it. */
static bool window_is_read(const struct plan_job *job, const struct slot *slot, uint64_t from,
			   uint64_t to)
{
	uint64_t count, opened;

	if (window_is_dense(slot, from, to))
		return true;
	if (!job->inner || slot == job_valid(job))
		return false;
	count = window_count_samples(job, slot, from, to, &opened);
	return count && 3 * opened >= count;
}

/* The readers have come to the end of the pass, but for what they left of samples and an open that
 * nobody saw. */
static bool window_is_at_end(const struct plan_job *job)
{
	const struct slot *cur = job_cur(job);

	return window_is_gone_through(job, cur) || (cur->length - cur->low <= 2 * job->span &&
						  window_is_read(job, cur, cur->low, cur->length));
}

/* More than a job leaves of a pass before it begins the next one. */
static bool window_is_far_from_end(const struct plan_job *job)
{
	const struct slot *cur = job_cur(job);

	return 8 * (cur->length - cur->consumed.count) > cur->length &&
	       !(job->inner && window_is_at_end(job));
}

/* Whether a read of what was just read, that might also be the first of the next pass, is one more
 * open of the old one: of a job that has been seen to open its files more than once, or one that has
 * much of the pass to read. */
static bool window_is_echo(const struct plan *plan, const struct plan_job *job, uint32_t unit,
			   bool has_begun)
{
	if (window_is_far_from_end(job) && window_is_recent(plan, job, unit))
		return true;
	return job->echo >= ECHO_MAX / 4 && (!has_begun || window_is_recent(plan, job, unit));
}

static void window_learn_echo(struct plan_job *job, enum fit fit)
{
	if (fit == FIT_REPEAT)
		job->echo += (ECHO_MAX - job->echo) / 8;
	else
		job->echo -= job->echo / 32;
}

void window_set_consumed(struct plan *plan, struct plan_job *job, struct slot *slot, uint64_t pos)
{
	uint32_t unit = slot->ep->sample[pos];

	assert(!bitmap_get(&slot->consumed, pos));
	stage_consumed(plan, job, job_virtual(job, slot, pos), unit);
	bitmap_set(&slot->consumed, pos);
	slot->inner += job_is_inner(job, unit);
	if (pos == slot->low)
		slot->low = bitmap_next_clear(&slot->consumed, pos);
	if (*job_key(plan, job, unit) == key_make(job, slot, pos))
		item_next_key(plan, job, unit);
}

/* The predicted use did not come: the unit waits for its next one. */
void window_pass_over(struct plan *plan, struct plan_job *job, struct slot *slot, uint64_t pos)
{
	uint32_t unit = slot->ep->sample[pos];

	item_out(plan, unit);
	stage_forget(plan, unit);
	item_in(plan, unit);
	window_set_consumed(plan, job, slot, pos);
}

bool window_slide(struct plan *plan, struct plan_job *job, struct slot *slot, uint64_t pos)
{
	if (pos > slot->low + 2 * job->span || !window_is_read(job, slot, slot->low, pos))
		return false;
	while (slot->low + job->span < pos) {
		uint32_t unit = slot->ep->sample[slot->low];

		if (tracers_take(plan, job, slot, slot->low))
			continue;
		if (job_is_inner(job, unit))
			waste_left(plan, job, unit);
		else if (slot != job_valid(job))
			score_left(job);
		window_pass_over(plan, job, slot, slot->low);
	}
	return true;
}

static enum fit window_find(struct plan *plan, struct plan_job *job, uint32_t unit,
			    struct use *ret)
{
	struct slot *cur = job_cur(job), *next = job_next(job);
	uint64_t end = job_order_low(job) + job->span, next_end = end,
		 pos = window_first_use(cur, plan, job, unit);
	bool is_read;

	*ret = (struct use){ cur, pos };
	if (pos != NO_POS && (pos < end || window_slide(plan, job, cur, pos)))
		return FIT_IN;
	is_read = window_was_just_read(job, cur, unit);
	if (next->ep) {
		uint64_t next_pos = window_first_use(next, plan, job, unit);
		bool has_begun = cur->low == cur->length || next->consumed.count;

		/* The last batches may be left out: then all readers are at the start of the next
		 * pass. */
		if (end > cur->length || (job->inner && window_is_at_end(job)))
			next_end = cur->length + next->low + job->span;
		if (next_pos != NO_POS &&
		    (job_order_pos(job, next, next_pos) < next_end ||
		     (cur->low == cur->length && window_slide(plan, job, next, next_pos)))) {
			if (is_read && next_pos != next->low &&
			    window_is_echo(plan, job, unit, has_begun))
				return FIT_REPEAT;
			*ret = (struct use){ next, next_pos };
			return FIT_IN;
		}
		is_read = is_read || window_was_just_read(job, next, unit);
	}
	if (is_read || plan->item[unit].flags & TAIL)
		return FIT_REPEAT;
	if (!next->ep && !job->has_failed_epoch && end > cur->length)
		return FIT_UNKNOWN;
	return FIT_OUT;
}

/* Logarithmic buckets, four per octave. */
static uint32_t window_distance_bucket(uint64_t d)
{
	uint32_t top;

	if (d < 8)
		return (uint32_t)d;
	top = 63 - (uint32_t)__builtin_clzll(d);
	return MIN(8 + 4 * (top - 3) + (uint32_t)(d >> (top - 2) & 3), 63);
}

static uint64_t window_distance_upper(uint32_t bucket)
{
	return bucket < 8 ? bucket + 1 : (5ull + (bucket - 8) % 4) << ((bucket - 8) / 4 + 1);
}

/* The fourth largest: a read or two may be another reader's. */
static void window_learn_beginning(struct plan_job *job, uint64_t distance)
{
	uint32_t at = 0;

	while (at < ARRAY_LEN(job->begin_most) && distance > job->begin_most[at])
		at++;
	if (at == 0)
		return;
	memmove(&job->begin_most[0], &job->begin_most[1], (at - 1) * sizeof(job->begin_most[0]));
	job->begin_most[at - 1] = distance;
	job->begin_apart = job->begin_most[0];
}

/* Span = four times the 99th percentile of the distances seen, where the job's shape is not given,
 * and no less than what the readers were apart when they began this pass or the one before: then
 * all workers take a batch at once; later, when all is ready, one after the other does, which looks
 * like a single reader. It shrinks slowly. */
static void window_learn_span(struct plan_job *job, uint64_t distance)
{
	uint64_t apart = MAX(job->begin_apart, job->began_apart);
	uint64_t least = apart + apart / 8 + 1;
	uint32_t left;

	if (job->inner)
		least = MAX(least, job_positions(job, 2));

	if (job->is_span_given || distance > job->span_cap)
		return;
	if (slot_opened(job_cur(job)) < BEGINNING)
		window_learn_beginning(job, distance);
	job->distance[window_distance_bucket(distance)]++;
	if (++job->n_distance < SCORE_READS)
		return;
	left = job->n_distance / 100;
	for (uint32_t i = 64; i-- > 0;) {
		if (job->distance[i] > left) {
			least = MAX(least, 4 * window_distance_upper(i) + 16);
			least = MAX(least, job->span - job->span / 8);
			job->span = MIN(least, job->span_cap);
			break;
		}
		left -= job->distance[i];
	}
	job->n_distance = 0;
	for (uint32_t i = 0; i < 64; i++)
		job->n_distance += job->distance[i] /= 2;
}

void window_begins(struct plan_job *job)
{
	job->began_apart = job->begin_apart;
	job->begin_apart = 0;
	memset(job->begin_most, 0, sizeof(job->begin_most));
}

/* What is left of its samples is not read any more, as the readers are in the next pass. */
static bool window_is_left(const struct plan_job *job, uint64_t half)
{
	uint64_t apart = MAX(job_samples(job, job->span) / 2, FEW_READS);

	return job->next_streak >= MIN(apart, half) ||
	       (job->next_streak >= MIN(FEW_READS, half) &&
		window_is_gone_through(job, job_cur(job)));
}

/* Whether the pass is over: all of it was read, or the readers are all in the next one. */
static void window_maybe_roll(struct plan *plan, struct plan_job *job)
{
	struct slot *cur = job_cur(job), *next = job_next(job);
	uint64_t half;
	bool is_over;

	if (job->before &&
	    slot_opened(cur) >= MIN(SYNC_READS, (job_samples(job, cur->length) + 1) / 2))
		epochs_forget_before(job);
	if (!next->ep)
		return;
	half = (job_samples(job, next->length) + 1) / 2;
	/* When all of it was read the epoch after the next one is wanted at once: what the next one
	 * reads has no key before. Whether it is really read shows later, see epochs_roll. */
	if (cur->low < cur->length)
		is_over = job->next_streak >= MIN(2 * SYNC_READS, half) ||
			  (job->inner && window_is_left(job, half));
	else if (next->is_rerun)
		is_over = slot_opened(next) >= MIN(SYNC_READS, half);
	else
		is_over = next->consumed.count >= 1;
	if (is_over)
		epochs_roll(plan, job);
}

static void window_maybe_finish(struct plan *plan, struct plan_job *job)
{
	const struct slot *cur = job_cur(job), *next = job_next(job);

	if (job->state < PLAN_CHECKING || job->state > PLAN_SLOWED ||
	    cur->low < cur->length || !epochs_is_last(job, cur) ||
	    (next->ep && next->consumed.count))
		return;
	job->is_confirmed = job->is_confirmed || job->state == PLAN_FOLLOWING;
	plan_enter(plan, job, PLAN_FINISHED, WHY_FINISHED);
	score_reset(job);
}

/* Of several jobs a few samples may have been left out, which were another one's. */
static bool window_is_nearly_read(const struct plan *plan, const struct plan_job *job)
{
	const struct slot *cur = job_cur(job);

	if (job->inner && window_is_all_opened(job, cur))
		return true;
	return plan->n_jobs > 1 && bitmap_get(&cur->consumed, cur->length - 1) &&
	       4 * (cur->length - cur->consumed.count) <= job->span;
}

uint64_t window_leave(struct plan *plan, struct plan_job *job, uint64_t now_ns)
{
	const struct slot *cur = job_cur(job);

	if ((plan->n_jobs == 1 && !job->inner) || job->state < PLAN_CHECKING ||
	    job->state > PLAN_SLOWED || !cur->ep || !epochs_is_last(job, cur))
		return UINT64_MAX;
	if (now_ns < job->read_ns + (job->inner ? CUT_QUIET_NS : END_QUIET_NS))
		return job->inner ? job->read_ns + CUT_QUIET_NS : UINT64_MAX;
	if (window_is_nearly_read(plan, job))
		plan_enter(plan, job, PLAN_FINISHED, WHY_FINISHED);
	return UINT64_MAX;
}

static void window_pend(struct plan_job *job, uint32_t unit)
{
	if (job->n_pending < SCORE_READS)
		job->pending[job->n_pending++] = unit;
}

/* How far it is from the readers, by the order. */
static uint64_t window_lead(const struct plan_job *job, const struct use *use)
{
	return job_order_pos(job, use->slot, use->pos) - job_order_low(job);
}

/* A read beyond the window by the job itself; another reader's takes nothing from what the job has
 * still to read. */
static bool window_may_be_own(const struct plan_job *job, const struct use *use)
{
	return !job->is_shared || window_lead(job, use) < 4 * job->span;
}

struct plan_use window_use_at(const struct plan_job *job, const struct slot *slot, uint64_t pos)
{
	const struct order_epoch *ep = slot->ep;
	bool has_place = ep && ep->place && pos < ep->length;

	return (struct plan_use){ .job = job->index,
				  .pass = slot->pass,
				  .position = pos,
				  .length = slot->length,
				  .place = has_place ? ep->place[pos] : pos,
				  .places = has_place ? ep->places : slot->length };
}

void window_remember(struct plan *plan, struct plan_job *job, const struct slot *slot, uint64_t pos)
{
	job->read_ns = plan->now_ns;
	plan->has_last_use = true;
	plan->last_use = window_use_at(job, slot, pos);
}

void window_ended(struct plan *plan, struct plan_job *job)
{
	window_maybe_finish(plan, job);
	window_maybe_roll(plan, job);
}

/* Where samples are cut many are near: one that was left in the pass before may be read in this one. */
static void window_count_next(struct plan_job *job, const struct slot *slot)
{
	if (slot != job_cur(job))
		job->next_streak++;
	else
		job->next_streak -= job->inner ? MIN(job->next_streak, FEW_READS)
					       : job->next_streak;
}

static void window_place_read(struct plan *plan, struct plan_job *job, uint32_t unit,
			      enum fit fit, const struct use *use)
{
	const struct order_epoch *next = job_next(job)->ep;
	uint32_t soon = unit; /* what this reader opens next, most likely */
	bool is_near = false;

	assert(fit == FIT_IN ? use->pos < use->slot->length : fit == FIT_OUT);
	if (fit == FIT_IN || !job->blind_reads)
		proof_weigh_read(job, use->slot, use->pos);
	if (fit == FIT_IN) {
		window_learn_span(job, window_lead(job, use));
		window_count_next(job, use->slot);
		score_kept(job);
		job->placed++;
		window_remember(plan, job, use->slot, use->pos);
		window_set_consumed(plan, job, use->slot, use->pos);
		if (use->pos + job->info.n_ranks < use->slot->length)
			soon = use->slot->ep->sample[use->pos + job->info.n_ranks];
	} else {
		job->mismatches++;
		is_near = use->pos != NO_POS && window_lead(job, use) < 2 * job->span;
		if (use->pos != NO_POS && window_may_be_own(job, use)) {
			/* Read all the same; and a span that is too small shows here. */
			window_learn_span(job, window_lead(job, use));
			window_set_consumed(plan, job, use->slot, use->pos);
		}
	}
	/* Half of what an open costs is waiting for memory, which may begin now. (Not in a function
	 * of its own: gcc takes one that only does this for one that does nothing.) */
	__builtin_prefetch(&plan->item[soon]);
	if (next)
		__builtin_prefetch(&next->first[soon]);
	score_read(job, unit);
	if (job->state == PLAN_WAITING)
		plan_enter(plan, job, PLAN_CHECKING, WHY_COMPARING);
	if (fit == FIT_IN || !job->blind_reads) {
		score_push(job, fit == FIT_IN);
		job->recent_near |= is_near;
	}
	if (job->blind_reads)
		job->blind_reads--;
	if (fit == FIT_OUT)
		resync_try(plan, job);
	score_judge(plan, job);
	window_ended(plan, job);
}

/* The job does not number it, as told, or as the epochs show where all ranks are here. */
bool window_is_outside(const struct plan *plan, const struct plan_job *job, uint32_t unit)
{
	const struct slot *cur = job_cur(job), *next = job_next(job);

	if (job->unnumbered && job->unnumbered[unit / 64] >> unit % 64 & 1)
		return true;
	if (key_is_valid(*job_key(plan, job, unit)))
		return true;
	if (*job_key(plan, job, unit) != NO_KEY)
		return false; /* without the cache miss of a look into the epoch */
	return cur->ep && next->ep && job->state != PLAN_LOST &&
	       job->info.n_ranks == job->info.world &&
	       cur->ep->first[unit] == SAMPLE_NONE && next->ep->first[unit] == SAMPLE_NONE;
}

/* Reads outside of the order, one after the other, that are no validation set: more than a sanity
 * check before the first epoch has; and of a job that has read by the order, more than all such
 * units several times over. */
static uint64_t window_outside_limit(const struct plan *plan, const struct plan_job *job)
{
	uint64_t length = job_cur(job)->length, n_other = plan->n_sized - MIN(length, plan->n_sized);

	if (!job->is_confirmed && !job->is_unprovable)
		return OUTSIDE_FIRST;
	return OUTSIDE_FIRST + 4 * MAX(n_other, job->n_outside);
}

/* A validation set, most often: it says nothing about the order. But all reads of a job are outside
 * when the order is of the wrong directory or of a list that is too short; then somebody has to
 * look for another one. */
static void window_outside(struct plan *plan, struct plan_job *job, uint64_t now_ns,
			   uint32_t unit)
{
	enum plan_state state = job->state;

	valid_read(plan, job, now_ns, unit);
	job->outside++;
	job->outside_run++;
	job->inside_run = 0;
	if (job_cur(job)->ep && state >= PLAN_WAITING && state <= PLAN_SLOWED &&
	    job->outside_run > window_outside_limit(plan, job))
		plan_enter(plan, job, PLAN_LOST, WHY_OUTSIDE);
}

/* A job reads no unit twice in a pass, or does so at once, and begins the next one when little of
 * this is left. Where the window is a large part of the pass, that is how another reader shows: in
 * what the job has read, or will find read. */
static void window_judge_reader(struct plan *plan, struct plan_job *job, uint32_t unit,
				enum fit fit, const struct use *use)
{
	bool is_strange = fit == FIT_OUT;

	if (fit == FIT_UNKNOWN || job->blind_reads || plan->item[unit].flags & TAIL)
		return;
	if (fit == FIT_REPEAT) {
		if (window_is_recent(plan, job, unit))
			return;
		is_strange = true;
	} else if (fit == FIT_OUT && use->pos != NO_POS) {
		is_strange = window_lead(job, use) >= 2 * job->span;
	} else if (fit == FIT_IN && use->slot == job_next(job)) {
		is_strange = window_is_far_from_end(job);
	}
	score_strange(job, is_strange);
}

void window_read(struct plan *plan, struct plan_job *job, uint64_t now_ns, uint32_t unit)
{
	struct use use;
	enum fit fit;

	if (window_is_outside(plan, job, unit)) {
		window_outside(plan, job, now_ns, unit);
		return;
	}
	if (!job_cur(job)->ep && job->state != PLAN_LOST)
		return; /* see recent_show */
	if (job->state == PLAN_LOST) {
		if (window_is_recent(plan, job, unit))
			return;
		score_read(job, unit);
		resync_try(plan, job);
		return;
	}
	if (++job->inside_run >= SYNC_READS)
		job->outside_run = 0;
	tracers_heard(plan, job, unit);
	fit = window_find(plan, job, unit, &use);
	window_judge_reader(plan, job, unit, fit, &use);
	window_learn_echo(job, fit);
	if (fit == FIT_UNKNOWN)
		window_pend(job, unit);
	/* What fits no job is shown to all of them, and says nothing about anyone's pace. */
	if (fit == FIT_IN || (fit == FIT_OUT && plan->n_jobs == 1))
		budget_read(plan, job, now_ns);
	if (fit == FIT_IN || fit == FIT_OUT)
		window_place_read(plan, job, unit, fit, &use);
	if (fit == FIT_IN && plan->n_jobs > 1)
		worth_read(plan, now_ns, unit);
}

/* How well a read fits a job: how many units its readers would leave out for now, in 1/1024 of
 * how far they may be apart (where its readers are does not tell: a read that was taken for another
 * job's is left out for long). A job whose order is not believed yet comes after those that are.
 * NO_POS: not at all. */
static uint64_t window_distance(const struct plan *plan, const struct plan_job *job,
				uint32_t unit)
{
	const struct slot *cur = job_cur(job), *next = job_next(job);
	uint64_t low = job_order_low(job), pos = NO_POS, away, from = 0;

	if (job->is_over || !cur->ep || job->state == PLAN_LOST)
		return NO_POS;
	if (valid_is_due(plan, job, unit))
		return 0;
	pos = window_first_use(cur, plan, job, unit);
	if (pos != NO_POS) {
		away = window_unread_below(cur, MIN(pos, low + job->span));
	} else {
		pos = next->ep ? window_first_use(next, plan, job, unit) : NO_POS;
		if (pos == NO_POS)
			return NO_POS;
		from = cur->length;
		away = cur->length - cur->consumed.count +
		       window_unread_below(next, MIN(pos, next->low + job->span));
	}
	if (from + pos >= low + job->span)
		return NO_POS;
	away = away * 1024 / job->span;
	return job->state == PLAN_FOLLOWING || job->state == PLAN_SLOWED ? away : 1024 + away;
}

bool window_fits(const struct plan *plan, const struct plan_job *job, uint32_t unit)
{
	return window_distance(plan, job, unit) != NO_POS;
}

struct plan_job *window_reader(const struct plan *plan, uint32_t unit)
{
	struct plan_job *best = NULL, *job;
	uint64_t least = NO_POS;

	if (plan->n_jobs == 1)
		return jobs_first(plan);
	for (uint32_t at = 0; (job = jobs_next(plan, &at));) {
		uint64_t distance = window_distance(plan, job, unit);

		if (distance < least) {
			least = distance;
			best = job;
		}
	}
	for (uint32_t at = 0; !best && (job = jobs_next(plan, &at));) {
		const struct slot *cur = job_cur(job), *next = job_next(job);

		if (job->state != PLAN_LOST &&
		    ((cur->ep && window_was_just_read(job, cur, unit)) ||
		     (next->ep && window_was_just_read(job, next, unit))))
			best = job;
	}
	return best;
}

void window_replay(struct plan *plan, struct plan_job *job, uint64_t now_ns)
{
	uint32_t n = job->n_pending, units[SCORE_READS];

	for (uint32_t i = 0; i < n; i++)
		units[i] = job->pending[i];
	job->n_pending = 0;
	/* Of several jobs each was shown them all: its own are those that fit it. */
	for (uint32_t i = 0; i < n; i++)
		if (plan->n_jobs == 1 || window_fits(plan, job, units[i]))
			window_read(plan, job, now_ns, units[i]);
}
