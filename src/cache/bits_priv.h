/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bitmaps that any thread changes without a lock: one bit per file or sample. A bit orders nothing
 * else: whoever needs that takes the lock of the shard.
 */
#ifndef CLAIRFS_CACHE_BITS_PRIV_H
#define CLAIRFS_CACHE_BITS_PRIV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

static inline bool bits_get(_Atomic uint64_t *bits, uint32_t i)
{
	return atomic_load_explicit(&bits[i / 64], memory_order_relaxed) >> (i % 64) & 1;
}
/* True when it was clear. */
static inline bool bits_set(_Atomic uint64_t *bits, uint32_t i)
{
	return !bits_get(bits, i) &&
	       !(atomic_fetch_or(&bits[i / 64], 1ull << (i % 64)) >> (i % 64) & 1);
}
/* True when it was set. */
static inline bool bits_clear(_Atomic uint64_t *bits, uint32_t i)
{
	return bits_get(bits, i) &&
	       (atomic_fetch_and(&bits[i / 64], ~(1ull << (i % 64))) >> (i % 64) & 1);
}

#endif
