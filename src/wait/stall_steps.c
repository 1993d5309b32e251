/* SPDX-License-Identifier: Apache-2.0 */
/* What the job's own process says of its steps: the ground truth for its wait and its compute.
 * Steps come in order within a rank; they are kept by iterator (a loader's pass), and the iterator
 * that was at work while a pass was read gives that pass its compute times.
 *
 * The records come from the job and may say anything: totals only grow, a rank number is a name and
 * no index, and an iterator of more steps than are kept gives no compute times at all. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "clairfs/hint.h"
#include "stall_priv.h"

void stall_runs_free(struct stall_rank *r)
{
	for (uint32_t i = 0; i < STALL_RUNS; i++) {
		free(r->run[i].compute);
		free(r->run[i].ready);
	}
}

static struct stall_run *run_at(const struct stall_rank *r, uint32_t i)
{
	assert(i < STALL_RUNS && r->run_head < STALL_RUNS);
	return (struct stall_run *)&r->run[(r->run_head + i) % STALL_RUNS];
}

/* The run a step belongs to: a new one when the iterator is, or when it was not told before. */
static struct stall_run *run_of(struct stall_rank *r, const struct clairfs_step_record *step)
{
	uint32_t loader = step->flags >> CLAIRFS_STEP_LOADER_SHIFT;
	struct stall_run *run;

	for (uint32_t i = r->n_runs; i-- > 0 && !(step->flags & CLAIRFS_STEP_FIRST);) {
		run = run_at(r, i);
		if (run->loader == loader)
			return run;
	}
	if (r->n_runs == STALL_RUNS) {
		r->run_head = (r->run_head + 1) % STALL_RUNS;
		r->n_runs--;
	}
	run = run_at(r, r->n_runs++);
	assert(r->n_runs <= STALL_RUNS);
	run->loader = loader;
	run->is_over = false;
	run->began_ns = step->t_request;
	run->last_ns = step->t_next;
	run->n = 0;
	return run;
}

static bool grow_steps(uint32_t **array, uint32_t capacity)
{
	uint32_t *grown = realloc(*array, capacity * sizeof(*grown));

	*array = grown ? grown : *array;
	return grown != NULL;
}

static bool run_add(struct stall_run *run, const struct clairfs_step_record *step)
{
	uint64_t compute = (step->t_next - step->t_ready) >> STALL_STEP_SHIFT;
	uint64_t ready = (step->t_ready - MIN(step->t_ready, run->began_ns)) >> STALL_OPEN_SHIFT;

	run->last_ns = MAX(run->last_ns, step->t_next);
	run->is_over = (step->flags & CLAIRFS_STEP_LEFT) != 0;
	if (run->n >= STALL_STEPS_MAX) {
		run->n = STALL_STEPS_MAX + 1;
		return false;
	}
	if (run->n == run->capacity) {
		uint32_t capacity = MAX(run->capacity * 2, 256);

		if (!grow_steps(&run->compute, capacity) || !grow_steps(&run->ready, capacity)) {
			run->n = STALL_STEPS_MAX + 1; /* one is missing: of no use */
			return false;
		}
		run->capacity = capacity;
	}
	assert(run->n < run->capacity && run->capacity <= STALL_STEPS_MAX);
	run->ready[run->n] = (uint32_t)MIN(ready, UINT32_MAX);
	run->compute[run->n++] = (uint32_t)MIN(compute, UINT32_MAX);
	return true;
}

/* Inner steps are told before the step that they are in, and their compute is counted then: a long
 * validation must not look like a job that does nothing but wait. So the compute of the step around
 * them has less left to count: none of their time, which was wait or is counted. */
static void count_compute(struct stall_rank *r, const struct clairfs_step_record *step)
{
	uint64_t compute = step->t_next - step->t_ready;

	if (step->flags & CLAIRFS_STEP_INNER) {
		r->inner_ns += step->t_next - step->t_request;
		r->inner_last_ns = step->t_next;
	} else {
		if (r->inner_last_ns > step->t_ready)
			compute -= MIN(compute, r->inner_ns);
		r->inner_ns = 0; /* also of a step that was lost */
	}
	r->total.compute_ns += compute;
}

bool stall_step(struct stall *s, const struct clairfs_step_record *step)
{
	struct stall_rank *r = stall_rank_get(s, step->rank);

	if (!r || step->t_ready < step->t_request || step->t_next < step->t_ready)
		return false;
	r->total.steps++;
	r->total.gpu_wait_ns += step->t_ready - step->t_request;
	count_compute(r, step);
	return run_add(run_of(r, step), step);
}

const struct stall_run *stall_run_find(const struct stall_rank *r, uint64_t from_ns, uint64_t to_ns)
{
	const struct stall_run *best = NULL;
	uint64_t most = 0;

	for (uint32_t i = 0; i < r->n_runs; i++) {
		const struct stall_run *run = run_at(r, i);
		uint64_t from = MAX(from_ns, run->began_ns), to = MIN(to_ns, run->last_ns);

		if (to > from && to - from > most && run->n <= STALL_STEPS_MAX) {
			most = to - from;
			best = run;
		}
	}
	return best;
}

double stall_au_percent(const struct stall_numbers *n)
{
	uint64_t all = n->compute_ns + n->gpu_wait_ns;

	return n->steps && all ? 100.0 * (double)n->compute_ns / (double)all : -1;
}
