/* SPDX-License-Identifier: Apache-2.0 */
/* How many requests the source gets at once, with simulated sources. Counts in virtual time, so
 * exact. */
#include "check.h"
#include "clairfs/base/clock.h"
#include "plan_sim.h"

static struct sim_params params(void)
{
	return (struct sim_params){ .n = 20000,
				    .sample_bytes = 110592,
				    .arena_samples = 10000,
				    .stage_samples = 512,
				    .inflight_min = 4,
				    .inflight_max = 256,
				    .info = { .n = 20000, .world = 1, .n_ranks = 1 },
				    .latency_ns = 3 * NS_PER_MS,
				    .bytes_per_s = 10000000000,
				    .parallel = 64,
				    .ranks = 1,
				    .workers = 8,
				    .prefetch_factor = 2,
				    .batch = 32,
				    .sample_cpu_ns = 500000,
				    .step_ns = 5 * NS_PER_MS,
				    .seed = 1 };
}

static void a_fast_source_gets_what_the_job_needs_not_all(void)
{
	struct sim_params p = params();
	struct sim *sim = sim_new(&p);

	sim_epoch(sim, 1, 0, 0, p.n);
	sim_epoch(sim, 1, 1, 0, p.n);
	/* 6400 per second x 3 ms = 19 on average when nothing hits */
	CHECK(sim_status(sim).inflight_limit >= 8);
	CHECK(sim_status(sim).inflight_limit <= 96);
	sim_free(sim);
}

static void requests_the_source_cannot_serve_are_not_sent(void)
{
	struct sim_params p = params();
	struct sim *sim;
	struct sim_counts c;

	/* Its link is full with 10 requests in flight; the job wants twice as much as it has. */
	p.bytes_per_s = 370000000;
	sim = sim_new(&p);
	sim_epoch(sim, 1, 0, 0, p.n);
	c = sim_epoch(sim, 1, 1, 0, p.n);
	CHECK(c.peak_inflight <= 64);
	CHECK(sim_status(sim).inflight_limit <= 40);
	/* and still nothing is lost: the bound is the link */
	CHECK(c.ns <= c.source_reads * p.sample_bytes * NS_PER_S / p.bytes_per_s * 110 / 100);
	sim_free(sim);
}

static void a_source_that_gets_slow_gets_less(void)
{
	struct sim_params p = params();
	struct sim *sim;
	uint32_t before;

	p.arena_samples = 2000;
	sim = sim_new(&p);
	sim_epoch(sim, 1, 0, 0, p.n);
	before = sim_status(sim).inflight_limit;
	sim_set_source(sim, 3 * NS_PER_MS, 50000000, 4); /* others take most of it */
	sim_epoch(sim, 1, 1, 0, 4000);
	CHECK(sim_status(sim).inflight_limit < before);
	sim_free(sim);
}

static const struct check_test tests[] = {
	{ "a_fast_source_gets_what_the_job_needs_not_all",
	  a_fast_source_gets_what_the_job_needs_not_all },
	{ "requests_the_source_cannot_serve_are_not_sent",
	  requests_the_source_cannot_serve_are_not_sent },
	{ "a_source_that_gets_slow_gets_less", a_source_that_gets_slow_gets_less },
};
CHECK_MAIN(tests)
