/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tracer pages of units that have left the arena. The kernel has all of such a unit but its first page,
 * so that the READ of that page says when a reader has come there. The page stays here until then: else
 * that READ would be one of the source, and its reader would wait for what was fetched long ago.
 *
 * A tracer page is a range (ranges.c) that nobody evicts: there are few. Of a record it is in the table
 * (records.c): there may be many of one file. It goes with its READ, when the
 * unit is here again, when the kernel is seen to have lost the rest, and when the file changes. Where
 * nobody ever comes for it (a job that is over) it stays until one of these; its number is bounded. Where
 * there is no room for one more the page is pushed after the rest: nobody hears of that reader then, but it
 * does not wait for the source.
 */
#include "cache_priv.h"

#include <string.h>

/* Of one file, where they are looked for one after the other; of all, a part of the arena. */
enum { TRACERS_MAX = 1024, TRACERS_OF_ARENA = 16 };

bool tracer_is_awaited(struct cache *c, struct unit_id unit)
{
	return unit_is_traced(c, unit) && bits_get(c->staged, unit.v) &&
	       !bits_get(c->untraced, unit.v) && !bits_get(c->staged_opened, unit.v);
}

void *tracer_page(struct cache *c)
{
	uint64_t most = atomic_load(&c->arena_bytes) / TRACERS_OF_ARENA / c->tracer_bytes;

	return atomic_load(&c->n_tracers) < most ? arena_alloc(c->p.arena, c->tracer_bytes) : NULL;
}

/* What has the page of the unit, while it is here. */
static struct object *piece_of_locked(struct cache *c, struct shard *s, struct entry_state *es,
				      struct unit_id unit, uint64_t at) REQUIRES(s->mu)
{
	bool is_record = dataset_unit_is_record(c->p.dataset, unit);
	struct object *obj =
		object_find_locked(c, s, es->entry,
				   is_record ? records_part_at(c, unit, at)
					     : at / PIECE_BYTES);

	return obj && obj->state == OBJECT_RESIDENT && (is_record || es->n_tracers < TRACERS_MAX)
		       ? obj
		       : NULL;
}

static struct object *tracer_new_locked(struct cache *c, struct shard *s, struct entry_state *es,
					const struct object *piece, struct unit_id unit, uint64_t at,
					uint32_t length) REQUIRES(s->mu)
{
	struct object *obj;

	if (dataset_unit_is_record(c->p.dataset, unit))
		return records_tracer_new_locked(c, s, es, &piece->identity, unit, at, length);
	obj = range_new_locked(c, s, es, &piece->identity, at, at + length);
	es->n_tracers += obj != NULL;
	return obj;
}

void tracer_keep_locked(struct cache *c, struct shard *s, struct entry_state *es,
			struct unit_id unit, void **page)
{
	struct dataset_extent own = dataset_unit_own(c->p.dataset, unit);
	uint64_t at = own.offset;
	struct object *piece = *page && own.length ? piece_of_locked(c, s, es, unit, at) : NULL;
	struct object *obj = NULL;
	uint32_t length = 0;

	if (piece) {
		length = (uint32_t)MIN(piece->start + piece->length - at, (uint64_t)c->tracer_bytes);
		obj = tracer_new_locked(c, s, es, piece, unit, at, length);
	}
	if (!obj)
		return;
	obj->mem = TAKE(*page);
	memcpy(obj->mem, (const char *)piece->mem + (at - piece->start), length);
	obj->rights = piece->rights;
	obj->read_class = READ_ARENA;
	obj->young_until_ns = piece->young_until_ns;
	obj->is_planned = obj->is_tracer = true;
	atomic_fetch_add(&c->n_tracers, 1);
	object_move_locked(obj, OBJECT_FETCHING);
	object_move_locked(obj, OBJECT_RESIDENT);
}

void tracer_push_locked(struct cache *c, struct shard *s, struct entry_state *es,
			struct unit_id unit, struct page_job **take_job)
{
	struct dataset_extent own = dataset_unit_own(c->p.dataset, unit);
	struct object *piece = *take_job && own.length ? piece_of_locked(c, s, es, unit, own.offset) : NULL;

	if (piece)
		push_page_locked(c, s, es, piece, own.offset, TAKE(*take_job));
}

void tracer_drop_locked(struct cache *c, struct shard *s, struct entry_state *es,
			struct unit_id unit, struct list *dead)
{
	uint64_t from = dataset_unit_extent(c->p.dataset, unit).offset;
	struct list *node = es->objects.next;
	struct object *kept = NULL;

	if (dataset_unit_is_record(c->p.dataset, unit))
		kept = records_tracer_find_locked(c, s, es, unit);
	if (kept)
		object_drop_locked(c, s, kept, dead);
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
