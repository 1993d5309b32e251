/* SPDX-License-Identifier: Apache-2.0 */
/* Small ranges that are asked for again and again: hot.c. Included by cache_priv.h. */
#ifndef CLAIRFS_CACHE_HOT_PRIV_H
#define CLAIRFS_CACHE_HOT_PRIV_H

#include "clairfs/cache.h"

struct object;
struct shard;

/* A new range is to stay when it has come. */
void hot_want_locked(struct shard *s, struct object *obj) REQUIRES(s->mu);
/* It has come. Dropped where there is no room. */
void hot_keep_locked(struct cache *c, struct shard *s, struct object *obj, struct list *dead)
	REQUIRES(s->mu);
/* A piece has come: drops those that are within it. */
void hot_replace_locked(struct cache *c, struct shard *s, const struct object *piece,
			struct list *dead) REQUIRES(s->mu);
/* It has entered or left shard.hot. */
void hot_count_locked(struct cache *c, struct shard *s, const struct object *obj, bool is_there)
	REQUIRES(s->mu);
/* Drops the oldest one under that lock; false: there is none. */
bool hot_evict_locked(struct cache *c, struct shard *s, struct list *dead) REQUIRES(s->mu);

#endif
