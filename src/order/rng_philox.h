/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10 as TensorFlow seeds and reads it. A generator is a value: copy it, keep it on the
 * stack, share it with nobody. */
#ifndef CLAIRFS_ORDER_RNG_PHILOX_H
#define CLAIRFS_ORDER_RNG_PHILOX_H

#include <stdint.h>

struct philox {
	uint64_t seed, seed2, block; /* block: the next one */
	uint32_t word[4];
	uint32_t used; /* words already handed out */
};

/* A generator whose next word is word number `at`. */
void philox_init(struct philox *rng, uint64_t seed, uint64_t seed2, uint64_t at);
/* Computes the next four words. */
void philox_block(struct philox *rng);

static inline uint32_t philox_u32(struct philox *rng)
{
	if (rng->used == 4)
		philox_block(rng);
	return rng->word[rng->used++];
}

#endif
