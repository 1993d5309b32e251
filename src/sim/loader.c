/* SPDX-License-Identifier: Apache-2.0 */
/* A job: its ranks, their loader workers and its steps, by PyTorch's recurrence. Worker i of a rank
 * reads batches i, i + W, i + 2W, ... one sample after the other. A rank takes its batches in
 * order; taking batch k allows batch k + W * prefetch_factor to be worked on. A step begins when
 * every rank has its batch and takes compute_ms; ranks run in step, as after an allreduce. The
 * iterator is made anew for each epoch, so the workers' start is a wait that no cache removes.
 *
 *   start(k) = max(end(k - W), taken(k - W * P))      end(k) = start(k) + reads and decoding
 *   taken(k) = max(end(k), computed(k - 1))           computed(k) = max over ranks taken(k) + C
 *
 * Must never read a position twice or leave one out. */
#include "sim_priv.h"

#include <errno.h>

int loader_init(struct run *run, uint32_t j)
{
	const struct sim_setup *s = run->s;
	struct job *job = &run->job[j];
	size_t ring = (size_t)s->workers * s->prefetch_factor;

	job->worker = calloc((size_t)s->ranks * s->workers, sizeof(*job->worker));
	job->rank = calloc(s->ranks, sizeof(*job->rank));
	if (!job->worker || !job->rank)
		return -ENOMEM;
	job->rank[0].left = calloc(ring * s->ranks, sizeof(uint32_t));
	if (!job->rank[0].left)
		return -ENOMEM;
	for (uint32_t r = 1; r < s->ranks; r++)
		job->rank[r].left = job->rank[0].left + r * ring;
	return 0;
}

void loader_fini(struct job *job)
{
	if (job->dealt != job->ep)
		order_epoch_free(job->dealt);
	if (job->next_dealt != job->next)
		order_epoch_free(job->next_dealt);
	order_epoch_free(job->ep);
	order_epoch_free(job->next);
	free(job->worker);
	free(job->rank ? job->rank[0].left : NULL);
	free(job->rank);
}

static uint32_t *left_of(const struct run *run, struct rank_state *rank, uint32_t batch)
{
	return &rank->left[batch % (run->s->workers * run->s->prefetch_factor)];
}

uint64_t loader_decode_ns(const struct run *run, const struct worker *k)
{
	return k->unit + 1 < k->units ? 0 : run->decode_ns;
}

static void worker_read(struct run *run, uint32_t w)
{
	const struct sim_setup *s = run->s;
	uint32_t j = w / (s->ranks * s->workers);
	struct job *job = &run->job[j];
	struct worker *k = &job->worker[w % (s->ranks * s->workers)];
	uint64_t pos = job->from + ((uint64_t)k->batch * s->batch + k->at) * s->ranks + k->rank;
	uint32_t unit = job->dealt->sample[pos];
	struct answer answer;

	if (s->map.first) {
		struct sample_id sample = { unit };

		k->units = unit_count(&s->map, sample);
		unit = unit_first(&s->map, sample).v + k->unit;
		pos = setup_unit_pos(job->dealt, job->ep, pos, unit);
	}
	run_epoch(run, j)->reads++;
	run_epoch(run, j)->valid_reads += job->is_validating;
	/* The next one's state is a cache miss that may begin now. */
	if (pos + s->ranks < job->ep->length)
		__builtin_prefetch(&job->model->where[job->ep->sample[pos + s->ranks]]);
	answer = job->model->ops->driver->read(job->model, j, pos, unit);
	if (answer.request == NONE) {
		run_push(run, run->now + answer.ns + loader_decode_ns(run, k), EV_READ, w);
		return;
	}
	k->waiter = run->request[answer.request].waiter;
	run->request[answer.request].waiter = w;
}

static void worker_start(struct run *run, uint32_t w)
{
	const struct sim_setup *s = run->s;
	uint32_t per_job = s->ranks * s->workers;
	struct job *job = &run->job[w / per_job];
	struct worker *k = &job->worker[w % per_job];
	struct rank_state *rank = &job->rank[k->rank];

	if (k->is_busy || k->next_batch >= MIN(rank->limit, rank->n_batches))
		return;
	k->is_busy = true;
	k->batch = k->next_batch;
	k->next_batch += s->workers;
	k->at = 0;
	k->count = (uint32_t)MIN(s->batch, rank->samples - (uint64_t)k->batch * s->batch);
	*left_of(run, rank, k->batch) = k->count;
	worker_read(run, w);
}

static uint32_t worker_index(const struct run *run, uint32_t j, uint32_t r, uint32_t batch)
{
	return (j * run->s->ranks + r) * run->s->workers + batch % run->s->workers;
}

static void step_maybe_begin(struct run *run, uint32_t j)
{
	struct job *job = &run->job[j];

	if (job->n_received < run->s->ranks)
		return;
	job->stall_ns += run->now - job->waiting_since_ns;
	run_push(run, run->now + run->compute_ns, EV_STEP, j);
}

/* The rank takes its next batch when it is complete; one that has no more takes nothing. */
static void rank_take(struct run *run, uint32_t j, uint32_t r)
{
	struct job *job = &run->job[j];
	struct rank_state *rank = &job->rank[r];

	if (!rank->is_waiting)
		return;
	if (rank->received < rank->n_batches) {
		uint32_t batch = rank->received;

		/* Begun at all? Then complete when nothing is left. */
		if (job->worker[r * run->s->workers + batch % run->s->workers].next_batch <=
			    batch ||
		    *left_of(run, rank, batch))
			return;
		rank->received++;
		rank->limit++;
		rank->is_waiting = false;
		worker_start(run, worker_index(run, j, r, rank->limit - 1));
	}
	rank->is_waiting = false;
	job->n_received++;
}

static void step_wait(struct run *run, uint32_t j)
{
	struct job *job = &run->job[j];

	job->waiting_since_ns = run->now;
	job->n_received = 0;
	for (uint32_t r = 0; r < run->s->ranks; r++) {
		job->rank[r].is_waiting = true;
		rank_take(run, j, r);
	}
	step_maybe_begin(run, j);
}

static void part_begin(struct run *run, uint32_t j);

/* Of the epoch, or of the validation behind it. */
static void part_count(struct run *run, uint32_t j)
{
	const struct job *job = &run->job[j];
	struct sim_epoch *e = run_epoch(run, j);
	double ns = (double)NS_PER_S * (double)run->n_jobs;
	double seconds = (double)(run->now - job->began_ns) / ns;
	double stall = (double)job->stall_ns / ns;
	double compute = (double)(job->steps * run->compute_ns) / ns;

	e->seconds += seconds;
	e->stall_seconds += stall;
	e->compute_seconds += compute;
	if (!job->is_validating)
		return;
	e->valid_seconds += seconds;
	e->valid_stall_seconds += stall;
	e->valid_compute_seconds += compute;
}

static void part_end(struct run *run, uint32_t j)
{
	struct job *job = &run->job[j];

	part_count(run, j);
	if (!job->is_validating && job->end < job->dealt->length) {
		job->is_validating = true;
		job->from = job->end;
		job->end = job->dealt->length;
		part_begin(run, j);
		return;
	}
	if (run->progress && j == 0)
		run->progress->fn(run->progress->ctx, job->model->ops->name, job->index + 1,
				  run->s->epochs);
	job->index++;
	if (job->index < run->s->epochs) {
		loader_begin(run, j);
		return;
	}
	job->index--; /* what is still under way belongs to the last epoch */
	job->is_over = true;
	run->jobs_left--;
}

/* NULL: an error. */
static struct order_epoch *epoch_of(const struct run *run, uint32_t j, uint64_t index,
				    struct order_epoch **ret_dealt)
{
	struct order_epoch *ep;

	*ret_dealt = ep = setup_dealt(run->s, j, index, run->err);
	if (ep && run->s->map.first)
		ep = setup_expand(run->s, j, index, *ret_dealt, run->err);
	return ep;
}

static int epoch_load(struct run *run, uint32_t j)
{
	struct job *job = &run->job[j];

	if (job->dealt != job->ep)
		order_epoch_free(job->dealt);
	order_epoch_free(job->ep);
	job->ep = TAKE(job->next);
	job->dealt = TAKE(job->next_dealt);
	if (!job->ep)
		job->ep = epoch_of(run, j, job->index, &job->dealt);
	if (job->ep && job->index + 1 < run->s->epochs)
		job->next = epoch_of(run, j, job->index + 1, &job->next_dealt);
	return job->ep && (job->next || job->index + 1 == run->s->epochs) ? 0 : run->err->code;
}

void loader_begin(struct run *run, uint32_t j)
{
	const struct sim_setup *s = run->s;
	struct job *job = &run->job[j];
	int rc = epoch_load(run, j);

	if (rc < 0) {
		run_fail(run, rc);
		return;
	}
	job->is_validating = false;
	job->end = setup_end(s, job->dealt, job->index);
	job->from = MIN(setup_start(s, j, job->index), job->end);
	job->start = s->map.first ? job->ep->start : job->from;
	part_begin(run, j);
}

static void part_begin(struct run *run, uint32_t j)
{
	const struct sim_setup *s = run->s;
	struct job *job = &run->job[j];
	uint64_t count = job->end - job->from;

	job->steps = DIV_ROUND_UP(DIV_ROUND_UP(count, s->ranks), s->batch);
	job->step = 0;
	job->began_ns = run->now;
	job->stall_ns = 0;
	for (uint32_t r = 0; r < s->ranks; r++) {
		struct rank_state *rank = &job->rank[r];

		rank->samples = count > r ? DIV_ROUND_UP(count - r, s->ranks) : 0;
		rank->n_batches = (uint32_t)DIV_ROUND_UP(rank->samples, s->batch);
		rank->received = 0;
		rank->limit = s->workers * s->prefetch_factor;
		for (uint32_t w = 0; w < s->workers; w++)
			job->worker[r * s->workers + w] =
				(struct worker){ .job = j, .rank = r, .next_batch = w };
	}
	if (job->model->ops->driver->begin && !job->is_validating)
		job->model->ops->driver->begin(job->model, j);
	if (!job->steps) {
		part_end(run, j);
		return;
	}
	for (uint32_t w = 0; w < s->ranks * s->workers; w++)
		worker_start(run, j * s->ranks * s->workers + w);
	step_wait(run, j);
}

void loader_read_done(struct run *run, uint32_t w)
{
	const struct sim_setup *s = run->s;
	uint32_t per_job = s->ranks * s->workers, j = w / per_job;
	struct job *job = &run->job[j];
	struct worker *k = &job->worker[w % per_job];
	struct rank_state *rank = &job->rank[k->rank];
	uint32_t batch = k->batch, *left = left_of(run, rank, batch);

	assert(*left > 0);
	if (++k->unit < k->units) {
		worker_read(run, w);
		return;
	}
	k->unit = 0;
	--*left;
	if (++k->at < k->count) {
		worker_read(run, w);
		return;
	}
	k->is_busy = false;
	worker_start(run, w);
	if (rank->is_waiting && rank->received == batch) {
		rank_take(run, j, k->rank);
		step_maybe_begin(run, j);
	}
}

void loader_step_done(struct run *run, uint32_t j)
{
	struct job *job = &run->job[j];

	if (++job->step == job->steps)
		part_end(run, j);
	else
		step_wait(run, j);
}
