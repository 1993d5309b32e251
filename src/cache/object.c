/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The object table: which pieces are here or on their way. Two chained hash tables per shard, files
 * and pieces; a shard holds whole files, so that "drop everything of this file" and "is a READ of
 * it in flight" are one critical section of a few dozen instructions. References instead of a lock
 * keep an object's memory while it is written to FUSE, pushed or stored. Runs on every thread of
 * the cache. It must never touch memory of the arena or free it with a lock held: giving memory
 * back may be a system call.
 */
#include "cache_priv.h"

#include <string.h>

static uint64_t mix_hash(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

struct shard *shard_of(struct cache *c, struct entry_id entry)
{
	return &c->shards[mix_hash(entry.v) % SHARDS];
}

static struct object **object_bucket(struct cache *c, struct shard *s, struct entry_id entry,
				     uint64_t key)
{
	return &s->objects[mix_hash((key << 32 | key >> 32) ^ entry.v) / SHARDS & (c->buckets - 1)];
}

static struct entry_state **entry_bucket(struct cache *c, struct shard *s, struct entry_id entry)
{
	return &s->entries[mix_hash(entry.v) / SHARDS & (c->buckets - 1)];
}

int objects_init(struct cache *c)
{
	uint64_t want = c->p.arena_bytes / (64 << 10) / SHARDS;

	c->buckets = 64;
	while (c->buckets < want && c->buckets < 1u << 16)
		c->buckets *= 2;
	for (int i = 0; i < SHARDS; i++) {
		struct shard *s = &c->shards[i];

		mutex_init(&s->mu);
		cond_init(&s->idle);
		list_init(&s->lru);
		list_init(&s->hot);
		s->objects = calloc(c->buckets, sizeof(*s->objects));
		s->entries = calloc(c->buckets, sizeof(*s->entries));
		if (!s->objects || !s->entries)
			c->buckets = 0; /* objects_fini copes; the rest of the shards still needs
					   its locks */
		if (!c->buckets)
			continue;
	}
	return c->buckets ? 0 : -ENOMEM;
}

static struct entry_state *entry_with_range(struct entry_state *es)
{
	while (es && !es->n_ranges)
		es = es->next_hash;
	return es;
}

static void shard_clear(struct cache *c, struct shard *s)
{
	struct list dead;

	list_init(&dead);
	mutex_lock(&s->mu);
	for (uint32_t b = 0; b < c->buckets; b++) {
		struct entry_state *es;

		while ((es = entry_with_range(s->entries[b])))
			object_drop_locked(
				c, s, container_of(es->objects.next, struct object, in_entry),
				&dead);
		while (s->objects[b])
			object_drop_locked(c, s, s->objects[b], &dead);
	}
	mutex_unlock(&s->mu);
	objects_free(c, &dead);
}

void objects_fini(struct cache *c)
{
	for (int i = 0; i < SHARDS; i++) {
		struct shard *s = &c->shards[i];

		shard_clear(c, s);
		for (uint32_t b = 0; b < c->buckets; b++)
			while (s->entries[b]) { /* only held: an empty sample */
				struct entry_state *es = s->entries[b];

				s->entries[b] = es->next_hash;
				free(es);
			}
		free(s->objects);
		free(s->entries);
		cond_fini(&s->idle);
		mutex_fini(&s->mu);
	}
}

struct entry_state *entry_find_locked(struct cache *c, struct shard *s, struct entry_id entry)
{
	struct entry_state *es = *entry_bucket(c, s, entry);

	while (es && !entry_eq(es->entry, entry))
		es = es->next_hash;
	return es;
}

struct entry_state *entry_get_locked(struct cache *c, struct shard *s, struct entry_id entry)
{
	struct entry_state *es = entry_find_locked(c, s, entry);
	struct entry_state **bucket;

	if (!es) {
		es = calloc(1, sizeof(*es));
		if (!es)
			return NULL;
		es->entry = entry;
		list_init(&es->objects);
		list_init(&es->attr_waiters);
		list_init(&es->reads);
		list_init(&es->fetches);
		es->inval_job.entry = es->attr_job.entry = entry;
		es->drop_job.entry = es->name_job.entry = entry;
		atomic_fetch_add(&c->n_files, 1);
		bucket = entry_bucket(c, s, entry);
		es->next_hash = *bucket;
		*bucket = es;
	}
	es->refs++;
	return es;
}

void entry_put_locked(struct cache *c, struct shard *s, struct entry_state *es)
{
	struct entry_state **at = entry_bucket(c, s, es->entry);

	assert(es->refs > 0);
	if (--es->refs)
		return;
	assert(es->readers == 0 && list_is_empty(&es->objects) && list_is_empty(&es->fetches));
	while (*at != es)
		at = &(*at)->next_hash;
	*at = es->next_hash;
	atomic_fetch_sub(&c->n_files, 1);
	free(es);
}

struct object *object_find_locked(struct cache *c, struct shard *s, struct entry_id entry,
				  uint64_t key)
{
	struct object *obj = *object_bucket(c, s, entry, key);

	while (obj && !(entry_eq(obj->state_of->entry, entry) && obj->key == key))
		obj = obj->next_hash;
	return obj;
}

void object_move_locked(struct object *obj, enum object_state to)
{
	static const bool allowed[OBJECT_STATES][OBJECT_STATES] = {
		[OBJECT_ABSENT] = { [OBJECT_QUEUED] = true },
		[OBJECT_QUEUED] = { [OBJECT_FETCHING] = true, [OBJECT_GONE] = true },
		[OBJECT_FETCHING] = { [OBJECT_RESIDENT] = true, [OBJECT_GONE] = true },
		[OBJECT_RESIDENT] = { [OBJECT_GONE] = true },
	};

	assert(allowed[obj->state][to]);
	assert(to != OBJECT_RESIDENT || obj->mem);
	assert(to == OBJECT_FETCHING || list_is_empty(&obj->waiters));
	obj->state = to;
}

struct object *object_alloc(uint64_t size)
{
	size_t used = size > PIECE_BYTES ? OBJECT_USED_WORDS * sizeof(uint64_t) : 0;

	return calloc(1, sizeof(struct object) + used);
}

struct object *object_add_locked(struct cache *c, struct shard *s, struct entry_state *es,
				 const struct file_identity *identity, uint64_t key, uint64_t start,
				 uint32_t length)
{
	struct object *obj = object_alloc(identity->size);
	struct object **bucket = object_bucket(c, s, es->entry, key);

	if (!obj)
		return NULL;
	list_init(&obj->in_lru);
	list_init(&obj->in_queue);
	list_init(&obj->waiters);
	obj->state_of = es;
	es->refs++;
	list_push_tail(&es->objects, &obj->in_entry); /* ranges stay in front */
	obj->identity = *identity;
	access_rights(c, es->entry, &obj->rights);
	obj->key = key;
	obj->piece = (uint32_t)(start / PIECE_BYTES);
	obj->start = start;
	obj->length = length;
	assert(length > 0 && length <= PIECE_BYTES);
	obj->refs = 1;
	obj->next_hash = *bucket;
	*bucket = obj;
	object_move_locked(obj, OBJECT_QUEUED);
	atomic_fetch_add(&c->n_objects, 1);
	return obj;
}

struct object *object_new_locked(struct cache *c, struct shard *s, struct entry_state *es,
				 const struct file_identity *identity, uint32_t piece)
{
	return object_add_locked(c, s, es, identity, piece, (uint64_t)piece * PIECE_BYTES,
				 piece_length(identity->size, piece));
}

void object_make_plain_locked(struct cache *c, struct shard *s, struct object *obj)
{
	assert(obj->state == OBJECT_RESIDENT && list_is_empty(&obj->in_lru));
	obj->is_planned = false;
	list_push_tail(&s->lru, &obj->in_lru);
	atomic_fetch_add(&c->plain_bytes, obj->length);
}

static void lru_remove_locked(struct cache *c, struct shard *s, struct object *obj) REQUIRES(s->mu)
{
	if (list_is_empty(&obj->in_lru))
		return;
	list_remove(&obj->in_lru);
	if (obj->is_hot)
		hot_count_locked(c, s, obj, false);
	else
		atomic_fetch_sub(&c->plain_bytes, obj->length);
}

void object_make_planned_locked(struct cache *c, struct shard *s, struct object *obj)
{
	lru_remove_locked(c, s, obj);
	obj->is_planned = true;
}

void object_touch_locked(struct shard *s, struct object *obj)
{
	if (list_is_empty(&obj->in_lru))
		return;
	list_remove(&obj->in_lru);
	list_push_tail(obj->is_hot ? &s->hot : &s->lru, &obj->in_lru);
}

void object_drop_locked(struct cache *c, struct shard *s, struct object *obj, struct list *dead)
{
	struct object **at = object_bucket(c, s, obj->state_of->entry, obj->key);

	while (!obj->is_range && *at != obj)
		at = &(*at)->next_hash;
	if (obj->is_range)
		range_left_locked(c, s, obj);
	else
		*at = obj->next_hash;
	if (obj->is_record && obj->is_tracer)
		atomic_fetch_sub(&c->n_tracers, 1);
	if (obj->is_ahead)
		range_met(c, obj);
	if (obj->is_charged && obj->state == OBJECT_QUEUED)
		range_unspent(c, obj);
	list_remove(&obj->in_entry);
	lru_remove_locked(c, s, obj);
	if (obj->state !=
	    OBJECT_FETCHING) /* fetch_end moves it: there are readers to be told first */
		object_move_locked(obj, OBJECT_GONE);
	object_put_locked(c, s, obj, dead);
}

void object_put_locked(struct cache *c, struct shard *s, struct object *obj, struct list *dead)
{
	assert(obj->refs > 0);
	if (--obj->refs)
		return;
	assert(obj->state == OBJECT_GONE && !obj->job);
	assert(list_is_empty(&obj->waiters) && list_is_empty(&obj->in_lru) &&
	       list_is_empty(&obj->in_queue));
	entry_put_locked(c, s, obj->state_of);
	obj->state_of = NULL;
	list_push_tail(dead, &obj->in_entry);
}

void object_put(struct cache *c, struct object *obj)
{
	struct shard *s = shard_of(c, obj->state_of->entry);
	struct list dead;

	list_init(&dead);
	mutex_lock(&s->mu);
	object_put_locked(c, s, obj, &dead);
	mutex_unlock(&s->mu);
	objects_free(c, &dead);
}

void objects_free(struct cache *c, struct list *dead)
{
	struct list *node;

	while ((node = list_pop_head(dead))) {
		struct object *obj = container_of(node, struct object, in_entry);

		if (obj->mem && obj->is_heap)
			free(obj->mem);
		else if (obj->mem)
			arena_release(c->p.arena, obj->mem, obj->length);
		free(obj);
		atomic_fetch_sub(&c->n_objects, 1);
	}
}

static bool evict_plain_locked(struct cache *c, struct shard *s, struct list *dead) REQUIRES(s->mu)
{
	for (struct list *node = s->lru.next; node != &s->lru; node = node->next) {
		struct object *obj = container_of(node, struct object, in_lru);

		if (obj->refs > 1) /* in use: dropping it would free nothing now */
			continue;
		object_drop_locked(c, s, obj, dead);
		metrics_add(c->p.metrics, METRIC_EVICTIONS, 1);
		return true;
	}
	return false;
}

bool evict_one(struct cache *c)
{
	uint32_t start = atomic_fetch_add(&c->evict_at, 1);
	struct list dead;
	bool is_done = false;

	list_init(&dead);
	for (uint32_t i = 0; i < 2 * SHARDS && !is_done; i++) { /* hot ones in the second round only */
		struct shard *s = &c->shards[(start + i) % SHARDS];

		mutex_lock(&s->mu);
		is_done = i < SHARDS ? evict_plain_locked(c, s, &dead)
				     : hot_evict_locked(c, s, &dead);
		mutex_unlock(&s->mu);
	}
	objects_free(c, &dead);
	return is_done;
}

void busy_leave_locked(struct cache *c, struct shard *s, struct list *dead)
{
	if (!list_is_empty(dead)) {
		mutex_unlock(&s->mu);
		objects_free(c, dead);
		mutex_lock(&s->mu);
	}
	busy_end_locked(s);
	mutex_unlock(&s->mu);
}

void busy_end_locked(struct shard *s)
{
	assert(s->busy > 0);
	if (--s->busy == 0)
		cond_broadcast(&s->idle);
}
