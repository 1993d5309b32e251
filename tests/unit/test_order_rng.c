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

/* The reference program's own output (mt19937ar.out), for the key it uses. */
static void list_of_words_as_seed(void)
{
	static const uint32_t key[] = { 0x123, 0x234, 0x345, 0x456 };
	static const uint32_t want[] = { 1067595299, 955945823, 477289528, 4107218783, 4228976476 };
	struct mt19937 rng;

	mt19937_seed_key(&rng, key, ARRAY_LEN(key));
	for (size_t i = 0; i < ARRAY_LEN(want); i++)
		CHECK_U64(mt19937_u32(&rng), want[i]);
}

static void skip_is(struct mt19937 at, uint64_t count, uint64_t times)
{
	struct mt19937 skipped = at;

	mt19937_skip(&skipped, count, times);
	for (uint64_t i = 0; i < count * times; i++)
		(void)mt19937_u32(&at);
	for (int i = 0; i < 1300; i++)
		CHECK_U64(mt19937_u32(&skipped), mt19937_u32(&at));
}

/* From every place in a block, over few words (made) and many (jumped over). */
static void skip_leaves_out_words(void)
{
	static const uint64_t counts[] = { 0, 1, 623, 624, 625, 1248, 5000 };
	uint64_t random = check_seed();
	struct mt19937 rng;

	mt19937_seed(&rng, (uint32_t)random);
	for (int i = 0; i < 50; i++) {
		uint64_t before = check_rand_below(&random, 1300);

		for (uint64_t k = 0; k < before; k++)
			(void)mt19937_u32(&rng);
		skip_is(rng, counts[(size_t)i % ARRAY_LEN(counts)], 1);
		skip_is(rng, check_rand_below(&random, 3000), 3);
	}
	skip_is(rng, (1 << 24) + check_rand_below(&random, 2000), 1);
	skip_is(rng, 257, 65537);
}

/* Skips add up, also where the product needs more than 64 bits. */
static void skips_of_any_length_add_up(void)
{
	struct mt19937 once, parts;

	mt19937_seed(&once, 99);
	(void)mt19937_u32(&once);
	parts = once;
	mt19937_skip(&once, UINT64_MAX, 6);
	for (int i = 0; i < 3; i++)
		mt19937_skip(&parts, UINT64_MAX, 2);
	for (int i = 0; i < 1300; i++)
		CHECK_U64(mt19937_u32(&once), mt19937_u32(&parts));
}

/* numpy.random.PCG64(seed).random_raw(3), numpy 2.4.6: seeds of one, two and three words. */
static void pcg64_is_numpys(void)
{
	static const struct {
		uint64_t seed, add, want[3];
	} cases[] = {
		{ 0, 0, { 0xa30febcfd9c2825f, 0x4510bdf882d9d721, 0x0a7d3da94ecde8b8 } },
		{ 42, 0, { 0xc621fbcd16d92688, 0x705a5661a791ffc1, 0xdbcd12c26eda1624 } },
		{ 1ULL << 32, 0, { 0xe3c5ebe285ac1625, 0x8ea09968fe31dbcc, 0xcd084ff84d8de9be } },
		{ UINT64_MAX, 7, { 0x56532939e680edfb, 0x1e985c17f8e144f0, 0x448879cb9a06793d } },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct pcg64 rng;

		pcg64_seed(&rng, (unsigned __int128)cases[i].seed + cases[i].add);
		for (size_t k = 0; k < ARRAY_LEN(cases[i].want); k++)
			CHECK_U64(pcg64_u64(&rng), cases[i].want[k]);
	}
}

static void pcg64_gives_the_low_half_first(void)
{
	struct pcg64 halves, whole;

	pcg64_seed(&halves, 3);
	whole = halves;
	for (int i = 0; i < 100; i++) {
		uint64_t both = pcg64_u64(&whole);

		CHECK_U64(pcg64_u32(&halves), (uint32_t)both);
		CHECK_U64(pcg64_u32(&halves), both >> 32);
	}
}

/* for i in n-1..1: draw below or equal to i from the bits that i (numpy) or i + 1 (Python) has. */
static void naive_down(uint32_t *r, uint32_t n, struct mt19937 *rng, bool is_python)
{
	for (uint32_t i = 0; i < n; i++)
		r[i] = i;
	for (uint32_t i = n; i-- > 1;) {
		unsigned bits = 0;
		uint32_t z, t = r[i];

		while ((is_python ? i + 1 : i) >> bits)
			bits++;
		do {
			z = mt19937_u32(rng);
			z = is_python ? z >> (32 - bits) : z & ((1U << bits) - 1);
		} while (z > i);
		r[i] = r[z];
		r[z] = t;
	}
}

static void naive_numpy(uint32_t *r, uint32_t n, struct mt19937 *rng)
{
	naive_down(r, n, rng, false);
}

static void naive_python(uint32_t *r, uint32_t n, struct mt19937 *rng)
{
	naive_down(r, n, rng, true);
}

static void ours_numpy(uint32_t *r, uint32_t n, struct mt19937 *rng)
{
	perm_identity(r, n);
	shuffle_numpy_mt19937(r, n, rng);
}

static void ours_python(uint32_t *r, uint32_t n, struct mt19937 *rng)
{
	perm_identity(r, n);
	shuffle_python(r, n, rng);
}

static void shuffles_with_rejection(void)
{
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		for (unsigned before = 0; before < 1300; before += 311) {
			compare(ours_numpy, naive_numpy, sizes[i], before);
			compare(ours_python, naive_python, sizes[i], before);
		}
}

static const struct check_test tests[] = {
	{ "ten_thousandth_value", ten_thousandth_value },
	{ "take_is_the_same_stream", take_is_the_same_stream },
	{ "t64_has_the_high_half_first", t64_has_the_high_half_first },
	{ "small_branch", small_branch },
	{ "large_branch", large_branch },
	{ "list_of_words_as_seed", list_of_words_as_seed },
	{ "skip_leaves_out_words", skip_leaves_out_words },
	{ "skips_of_any_length_add_up", skips_of_any_length_add_up },
	{ "pcg64_is_numpys", pcg64_is_numpys },
	{ "pcg64_gives_the_low_half_first", pcg64_gives_the_low_half_first },
	{ "shuffles_with_rejection", shuffles_with_rejection },
};

CHECK_MAIN(tests)
