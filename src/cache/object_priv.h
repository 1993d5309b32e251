/* SPDX-License-Identifier: Apache-2.0 */
/* The object table: object.c. Included by cache_priv.h. */
#ifndef CLAIRFS_CACHE_OBJECT_PRIV_H
#define CLAIRFS_CACHE_OBJECT_PRIV_H

#include "clairfs/cache.h"

struct entry_state;
struct object;
struct shard;

struct shard *shard_of(struct cache *c, struct entry_id entry);
int objects_init(struct cache *c) MUST_USE;
void objects_fini(struct cache *c);
struct entry_state *entry_find_locked(struct cache *c, struct shard *s, struct entry_id entry)
	REQUIRES(s->mu);
/* Finds or makes, with a reference; NULL when out of memory. */
struct entry_state *entry_get_locked(struct cache *c, struct shard *s, struct entry_id entry)
	REQUIRES(s->mu);
void entry_put_locked(struct cache *c, struct shard *s, struct entry_state *es) REQUIRES(s->mu);
/* key: the number of a piece; parts of records have others (records_key). */
struct object *object_find_locked(struct cache *c, struct shard *s, struct entry_id entry,
				  uint64_t key) REQUIRES(s->mu);
/* QUEUED, in the table, without memory; the table holds one reference. NULL when out of memory. */
struct object *object_new_locked(struct cache *c, struct shard *s, struct entry_state *es,
				 const struct file_identity *identity, uint32_t piece)
	REQUIRES(s->mu);
/* The same of any bytes of the file, with this number in the table. */
struct object *object_add_locked(struct cache *c, struct shard *s, struct entry_state *es,
				 const struct file_identity *identity, uint64_t key, uint64_t start,
				 uint32_t length) REQUIRES(s->mu);
/* Zeros, for one of a file of that size; NULL when out of memory. */
struct object *object_alloc(uint64_t size);
void object_move_locked(struct object *obj, enum object_state to);
/* RESIDENT and nobody's: the next one to go when memory is short. */
void object_make_plain_locked(struct cache *c, struct shard *s, struct object *obj) REQUIRES(s->mu);
void object_make_planned_locked(struct cache *c, struct shard *s, struct object *obj)
	REQUIRES(s->mu);
void object_touch_locked(struct shard *s, struct object *obj) REQUIRES(s->mu);
/* Takes it out of the table; a fetch in flight ends by itself. Its references keep it. `dead` gets
 * it if that was the last. */
void object_drop_locked(struct cache *c, struct shard *s, struct object *obj, struct list *dead)
	REQUIRES(s->mu);
void object_put_locked(struct cache *c, struct shard *s, struct object *obj, struct list *dead)
	REQUIRES(s->mu);
void object_put(struct cache *c, struct object *obj);
/* Frees what object_put_locked has gathered; without the lock. */
void objects_free(struct cache *c, struct list *dead);
/* Frees one plain resident of any file, or a hot range where there is none; false when neither is. */
bool evict_one(struct cache *c);
void busy_end_locked(struct shard *s) REQUIRES(s->mu);
/* The last thing that is done of a READ or a fetch, as cache_stop() may go on then: frees `dead`
 * before. Without the lock afterwards. */
void busy_leave_locked(struct cache *c, struct shard *s, struct list *dead) RELEASE(s->mu);

#endif
