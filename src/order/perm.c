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
