/* SPDX-License-Identifier: Apache-2.0 */
/* PCG64 (XSL-RR, 128 bits of state) as numpy's default_rng seeds and reads it. A generator is a
 * value: copy it, keep it on the stack, share it with nobody. */
#ifndef CLAIRFS_ORDER_RNG_PCG64_H
#define CLAIRFS_ORDER_RNG_PCG64_H

#include <stdbool.h>
#include <stdint.h>

struct pcg64 {
	unsigned __int128 state, increment;
	uint32_t high; /* half of a u64 of which u32 has handed out the low half */
	bool has_high;
};

/* numpy.random.default_rng(seed): SeedSequence(seed) and then the generator's own seeding. */
void pcg64_seed(struct pcg64 *rng, unsigned __int128 seed);

static inline uint64_t pcg64_u64(struct pcg64 *rng)
{
	const unsigned __int128 factor =
		(unsigned __int128)0x2360ed051fc65da4 << 64 | 0x4385df649fccf645;
	uint64_t folded;
	unsigned turn;

	rng->state = rng->state * factor + rng->increment;
	folded = (uint64_t)(rng->state >> 64) ^ (uint64_t)rng->state;
	turn = (unsigned)(rng->state >> 122);
	return folded >> turn | folded << (-turn & 63);
}

/* Low half first; the high half waits for the next call, also across calls of pcg64_u64. */
static inline uint32_t pcg64_u32(struct pcg64 *rng)
{
	uint64_t both;

	if (rng->has_high) {
		rng->has_high = false;
		return rng->high;
	}
	both = pcg64_u64(rng);
	rng->high = (uint32_t)(both >> 32);
	rng->has_high = true;
	return (uint32_t)both;
}

#endif
