/* SPDX-License-Identifier: Apache-2.0 */
/* From the times of one epoch to its figures; pure, and the only place where they are defined.
 *
 *   wait        what a step waited for its batch: from asking for it to having it
 *   stall       the sum of a rank's waits; of several ranks, their mean
 *   AU          DLIO's: computing / time, both without the first step, which nothing could have
 *               hidden; in percent, mean of the ranks. NAN when there is one step only
 *   MB/s        bytes that read() returned, not samples times a stated size
 *   removed     stall without clairfs minus stall with it: the first epoch of a job has cold caches
 *               (side source), later ones have what Linux kept (side pagecache). Of several ranks
 *               their waits for each other belong to it, as one's stall is the others' wait
 *   bound       bytes the source must give at least: each byte of the epoch once, less what fits
 *               into the caches; in the first epoch nothing is there yet
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "bench_priv.h"
#include "clairfs/base/compare.h"

double bench_number(const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);

	return json_is_number(v) ? json_number_value(v) : NAN;
}

/* The smallest value that at least `share` of them do not exceed, in seconds. */
static double quantile(const uint64_t *sorted, size_t n, double share)
{
	size_t at = (size_t)ceil(share * (double)n);

	return n ? (double)sorted[at ? at - 1 : 0] / 1e9 : 0;
}

double bench_latency_edge(uint32_t bin)
{
	return bin ? 1e-6 * exp2((double)bin / 4) : 0;
}

static uint32_t latency_bin(uint64_t ns)
{
	double bin = ns > 1000 ? 4 * log2((double)ns / 1e3) : 0;

	return (uint32_t)MIN(bin, BENCH_LATENCIES - 1);
}

static double rank_au(const struct bench_rank *r)
{
	uint64_t compute = 0, time = r->t_end - r->t_start;

	for (uint32_t k = 1; k < r->n_steps; k++)
		compute += r->step[k].t_computed - r->step[k].t_ready;
	time -= r->step[0].t_synced - r->step[0].t_request;
	return r->n_steps > 1 && time ? 100.0 * (double)compute / (double)time : NAN;
}

static void add_steps(const struct bench_rank *r, struct bench_result *ret, uint64_t *waits,
		      double *ret_stall)
{
	uint64_t stall = 0;

	for (uint32_t k = 0; k < r->n_steps; k++) {
		const struct bench_step *t = &r->step[k];

		waits[k] = t->t_ready - t->t_request;
		stall += waits[k];
		ret->compute_seconds += (double)(t->t_computed - t->t_ready) / 1e9;
		ret->sync_seconds += (double)(t->t_synced - t->t_computed) / 1e9;
	}
	*ret_stall = (double)stall / 1e9;
	ret->steps += r->n_steps;
	ret->samples += r->n_samples;
}

static void add_reads(const struct bench_rank *r, struct bench_result *ret, uint64_t *times)
{
	for (uint32_t p = 0; p < r->n_samples; p++) {
		times[p] = r->read[p].t_end - r->read[p].t_start;
		ret->bytes += (double)r->read[p].bytes;
		ret->sum += r->read[p].sum;
		ret->read_seconds += (double)times[p] / 1e9;
		ret->latency[latency_bin(times[p])]++;
	}
}

/* Spreads each wait of a rank over the bins of the epoch it falls into. */
static void fill_bins(const struct bench_rank *r, struct bench_result *ret)
{
	double width = (double)(r->t_end - r->t_start) / BENCH_BINS;

	for (uint32_t k = 0; k < r->n_steps && width > 0; k++) {
		double from = (double)(r->step[k].t_request - r->t_start);
		double to = (double)(r->step[k].t_ready - r->t_start);

		for (uint32_t b = (uint32_t)(from / width); b < BENCH_BINS; b++) {
			double low = MAX(from, b * width), high = MIN(to, (b + 1) * width);

			if (high <= low)
				break;
			ret->stall_bin[b] += (high - low) / 1e9;
		}
	}
}

/* Bytes of the epoch without repetitions. */
static int unique_bytes(const struct bench_setup *s, const struct bench_block *b, double *ret)
{
	AUTO_FREE uint8_t *seen = calloc(s->n_units, 1);

	*ret = 0;
	if (!seen)
		return -ENOMEM;
	for (uint32_t r = 0; r < b->n_ranks; r++)
		for (uint32_t p = 0; p < b->rank[r].n_samples; p++) {
			uint32_t sample = b->rank[r].sample[p];

			if (!seen[sample])
				*ret += (double)bench_unit(s, sample).length;
			seen[sample] = 1;
		}
	return 0;
}

static void add_quantiles(struct bench_result *ret, uint64_t *waits, uint64_t *times)
{
	qsort(waits, ret->steps, sizeof(*waits), compare_u64);
	qsort(times, ret->samples, sizeof(*times), compare_u64);
	ret->stall_p50 = quantile(waits, ret->steps, 0.5);
	ret->stall_p99 = quantile(waits, ret->steps, 0.99);
	ret->stall_max = quantile(waits, ret->steps, 1);
	ret->read_p50 = quantile(times, ret->samples, 0.5);
	ret->read_p99 = quantile(times, ret->samples, 0.99);
}

int bench_numbers(const struct bench_setup *s, const struct bench_block *b,
		  struct bench_result *ret)
{
	uint64_t n_steps = 0, n_samples = 0, from = UINT64_MAX, to = 0;
	AUTO_FREE uint64_t *waits = NULL, *times = NULL;

	for (uint32_t r = 0; r < b->n_ranks; r++) {
		n_steps += b->rank[r].n_steps;
		n_samples += b->rank[r].n_samples;
		from = MIN(from, b->rank[r].t_start);
		to = MAX(to, b->rank[r].t_end);
	}
	waits = malloc(n_steps * sizeof(*waits));
	times = malloc(n_samples * sizeof(*times));
	ret->rank_stall = calloc(b->n_ranks, sizeof(*ret->rank_stall));
	if (!waits || !times || !ret->rank_stall || unique_bytes(s, b, &ret->unique_bytes) < 0)
		return -ENOMEM;
	ret->t_begin = from;
	ret->seconds = (double)(to - from) / 1e9;
	for (uint32_t r = 0; r < b->n_ranks; r++) {
		const struct bench_rank *rank = &b->rank[r];
		const struct bench_step *first = &rank->step[0];

		add_reads(rank, ret, times + ret->samples);
		add_steps(rank, ret, waits + ret->steps, &ret->rank_stall[r]);
		ret->au_percent += rank_au(rank) / b->n_ranks;
		ret->stall_seconds += ret->rank_stall[r] / b->n_ranks;
		ret->first_wait =
			MAX(ret->first_wait, (double)(first->t_ready - first->t_request) / 1e9);
	}
	ret->compute_seconds /= b->n_ranks;
	ret->sync_seconds /= b->n_ranks;
	add_quantiles(ret, waits, times);
	fill_bins(&b->rank[0], ret);
	return 0;
}

const struct bench_result *bench_find(const struct bench_report *r, enum bench_side side,
				      uint64_t epoch)
{
	for (uint32_t i = 0; i < r->n_results; i++)
		if (r->result[i].side == side && r->result[i].epoch == epoch)
			return &r->result[i];
	return NULL;
}

/* Mean of ranks. */
static double not_computed(const struct bench_report *r, const struct bench_result *res)
{
	return res->stall_seconds + (r->setup->ranks > 1 ? res->sync_seconds : 0);
}

double bench_removed_total(const struct bench_report *r)
{
	double sum = 0;

	for (uint64_t e = 0; e < r->setup->epochs; e++)
		sum += bench_removed(r, r->setup->first_epoch + e);
	return sum;
}

double bench_removed(const struct bench_report *r, uint64_t epoch)
{
	const struct bench_result *with = bench_find(r, SIDE_CLAIRFS, epoch);
	const struct bench_result *cold = bench_find(r, SIDE_SOURCE, epoch);
	const struct bench_result *kept = bench_find(r, SIDE_PAGECACHE, epoch);
	bool is_first = epoch == r->setup->first_epoch;
	const struct bench_result *without = is_first ? (cold ? cold : kept) : (kept ? kept : cold);

	return with && without ? not_computed(r, without) - not_computed(r, with) : NAN;
}
