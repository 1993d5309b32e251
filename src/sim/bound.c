/* SPDX-License-Identifier: Apache-2.0 */
/* The lower bound: no cache of this size, whatever it knows, ends the epochs earlier. Of the U
 * bytes that an epoch needs at most C were there when it began, so U - C must come during it (from
 * the cold start: all), and the source gives no more than its bandwidth; nor can the job be faster
 * than its compute time, its workers' decoding, and the latency its requests take together:
 *
 *   end(e) = max(end(e-1) + steps x compute, end(e-1) + decoding / workers,
 *                end(e-1) + (reads - in flight) x latency / parallel,
 *                time by which U - C bytes can have come since end(e-1))
 *
 * Where a node reads only a share of each epoch that says little, because everything could have
 * been there. Then exact MIN, which no policy beats in any prefix of the run, says how many reads
 * there were by the end of each epoch (samples of one size, one job). All terms grow with end(e-1),
 * so the ends are bounds for every policy, not only the lengths. Must never be beaten: a test
 * compares (policy clairfs with the bound of a cache that has the stage, too). */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "cached.h"
#include "clairfs/base/compare.h"
#include "clairfs/base/tree.h"
#include "future.h"

/* What the epochs need of the source at least. */
struct need {
	uint64_t reads, bytes;             /* within the epoch */
	uint64_t total_reads, total_bytes; /* from the beginning to its end */
	uint64_t samples;                  /* that the job reads */
};

static uint64_t bound_capacity(const struct sim_setup *s)
{
	uint64_t bytes = s->cache_bytes + s->store_bytes;

	/* Without any retained sample a reader still holds what it reads. */
	return s->largest == s->smallest ? bytes / s->largest * s->largest : bytes;
}

/* The most samples that fit at once: the smallest ones. */
static int bound_most(const struct sim_setup *s, uint64_t capacity, uint64_t *ret)
{
	AUTO_FREE uint64_t *sorted = NULL;

	if (s->largest == s->smallest) {
		*ret = capacity / s->largest;
		return 0;
	}
	sorted = malloc(s->n * sizeof(*sorted));
	if (!sorted)
		return -ENOMEM;
	memcpy(sorted, s->size, s->n * sizeof(*sorted));
	qsort(sorted, s->n, sizeof(*sorted), compare_u64);
	for (*ret = 0; *ret < s->n && sorted[*ret] <= capacity; ++*ret)
		capacity -= sorted[*ret];
	return 0;
}

static void bound_unique(const struct sim_setup *s, const struct order_epoch *ep, uint64_t from,
			 struct bitmap *seen, struct need *need)
{
	bitmap_clear_all(seen);
	need->reads = need->bytes = 0;
	for (uint64_t pos = from; pos < ep->length; pos++)
		if (bitmap_set(seen, ep->sample[pos])) {
			need->reads++;
			need->bytes += s->size[ep->sample[pos]];
		}
}

/* Misses of exact MIN up to the end of each epoch. */
static int bound_min(const struct sim_setup *s, uint64_t slots, struct need *need, struct err *err)
{
	struct future u;
	struct tree kept = { .size = 0 };
	uint64_t misses = 0, e = 0;
	int rc = future_init(&u, s, err);

	if (rc == 0)
		rc = tree_init(&kept, u.length + s->n);
	for (uint64_t i = 0; rc == 0 && i < u.length; i++) {
		if (u.sample[i] != NONE) {
			bool is_hit = tree_get(&kept, i);

			if (is_hit)
				tree_clear(&kept, i);
			else
				misses++;
			tree_set(&kept, u.next[i]);
			if (kept.count > slots)
				tree_clear(&kept, tree_max(&kept));
		}
		while (e < s->epochs && i + 1 == u.start[e + 1]) {
			need[e].total_reads = misses;
			need[e++].total_bytes = misses * s->largest;
		}
	}
	tree_fini(&kept);
	future_fini(&u);
	return rc;
}

static int bound_samples(const struct sim_setup *s, uint64_t epoch, uint64_t *ret, struct err *err)
{
	struct order_epoch *dealt = setup_dealt(s, 0, epoch, err);
	uint64_t from = setup_start(s, 0, epoch);

	if (!dealt)
		return err->code;
	*ret = dealt->length - MIN(from, dealt->length);
	order_epoch_free(dealt);
	return 0;
}

static int bound_needs(const struct sim_setup *s, struct need *need, struct sim_result *result,
		       struct err *err)
{
	uint64_t capacity = bound_capacity(s), most = 0;
	struct bitmap seen;
	int rc = bitmap_init(&seen, s->n);

	if (rc == 0)
		rc = bound_most(s, capacity, &most);

	for (uint64_t e = 0; e < s->epochs && rc == 0; e++) {
		struct order_epoch *ep = setup_epoch(s, 0, e, err);
		uint64_t from, count;

		if (!ep) {
			rc = err->code;
			break;
		}
		from = setup_from(s, 0, e, ep);
		count = ep->length - MIN(from, ep->length);
		need[e].samples = count;
		if (s->map.first)
			rc = bound_samples(s, e, &need[e].samples, err);
		bound_unique(s, ep, from, &seen, &need[e]);
		order_epoch_free(ep);
		if (e) {
			need[e].reads -= MIN(need[e].reads, most);
			need[e].bytes -= MIN(need[e].bytes, capacity);
		}
		result->epoch[e].reads = count * s->p.jobs;
		result->epoch[e].compute_seconds =
			(double)DIV_ROUND_UP(DIV_ROUND_UP(need[e].samples, s->ranks), s->batch) *
			s->p.compute_ms / 1e3;
	}
	bitmap_fini(&seen);
	if (rc == 0 && s->world > s->ranks && s->p.jobs == 1 && s->largest == s->smallest)
		rc = bound_min(s, capacity / s->largest, need, err);
	return rc;
}

static double bound_latency_s(const struct sim_setup *s, uint64_t reads)
{
	const struct sim_params *p = &s->p;
	double sigma = p->source_latency_sigma, spread = sqrt(exp(sigma * sigma) - 1);
	double n = (double)(reads - MIN(reads, p->source_parallel));

	/* Four standard deviations of luck; the quantiles cut the tail, which is within that. */
	if (n < 1)
		return 0;
	return n * p->source_latency_ms / 1e3 * MAX(1 - 4 * spread / sqrt(n), 0) /
	       (double)p->source_parallel;
}

static double bound_end(const struct sim_setup *s, const struct device *source, double began_s,
			const struct sim_epoch *e, const struct need *need)
{
	double per_rank = (double)need->samples / s->ranks;
	double end = began_s + e->compute_seconds;
	double ns = (double)NS_PER_S, bytes = (double)need->bytes;

	end = MAX(end, began_s + floor(per_rank) * s->p.decode_ms / 1e3 / s->workers);
	end = MAX(end, began_s + bound_latency_s(s, need->reads));
	end = MAX(end, device_transfer(source, began_s * ns, bytes) / ns);
	return MAX(end, device_transfer(source, 0, (double)need->total_bytes) / ns);
}

int bound_run(const struct sim_setup *s, struct sim_result *result, struct err *err)
{
	AUTO_FREE struct need *need = calloc(s->epochs, sizeof(*need));
	double latency[QUANTILES] = { 0 }, end_s = 0, began_s;
	struct device source;
	int rc;

	if (!need)
		return err_set_errno(err, -ENOMEM, "bound");
	err->code = 0;
	rc = bound_needs(s, need, result, err);
	if (rc < 0)
		return err->code ? rc : err_set_errno(err, rc, "bound");
	device_source(&source, &s->p, latency);
	for (uint64_t e = 0; e < s->epochs; e++) {
		struct sim_epoch *out = &result->epoch[e];
		bool has_min = need[e].total_reads > 0;

		began_s = end_s;
		end_s = bound_end(s, &source, began_s, out, &need[e]);
		out->seconds = out->bound_seconds = end_s - began_s;
		out->stall_seconds = MAX(out->seconds - out->compute_seconds, 0);
		out->source_reads = !has_min ? need[e].reads
				    : e      ? need[e].total_reads - need[e - 1].total_reads
					     : need[e].total_reads;
		out->source_bytes = has_min ? out->source_reads * s->largest : need[e].bytes;
		out->read_class[SIM_MISS] = MIN(out->source_reads, out->reads);
		out->read_class[SIM_CACHE] = out->reads - out->read_class[SIM_MISS];
	}
	return 0;
}
