/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of stall accounting under the names they are shown by: one table for the Prometheus
 * text (label rank) and the objects of stats.json. What they mean: metrics/stall.h. */
#ifndef CLAIRFS_METRICS_RANKS_H
#define CLAIRFS_METRICS_RANKS_H

#include "clairfs/metrics.h"
#include "clairfs/metrics/stall.h"

/* X(field of struct stall_numbers, unit, key in stats.json, Prometheus name without clairfs_,
 * further labels, help). Rows of one name stand together. NS: nanoseconds inside, seconds outside.
 */
#define METRICS_RANK_LIST(X)                                                                       \
	X(lower_ns, NS, "removed_lower_seconds", "gpu_wait_removed_seconds_total", "",             \
	  "GPU wait removed, at least (seconds of one rank; never to be added up over ranks).")    \
	X(estimate_ns, NS, "removed_replay_seconds", "gpu_wait_removed_estimate_seconds_total",    \
	  ",source=\"replay\"",                                                                    \
	  "GPU wait removed, estimated: from the reads alone, or with the job's compute times.")   \
	X(estimate_hook_ns, NS, "removed_hook_seconds", "gpu_wait_removed_estimate_seconds_total", \
	  ",source=\"hook\"", "")                                                                  \
	X(upper_ns, NS, "removed_upper_seconds", "gpu_wait_removed_upper_seconds_total", "",       \
	  "GPU wait removed, at most.")                                                            \
	X(latency_saved_ns, NS, "read_latency_saved_seconds", "read_latency_saved_seconds_total",  \
	  "", "Latency of reads saved, added up. No GPU time: that is far less.")                  \
	X(prep_wait_ns, NS, "prep_wait_seconds", "prep_wait_seconds_total", "",                    \
	  "Wait that no cache removes: workers busy with what was read.")                          \
	X(judged_ns, NS, "judged_seconds", "gpu_wait_judged_seconds_total", "",                    \
	  "Wall time of the passes that the numbers are of.")                                      \
	X(judged, COUNT, "passes_judged", "gpu_wait_passes_total", ",result=\"judged\"",           \
	  "Passes over the dataset, by whether they could be judged.")                             \
	X(unjudged, COUNT, "passes_unjudged", "gpu_wait_passes_total", ",result=\"unjudged\"", "") \
	X(reads, COUNT, "reads", "gpu_wait_reads_total", "", "Reads of the passes judged.")        \
	X(ghost_reads, COUNT, "ghost_reads", "gpu_wait_ghost_reads_total", "",                     \
	  "Of them, those that Linux would have had in its page cache.")                           \
	X(steps, COUNT, "steps", "steps_total", "", "Steps that the job told.")                    \
	X(gpu_wait_ns, NS, "gpu_wait_seconds", "gpu_wait_seconds_total", "",                       \
	  "Time the job's steps waited for data, as the job told.")                                \
	X(compute_ns, NS, "compute_seconds", "gpu_compute_seconds_total", "",                      \
	  "Time of the job's steps after they had their data, as the job told.")

/* The same of struct stall_node: no rank. */
#define METRICS_NODE_LIST(X)                                                                       \
	X(control_reads, COUNT, "reads", "control_reads_total",                                    \
	  "Samples held out and read on demand, for comparison.")                                  \
	X(control_bytes, COUNT, "bytes", "control_read_bytes_total", "Their bytes.")               \
	X(control_cost_ns, NS, "cost_seconds", "control_read_seconds_total",                       \
	  "What they cost their readers: the wait for them.")                                      \
	X(unplaced_reads, COUNT, "unplaced_reads", "gpu_wait_unplaced_reads_total",                \
	  "Reads whose place in the order is not known: in no number.")

enum metric_unit { METRIC_UNIT_COUNT, METRIC_UNIT_NS };

/* One thread sets, any reads meanwhile. m may be NULL. */
void metrics_rank_set(struct metrics *m, const struct stall_numbers *numbers);
void metrics_node_set(struct metrics *m, const struct stall_node *node);

/* New members of a jansson object (json_t *), by the table's keys. -ENOMEM. */
int metrics_rank_to_json(const struct stall_numbers *numbers, void *json) MUST_USE;
int metrics_node_to_json(const struct stall_node *node, void *json) MUST_USE;

#endif
