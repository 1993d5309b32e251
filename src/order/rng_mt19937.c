/* SPDX-License-Identifier: Apache-2.0 */
/* MT19937 in blocks. Word k of the next state needs words k, k+1 of the old one and word k+397,
 * which is old for k < 227 and new from there on. Splitting the loop at that border leaves bodies
 * without a branch or a modulo, whose only dependence spans 227 words: gcc and clang turn them and
 * the tempering into vectors without being told how.
 *
 * Bit for bit the reference generator (Matsumoto, Nishimura 2002); it must never skip or buffer
 * words across a seed, since the frameworks count every word they draw. Any thread: there is no
 * state but the caller's. */
#include "rng_mt19937.h"

#include "clairfs/base/cleanup.h"

#define SHIFT 397

void mt19937_seed(struct mt19937 *rng, uint32_t seed)
{
	rng->state[0] = seed;
	for (uint32_t k = 1; k < MT19937_WORDS; k++) {
		uint32_t prev = rng->state[k - 1];

		rng->state[k] = 1812433253 * (prev ^ (prev >> 30)) + k;
	}
	rng->used = MT19937_WORDS;
}

void mt19937_seed_key(struct mt19937 *rng, const uint32_t *key, uint32_t n)
{
	uint32_t *s = rng->state;
	uint32_t at = 1, j = 0;

	mt19937_seed(rng, 19650218);
	for (uint32_t k = MAX(MT19937_WORDS, n); k > 0; k--) {
		s[at] = (s[at] ^ (s[at - 1] ^ s[at - 1] >> 30) * 1664525) + key[j] + j;
		j = j + 1 < n ? j + 1 : 0;
		if (++at == MT19937_WORDS) {
			s[0] = s[at - 1];
			at = 1;
		}
	}
	for (uint32_t k = MT19937_WORDS - 1; k > 0; k--) {
		s[at] = (s[at] ^ (s[at - 1] ^ s[at - 1] >> 30) * 1566083941) - at;
		if (++at == MT19937_WORDS) {
			s[0] = s[at - 1];
			at = 1;
		}
	}
	s[0] = 0x80000000; /* the state is not all zero */
}

void mt19937_seed_python(struct mt19937 *rng, unsigned __int128 seed)
{
	uint32_t key[4], n = 0;

	do {
		key[n++] = (uint32_t)seed;
		seed >>= 32;
	} while (seed > 0);
	mt19937_seed_key(rng, key, n);
}

void mt19937_refill(struct mt19937 *rng)
{
	uint32_t *s = rng->state;
	unsigned k;

	for (k = 0; k < MT19937_WORDS - SHIFT; k++)
		s[k] = mt19937_twist(s[k + SHIFT], s[k], s[k + 1]);
	for (; k < MT19937_WORDS - 1; k++)
		s[k] = mt19937_twist(s[k + SHIFT - MT19937_WORDS], s[k], s[k + 1]);
	s[k] = mt19937_twist(s[SHIFT - 1], s[k], s[0]);

	for (k = 0; k < MT19937_WORDS; k++) {
		uint32_t y = s[k];

		y ^= y >> 11;
		y ^= (y << 7) & 0x9d2c5680;
		y ^= (y << 15) & 0xefc60000;
		rng->out[k] = y ^ (y >> 18);
	}
	rng->used = 0;
}

const uint32_t *mt19937_take(struct mt19937 *rng, size_t max, size_t *ret_count)
{
	const uint32_t *words;
	size_t left;

	if (rng->used == MT19937_WORDS)
		mt19937_refill(rng);
	words = &rng->out[rng->used];
	left = MT19937_WORDS - rng->used;
	*ret_count = left < max ? left : max;
	rng->used += (uint32_t)*ret_count;
	return words;
}
