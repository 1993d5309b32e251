/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has come to which unit of a file that has several, by the READs of its tracer pages (tracer.c).
 *
 * Of a record the tracer page is the first that it has for itself. Such a page may be asked for by chance
 * as well. A fault has what is around it read, too. And where the kernel has much of what lies before a
 * record, it takes the hole for the head of a stream and reads on, beyond the record: the tracer page of
 * the next one is asked for at the same moment, by the same thread. That one is not told, and dropped
 * again, or nobody would hear of its reader. Of a record that was not pushed the READ of its last page says
 * that it is read.
 *
 * Runs on the caller of cache_read, with no lock held.
 */
#include "cache_priv.h"

/* Longer than the kernel takes for what it reads on; in that time no reader goes through several records. */
#define AT_ONCE_NS 100000u
#define READ_ON_MAX 8u /* units: the kernel reads on for 32 pages, a record has four */

/* The last tracer page that a thread has asked for and that was told: its unit, and when. Two threads of
 * one place may take each other's for their own, which costs one of them what it would have told. */
static _Atomic uint64_t *place_of(struct cache *c, uint32_t reader)
{
	return &c->last_tracer[reader % ARRAY_LEN(c->last_tracer)];
}

/* Whether the kernel has read on from a record before. */
static bool is_read_on(struct cache *c, const struct cache_read *r, struct unit_id unit)
{
	uint32_t at = (uint32_t)(r->arrived_ns / 1024);
	uint64_t last = atomic_load(place_of(c, r->reader)), before = last >> 32;

	if (before < unit.v && unit.v - before <= READ_ON_MAX &&
	    at - (uint32_t)last <= AT_ONCE_NS / 1024)
		return true;
	atomic_store(place_of(c, r->reader), (uint64_t)unit.v << 32 | at);
	return false;
}

static bool is_at_record(struct cache *c, const struct cache_read *r, struct unit_id unit)
{
	struct dataset_extent own = dataset_unit_own(c->p.dataset, unit);
	uint64_t end = r->offset + r->length, own_end = own.offset + own.length;

	if (r->length > c->tracer_bytes) /* the kernel may have its beginning, but not its end */
		return r->offset < own_end && own_end <= end;
	if (r->offset != own.offset || !own.length)
		return false;
	if (!is_read_on(c, r, unit))
		return true;
	push_drop_tracer(c, unit);
	return false;
}

/* The unit of which it asks for the page that says so; UNIT_NONE: of none. */
static struct unit_id reached_by(struct cache *c, const struct cache_read *r)
{
	uint64_t at = ALIGN_UP(r->offset, (uint64_t)UNIT_BYTES);
	struct unit_id unit;

	static_assert(UNIT_BYTES >= PIECE_BYTES, "a READ has one such page at most");
	if (dataset_is_in_records(c->p.dataset, r->entry))
		return !unit_eq(r->unit, UNIT_NONE) && is_at_record(c, r, r->unit) ? r->unit
										    : UNIT_NONE;
	unit = dataset_unit_at(c->p.dataset, r->entry, at);
	return at < r->offset + r->length && !unit_eq(unit, UNIT_NONE) && unit_is_traced(c, unit)
		       ? unit
		       : UNIT_NONE;
}

void reached_note(struct cache *c, const struct cache_read *r)
{
	struct unit_id unit = reached_by(c, r);

	if (unit_eq(unit, UNIT_NONE))
		return;
	if (account_come(c, unit, clock_now(c->p.clock)))
		note_unit(c, NEWS_OPENED, unit);
	/* Of the first one of a file that is cut the open is told. */
	if (account_is_reached_only(c, unit))
		note_unit(c, NEWS_REACHED, unit);
}
