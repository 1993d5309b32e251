/* SPDX-License-Identifier: Apache-2.0 */
/* Small ranges that are asked for again and again: hot.c. Included by cache_priv.h. */
#ifndef CLAIRFS_CACHE_HOT_PRIV_H
#define CLAIRFS_CACHE_HOT_PRIV_H

#include "clairfs/cache.h"

struct object;
struct shard;

/* A new range is to stay when it has come; where its file has enough of them it goes with its READ. */
void hot_want_locked(struct shard *s, struct object *obj) REQUIRES(s->mu);
/* It has come. Dropped where there is no room. */
void hot_keep_locked(struct cache *c, struct shard *s, struct object *obj, struct list *dead)
	REQUIRES(s->mu);
/* Drops the oldest one under that lock if, with `room` bytes more, there are more than may be. */
bool hot_evict_locked(struct cache *c, struct shard *s, uint64_t room, struct list *dead)
	REQUIRES(s->mu);

#endif
