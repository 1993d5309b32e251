/* SPDX-License-Identifier: Apache-2.0 */
/* The RAM tier's memory. Part of tier.h. */
#ifndef CLAIRFS_TIER_ARENA_H
#define CLAIRFS_TIER_ARENA_H

#include <stdint.h>

#include "clairfs/base/err.h"

struct arena;
/* Reserves address space for limit bytes (transparent huge pages where allowed); memory is used as
 * it is allocated and given back to the system when a chunk is empty, a few excepted. What is
 * resident never passes limit_bytes; tables take 0.3 % more. -EINVAL below 4 KiB or above 4 TiB.
 * Any thread. */
int arena_new(uint64_t limit_bytes, struct arena **ret, struct err *err) MUST_USE;
void arena_free(struct arena *arena);
/* 4096-aligned memory for `length` bytes, rounded up to whole pages of 4096 (0 counts as 1); or
 * NULL when no hole is that long, or above PIECE_BYTES. Holes between random sizes keep 1 to 9 % of
 * an arena of some GiB from use, up to 18 % of 128 MiB: evict more and try again. */
void *arena_alloc(struct arena *arena, uint32_t length);
/* length as it was allocated. */
void arena_release(struct arena *arena, void *mem, uint32_t length);
uint64_t arena_used(const struct arena *arena); /* bytes, rounding included */
/* Memory that it takes beside that: tags per page. */
uint64_t arena_table_bytes(const struct arena *arena);
/* From here on nothing is handed out beyond `bytes` (at most those of arena_new, which end this).
 * As long as that is less, all free memory is given back to the system, page by page: what is
 * resident is what is used. What is in use already stays: release it before. */
void arena_set_limit(struct arena *arena, uint64_t bytes);
/* What an allocation of `length` counts, without holes. */
uint64_t arena_cost(uint32_t length);

#endif
