/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that read the beginning of an order only: what is fetched behind it is in vain, counted, and
 * soon not fetched any more. */
#include <stdio.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "plan_sim.h"

#define N 8000
#define BATCH 16

static struct sim_params params(uint64_t arena_samples)
{
	return (struct sim_params){ .n = N,
				    .sample_bytes = 100000,
				    .arena_samples = arena_samples,
				    .stage_samples = 256,
				    .inflight_min = 4,
				    .inflight_max = 64,
				    .span = 4 * 2 * BATCH,
				    .info = { .n = N, .world = 1, .n_ranks = 1, .batch = BATCH },
				    .latency_ns = 5 * NS_PER_MS,
				    .bytes_per_s = 4000000000,
				    .parallel = 64,
				    .ranks = 1,
				    .workers = 4,
				    .prefetch_factor = 2,
				    .batch = BATCH,
				    .sample_cpu_ns = 100000,
				    .step_ns = 10 * NS_PER_MS,
				    .seed = 1 };
}

/* A fifth of the dataset in its order, four times; all of it would fit. */
static void the_first_pass_of_files_in_their_order(void)
{
	struct sim_params p = params(N);
	struct sim_counts all = { 0 };
	struct sim *sim;

	p.info.may_be_left = true;
	sim = sim_new(&p);
	for (int epoch = 0; epoch < 4; epoch++) {
		struct sim_counts c = sim_epoch(sim, 1, 0, 0, N / 5);

		all.source_reads += c.source_reads;
		all.stall_ns += c.stall_ns;
		printf("# pass %d: %lu source reads, stall %.3f s\n", epoch, c.source_reads,
		       (double)c.stall_ns / 1e9);
	}
	CHECK(all.source_reads <= N / 5 + N / 50 + 256 + 64);
	CHECK(sim_lost_at(sim) == UINT64_MAX);
	sim_free(sim);
}

/* So many batches of each shuffled epoch, with a quarter of the samples in memory. */
static void passes_that_are_left_early(void)
{
	struct sim_params p = params(N / 4);
	struct sim *sim = sim_new(&p);
	uint64_t wasted = 0;

	for (uint64_t epoch = 0; epoch < 6; epoch++) {
		struct sim_counts c = sim_epoch(sim, 1, epoch, 0, N / 5);
		uint64_t now = sim_status(sim).wasted - wasted;

		wasted += now;
		printf("# epoch %lu: %lu source reads, %lu wasted\n", epoch, c.source_reads, now);
		if (epoch == 2)
			CHECK(wasted > 0);
		if (epoch > 3)
			CHECK(c.source_reads <= N / 5 + 2 * p.span);
	}
	sim_free(sim);
}

/* Nothing is held back where nothing is in vain. */
static void whole_passes_waste_nothing(void)
{
	struct sim_params p = params(N / 4);
	struct sim *sim = sim_new(&p);

	for (uint64_t epoch = 0; epoch < 4; epoch++)
		(void)sim_epoch(sim, 1, epoch, 0, N);
	CHECK(sim_status(sim).wasted * 100 < sim_status(sim).issued);
	sim_free(sim);
}

static const struct check_test tests[] = {
	{ "the_first_pass_of_files_in_their_order",
	  the_first_pass_of_files_in_their_order },
	{ "passes_that_are_left_early", passes_that_are_left_early },
	{ "whole_passes_waste_nothing", whole_passes_waste_nothing },
};

CHECK_MAIN(tests)
