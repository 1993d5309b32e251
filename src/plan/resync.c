/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the position again. The last reads are looked up in an epoch; if 95 % of them lie in one
 * window about as wide as the readers are apart, that is where the job is. Tried in this order: the
 * pass that is read (a jump, a resume, a restart), the next one (an early end), then epochs
 * computed for the purpose, one at a time.
 *
 * By chance 31 of 32 reads fall into a window of a quarter of the epoch once in 10^17 trials, so a
 * match is believed at once. It runs on plan_event's thread like everything here; a trial costs
 * some microseconds and is made at every eighth unexpected read at most. */
#include "plan_priv.h"

#include <stdlib.h>

#define OCCURRENCES 4u /* of one unit that are looked at */
#define MOST_READS (2 * SYNC_READS)
#define MIXED_READS 128u
#define TRY_EVERY 8u
#define SEARCH_PAUSE_MAX 65536u
#define NEAR_CANDIDATES 5u
#define TRIED_ROUND_MAX 64u
#define MIXED 3u       /* a breadth: see resync_fit_mixed */
#define NARROW 4u
#define AT_WORK 8u     /* readers, where they are not given */
#define TRIED_EPOCHS 64u /* of a job that does not say how many it reads */

struct point {
	uint64_t pos;
	uint32_t read;
};

struct window {
	uint64_t first, last;
	uint32_t reads;
};

static uint32_t resync_history_at(const struct plan_job *job, uint32_t ago)
{
	return job->history[(job->history_head + SCORE_READS - 1 - ago) % SCORE_READS];
}

static int resync_compare_points(const void *a, const void *b)
{
	const struct point *x = a, *y = b;

	return x->pos < y->pos ? -1 : x->pos > y->pos;
}

static uint32_t resync_collect_points(const struct plan_job *job, const struct order_epoch *ep,
				      uint32_t reads, struct point *points)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < reads; i++) {
		uint64_t pos = ep->first[resync_history_at(job, i)];

		for (uint32_t k = 0; k < OCCURRENCES && pos != SAMPLE_NONE; k++) {
			points[n++] = (struct point){ pos, i };
			pos = ep->next_same ? ep->next_same[pos] : SAMPLE_NONE;
		}
	}
	qsort(points, n, sizeof(*points), resync_compare_points);
	return n;
}

/* The window of this width with the most reads in it. */
static struct window resync_best_window(const struct point *points, uint32_t n, uint64_t width)
{
	uint8_t seen[MIXED_READS] = { 0 };
	struct window best = { 0 };
	uint32_t from = 0, reads = 0;

	for (uint32_t to = 0; to < n; to++) {
		reads += seen[points[to].read]++ == 0;
		while (points[to].pos - points[from].pos > width)
			reads -= --seen[points[from++].read] == 0;
		if (reads > best.reads)
			best = (struct window){ points[from].pos, points[to].pos, reads };
	}
	return best;
}

/* A few reads that are nobody's (the kernel has read on) make a window as wide as it may be. Where three quarters
 * of its reads are within a quarter of it, that is where the readers are: those of a job that is as wide as the
 * window are spread over all of it. No narrower than readers are known to be apart. */
static void resync_narrow(const struct plan_job *job, const struct point *points, uint32_t n, struct window *w)
{
	uint64_t width = MAX((w->last - w->first) / NARROW, job->span);
	struct window narrow = resync_best_window(points, n, width);

	if (4 * narrow.reads >= 3 * w->reads)
		*w = narrow;
}

/* The job's reads among those of another reader, as many or more: a share of the last reads lies in
 * one window, far more than chance would put there. */
static bool resync_fit_mixed(const struct plan_job *job, const struct order_epoch *ep,
			     struct window *ret)
{
	uint64_t width = job->span + job_positions(job, SYNC_READS + MIXED_READS / 2);
	struct point points[MIXED_READS * OCCURRENCES];
	uint32_t n;

	if (job->history_count < MIXED_READS || ep->length < 8 * width)
		return false;
	n = resync_collect_points(job, ep, MIXED_READS, points);
	*ret = resync_best_window(points, n, width);
	return ret->reads >= MIXED_READS / 4 &&
	       (ret->reads - 16) * ep->length >= 3 * MIXED_READS * width;
}

/* breadth 0: as wide as the readers are apart; 1, 2: wider, for jobs whose shape is not (or
 * wrongly) given; MIXED: beside another reader. */
static bool resync_fit(const struct plan_job *job, const struct order_epoch *ep, uint32_t breadth,
		       struct window *ret)
{
	uint64_t some = job_positions(job, SYNC_READS), width = job->span + some;
	bool is_wide = breadth == 2 || width > ep->length / 4 + some;
	uint32_t reads = (uint32_t)MIN(is_wide ? MOST_READS : SYNC_READS,
				       job_samples(job, ep->length)), n;
	struct point points[MOST_READS * OCCURRENCES];

	if (breadth == MIXED)
		return resync_fit_mixed(job, ep, ret);
	if (job->history_count < reads)
		return false;
	if (breadth)
		width = MAX(width, ep->length / (breadth == 1 ? 4 : 2) +
					   job_positions(job, reads));
	/* Reads in any order lie in a window as large as the epoch. Tiny epochs are too short to
	 * tell. */
	if (job_samples(job, ep->length) > 4 * MOST_READS)
		width = MIN(width, ep->length / 2 + job_positions(job, reads));
	n = resync_collect_points(job, ep, reads, points);
	*ret = resync_best_window(points, n, width);
	if (ret->reads * 100 < reads * 95)
		return false;
	if (breadth)
		resync_narrow(job, points, n, ret);
	return true;
}

/* A wide window is for when nothing else helped: before, it might hold two places, the one that was
 * left and the new one. */
static uint32_t resync_breadths(const struct plan_job *job)
{
	return job->state == PLAN_LOST ? MIXED + 1 : 1;
}

/* The first position not read yet: reads of one batch are in any order, so down to the start of its
 * batch. */
static uint64_t resync_low(const struct plan_job *job, const struct window *w)
{
	uint64_t step =
		job->info.batch ? job->info.batch * job->info.n_ranks : 64;

	if (job->info.samples)
		return w->first; /* where a batch begins there no division tells */
	return w->first - w->first % step;
}

static uint64_t resync_unread(const struct slot *slot, uint64_t low, uint32_t unit)
{
	uint64_t pos = slot->ep->first[unit];

	while (pos != SAMPLE_NONE && (pos < low || bitmap_get(&slot->consumed, pos)))
		pos = slot->ep->next_same ? slot->ep->next_same[pos] : SAMPLE_NONE;
	return pos;
}

/* Its reader has opened another sample since: all of this one was read. */
static void resync_set_rest(const struct plan *plan, struct plan_job *job, uint64_t low, uint32_t unit)
{
	struct slot *cur = job_cur(job);

	while (++unit < plan->n && job_is_inner(job, unit)) {
		uint64_t pos = resync_unread(cur, low, unit);

		if (pos == SAMPLE_NONE)
			continue;
		bitmap_set(&cur->consumed, pos);
		cur->inner++;
	}
}

/* Makes slots[cur] stand at the window. */
static void resync_place(struct plan *plan, struct plan_job *job, const struct window *w,
			 enum plan_why why)
{
	struct slot *cur = job_cur(job), *next = job_next(job);
	uint64_t low = resync_low(job, w), width = w->last - w->first;
	uint64_t at_work = job->info.workers ? job->info.workers * job->info.n_ranks : AT_WORK;

	assert(cur->ep && w->reads && w->first <= w->last && w->last < cur->length);
	bitmap_clear_all(&cur->consumed);
	epochs_consume_below(job, cur, low);
	window_begins(job); /* twice: what was learned may be of another order */
	window_begins(job);
	for (uint32_t i = 0; i < job->history_count; i++) {
		uint64_t pos = resync_unread(cur, low, resync_history_at(job, i));

		if (pos == SAMPLE_NONE || pos > w->last)
			continue;
		bitmap_set(&cur->consumed, pos);
		if (i >= at_work)
			resync_set_rest(plan, job, low, cur->ep->sample[pos]);
	}
	cur->low = bitmap_next_clear(&cur->consumed, 0);
	if (next->ep) {
		bitmap_clear_all(&next->consumed);
		next->low = next->inner = 0;
	}
	if (width > job->span) {
		job->span = width + width / 4;
		job->span_cap = MAX(job->span_cap, job->span);
	}
	valid_again(job);
	epochs_rebuild(plan, job);
	epochs_forget_before(job);
	score_reset(job);
	for (uint32_t i = 0; i < w->reads; i++)
		score_push(job, true);
	job->next_streak = job->blind_reads = 0;
	job->is_searching = false;
	job->search_pause = SCORE_READS;
	job->tried_next = TRIED_FIRST;
	job->tried_round = TRIED_ROUND;
	job->resyncs++;
	job->note = why;
	if (job_samples(job, cur->length) > 4 * MOST_READS)
		job->is_proven =
			true; /* so many reads in a part of the epoch are no chance */
	plan_enter(plan, job, job->is_proven ? PLAN_FOLLOWING : PLAN_CHECKING,
		   job->is_proven ? WHY_OF_STATE : why);
}

static enum plan_why resync_repeat_why(uint64_t epoch)
{
	return epoch == 0 ? WHY_REPEATS_0 : WHY_REPEATS;
}

/* The pass that is (or was) being read, at another place than expected. */
static void resync_cur(struct plan *plan, struct plan_job *job, const struct window *w)
{
	struct slot *cur = job_cur(job);
	bool is_start = w->first < job->span,
	     is_done = cur->consumed.count >= cur->length - cur->length / 20;
	/* Readers may be farther apart than it seemed, and opens may not have been seen: then
	 * nothing was left out. */
	bool is_jump =
		!job->blind_reads && window_unread_below(cur, resync_low(job, w)) > job->span;
	enum plan_why why = is_jump ? WHY_JUMPED : WHY_FOLLOWS;

	if (is_start && is_done) {
		why = resync_repeat_why(cur->epoch);
		job->is_repeat = true;
		valid_close(plan, job);
		cur->pass++;
		cur->index++;
		valid_open(job);
		if (job_next(job)->ep != cur->ep)
			/* the next pass is this epoch once more */
			epochs_uninstall(job, !job->cur);
	} else if (w->last < cur->low) {
		why = cur->epoch == job->info.start_epoch ? WHY_RUN_AGAIN : WHY_EPOCH_AGAIN;
	} else if (!job->is_confirmed) {
		why = is_start ? WHY_FOLLOWS : WHY_RESUMED;
	}
	resync_place(plan, job, w, why);
}

static void resync_next(struct plan *plan, struct plan_job *job, const struct window *w)
{
	enum plan_why why = WHY_LEFT_EARLY;

	if (job_next(job)->is_rerun)
		why = WHY_RUN_AGAIN;
	else if (!job->is_confirmed)
		why = WHY_NEXT_ALREADY;
	epochs_roll(plan, job);
	resync_place(plan, job, w, why);
}

/* The epoch that was read to its end is read once more, though a read or two looked like the next.
 */
static bool resync_before(struct plan *plan, struct plan_job *job, const struct window *w)
{
	struct order_epoch *ep = job->before;
	struct slot *cur = job_cur(job);
	uint64_t pass = cur->pass, index = cur->index;
	int r;

	assert(ep);
	job->is_repeat = true;
	epochs_uninstall(job, 0);
	epochs_uninstall(job, 1);
	r = epochs_install(job, job->cur, ep, ep->epoch);
	job->before = NULL;
	if (r < 0) {
		order_epoch_free(ep);
		epochs_rebuild(plan, job);
		plan_enter(plan, job, PLAN_LOST, WHY_NO_MEMORY);
		return false;
	}
	cur->pass = pass;
	cur->index = index;
	resync_place(plan, job, w, resync_repeat_why(ep->epoch));
	return true;
}

static bool resync_loaded(struct plan *plan, struct plan_job *job)
{
	struct window w;

	if (job->before && resync_fit(job, job->before, 0, &w) &&
	    w.first < job->span)
		return resync_before(plan, job, &w);
	for (uint32_t breadth = 0; breadth < resync_breadths(job); breadth++) {
		if (job_cur(job)->ep && resync_fit(job, job_cur(job)->ep, breadth, &w)) {
			resync_cur(plan, job, &w);
			return true;
		}
		if (job_next(job)->ep && resync_fit(job, job_next(job)->ep, breadth, &w)) {
			resync_next(plan, job, &w);
			return true;
		}
	}
	return false;
}

void resync_try(struct plan *plan, struct plan_job *job)
{
	uint32_t need = score_need(job),
		 out = (uint32_t)__builtin_popcount((uint32_t)job->recent_out);
	bool is_blind = job->blind_reads && job->blind_reads <= SYNC_READS;

	if (job->reads - job->sync_at < MIN(TRY_EVERY, need))
		return;
	if (job->state != PLAN_LOST && !is_blind && out < need / 2)
		return;
	job->sync_at = job->reads;
	if (resync_loaded(plan, job) || job->is_searching || job->info.is_same_every_epoch)
		return;
	if (job->reads >= job->search_at &&
	    (job->state == PLAN_LOST || out >= need - need / 16)) {
		job->is_searching = true;
		job->candidate = 0;
	}
}

/* The number of candidate i, or UINT64_MAX for one that is no use. */
static uint64_t resync_candidate_epoch(const struct plan_job *job, uint32_t i)
{
	uint64_t e = job_cur(job)->epoch, epoch = UINT64_MAX;

	switch (i) {
	case 0:
		epoch = job->info.start_epoch;
		break;
	case 1:
		epoch = e + 1;
		break;
	case 2:
		epoch = e ? e - 1 : UINT64_MAX;
		break;
	case 3:
		epoch = 0;
		break;
	case 4:
		epoch = e + 2;
		break;
	default:
		epoch = job->tried_next + (i - NEAR_CANDIDATES);
		break;
	}
	if (epoch == e || (job_next(job)->ep && epoch == job_next(job)->epoch))
		return UINT64_MAX;
	return epoch;
}

/* A job that was resumed may be in any epoch: while lost, each search tries some further ones, and
 * twice as many the next time. */
static uint64_t resync_count_later(const struct plan_job *job)
{
	uint64_t epochs = job->info.epochs ? job->info.epochs : TRIED_EPOCHS;
	uint64_t end = job->info.start_epoch + epochs;

	if (job->state != PLAN_LOST || job->tried_next >= end)
		return 0;
	return MIN(job->tried_round, end - job->tried_next);
}

static void resync_end_search(struct plan_job *job)
{
	uint64_t far = resync_count_later(job);

	job->is_searching = false;
	job->search_at = job->reads + job->search_pause;
	job->search_pause = MIN(job->search_pause * 2, SEARCH_PAUSE_MAX);
	if (job->state != PLAN_LOST)
		return;
	job->why = WHY_NOT_FOLLOWED;
	job->tried_next = far ? job->tried_next + far : TRIED_FIRST;
	job->tried_round = MIN(job->tried_round * 2, TRIED_ROUND_MAX);
}

uint64_t resync_next_candidate(struct plan_job *job)
{
	while (job->candidate < NEAR_CANDIDATES + resync_count_later(job)) {
		uint64_t epoch = resync_candidate_epoch(job, job->candidate);

		if (epoch != UINT64_MAX) {
			if (job->candidate >= NEAR_CANDIDATES)
				job->why = WHY_TRYING_LATER;
			return epoch;
		}
		job->candidate++;
	}
	resync_end_search(job);
	return UINT64_MAX;
}

static enum plan_why resync_candidate_why(const struct plan_job *job, uint64_t epoch)
{
	if (epoch == job->info.start_epoch)
		return WHY_RUN_AGAIN;
	if (epoch == 0)
		return WHY_READS_0;
	if (epoch < job_cur(job)->epoch)
		return WHY_EARLIER_EPOCH;
	return WHY_LATER_EPOCH;
}

bool resync_candidate(struct plan *plan, struct plan_job *job, struct order_epoch *take_ep)
{
	uint64_t epoch = take_ep->epoch, pass = job_cur(job)->pass + 1;
	enum plan_why why = resync_candidate_why(job, epoch);
	struct window w;
	bool is_fit = false;

	job->candidate++;
	for (uint32_t breadth = 0; breadth < resync_breadths(job) && !is_fit; breadth++)
		is_fit = resync_fit(job, take_ep, breadth, &w);
	if (!is_fit) {
		order_epoch_free(take_ep);
		return false;
	}
	epochs_uninstall(job, 0);
	epochs_uninstall(job, 1);
	job->is_repeat = false;
	if (epochs_install(job, job->cur, take_ep, epoch) < 0) {
		epochs_rebuild(plan, job);
		plan_enter(plan, job, PLAN_LOST, WHY_NO_MEMORY);
		return false;
	}
	job_cur(job)->pass = pass;
	job_cur(job)->index =
		epoch >= job->info.start_epoch ? epoch - job->info.start_epoch : 0;
	if (job_cur(job)->index >= job->info.epochs)
		job->has_epochs_end = false; /* more epochs than the order said */
	resync_place(plan, job, &w, why);
	return true;
}

bool plan_epoch_fits(const struct order_info *info, const struct order_epoch *epoch,
		     const uint32_t *reads, uint32_t n_reads)
{
	struct plan *plan = calloc(1, sizeof(*plan));
	struct plan_job *job = calloc(1, sizeof(*job));
	struct window w;
	bool is_fit = false;

	if (job)
		job->info = *info;
	if (!plan || !job || job_samples(job, epoch->length) <= 4 * MOST_READS) {
		free(plan);
		free(job);
		return false;
	}
	plan->n = plan->n_sized = epoch->n;
	jobs_init_span(plan, job);
	for (uint32_t i = 0; i < n_reads; i++) {
		uint32_t s = reads[i];
		bool is_outside = info->outside && info->outside[s / 64] >> s % 64 & 1;

		if (!is_outside && !window_is_recent(plan, job, s))
			score_read(job, s);
	}
	for (uint32_t breadth = 0; breadth <= MIXED && !is_fit; breadth++)
		is_fit = resync_fit(job, epoch, breadth, &w);
	free(plan);
	free(job);
	return is_fit;
}
