/* SPDX-License-Identifier: Apache-2.0 */
/* The inner parts: every instruction set this CPU has lets exactly the same seeds through as the
 * plain C one, which counts hits like the scalar permutation, which is module order's. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "clairfs/order.h"
#include "src/recover/recover_priv.h"

static void head_is_the_permutation(void)
{
	static const uint32_t ns[] = { 1, 2, 3, 10, 100, 623, 625, 5000 };
	uint64_t random = check_seed();

	for (size_t i = 0; i < ARRAY_LEN(ns); i++) {
		struct head head;

		CHECK_INT(head_init(&head, ns[i], ns[i]), 0);
		for (int round = 0; round < 5; round++) {
			uint32_t seed = (uint32_t)check_rand_u64(&random), *want;
			struct order_spec *spec;
			struct order_params params = { .n = ns[i] };
			struct order *order;
			struct err err;
			uint64_t length;
			char text[64];

			snprintf(text, sizeof(text), "torch-randperm:seed=%" PRIu32, seed);
			CHECK_INT(order_spec_parse(text, &spec, &err), 0);
			CHECK_INT(order_new(spec, &params, &order, &err), 0);
			CHECK_INT(order_rank_epoch(order, 0, 0, &want, &length, &err), 0);
			head_seed(&head, seed);
			for (uint32_t k = 0; k < ns[i]; k++)
				CHECK_U64(head_next(&head), want[k]);
			free(want);
			order_free(order);
			order_spec_free(spec);
		}
		head_fini(&head);
	}
}

/* A problem with random samples seen; false: those parameters make none. */
static bool random_sieve(uint64_t *random, struct problem **problem, struct sieve **sieve)
{
	static const uint32_t ns[] = { 20,     50,     200,     1000,      30000,
				       131072, 131073, 1281167, 4294967293 };
	uint32_t n = ns[check_rand_below(random, ARRAY_LEN(ns))], seen[512];
	uint32_t worlds[3] = { 1 };
	struct recover_params params;
	struct err err;

	recover_params_init(&params);
	params.n = n;
	params.seen = seen;
	params.n_seen = 20 + check_rand_below(random, 490);
	for (size_t i = 0; i < params.n_seen; i++)
		seen[i] = (uint32_t)check_rand_below(random, n);
	params.worlds = worlds;
	params.n_worlds = 1 + check_rand_below(random, 3);
	for (size_t i = 0; i < params.n_worlds; i++)
		worlds[i] = 1 + (uint32_t)check_rand_below(random,
							   1u << check_rand_below(random, 9));
	if (check_rand_below(random, 2))
		params.rank = (uint32_t)check_rand_below(random, 2);
	if (problem_new(&params, UINT64_MAX, problem, &err) < 0)
		return false;
	if (sieve_new(*problem, sieve, &err) == 0)
		return true;
	problem_free(*problem);
	return false;
}

/* As many seeds as keep nearly every sieve busy: a third of the tests' table is filled. */
static void fill(struct sieve *s, uint64_t *random)
{
	for (size_t i = 0; i < ARRAY_LEN(s->table); i++)
		s->table[i] |= (uint32_t)(check_rand_u64(random) & check_rand_u64(random));
}

static void every_isa_passes_the_same(void)
{
	enum { COUNT = 1000 };
	uint64_t random = check_seed(), passed = 0, compared = 0;
	uint32_t seed[COUNT], want[COUNT], got[COUNT];
	unsigned sieves = 0, with_swaps = 0, far = 0;

	for (int round = 0; round < 150; round++) {
		const struct recover_isa *isa, *scalar = NULL;
		size_t count = 1 + check_rand_below(&random, COUNT), n_want;
		struct problem *problem;
		struct sieve *sieve;

		if (!random_sieve(&random, &problem, &sieve))
			continue;
		fill(sieve, &random);
		for (size_t i = 0; i < count; i++)
			seed[i] = (uint32_t)check_rand_u64(&random);
		seed[0] = round % 2 ? 0 : UINT32_MAX;
		for (unsigned i = 0; (isa = recover_isa(i)); i++)
			scalar = isa;
		CHECK_STR(recover_isa_name(scalar), "scalar");
		n_want = scan_seeds(scalar, sieve, seed, count, want);
		for (unsigned i = 0; (isa = recover_isa(i)); i++) {
			size_t n;

			if (!recover_isa_works(isa))
				continue;
			n = scan_seeds(isa, sieve, seed, count, got);
			if (n != n_want || memcmp(want, got, n * sizeof(*got)) != 0)
				printf("# %s differs: %zu seeds, n %" PRIu32 ", %" PRIu32
				       " tests up to %" PRIu32 "\n",
				       recover_isa_name(isa), count, problem->n, sieve->n_tests,
				       sieve->last);
			CHECK_U64(n, n_want);
			CHECK_BYTES(got, want, n * sizeof(*got));
		}
		sieves++;
		passed += n_want;
		compared += count;
		with_swaps += sieve->has_swaps;
		far += sieve->last >= SIEVE_NEAR;
		sieve_free(sieve);
		problem_free(problem);
	}
	for (unsigned i = 0; recover_isa(i); i++)
		printf("# %s: %s\n", recover_isa_name(recover_isa(i)),
		       recover_isa_works(recover_isa(i)) ? "compared" : "this CPU has it not");
	printf("# %u sieves, %u with swaps, %u far, %" PRIu64 " of %" PRIu64 " seeds pass\n",
	       sieves, with_swaps, far, passed, compared);
	/* Each kind of sieve was there, and neither none nor all passed. */
	CHECK(with_swaps > 0 && far > 0 && with_swaps + far < sieves);
	CHECK(passed > compared / 100 && passed < compared - compared / 100);
}

/* Counted with the permutation itself, at places that swaps before them cannot have touched. */
static void scalar_counts_hits(void)
{
	uint64_t random = check_seed();

	for (int round = 0; round < 60; round++) {
		const struct recover_isa *isa = recover_isa_best();
		struct problem *problem;
		struct sieve *sieve;
		struct head head;

		if (!random_sieve(&random, &problem, &sieve))
			continue;
		fill(sieve, &random);
		CHECK_INT(head_init(&head, problem->n, sieve->last + 1), 0);
		for (int i = 0; i < 100 && (sieve->has_swaps || problem->n > 100000000); i++) {
			uint32_t seed = (uint32_t)check_rand_u64(&random), hits = 0, left, t = 0;

			head_seed(&head, seed);
			for (uint32_t k = 0; k <= sieve->last; k++) {
				uint32_t sample = head_next(&head);

				if (sieve->tests[t].at != k)
					continue;
				hits += sieve_has(sieve, sample);
				t++;
			}
			CHECK_U64(scan_seeds(isa, sieve, &seed, 1, &left),
				  hits >= sieve->threshold);
		}
		head_fini(&head);
		sieve_free(sieve);
		problem_free(problem);
	}
}

static const struct check_test tests[] = {
	{ "head_is_the_permutation", head_is_the_permutation },
	{ "every_isa_passes_the_same", every_isa_passes_the_same },
	{ "scalar_counts_hits", scalar_counts_hits },
};

CHECK_MAIN(tests)
