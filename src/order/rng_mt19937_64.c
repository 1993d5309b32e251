/* SPDX-License-Identifier: Apache-2.0 */
/* MT19937-64 (Nishimura, Matsumoto 2004), as the C++ standard has it. Only DALI uses it, once per
 * epoch, so there is one plain loop over the state and none of the blocks of rng_mt19937.c: the
 * swaps of a shuffle cost more than its words.
 *
 * It must never skip or buffer words across a seed. Pure; any thread. */
#include "rng_mt19937_64.h"

#define SHIFT 156
#define LOWER ((1ull << 31) - 1)

void mt19937_64_seed(struct mt19937_64 *rng, uint64_t seed)
{
	rng->state[0] = seed;
	for (uint32_t k = 1; k < MT19937_64_WORDS; k++) {
		uint64_t prev = rng->state[k - 1];

		rng->state[k] = 6364136223846793005 * (prev ^ prev >> 62) + k;
	}
	rng->used = MT19937_64_WORDS;
}

static void refill(struct mt19937_64 *rng)
{
	uint64_t *s = rng->state;

	for (uint32_t k = 0; k < MT19937_64_WORDS; k++) {
		uint64_t y = (s[k] & ~LOWER) | (s[(k + 1) % MT19937_64_WORDS] & LOWER);

		s[k] = s[(k + SHIFT) % MT19937_64_WORDS] ^ y >> 1 ^ (-(y & 1) & 0xb5026f5aa96619e9);
	}
	rng->used = 0;
}

uint64_t mt19937_64_u64(struct mt19937_64 *rng)
{
	uint64_t y;

	if (rng->used == MT19937_64_WORDS)
		refill(rng);
	y = rng->state[rng->used++];
	y ^= y >> 29 & 0x5555555555555555;
	y ^= y << 17 & 0x71d67fffeda60000;
	y ^= y << 37 & 0xfff7eee000000000;
	return y ^ y >> 43;
}
