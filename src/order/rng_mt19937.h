/* SPDX-License-Identifier: Apache-2.0 */
/* MT19937, the generator behind torch's CPU generator, numpy's RandomState, Python's random and
 * C++'s std::mt19937. Words are made 624 at a time, because the recurrence then is three plain
 * loops that the compiler vectorises; a word taken from the block costs a load. A generator is a
 * value: copy it, keep it on the stack, share it with nobody. */
#ifndef CLAIRFS_ORDER_RNG_MT19937_H
#define CLAIRFS_ORDER_RNG_MT19937_H

#include <stddef.h>
#include <stdint.h>

#define MT19937_WORDS 624

struct mt19937 {
	uint32_t state[MT19937_WORDS];
	uint32_t out[MT19937_WORDS]; /* tempered words of `state` */
	uint32_t used;               /* words of `out` already handed out */
};

/* init_genrand: what torch calls manual_seed (it keeps the low 32 bits of a seed). */
void mt19937_seed(struct mt19937 *rng, uint32_t seed);
/* init_by_array, n >= 1: how Python's random and numpy's RandomState take a list of words. */
void mt19937_seed_key(struct mt19937 *rng, const uint32_t *key, uint32_t n);
/* random.Random(seed) of Python for a whole number that is not negative (it takes the absolute
 * value of others). */
void mt19937_seed_python(struct mt19937 *rng, unsigned __int128 seed);
/* Leaves out count * times words; some ten milliseconds at most, however many they are. */
void mt19937_skip(struct mt19937 *rng, uint64_t count, uint64_t times);
/* Makes the next 624 words; only for the functions below. */
void mt19937_refill(struct mt19937 *rng);
/* The next words, at least 1 and at most `max` of them (max >= 1), valid until the next call on
 * this generator. */
const uint32_t *mt19937_take(struct mt19937 *rng, size_t max, size_t *ret_count);

/* The recurrence: the word that follows from one 397 places on and two neighbours. */
static inline uint32_t mt19937_twist(uint32_t far, uint32_t upper, uint32_t lower)
{
	uint32_t y = (upper & 0x80000000) | (lower & 0x7fffffff);

	return far ^ (y >> 1) ^ (-(y & 1) & 0x9908b0df);
}

static inline uint32_t mt19937_u32(struct mt19937 *rng)
{
	if (rng->used == MT19937_WORDS)
		mt19937_refill(rng);
	return rng->out[rng->used++];
}

/* Two words, the first is the high half: torch's random64(). */
static inline uint64_t mt19937_t64(struct mt19937 *rng)
{
	uint64_t high = mt19937_u32(rng);

	return high << 32 | mt19937_u32(rng);
}

#endif
