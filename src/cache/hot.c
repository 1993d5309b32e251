/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hot ranges: small parts of larger files that READs ask for again and again, as the kernel loses them
 * and all readers of the file want them: a footer, nodes of an index, a table of offsets. A READ that
 * nothing foresaw takes its bytes with it when it goes (ranges.c). When it asks for what one of the last
 * READs like it has asked for (ahead_file_again) they stay. The next one is answered from the arena,
 * where a reader would wait for the source before each of its records.
 *
 * They are in no list of plain objects: streams pass through that one and would take them along. A
 * 64th of the arena is for all of them: half of that for whoever comes first, the other half in equal
 * shares, one under each shard's lock. Of one file there are 32, as they are looked for one after the
 * other. Beyond that the one goes that was used least recently, of the file or under the same lock; and
 * when memory is wanted and nothing plain is left.
 *
 * What is fetched ahead passes over them, or a stream would come in parts that go when they are read,
 * in each pass. A piece that has come takes their place.
 *
 * Runs on whoever has the lock of the file's shard; never blocks.
 */
#include "cache_priv.h"

enum { HOT_OF_ARENA = 128, HOT_OF_FILE = 32 };

void hot_want_locked(struct shard *s, struct object *obj)
{
	(void)s;
	assert(obj->is_range && obj->state == OBJECT_QUEUED && !obj->is_once && !obj->is_hot);
	obj->is_hot = true;
	obj->state_of->n_hot++;
}

void hot_count_locked(struct cache *c, struct shard *s, const struct object *obj, bool is_there)
{
	assert(obj->is_hot && (is_there || s->hot_bytes >= obj->length));
	if (is_there) {
		s->hot_bytes += obj->length;
		atomic_fetch_add(&c->hot_bytes, obj->length);
	} else {
		s->hot_bytes -= obj->length;
		atomic_fetch_sub(&c->hot_bytes, obj->length);
	}
}

/* es: only of that file, or NULL. */
static bool evict_oldest_locked(struct cache *c, struct shard *s, const struct entry_state *es,
				struct list *dead) REQUIRES(s->mu)
{
	for (struct list *node = s->hot.next; node != &s->hot; node = node->next) {
		struct object *obj = container_of(node, struct object, in_lru);

		if (obj->refs > 1 || (es && obj->state_of != es)) /* in use: it would free nothing now */
			continue;
		object_drop_locked(c, s, obj, dead);
		metrics_add(c->p.metrics, METRIC_EVICTIONS, 1);
		return true;
	}
	return false;
}

bool hot_evict_locked(struct cache *c, struct shard *s, struct list *dead)
{
	return evict_oldest_locked(c, s, NULL, dead);
}

static bool has_room_locked(struct cache *c, const struct shard *s, uint32_t length)
{
	uint64_t most = atomic_load(&c->arena_bytes) / HOT_OF_ARENA;

	return atomic_load(&c->hot_bytes) + length <= most ||
	       s->hot_bytes + length <= most / SHARDS;
}

void hot_keep_locked(struct cache *c, struct shard *s, struct object *obj, struct list *dead)
{
	assert(obj->is_hot && obj->state == OBJECT_RESIDENT && list_is_empty(&obj->in_lru));
	while (obj->state_of->n_hot > HOT_OF_FILE && evict_oldest_locked(c, s, obj->state_of, dead))
		;
	while (!has_room_locked(c, s, obj->length) && evict_oldest_locked(c, s, NULL, dead))
		;
	if (!has_room_locked(c, s, obj->length) || obj->state_of->n_hot > HOT_OF_FILE) {
		object_drop_locked(c, s, obj, dead);
		return;
	}
	list_push_tail(&s->hot, &obj->in_lru);
	hot_count_locked(c, s, obj, true);
}

void hot_replace_locked(struct cache *c, struct shard *s, const struct object *piece,
			struct list *dead)
{
	struct list *node = piece->state_of->objects.next, *next;
	uint32_t n = piece->state_of->n_ranges;

	if (piece->is_range || !piece->state_of->n_hot)
		return;
	for (uint32_t i = 0; i < n; i++, node = next) {
		struct object *obj = container_of(node, struct object, in_entry);

		next = node->next;
		if (obj->is_hot && obj->state == OBJECT_RESIDENT && obj->start >= piece->start &&
		    obj->start + obj->length <= piece->start + piece->length)
			object_drop_locked(c, s, obj, dead);
	}
}
