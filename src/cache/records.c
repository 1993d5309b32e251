/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units that are records of a file (dataset/units.h): any bytes of it, ends on pages that two of them
 * share, tens of thousands in one file. What is held of one is in the object table as pieces are, by a
 * number made of the unit's. So what there is of a byte is found by where it is in the table of records
 * and not by going through what is held. Each has a copy of the pages that it shares: bytes of one
 * version of the file, whoever answers with them.
 *
 *	number of a part    1 (bit 32) | unit, counted within its file | part: 0..16, or 31 for a kept tracer page
 *
 * Numbers of pieces have 32 bits, and any of them may be one.
 *
 * Any thread, under the lock of the file's shard.
 */
#include "cache_priv.h"

#define RECORD_PART ((uint64_t)1 << 32)
enum {
	PART_BITS = 5,
	PART_TRACER = (1 << PART_BITS) - 1,
	BACK_MAX = 4,  /* units on one page that are looked at */
	AHEAD_MAX = 64, /* units in one READ, likewise: more lets it ask again for what is here */
};

_Static_assert(UNIT_FILE_LEAST >= PIECE_BYTES, "files of one piece have no such units");
_Static_assert((UNIT_WHOLE_BYTES + 2 * (64u << 10)) / PIECE_BYTES + 1 < PART_TRACER, "parts of a unit");
_Static_assert((uint64_t)UNITS_OF_LARGE_MAX << PART_BITS <= RECORD_PART, "numbers of parts");

static uint32_t first_part(const struct cache *c, struct entry_id entry, struct unit_id unit)
{
	struct unit_id first;

	assert(dataset_unit_is_record(c->p.dataset, unit));
	(void)dataset_units_of(c->p.dataset, entry, &first);
	return (unit.v - first.v) << PART_BITS;
}

static uint64_t tracer_key(const struct cache *c, struct entry_id entry, struct unit_id unit)
{
	return RECORD_PART | first_part(c, entry, unit) | PART_TRACER;
}

uint64_t records_key(const struct cache *c, struct unit_id unit, uint32_t number)
{
	return dataset_unit_is_record(c->p.dataset, unit) ? RECORD_PART | number : number;
}

struct piece_span records_parts(const struct cache *c, struct unit_id unit, uint64_t size)
{
	struct dataset_extent x = dataset_unit_extent(c->p.dataset, unit);
	uint64_t length = size > PIECE_BYTES ? MIN(x.length, size - MIN(x.offset, size)) : 0;
	uint32_t first = first_part(c, x.entry, unit);

	return (struct piece_span){ first, first + (uint32_t)DIV_ROUND_UP(length, (uint64_t)PIECE_BYTES) };
}

struct unit_id records_unit(const struct cache *c, const struct object *obj)
{
	struct unit_id first;

	assert(obj->is_record);
	(void)dataset_units_of(c->p.dataset, obj->state_of->entry, &first);
	return (struct unit_id){ first.v + (uint32_t)((obj->key & ~RECORD_PART) >> PART_BITS) };
}

struct unit_id unit_of_object(const struct cache *c, const struct object *obj)
{
	return obj->is_record ? records_unit(c, obj)
			      : dataset_unit_of_read(c->p.dataset, obj->state_of->entry, obj->start,
						     obj->length);
}

struct object *records_new_locked(struct cache *c, struct shard *s, struct entry_state *es,
				 const struct file_identity *id, struct unit_id unit, uint32_t part)
{
	struct dataset_extent x = dataset_unit_extent(c->p.dataset, unit);
	uint64_t from = x.offset + (uint64_t)(part & PART_TRACER) * PIECE_BYTES;
	uint64_t to = MIN(MIN(from + PIECE_BYTES, x.offset + x.length), id->size);
	struct object *obj;

	assert(from < to);
	obj = object_add_locked(c, s, es, id, RECORD_PART | part, from, (uint32_t)(to - from));
	if (obj)
		obj->is_record = true;
	return obj;
}

uint64_t records_part_at(const struct cache *c, struct unit_id unit, uint64_t at)
{
	struct dataset_extent x = dataset_unit_extent(c->p.dataset, unit);

	return RECORD_PART | (first_part(c, x.entry, unit) + (at - x.offset) / PIECE_BYTES);
}

struct object *records_tracer_find_locked(struct cache *c, struct shard *s, struct entry_state *es,
					 struct unit_id unit)
{
	return object_find_locked(c, s, es->entry, tracer_key(c, es->entry, unit));
}

struct object *records_tracer_new_locked(struct cache *c, struct shard *s, struct entry_state *es,
					const struct file_identity *id, struct unit_id unit,
					uint64_t from, uint32_t length)
{
	struct object *obj =
		object_add_locked(c, s, es, id, tracer_key(c, es->entry, unit), from, length);

	if (obj)
		obj->is_record = true;
	return obj;
}

static bool has_byte(const struct object *obj, uint64_t at)
{
	return obj && obj->start <= at && at < obj->start + obj->length;
}

/* Of that unit. */
static struct object *part_with_byte_locked(struct cache *c, struct shard *s, struct entry_state *es,
					    struct unit_id unit, uint64_t at) REQUIRES(s->mu)
{
	struct dataset_extent x = dataset_unit_extent(c->p.dataset, unit);
	struct object *obj;

	if (at < x.offset || at >= x.offset + x.length)
		return NULL;
	obj = object_find_locked(c, s, es->entry, records_part_at(c, unit, at));
	if (!has_byte(obj, at))
		obj = records_tracer_find_locked(c, s, es, unit);
	return has_byte(obj, at) ? obj : NULL;
}

struct object *records_find_locked(struct cache *c, struct shard *s, struct entry_state *es, uint64_t at)
{
	struct unit_id first, unit;

	if (!dataset_is_in_records(c->p.dataset, es->entry))
		return NULL;
	(void)dataset_units_of(c->p.dataset, es->entry, &first);
	unit = dataset_unit_before(c->p.dataset, es->entry, at);
	for (int i = 0; i < BACK_MAX && !unit_eq(unit, UNIT_NONE) && unit.v >= first.v; i++) {
		struct object *obj = part_with_byte_locked(c, s, es, unit, at);

		if (obj)
			return obj;
		unit.v--; /* to UNIT_NONE from the first of all */
	}
	return NULL;
}

uint64_t records_gap_locked(struct cache *c, struct shard *s, struct entry_state *es, uint64_t at,
			   uint64_t end)
{
	struct unit_id unit, first;
	uint32_t n;

	if (!dataset_is_in_records(c->p.dataset, es->entry))
		return end;
	n = dataset_units_of(c->p.dataset, es->entry, &first);
	unit = dataset_unit_before(c->p.dataset, es->entry, at);
	unit.v = unit_eq(unit, UNIT_NONE) ? first.v : unit.v + 1;
	for (int i = 0; i < AHEAD_MAX && unit.v < first.v + n; i++, unit.v++) {
		uint64_t from = dataset_unit_extent(c->p.dataset, unit).offset;

		if (from >= end)
			break;
		if (from > at &&
		    object_find_locked(c, s, es->entry, RECORD_PART | first_part(c, es->entry, unit)))
			return from;
	}
	return end;
}
