/* SPDX-License-Identifier: Apache-2.0 */
/* Edges of size, with the daemon's plan in virtual time, so these are counts: a cache as large as
 * the dataset reads each sample from the source once, in all; and a small dataset gets the hits
 * that a large one gets, but for the readers' window. */
#include <stdio.h>

#include "check.h"
#include "clairfs/base/cleanup.h"
#include "sim_kit.h"

#define BYTES 110592.0 /* whole pages */

/* The source gives rho times what the job takes. */
static void whole_run(double rho, double fraction, uint64_t jobs, uint64_t valid)
{
	const uint64_t n = 4000;
	struct sim_kit kit;
	const struct sim_result *r;
	uint64_t reads = 0;

	sim_kit_open(&kit,
		     "samples=%llu,sample_bytes=110592,epochs=4,cache_fraction=%g,batch=32,"
		     "workers=8,compute_ms=6.4,decode_ms=1,source_latency_ms=1.5,source_mbps=%g,"
		     "jobs=%llu,valid_samples=%llu",
		     (unsigned long long)n, fraction, rho * 32 * BYTES / 6400,
		     (unsigned long long)jobs, (unsigned long long)valid);
	r = sim_kit_run(&kit, "clairfs");
	for (uint64_t e = 0; e < r->n_epochs; e++)
		reads += r->epoch[e].source_reads;
	printf("# source %.2f of what %llu jobs take, cache %.1f: %llu reads of %llu samples\n",
	       rho, (unsigned long long)jobs, fraction, (unsigned long long)reads,
	       (unsigned long long)(n + valid));
	CHECK_U64(reads, n + valid);
	sim_kit_close(&kit);
}

static void a_cache_of_everything_reads_everything_once(void)
{
	static const double rhos[] = { 0.3, 0.8, 1.25, 4 };

	for (uint32_t i = 0; i < ARRAY_LEN(rhos); i++) {
		whole_run(rhos[i], 1, 1, 0);
		whole_run(rhos[i], 1.5, 1, 0);
		whole_run(rhos[i], 1, 2, 0);
		whole_run(rhos[i], 1, 5, 0);
		whole_run(rhos[i], 1, 1, 300);
	}
}

/* Samples of eight units each (seven and a bit). */
static void run_of_cut_samples(const char *more, uint64_t *ret_source, double *ret_stall_pct,
			       double *ret_bound_pct)
{
	const uint64_t n = 160, units = 8;
	const struct sim_result *r;
	struct sim_kit kit;

	sim_kit_open(&kit,
		     "samples=%llu,sample_bytes=30408704,epochs=4,batch=4,workers=4,compute_ms=240,"
		     "source_latency_ms=2,%s",
		     (unsigned long long)n, more);
	r = sim_kit_run(&kit, "clairfs");
	*ret_source = 0;
	for (uint64_t e = 0; e < r->n_epochs; e++) {
		uint64_t sum = 0;

		for (uint32_t c = 0; c < SIM_CLASSES; c++)
			sum += r->epoch[e].read_class[c];
		CHECK_U64(sum, n * units);
		CHECK_U64(r->epoch[e].reads, n * units);
		*ret_source += r->epoch[e].source_reads;
	}
	*ret_stall_pct = sim_stall_pct(r, 1);
	*ret_bound_pct = sim_bound_stall_pct(r, 1);
	printf("# %s: %llu reads, stall %.1f %%, bound %.1f %%\n", more,
	       (unsigned long long)*ret_source, *ret_stall_pct, *ret_bound_pct);
	sim_kit_close(&kit);
}

static void samples_that_are_cut_are_read_once_or_in_time(void)
{
	double stall_pct, bound_pct;
	uint64_t source;

	run_of_cut_samples("cache_fraction=1,source_mbps=600", &source, &stall_pct, &bound_pct);
	CHECK_U64(source, 160 * 8);
	CHECK(stall_pct < 0.1);
	/* little room, and a link that suffices: but for the workers' start in each epoch */
	run_of_cut_samples("cache_bytes=256M,source_mbps=1500", &source, &stall_pct, &bound_pct);
	CHECK(bound_pct == 0 && stall_pct < 5);
	/* the link is what counts */
	run_of_cut_samples("cache_fraction=0.4,source_mbps=250", &source, &stall_pct, &bound_pct);
	CHECK(bound_pct > 10 && stall_pct < bound_pct + 10 && source <= 1280 + 3 * 768 + 64);
}

static void small_datasets_lose_no_more_than_the_loaders_window(void)
{
	static const uint64_t sizes[] = { 64, 128, 256, 512, 1024 };
	const uint64_t window = (2 * 2 + 1) * 2; /* workers x prefetch_factor + 1 batches */

	for (uint32_t i = 0; i < 3 * ARRAY_LEN(sizes); i++) {
		uint64_t n = sizes[i / 3], kept = n / 4 * (1 + i % 3), most = 0;
		const struct sim_result *r;
		struct sim_kit kit;

		sim_kit_open(&kit,
			     "samples=%llu,sample_bytes=110592,epochs=12,cache_bytes=%llu,batch=2,"
			     "workers=2,compute_ms=6.4,decode_ms=1,source_latency_ms=1.5,"
			     "source_mbps=1000",
			     (unsigned long long)n, (unsigned long long)(kept * 110592));
		r = sim_kit_run(&kit, "clairfs");
		for (uint64_t e = 2; e < r->n_epochs; e++)
			most = MAX(most, r->epoch[e].source_reads);
		printf("# %llu samples, room for %llu: at most %llu reads an epoch\n",
		       (unsigned long long)n, (unsigned long long)kept, (unsigned long long)most);
		/* n / 64: what is in flight when readers are faster than the source for a while */
		CHECK(most <= n - kept + window + n / 64);
		sim_kit_close(&kit);
	}
}

/* One reader that is faster than the source, so that its reads are late while the number of requests
 * that serves it is still being found out. That is no source that swings, for which samples worth
 * keeping would be given up; and while a reader waits more requests are tried soon. */
static void a_limit_that_is_found_out_costs_little(void)
{
	static const struct {
		uint64_t latency_ms, seed;
		double stall_s; /* at most */
	} runs[] = { { 5, 1, 1.2 }, { 5, 2, 1.2 }, { 10, 1, 2.15 }, { 10, 4, 2.3 } };

	for (uint32_t i = 0; i < ARRAY_LEN(runs); i++) {
		const struct sim_result *r;
		struct sim_kit kit;
		uint64_t reads = 0;
		double stall_s = 0;

		sim_kit_open(&kit,
			     "samples=4000,sample_bytes=112640,epochs=4,cache_fraction=0.5,batch=1,"
			     "workers=1,prefetch_factor=1,compute_ms=0,source_mbps=100000,"
			     "source_latency_ms=%llu,seed=%llu",
			     (unsigned long long)runs[i].latency_ms,
			     (unsigned long long)runs[i].seed);
		r = sim_kit_run(&kit, "clairfs");
		for (uint64_t e = 0; e < r->n_epochs; e++)
			reads += r->epoch[e].source_reads;
		for (uint64_t e = 0; e < r->n_epochs; e++)
			stall_s += r->epoch[e].stall_seconds;
		printf("# %llu ms, seed %llu: %llu reads, 10000 must be; waits %.2f s\n",
		       (unsigned long long)runs[i].latency_ms, (unsigned long long)runs[i].seed,
		       (unsigned long long)reads, stall_s);
		CHECK(reads <= 10400);
		CHECK(stall_s <= runs[i].stall_s);
		sim_kit_close(&kit);
	}
}

static double validations(struct sim_kit *kit, const char *policy, uint64_t from, uint64_t every)
{
	const struct sim_result *r = sim_kit_run(kit, policy);
	double stall = 0;

	for (uint64_t e = 0; e < r->n_epochs; e++) {
		printf("# %s, epoch %d: %.6f s for the validation set, %.6f s of it stall\n",
		       policy, (int)e, r->epoch[e].valid_seconds, r->epoch[e].valid_stall_seconds);
		CHECK_U64(r->epoch[e].valid_reads, (e + 1) % every ? 0 : 600);
		CHECK(r->epoch[e].valid_seconds <= r->epoch[e].seconds);
		stall += e >= from ? r->epoch[e].valid_stall_seconds : 0;
	}
	return stall;
}

/* From the second time on it is as with a window that knew of it from the start. */
static void a_validation_set_is_waited_for_once(void)
{
	for (uint64_t every = 1; every <= 3; every++) {
		struct sim_kit kit;
		double ours, known, unknown;

		sim_kit_open(
			&kit,
			"samples=4000,sample_bytes=110592,epochs=9,cache_fraction=0.3,batch=32,"
			"workers=8,compute_ms=6.4,decode_ms=1,source_latency_ms=4,"
			"source_mbps=900,valid_samples=600,valid_every=%llu,hit_us=0",
			(unsigned long long)every);
		ours = validations(&kit, "clairfs", every, every);
		known = validations(&kit, "window", every, every);
		unknown = validations(&kit, "pagecache", every, every);
		printf("# after every %d: %.4f s, known from the start %.4f, page cache %.4f\n",
		       (int)every, ours, known, unknown);
		CHECK(ours <= 1.05 * known);
		CHECK(2 * ours <= unknown);
		sim_kit_close(&kit);
	}
}

static const struct check_test tests[] = {
	{ "a_validation_set_is_waited_for_once", a_validation_set_is_waited_for_once },
	{ "a_cache_of_everything_reads_everything_once",
	  a_cache_of_everything_reads_everything_once },
	{ "samples_that_are_cut_are_read_once_or_in_time",
	  samples_that_are_cut_are_read_once_or_in_time },
	{ "small_datasets_lose_no_more_than_the_loaders_window",
	  small_datasets_lose_no_more_than_the_loaders_window },
	{ "a_limit_that_is_found_out_costs_little", a_limit_that_is_found_out_costs_little },
};

CHECK_MAIN(tests)
