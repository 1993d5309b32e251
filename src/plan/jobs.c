/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of a plan. Planner thread. */
#include "plan_priv.h"

#include <errno.h>

/* The positions the job's readers may be apart: each worker has prefetch_factor batches ahead of
 * the batch that is assembled, ranks run about one batch apart. */
void jobs_init_span(struct plan *plan)
{
	const struct order_info *info = &plan->job->info;
	uint64_t factor = info->prefetch_factor ? info->prefetch_factor : 2;
	uint64_t batches = info->workers * factor + 1, span = plan->params.span;

	if (!span && info->batch && info->workers) {
		span = batches * info->batch * info->n_ranks;
		plan->job->reader_span = span;
		span += span / 4 + 64;
	}
	plan->job->is_span_given = span != 0;
	plan->job->span_cap = MIN(4096, MAX(plan->n / 8, MIN(MAX(plan->n, 1), 128)));
	plan->job->span = span ? MIN(span, UINT32_MAX) : plan->job->span_cap;
	/* Each worker reads one sample at a time; a few times as many may still be at work. */
	plan->hold_reads = info->workers ? (uint32_t)MIN(info->workers * info->n_ranks, 4096) : 64;
	plan->hold_reads = (uint32_t)MIN(4 * MAX(plan->hold_reads, 8), plan->job->span);
}

static void jobs_free_one(struct plan *plan, struct plan_job *job)
{
	plan->job = job;
	epochs_uninstall(plan, 0);
	epochs_uninstall(plan, 1);
	epochs_forget_before(plan);
	free(job->tail);
	free(job);
}

static void jobs_init_outside(struct plan *plan)
{
	struct plan_job *job = plan->job;

	for (uint32_t i = 0; job->info.outside && i < plan->n; i++) {
		if (job->info.outside[i / 64] >> i % 64 & 1) {
			plan->item[i].flags |= OUTSIDE;
			job->n_outside++;
		}
	}
	job->info.outside = NULL; /* lives as long as the order, which may be replaced */
}

int jobs_add(struct plan *plan, const struct order_info *info)
{
	struct plan_job *job = calloc(1, sizeof(*job));

	if (!job)
		return -ENOMEM;
	job->tail = calloc(TAIL_MAX, sizeof(*job->tail));
	if (!job->tail) {
		free(job);
		return -ENOMEM;
	}
	plan->job = plan->jobs[0] = job;
	plan->n_jobs = 1;
	if (info)
		job->info = *info;
	job->has_epochs_end = job->info.epochs != 0;
	job->search_pause = SCORE_READS;
	job->far_next = FAR_FIRST;
	job->far_round = FAR_ROUND;
	jobs_init_outside(plan);
	jobs_init_span(plan);
	horizon_init(plan);
	if (info && plan->n)
		plan_enter(plan, PLAN_WAITING, WHY_NOTHING_READ);
	else
		plan_enter(plan, PLAN_NO_ORDER, WHY_NO_ORDER);
	return 0;
}

void jobs_free(struct plan *plan)
{
	for (uint32_t i = 0; i < PLAN_JOBS; i++)
		if (plan->jobs[i])
			jobs_free_one(plan, plan->jobs[i]);
}
