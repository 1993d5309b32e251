/* SPDX-License-Identifier: Apache-2.0 */
/* The generator against published values, and the blocked shuffles against the few lines they stand
 * for: the block borders (every 624 words) are where they could differ. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "src/order/perm.h"
#include "src/order/rng_mt19937.h"

/* ISO C++ 26.6.5 [rand.predef]: the 10000th value of a default-constructed std::mt19937, whose seed
 * is 5489. */
static void ten_thousandth_value(void)
{
	struct mt19937 rng;
	uint32_t v = 0;

	mt19937_seed(&rng, 5489);
	for (int i = 0; i < 10000; i++)
		v = mt19937_u32(&rng);
	CHECK_U64(v, 4123659995);
}

static void take_is_the_same_stream(void)
{
	struct mt19937 words, blocks;
	uint64_t random = check_seed();

	mt19937_seed(&words, 7);
	mt19937_seed(&blocks, 7);
	for (int i = 0; i < 2000; i++) {
		size_t max = 1 + check_rand_below(&random, 900), count;
		const uint32_t *got = mt19937_take(&blocks, max, &count);

		CHECK(count >= 1 && count <= max);
		for (size_t k = 0; k < count; k++)
			CHECK_U64(got[k], mt19937_u32(&words));
		if (i % 3 == 0) /* single words and blocks mixed */
			CHECK_U64(mt19937_u32(&blocks), mt19937_u32(&words));
	}
}

static void t64_has_the_high_half_first(void)
{
	struct mt19937 a, b;

	mt19937_seed(&a, 1);
	mt19937_seed(&b, 1);
	for (int i = 0; i < 1000; i++) {
		uint64_t high = mt19937_u32(&b), low = mt19937_u32(&b);

		CHECK_U64(mt19937_t64(&a), high << 32 | low);
	}
}

static void naive_small(uint32_t *r, uint32_t n, struct mt19937 *rng)
{
	for (uint32_t i = 0; i < n; i++)
		r[i] = i;
	for (uint32_t i = 0; i + 1 < n; i++) {
		uint32_t z = i + mt19937_u32(rng) % (n - i), t = r[i];

		r[i] = r[z];
		r[z] = t;
	}
}

static void naive_large(uint32_t *r, uint32_t n, struct mt19937 *rng)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t z = (uint32_t)(mt19937_t64(rng) % ((uint64_t)i + 1));

		r[i] = i;
		r[i] = r[z];
		r[z] = i;
	}
}

typedef void shuffle_fn(uint32_t *, uint32_t, struct mt19937 *);

/* Same permutation, and the generator is left where the plain loop leaves it. `before` words are
 * drawn first, so that the blocks do not start at the front of the generator's. */
static void compare(shuffle_fn *ours, shuffle_fn *plain, uint32_t n, unsigned before)
{
	uint32_t *a = malloc((n + 1) * sizeof(*a)), *b = malloc((n + 1) * sizeof(*b));
	struct mt19937 rng_a, rng_b;

	mt19937_seed(&rng_a, n);
	for (unsigned i = 0; i < before; i++)
		(void)mt19937_u32(&rng_a);
	rng_b = rng_a;
	a[n] = b[n] = 0xabcdef;
	ours(a, n, &rng_a);
	plain(b, n, &rng_b);
	CHECK_BYTES(a, b, (n + 1) * sizeof(*a));
	CHECK_U64(mt19937_u32(&rng_a), mt19937_u32(&rng_b));
	free(a);
	free(b);
}

static const uint32_t sizes[] = { 0,   1,   2,   3,   23,  24,  25,  311,  312,
				  313, 337, 623, 624, 625, 626, 649, 1249, 5000 };

static void small_branch(void)
{
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		for (unsigned before = 0; before < 1300; before += 311)
			compare(perm_torch_small, naive_small, sizes[i], before);
}

static void large_branch(void)
{
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		for (unsigned before = 0; before < 1300; before += 311)
			compare(perm_torch_large, naive_large, sizes[i], before);
}

static const struct check_test tests[] = {
	{ "ten_thousandth_value", ten_thousandth_value },
	{ "take_is_the_same_stream", take_is_the_same_stream },
	{ "t64_has_the_high_half_first", t64_has_the_high_half_first },
	{ "small_branch", small_branch },
	{ "large_branch", large_branch },
};

CHECK_MAIN(tests)
