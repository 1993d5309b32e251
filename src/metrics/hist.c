/* SPDX-License-Identifier: Apache-2.0 */
/* Log-linear histograms of latencies.
 *
 * A fixed array of counters, one atomic addition to a bucket and one to the sum per observation: no
 * lock, no allocation, no limit on the values. There is no separate count and no separate maximum:
 * both follow from the buckets, so that what is printed together agrees although threads go on
 * counting meanwhile (the sum may run ahead of the buckets by the observations under way, or
 * behind).
 *
 * Any thread may call anything here. */
#include "metrics_priv.h"

#include <string.h>

static unsigned bucket_of(uint64_t ns)
{
	uint64_t v = ns ? ns - 1 : 0; /* buckets are (lower, upper] */
	unsigned shift;

	if (v < HIST_SUB)
		return (unsigned)v;
	shift = 63 - (unsigned)__builtin_clzll(v) - HIST_SUB_BITS;
	return (shift + 1) * HIST_SUB + (unsigned)((v >> shift) & (HIST_SUB - 1));
}

/* The largest value that falls into bucket b. */
static uint64_t hist_upper_edge(unsigned b)
{
	unsigned shift;

	if (b < HIST_SUB)
		return (uint64_t)b + 1;
	if (b >= HIST_BUCKETS - 1)
		return UINT64_MAX; /* 2^64 does not fit; no value is above this one either */
	shift = b / HIST_SUB - 1;
	return ((uint64_t)(HIST_SUB + b % HIST_SUB) + 1) << shift;
}

void hist_observe(struct hist *h, uint64_t ns)
{
	atomic_fetch_add_explicit(&h->buckets[bucket_of(ns)], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->sum_ns, ns, memory_order_relaxed);
}

void hist_snapshot(const struct hist *h, struct hist_snapshot *ret)
{
	unsigned b;

	memset(ret, 0, sizeof(*ret));
	if (!h)
		return;
	for (b = 0; b < HIST_BUCKETS; b++) {
		ret->buckets[b] = atomic_load_explicit(&h->buckets[b], memory_order_relaxed);
		ret->count += ret->buckets[b];
	}
	ret->sum_ns = atomic_load_explicit(&h->sum_ns, memory_order_relaxed);
}

void hist_counts_upto(const struct hist_snapshot *s, uint64_t ret[HIST_LE_BITS])
{
	uint64_t n = 0;
	unsigned b = 0;

	for (unsigned i = 0; i < HIST_LE_BITS; i++) {
		for (; hist_upper_edge(b) <= 1ull << (HIST_LE_FIRST_BIT + i); b++)
			n += s->buckets[b];
		ret[i] = n;
	}
}

uint64_t hist_quantile(const struct hist_snapshot *s, double share)
{
	uint64_t rank = (uint64_t)(share * (double)s->count), seen = 0;
	unsigned b, last = 0;

	if (s->count == 0)
		return 0;
	if ((double)rank < share * (double)s->count)
		rank++;
	rank = MAX(rank, 1);
	for (b = 0; b < HIST_BUCKETS; b++) {
		if (s->buckets[b] == 0)
			continue;
		seen += s->buckets[b];
		last = b;
		if (seen >= rank)
			break;
	}
	return hist_upper_edge(last);
}
