/* SPDX-License-Identifier: Apache-2.0 */
/* A set of numbers below a bound as a 64-ary tree of bitmaps: a bit of level l+1 says that a word
 * of level l is not zero.
 *
 * A heap would cost a dozen cache misses at ten million members and needs the keys; here the
 * numbers are the keys, three to five words are touched, and the whole set is one eighth of a byte
 * per position. The plan asks it for "due next" (tree_next) and "needed last" (tree_max). */
#include "clairfs/base/tree.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int tree_init(struct tree *t, uint64_t size)
{
	uint64_t words[TREE_LEVELS], total = 0, w = size;

	memset(t, 0, sizeof(*t));
	do {
		assert(t->levels < TREE_LEVELS);
		w = MAX(DIV_ROUND_UP(w, 64), 1);
		words[t->levels++] = w;
		total += w;
	} while (w > 1);
	t->level[0] = calloc(total, sizeof(uint64_t));
	if (!t->level[0])
		return -ENOMEM;
	for (uint32_t l = 1; l < t->levels; l++)
		t->level[l] = t->level[l - 1] + words[l - 1];
	t->size = size;
	return 0;
}

void tree_fini(struct tree *t)
{
	free(t->level[0]);
	memset(t, 0, sizeof(*t));
}

void tree_clear_all(struct tree *t)
{
	uint64_t *top = t->levels ? t->level[t->levels - 1] : NULL;

	if (top)
		memset(t->level[0], 0, (size_t)(top + 1 - t->level[0]) * sizeof(*top));
	t->count = 0;
}

void tree_set(struct tree *t, uint64_t bit)
{
	assert(bit < t->size && !tree_get(t, bit));
	t->count++;
	for (uint32_t l = 0; l < t->levels; l++, bit /= 64) {
		uint64_t *word = &t->level[l][bit / 64], was = *word;

		*word |= 1ull << bit % 64;
		if (was)
			break;
	}
}

void tree_clear(struct tree *t, uint64_t bit)
{
	assert(bit < t->size && tree_get(t, bit));
	t->count--;
	for (uint32_t l = 0; l < t->levels; l++, bit /= 64) {
		uint64_t *word = &t->level[l][bit / 64];

		*word &= ~(1ull << bit % 64);
		if (*word)
			break;
	}
}

uint64_t tree_next(const struct tree *t, uint64_t from)
{
	if (from >= t->size || !t->count)
		return NO_POS;
	for (uint32_t l = 0; l < t->levels; l++) {
		uint64_t word = t->level[l][from / 64] & ~0ull << from % 64;

		if (word) {
			from = ALIGN_DOWN(from, 64) + (uint64_t)__builtin_ctzll(word);
			while (l-- > 0)
				from = from * 64 + (uint64_t)__builtin_ctzll(t->level[l][from]);
			return from;
		}
		from = from / 64 +
		       1; /* the next word of this level = the next bit of the level above */
		if (l + 1 < t->levels &&
		    from / 64 >= DIV_ROUND_UP((uint64_t)(t->level[l + 1] - t->level[l]), 64))
			return NO_POS;
	}
	return NO_POS;
}

uint64_t tree_max(const struct tree *t)
{
	uint64_t at = 0;

	if (!t->count)
		return NO_POS;
	for (uint32_t l = t->levels; l-- > 0;)
		at = at * 64 + 63 - (uint64_t)__builtin_clzll(t->level[l][at]);
	return at;
}
