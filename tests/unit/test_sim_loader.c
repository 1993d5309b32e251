/* SPDX-License-Identifier: Apache-2.0 */
/* The loader and the devices against arithmetic: PyTorch's recurrence computed batch by batch, the
 * bandwidth of the source, its bursts and its outage. Random shapes of jobs print their seed. */
#include <math.h>

#include "check.h"
#include "sim_kit.h"

struct shape {
	uint32_t samples, batch, workers, prefetch, ranks;
	double read_s, compute_s;
};

/* start(k) = max(end(k-W), taken(k-WP)); taken(k) = max(end(k), computed(k-1)) */
static double expected_seconds(const struct shape *s)
{
	uint32_t per_rank = s->samples / s->ranks;
	uint32_t n = (per_rank + s->batch - 1) / s->batch, ahead = s->workers * s->prefetch;
	double *end = calloc(n, sizeof(*end)), *taken = calloc(n, sizeof(*taken)), computed = 0;

	for (uint32_t k = 0; k < n; k++) {
		uint32_t count = MIN(s->batch, per_rank - k * s->batch);
		double start = 0;

		if (k >= s->workers)
			start = MAX(start, end[k - s->workers]);
		if (k >= ahead)
			start = MAX(start, taken[k - ahead]);
		end[k] = start + count * s->read_s;
		taken[k] = MAX(end[k], computed);
		computed = taken[k] + s->compute_s;
	}
	free(end);
	free(taken);
	return computed;
}

static void check_shape(const struct shape *s)
{
	const struct sim_result *r;
	struct sim_kit kit;
	double want = expected_seconds(s), steps, stall;

	/* The first epoch fills a cache that holds everything: the second one only hits. */
	sim_kit_open(&kit,
		     "samples=%u,sample_bytes=4K,cache_fraction=1,epochs=2,batch=%u,workers=%u,"
		     "prefetch_factor=%u,ranks=%u,compute_ms=%.6f,decode_ms=%.6f,hit_us=0",
		     s->samples, s->batch, s->workers, s->prefetch, s->ranks, s->compute_s * 1e3,
		     s->read_s * 1e3);
	r = sim_kit_run(&kit, "pagecache");
	steps = ceil((double)(s->samples / s->ranks) / s->batch);
	stall = want - steps * s->compute_s;
	printf("# n %u batch %u workers %u prefetch %u ranks %u read %.6f compute %.6f: %.9f, want "
	       "%.9f\n",
	       s->samples, s->batch, s->workers, s->prefetch, s->ranks, s->read_s, s->compute_s,
	       r->epoch[1].seconds, want);
	CHECK(fabs(r->epoch[1].seconds - want) < 1e-9 * (10 + want));
	CHECK(fabs(r->epoch[1].stall_seconds - stall) < 1e-9 * (10 + want));
	sim_kit_close(&kit);
}

static void recurrence(void)
{
	uint64_t state = check_seed();

	for (int i = 0; i < 60; i++) {
		struct shape s = { .batch = 1 + (uint32_t)check_rand_below(&state, 9),
				   .workers = 1 + (uint32_t)check_rand_below(&state, 5),
				   .prefetch = 1 + (uint32_t)check_rand_below(&state, 4),
				   .ranks = 1 + (uint32_t)check_rand_below(&state, 3),
				   .read_s = (double)check_rand_below(&state, 3000) / 1e6,
				   .compute_s = (double)check_rand_below(&state, 9000) / 1e6 };

		s.samples = s.ranks * (1 + (uint32_t)check_rand_below(&state, 200));
		check_shape(&s);
	}
}

/* A synchronous reader sees latency and transfer, one after the other. */
static void one_reader_waits_for_both(void)
{
	const struct sim_result *r;
	struct sim_kit kit;

	sim_kit_open(&kit, "samples=100,sample_bytes=1000000,cache_fraction=0.05,epochs=1,batch=1,"
			   "workers=1,prefetch_factor=1,compute_ms=0,hit_us=0,source_latency_ms=3,"
			   "source_latency_sigma=0,source_mbps=500");
	r = sim_kit_run(&kit, "pagecache");
	CHECK(fabs(r->epoch[0].seconds - 100 * 0.005) < 1e-6);
	sim_kit_close(&kit);
}

/* `parallel` requests at once: 8 readers of a source that serves 2 are no faster than 2. */
static void the_source_serves_so_many(void)
{
	const struct sim_result *r;
	struct sim_kit kit;

	sim_kit_open(&kit, "samples=400,sample_bytes=1000,cache_fraction=0.05,epochs=1,batch=1,"
			   "workers=8,compute_ms=0,hit_us=0,source_latency_ms=3,"
			   "source_latency_sigma=0,source_mbps=100000,source_parallel=2");
	r = sim_kit_run(&kit, "pagecache");
	CHECK(fabs(r->epoch[0].seconds - 200 * 0.003) < 0.01);
	sim_kit_close(&kit);
}

/* 1 GB at 100 MB/s on average takes 10 s; with bursts of +-50 % in periods of 4 s the bytes arrive
 * as 150, 50, 150, ... MB/s: 2 s, 2 s, 2 s, 2 s, then 200 MB at 150 MB/s. */
static void bursts_and_outages_delay_as_computed(void)
{
	const struct sim_result *r;
	struct sim_kit kit;

	sim_kit_open(&kit, "samples=1000,sample_bytes=1000000,cache_fraction=0.1,epochs=1,batch=10,"
			   "workers=8,compute_ms=0,hit_us=0,source_latency_ms=0,source_mbps=100,"
			   "burst_amplitude=0.5,burst_period_s=4,window=64");
	r = sim_kit_run(&kit, "window");
	CHECK(fabs(r->epoch[0].seconds - (8 + 200.0 / 150)) < 0.01);
	CHECK(fabs(r->epoch[0].bound_seconds - (8 + 200.0 / 150)) < 0.01);
	sim_kit_close(&kit);
	sim_kit_open(&kit, "samples=1000,sample_bytes=1000000,cache_fraction=0.1,epochs=1,batch=10,"
			   "workers=8,compute_ms=0,hit_us=0,source_latency_ms=0,source_mbps=100,"
			   "outage_at_s=3,outage_s=7,window=64");
	r = sim_kit_run(&kit, "window");
	CHECK(fabs(r->epoch[0].seconds - 17) < 0.01);
	sim_kit_close(&kit);
}

/* Half of the bandwidth that is needed, nothing cached: as long as the transfer takes, for every
 * policy, since requests in flight hide the latency. */
static void bandwidth_is_kept_exactly(void)
{
	const struct sim_result *r;
	struct sim_kit kit;

	sim_kit_open(&kit, "samples=2000,sample_bytes=100000,cache_fraction=0.05,epochs=2,batch=10,"
			   "workers=8,compute_ms=10,source_latency_ms=2,source_mbps=50,window=80");
	r = sim_kit_run(&kit, "window");
	CHECK(fabs(r->epoch[0].seconds + r->epoch[1].seconds - 8) < 0.1);
	CHECK(sim_stall_pct(r, 0) > 95 && sim_stall_pct(r, 0) < 105);
	sim_kit_close(&kit);
}

static const struct check_test tests[] = {
	{ "recurrence", recurrence },
	{ "one_reader_waits_for_both", one_reader_waits_for_both },
	{ "the_source_serves_so_many", the_source_serves_so_many },
	{ "bursts_and_outages_delay_as_computed", bursts_and_outages_delay_as_computed },
	{ "bandwidth_is_kept_exactly", bandwidth_is_kept_exactly },
};

CHECK_MAIN(tests)
