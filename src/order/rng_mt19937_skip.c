/* SPDX-License-Identifier: Apache-2.0 */
/* Skipping words of MT19937: by making them while they are few, by algebra when they are not. One
 * step of the generator is a linear map A over 19937 bits, and p(A) = 0 for its characteristic
 * polynomial p. So A^d = g(A) with g = x^d mod p, which has fewer than 19937 terms whatever d is:
 * epoch 10^9 of a job whose generator lives on costs as much as epoch 10, some ten milliseconds
 * (Haramoto, Matsumoto, Nishimura, Panneton, L'Ecuyer 2008).
 *
 * p has 135 terms and no term between 19314 and its degree, hence a polynomial is reduced a whole
 * word at a time. Of word 0 of a window only the top bit is state; the others come out arbitrary
 * and nothing may look at them. Pure; any thread; 5 kB of stack. */
#include <string.h>

#include "clairfs/base/cleanup.h"
#include "rng_mt19937.h"

#define DEGREE 19937
#define POLY_WORDS 312               /* of 64 bits, for degrees below DEGREE */
#define MADE_MAX ((uint64_t)1 << 24) /* words that are made faster than jumped over */
#define SHIFT 397

/* The exponents of p below its degree. */
static const uint16_t terms[] = {
	0,     1189,  1416,  1585,  1643,  1870,  2493,  2773,  3000,  3227,  3454,  3681,  3908,
	4135,  4362,  4753,  5661,  6337,  6569,  7129,  7477,  7525,  7583,  7752,  7979,  8206,
	9505,  9901,  9969,  10128, 10693, 10761, 10920, 11089, 11147, 11157, 11215, 11321, 11374,
	11384, 11485, 11611, 11712, 11717, 11838, 11881, 11944, 11997, 12277, 12335, 12393, 12504,
	12509, 12620, 12673, 12731, 12736, 12789, 12905, 12958, 12963, 13137, 13185, 13190, 13243,
	13301, 13412, 13528, 13533, 13639, 13697, 13760, 13813, 13866, 14093, 14151, 14209, 14320,
	14325, 14436, 14547, 14552, 14605, 14721, 14774, 14779, 14953, 15001, 15006, 15059, 15117,
	15228, 15344, 15349, 15455, 15513, 15576, 15629, 15682, 15909, 15967, 16025, 16136, 16141,
	16252, 16363, 16368, 16421, 16537, 16590, 16595, 16817, 16822, 16875, 16933, 17044, 17160,
	17271, 17329, 17445, 17498, 17725, 17783, 17841, 17952, 18068, 18179, 18237, 18406, 18633,
	18691, 18860, 19087, 19314,
};

/* a ^= (w << shift), a polynomial and a word of one. */
static void add_shifted(uint64_t *a, uint64_t w, unsigned shift)
{
	a[shift / 64] ^= w << (shift % 64);
	if (shift % 64)
		a[shift / 64 + 1] ^= w >> (64 - shift % 64);
}

/* Reduces a polynomial of 2 * POLY_WORDS words modulo p, in place. */
static void reduce(uint64_t *a)
{
	for (unsigned at = 2 * POLY_WORDS - 1; at * 64 + 63 >= DEGREE; at--) {
		/* The bits of this word that stand for x^DEGREE and more. */
		unsigned keep = at * 64 >= DEGREE ? 0 : DEGREE - at * 64;
		uint64_t w = a[at] >> keep;

		a[at] ^= w << keep;
		for (unsigned t = 0; t < ARRAY_LEN(terms); t++)
			add_shifted(a, w, at * 64 + keep - DEGREE + terms[t]);
	}
}

/* The 32 bits of w with a zero bit above each. */
static uint64_t spread(uint32_t w)
{
	uint64_t v = w;

	v = (v | v << 16) & 0x0000ffff0000ffff;
	v = (v | v << 8) & 0x00ff00ff00ff00ff;
	v = (v | v << 4) & 0x0f0f0f0f0f0f0f0f;
	v = (v | v << 2) & 0x3333333333333333;
	return (v | v << 1) & 0x5555555555555555;
}

/* g = x^d mod p, POLY_WORDS words. */
static void power_of_x(uint64_t *g, unsigned __int128 d)
{
	uint64_t square[2 * POLY_WORDS];

	memset(g, 0, POLY_WORDS * sizeof(*g));
	g[0] = 1;
	for (int bit = 127; bit >= 0; bit--) {
		unsigned is_odd = (unsigned)(d >> bit) & 1;

		for (unsigned i = 0; i < POLY_WORDS; i++) {
			square[2 * i] = spread((uint32_t)g[i]);
			square[2 * i + 1] = spread((uint32_t)(g[i] >> 32));
		}
		for (unsigned i = 2 * POLY_WORDS - 1; is_odd && i > 0; i--)
			square[i] = square[i] << 1 | square[i - 1] >> 63;
		square[0] <<= is_odd;
		reduce(square);
		memcpy(g, square, POLY_WORDS * sizeof(*g));
	}
}

/* state = g(A) state, by Horner's rule. `h` is a ring of words whose first is at `start`. */
static void apply(uint32_t *state, const uint64_t *g)
{
	uint32_t h[MT19937_WORDS] = { 0 };
	unsigned start = 0;

	for (int bit = DEGREE - 1; bit >= 0; bit--) {
		unsigned next = start + 1 == MT19937_WORDS ? 0 : start + 1;
		unsigned far = start + SHIFT < MT19937_WORDS ? start + SHIFT
							     : start + SHIFT - MT19937_WORDS;

		h[start] = mt19937_twist(h[far], h[start], h[next]);
		start = next;
		if (!(g[bit / 64] >> (bit % 64) & 1))
			continue;
		for (unsigned i = 0; i < MT19937_WORDS - start; i++)
			h[start + i] ^= state[i];
		for (unsigned i = 0; i < start; i++)
			h[i] ^= state[MT19937_WORDS - start + i];
	}
	memcpy(state, h + start, (MT19937_WORDS - start) * sizeof(*h));
	memcpy(state + MT19937_WORDS - start, h, start * sizeof(*h));
}

void mt19937_skip(struct mt19937 *rng, uint64_t count, uint64_t times)
{
	unsigned __int128 left = (unsigned __int128)count * times;
	uint64_t g[POLY_WORDS];

	if (left > MADE_MAX) {
		/* A window of 624 words ends where the next refill goes on, so its next word is
		 * word 624 of it; the words that this block still has count as not skipped. */
		power_of_x(g, left - (MT19937_WORDS - rng->used));
		apply(rng->state, g);
		rng->used = MT19937_WORDS;
		return;
	}
	while (left > MT19937_WORDS - rng->used) {
		left -= MT19937_WORDS - rng->used;
		mt19937_refill(rng);
	}
	rng->used += (uint32_t)left;
}
