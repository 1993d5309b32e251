/* SPDX-License-Identifier: Apache-2.0 */
/* Advice: the smallest sizes that bring stall under a target, what more of it buys, and the truth
 * where nothing would help (advise_why.c). Every figure is a simulation of policy "clairfs" (of
 * "pagecache" for what there is without it), found by halving: stall falls with the size of the
 * cache.
 *
 * Dozens of runs are needed, so long jobs are shortened in proportion. What the loader has under
 * way does not shrink with the dataset, so sizes are rather too large than too small; where it is
 * all that is needed, that would be many times too large, and one run of a longer job follows. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "advise.h"

#define SHORT_READS 50000u
#define LONG_READS 1000000u
#define SHORT_STEPS 250u
#define STEP_BYTES 100000000000ull
#define HALVINGS 6
#define PAGE_BYTES 4096u

/* To so many reads per epoch at least. */
static uint64_t shorten(struct sim_params *p, uint64_t **size, uint64_t least_reads)
{
	uint64_t readers = MAX(p->nodes, 1), reads = p->samples / readers;
	uint64_t enough = MAX(least_reads, SHORT_STEPS * p->batch * p->ranks);
	uint64_t k = reads / MAX(enough, 1);

	if (p->order || k < 2)
		return 1;
	p->samples /= k;
	if (p->valid_samples)
		p->valid_samples = MAX(p->valid_samples / k, 1);
	for (uint64_t i = 0; *size && i < p->samples; i++)
		(*size)[i] = (*size)[i * k];
	p->cache_bytes /= k;
	p->store_bytes /= k;
	p->stage_bytes /= k;
	p->window = MAX(p->window / k, MIN(p->window, 2 * p->inflight));
	p->burst_period_s /= (double)k;
	p->outage_at_s /= (double)k;
	p->outage_s /= (double)k;
	return k;
}

uint64_t sim_shorten(struct sim_params *p, uint64_t **size)
{
	return shorten(p, size, SHORT_READS);
}

static int search_run(struct search *s, const char *policy, uint64_t cache, uint64_t store,
		      struct sim_size *ret, struct err *err)
{
	uint64_t k = s->advice->shortened, n;
	struct sim_result result;
	double seconds = 0;
	int rc = sim_setup_resize(s->setup, MAX(cache, s->setup->largest * s->setup->p.jobs), store,
				  err);

	if (rc == 0)
		rc = sim_run(s->setup, policy, NULL, &result, err);
	if (rc < 0)
		return rc;
	n = result.n_epochs - s->from;
	for (uint64_t e = s->from; e < result.n_epochs; e++)
		seconds += result.epoch[e].seconds;
	*ret = (struct sim_size){ .cache_bytes = cache * k,
				  .store_bytes = store * k,
				  .stall_pct = sim_stall_pct(&result, s->from),
				  .hit_ratio = sim_hit_ratio(&result, s->from),
				  .epoch_seconds = seconds / (double)n * (double)k };
	result.n_epochs = 1;
	ret->first_stall_pct = sim_stall_pct(&result, 0);
	sim_result_fini(&result);
	if (s->progress)
		s->progress->fn(s->progress->ctx, policy, 0, 0);
	return 0;
}

/* Memory that holds everything. */
static uint64_t search_all_bytes(const struct search *s)
{
	return s->setup->total + s->setup->n * (uint64_t)PAGE_BYTES;
}

/* Smallest size between what is not enough and everything. is_store: of the store, with little
 * memory. */
static int search_smallest(struct search *s, bool is_store, struct sim_size *ret, struct err *err)
{
	uint64_t low = is_store ? 0 : s->least, high = search_all_bytes(s);
	struct sim_size at;
	int rc = 0;

	*ret = s->advice->full;
	if (is_store)
		rc = search_run(s, "clairfs", s->least, high, ret, err);
	for (int i = 0; i < HALVINGS && rc == 0; i++) {
		uint64_t mid = low + (high - low) / 2;

		rc = is_store ? search_run(s, "clairfs", s->least, mid, &at, err)
			      : search_run(s, "clairfs", mid, 0, &at, err);
		if (rc == 0 && at.stall_pct <= s->target) {
			high = mid;
			*ret = at;
		} else {
			low = mid;
		}
	}
	return rc;
}

/* Whether memory for what is under way is enough, as it is where only latency must be hidden. */
static int search_least_memory(struct search *s, struct err *err)
{
	struct sim_advice *a = s->advice;
	uint64_t all = search_all_bytes(s);
	int rc = search_run(s, "clairfs", MIN(s->least, all), 0, &a->memory, err);

	s->is_least_enough = rc == 0 && (a->memory.stall_pct <= s->target || s->least >= all);
	if (s->is_least_enough && a->memory.stall_pct > s->target)
		a->memory = a->full;
	a->drive = a->memory;
	return rc;
}

/* Memory in steps of 100 GB, or of an eighth of the dataset where that is less. */
static int search_steps(struct search *s, struct err *err)
{
	struct sim_advice *a = s->advice;
	uint64_t k = a->shortened, total = search_all_bytes(s) * k, at = s->least * k;
	int rc = 0;

	a->step_bytes = total < 4 * STEP_BYTES ? MAX(total / 8, 1) : STEP_BYTES;
	while (total / a->step_bytes >= SIM_STEPS)
		a->step_bytes += STEP_BYTES;
	while (a->n_steps < SIM_STEPS && rc == 0 && s->from) {
		rc = search_run(s, "clairfs", at / k, 0, &a->step[a->n_steps], err);
		a->n_steps += rc == 0;
		if (at >= total)
			break;
		at = MIN((at / a->step_bytes + 1) * a->step_bytes, total);
	}
	return rc;
}

static int advise_all(struct search *s, struct err *err)
{
	struct sim_advice *a = s->advice;
	uint64_t all = search_all_bytes(s);
	int rc = search_run(s, "pagecache", a->memory_bytes / a->shortened, 0, &a->without, err);

	if (rc == 0)
		rc = search_run(s, "clairfs", all + all / 8, 0, &a->full, err);
	if (rc == 0)
		rc = search_run(s, "bound", all + all / 8, 0, &s->bound, err);
	if (rc < 0)
		return rc;
	if (a->without.stall_pct <= a->target_pct) {
		advise_not_needed(s);
		return 0;
	}
	if (a->full.stall_pct > a->target_pct) {
		advise_not_enough(s);
		return search_steps(s, err);
	}
	advise_helps(s);
	rc = search_least_memory(s, err);
	if (rc == 0 && !s->is_least_enough)
		rc = search_smallest(s, false, &a->memory, err);
	if (rc == 0 && !s->is_least_enough)
		rc = search_smallest(s, true, &a->drive, err);
	return rc < 0 ? rc : search_steps(s, err);
}

/* Memory for what is under way: the loader's batches, requests in flight, and the largest samples,
 * which are not prefetched when they are more than an eighth. */
static uint64_t search_least(const struct sim_setup *s)
{
	uint64_t ahead = (uint64_t)s->workers * s->prefetch_factor * s->batch * s->ranks;
	uint64_t bytes = (2 * ahead + 2 * s->p.inflight) * MAX(s->total / s->n, PAGE_BYTES);

	return MAX(MIN(bytes, s->total), 8 * ALIGN_UP(s->largest, PAGE_BYTES)) * s->p.jobs;
}

static int search_begin(struct search *s, const struct sim_params *params, uint64_t *take_size,
			uint64_t least_reads, struct err *err)
{
	struct sim_params p = *params;
	int rc;

	s->advice->shortened = shorten(&p, &take_size, least_reads);
	/* Every epoch after the first is alike when all of the dataset is read in it. */
	p.epochs = p.nodes > 1 || p.epochs == 1 ? p.epochs : 3;
	p.cache_bytes = 0;
	p.cache_fraction = 1000;
	rc = sim_setup_new(&p, take_size, &s->setup, err);
	if (rc < 0)
		return rc;
	s->from = s->setup->epochs > 1;
	s->least = search_least(s->setup);
	return 0;
}

/* What the loader has under way was not shortened with the dataset. Where that is all the memory
 * that is needed, it is looked for again in a job of nearly its own length. */
static int search_again(struct search *s, const struct sim_params *params, uint64_t *take_size,
			struct err *err)
{
	struct sim_advice longer = *s->advice;
	struct search t = { .progress = s->progress, .advice = &longer, .target = s->target };
	int rc = search_begin(&t, params, take_size, LONG_READS, err);

	if (rc < 0)
		return rc;
	rc = search_least_memory(&t, err);
	sim_setup_free(t.setup);
	if (rc < 0 || longer.memory.stall_pct > s->target)
		return rc;
	s->advice->memory = s->advice->drive = longer.memory;
	if (s->advice->n_steps) {
		s->advice->n_steps = MIN(s->advice->n_steps + 1, SIM_STEPS);
		memmove(&s->advice->step[1], &s->advice->step[0],
			(s->advice->n_steps - 1) * sizeof(s->advice->step[0]));
		s->advice->step[0] = longer.memory;
	}
	return 0;
}

static int search_copy(const struct sim_params *params, const uint64_t *size, uint64_t **ret)
{
	*ret = NULL;
	if (!size)
		return 0;
	*ret = malloc(MAX(params->samples, 1) * sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	memcpy(*ret, size, params->samples * sizeof(**ret));
	return 0;
}

int sim_advise(const struct sim_params *params, uint64_t *take_size, double target_pct,
	       uint64_t memory_bytes, const struct sim_progress *progress, struct sim_advice *ret,
	       struct err *err)
{
	struct search s = { .progress = progress, .advice = ret, .target = target_pct };
	AUTO_FREE uint64_t *size = take_size;
	AUTO_FREE uint64_t *again = NULL;
	int rc;

	*ret = (struct sim_advice){ .target_pct = target_pct, .memory_bytes = memory_bytes };
	if (params->compute_ms <= 0)
		return err_set(
			err, -EINVAL,
			"--advise: without compute time (--compute-ms 0) there is no stall to "
			"bring under a target");
	rc = search_copy(params, size, &again);
	if (rc < 0)
		return err_set_errno(err, rc, "sizes");
	rc = search_begin(&s, params, TAKE(size), SHORT_READS, err);
	if (rc == 0)
		rc = advise_all(&s, err);
	if (rc == 0 && s.is_least_enough && ret->shortened > 1)
		rc = search_again(&s, params, TAKE(again), err);
	if (rc == 0 && ret->verdict == SIM_HELPS)
		advise_sizes(&s);
	sim_setup_free(s.setup);
	return rc;
}
