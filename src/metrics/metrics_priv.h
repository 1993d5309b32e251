/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the metrics module: the memory of the counters and histograms.
 *
 * Histograms are log-linear: 16 buckets per power of two, so an upper edge is never more than
 * 1/16 above a value in its bucket. A bucket holds (lower, upper]: the upper edge belongs to it.
 * That is what "le" means in Prometheus, and it makes the coarse buckets printed there (powers
 * of two) exact sums of ours. */
#ifndef CLAIRFS_METRICS_PRIV_H
#define CLAIRFS_METRICS_PRIV_H

#include "clairfs/base/thr.h"
#include "clairfs/metrics.h"

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

struct metrics_rank {
	_Atomic uint64_t rank_plus_1; /* 0: free; once set it stays */
	_Atomic uint64_t cells[METRIC_RANKS];
};

struct trace_event;
/* See trace.c. */
struct trace {
	struct mutex mu;
	struct trace_event *ring; /* mu, like all below; NULL while nobody looks */
	uint64_t first, next;     /* numbers of the oldest event of this ring, and of the next */
	uint64_t lease_ns;
	_Atomic uint32_t group;
};
void trace_init(struct trace *t);
void trace_fini(struct trace *t);

struct metrics {
	struct metrics_head head; /* first: see metrics_is_tracing */
	struct metrics_slot slots[METRICS_SLOTS];
	_Atomic uint64_t gauges[METRICS_COUNT];
	struct hist hists[METRIC_HISTS];
	struct metrics_rank ranks[METRICS_RANKS_MAX]; /* in the order they came */
	_Atomic unsigned next_slot;
	struct trace trace;
	char *mount_labels; /* of mount_info, heap; set once, before there are other threads */
};

/* Names of the histograms, as metric_infos has those of counters and gauges. */
struct metrics_hist_info {
	const char *id, *name, *labels, *help;
};
extern const struct metrics_hist_info metrics_hist_infos[METRIC_HISTS];

/* A copy of one histogram, for printing. */
struct hist_snapshot {
	uint64_t sum_ns, count;
	uint64_t buckets[HIST_BUCKETS];
};

void hist_observe(struct hist *h, uint64_t ns);
/* h may be NULL: an empty histogram. */
void hist_snapshot(const struct hist *h, struct hist_snapshot *ret);
/* Observations that are <= 1024 ns, <= 2048 ns... <= 68.7 s: the buckets that are printed, in one
 * walk. Exact, as these edges are ours, too. */
#define HIST_LE_FIRST_BIT 10
#define HIST_LE_BITS 27
void hist_counts_upto(const struct hist_snapshot *s, uint64_t ret[HIST_LE_BITS]);
/* Upper edge of the bucket with the value of rank ceil(share * count); 0 when nothing was
 * observed. */
uint64_t hist_quantile(const struct hist_snapshot *s, double share);

#endif
