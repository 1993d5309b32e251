/* SPDX-License-Identifier: Apache-2.0 */
/* The sieve's inner loop for one instruction set: scan_caps.c includes this file once for each,
 * with
 *
 *	SCAN_ISA             a word to make names with
 *	SCAN_TARGET          the target attribute of every function
 *	SCAN_BYTES           of a vector
 *	SCAN_GROUP           vectors worked on side by side: the seeding is one long chain of
 *	                     multiplications, so a single vector would wait at every step
 *	SCAN_MUL(a, b)       64-bit lanes: low halves multiplied
 *	SCAN_GATHER(t, at)   32-bit lanes: t[at]
 *
 * A lane is a seed. Word i of MT19937's output needs words i, i+1 and i+397 of the seeded state,
 * and a permutation's place i only that one, so of 624 words 397 are computed and the first few
 * kept. Vectors are passed by address: by value the calling convention would depend on the
 * instruction set. */

#define SCAN_CAT2(a, b) a##b
#define SCAN_CAT(a, b) SCAN_CAT2(a, b)
#define VEC SCAN_CAT(vec_, SCAN_ISA)
#define WIDE SCAN_CAT(wide_, SCAN_ISA)
#define FN(name) SCAN_CAT(name##_, SCAN_ISA)
#define INNER SCAN_TARGET static inline __attribute__((always_inline)) void
#define LANES (SCAN_BYTES / 4)
#define BLOCK (LANES * SCAN_GROUP)

typedef uint32_t VEC __attribute__((vector_size(SCAN_BYTES)));
typedef uint64_t WIDE __attribute__((vector_size(SCAN_BYTES)));

INNER FN(step)(VEC *x, uint32_t k)
{
	*x = MT_SEED_FACTOR * (*x ^ (*x >> 30)) + k;
}

INNER FN(twist)(VEC *out, const VEC *far, const VEC *upper, const VEC *lower)
{
	VEC y = (*upper & 0x80000000) | (*lower & 0x7fffffff);

	*out = *far ^ (y >> 1) ^ (-(y & 1) & MT_TWIST);
}

INNER FN(temper)(VEC *y)
{
	*y ^= *y >> 11;
	*y ^= (*y << 7) & 0x9d2c5680;
	*y ^= (*y << 15) & 0xefc60000;
	*y ^= *y >> 18;
}

/* z = z % test->divisor + test->at. The quotient by way of floor(2^32 / divisor) is right or one
 * too small. */
INNER FN(place)(VEC *z, const struct sieve_test *test)
{
	const WIDE magic = (WIDE){ 0 } + test->magic;
	WIDE even = SCAN_MUL((WIDE)*z & 0xffffffff, magic) >> 32;
	WIDE odd = SCAN_MUL((WIDE)*z >> 32, magic) & ~(uint64_t)0xffffffff;
	VEC r = *z - (VEC)(even | odd) * test->divisor;

	r -= (VEC)(r >= test->divisor) & test->divisor;
	*z = r + test->at;
}

INNER FN(count)(const struct sieve *s, const VEC *value, VEC *hits)
{
	VEC h = (*value * s->hash_factor) >> s->hash_shift, word;

	SCAN_GATHER(word, s->table, h >> 5);
	*hits += (word >> (h & 31)) & 1;
}

/* Turns place i into the sample there, when earlier swaps may have touched it: place[j] got what
 * stood at j, moved[j]. */
INNER FN(swap)(VEC (*place)[SCAN_GROUP], VEC (*moved)[SCAN_GROUP], uint32_t i, uint32_t g,
	       VEC *value)
{
	VEC here = (VEC){ 0 } + i;

	place[i][g] = *value;
	for (uint32_t j = 0; j < i; j++) {
		VEC is_same = (VEC)(place[j][g] == place[i][g]), is_here = (VEC)(place[j][g] == i);

		*value = (*value & ~is_same) | (moved[j][g] & is_same);
		here = (here & ~is_here) | (moved[j][g] & is_here);
	}
	moved[i][g] = here;
}

/* Seeds whose counter reached the threshold, appended to `left`. */
SCAN_TARGET static size_t FN(emit)(const struct sieve *s, const VEC *hits, const uint32_t *seed,
				   size_t count, uint32_t *left)
{
	size_t n = 0;

	for (size_t at = 0, g = 0; at < count; at += LANES, g++) {
		VEC is_left = (VEC)(hits[g] >= s->threshold);
		uint32_t lane[LANES], any = 0;

		memcpy(lane, &is_left, sizeof(lane));
		for (size_t i = 0; i < LANES; i++)
			any |= lane[i];
		for (size_t i = 0; any && i < LANES && at + i < count; i++)
			if (lane[i])
				left[n++] = seed[at + i];
	}
	return n;
}

/* Tests within the first 227 words of output. */
SCAN_TARGET static void FN(block)(const struct sieve *s, const uint32_t *seed, VEC *hits)
{
	VEC head[SIEVE_NEAR + 1][SCAN_GROUP];
	VEC place[SIEVE_SWAPS_MAX][SCAN_GROUP], moved[SIEVE_SWAPS_MAX][SCAN_GROUP];
	VEC x[SCAN_GROUP];
	uint32_t k;

	memcpy(x, seed, sizeof(x));
	memcpy(head[0], x, sizeof(x));
	for (k = 1; k <= s->last + 1; k++)
		for (int g = 0; g < SCAN_GROUP; g++) {
			FN(step)(&x[g], k);
			head[k][g] = x[g];
		}
	for (; k < MT_SHIFT; k++)
		for (int g = 0; g < SCAN_GROUP; g++)
			FN(step)(&x[g], k);
	for (uint32_t t = 0; t < s->n_tests; t++) {
		const struct sieve_test *test = &s->tests[t];

		for (; k <= MT_SHIFT + test->at; k++)
			for (int g = 0; g < SCAN_GROUP; g++)
				FN(step)(&x[g], k);
		for (uint32_t g = 0; g < SCAN_GROUP; g++) {
			VEC z;

			FN(twist)(&z, &x[g], &head[test->at][g], &head[test->at + 1][g]);
			FN(temper)(&z);
			FN(place)(&z, test);
			if (s->has_swaps)
				FN(swap)(place, moved, test->at, g, &z);
			FN(count)(s, &z, &hits[g]);
		}
	}
}

INNER FN(refill)(VEC *state)
{
	uint32_t k;

	for (k = 0; k < MT_WORDS - MT_SHIFT; k++)
		FN(twist)(&state[k], &state[k + MT_SHIFT], &state[k], &state[k + 1]);
	for (; k < MT_WORDS - 1; k++)
		FN(twist)(&state[k], &state[k + MT_SHIFT - MT_WORDS], &state[k], &state[k + 1]);
	FN(twist)(&state[k], &state[MT_SHIFT - 1], &state[k], &state[0]);
}

/* Tests anywhere: the whole generator, a vector at a time. */
SCAN_TARGET static void FN(block_far)(const struct sieve *s, const uint32_t *seed, VEC *hits)
{
	VEC state[MT_WORDS];

	for (uint32_t g = 0; g < SCAN_GROUP; g++) {
		uint32_t block = 0; /* words refilled so far */

		memcpy(&state[0], seed + g * LANES, sizeof(state[0]));
		for (uint32_t k = 1; k < MT_WORDS; k++) {
			state[k] = state[k - 1];
			FN(step)(&state[k], k);
		}
		for (uint32_t t = 0; t < s->n_tests; t++) {
			const struct sieve_test *test = &s->tests[t];
			VEC z;

			for (; block <= test->at; block += MT_WORDS)
				FN(refill)(state);
			z = state[test->at + MT_WORDS - block];
			FN(temper)(&z);
			FN(place)(&z, test);
			FN(count)(s, &z, &hits[g]);
		}
	}
}

SCAN_TARGET static size_t FN(scan)(const struct sieve *s, const uint32_t *seed, size_t count,
				   uint32_t *left)
{
	size_t n = 0;

	for (size_t at = 0; at < count; at += BLOCK) {
		VEC hits[SCAN_GROUP] = { { 0 } };
		uint32_t padded[BLOCK] = { 0 };
		const uint32_t *from = seed + at;

		if (count - at < BLOCK) {
			memcpy(padded, from, (count - at) * sizeof(*from));
			from = padded;
		}
		if (s->last < SIEVE_NEAR)
			FN(block)(s, from, hits);
		else
			FN(block_far)(s, from, hits);
		n += FN(emit)(s, hits, from, MIN(count - at, BLOCK), left + n);
	}
	return n;
}

#undef SCAN_CAT2
#undef SCAN_CAT
#undef VEC
#undef WIDE
#undef FN
#undef INNER
#undef LANES
#undef BLOCK
#undef SCAN_ISA
#undef SCAN_TARGET
#undef SCAN_BYTES
#undef SCAN_GROUP
#undef SCAN_MUL
#undef SCAN_GATHER
