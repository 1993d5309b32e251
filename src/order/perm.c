/* SPDX-License-Identifier: Apache-2.0 */
/* Permutations, bit for bit those of the frameworks. A shuffle is three costs: words of the
 * generator, a division by a divisor that changes every time, and a swap with a random place in an
 * array larger than the caches.
 *
 * What the profile taught (10^7 samples, a core with 1 MB of L2): of 68 ms the generator takes 4,
 * the divisions 16, waiting for the swaps the rest; a plain loop takes 90, because each swap waits
 * behind a draw and a division. Where a swap goes depends on the generator alone, never on the
 * array, so the places of a block are computed first and fetched PREFETCH swaps ahead of their use.
 * Dividing as doubles (exact here, and vectorisable) gains 3 ms without AVX: not worth a second
 * way. Large pages (order_alloc_u32) gain 10 ms of TLB misses and page faults.
 *
 * It must never draw a word more or less than the framework does: in some kinds the generator
 * lives on. Pure; any thread. */
#include "perm.h"

/* Swaps between fetching a cache line and using it: 8 to 48 measure alike, 1 is a third slower. */
#define PREFETCH 24

/* Places to swap i, i+1, ... with: word % (n - i) + i. Here i < n - count, so no divisor is 0. */
static void places_of_words(uint32_t *place, const uint32_t *word, uint32_t count, uint32_t i,
			    uint32_t n)
{
	for (uint32_t k = 0; k < count; k++)
		place[k] = word[k] % (n - i - k) + i + k;
}

/* r[i] = i; for i in 0..n-2: swap(r[i], r[i + u32() % (n - i)]) */
void perm_torch_small(uint32_t *out, uint32_t n, struct mt19937 *rng)
{
	uint32_t place[MT19937_WORDS + PREFETCH];
	uint32_t i = 0;

	for (uint32_t k = 0; k < n; k++)
		out[k] = k;
	while (n > 1 && i < n - 1) {
		size_t count;
		const uint32_t *word = mt19937_take(rng, n - 1 - i, &count);

		places_of_words(place, word, (uint32_t)count, i, n);
		for (size_t k = 0; k < PREFETCH; k++) {
			place[count + k] =
				place[count - 1]; /* there is no later block to look into */
			__builtin_prefetch(&out[place[k]], 1);
		}
		for (size_t k = 0; k < count; k++, i++) {
			uint32_t taken = out[i];

			__builtin_prefetch(&out[place[k + PREFETCH]], 1);
			out[i] = out[place[k]];
			out[place[k]] = taken;
		}
	}
}

/* for i in 0..n-1: z = T64() % (i + 1); r[i] = r[z]; r[z] = i. Two words also for i = 0, as torch
 * draws them. */
void perm_torch_large(uint32_t *out, uint32_t n, struct mt19937 *rng)
{
	enum { BLOCK = MT19937_WORDS / 2 };
	uint32_t place[BLOCK + PREFETCH];
	uint32_t i = 0;

	while (i < n) {
		uint32_t count = n - i < BLOCK ? n - i : BLOCK;

		for (uint32_t k = 0; k < count; k++)
			place[k] = (uint32_t)(mt19937_t64(rng) % ((uint64_t)i + k + 1));
		for (uint32_t k = 0; k < PREFETCH; k++) {
			place[count + k] = place[count - 1];
			__builtin_prefetch(&out[place[k]], 1);
		}
		for (uint32_t k = 0; k < count; k++, i++) {
			__builtin_prefetch(&out[place[k + PREFETCH]], 1);
			out[i] = i; /* z may be i */
			out[i] = out[place[k]];
			out[place[k]] = i;
		}
	}
}

void perm_torch(uint32_t *out, uint32_t n, bool has_large, struct mt19937 *rng)
{
	if (has_large && n >= PERM_TORCH_LARGE)
		perm_torch_large(out, n, rng);
	else
		perm_torch_small(out, n, rng);
}

uint64_t perm_torch_words(uint32_t n, bool has_large)
{
	if (has_large && n >= PERM_TORCH_LARGE)
		return 2 * (uint64_t)n;
	return n > 0 ? n - 1 : 0;
}

void draw_torch(uint32_t *out, uint64_t count, uint32_t n, bool has_large, struct mt19937 *rng)
{
	if (has_large && n >= DRAW_TORCH_LARGE)
		for (uint64_t i = 0; i < count; i++)
			out[i] = (uint32_t)(mt19937_t64(rng) % n);
	else
		for (uint64_t i = 0; i < count; i++)
			out[i] = mt19937_u32(rng) % n;
}

void perm_identity(uint32_t *out, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		out[i] = i;
}

/* A number made of a word, of which 0..i are accepted (i >= 1) and others are drawn again. */
typedef uint32_t pick_fn(uint32_t word, uint32_t i);

/* The smallest 2^k - 1 that is not below i. */
static inline uint32_t pick_numpy(uint32_t word, uint32_t i)
{
	return word & UINT32_MAX >> __builtin_clz(i);
}

/* As many of the upper bits as i + 1 has: one more than numpy takes when i + 1 is a power of 2. */
static inline uint32_t pick_python(uint32_t word, uint32_t i)
{
	return word >> __builtin_clz(i + 1);
}

/* The next words, 1..max of them, in room or elsewhere. */
typedef const uint32_t *words_fn(void *rng, uint32_t *room, uint32_t max, uint32_t *ret_count);

static inline const uint32_t *words_mt19937(void *rng, uint32_t *room, uint32_t max,
					    uint32_t *ret_count)
{
	size_t count;
	const uint32_t *word = mt19937_take(rng, max, &count);

	*ret_count = (uint32_t)count;
	return word;
}

static inline const uint32_t *words_pcg64(void *rng, uint32_t *room, uint32_t max,
					  uint32_t *ret_count)
{
	for (uint32_t k = 0; k < max; k++)
		room[k] = pcg64_u32(rng);
	*ret_count = max;
	return room;
}

/* for i in n-1..1: swap(x[i], x[j]), j drawn from 0..i. Every place costs at least a word, so
 * asking for no more words than places are missing draws none too many. */
static inline __attribute__((always_inline)) void shuffle_down(uint32_t *x, uint32_t n,
							       pick_fn *pick, words_fn *words,
							       void *rng)
{
	enum { BLOCK = 512 };
	uint32_t place[BLOCK + PREFETCH], room[BLOCK];
	uint32_t i = n > 0 ? n - 1 : 0;

	while (i > 0) {
		uint32_t count = i < BLOCK ? i : BLOCK, have = 0;

		while (have < count) {
			uint32_t n_words;
			const uint32_t *word = words(rng, room, count - have, &n_words);

			for (uint32_t k = 0; k < n_words; k++) {
				place[have] = pick(word[k], i - have);
				have += place[have] <= i - have;
			}
		}
		for (uint32_t k = 0; k < PREFETCH; k++) {
			place[count + k] = place[count - 1];
			__builtin_prefetch(&x[place[k]], 1);
		}
		for (uint32_t k = 0; k < count; k++, i--) {
			uint32_t taken = x[i];

			__builtin_prefetch(&x[place[k + PREFETCH]], 1);
			x[i] = x[place[k]];
			x[place[k]] = taken;
		}
	}
}

void shuffle_numpy_mt19937(uint32_t *x, uint32_t n, struct mt19937 *rng)
{
	shuffle_down(x, n, pick_numpy, words_mt19937, rng);
}

void shuffle_numpy_pcg64(uint32_t *x, uint32_t n, struct pcg64 *rng)
{
	shuffle_down(x, n, pick_numpy, words_pcg64, rng);
}

void shuffle_python(uint32_t *x, uint32_t n, struct mt19937 *rng)
{
	shuffle_down(x, n, pick_python, words_mt19937, rng);
}
