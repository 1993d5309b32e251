/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of a plan. Each reads in an order of its own at a pace of its own; memory, stage, store
 * and source are shared. What is to be fetched or dropped is decided by when it is needed next by
 * whoever needs it first: positions become time by each job's pace. With one job positions are all
 * there is, and no pace, which is never exact, comes into any decision.
 *
 * Jobs come, change their order and end while the plan goes on: what it has fetched, pushed and
 * asked for stays. None of these looks at units. A job that comes has no keys, which is what
 * memory that was never written to says; a job that goes leaves its keys and sets behind, as an
 * estimate of when who comes next will need the units, until rekey.c has come by. One job's keys
 * are in the items, those of others in an array each. An epoch that is computed for a job that is
 * over, or had another order then, is recognised by the version of the job when it comes.
 * Planner thread. */
#include "plan_priv.h"

#include <errno.h>
#include <string.h>

#include "tell.h"

#define WITHIN 2u         /* samples that a reader may be within, where they are cut */
#define TICK_NS NS_PER_MS /* per position, until a job has read some */

/* The positions the job's readers may be apart: each worker has prefetch_factor batches ahead of
 * the batch that is assembled, ranks run about one batch apart. */
void jobs_init_span(struct plan *plan, struct plan_job *job)
{
	const struct order_info *info = &job->info;
	uint64_t factor = info->prefetch_factor ? info->prefetch_factor : 2;
	uint64_t batches = info->workers * factor + 1, span = plan->params.span, at_work;

	if (!span && info->batch && info->workers) {
		span = job_positions(job, batches * info->batch * info->n_ranks);
		job->reader_span = span;
		span += span / 4 + 64;
		/* What readers leave of samples keeps the window back. */
		span += info->samples ? job->reader_span / 4 + job_positions(job, WITHIN) : 0;
	}
	job->is_span_given = span != 0;
	job->span_cap = MIN(4096, MAX(plan->n_sized / 8, MIN(MAX(plan->n_sized, 1), 128)));
	if (info->samples)
		job->span_cap = MAX(job->span_cap, job_positions(job, 2 * WITHIN));
	job->span = span ? MIN(span, UINT32_MAX) : job->span_cap;
	/* Each worker reads one unit at a time; a few times as many may still be at work. */
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
	free(job->inner);
	free(job->key);
	free(job->tail);
	free(job);
}

struct plan_job *jobs_next(const struct plan *plan, uint32_t *at)
{
	while (*at < PLAN_JOBS) {
		struct plan_job *job = plan->jobs[(*at)++];

		if (job && !job->is_over)
			return job;
	}
	return NULL;
}

struct plan_job *jobs_first(const struct plan *plan)
{
	uint32_t at = 0;
	struct plan_job *job = jobs_next(plan, &at);

	return job ? job : plan->nobody;
}

uint64_t jobs_when(const struct plan *plan, const struct plan_job *job, uint64_t due)
{
	uint64_t ahead = due - job_low(job);

	if (plan->n_jobs <= 1)
		return ahead;
	return (uint64_t)((double)ahead *
			  (job->pace.rate ? (double)NS_PER_S / job->pace.rate : (double)TICK_NS));
}

/* A job that is over needs nothing; when it would have is the best that is known of a unit that
 * no other one has a key for. */
struct plan_job *jobs_home(const struct plan *plan, uint32_t unit, uint64_t *ret_when)
{
	struct plan_job *home = NULL;

	*ret_when = NO_POS;
	for (uint32_t i = 0; i < plan->top_home; i++) {
		struct plan_job *job = plan->keyed[i];
		uint64_t due = job ? job_due(plan, job, unit) : NO_POS, when;

		if (due == NO_POS)
			continue;
		when = jobs_when(plan, job, due);
		if (home && job->is_over >= home->is_over &&
		    (job->is_over > home->is_over || when >= *ret_when))
			continue;
		home = job;
		*ret_when = when;
	}
	return home;
}

void jobs_stage_dirty(struct plan *plan)
{
	struct plan_job *job;

	for (uint32_t at = 0; (job = jobs_next(plan, &at));)
		job->is_stage_dirty = true;
}

bool jobs_are_prefetching(const struct plan *plan)
{
	const struct plan_job *job;

	for (uint32_t at = 0; (job = jobs_next(plan, &at));)
		if (job_is_prefetching(job))
			return true;
	return false;
}

bool jobs_are_outside(const struct plan *plan, uint32_t unit)
{
	const struct plan_job *job;

	for (uint32_t at = 0; (job = jobs_next(plan, &at));)
		if (!job->unnumbered || !(job->unnumbered[unit / 64] >> unit % 64 & 1))
			return false;
	return true;
}

/* Its own copy: what the order says lives as long as the order, which may be replaced. */
static int jobs_copy_bits(const struct plan *plan, const uint64_t **take_bits, uint64_t **ret)
{
	uint64_t words = DIV_ROUND_UP((uint64_t)plan->n, 64);
	const uint64_t *bits = *take_bits;

	*take_bits = NULL;
	*ret = bits ? malloc(MAX(words, 1) * sizeof(uint64_t)) : NULL;
	if (!*ret)
		return bits ? -ENOMEM : 0;
	memcpy(*ret, bits, words * sizeof(uint64_t));
	if (plan->n % 64)
		(*ret)[words - 1] &= ~(~0ull << plan->n % 64);
	return 0;
}

static int jobs_init_bits(struct plan *plan, struct plan_job *job)
{
	uint64_t words = DIV_ROUND_UP((uint64_t)plan->n, 64);
	int r = jobs_copy_bits(plan, &job->info.outside, &job->unnumbered);

	if (r == 0)
		r = jobs_copy_bits(plan, &job->info.inner, &job->inner);
	for (uint64_t w = 0; w < words && job->unnumbered; w++)
		job->n_outside += (uint32_t)__builtin_popcountll(job->unnumbered[w]);
	if (job->unnumbered && r == 0) /* those that are not there yet are in no order */
		job->n_outside -= MIN(job->n_outside, (uint32_t)(plan->n - plan->n_sized));
	return r;
}

/* Who is at work has changed. What is known of later epochs, and what was chosen for the store, is
 * of the job that was alone. */
static void jobs_changed(struct plan *plan)
{
	struct plan_job *job, *only = plan->n_jobs == 1 ? jobs_first(plan) : NULL;

	plan->hold_reads = 0;
	for (uint32_t at = 0; (job = jobs_next(plan, &at));)
		plan->hold_reads += job->hold_reads;
	jobs_stage_dirty(plan);
	worth_init(plan);
	later_let_go(plan);
	if (only && only != plan->only_job) {
		plan->only_job = only;
		choose_again(plan);
	}
}

static void jobs_begin(struct plan *plan, struct plan_job *job)
{
	job->has_epochs_end = job->info.epochs != 0;
	job->search_pause = SCORE_READS;
	job->tried_next = TRIED_FIRST;
	job->tried_round = TRIED_ROUND;
	jobs_init_span(plan, job);
	horizon_init(job);
	if (plan->n)
		plan_enter(plan, job, PLAN_WAITING, WHY_NOTHING_READ);
	else
		plan_enter(plan, job, PLAN_NO_ORDER, WHY_NO_ORDER);
}

/* A job that is nowhere yet; NULL without memory. */
static struct plan_job *jobs_new(struct plan *plan, const struct order_info *info)
{
	struct plan_job *job = calloc(1, sizeof(*job));
	bool is_bad;

	if (!job)
		return NULL;
	job->info = *info;
	job->tail = calloc(TAIL_MAX, sizeof(*job->tail));
	is_bad = !job->tail || jobs_init_bits(plan, job) < 0;
	if (!is_bad && plan->item_job) {
		/* NO_KEY; small pages: a large one takes milliseconds at its first touch. */
		job->key = calloc(MAX(plan->n, 1), sizeof(*job->key));
		is_bad = !job->key;
	}
	if (!is_bad)
		return job;
	jobs_free_one(job);
	return NULL;
}

static uint32_t jobs_place(struct plan_job *const *of, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && of[i])
		i++;
	return i;
}

static bool jobs_may_have_keys(const struct plan_job *job)
{
	return job->slots[0].ep || job->slots[1].ep || job->slots[2].ep;
}

/* So many may have come and gone within so short a time that there is no place for its keys: then
 * it waits until those of another one are forgotten. */
static void jobs_settle(struct plan *plan, struct plan_job *job)
{
	assert(!job->is_over && !jobs_may_have_keys(job));
	job->home = jobs_place(plan->keyed, KEYED_MAX);
	if (job->home == NO_HOME)
		return;
	plan->keyed[job->home] = job;
	plan->top_home = MAX(plan->top_home, job->home + 1);
}

static bool jobs_are_keyed(const struct plan *plan, const struct plan_job *job)
{
	return job->home != NO_HOME && plan->keyed[job->home] == job;
}

static void jobs_place_at(struct plan *plan, struct plan_job *job, uint32_t index)
{
	assert(!plan->jobs[index]);
	job->index = index;
	job->version = plan->version[index]++;
	job->told_opened = plan->opened;
	job->is_heir = plan->used_pages > 0;
	plan->jobs[index] = job;
	jobs_settle(plan, job);
	if (!plan->item_job) { /* the one before had none */
		free(job->key);
		job->key = NULL;
		plan->item_job = job;
	}
	plan->n_jobs++;
	jobs_begin(plan, job);
	jobs_changed(plan);
}

int jobs_add(struct plan *plan, const struct order_info *info)
{
	uint32_t index = jobs_place(plan->jobs, PLAN_JOBS);
	struct plan_job *job;

	if (index == PLAN_JOBS)
		return -ENOSPC;
	job = jobs_new(plan, info);
	if (!job)
		return -ENOMEM;
	jobs_place_at(plan, job, index);
	return (int)index;
}

static void jobs_bury(struct plan *plan, struct plan_job *job)
{
	job->next_buried = plan->buried;
	plan->buried = job;
}

bool jobs_bury_step(struct plan *plan)
{
	struct plan_job *job = plan->buried;
	uint32_t *smaller;

	if (!job)
		return false;
	if (job->slots[0].ep) {
		epochs_uninstall(job, 0);
	} else if (job->slots[1].ep) {
		epochs_uninstall(job, 1);
	} else if (job->key_ready > KEY_CHUNK) { /* no unit is looked up there any more */
		job->key_ready -= KEY_CHUNK;
		smaller = realloc(job->key, job->key_ready * sizeof(*job->key));
		job->key = smaller ? smaller : job->key;
	} else {
		plan->buried = job->next_buried;
		jobs_free_one(job);
	}
	return true;
}

/* Its place is free. */
static void jobs_settle_next(struct plan *plan)
{
	struct plan_job *job;

	for (uint32_t at = 0; (job = jobs_next(plan, &at));) {
		if (job->home != NO_HOME)
			continue;
		jobs_settle(plan, job);
		plan->is_cut = true; /* its first epoch may be asked for */
		return;
	}
}

void jobs_unkeyed(struct plan *plan, struct plan_job *job)
{
	assert(job->is_over && (job->home == NO_HOME || plan->keyed[job->home] == job));
	if (job->home != NO_HOME)
		plan->keyed[job->home] = NULL;
	while (plan->top_home && !plan->keyed[plan->top_home - 1])
		plan->top_home--;
	jobs_settle_next(plan);
	if (plan->item_job == job)
		plan->item_job = NULL;
	plan->n_leaving--;
	if (plan->only_job == job)
		plan->only_job = NULL;
	if (job->is_ended)
		jobs_bury(plan, job);
}

/* Its units wait for others, or for nobody. */
void jobs_leave(struct plan *plan, struct plan_job *job)
{
	while (job->n_tail)
		plan->item[job->tail[--job->n_tail]].flags &= ~(uint32_t)TAIL;
	job->is_over = true;
	job->n_pending = 0;
	job->pushed_at = job_low(job);
	plan->n_jobs--;
	plan->n_leaving++;
	if (!jobs_may_have_keys(job))
		jobs_unkeyed(plan, job);
	jobs_changed(plan);
}

void jobs_restart(struct plan *plan, struct plan_job *job)
{
	struct plan_job was;

	assert(!job->before && !job_next(job)->ep);
	valid_close(plan, job); /* no unit has a key but of these */
	was = *job;
	job->before = job_cur(job)->ep;
	epochs_uninstall(job, job->cur);
	valid_fini(job);
	memset(job, 0, sizeof(*job));
	job->index = was.index;
	job->home = was.home;
	job->version = was.version;
	job->info = was.info;
	job->key = was.key;
	job->key_ready = was.key_ready;
	job->unnumbered = was.unnumbered;
	job->inner = was.inner;
	job->n_outside = was.n_outside;
	job->tail = was.tail;
	job->told_opened = was.told_opened;
	job->is_heir = was.is_heir;
	job->doubt_pages = was.doubt_pages;
	jobs_begin(plan, job);
}

static bool jobs_order_is_sane(const struct plan *plan, const struct order_info *order)
{
	return order && order->n == plan->n && order->n_ranks &&
	       (!order->inner || (order->samples && order->samples <= order->units));
}

int plan_add_job(struct plan *plan, const struct order_info *order)
{
	int r;

	if (!jobs_order_is_sane(plan, order))
		return -EINVAL;
	r = jobs_add(plan, order);
	PLAN_TELL(plan, .kind = PLAN_CALL_ADD_JOB, .order = order, .result = r);
	return r;
}

/* Out of its place; what is left of it goes with its keys. */
static void jobs_end(struct plan *plan, struct plan_job *job)
{
	plan->jobs[job->index] = NULL;
	job->is_ended = true;
	if (!job->is_over)
		jobs_leave(plan, job);
	else if (!jobs_are_keyed(plan, job))
		jobs_bury(plan, job);
}

int plan_change_job(struct plan *plan, uint32_t index, const struct order_info *order)
{
	struct plan_job *job;

	assert(index < PLAN_JOBS && plan->jobs[index]);
	if (!jobs_order_is_sane(plan, order))
		return -EINVAL;
	job = jobs_new(plan, order);
	PLAN_TELL(plan, .kind = PLAN_CALL_CHANGE_JOB, .job = index, .order = order,
		  .result = job ? 0 : -ENOMEM);
	if (!job)
		return -ENOMEM;
	jobs_end(plan, plan->jobs[index]);
	jobs_place_at(plan, job, index);
	return 0;
}

void plan_end_job(struct plan *plan, uint32_t index)
{
	assert(index < PLAN_JOBS && plan->jobs[index]);
	PLAN_TELL(plan, .kind = PLAN_CALL_END_JOB, .job = index);
	jobs_end(plan, plan->jobs[index]);
}

void jobs_free(struct plan *plan)
{
	for (uint32_t i = 0; i < KEYED_MAX; i++) {
		struct plan_job *job = plan->keyed[i];

		if (job && !job->is_ended)
			plan->jobs[job->index] = NULL;
		if (job)
			jobs_free_one(job);
	}
	for (uint32_t i = 0; i < PLAN_JOBS; i++)
		if (plan->jobs[i])
			jobs_free_one(plan->jobs[i]);
	while (jobs_bury_step(plan))
		;
	free(plan->nobody);
}
