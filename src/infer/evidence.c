/* SPDX-License-Identifier: Apache-2.0 */
/* How much speaks for an order, given where it puts the samples that were opened? Of its first m
 * positions h were opened, while by chance it would be m * seen / n: Chernoff's bound of that, less
 * the price of having chosen m. The same measure as in recover/judge.c, which knows more (loaders'
 * layouts) because it has four thousand million hypotheses to tell apart and here are thousands.
 *
 * That says which samples were opened, not in which order: a shuffled fifth of the dataset is a
 * dense beginning of it, too. A permutation has no other way to explain its first samples; files in
 * their order do, and so must have been opened in their order: each right behind the one before it,
 * as far as loader workers that read side by side allow, or all in all from low to high. And
 * nothing may be left out in between.
 *
 * Pure; any thread. */
#include <math.h>
#include <string.h>

#include "clairfs/base/compare.h"
#include "infer_priv.h"

#define FOLLOW_FAR 64    /* workers that read side by side */
#define CHOICES 3.0      /* bits: how many of them was chosen */
#define ORDER_FEW 24     /* fewer opens are no correlation */
#define CORRELATED 0.8   /* of ranks; two halves in a wrong order have 0.5 */
#define WINDOW_PARTS 8   /* all, or 7, 6, 5, 4 of 8 opens are in the window */
#define GAPS 0.25        /* of the opens have one behind them: workers begin elsewhere */

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

/* Chernoff's bound of k of n where each has the chance p. */
double evidence_chance_bits(double k, double n, double p)
{
	double share = k / n, bits;

	if (n <= 0 || p >= 1 || share <= p)
		return 0;
	bits = k * log2(share / p);
	if (k < n)
		bits += (n - k) * log2((1 - share) / (1 - p));
	return bits;
}

static bool is_near(const uint32_t *pos, uint32_t i, uint32_t far)
{
	for (uint32_t k = i - MIN(i, far); k < i; k++)
		if (pos[k] + 1 == pos[i])
			return true;
	return false;
}

/* The position before was opened among the last `far` opens: by chance far / span of the time. */
static double follow_bits(const uint32_t *pos, uint32_t n, uint32_t span, uint32_t far)
{
	double follows = 0;

	for (uint32_t i = 0; i < n; i++)
		follows += is_near(pos, i, far);
	return evidence_chance_bits(follows, n, (double)far / span);
}

/* From low to high: the correlation of positions with the order they were opened in. sorted: the
 * positions, ascending. */
static double rank_bits(const uint32_t *pos, const uint32_t *sorted, uint32_t n)
{
	double mean = (n - 1) / 2.0, sum = 0, square = 0, share;

	if (n < ORDER_FEW)
		return 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t low = 0, high = n;

		while (low < high) {
			uint32_t mid = (low + high) / 2;

			if (sorted[mid] < pos[i])
				low = mid + 1;
			else
				high = mid;
		}
		sum += (i - mean) * (low - mean);
		square += (i - mean) * (i - mean);
	}
	share = sum / square;
	return share < CORRELATED ? 0 : share * share * (n - 1) / 2 / log(2);
}

/* Whether files between those that were opened are left out everywhere. */
static bool is_thin(const uint32_t *sorted, uint32_t n)
{
	uint32_t gaps = 0;

	for (uint32_t i = 1; i < n; i++)
		gaps += sorted[i] > sorted[i - 1] + 1;
	return gaps > GAPS * n;
}

double evidence_order_bits(const uint32_t *pos, uint32_t n_pos)
{
	uint32_t *sorted AUTO_FREE = malloc(MAX(n_pos, 1) * sizeof(*sorted));
	double best = 0;

	if (!sorted || n_pos < 2)
		return 0;
	memcpy(sorted, pos, n_pos * sizeof(*sorted));
	qsort(sorted, n_pos, sizeof(*sorted), compare_u32);
	if (is_thin(sorted, n_pos))
		return 0;
	for (uint32_t far = 1; far <= FOLLOW_FAR; far *= 2)
		best = MAX(best, follow_bits(pos, n_pos, sorted[n_pos - 1] + 1, far) - CHOICES);
	return MAX(best, rank_bits(pos, sorted, n_pos));
}

/* Leaves out what stands there twice; sorted. */
static uint32_t drop_repeats(uint32_t *pos, uint32_t n_pos)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_pos; i++)
		if (n == 0 || pos[i] != pos[n - 1])
			pos[n++] = pos[i];
	return n;
}

/* The narrowest window of k positions; returns the number of its first. */
static uint32_t narrowest(const uint32_t *pos, uint32_t n, uint32_t k)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i + k <= n; i++)
		if (pos[i + k - 1] - pos[i] < pos[best + k - 1] - pos[best])
			best = i;
	return best;
}

double evidence_window_bits(uint32_t *pos, uint32_t *n_pos, uint64_t n, uint32_t *ret_from,
			    uint32_t *ret_n)
{
	double best = 0;

	*ret_from = *ret_n = 0;
	qsort(pos, *n_pos, sizeof(*pos), compare_u32);
	*n_pos = drop_repeats(pos, *n_pos);
	for (uint32_t part = WINDOW_PARTS; *n_pos >= WINDOW_PARTS && part >= WINDOW_PARTS / 2; part--) {
		uint32_t k = *n_pos * part / WINDOW_PARTS, from = narrowest(pos, *n_pos, k);
		double share = (pos[from + k - 1] - pos[from] + 1.0) / (double)n, bits;

		/* It begins with one of them, and this share of them was chosen. */
		bits = evidence_chance_bits(k - 1, *n_pos - 1, share) -
		       log2((double)*n_pos * (WINDOW_PARTS / 2 + 1));
		if (bits <= best)
			continue;
		best = bits;
		*ret_from = from;
		*ret_n = k;
	}
	return best;
}
