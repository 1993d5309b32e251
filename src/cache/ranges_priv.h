/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of files of several pieces, and what is fetched ahead of their readers: ranges.c. Included by
 * cache_priv.h. */
#ifndef CLAIRFS_CACHE_RANGES_PRIV_H
#define CLAIRFS_CACHE_RANGES_PRIV_H

#include "clairfs/cache.h"

#include "ahead_priv.h"

struct object;

int ranges_init(struct cache *c) MUST_USE;
void ranges_fini(struct cache *c);
uint64_t ranges_table_bytes(struct cache *c);
/* A READ of such a file has come, and ends at `end`: what to fetch for it. */
void ranges_advise(struct cache *c, const struct cache_read *r, const struct file_identity *id,
		   uint64_t end, struct ahead_advice *ret);
/* What there is, or is under way, of the byte at `at`; NULL: nothing. */
struct object *ranges_find_locked(struct cache *c, struct shard *s, struct entry_state *es,
				  uint64_t at) REQUIRES(s->mu);
/* Up to where, at most `end`, nothing of what comes after `at` is there. */
uint64_t ranges_gap_locked(struct cache *c, struct shard *s, struct entry_state *es, uint64_t at,
			   uint64_t end) REQUIRES(s->mu);
/* QUEUED, for a READ that has come; as object_new_locked. range_once_locked: it goes with that. */
struct object *range_new_locked(struct cache *c, struct shard *s, struct entry_state *es,
				const struct file_identity *id, uint64_t from, uint64_t to)
	REQUIRES(s->mu);
void range_once_locked(struct shard *s, struct object *obj) REQUIRES(s->mu);
/* It leaves the list of its file. */
void range_left_locked(struct cache *c, struct shard *s, struct object *obj) REQUIRES(s->mu);
/* Queues prefetches of what is missing between; prefetch_pump must follow, without the lock, when
 * this is true. */
bool ranges_ahead_locked(struct cache *c, struct shard *s, struct entry_state *es,
			 const struct file_identity *id, const struct ahead_advice *advice,
			 struct list *dead) REQUIRES(s->mu);
/* A reader has come for it. */
void range_met(struct cache *c, struct object *obj);
/* A READ got these bytes of its memory. What was read to its end is the first to go. */
void range_used_locked(struct cache *c, struct shard *s, struct object *obj, const struct iovec *got,
		       struct list *dead) REQUIRES(s->mu);
/* The source will be asked for it. Any thread; beside the lock of a shard, like the next two. */
void range_spent(struct cache *c, struct object *obj);
/* For what is_charged or is_owed: it was fetched, or was not; what is_charged: or is dropped before
 * it came to that. */
void range_fetched(struct cache *c, struct object *obj, int status);
void range_unspent(struct cache *c, struct object *obj);
void range_answered(struct cache *c, const struct tier_read *read);

#endif
