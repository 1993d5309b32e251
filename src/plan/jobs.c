/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of a plan. Each reads in an order of its own at a pace of its own; memory, stage, store
 * and source are shared. What is to be fetched or dropped is decided by when it is needed next by
 * whoever needs it first: positions become time by each job's pace. With one job positions are all
 * there is, and no pace, which is never exact, comes into any decision.
 *
 * The first one is always there, also when it has ended and until another one takes its place, and
 * keeps its keys in the items; the others have an array of keys. A job whose epoch is being
 * computed is not freed before the answer. Must never leave a key behind of a job that is gone.
 * Planner thread. */
#include "plan_priv.h"

#include <errno.h>
#include <string.h>

#include "tell.h"

#define TICK_NS NS_PER_MS /* per position, until a job has read some */

/* The positions the job's readers may be apart: each worker has prefetch_factor batches ahead of
 * the batch that is assembled, ranks run about one batch apart. */
void jobs_init_span(struct plan *plan, struct plan_job *job)
{
	const struct order_info *info = &job->info;
	uint64_t factor = info->prefetch_factor ? info->prefetch_factor : 2;
	uint64_t batches = info->workers * factor + 1, span = plan->params.span, at_work;

	if (!span && info->batch && info->workers) {
		span = batches * info->batch * info->n_ranks;
		job->reader_span = span;
		span += span / 4 + 64;
	}
	job->is_span_given = span != 0;
	job->span_cap = MIN(4096, MAX(plan->n / 8, MIN(MAX(plan->n, 1), 128)));
	job->span = span ? MIN(span, UINT32_MAX) : job->span_cap;
	/* Each worker reads one sample at a time; a few times as many may still be at work. */
	at_work = info->workers ? MIN(info->workers * info->n_ranks, 4096) : 64;
	job->hold_reads = (uint32_t)MIN(4 * MAX(at_work, 8), job->span);
}

static void jobs_free_one(struct plan_job *job)
{
	epochs_uninstall(job, 0);
	epochs_uninstall(job, 1);
	epochs_forget_before(job);
	valid_fini(job);
	free(job->unnumbered);
	free(job->key);
	free(job->tail);
	free(job);
}

struct plan_job *jobs_first(const struct plan *plan)
{
	uint32_t i = 0;

	while (i < plan->top_job && (!plan->jobs[i] || plan->jobs[i]->is_over))
		i++;
	return plan->jobs[i < plan->top_job ? i : 0];
}

struct plan_job *jobs_next(const struct plan *plan, uint32_t *at)
{
	while (*at < plan->top_job) {
		struct plan_job *job = plan->jobs[(*at)++];

		if (job && !job->is_over)
			return job;
	}
	return NULL;
}

uint64_t jobs_when(const struct plan *plan, const struct plan_job *job, uint64_t due)
{
	uint64_t ahead = due - job_low(job);

	if (plan->n_jobs <= 1)
		return ahead;
	return (uint64_t)((double)ahead *
			  (job->pace.rate ? (double)NS_PER_S / job->pace.rate : (double)TICK_NS));
}

struct plan_job *jobs_home(const struct plan *plan, uint32_t sample, uint64_t *ret_when)
{
	struct plan_job *home = NULL;

	*ret_when = NO_POS;
	for (uint32_t i = 0; i < plan->top_job; i++) {
		struct plan_job *job = plan->jobs[i];
		uint64_t due = job ? job_due(plan, job, sample) : NO_POS, when;

		if (due == NO_POS)
			continue;
		when = jobs_when(plan, job, due);
		if (home && when >= *ret_when)
			continue;
		home = job;
		*ret_when = when;
	}
	return home;
}

void jobs_stage_dirty(struct plan *plan)
{
	for (uint32_t i = 0; i < plan->top_job; i++)
		if (plan->jobs[i])
			plan->jobs[i]->is_stage_dirty = true;
}

bool jobs_are_prefetching(const struct plan *plan)
{
	for (uint32_t i = 0; i < plan->top_job; i++) {
		const struct plan_job *job = plan->jobs[i];

		if (job && !job->is_over && job_is_prefetching(job))
			return true;
	}
	return false;
}

/* Its own copy: what the order says lives as long as the order, which may be replaced. */
static int jobs_init_outside(struct plan *plan, struct plan_job *job)
{
	uint64_t words = DIV_ROUND_UP((uint64_t)plan->n, 64);

	if (!job->info.outside)
		return 0;
	job->unnumbered = malloc(MAX(words, 1) * sizeof(uint64_t));
	if (!job->unnumbered)
		return -ENOMEM;
	memcpy(job->unnumbered, job->info.outside, words * sizeof(uint64_t));
	for (uint32_t i = 0; i < plan->n; i++)
		job->n_outside += job->unnumbered[i / 64] >> i % 64 & 1;
	job->info.outside = NULL;
	return 0;
}

/* What no job numbers, and with a second job no masks of epochs: they are of one order. */
static void jobs_changed(struct plan *plan)
{
	struct plan_job *job;

	for (uint32_t i = 0; i < plan->n; i++)
		item_out(plan, i);
	uses_fini(plan);
	for (uint32_t i = 0; i < plan->n; i++) {
		bool is_outside = true;

		for (uint32_t k = 0; k < plan->top_job; k++) {
			job = plan->jobs[k];
			if (job && !job->is_over)
				is_outside = is_outside && job->unnumbered &&
					     job->unnumbered[i / 64] >> i % 64 & 1;
		}
		plan->item[i].flags &= ~(uint32_t)(OUTSIDE | FAR_MASK);
		plan->item[i].flags |= is_outside ? OUTSIDE : 0;
		item_in(plan, i);
	}
	plan->hold_reads = 0;
	for (uint32_t at = 0; (job = jobs_next(plan, &at));)
		plan->hold_reads += job->hold_reads;
	jobs_stage_dirty(plan);
	worth_init(plan);
}

static int jobs_init(struct plan *plan, struct plan_job *job, const struct order_info *info)
{
	if (info)
		job->info = *info;
	job->has_epochs_end = job->info.epochs != 0;
	job->search_pause = SCORE_READS;
	job->far_next = FAR_FIRST;
	job->far_round = FAR_ROUND;
	job->tail = calloc(TAIL_MAX, sizeof(*job->tail));
	if (!job->tail || jobs_init_outside(plan, job) < 0)
		return -ENOMEM;
	if (!job->index)
		return 0;
	job->key = malloc(MAX(plan->n, 1) * sizeof(*job->key));
	if (!job->key)
		return -ENOMEM;
	memset(job->key, 0xff, plan->n * sizeof(*job->key)); /* NO_KEY */
	return 0;
}

/* A place for it, or PLAN_JOBS. The first one's is never empty: it may be taken over. */
static uint32_t jobs_place(const struct plan *plan)
{
	const struct plan_job *first = plan->jobs[0];
	uint32_t i = 0;

	if (first && first->is_over && !first->is_asked)
		return 0;
	while (i < PLAN_JOBS && plan->jobs[i])
		i++;
	return i;
}

int jobs_add(struct plan *plan, const struct order_info *info)
{
	struct plan_job *job = calloc(1, sizeof(*job));
	uint32_t index = jobs_place(plan);

	if (!job || index == PLAN_JOBS) {
		free(job);
		return index == PLAN_JOBS ? -ENOSPC : -ENOMEM;
	}
	job->index = index;
	if (jobs_init(plan, job, info) < 0) {
		jobs_free_one(job);
		return -ENOMEM;
	}
	if (plan->jobs[index])
		jobs_free_one(plan->jobs[index]);
	plan->jobs[index] = job;
	plan->top_job = MAX(plan->top_job, index + 1);
	plan->n_jobs++;
	jobs_init_span(plan, job);
	horizon_init(job);
	if (info && plan->n)
		plan_enter(plan, job, PLAN_WAITING, WHY_NOTHING_READ);
	else
		plan_enter(plan, job, PLAN_NO_ORDER, WHY_NO_ORDER);
	jobs_changed(plan);
	return (int)index;
}

/* Its samples wait for others, or for nobody. */
void jobs_leave(struct plan *plan, struct plan_job *job)
{
	for (uint32_t i = 0; i < plan->n; i++) {
		item_out(plan, i);
		*job_key(plan, job, i) = NO_KEY;
		stage_forget(plan, i);
		item_in(plan, i);
	}
	epochs_uninstall(job, 0);
	epochs_uninstall(job, 1);
	epochs_forget_before(job);
	valid_fini(job);
	job->is_over = true;
	job->n_pending = 0;
	plan->n_jobs--;
	jobs_changed(plan);
}

void jobs_bury(struct plan *plan, struct plan_job *job)
{
	if (!job->index || !job->is_over || job->is_asked)
		return;
	plan->jobs[job->index] = NULL;
	jobs_free_one(job);
}

int plan_add_job(struct plan *plan, const struct order_info *order)
{
	int r;

	if (!order || order->n != plan->n || !order->n_ranks)
		return -EINVAL;
	r = jobs_add(plan, order);
	PLAN_TELL(plan, .kind = PLAN_CALL_ADD_JOB, .order = order, .result = r);
	return r;
}

void plan_end_job(struct plan *plan, uint32_t index)
{
	struct plan_job *job = plan->jobs[index];

	assert(index < plan->top_job && job);
	PLAN_TELL(plan, .kind = PLAN_CALL_END_JOB, .job = index);
	if (!job->is_over)
		jobs_leave(plan, job);
	jobs_bury(plan, job);
}

void jobs_free(struct plan *plan)
{
	for (uint32_t i = 0; i < PLAN_JOBS; i++)
		if (plan->jobs[i])
			jobs_free_one(plan->jobs[i]);
}
