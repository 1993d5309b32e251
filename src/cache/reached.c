/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has come to which unit of a file that has several, by the READs of its tracer pages (tracer.c).
 *
 * Of a record the tracer page is the first that it has for itself. Such a page may be asked for by chance
 * as well. A fault has what is around it read, too. And where the kernel has much of what lies before a
 * record, it takes the hole for the head of a stream and reads on, beyond the record: tracer pages of the
 * next ones are asked for at the same moment, by the same thread. These are not told, and the kernel's page
 * is dropped again, or nobody would hear of its reader. What the arena has of it stays. Whoever goes on
 * like that beyond what the kernel reads on for is a reader that goes through records: then those between
 * are told as well. Of a record that was not pushed the READ of its last page says that it is read. A READ
 * with the last pages of several is of the first, for the same reason, unless it is direct or longer than
 * that. Told of all, a third of what was told was nobody's where the page cache had half of the records of 30
 * and 60 KB anyway, and the order was lost.
 *
 * Runs on the caller of cache_read, with no lock held.
 */
#include "cache_priv.h"

/* Longer than the kernel takes from one to the next of what it reads on. */
#define AT_ONCE_NS 100000u
#define ENDS_MAX 128u /* in one READ: of the longest, records of two pages */
#define TICK_SHIFT 13 /* ns */
#define READ_ON_UNITS 8u           /* the kernel reads on for 32 pages, a record has four on average */
#define READ_ON_BYTES (128u << 10) /* likewise */

/* What a reader did last: the unit that was told, and of those behind it the ones whose pages
 * came at once. In a word: unit, a bit for each of these, and when the last one came. Two threads of
 * one place may take each other's for their own, which costs one of them what it would have told. */
struct last {
	struct unit_id unit;
	uint32_t skipped; /* bit k: unit + 1 + k */
	uint32_t tick;    /* 24 bits: two minutes */
};
_Static_assert(READ_ON_UNITS <= 8, "bits for them in a word");

static uint32_t tick_of(uint64_t ns)
{
	return (uint32_t)(ns >> TICK_SHIFT) & 0xffffff;
}

static struct last last_get(struct cache *c, uint32_t reader)
{
	uint64_t word = atomic_load(&c->last_tracer[reader % ARRAY_LEN(c->last_tracer)]);

	return (struct last){ { (uint32_t)(word >> 32) },
			      (uint32_t)word >> 24,
			      (uint32_t)word & 0xffffff };
}

static void last_set(struct cache *c, uint32_t reader, const struct last *last)
{
	atomic_store(&c->last_tracer[reader % ARRAY_LEN(c->last_tracer)],
		     (uint64_t)last->unit.v << 32 | last->skipped << 24 | last->tick);
}

static void tell(struct cache *c, struct unit_id unit)
{
	if (account_come(c, unit, clock_now(c->p.clock)))
		note_unit(c, NEWS_OPENED, unit);
	/* Of the first one of a file that is cut the open is told. */
	if (account_is_reached_only(c, unit))
		note_unit(c, NEWS_REACHED, unit);
}

/* Of those behind it, all that come before `unit`. */
static bool has_skipped_all(const struct last *last, struct unit_id unit)
{
	uint32_t n = unit.v - last->unit.v - 1;

	return n >= 1 && n <= READ_ON_UNITS && last->skipped == (1u << n) - 1;
}

/* The kernel may have read on to it from that one. */
static bool is_within_reach(struct cache *c, const struct last *last, struct unit_id unit)
{
	struct dataset_extent from, to = dataset_unit_own(c->p.dataset, unit);

	if (unit.v - last->unit.v > READ_ON_UNITS)
		return false;
	from = dataset_unit_own(c->p.dataset, last->unit);
	return entry_eq(from.entry, to.entry) && to.offset - from.offset < READ_ON_BYTES;
}

/* Those that were taken for what the kernel read on for, when it turns out that their reader goes through them. Of
 * one that is pushed the page was dropped, and where that may have come to pass its reader's READ will tell. */
static void tell_skipped(struct cache *c, const struct last *last, struct unit_id unit, bool is_now)
{
	for (uint32_t v = last->unit.v + 1; has_skipped_all(last, unit) && v < unit.v; v++) {
		struct unit_id between = { v };

		if (!bits_get(c->staged, v)) {
			note_unit(c, NEWS_REACHED, between);
		} else if (is_now) {
			tell(c, between);
			tracer_lost(c, between); /* nobody else is expected there */
		}
	}
}

static bool is_at_once(const struct last *last, const struct cache_read *r)
{
	return ((tick_of(r->arrived_ns) - last->tick) & 0xffffff) <= tick_of(AT_ONCE_NS);
}

/* Whether the kernel has read on to it, of a unit that was pushed. */
static bool is_read_on(struct cache *c, const struct cache_read *r, struct unit_id unit)
{
	struct last last = last_get(c, r->reader);
	bool follows = last.unit.v < unit.v && is_at_once(&last, r);

	if (follows && bits_get(c->staged, unit.v) && is_within_reach(c, &last, unit)) {
		last.skipped |= 1u << (unit.v - last.unit.v - 1);
		last.tick = tick_of(r->arrived_ns);
		last_set(c, r->reader, &last);
		return true;
	}
	if (follows)
		tell_skipped(c, &last, unit, true);
	last = (struct last){ .unit = unit, .tick = tick_of(r->arrived_ns) };
	last_set(c, r->reader, &last);
	return false;
}

/* A READ of one page: whether somebody has come to the record that has it. */
static bool is_at_record(struct cache *c, struct cache_read *r)
{
	struct dataset_extent own;

	if (unit_eq(r->unit, UNIT_NONE))
		return false;
	own = dataset_unit_own(c->p.dataset, r->unit);
	if (r->offset != own.offset || !own.length)
		return false;
	if (!is_read_on(c, r, r->unit))
		return true;
	r->is_read_on = true;
	push_drop_tracer(c, r->unit);
	return false;
}

/* The first record from that one on whose last page the READ has; UNIT_NONE: there is none. */
static struct unit_id ended_from(struct cache *c, const struct cache_read *r, struct unit_id unit)
{
	uint64_t end = r->offset + r->length;
	struct unit_id first;
	uint32_t n = dataset_units_of(c->p.dataset, r->entry, &first);

	for (uint32_t i = 0; i < ENDS_MAX && unit.v < first.v + n; i++, unit.v++) {
		struct dataset_extent own = dataset_unit_own(c->p.dataset, unit);

		if (own.offset >= end)
			break;
		if (r->offset < own.offset + own.length && own.offset + own.length <= end)
			return unit;
	}
	return UNIT_NONE;
}

static struct unit_id first_ended(struct cache *c, const struct cache_read *r)
{
	struct unit_id first, unit = dataset_unit_before(c->p.dataset, r->entry, r->offset);

	(void)dataset_units_of(c->p.dataset, r->entry, &first);
	return ended_from(c, r, unit_eq(unit, UNIT_NONE) ? first : unit);
}

struct unit_id reached_unit_of(struct cache *c, const struct cache_read *r)
{
	struct unit_id unit = UNIT_NONE;

	if (r->length > c->tracer_bytes && dataset_is_in_records(c->p.dataset, r->entry) &&
	    !dataset_around(c->p.dataset, r->entry))
		unit = first_ended(c, r);
	return unit_eq(unit, UNIT_NONE)
		       ? dataset_unit_of_read(c->p.dataset, r->entry, r->offset, r->length)
		       : unit;
}

/* Where the kernel has pages of what it reads on for, its READs of that are several. They end no farther from the
 * record that is read than it reads on. */
static bool is_read_on_to(struct cache *c, const struct last *last, const struct cache_read *r, struct unit_id unit)
{
	struct dataset_extent from;

	if (r->is_direct || last->unit.v >= unit.v || unit.v - last->unit.v > READ_ON_UNITS ||
	    !is_at_once(last, r))
		return false;
	from = dataset_unit_own(c->p.dataset, last->unit);
	return entry_eq(from.entry, r->entry) &&
	       r->offset + r->length <= from.offset + from.length + READ_ON_BYTES;
}

/* Behind a READ that is told of the first record. */
static void skip_ends(struct cache *c, const struct cache_read *r, struct last *last, struct unit_id unit)
{
	for (; !unit_eq(unit, UNIT_NONE) && unit.v - last->unit.v <= READ_ON_UNITS;
	     unit = ended_from(c, r, (struct unit_id){ unit.v + 1 }))
		if (!bits_get(c->staged, unit.v))
			last->skipped |= 1u << (unit.v - last->unit.v - 1);
}

/* Whoever reads for itself, or more than the kernel reads on for, has come to all of them. */
static void tell_all_ends(struct cache *c, const struct cache_read *r, struct unit_id unit)
{
	for (; !unit_eq(unit, UNIT_NONE); unit = ended_from(c, r, (struct unit_id){ unit.v + 1 }))
		if (bits_get(c->staged, unit.v))
			tell(c, unit);
		else
			note_unit(c, NEWS_REACHED, unit);
}

/* A longer one is of the first record whose last page it has: the kernel may have its beginning, but not its
 * end. Of what is behind that nobody knows: where the kernel has records before it, it reads on, for as much as
 * 128 KiB. The next READ says whether it was a reader of several. True: nobody else need tell of what it is
 * counted for. */
static bool tell_ends(struct cache *c, const struct cache_read *r)
{
	struct unit_id unit = first_ended(c, r), next;
	struct last last = last_get(c, r->reader);
	bool is_counted = unit_eq(unit, r->unit); /* else the file was cut just now, or has another size */

	if (unit_eq(unit, UNIT_NONE))
		return false;
	if (is_read_on_to(c, &last, r, unit)) {
		skip_ends(c, r, &last, unit);
		last.tick = tick_of(r->arrived_ns);
		last_set(c, r->reader, &last);
		return true; /* there is nothing to tell */
	}
	tell_skipped(c, &last, unit, false);
	if (is_counted)
		tell(c, unit);
	else
		note_unit(c, NEWS_REACHED, unit);
	last = (struct last){ .unit = unit, .tick = tick_of(r->arrived_ns) };
	next = ended_from(c, r, (struct unit_id){ unit.v + 1 });
	if (r->is_direct || r->length > READ_ON_BYTES)
		tell_all_ends(c, r, next);
	else
		skip_ends(c, r, &last, next);
	last_set(c, r->reader, &last);
	return is_counted;
}

/* The unit of which it asks for the page that says so; UNIT_NONE: of none. */
static struct unit_id reached_by(struct cache *c, struct cache_read *r)
{
	uint64_t at = ALIGN_UP(r->offset, (uint64_t)UNIT_BYTES);
	struct unit_id unit;

	static_assert(UNIT_BYTES >= PIECE_BYTES, "a READ has one such page at most");
	if (dataset_is_in_records(c->p.dataset, r->entry))
		return is_at_record(c, r) ? r->unit : UNIT_NONE;
	unit = dataset_unit_at(c->p.dataset, r->entry, at);
	return at < r->offset + r->length && !unit_eq(unit, UNIT_NONE) && unit_is_traced(c, unit)
		       ? unit
		       : UNIT_NONE;
}

bool reached_is_alone(struct cache *c, const struct cache_read *r, struct unit_id unit)
{
	struct dataset_extent all, own;
	uint64_t end = r->offset + r->length;

	if (unit_eq(unit, UNIT_NONE))
		return false;
	all = dataset_unit_extent(c->p.dataset, unit);
	own = dataset_unit_own(c->p.dataset, unit);
	/* The last page of a file is asked for as a whole. */
	return own.length && r->offset >= all.offset && r->offset <= own.offset &&
	       end >= own.offset + own.length &&
	       end <= ALIGN_UP(all.offset + all.length, (uint64_t)c->tracer_bytes);
}

/* Of a mapped file the kernel asks for all around the page that is missing, so much before it and as much
 * behind, but for what it has. So a READ as long as that is of the record in the middle of it, and a shorter
 * one says something only if it has the page that an awaited one lacks; or if it is of one record alone. That
 * is what a file is read with that was mapped once: so it is heard that its readers have another order now. */
static struct unit_id mapped_by(struct cache *c, const struct cache_read *r, uint32_t around)
{
	uint64_t end = r->offset + r->length, missing = r->offset + around;
	struct unit_id unit, first;
	uint32_t n;

	if (r->length >= 2 * around)
		return dataset_unit_before(c->p.dataset, r->entry, missing);
	n = dataset_units_of(c->p.dataset, r->entry, &first);
	unit = dataset_unit_before(c->p.dataset, r->entry, r->offset);
	unit = unit_eq(unit, UNIT_NONE) ? first : unit;
	for (uint32_t i = 0; i < ENDS_MAX && unit.v < first.v + n; i++, unit.v++) {
		uint64_t own = dataset_unit_own(c->p.dataset, unit).offset;

		if (own >= end)
			break;
		if (own >= r->offset && tracer_is_awaited(c, unit))
			return unit;
	}
	return reached_is_alone(c, r, r->unit) ? r->unit : UNIT_NONE;
}

void reached_note(struct cache *c, struct cache_read *r, bool is_silent)
{
	struct unit_id unit = UNIT_NONE;
	uint32_t around = dataset_around(c->p.dataset, r->entry);
	bool is_told = false;

	if (around) {
		unit = mapped_by(c, r, around);
		is_silent = false;
	} else if (r->length > c->tracer_bytes && dataset_is_in_records(c->p.dataset, r->entry)) {
		is_told = tell_ends(c, r);
	} else {
		unit = reached_by(c, r);
	}
	/* The kernel had all of it, so that whatever it asks for of it now is its reader's. */
	if (is_silent && !is_told)
		unit = r->unit;
	if (!unit_eq(unit, UNIT_NONE))
		tell(c, unit);
}
