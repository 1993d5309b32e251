/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of a large file an open of it asks for: all of it where a sample is a file, a record where
 * it is a shard of them. Of pages that were pushed nobody hears who reads them, so an open of pushed
 * pages is taken to ask for as much of its file as opens do that had to ask us. As long as there was
 * none of these, for all of it: that is what a file is pushed for.
 *
 * Of a file of several units the READs of tracer pages say who comes to each, and nothing is guessed.
 *
 * One number for the dataset. It follows what grows sooner than what shrinks: READs of less may also
 * mean that the kernel had the rest from before.
 *
 * Any thread; of two at once one may be lost.
 */
#include "cache_priv.h"

enum { ASKED_ALL = 1 << 16, ASKED_GROW = 4, ASKED_SHRINK = 16 };

void asked_learn(struct cache *c, uint64_t size, uint64_t bytes)
{
	uint32_t old = atomic_load(&c->asked_part), part = ASKED_ALL, next;

	if (bytes < size)
		part = (uint32_t)((double)bytes / (double)size * ASKED_ALL);
	part = MAX(part, 1u); /* 0: nothing is known */
	if (!old)
		next = part;
	else if (part > old)
		next = old + DIV_ROUND_UP(part - old, ASKED_GROW);
	else
		next = old - DIV_ROUND_UP(old - part, ASKED_SHRINK);
	(void)atomic_compare_exchange_weak(&c->asked_part, &old, next);
}

uint64_t cache_asked_of(struct cache *c, struct unit_id unit)
{
	uint64_t size = dataset_unit_extent(c->p.dataset, unit).length;
	uint32_t part = atomic_load(&c->asked_part);

	if (dataset_unit_is_record(c->p.dataset, unit))
		return dataset_unit_bytes(c->p.dataset, unit);
	if (size <= PIECE_BYTES || !part || part == ASKED_ALL || unit_is_traced(c, unit))
		return size;
	return (uint64_t)((double)size / ASKED_ALL * part);
}
