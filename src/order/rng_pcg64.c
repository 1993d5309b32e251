/* SPDX-License-Identifier: Apache-2.0 */
/* Seeding PCG64 like numpy: SeedSequence hashes the 32-bit words of a seed into a pool of four,
 * mixes every pool word into every other, hashes eight words out of the pool, and these are the
 * state and the stream of the generator. Seeds have at most 128 bits here (a 64-bit seed plus an
 * epoch needs 65), so they never exceed the pool and numpy's loop over surplus words is left out.
 *
 * The hash constants change with every word that is hashed: the sequence of calls is part of the
 * algorithm and must not be reordered. Pure; any thread. */
#include "rng_pcg64.h"

#define POOL 4

struct hash {
	uint32_t constant, factor;
};

static uint32_t hash_word(struct hash *h, uint32_t v)
{
	v ^= h->constant;
	h->constant *= h->factor;
	v *= h->constant;
	return v ^ v >> 16;
}

static uint32_t mix_words(uint32_t x, uint32_t y)
{
	uint32_t v = 0xca01f9dd * x - 0x4973f715 * y;

	return v ^ v >> 16;
}

static void pool_fill(uint32_t *pool, unsigned __int128 seed)
{
	struct hash h = { .constant = 0x43b0d7e5, .factor = 0x931e8875 };

	for (unsigned i = 0; i < POOL; i++)
		pool[i] = hash_word(&h, (uint32_t)(seed >> (32 * i)));
	for (unsigned from = 0; from < POOL; from++)
		for (unsigned to = 0; to < POOL; to++)
			if (from != to)
				pool[to] = mix_words(pool[to], hash_word(&h, pool[from]));
}

void pcg64_seed(struct pcg64 *rng, unsigned __int128 seed)
{
	struct hash h = { .constant = 0x8b51f9dd, .factor = 0x58f38ded };
	uint32_t pool[POOL];
	uint64_t out[4] = { 0 };

	pool_fill(pool, seed);
	for (unsigned i = 0; i < 8; i++)
		out[i / 2] |= (uint64_t)hash_word(&h, pool[i % POOL]) << (i % 2 * 32);
	rng->increment = ((unsigned __int128)out[2] << 64 | out[3]) << 1 | 1;
	rng->state = 0;
	rng->has_high = false;
	(void)pcg64_u64(rng);
	rng->state += (unsigned __int128)out[0] << 64 | out[1];
	(void)pcg64_u64(rng);
}
