/* SPDX-License-Identifier: Apache-2.0 */
/* What recovering a seed costs: how many seeds a core sieves in a second with each instruction set
 * this machine has, and what a search with everything it needs manages on one thread. The sample:
 * 64 opens of 1281167 samples, four loader workers. `search` is measured over a range without the
 * seed, since that is the work of a full search.
 *
 * One JSON line per result; value in millions of seeds per second and core (the aim: 12 with
 * AVX-512, 8 with AVX2), the median of 5; core_seconds: for all 2^32 at that rate. The instruction
 * set that searches use is "best". */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "clairfs/order.h"
#include "clairfs/recover.h"

#define ROUNDS 5
#define N 1281167
#define SEED 3141592653
#define SEEN 64
#define WORKERS 4
#define BATCH 64

static void fail(const struct err *err)
{
	fprintf(stderr, "bench_recover: %s\n", err->msg);
	exit(1);
}

static double now_s(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* What the watcher sees: workers in turn, each through its own batches. */
static void make_seen(const char *text, uint64_t rank, uint32_t *seen)
{
	struct err err = { 0 };
	struct order_spec *spec;
	struct order *order;
	uint32_t *sample;
	uint64_t length;

	if (order_spec_parse(text, &spec, &err) < 0 ||
	    order_new(spec, &(struct order_params){ .n = N }, &order, &err) < 0 ||
	    order_rank_epoch(order, 0, rank, &sample, &length, &err) < 0)
		fail(&err);
	for (uint32_t i = 0; i < SEEN; i++)
		seen[i] = sample[i % WORKERS * BATCH + i / WORKERS];
	free(sample);
	order_free(order);
	order_spec_free(spec);
}

static void print(const char *name, const char *isa, uint64_t seeds, double *seconds)
{
	double rate;

	qsort(seconds, ROUNDS, sizeof(*seconds), compare_double);
	rate = (double)seeds / seconds[ROUNDS / 2];
	printf("{\"name\": \"%s\", \"isa\": \"%s\", \"is_best\": %s, "
	       "\"unit\": \"Mseeds/s/core\", \"value\": %.2f, "
	       "\"low\": %.2f, \"high\": %.2f, \"core_seconds\": %.0f, \"rounds\": %d}\n",
	       name, isa, strcmp(isa, recover_isa_name(recover_isa_best())) == 0 ? "true" : "false",
	       rate / 1e6, (double)seeds / seconds[ROUNDS - 1] / 1e6,
	       (double)seeds / seconds[0] / 1e6, 4294967296.0 / rate, ROUNDS);
	fflush(stdout);
}

static void bench_sieve(const char *name, const struct recover_params *params, uint64_t seeds)
{
	const struct recover_isa *isa;
	struct err err = { 0 };

	for (unsigned i = 0; (isa = recover_isa(i)); i++) {
		double seconds[ROUNDS];
		uint64_t left, count = strcmp(recover_isa_name(isa), "scalar") == 0 ? seeds / 16
										     : seeds;

		for (int r = 0; recover_isa_works(isa) && r < ROUNDS; r++) {
			double start = now_s(CLOCK_THREAD_CPUTIME_ID);

			if (recover_isa_run(isa, params, 0, count, &left, &err) < 0)
				fail(&err);
			seconds[r] = now_s(CLOCK_THREAD_CPUTIME_ID) - start;
		}
		if (recover_isa_works(isa))
			print(name, recover_isa_name(isa), count, seconds);
	}
}

static void bench_search(const char *name, struct recover_params params, uint64_t seeds)
{
	double seconds[ROUNDS];
	struct recover_found found;
	struct err err = { 0 };

	params.threads = 1;
	params.effort = RECOVER_RANGE;
	params.first_seed = 100000000;
	params.last_seed = params.first_seed + (uint32_t)seeds - 1;
	for (int r = 0; r < ROUNDS; r++) {
		double start = now_s(CLOCK_PROCESS_CPUTIME_ID);

		if (recover_search(&params, &found, &err) != -ENOENT)
			fail(&err);
		seconds[r] = now_s(CLOCK_PROCESS_CPUTIME_ID) - start;
	}
	print(name, recover_isa_name(recover_isa_best()), seeds, seconds);
}

/* bench_recover [SEEDS] */
int main(int argc, char **argv)
{
	uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 32 << 20;
	const uint32_t world[] = { 8 };
	uint32_t seen[SEEN];
	struct recover_params params;

	recover_params_init(&params);
	params.n = N;
	params.seen = seen;
	params.n_seen = SEEN;
	make_seen("torch-randperm:seed=3141592653", 0, seen);
	bench_sieve("recover_sieve", &params, seeds);
	bench_search("recover_search", params, seeds);
	make_seen("torch-distributed:seed=3141592653:world=8", 5, seen);
	params.worlds = world;
	params.n_worlds = 1;
	bench_sieve("recover_sieve_any_of_8_ranks", &params, seeds);
	bench_search("recover_search_any_of_8_ranks", params, seeds);
	return 0;
}
