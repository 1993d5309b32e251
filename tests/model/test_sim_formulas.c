/* SPDX-License-Identifier: Apache-2.0 */
/* Hit ratios against what can be derived for shuffled epochs, and stalls against those of an
 * independent simulation of the same job: one node reading everything once per epoch, and a node
 * among 4 or 16 that reads a random share. The tolerance is several standard deviations of runs of
 * this length; seeds are fixed, so a failure is a change of the model. */
#include <math.h>

#include "check.h"
#include "sim_kit.h"

static void check_hits(struct sim_kit *kit, const char *policy, uint64_t from, double want,
		       double tolerance)
{
	double got = sim_hit_ratio(sim_kit_run(kit, policy), from);

	printf("# %-12s %.4f, want %.4f +- %.3f\n", policy, got, want, tolerance);
	CHECK(fabs(got - want) <= tolerance);
}

/* Share f of the dataset cached, no prefetching. */
static void one_node(void)
{
	static const double shares[] = { 0.1, 0.25, 0.5, 0.75, 0.9 };

	for (size_t i = 0; i < ARRAY_LEN(shares); i++) {
		double f = shares[i], h = f;
		struct sim_kit kit;

		sim_kit_open(&kit,
			     "samples=6000,sample_bytes=4K,epochs=7,window=0,batch=8,workers=2,"
			     "compute_ms=0,cache_fraction=%.2f",
			     f);
		printf("# f = %.2f\n", f);
		check_hits(&kit, "belady", 1, f, 0.003);
		check_hits(&kit, "never-evict", 1, f, 0.003);
		check_hits(&kit, "nopfs", 1, f, 0.003);
		check_hits(&kit, "lru", 1, f + (1 - f) * log(1 - f), 0.01);
		check_hits(&kit, "pagecache", 1, f + (1 - f) * log(1 - f), 0.01);
		check_hits(&kit, "clock", 1, f + (1 - f) * log(1 - f), 0.02);
		if (f <= 1 - exp(-1))
			check_hits(&kit, "fifo", 2, -f - log(1 - f), 0.01);
		/* h = -f ln(1 - f + f e^(-1/f)) */
		h = -f * log(1 - f + f * exp(-1 / f));
		check_hits(&kit, "random", 2, h, 0.015);
		sim_kit_close(&kit);
	}
}

/* Whole runs from a cold start; the figures are those of an independent simulation. */
static void several_nodes(void)
{
	static const struct {
		uint32_t nodes, epochs;
		double f, lru, never, nopfs, min;
	} rows[] = {
		{ 4, 40, 0.10, 0.020, 0.098, 0.140, 0.315 },
		{ 4, 40, 0.50, 0.409, 0.480, 0.559, 0.736 },
		{ 16, 90, 0.10, 0.070, 0.098, 0.159, 0.376 },
		{ 16, 90, 0.25, 0.220, 0.242, 0.339, 0.561 },
		{ 64, 200, 0.05, 0.042, 0.050, 0.099, 0.277 },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct sim_kit kit;

		sim_kit_open(&kit,
			     "samples=8000,sample_bytes=4K,window=0,batch=4,workers=2,"
			     "compute_ms=0,nodes=%u,epochs=%u,cache_fraction=%.2f",
			     rows[i].nodes, rows[i].epochs, rows[i].f);
		printf("# %u nodes, f = %.2f\n", rows[i].nodes, rows[i].f);
		check_hits(&kit, "lru", 0, rows[i].lru, 0.01);
		check_hits(&kit, "never-evict", 0, rows[i].never, 0.01);
		check_hits(&kit, "nopfs", 0, rows[i].nopfs, 0.01);
		check_hits(&kit, "belady", 0, rows[i].min, 0.01);
		check_hits(&kit, "bound", 0, rows[i].min, 0.01);
		sim_kit_close(&kit);
	}
}

/* Two jobs in step over one dataset share a cache: MIN f = .25 hits .499, LRU .141. */
static void two_jobs_share(void)
{
	struct sim_kit kit;

	sim_kit_open(&kit, "samples=8000,sample_bytes=4K,epochs=10,window=0,batch=8,workers=1,"
			   "prefetch_factor=1,compute_ms=100,source_latency_ms=0.01,"
			   "source_latency_sigma=0,cache_fraction=0.25,jobs=2");
	check_hits(&kit, "belady", 2, 0.499, 0.015);
	check_hits(&kit, "lru", 2, 0.141, 0.015);
	check_hits(&kit, "never-evict", 2, 0.25, 0.01);
	sim_kit_close(&kit);
}

/* The job of the reference: 16 workers, batch 64, 1 ms of CPU a sample, 10,000 samples/s; latency
 * 1.5 ms; a quarter of its 10^5 samples and of its window of 4096. Stall in percent of compute. */
static void stalls(void)
{
	static const struct {
		double f, rho;
		const char *policy;
		double want;
	} rows[] = {
		{ 0.25, 0.5, "pagecache", 99 },   { 0.25, 0.5, "window", 100 },
		{ 0.25, 0.5, "never-evict", 58 }, { 0.25, 0.5, "belady", 70 },
		{ 0.5, 0.5, "lru", 69 },          { 0.5, 0.5, "never-evict", 8.2 },
		{ 0.5, 0.5, "belady", 45 },       { 0.5, 0.25, "never-evict", 116 },
		{ 0.5, 1.25, "window", 0.9 },     { 0.5, 0.8, "never-evict", 0.7 },
		{ 0.75, 0.25, "lru", 139 },       { 0.5, 0.8, "lru", 10.5 },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct sim_kit kit;
		double got;

		sim_kit_open(&kit,
			     "samples=25000,sample_bytes=110000,epochs=3,window=1024,inflight=64,"
			     "batch=64,workers=16,prefetch_factor=2,decode_ms=1,compute_ms=6.4,"
			     "source_latency_ms=1.5,hit_us=0,cache_fraction=%.2f,source_mbps=%.1f",
			     rows[i].f, rows[i].rho * 1100);
		got = sim_stall_pct(sim_kit_run(&kit, rows[i].policy), 1);
		printf("# f %.2f rho %.2f %-12s %.1f %%, want %.1f\n", rows[i].f, rows[i].rho,
		       rows[i].policy, got, rows[i].want);
		/* A quarter of the length: starts of epochs weigh four times as much. */
		CHECK(fabs(got - rows[i].want) <= 3.5 + rows[i].want * 0.04);
		sim_kit_close(&kit);
	}
}

static const struct check_test tests[] = {
	{ "one_node", one_node },
	{ "several_nodes", several_nodes },
	{ "two_jobs_share", two_jobs_share },
	{ "stalls", stalls },
};

CHECK_MAIN(tests)
