/* SPDX-License-Identifier: Apache-2.0 */
/* Which epoch of the bench a verdict of the mount's accounting belongs to. The mount judges epochs
 * one after the other, each once, some time after its end: a verdict belongs to the first epoch
 * that has none. Two that arrived together cannot be told apart and belong to none.
 *
 * The mount may be somebody else's, too: a pass of a job before, or of one beside the bench, is
 * judged as well, so there may be more verdicts than epochs, and any number in a stats.json. None
 * of that may lead out of the results.
 *
 * Main process; no I/O. */
#include "bench.h"
#include "clairfs/base/cleanup.h"

/* The first epoch without a verdict; NULL: the bench has no such epoch. */
static struct bench_result *next_epoch(const struct bench_verdict *v, struct bench_result *result,
				       size_t n_results)
{
	uint64_t skip = v->n;

	for (size_t i = 0; i < n_results; i++)
		if (result[i].counts.is_known && skip-- == 0)
			return &result[i];
	return NULL;
}

void bench_verdict_take(struct bench_verdict *v, struct bench_result *result, size_t n_results,
			uint32_t ranks, const struct bench_counts *now)
{
	double n = (now->passes - v->judged.passes) / ranks;
	struct bench_result *res;

	if (!(n >= 1))
		return;
	res = n < 2 ? next_epoch(v, result, n_results) : NULL;
	if (res && now->passes_judged > v->judged.passes_judged) {
		res->counts.removed_lower = now->removed_lower - v->judged.removed_lower;
		res->counts.removed_estimate = now->removed_estimate - v->judged.removed_estimate;
		res->counts.removed_upper = now->removed_upper - v->judged.removed_upper;
	}
	v->n += (uint64_t)MIN(n, (double)UINT32_MAX);
	v->judged = *now;
}
