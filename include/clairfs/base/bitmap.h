/* SPDX-License-Identifier: Apache-2.0 */
/* A plain bitmap with a count of set bits. Not thread-safe. */
#ifndef CLAIRFS_BASE_BITMAP_H
#define CLAIRFS_BASE_BITMAP_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/cleanup.h"

struct bitmap {
	uint64_t *words;
	uint64_t size;  /* bits */
	uint64_t count; /* bits set */
};

/* All bits clear. -ENOMEM. */
int bitmap_init(struct bitmap *b, uint64_t size) MUST_USE;
void bitmap_fini(struct bitmap *b);
void bitmap_clear_all(struct bitmap *b);
bool bitmap_get(const struct bitmap *b, uint64_t bit);
/* True when the bit changed. */
bool bitmap_set(struct bitmap *b, uint64_t bit);
bool bitmap_clear(struct bitmap *b, uint64_t bit);
/* First clear bit >= from, or size. */
uint64_t bitmap_next_clear(const struct bitmap *b, uint64_t from);

#endif
