/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10 (Salmon and others 2011): a counter goes in, ten rounds of multiplications mix it
 * with a key, four words come out. TensorFlow's first seed is the key and its second one the upper
 * half of the counter, so any word of any generator is reached at once, and a generator is nothing
 * but where it stands.
 *
 * It must never depend on more than those three numbers. Pure; any thread. */
#include "rng_philox.h"

void philox_block(struct philox *rng)
{
	uint32_t key0 = (uint32_t)rng->seed, key1 = (uint32_t)(rng->seed >> 32);
	uint32_t c0 = (uint32_t)rng->block, c1 = (uint32_t)(rng->block >> 32);
	uint32_t c2 = (uint32_t)rng->seed2, c3 = (uint32_t)(rng->seed2 >> 32);

	for (unsigned round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)0xd2511f53 * c0, b = (uint64_t)0xcd9e8d57 * c2;

		c0 = (uint32_t)(b >> 32) ^ c1 ^ key0;
		c1 = (uint32_t)b;
		c2 = (uint32_t)(a >> 32) ^ c3 ^ key1;
		c3 = (uint32_t)a;
		key0 += 0x9e3779b9;
		key1 += 0xbb67ae85;
	}
	rng->word[0] = c0;
	rng->word[1] = c1;
	rng->word[2] = c2;
	rng->word[3] = c3;
	rng->block++;
	rng->used = 0;
}

void philox_init(struct philox *rng, uint64_t seed, uint64_t seed2, uint64_t at)
{
	*rng = (struct philox){ .seed = seed, .seed2 = seed2, .block = at / 4 };
	philox_block(rng);
	rng->used = at % 4;
}
