/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units of records: the files that the table has records in are cut where these begin, and there is a
 * second map from the numbers of records to units. Both are arrays, made once before there are other
 * threads; where a unit is in its file is found by halving.
 *
 * The table is of one version of a file and may be anybody's. So nothing here is more than a guess of
 * what is read together: extents end where the file does, and whoever fetches one gets bytes of the
 * file as it is.
 */
#include "dataset_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "clairfs/dataset/units.h"

#define BEYOND_BYTES ((uint64_t)1 << 50) /* no offset of a record is there */

/* Runs [from, end) of the list by file: of one file, or one of whole files. */
struct group {
	uint32_t from, end, slot;
};

static const struct run *run_of(const struct records *r, uint32_t i)
{
	return &r->run[r->by_file[i]];
}

/* False: that was the last one. Begins with zeros. */
static bool group_next(const struct records *r, struct group *g)
{
	g->from = g->end;
	if (g->from == r->n_runs)
		return false;
	g->slot = run_of(r, g->from)->slot;
	while (g->end < r->n_runs && run_of(r, g->end)->slot == g->slot)
		g->end++;
	return true;
}

/* Whether the file is one whose records are units; -ENOTSUP: it ought to be. */
static int group_is_cut(const struct dataset *ds, const struct group *g)
{
	const struct records *r = &ds->records;
	uint64_t count = 0, span = 0;
	bool has_rows = false;

	if (run_of(r, g->from)->kind == RECORDS_WHOLE)
		return g->slot + run_of(r, g->from)->count > ds->t.n_samples ? -ENOTSUP : 0;
	if (g->slot >= ds->t.n_samples) /* records of what is no sample have no unit */
		return -ENOTSUP;
	if (ds->t.size[g->slot] <= UNIT_FILE_LEAST)
		return 0;
	for (uint32_t i = g->from; i < g->end; i++) {
		const struct run *s = run_of(r, i);

		if (s->end > BEYOND_BYTES)
			return -ENOTSUP;
		count += s->count;
		span += s->kind == RECORDS_AFFINE ? s->count * s->length : s->end - s->offset;
		has_rows |= s->kind == RECORDS_ROWS;
	}
	if (count < 2)
		return 0;
	return has_rows || span / count < UNIT_RECORD_LEAST ? -ENOTSUP : 1;
}

/* Which files are cut, and how many units they have then: first[] of each is their number. */
static int count_units(const struct dataset *ds, struct record_units *u, uint64_t most, uint32_t *n_of)
{
	const struct records *r = &ds->records;
	struct group g = { 0 };
	uint64_t n = 0;

	while (group_next(r, &g)) {
		struct format_range range;
		int rc = group_is_cut(ds, &g);
		uint64_t of_file = 0;
		uint32_t slot;

		if (rc < 0)
			return rc;
		if (rc == 0)
			continue;
		for (uint32_t i = g.from; i < g.end; i++)
			for (uint64_t k = 0; k < run_of(r, i)->count && of_file <= most; k++) {
				records_locate(r, (uint32_t)(run_of(r, i)->first + k), &slot, &range);
				of_file += unit_cut(range.length);
			}
		n += of_file;
		if (n > most)
			return -E2BIG;
		n_of[g.slot] = (uint32_t)of_file;
		u->in_records[g.slot / 64] |= 1ull << g.slot % 64;
	}
	return n ? 0 : -ENODATA;
}

/* From how many units each file has to which are its. */
static int number_units(const struct dataset *ds, const struct record_units *u, uint32_t *first,
			uint32_t *ret_n)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < ds->t.n_samples; i++) {
		bool is_cut = u->in_records[i / 64] >> i % 64 & 1;
		uint32_t n = is_cut ? first[i] : unit_count(&ds->units, (struct sample_id){ i });

		first[i] = (uint32_t)at;
		at += n;
		/* Small files have one each. */
		if (at > (uint64_t)UNITS_OF_LARGE_MAX + i + 1 || at >= UINT32_MAX)
			return -E2BIG;
	}
	first[ds->t.n_samples] = *ret_n = (uint32_t)at;
	return 0;
}

/* The units of one record, from `at` on; returns the one behind them. */
static uint32_t place_record(struct record_units *u, uint32_t at, const struct format_range *range)
{
	uint64_t done = 0, n = unit_cut(range->length);

	for (uint64_t k = 0; k < n; k++) {
		uint64_t length = n == 1 ? range->length
					 : MIN(range->length - done, (uint64_t)UNIT_BYTES);

		u->start[at] = range->offset + done;
		u->length[at++] = (uint32_t)length;
		done += length;
	}
	return at;
}

/* first[] is of files, which are all samples. */
static void place_records(const struct dataset *ds, struct record_units *u, const uint32_t *first)
{
	const struct records *r = &ds->records;
	struct format_range range;
	uint32_t at = 0, slot;

	for (uint32_t i = 0; i < r->n_runs; i++) {
		const struct run *s = run_of(r, i);
		bool is_begin = i == 0 || run_of(r, i - 1)->slot != s->slot;

		for (uint32_t k = 0; k < s->count; k++) {
			uint32_t record = (uint32_t)s->first + k;

			records_locate(r, record, &slot, &range);
			if (!(u->in_records[slot / 64] >> slot % 64 & 1)) {
				u->first[record] = first[slot];
				u->past[record] = first[slot + 1];
				continue;
			}
			if (is_begin && k == 0)
				at = first[slot];
			u->first[record] = at;
			at = place_record(u, at, &range);
			u->past[record] = at;
		}
	}
}

static void record_units_free(struct record_units *u)
{
	if (!u)
		return;
	free(u->start);
	free(u->length);
	free(u->first);
	free(u->past);
	free(u->in_records);
	free(u);
}

/* *first (heap): of the files. */
static int make(const struct dataset *ds, struct record_units *u, uint64_t most, uint32_t **first,
		uint32_t *ret_n)
{
	uint64_t n_records = records_count(&ds->records);
	int rc;

	if (n_records == 0)
		return -ENODATA;
	if (n_records > UNITS_OF_LARGE_MAX)
		return -E2BIG;
	*first = calloc((size_t)ds->t.n_samples + 1, sizeof(**first));
	u->in_records = calloc((size_t)ds->t.n_samples / 64 + 1, sizeof(*u->in_records));
	if (!*first || !u->in_records)
		return -ENOMEM;
	rc = count_units(ds, u, MIN(most, (uint64_t)UNITS_OF_LARGE_MAX), *first);
	if (rc == 0)
		rc = number_units(ds, u, *first, ret_n);
	if (rc < 0)
		return rc;
	u->start = calloc(*ret_n, sizeof(*u->start));
	u->length = calloc(*ret_n, sizeof(*u->length));
	u->first = calloc(n_records, sizeof(*u->first));
	u->past = calloc(n_records, sizeof(*u->past));
	if (!u->start || !u->length || !u->first || !u->past)
		return -ENOMEM;
	place_records(ds, u, *first);
	u->map = (struct unit_map){ .n_samples = (uint32_t)n_records,
				    .n_units = *ret_n,
				    .first = u->first,
				    .past = u->past };
	return 0;
}

int dataset_cut_records(struct dataset *ds, uint32_t page, uint64_t most)
{
	struct record_units *u = calloc(1, sizeof(*u));
	uint32_t *first = NULL, n_units = 0;
	int rc = u ? make(ds, u, most, &first, &n_units) : -ENOMEM;

	assert(page && !(page & (page - 1)) && !ds->by_record && !ds->later);
	if (rc < 0) {
		record_units_free(u);
		free(first);
		return rc;
	}
	u->page = page;
	for (uint32_t i = 0; i < ds->t.n_samples; i++)
		if (u->in_records[i / 64] >> i % 64 & 1 &&
		    unit_count(&ds->units, (struct sample_id){ i }) == 1)
			ds->cut_bytes += ds->t.size[i];
	free(ds->unit_first);
	ds->unit_first = first;
	ds->by_record = u;
	ds->units.first = first;
	ds->units.n_units = n_units;
	ds->units.in_records = u->in_records;
	ds->units.of_records = &u->map;
	return 0;
}

void units_records_fini(struct dataset *ds)
{
	record_units_free(ds->by_record);
}

uint64_t units_records_bytes(const struct dataset *ds)
{
	const struct record_units *u = ds->by_record;

	if (!u)
		return 0;
	return (uint64_t)u->map.n_units * (sizeof(*u->start) + sizeof(*u->length)) +
	       (uint64_t)u->map.n_samples * (sizeof(*u->first) + sizeof(*u->past));
}

bool dataset_is_in_records(const struct dataset *ds, struct entry_id e)
{
	return (ds->by_record || ds->later) && dataset_is_sample(ds, e) &&
	       unit_is_in_records(&ds->units, (struct sample_id){ e.v });
}

bool dataset_unit_is_record(const struct dataset *ds, struct unit_id unit)
{
	return (ds->by_record || ds->later) && unit_is_record(&ds->units, unit);
}

bool dataset_unit_is_small(const struct dataset *ds, struct unit_id unit)
{
	return dataset_unit_is_record(ds, unit) && dataset_unit_extent(ds, unit).length <= UNIT_SMALL_MOST;
}

/* Not by dataset_unit_is_small, which looks for the file of each. */
bool dataset_records_are_small(const struct dataset *ds)
{
	const struct record_units *u = ds->by_record;
	uint32_t n_records = 0, n_large = 0;

	for (uint32_t i = 0; u && i < u->map.n_units; i++) {
		uint64_t from = ALIGN_DOWN(u->start[i], (uint64_t)u->page);

		n_records += u->length[i] > 0;
		n_large += u->start[i] + u->length[i] > from + UNIT_SMALL_MOST;
	}
	return n_records && n_large <= n_records / 200;
}

/* --- where they are --- */

struct dataset_extent units_records_extent(const struct dataset *ds, struct sample_id file,
					   struct unit_id unit)
{
	const struct record_units *u = ds->by_record;
	uint64_t size = table_get_size(&ds->t, file.v), start = u->start[unit.v];
	uint64_t from = ALIGN_DOWN(start, (uint64_t)u->page);
	uint64_t to = MIN(ALIGN_UP(start + u->length[unit.v], (uint64_t)u->page), size);
	struct dataset_extent ret = { .entry = { file.v }, .offset = from };

	if (u->length[unit.v] && to > from)
		ret.length = to - from;
	return ret;
}

struct dataset_extent dataset_unit_own(const struct dataset *ds, struct unit_id unit)
{
	const struct record_units *u = ds->by_record;
	struct dataset_extent ret = dataset_unit_extent(ds, unit);
	uint64_t size, from, to;

	if (!dataset_unit_is_record(ds, unit))
		return ret;
	if (unit_is_later(&ds->units, unit))
		return units_later_own(ds, unit);
	size = table_get_size(&ds->t, ret.entry.v);
	from = ALIGN_UP(u->start[unit.v], (uint64_t)u->page);
	to = u->start[unit.v] + u->length[unit.v];
	if (to < size) /* the last page of a file is as long as the file */
		to = ALIGN_DOWN(to, (uint64_t)u->page);
	to = MIN(to, size);
	ret.offset = from;
	ret.length = to > from ? to - from : 0;
	return ret;
}

uint64_t dataset_unit_bytes(const struct dataset *ds, struct unit_id unit)
{
	const struct record_units *u = ds->by_record;
	struct dataset_extent x = dataset_unit_extent(ds, unit);

	if (!dataset_unit_is_record(ds, unit))
		return x.length;
	if (unit_is_later(&ds->units, unit))
		return MIN(x.length, units_later_bytes(ds, unit));
	return MIN(x.length, (uint64_t)u->length[unit.v]);
}

/* The last unit of the file that begins no later, when what it begins at is rounded down to `step`. */
static struct unit_id last_before(const struct dataset *ds, struct entry_id e, uint64_t offset,
				  uint64_t step)
{
	const struct record_units *u = ds->by_record;
	struct unit_id first;
	uint32_t low, high, n = dataset_units_of(ds, e, &first);

	low = first.v;
	high = first.v + n;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (ALIGN_DOWN(u->start[middle], step) <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low == first.v ? UNIT_NONE : (struct unit_id){ low - 1 };
}

struct unit_id dataset_unit_before(const struct dataset *ds, struct entry_id e, uint64_t offset)
{
	if (units_are_later(ds, e))
		return units_later_before(ds, e, offset);
	return last_before(ds, e, offset, ds->by_record->page);
}

struct unit_id units_records_at(const struct dataset *ds, struct entry_id e, uint64_t offset)
{
	const struct record_units *u = ds->by_record;
	struct unit_id unit = last_before(ds, e, offset, 1);

	if (unit_eq(unit, UNIT_NONE) || offset - u->start[unit.v] >= u->length[unit.v])
		return UNIT_NONE;
	return unit;
}

struct unit_id dataset_unit_of_read(const struct dataset *ds, struct entry_id e, uint64_t offset,
				    uint32_t length)
{
	return dataset_unit_at(ds, e,
			       dataset_is_in_records(ds, e) ? offset + length / 2 : offset);
}
