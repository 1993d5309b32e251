/* SPDX-License-Identifier: Apache-2.0 */
/* Discrete-event simulation of a training job, a source and a kernel around the real plan: virtual
 * time, no threads, no randomness but hashes of the seed, so every count is exact and a failing run
 * repeats itself.
 *
 * Source: `parallel` requests are served at once, each takes `latency_ns` (half to one and a half
 * of it), and all share `bytes_per_s`. Loader: PyTorch's: per rank `workers` processes take whole
 * batches round robin and may be `workers` x `prefetch_factor` batches ahead of the one that is
 * consumed; ranks start a step together. Kernel: pages pushed and not read within `page_drop_ns`
 * are dropped. */
#ifndef CLAIRFS_TESTS_PLAN_SIM_H
#define CLAIRFS_TESTS_PLAN_SIM_H

#include "clairfs/plan.h"

struct sim_params {
	uint32_t n;
	uint64_t sample_bytes;
	uint64_t arena_samples, stage_samples, store_samples;
	uint32_t inflight_min, inflight_max;
	uint64_t span;          /* given to the plan; 0 = not given */
	struct order_info info; /* what the plan is told */
	/* source */
	uint64_t latency_ns, bytes_per_s;
	uint32_t parallel;
	/* its bandwidth swings: by this much of bytes_per_s up for half a period, then down */
	uint64_t burst_period_ns;
	double burst_amplitude;
	/* kernel */
	uint64_t page_drop_ns;
	bool is_drop_silent;   /* the plan hears of it when the sample is read, as in the daemon */
	uint32_t inodes_ahead; /* it knows no more for samples that were not opened; 0 = any */
	/* job */
	uint32_t ranks, workers, prefetch_factor, batch;
	uint64_t sample_cpu_ns, step_ns;
	uint32_t opens_per_read; /* 2: the job opens each file twice */
	uint64_t seed;           /* of the order the plan is told */
};

struct sim_counts {
	uint64_t reads, staged, arena, late, missed;
	uint64_t fetches, source_reads; /* source_reads: by fetches and by misses */
	uint64_t store_reads, drops, stages, unstaged, pins;
	uint64_t refused; /* stages, for want of inodes */
	uint64_t ns, stall_ns;
	uint64_t peak_inflight;
};

struct sim;
struct sim *sim_new(const struct sim_params *params);
void sim_free(struct sim *sim);
struct plan *sim_plan(struct sim *sim);
/* The order of an epoch of a seed: a permutation, heap. */
struct order_epoch *sim_order(uint32_t n, uint64_t seed, uint64_t epoch);
/* The job reads positions [from, to) of this epoch; `seed` differs from the plan's for a job that
 * reads another order. Returns what happened meanwhile. */
struct sim_counts sim_epoch(struct sim *sim, uint64_t seed, uint64_t epoch, uint64_t from,
			    uint64_t to);
/* Nothing is read for a while. */
void sim_pause(struct sim *sim, uint64_t ns);
struct plan_status sim_status(const struct sim *sim);
/* Changes the source at run time. */
void sim_set_source(struct sim *sim, uint64_t latency_ns, uint64_t bytes_per_s, uint32_t parallel);
/* Opens of the job so far when the plan was first LOST, UINT64_MAX if never; reset by the call. */
uint64_t sim_lost_at(struct sim *sim);
/* FETCH actions handed out while the plan was LOST. */
uint64_t sim_fetches_lost(const struct sim *sim);

#endif
