/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hot ranges: small parts of larger files that READs ask for again and again, as the kernel loses them
 * and all readers of the file want them: a footer, nodes of an index, a table of offsets. A READ that
 * nothing foresaw takes its bytes with it when it goes (ranges.c); when it asks for what was asked for
 * a moment ago (ahead_file_again) they stay. The next one is answered from the arena, where a reader
 * would wait for the source before each of its records.
 *
 * They are in no list of plain objects: streams pass through that one and would take them along. A
 * 64th of the arena is for all of them, and of one file 32, as they are looked for one after the
 * other. Beyond that the one that was used least recently goes, of those under the same lock.
 *
 * Runs on whoever has the lock of the file's shard; never blocks.
 */
#include "cache_priv.h"

enum { HOT_OF_ARENA = 64, HOT_OF_FILE = 32 };

static uint64_t hot_most(struct cache *c)
{
	return atomic_load(&c->arena_bytes) / HOT_OF_ARENA;
}

void hot_want_locked(struct shard *s, struct object *obj)
{
	struct entry_state *es = obj->state_of;

	(void)s;
	assert(obj->is_range && obj->state == OBJECT_QUEUED && !obj->is_once && !obj->is_hot);
	if (es->n_hot >= HOT_OF_FILE) {
		range_once_locked(s, obj);
		return;
	}
	obj->is_hot = true;
	es->n_hot++;
}

bool hot_evict_locked(struct cache *c, struct shard *s, uint64_t room, struct list *dead)
{
	for (struct list *node = s->hot.next; node != &s->hot; node = node->next) {
		struct object *obj = container_of(node, struct object, in_lru);

		if (atomic_load(&c->hot_bytes) + room <= hot_most(c))
			return false;
		if (obj->refs > 1) /* in use: dropping it would free nothing now */
			continue;
		object_drop_locked(c, s, obj, dead);
		return true;
	}
	return false;
}

void hot_keep_locked(struct cache *c, struct shard *s, struct object *obj, struct list *dead)
{
	assert(obj->is_hot && obj->state == OBJECT_RESIDENT && list_is_empty(&obj->in_lru));
	while (hot_evict_locked(c, s, obj->length, dead))
		;
	if (atomic_load(&c->hot_bytes) + obj->length > hot_most(c)) {
		object_drop_locked(c, s, obj, dead);
		return;
	}
	list_push_tail(&s->hot, &obj->in_lru);
	atomic_fetch_add(&c->hot_bytes, obj->length);
}
