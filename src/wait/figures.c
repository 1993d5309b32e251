/* SPDX-License-Identifier: Apache-2.0 */
/* What the statistics say, as metrics. */
#include "wait_priv.h"

static void publish_node(struct metrics *m, const struct stall_node *node)
{
	metrics_total_set(m, METRIC_CONTROL_READS, node->control_reads);
	metrics_total_set(m, METRIC_CONTROL_BYTES, node->control_bytes);
	metrics_total_set(m, METRIC_CONTROL_WAIT, node->control_cost_ns);
	metrics_total_set(m, METRIC_UNPLACED_READS, node->unplaced_reads);
	wait_switch_publish(m, node);
}

static void publish_rank(struct metrics *m, const struct stall_numbers *n)
{
	metrics_rank_set(m, METRIC_RANK_GPU_WAIT_REMOVED, n->rank, n->lower_ns);
	metrics_rank_set(m, METRIC_RANK_GPU_WAIT_REPLAY, n->rank, n->estimate_ns);
	metrics_rank_set(m, METRIC_RANK_GPU_WAIT_HOOK, n->rank, n->estimate_hook_ns);
	metrics_rank_set(m, METRIC_RANK_GPU_WAIT_UPPER, n->rank, n->upper_ns);
	metrics_rank_set(m, METRIC_RANK_LATENCY_SAVED, n->rank, n->latency_saved_ns);
	metrics_rank_set(m, METRIC_RANK_JUDGED, n->rank, n->judged_ns);
	metrics_rank_set(m, METRIC_RANK_GPU_WAIT, n->rank, n->gpu_wait_ns);
	metrics_rank_set(m, METRIC_RANK_GPU_COMPUTE, n->rank, n->compute_ns);
	metrics_rank_set(m, METRIC_RANK_STEPS, n->rank, n->steps);
	metrics_rank_set(m, METRIC_RANK_PREP_WAIT, n->rank, n->prep_wait_ns);
	wait_switch_publish_rank(m, n);
}

void wait_publish(struct metrics *m, const struct stall *s)
{
	struct stall_numbers numbers;
	struct stall_node node;

	stall_get_node(s, &node);
	publish_node(m, &node);
	for (uint32_t i = 0; i < stall_n_ranks(s); i++) {
		stall_get_rank(s, i, &numbers);
		publish_rank(m, &numbers);
	}
}
