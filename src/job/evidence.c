/* SPDX-License-Identifier: Apache-2.0 */
/* How much speaks for an order, given where it puts the samples that were opened? Of its first m
 * positions h were opened, while by chance it would be m * seen / n: Chernoff's bound of that, less
 * the price of having chosen m. The same measure as in recover/judge.c, which knows more (loaders'
 * layouts) because it has four thousand million hypotheses to tell apart and here are thousands.
 *
 * Pure; any thread. */
#include <math.h>

#include "job_priv.h"

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

double evidence_bits(uint32_t *pos, uint32_t n_pos, uint32_t n_seen, uint64_t n)
{
	double p = (double)n_seen / (double)n, best = 0;

	if (p >= 1)
		return 0;
	qsort(pos, n_pos, sizeof(*pos), compare_u32);
	for (uint32_t i = 0; i < n_pos; i++) {
		double h = i + 1, m = (double)pos[i] + 1, share = h / m, bits;

		if (share > 1 || share <= p) /* above 1: a position twice */
			continue;
		bits = h * log2(share / p) - 2 * log2(h + 1);
		if (h < m)
			bits += (m - h) * log2((1 - share) / (1 - p));
		best = MAX(best, bits);
	}
	return best;
}
