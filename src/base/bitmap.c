/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bitmap in 64-bit words. Bits behind `size` in the last word stay clear for ever; so no search
 * needs a check of its result: a set bit is never behind `size`, and the first clear one behind it
 * is `size` itself. A bit number out of range is a bug of the caller and stops the program: it
 * would otherwise be a write somewhere in the heap.
 */
#include "clairfs/base/bitmap.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static uint64_t bitmap_n_words(uint64_t size)
{
	return size / 64 + (size % 64 != 0);
}

int bitmap_init(struct bitmap *b, uint64_t size)
{
	uint64_t n_words = MAX(bitmap_n_words(size), 1);

	*b = (struct bitmap){ .words = calloc(n_words, sizeof(*b->words)) };
	if (!b->words)
		return -ENOMEM;
	b->size = size;
	return 0;
}

void bitmap_fini(struct bitmap *b)
{
	free(b->words);
	*b = (struct bitmap){ 0 };
}

void bitmap_clear_all(struct bitmap *b)
{
	memset(b->words, 0, bitmap_n_words(b->size) * sizeof(*b->words));
	b->count = 0;
}

bool bitmap_get(const struct bitmap *b, uint64_t bit)
{
	assert(bit < b->size);
	return b->words[bit / 64] >> (bit % 64) & 1;
}

bool bitmap_set(struct bitmap *b, uint64_t bit)
{
	if (bitmap_get(b, bit))
		return false;
	b->words[bit / 64] |= UINT64_C(1) << (bit % 64);
	b->count++;
	return true;
}

bool bitmap_clear(struct bitmap *b, uint64_t bit)
{
	if (!bitmap_get(b, bit))
		return false;
	b->words[bit / 64] &= ~(UINT64_C(1) << (bit % 64));
	b->count--;
	return true;
}

uint64_t bitmap_next_clear(const struct bitmap *b, uint64_t from)
{
	uint64_t n_words = bitmap_n_words(b->size), at, word;

	if (from >= b->size)
		return b->size;
	at = from / 64;
	word = ~b->words[at] & (UINT64_MAX << (from % 64));
	while (word == 0) {
		if (++at == n_words)
			return b->size;
		word = ~b->words[at];
	}
	return at * 64 + (uint64_t)__builtin_ctzll(word);
}
