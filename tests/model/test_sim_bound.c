/* SPDX-License-Identifier: Apache-2.0 */
/* Exact MIN against every possible choice of what to keep, on small random traces; and the lower
 * bound against every policy on random jobs, sources and caches: nothing ends an epoch before it or
 * reads the source less often. Policy clairfs has its stage beside the cache, and some memory for
 * what is on its way, so its bound is that of a cache that has these, too. */
#include <string.h>

#include "check.h"
#include "clairfs/plan.h"
#include "sim_kit.h"

#define TRACE_MAX 16u
#define SAMPLES 7u

/* Fewest misses of trace[i..] with `cached` (a set of samples) kept: after each read any subset of
 * cached + the sample, of at most `slots`, may stay; dropping more than needed never helps. */
static uint32_t fewest(const uint32_t *trace, uint32_t i, uint32_t length, uint32_t cached,
		       uint32_t slots, uint32_t *memo)
{
	uint32_t with, best, *known = &memo[i << SAMPLES | cached];

	if (i == length)
		return 0;
	if (*known)
		return *known - 1;
	with = cached | 1u << trace[i];
	best = UINT32_MAX;
	if ((uint32_t)__builtin_popcount(with) <= slots)
		best = fewest(trace, i + 1, length, with, slots, memo);
	for (uint32_t s = 0; best == UINT32_MAX && s < SAMPLES; s++) {
		uint32_t least = UINT32_MAX;

		for (uint32_t drop = 0; drop < SAMPLES; drop++)
			if (with >> drop & 1)
				least = MIN(least, fewest(trace, i + 1, length,
							  with & ~(1u << drop), slots, memo));
		best = least;
	}
	best += !(cached >> trace[i] & 1);
	*known = best + 1;
	return best;
}

static void belady_is_the_best_choice(void)
{
	uint32_t *memo = malloc((TRACE_MAX + 1) << SAMPLES << 2);
	uint64_t state = check_seed();

	for (int round = 0; round < 150; round++) {
		uint32_t length = 1 + (uint32_t)check_rand_below(&state, TRACE_MAX),
			 trace[TRACE_MAX];
		uint32_t slots = 1 + (uint32_t)check_rand_below(&state, 4), want;
		char options[1024], path[SIM_KIT_PATH];

		for (uint32_t i = 0; i < length; i++)
			trace[i] = (uint32_t)check_rand_below(&state, SAMPLES);
		snprintf(options, sizeof(options),
			 "samples=%u,sample_bytes=4K,cache_bytes=%u,window=0,epochs=1,batch=1,"
			 "workers=1,prefetch_factor=1,compute_ms=0,order=list:path=%s",
			 SAMPLES, slots * 4096, sim_kit_trace(trace, length, path));
		memset(memo, 0, (TRACE_MAX + 1) << SAMPLES << 2);
		want = fewest(trace, 0, length, 0, slots, memo);
		printf("# round %d: length %u, slots %u, misses %u\n", round, length, slots, want);
		CHECK_U64(sim_kit_source_reads("belady", options), want);
	}
	free(memo);
}

/* A job drawn at random; false when no cache of that size could serve it. */
static bool draw_job(struct sim_kit *kit, uint64_t *state)
{
	uint32_t nodes = check_rand_below(state, 3) ? 1 : 1 + (uint32_t)check_rand_below(state, 6);
	uint32_t jobs = check_rand_below(state, 4) ? 1 : 2;
	double amplitude = check_rand_below(state, 3) ? 0 : 0.9;

	return sim_kit_is_possible(
		kit,
		"seed=%u,samples=%u,sample_bytes=%u,sample_bytes_stdev=%u,cache_fraction=%.3f,"
		"store_fraction=%.3f,nodes=%u,ranks=%u,jobs=%u,epochs=%u,batch=%u,workers=%u,"
		"compute_ms=%.3f,decode_ms=%.3f,source_latency_ms=%.3f,source_latency_sigma=%.2f,"
		"source_mbps=%.3f,source_parallel=%u,inflight=%u,window=%u,burst_amplitude=%.2f,"
		"burst_period_s=%.3f,outage_at_s=%.2f,outage_s=%.2f,valid_samples=%u,"
		"valid_every=%u",
		(uint32_t)check_rand_below(state, 1000),
		300 + (uint32_t)check_rand_below(state, 2000),
		1000 + (uint32_t)check_rand_below(state, 90000),
		(uint32_t)check_rand_below(state, 2) * (uint32_t)check_rand_below(state, 40000),
		0.1 + (double)check_rand_below(state, 1000) / 900,
		(double)check_rand_below(state, 2) * (double)check_rand_below(state, 700) / 900,
		nodes, 1 + (uint32_t)check_rand_below(state, 3), jobs,
		2 + (uint32_t)check_rand_below(state, 3), 1 + (uint32_t)check_rand_below(state, 20),
		1 + (uint32_t)check_rand_below(state, 8),
		(double)check_rand_below(state, 10000) / 1e3,
		(double)check_rand_below(state, 2) * (double)check_rand_below(state, 2000) / 1e3,
		(double)check_rand_below(state, 5000) / 1e3,
		(double)check_rand_below(state, 100) / 100,
		5 + (double)check_rand_below(state, 200), 1 + (uint32_t)check_rand_below(state, 64),
		1 + (uint32_t)check_rand_below(state, 64), (uint32_t)check_rand_below(state, 300),
		amplitude, 0.1 + (double)check_rand_below(state, 2000) / 1e3,
		(double)check_rand_below(state, 3), (double)check_rand_below(state, 2),
		(uint32_t)check_rand_below(state, 2) * (uint32_t)check_rand_below(state, 500),
		1 + (uint32_t)check_rand_below(state, 2));
}

static void random_job(struct sim_kit *kit, uint64_t *state)
{
	int tries = 1;

	while (!draw_job(kit, state))
		CHECK(tries++ < 10);
}

static void bound_of(struct sim_kit *kit, uint64_t more_bytes, struct sim_result *ret)
{
	struct sim_facts f;
	struct err err = { 0 };

	sim_setup_facts(kit->setup, &f);
	CHECK_INT(sim_setup_resize(kit->setup, f.cache_bytes + more_bytes, f.store_bytes, &err), 0);
	CHECK_INT(sim_run(kit->setup, "bound", NULL, ret, &err), 0);
	CHECK_INT(sim_setup_resize(kit->setup, f.cache_bytes, f.store_bytes, &err), 0);
}

static uint64_t beside_the_cache(const struct sim_kit *kit)
{
	struct sim_facts f;

	sim_setup_facts(kit->setup, &f);
	return f.stage_bytes + plan_spare_bytes(f.cache_bytes);
}

static void nothing_beats_the_bound(void)
{
	uint64_t state = check_seed();

	for (int round = 0; round < 15; round++) {
		struct sim_result bound = { .epoch = NULL }, more = { .epoch = NULL };
		struct sim_kit kit;

		random_job(&kit, &state);
		bound_of(&kit, 0, &bound);
		bound_of(&kit, beside_the_cache(&kit), &more);
		for (const char *const *p = sim_policies(); *p; p++) {
			const struct sim_result *r = sim_kit_run(&kit, *p);
			const struct sim_result *b = strcmp(*p, "clairfs") ? &bound : &more;
			double ours = 0, least = 0;
			uint64_t reads = 0, needed = 0;

			for (uint64_t e = 0; e < r->n_epochs; e++) {
				ours += r->epoch[e].seconds;
				least += b->epoch[e].seconds;
				reads += r->epoch[e].source_reads;
				needed += b->epoch[e].source_reads;
				printf("# round %d, %s, epoch %d: %.6f s, bound %.6f s; %llu reads, "
				       "bound %llu\n",
				       round, *p, (int)e, ours, least, (unsigned long long)reads,
				       (unsigned long long)needed);
				CHECK(ours >= least * (1 - 1e-9));
				CHECK(r->epoch[e].bound_seconds == bound.epoch[e].seconds);
				CHECK(reads >= needed);
			}
		}
		sim_result_fini(&bound);
		sim_result_fini(&more);
		sim_kit_close(&kit);
	}
}

static const struct check_test tests[] = {
	{ "belady_is_the_best_choice", belady_is_the_best_choice },
	{ "nothing_beats_the_bound", nothing_beats_the_bound },
};

CHECK_MAIN(tests)
