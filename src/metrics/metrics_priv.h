/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the metrics module: the memory of the counters and histograms.
 *
 * Histograms are log-linear: 16 buckets per power of two, so an upper edge is never more than
 * 1/16 above a value in its bucket. A bucket holds (lower, upper]: the upper edge belongs to it.
 * That is what "le" means in Prometheus, and it makes the coarse buckets printed there (powers
 * of two) exact sums of ours. */
#ifndef CLAIRFS_METRICS_PRIV_H
#define CLAIRFS_METRICS_PRIV_H

#include "clairfs/metrics.h"
#include "clairfs/metrics/stall.h"

#define METRICS_SLOTS 16
#define HIST_SUB_BITS 4
#define HIST_SUB (1u << HIST_SUB_BITS)
#define HIST_BUCKETS ((64 - HIST_SUB_BITS + 1) * HIST_SUB)

struct metrics_slot {
	_Atomic uint64_t cells[METRICS_COUNT];
} CACHE_ALIGNED;

struct hist {
	_Atomic uint64_t sum_ns;
	_Atomic uint64_t buckets[HIST_BUCKETS];
} CACHE_ALIGNED;

#define METRICS_RANK_ROWS 14
#define METRICS_NODE_ROWS 4
struct metrics_ranks {
	_Atomic uint32_t n;
	uint32_t number[STALL_RANKS_MAX]; /* below n: set for good */
	_Atomic uint64_t cells[STALL_RANKS_MAX][METRICS_RANK_ROWS];
	_Atomic uint64_t node[METRICS_NODE_ROWS];
};

struct metrics {
	struct metrics_slot slots[METRICS_SLOTS];
	_Atomic uint64_t gauges[METRICS_COUNT];
	struct hist hists[METRIC_HISTS];
	_Atomic unsigned next_slot;
	struct metrics_ranks ranks;
};

/* Names of the histograms, as metric_infos has those of counters and gauges. */
struct metrics_hist_info {
	const char *id, *name, *help;
};
extern const struct metrics_hist_info metrics_hist_infos[METRIC_HISTS];

/* A copy of one histogram, for printing. */
struct hist_snapshot {
	uint64_t sum_ns, count;
	uint64_t buckets[HIST_BUCKETS];
};

/* ranks.c: part of the Prometheus text. m may be NULL. */
void metrics_print_ranks(const struct metrics *m, struct buf_writer *out);

void hist_observe(struct hist *h, uint64_t ns);
/* h may be NULL: an empty histogram. */
void hist_snapshot(const struct hist *h, struct hist_snapshot *ret);
/* The largest value that falls into bucket b. */
uint64_t hist_upper_edge(unsigned b);
/* Observations that are <= ns; exact when ns is an upper edge. */
uint64_t hist_count_upto(const struct hist_snapshot *s, uint64_t ns);
/* Upper edge of the bucket with the value of rank ceil(share * count); 0 when nothing was
 * observed. */
uint64_t hist_quantile(const struct hist_snapshot *s, double share);

#endif
