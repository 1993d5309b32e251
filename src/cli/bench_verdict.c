/* SPDX-License-Identifier: Apache-2.0 */
/* Which epoch of the bench a verdict of the mount's accounting belongs to. The mount judges a pass
 * of a rank when all of it was told, but one that lacks a few reads much later, so a later pass may
 * overtake. Its counters are totals: they do not say which pass they grew by. So a verdict is an
 * epoch's only where it can be no other's: when one epoch was due, and all of its ranks, and no
 * more, were judged. All others are nobody's; their sum is in the mount's own words.
 *
 * The mount may be somebody else's, too: passes of a job before, or beside the bench, are judged
 * when none of ours is due, and there may be any number in a stats.json. None of that may lead out
 * of the results.
 *
 * Main process; no I/O. */
#include <math.h>

#include "bench.h"
#include "clairfs/base/cleanup.h"

static uint64_t count_known(const struct bench_result *result, size_t n_results, size_t *ret_last)
{
	uint64_t n = 0;

	for (size_t i = 0; i < n_results; i++)
		if (result[i].counts.is_known) {
			*ret_last = i;
			n++;
		}
	return n;
}

/* Ranks that wait for each other all gain what one gains, at most all of it together. */
static void give(const struct bench_counts *from, const struct bench_counts *to, uint32_t ranks,
		 struct bench_counts *ret)
{
	ret->removed_lower = (to->removed_lower - from->removed_lower) / ranks;
	ret->removed_estimate = (to->removed_estimate - from->removed_estimate) / ranks;
	ret->removed_upper = to->removed_upper - from->removed_upper;
}

void bench_verdict_take(struct bench_verdict *v, struct bench_result *result, size_t n_results,
			uint32_t ranks, const struct bench_counts *now)
{
	size_t last = 0;
	uint64_t all = count_known(result, n_results, &last) * ranks, due = all - v->passes;
	double n = now->passes - v->judged.passes;
	bool is_clean = due == ranks && !v->is_mixed;

	if (!(n >= 1) || (is_clean && n < ranks))
		return; /* nothing, or ranks are missing still */
	if (is_clean && n < ranks + 1 && now->passes_judged - v->judged.passes_judged > ranks - 0.5)
		give(&v->judged, now, ranks, &result[last].counts);
	v->passes += (uint64_t)MIN(n, (double)due);
	v->is_mixed = v->passes < all;
	v->judged = *now;
}

void bench_verdict_total(const struct bench_counts *from, const struct bench_counts *to,
			 uint64_t passes, uint32_t ranks, struct bench_counts *ret)
{
	bool is_all = fabs(to->passes_judged - from->passes_judged - (double)passes) < 0.5 &&
		      fabs(to->passes - from->passes - (double)passes) < 0.5;

	*ret = (struct bench_counts){ .is_known = to->is_known,
				      .removed_lower = NAN,
				      .removed_estimate = NAN,
				      .removed_upper = NAN };
	if (is_all)
		give(from, to, ranks, ret);
}
