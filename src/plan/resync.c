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

#define OCCURRENCES 4u /* of one sample that are looked at */
#define MOST_READS (2 * SYNC_READS)
#define MIXED_READS 128u
#define TRY_EVERY 8u
#define SEARCH_PAUSE_MAX 65536u
#define NEAR_CANDIDATES 5u
#define FAR_ROUND_MAX 64u
#define MIXED 3u       /* a breadth: see resync_fit_mixed */
#define FAR_EPOCHS 64u /* of a job that does not say how many it reads */

struct point {
	uint64_t pos;
	uint32_t read;
};

struct window {
	uint64_t first, last;
	uint32_t reads;
};

static uint32_t history_at(const struct plan *plan, uint32_t ago)
{
	return plan->job->history[(plan->job->history_head + SCORE_READS - 1 - ago) % SCORE_READS];
}

static int point_compare(const void *a, const void *b)
{
	const struct point *x = a, *y = b;

	return x->pos < y->pos ? -1 : x->pos > y->pos;
}

static uint32_t points_collect(const struct plan *plan, const struct order_epoch *ep,
			       uint32_t reads, struct point *points)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < reads; i++) {
		uint64_t pos = ep->first[history_at(plan, i)];

		for (uint32_t k = 0; k < OCCURRENCES && pos != SAMPLE_NONE; k++) {
			points[n++] = (struct point){ pos, i };
			pos = ep->next_same ? ep->next_same[pos] : SAMPLE_NONE;
		}
	}
	qsort(points, n, sizeof(*points), point_compare);
	return n;
}

/* The window of this width with the most reads in it. */
static struct window window_best(const struct point *points, uint32_t n, uint64_t width)
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

/* The job's reads among those of another reader, as many or more: a share of the last reads lies in
 * one window, far more than chance would put there. */
static bool resync_fit_mixed(const struct plan *plan, const struct order_epoch *ep,
			     struct window *ret)
{
	uint64_t width = plan->job->span + SYNC_READS + MIXED_READS / 2;
	struct point points[MIXED_READS * OCCURRENCES];
	uint32_t n;

	if (plan->job->history_count < MIXED_READS || ep->length < 8 * width)
		return false;
	n = points_collect(plan, ep, MIXED_READS, points);
	*ret = window_best(points, n, width);
	return ret->reads >= MIXED_READS / 4 &&
	       (ret->reads - 16) * ep->length >= 3 * MIXED_READS * width;
}

/* breadth 0: as wide as the readers are apart; 1, 2: wider, for jobs whose shape is not (or
 * wrongly) given; MIXED: beside another reader. */
static bool resync_fit(const struct plan *plan, const struct order_epoch *ep, uint32_t breadth,
		       struct window *ret)
{
	uint64_t width = plan->job->span + SYNC_READS;
	bool is_wide = breadth == 2 || width > ep->length / 4 + SYNC_READS;
	uint32_t reads = (uint32_t)MIN(is_wide ? MOST_READS : SYNC_READS, ep->length), n;
	struct point points[MOST_READS * OCCURRENCES];

	if (breadth == MIXED)
		return resync_fit_mixed(plan, ep, ret);
	if (plan->job->history_count < reads)
		return false;
	if (breadth)
		width = MAX(width, ep->length / (breadth == 1 ? 4 : 2) + reads);
	/* Reads in any order lie in a window as large as the epoch. Tiny epochs are too short to
	 * tell. */
	if (ep->length > 4 * MOST_READS)
		width = MIN(width, ep->length / 2 + reads);
	n = points_collect(plan, ep, reads, points);
	*ret = window_best(points, n, width);
	return ret->reads * 100 >= reads * 95;
}

/* A wide window is for when nothing else helped: before, it might hold two places, the one that was
 * left and the new one. */
static uint32_t breadths(const struct plan *plan)
{
	return plan->job->state == PLAN_LOST ? MIXED + 1 : 1;
}

/* The first position not read yet: reads of one batch are in any order, so down to the start of its
 * batch. */
static uint64_t resync_low(const struct plan *plan, const struct window *w)
{
	uint64_t step =
		plan->job->info.batch ? plan->job->info.batch * plan->job->info.n_ranks : 64;

	return w->first - w->first % step;
}

/* Makes slots[cur] stand at the window. */
static void resync_place(struct plan *plan, const struct window *w, enum plan_why why)
{
	struct slot *cur = cur_slot(plan), *next = next_slot(plan);
	uint64_t low = resync_low(plan, w), width = w->last - w->first;

	bitmap_clear_all(&cur->consumed);
	epochs_consume_below(cur, low);
	window_begins(plan->job); /* twice: what was learned may be of another order */
	window_begins(plan->job);
	for (uint32_t i = 0; i < plan->job->history_count; i++) {
		uint64_t pos = cur->ep->first[history_at(plan, i)];

		while (pos != SAMPLE_NONE && (pos < low || bitmap_get(&cur->consumed, pos)))
			pos = cur->ep->next_same ? cur->ep->next_same[pos] : SAMPLE_NONE;
		if (pos != SAMPLE_NONE && pos <= w->last)
			bitmap_set(&cur->consumed, pos);
	}
	cur->low = bitmap_next_clear(&cur->consumed, 0);
	if (next->ep) {
		bitmap_clear_all(&next->consumed);
		next->low = 0;
	}
	if (width > plan->job->span) {
		plan->job->span = width + width / 4;
		plan->job->span_cap = MAX(plan->job->span_cap, plan->job->span);
	}
	valid_again(plan);
	epochs_rebuild(plan);
	epochs_forget_before(plan);
	score_reset(plan);
	for (uint32_t i = 0; i < w->reads; i++)
		score_push(plan, true);
	plan->job->next_streak = plan->job->blind_reads = 0;
	plan->job->is_searching = false;
	plan->job->search_pause = SCORE_READS;
	plan->job->far_next = FAR_FIRST;
	plan->job->far_round = FAR_ROUND;
	plan->job->resyncs++;
	plan->job->note = why;
	if (cur->length > 4 * MOST_READS)
		plan->job->is_proven =
			true; /* so many reads in a part of the epoch are no chance */
	plan_enter(plan, plan->job->is_proven ? PLAN_FOLLOWING : PLAN_CHECKING,
		   plan->job->is_proven ? WHY_OF_STATE : why);
}

static enum plan_why repeat_why(uint64_t epoch)
{
	return epoch == 0 ? WHY_REPEATS_0 : WHY_REPEATS;
}

/* The pass that is (or was) being read, at another place than expected. */
static void resync_cur(struct plan *plan, const struct window *w)
{
	struct slot *cur = cur_slot(plan);
	bool is_start = w->first < plan->job->span,
	     is_done = cur->consumed.count >= cur->length - cur->length / 20;
	/* Readers may be farther apart than it seemed, and opens may not have been seen: then
	 * nothing was left out. */
	bool is_jump = !plan->job->blind_reads &&
		       slot_unread_below(cur, resync_low(plan, w)) > plan->job->span;
	enum plan_why why = is_jump ? WHY_JUMPED : WHY_FOLLOWS;

	if (is_start && is_done) {
		why = repeat_why(cur->epoch);
		plan->job->is_repeat = true;
		valid_close(plan);
		cur->pass++;
		cur->index++;
		valid_open(plan);
		if (next_slot(plan)->ep != cur->ep)
			epochs_uninstall(
				plan, !plan->job->cur); /* the next pass is this epoch once more */
	} else if (w->last < cur->low) {
		why = cur->epoch == plan->job->info.start_epoch ? WHY_RUN_AGAIN : WHY_EPOCH_AGAIN;
	} else if (!plan->job->is_confirmed) {
		why = is_start ? WHY_FOLLOWS : WHY_RESUMED;
	}
	resync_place(plan, w, why);
}

static void resync_next(struct plan *plan, const struct window *w)
{
	enum plan_why why = WHY_LEFT_EARLY;

	if (next_slot(plan)->is_rerun)
		why = WHY_RUN_AGAIN;
	else if (!plan->job->is_confirmed)
		why = WHY_NEXT_ALREADY;
	epochs_roll(plan);
	resync_place(plan, w, why);
}

/* The epoch that was read to its end is read once more, though a read or two looked like the next.
 */
static bool resync_before(struct plan *plan, const struct window *w)
{
	struct order_epoch *ep = plan->job->before;
	struct slot *cur = cur_slot(plan);
	uint64_t pass = cur->pass, index = cur->index;
	int r;

	plan->job->is_repeat = true;
	epochs_uninstall(plan, 0);
	epochs_uninstall(plan, 1);
	r = epochs_install(plan, plan->job->cur, ep, ep->epoch);
	plan->job->before = NULL;
	if (r < 0) {
		order_epoch_free(ep);
		epochs_rebuild(plan);
		plan_enter(plan, PLAN_LOST, WHY_NO_MEMORY);
		return false;
	}
	cur->pass = pass;
	cur->index = index;
	resync_place(plan, w, repeat_why(ep->epoch));
	return true;
}

static bool resync_loaded(struct plan *plan)
{
	struct window w;

	if (plan->job->before && resync_fit(plan, plan->job->before, 0, &w) &&
	    w.first < plan->job->span)
		return resync_before(plan, &w);
	for (uint32_t breadth = 0; breadth < breadths(plan); breadth++) {
		if (cur_slot(plan)->ep && resync_fit(plan, cur_slot(plan)->ep, breadth, &w)) {
			resync_cur(plan, &w);
			return true;
		}
		if (next_slot(plan)->ep && resync_fit(plan, next_slot(plan)->ep, breadth, &w)) {
			resync_next(plan, &w);
			return true;
		}
	}
	return false;
}

void resync_try(struct plan *plan)
{
	uint32_t need = score_need(plan),
		 out = (uint32_t)__builtin_popcount((uint32_t)plan->job->recent_out);
	bool is_blind = plan->job->blind_reads && plan->job->blind_reads <= SYNC_READS;

	if (plan->job->reads - plan->job->sync_at < MIN(TRY_EVERY, need))
		return;
	if (plan->job->state != PLAN_LOST && !is_blind && out < need / 2)
		return;
	plan->job->sync_at = plan->job->reads;
	if (resync_loaded(plan) || plan->job->is_searching || plan->job->info.is_same_every_epoch)
		return;
	if (plan->job->reads >= plan->job->search_at &&
	    (plan->job->state == PLAN_LOST || out >= need - need / 16)) {
		plan->job->is_searching = true;
		plan->job->candidate = 0;
	}
}

/* The number of candidate i, or UINT64_MAX for one that is no use. */
static uint64_t candidate_epoch(const struct plan *plan, uint32_t i)
{
	uint64_t e = cur_slot(plan)->epoch, epoch = UINT64_MAX;

	switch (i) {
	case 0:
		epoch = plan->job->info.start_epoch;
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
		epoch = plan->job->far_next + (i - NEAR_CANDIDATES);
		break;
	}
	if (epoch == e || (next_slot(plan)->ep && epoch == next_slot(plan)->epoch))
		return UINT64_MAX;
	return epoch;
}

/* A job that was resumed may be in any epoch: while lost, each search tries some further ones, and
 * twice as many the next time. */
static uint64_t far_count(const struct plan *plan)
{
	uint64_t epochs = plan->job->info.epochs ? plan->job->info.epochs : FAR_EPOCHS;
	uint64_t end = plan->job->info.start_epoch + epochs;

	if (plan->job->state != PLAN_LOST || plan->job->far_next >= end)
		return 0;
	return MIN(plan->job->far_round, end - plan->job->far_next);
}

static void search_end(struct plan *plan)
{
	uint64_t far = far_count(plan);

	plan->job->is_searching = false;
	plan->job->search_at = plan->job->reads + plan->job->search_pause;
	plan->job->search_pause = MIN(plan->job->search_pause * 2, SEARCH_PAUSE_MAX);
	if (plan->job->state != PLAN_LOST)
		return;
	plan->job->why = WHY_NOT_FOLLOWED;
	plan->job->far_next = far ? plan->job->far_next + far : FAR_FIRST;
	plan->job->far_round = MIN(plan->job->far_round * 2, FAR_ROUND_MAX);
}

uint64_t resync_next_candidate(struct plan *plan)
{
	while (plan->job->candidate < NEAR_CANDIDATES + far_count(plan)) {
		uint64_t epoch = candidate_epoch(plan, plan->job->candidate);

		if (epoch != UINT64_MAX) {
			if (plan->job->candidate >= NEAR_CANDIDATES)
				plan->job->why = WHY_TRYING_LATER;
			return epoch;
		}
		plan->job->candidate++;
	}
	search_end(plan);
	return UINT64_MAX;
}

static enum plan_why candidate_why(const struct plan *plan, uint64_t epoch)
{
	if (epoch == plan->job->info.start_epoch)
		return WHY_RUN_AGAIN;
	if (epoch == 0)
		return WHY_READS_0;
	if (epoch < cur_slot(plan)->epoch)
		return WHY_EARLIER_EPOCH;
	return WHY_LATER_EPOCH;
}

bool resync_candidate(struct plan *plan, struct order_epoch *take_ep)
{
	uint64_t epoch = take_ep->epoch, pass = cur_slot(plan)->pass + 1;
	enum plan_why why = candidate_why(plan, epoch);
	struct window w;
	bool is_fit = false;

	plan->job->candidate++;
	for (uint32_t breadth = 0; breadth < breadths(plan) && !is_fit; breadth++)
		is_fit = resync_fit(plan, take_ep, breadth, &w);
	if (!is_fit) {
		order_epoch_free(take_ep);
		return false;
	}
	epochs_uninstall(plan, 0);
	epochs_uninstall(plan, 1);
	plan->job->is_repeat = false;
	if (epochs_install(plan, plan->job->cur, take_ep, epoch) < 0) {
		epochs_rebuild(plan);
		plan_enter(plan, PLAN_LOST, WHY_NO_MEMORY);
		return false;
	}
	cur_slot(plan)->pass = pass;
	cur_slot(plan)->index =
		epoch >= plan->job->info.start_epoch ? epoch - plan->job->info.start_epoch : 0;
	if (cur_slot(plan)->index >= plan->job->info.epochs)
		plan->job->has_epochs_end = false; /* more epochs than the order said */
	resync_place(plan, &w, why);
	return true;
}

bool plan_epoch_fits(const struct order_info *info, const struct order_epoch *epoch,
		     const uint32_t *reads, uint32_t n_reads)
{
	struct plan *plan = calloc(1, sizeof(*plan));
	struct plan_job *job = calloc(1, sizeof(*job));
	struct window w;
	bool is_fit = false;

	if (!plan || !job || epoch->length <= 4 * MOST_READS) {
		free(plan);
		free(job);
		return false;
	}
	plan->job = job;
	plan->job->info = *info;
	plan->n = epoch->n;
	jobs_init_span(plan);
	for (uint32_t i = 0; i < n_reads; i++) {
		uint32_t s = reads[i];
		bool is_outside = info->outside && info->outside[s / 64] >> s % 64 & 1;

		if (!is_outside && !window_is_recent(plan, s))
			score_read(plan, s);
	}
	for (uint32_t breadth = 0; breadth <= MIXED && !is_fit; breadth++)
		is_fit = resync_fit(plan, epoch, breadth, &w);
	free(plan);
	free(job);
	return is_fit;
}
