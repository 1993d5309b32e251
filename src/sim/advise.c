/* SPDX-License-Identifier: Apache-2.0 */
/* Advice: the smallest sizes that bring stall under a target, what more of it buys, and the truth
 * where nothing would help. Every figure is a simulation of policy "clairfs" (of "pagecache" for
 * what there is without it), found by halving: stall falls with the size of the cache. The search
 * begins at what the bound excludes.
 *
 * Dozens of runs are needed, so long jobs are shortened in proportion. What the loader has under
 * way does not shrink with the dataset, so sizes are rather too large than too small. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "sim_priv.h"

#define SHORT_READS 50000u
#define SHORT_STEPS 250u
#define STEP_BYTES 100000000000ull
#define HALVINGS 6
#define PAGE_BYTES 4096u

struct search {
	struct sim_setup *setup;
	const struct sim_progress *progress;
	struct sim_advice *advice;
	uint64_t least; /* memory that what is under way needs, of the shortened job */
	double target;
};

uint64_t sim_shorten(struct sim_params *p, uint64_t **size)
{
	uint64_t readers = MAX(p->nodes, 1), reads = p->samples / readers;
	uint64_t enough = MAX(SHORT_READS, SHORT_STEPS * p->batch * p->ranks);
	uint64_t k = reads / MAX(enough, 1);

	if (p->order || k < 2)
		return 1;
	p->samples /= k;
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

static int search_run(struct search *s, const char *policy, uint64_t cache, uint64_t store,
		      struct sim_size *ret, struct err *err)
{
	uint64_t k = s->advice->shortened;
	struct sim_result result;
	double seconds = 0;
	int rc = sim_setup_resize(s->setup, MAX(cache, s->setup->largest * s->setup->p.jobs), store,
				  err);

	if (rc == 0)
		rc = sim_run(s->setup, policy, NULL, &result, err);
	if (rc < 0)
		return rc;
	for (uint64_t e = 1; e < result.n_epochs; e++)
		seconds += result.epoch[e].seconds;
	*ret = (struct sim_size){ .cache_bytes = cache * k,
				  .store_bytes = store * k,
				  .stall_pct = sim_stall_pct(&result, 1),
				  .hit_ratio = sim_hit_ratio(&result, 1),
				  .epoch_seconds =
					  seconds / (double)(result.n_epochs - 1) * (double)k };
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

/* Smallest size between what the bound excludes and everything. is_store: of the store, with little
 * memory. */
static int search_smallest(struct search *s, bool is_store, struct sim_size *ret, struct err *err)
{
	uint64_t low = 0, high = search_all_bytes(s);
	struct sim_size at;
	int rc = 0;

	*ret = s->advice->full;
	if (is_store)
		rc = search_run(s, "clairfs", s->least, high, ret, err);
	for (int i = 0; i < HALVINGS && rc == 0; i++) {
		uint64_t mid = low + (high - low) / 2;

		if (!is_store && mid < s->least) {
			low = mid;
			continue;
		}
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

/* Memory in steps of 100 GB, or of an eighth of the dataset where that is less. */
static int search_steps(struct search *s, struct err *err)
{
	struct sim_advice *a = s->advice;
	uint64_t k = a->shortened, total = search_all_bytes(s) * k, at = s->least * k;
	int rc = 0;

	a->step_bytes = total < 4 * STEP_BYTES ? MAX(total / 8, 1) : STEP_BYTES;
	while (total / a->step_bytes >= SIM_STEPS)
		a->step_bytes += STEP_BYTES;
	while (a->n_steps < SIM_STEPS && rc == 0) {
		rc = search_run(s, "clairfs", at / k, 0, &a->step[a->n_steps], err);
		a->n_steps += rc == 0;
		if (at >= total)
			break;
		at = MIN((at / a->step_bytes + 1) * a->step_bytes, total);
	}
	return rc;
}

static void say_not_needed(const struct search *s)
{
	struct sim_advice *a = s->advice;
	struct sim_facts f;

	a->verdict = SIM_NOT_NEEDED;
	sim_setup_facts(s->setup, &f);
	if (f.dataset_bytes * a->shortened <= a->memory_bytes)
		snprintf(
			a->why, sizeof(a->why),
			"It will not help: the dataset fits into the page cache of this node, which "
			"has all of it after the first epoch. Stall without clairfs: %.1f %%.",
			a->without.stall_pct);
	else if (f.need_bytes_per_s < f.bytes_per_s / 2)
		snprintf(
			a->why, sizeof(a->why),
			"It will not help: the job is bound by what it computes. It reads %.0f MB/s, "
			"the source gives %.0f MB/s, and the loader's workers hide the latency. Stall "
			"without clairfs: %.1f %%.",
			f.need_bytes_per_s / 1e6, f.bytes_per_s / 1e6, a->without.stall_pct);
	else
		snprintf(a->why, sizeof(a->why),
			 "It will not help: the source and the loader keep up with the job. Stall "
			 "without clairfs: %.1f %%, with everything cached %.1f %%.",
			 a->without.stall_pct, a->full.stall_pct);
}

static void say_not_enough(const struct search *s)
{
	const struct sim_params *p = &s->setup->p;
	struct sim_advice *a = s->advice;
	double decode_s = p->decode_ms / 1e3 * s->setup->batch / s->setup->workers;

	a->verdict = SIM_NOT_ENOUGH;
	if (decode_s > p->compute_ms / 1e3)
		snprintf(
			a->why, sizeof(a->why),
			"It will not reach the target: the loader's %u workers need %.0f ms to decode "
			"what the job computes with in %.0f ms. With everything cached the stall is "
			"%.1f %%; without clairfs %.1f %%. More workers would help.",
			s->setup->workers, decode_s * 1e3, p->compute_ms, a->full.stall_pct,
			a->without.stall_pct);
	else
		snprintf(
			a->why, sizeof(a->why),
			"It will not reach the target: with everything cached the stall is still %.1f "
			"%%, most of it at the start of each epoch, when the loader's workers begin "
			"with nothing ready; without clairfs it is %.1f %%.",
			a->full.stall_pct, a->without.stall_pct);
}

static void say_helps(const struct search *s)
{
	struct sim_advice *a = s->advice;
	struct sim_facts f;
	double missing;

	a->verdict = SIM_HELPS;
	sim_setup_facts(s->setup, &f);
	missing = 1 - f.bytes_per_s * (1 + a->target_pct / 100) / f.need_bytes_per_s;
	if (f.need_bytes_per_s > f.bytes_per_s && f.world == f.ranks)
		snprintf(
			a->why, sizeof(a->why),
			"The job reads %.0f MB/s where the source gives %.0f MB/s: prefetching alone "
			"cannot help, at least %.0f %% of the dataset must be kept.",
			f.need_bytes_per_s / 1e6, f.bytes_per_s / 1e6, 100 * MAX(missing, 0));
	else if (f.need_bytes_per_s > f.bytes_per_s)
		snprintf(
			a->why, sizeof(a->why),
			"The job reads %.0f MB/s where the source gives %.0f MB/s: what comes again soon "
			"enough must be kept.",
			f.need_bytes_per_s / 1e6, f.bytes_per_s / 1e6);
	else
		snprintf(
			a->why, sizeof(a->why),
			"The source has the bandwidth (%.0f MB/s, the job reads %.0f MB/s); what the job "
			"waits for is latency, which prefetching hides.",
			f.bytes_per_s / 1e6, f.need_bytes_per_s / 1e6);
}

static int search_all(struct search *s, struct err *err)
{
	struct sim_advice *a = s->advice;
	uint64_t all = search_all_bytes(s);
	int rc = search_run(s, "pagecache", a->memory_bytes / a->shortened, 0, &a->without, err);

	if (rc == 0)
		rc = search_run(s, "clairfs", all + all / 8, 0, &a->full, err);
	if (rc < 0)
		return rc;
	if (a->without.stall_pct <= a->target_pct) {
		say_not_needed(s);
		return 0;
	}
	if (a->full.stall_pct > a->target_pct) {
		say_not_enough(s);
		return search_steps(s, err);
	}
	say_helps(s);
	rc = search_smallest(s, false, &a->memory, err);
	if (rc == 0)
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

int sim_advise(const struct sim_params *params, uint64_t *take_size, double target_pct,
	       uint64_t memory_bytes, const struct sim_progress *progress, struct sim_advice *ret,
	       struct err *err)
{
	struct sim_params p = *params;
	struct search s = { .progress = progress, .advice = ret, .target = target_pct };
	int rc;

	*ret = (struct sim_advice){ .target_pct = target_pct, .memory_bytes = memory_bytes };
	ret->shortened = sim_shorten(&p, &take_size);
	/* Every epoch after the first is alike when all of the dataset is read in it. */
	p.epochs = p.nodes > 1 ? MAX(p.epochs, 2) : 3;
	p.cache_bytes = 0;
	p.cache_fraction = 1000;
	rc = sim_setup_new(&p, take_size, &s.setup, err);
	if (rc < 0)
		return rc;
	if (s.setup->epochs < 2) {
		ret->verdict = SIM_NOT_ENOUGH;
		snprintf(
			ret->why, sizeof(ret->why),
			"The order has one epoch: nothing is read twice, so nothing is worth keeping, and "
			"prefetching needs no more memory than the loader has under way.");
	} else {
		s.least = search_least(s.setup);
		rc = search_all(&s, err);
	}
	sim_setup_free(s.setup);
	return rc;
}
