/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tracer pages of units that have left the arena. The kernel has all of such a unit but its first page,
 * so that the READ of that page says when a reader has come there. The page stays here until then: else
 * that READ would be one of the source, and its reader would wait for what was fetched long ago.
 *
 * A tracer page is a range (ranges.c) that nobody evicts: there are few. It goes with its READ, when the
 * unit is here again, when the kernel is seen to have lost the rest, and when the file changes. Where
 * nobody ever comes for it (a job that is over) it stays until one of these; its number is bounded.
 */
#include "cache_priv.h"

#include <string.h>

/* Of one file, as they are looked for one after the other; of all, a part of the arena. */
enum { TRACERS_MAX = 1024, TRACERS_OF_ARENA = 256 };

void *tracer_page(struct cache *c, struct unit_id unit)
{
	bool is_awaited = unit_is_traced(c, unit) && bits_get(c->staged, unit.v) &&
			  !bits_get(c->staged_opened, unit.v);

	uint64_t most = atomic_load(&c->arena_bytes) / TRACERS_OF_ARENA / c->tracer_bytes;

	return is_awaited && atomic_load(&c->n_tracers) < most
		       ? arena_alloc(c->p.arena, c->tracer_bytes)
		       : NULL;
}

static struct object *first_piece_locked(struct cache *c, struct shard *s, struct entry_state *es,
					 struct unit_id unit) REQUIRES(s->mu)
{
	uint64_t from = dataset_unit_extent(c->p.dataset, unit).offset;
	struct object *obj = object_find_locked(c, s, es->entry, (uint32_t)(from / PIECE_BYTES));

	return obj && obj->state == OBJECT_RESIDENT && es->n_tracers < TRACERS_MAX ? obj : NULL;
}

void tracer_keep_locked(struct cache *c, struct shard *s, struct entry_state *es,
			struct unit_id unit, void **page)
{
	struct object *piece = *page ? first_piece_locked(c, s, es, unit) : NULL, *obj = NULL;
	uint32_t length;

	if (piece) {
		length = MIN(piece->length, c->tracer_bytes);
		obj = range_new_locked(c, s, es, &piece->identity, piece->start,
				       piece->start + length);
	}
	if (!obj)
		return;
	obj->mem = TAKE(*page);
	memcpy(obj->mem, piece->mem, length);
	obj->rights = piece->rights;
	obj->read_class = READ_ARENA;
	obj->young_until_ns = piece->young_until_ns;
	obj->is_planned = obj->is_tracer = true;
	es->n_tracers++;
	atomic_fetch_add(&c->n_tracers, 1);
	object_move_locked(obj, OBJECT_FETCHING);
	object_move_locked(obj, OBJECT_RESIDENT);
}

void tracer_drop_locked(struct cache *c, struct shard *s, struct entry_state *es,
			struct unit_id unit, struct list *dead)
{
	uint64_t from = dataset_unit_extent(c->p.dataset, unit).offset;
	struct list *node = es->objects.next;

	for (uint32_t i = 0; es->n_tracers && i < es->n_ranges; i++, node = node->next) {
		struct object *obj = container_of(node, struct object, in_entry);

		if (!obj->is_tracer || obj->start != from)
			continue;
		object_drop_locked(c, s, obj, dead);
		return;
	}
}

void tracer_lost(struct cache *c, struct unit_id unit)
{
	struct entry_id entry;
	struct entry_state *es;
	struct shard *s;
	struct list dead;

	if (!atomic_load(&c->n_tracers) || !unit_is_traced(c, unit))
		return;
	entry = dataset_unit_entry(c->p.dataset, unit);
	s = shard_of(c, entry);
	list_init(&dead);
	mutex_lock(&s->mu);
	es = entry_find_locked(c, s, entry);
	if (es) {
		es->refs++;
		tracer_drop_locked(c, s, es, unit, &dead);
		entry_put_locked(c, s, es);
	}
	mutex_unlock(&s->mu);
	objects_free(c, &dead);
}
