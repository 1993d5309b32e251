/* SPDX-License-Identifier: Apache-2.0 */
/* Each policy against a trace that can be followed by hand, one reader, nothing prefetched; what
 * the policies with a window do besides; and that a run is a function of its parameters. */
#include <string.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "sim_kit.h"

/* One reader, three samples fit. The trace everybody learns FIFO's anomaly with. */
static const uint32_t trace[] = { 0, 1, 2, 3, 0, 1, 4, 0, 1, 2, 3, 4 };
#define ONE_READER "batch=1,workers=1,prefetch_factor=1,compute_ms=0,source_latency_sigma=0"

static void check_misses(const char *policy, uint64_t want)
{
	char options[1024], path[SIM_KIT_PATH];
	uint64_t reads;

	snprintf(
		options, sizeof(options),
		"samples=5,sample_bytes=4K,cache_bytes=12K,window=0,epochs=1,order=list:path=%s," ONE_READER,
		sim_kit_trace(trace, ARRAY_LEN(trace), path));
	reads = sim_kit_source_reads(policy, options);
	printf("# %s: %llu\n", policy, (unsigned long long)reads);
	CHECK_U64(reads, want);
}

static void traces_by_hand(void)
{
	check_misses("lru", 10);
	check_misses("pagecache", 10);
	check_misses("fifo", 9);
	check_misses("clock", 10);
	/* Keeps 0, 1, 2: misses these once, 3 and 4 always. */
	check_misses("never-evict", 7);
	/* 0 and 1 are read three times, the others twice: 0, 1, 2 again. */
	check_misses("nopfs", 7);
	check_misses("belady", 7);
	check_misses("window", 12);
}

static void random_evicts_something_else(void)
{
	char options[1024], path[SIM_KIT_PATH];
	uint64_t reads;

	snprintf(
		options, sizeof(options),
		"samples=5,sample_bytes=4K,cache_bytes=12K,window=0,epochs=1,order=list:path=%s," ONE_READER,
		sim_kit_trace(trace, ARRAY_LEN(trace), path));
	reads = sim_kit_source_reads("random", options);
	CHECK(reads >= 7 && reads <= 12);
}

static void lru_of_a_cyclic_scan_hits_nothing(void)
{
	CHECK_U64(sim_kit_source_reads("lru", "samples=100,sample_bytes=4K,cache_fraction=0.9,"
					      "window=0,epochs=5,order=sequential," ONE_READER),
		  500);
	CHECK_U64(sim_kit_source_reads("never-evict",
				       "samples=100,sample_bytes=4K,cache_fraction=0.9,window=0,"
				       "epochs=5,order=sequential," ONE_READER),
		  100 + 4 * 10);
}

/* Nothing leaves a cache that everything fits into, and nothing is read twice. */
static void all_fits(void)
{
	for (const char *const *p = sim_policies(); *p; p++) {
		uint64_t reads = sim_kit_source_reads(
			*p, "samples=1000,sample_bytes=4K,cache_fraction=2,epochs=4,window=64,"
			    "batch=8,workers=2,compute_ms=1,source_latency_ms=0.5,"
			    "source_mbps=100");

		printf("# %s: %llu\n", *p, (unsigned long long)reads);
		if (strcmp(*p, "window") == 0)
			CHECK(reads > 3900 && reads <= 4000);
		else if (strcmp(*p, "clairfs") == 0) /* a demand read is not kept */
			CHECK(reads >= 1000 && reads < 1100);
		else
			CHECK_U64(reads, 1000);
	}
}

/* With enough in flight a window hides all of the latency but the start of each epoch, and reads
 * everything once. */
static void window_hides_latency(void)
{
	const struct sim_result *r;
	struct sim_kit kit;

	sim_kit_open(&kit, "samples=4000,sample_bytes=64K,cache_fraction=0.1,epochs=3,batch=10,"
			   "workers=4,compute_ms=10,source_latency_ms=5,source_latency_sigma=0,"
			   "source_mbps=1000,window=256,inflight=32");
	r = sim_kit_run(&kit, "pagecache");
	CHECK(sim_stall_pct(r, 1) > 20);
	r = sim_kit_run(&kit, "window");
	CHECK(sim_stall_pct(r, 1) < 1);
	CHECK_U64(r->epoch[0].reads, 4000);
	/* The edge of the window: some of the next epoch comes before this one ends; what is due in
	 * both is read twice. */
	printf("# %llu %llu\n", (unsigned long long)r->epoch[0].source_reads,
	       (unsigned long long)r->epoch[1].source_reads);
	CHECK(r->epoch[1].source_reads <= 4020 && r->epoch[1].source_reads > 4000 - 256);
	sim_kit_close(&kit);
}

/* A sample that workers wait for is asked for once, however many wait. */
static void late_reads_join(void)
{
	const struct sim_result *r;
	struct sim_kit kit;

	sim_kit_open(&kit, "samples=500,sample_bytes=64K,cache_fraction=0.2,epochs=1,batch=1,"
			   "workers=8,compute_ms=0,source_latency_ms=5,window=64,inflight=64");
	r = sim_kit_run(&kit, "lru");
	CHECK(r->epoch[0].read_class[SIM_LATE] > 0);
	CHECK_U64(r->epoch[0].source_reads, 500);
	sim_kit_close(&kit);
}

static void every_read_is_in_one_class(void)
{
	for (const char *const *p = sim_policies(); *p; p++) {
		const struct sim_result *r;
		struct sim_kit kit;

		sim_kit_open(&kit, "samples=2000,sample_bytes=20000,sample_bytes_stdev=9000,"
				   "cache_fraction=0.3,store_fraction=0.2,epochs=3,ranks=2,batch=4,"
				   "workers=3,compute_ms=2,source_mbps=60,jobs=2,window=100");
		r = sim_kit_run(&kit, *p);
		for (uint64_t e = 0; e < r->n_epochs; e++) {
			uint64_t sum = 0;

			for (int c = 0; c < SIM_CLASSES; c++)
				sum += r->epoch[e].read_class[c];
			printf("# %s, epoch %llu\n", *p, (unsigned long long)e);
			CHECK_U64(sum, 4000);
			CHECK_U64(r->epoch[e].reads, 4000);
		}
		sim_kit_close(&kit);
	}
}

/* The store takes what fits once and is never written again. */
static void pins_are_written_once(void)
{
	const struct sim_result *r;
	struct sim_kit kit;
	uint64_t writes = 0;

	sim_kit_open(&kit, "samples=4000,sample_bytes=64K,cache_fraction=0.1,store_fraction=0.5,"
			   "epochs=4,batch=10,workers=4,compute_ms=10,source_mbps=80");
	r = sim_kit_run(&kit, "clairfs");
	for (uint64_t e = 0; e < 4; e++)
		writes += r->epoch[e].store_writes;
	CHECK_U64(writes, 2000);
	CHECK_U64(r->epoch[2].store_writes + r->epoch[3].store_writes, 0);
	CHECK(r->epoch[3].read_class[SIM_STORE] < 200);
	CHECK(r->epoch[3].source_reads < 2000);
	sim_kit_close(&kit);
}

static void same_seed_same_result(void)
{
	for (const char *const *p = sim_policies(); *p; p++) {
		struct sim_kit a, b, c;

		sim_kit_open(&a, "samples=1000,sample_bytes=64K,sample_bytes_stdev=8K,epochs=3");
		sim_kit_open(&b, "samples=1000,sample_bytes=64K,sample_bytes_stdev=8K,epochs=3");
		sim_kit_open(&c,
			     "samples=1000,sample_bytes=64K,sample_bytes_stdev=8K,epochs=3,seed=2");
		sim_kit_run(&a, *p);
		sim_kit_run(&b, *p);
		sim_kit_run(&c, *p);
		printf("# %s\n", *p);
		CHECK_BYTES(a.result.epoch, b.result.epoch, 3 * sizeof(struct sim_epoch));
		CHECK(memcmp(a.result.epoch, c.result.epoch, 3 * sizeof(struct sim_epoch)) != 0);
		sim_kit_close(&a);
		sim_kit_close(&b);
		sim_kit_close(&c);
	}
}

static const struct check_test tests[] = {
	{ "traces_by_hand", traces_by_hand },
	{ "random_evicts_something_else", random_evicts_something_else },
	{ "lru_of_a_cyclic_scan_hits_nothing", lru_of_a_cyclic_scan_hits_nothing },
	{ "all_fits", all_fits },
	{ "window_hides_latency", window_hides_latency },
	{ "late_reads_join", late_reads_join },
	{ "every_read_is_in_one_class", every_read_is_in_one_class },
	{ "pins_are_written_once", pins_are_written_once },
	{ "same_seed_same_result", same_seed_same_result },
};

CHECK_MAIN(tests)
