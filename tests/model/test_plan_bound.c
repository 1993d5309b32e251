/* SPDX-License-Identifier: Apache-2.0 */
/* One node that reads everything once per epoch: no policy can read less from the source than what
 * does not fit, nor finish earlier than max(compute, what does not fit / bandwidth). The plan must
 * come as near as the window of its readers, with a steady source and with one whose bandwidth
 * swings, and must not write to the store again once it is full. Virtual time, so these are counts.
 */
#include <stdio.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "plan_sim.h"

#define N 20000u
#define STAGE 512u
#define BYTES 110592u
#define STEP_NS (5 * NS_PER_MS)
#define BATCH 32u
#define WORKERS 8u
#define FACTOR 2u

/* The source gives rho times what the job takes. */
static struct sim_params params(double fraction, double rho)
{
	double bytes_per_s = rho * BATCH * BYTES * (double)NS_PER_S / (double)STEP_NS;

	return (struct sim_params){ .n = N,
				    .sample_bytes = BYTES,
				    .arena_samples = (uint64_t)(fraction * N),
				    .stage_samples = STAGE,
				    .inflight_min = 4,
				    .inflight_max = 128,
				    .info = { .n = N,
					      .world = 1,
					      .n_ranks = 1,
					      .batch = BATCH,
					      .workers = WORKERS,
					      .prefetch_factor = FACTOR },
				    .latency_ns = 3 * NS_PER_MS / 2,
				    .bytes_per_s = (uint64_t)bytes_per_s,
				    .parallel = 64,
				    .ranks = 1,
				    .workers = WORKERS,
				    .prefetch_factor = FACTOR,
				    .batch = BATCH,
				    .sample_cpu_ns = NS_PER_MS,
				    .step_ns = STEP_NS,
				    .seed = 1 };
}

/* Stall of an epoch in percent of its compute time. */
static double stall_percent(const struct sim_counts *c)
{
	return 100.0 * (double)c->stall_ns / ((double)N / BATCH * STEP_NS);
}

/* No epoch can do without the first batch of each worker: what their CPU takes. */
static double floor_percent(void)
{
	return 100.0 * (double)(BATCH * NS_PER_MS) / ((double)N / BATCH * STEP_NS);
}

static void check_cell(double fraction, double rho, uint64_t store_samples)
{
	struct sim_params p = params(fraction, rho);
	double cached = fraction + (double)store_samples / N;
	double bound = 100 * ((1 - cached) / rho - 1), least;
	struct sim *sim;

	p.store_samples = store_samples;
	sim = sim_new(&p);
	sim_pause(sim, NS_PER_S);
	sim_epoch(sim, 1, 0, 0, N);
	if (store_samples)
		sim_epoch(sim, 1, 1, 0, N); /* fills it */
	for (uint64_t epoch = 1 + (store_samples > 0); epoch < 4; epoch++) {
		struct sim_counts c = sim_epoch(sim, 1, epoch, 0, N);
		uint64_t window = (store_samples ? 2 : 1) * WORKERS * FACTOR * BATCH;

		printf("# cached %.2f, source %.2f of the job: stall %.2f %% (bound %.2f), %lu reads "
		       "(bound %.0f)\n",
		       cached, rho, stall_percent(&c), bound > 0 ? bound : 0,
		       (unsigned long)c.source_reads, (1 - cached) * N);
		/* what is due next may be in the stage alone, beside what is cached */
		CHECK((double)c.source_reads >= (1 - cached) * N - STAGE);
		CHECK((double)c.source_reads <= (1 - cached) * N + (double)window);
		/* what comes back from the store stands in the arena while its readers come near,
		 * and is missed there */
		least = store_samples ? 100 * ((double)c.source_reads / N / rho - 1) : bound;
		CHECK(stall_percent(&c) <= MAX(least, 0) + floor_percent() + 2);
		CHECK_U64(c.pins, 0);
	}
	sim_free(sim);
}

static void a_quarter_in_memory_is_near_the_bound(void)
{
	check_cell(.25, .25, 0);
	check_cell(.25, .8, 0);
	check_cell(.25, 1.25, 0);
}

static void half_in_memory_is_near_the_bound(void)
{
	check_cell(.5, .25, 0);
	check_cell(.5, .5, 0);
	check_cell(.5, 1.25, 0);
}

static void three_quarters_in_memory_are_near_the_bound(void)
{
	check_cell(.75, .25, 0);
	check_cell(.75, .8, 0);
}

static void memory_and_store_add_up(void)
{
	check_cell(.25, .55, N / 4);
	check_cell(.10, .45, N / 2);
	check_cell(.25, .25, N / 4);
}

/* All epochs after the first, in which the plan sees that the source swings. */
static void check_burst(double amplitude, double period_epochs, double rho)
{
	struct sim_params p = params(.5, rho);
	struct sim *sim;
	double stall = 0, reads = 0;

	p.burst_amplitude = amplitude;
	p.burst_period_ns = (uint64_t)(period_epochs * N / BATCH * STEP_NS);
	sim = sim_new(&p);
	sim_pause(sim, NS_PER_S);
	sim_epoch(sim, 1, 0, 0, N);
	for (uint64_t epoch = 1; epoch < 6; epoch++) {
		struct sim_counts c = sim_epoch(sim, 1, epoch, 0, N);

		stall += stall_percent(&c) / 5;
		reads += (double)c.source_reads / 5;
	}
	printf("# source swings by %.1f, %.2f of an epoch, %.2f of the job: stall %.2f %%, %.0f reads\n",
	       amplitude, period_epochs, rho, stall, reads);
	CHECK(stall <= 2 + floor_percent());
	CHECK(reads <= .6 * N);
	sim_free(sim);
}

static void a_source_that_swings_is_ridden_out(void)
{
	check_burst(.5, .25, .65);
	check_burst(.9, .25, .55);
	check_burst(.9, .25, .80);
	check_burst(.5, 1, .55);
	check_burst(.9, 1, .65);
}

static const struct check_test tests[] = {
	{ "a_quarter_in_memory_is_near_the_bound", a_quarter_in_memory_is_near_the_bound },
	{ "half_in_memory_is_near_the_bound", half_in_memory_is_near_the_bound },
	{ "three_quarters_in_memory_are_near_the_bound",
	  three_quarters_in_memory_are_near_the_bound },
	{ "memory_and_store_add_up", memory_and_store_add_up },
	{ "a_source_that_swings_is_ridden_out", a_source_that_swings_is_ridden_out },
};
CHECK_MAIN(tests)
