/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records that are found while the units are in use. There is room behind all other units, and a file
 * whose records become units gets numbers there:
 *
 *	0 .. the units of all files ..| records of one file | of another one | .. room ..
 *
 * So a number means the same part of the same file for ever, and what is held, pushed or asked for by an old
 * one is right. Only the way from a file to its units changes, by one store that readers acquire
 * (units_later.n). They are of one length, and no array is needed: where one is is arithmetic.
 *
 * Where the first one begins is known to some bytes only (low..high), as READs begin at pages:
 *
 *	low  high                      low  high       ends of a record, by a stride
 *	 |....|-------------------------|....|
 *	 ^ extent: whole pages from here     ^ to here
 *	      ^ its own: those from here  ^ to here
 */
#include "dataset_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "clairfs/dataset/units.h"

#define RESERVED_MOST (1u << 20) /* the plan goes through all units now and then */

/* Where a unit may begin and end. */
struct bounds {
	uint64_t low, at, high, end_low, end_high;
};

void dataset_reserve_units(struct dataset *ds, uint32_t page, uint64_t most)
{
	const struct table *t = &ds->t;
	uint64_t n = 0;

	assert(page && !(page & (page - 1)) && !ds->by_record && !ds->later);
	for (uint32_t i = 0; ds->units.first && i < t->n_samples; i++)
		if (unit_count(&ds->units, (struct sample_id){ i }) > 1)
			n += t->size[i] / UNIT_RECORD_LEAST;
	n = MIN(MIN(n, most), (uint64_t)RESERVED_MOST);
	n = MIN(n, (uint64_t)(UNIT_NONE.v - 1 - ds->units.n_units));
	ds->later = n ? calloc(1, sizeof(*ds->later)) : NULL;
	if (!ds->later)
		return;
	ds->later->page = page;
	ds->later->shown.from = ds->units.n_units;
	ds->units.later = &ds->later->shown;
	ds->units.n_units += (uint32_t)n;
}

uint32_t dataset_n_file_units(const struct dataset *ds)
{
	return ds->later ? ds->later->shown.from : ds->units.n_units;
}

uint32_t dataset_n_reserved(const struct dataset *ds)
{
	return ds->later ? ds->units.n_units - ds->later->shown.from : 0;
}

void units_later_fini(struct dataset *ds)
{
	free(ds->later);
}

static uint32_t index_of(const struct dataset *ds, struct entry_id e)
{
	const struct units_later_file *shown =
		unit_later_of(&ds->units, (struct sample_id){ e.v });

	assert(shown);
	return (uint32_t)(shown - ds->later->shown.file);
}

static struct bounds bounds_of(const struct dataset *ds, struct unit_id unit)
{
	const struct units_later_file *shown = unit_later_file(&ds->units, unit);
	const struct later_file *f = &ds->later->file[shown - ds->later->shown.file];
	uint64_t k = unit.v - shown->first, part = k % f->each * UNIT_BYTES;
	uint64_t begin = k / f->each * f->stride;
	uint64_t end = k % f->each + 1 < f->each ? begin + part + UNIT_BYTES : begin + f->stride;

	begin += part;
	return (struct bounds){ f->low + begin, f->at + begin, f->high + begin, f->low + end,
				f->high + end };
}

/* --- cutting --- */

/* Whether these are the records that it is in; *ret_first: which of them the first one is. Both places are known
 * to a page, but never so little that it may be another record. */
static bool is_same(const struct later_file *f, const struct dataset_found *found, uint32_t page,
		    uint64_t *ret_first)
{
	uint64_t slack = MIN((uint64_t)page, (f->stride - 1) / 2), at = found->at + slack, off;

	if (f->stride != found->stride || at < f->at)
		return false;
	*ret_first = (at - f->at) / f->stride;
	off = (at - f->at) % f->stride;
	return off <= 2 * slack;
}

static void add(struct dataset *ds, const struct later_file *file, const struct dataset_found *found,
		uint32_t n)
{
	struct units_later *shown = &ds->later->shown;
	uint32_t at = atomic_load(&shown->n), first = at ? shown->file[at - 1].end : shown->from;
	uint32_t e = found->entry.v;

	ds->later->file[at] = *file;
	atomic_init(&ds->later->file[at].around, found->around);
	shown->file[at] = (struct units_later_file){ e, first, first + n };
	/* From here on others go by it. */
	atomic_store_explicit(&shown->n, at + 1, memory_order_release);
}

bool dataset_is_cut_so(const struct dataset *ds, const struct dataset_found *found, uint32_t *ret_first)
{
	const struct later_file *f;
	uint64_t first;
	uint32_t n;

	if (!units_are_later(ds, found->entry))
		return false;
	f = &ds->later->file[index_of(ds, found->entry)];
	n = unit_count(&ds->units, (struct sample_id){ found->entry.v }) / f->each;
	if (!is_same(f, found, ds->later->page, &first) || first + found->n > n)
		return false;
	*ret_first = (uint32_t)first;
	return true;
}

int dataset_cut_found(struct dataset *ds, const struct dataset_found *found, uint32_t *ret_first)
{
	const struct units_later *shown = ds->later ? &ds->later->shown : NULL;
	uint32_t n_files = shown ? atomic_load(&shown->n) : 0;
	uint64_t size, n, left, before = found->stride ? found->low / found->stride : 0;
	struct later_file file = { .stride = found->stride };

	*ret_first = 0;
	if (!shown || !dataset_is_sample(ds, found->entry) ||
	    (!units_are_later(ds, found->entry) &&
	     unit_count(&ds->units, (struct sample_id){ found->entry.v }) == 1))
		return -ENOTSUP;
	if (found->stride < UNIT_RECORD_LEAST || found->low > found->at || found->at > found->high)
		return -EINVAL;
	if (units_are_later(ds, found->entry)) {
		struct later_file *f = &ds->later->file[index_of(ds, found->entry)];

		if (!is_same(f, found, ds->later->page, &before))
			return -EEXIST;
		*ret_first = (uint32_t)before;
		atomic_store(&f->around, found->around);
		n = unit_count(&ds->units, (struct sample_id){ found->entry.v }) / f->each;
		return before + found->n <= n ? 0 : -EINVAL;
	}
	size = table_get_size(&ds->t, found->entry.v);
	file.low = found->low - before * found->stride;
	file.at = found->at - before * found->stride;
	file.high = found->high - before * found->stride;
	file.each = (uint32_t)MIN(unit_cut(found->stride), (uint64_t)UINT32_MAX);
	n = size > file.low ? (size - file.low) / file.stride : 0;
	left = ds->units.n_units - (n_files ? shown->file[n_files - 1].end : shown->from);
	if (n < 2 || n < before + found->n)
		return -EINVAL;
	if (n_files == UNITS_LATER_FILES || n > left / file.each)
		return -E2BIG;
	*ret_first = (uint32_t)before;
	add(ds, &file, found, (uint32_t)n * file.each);
	return 0;
}

int dataset_found_map(const struct dataset *ds, struct entry_id e, uint32_t first, uint32_t n,
		      struct unit_map **ret)
{
	uint32_t i = index_of(ds, e), each = ds->later->file[i].each, at, *of;
	const struct units_later_file *shown = &ds->later->shown.file[i];

	*ret = NULL;
	if (!n || (uint64_t)first + n > (shown->end - shown->first) / each)
		return -EINVAL;
	*ret = malloc(sizeof(**ret) + 2 * (size_t)n * sizeof(*of));
	if (!*ret)
		return -ENOMEM;
	of = (uint32_t *)(*ret + 1);
	at = shown->first + first * each;
	for (uint32_t k = 0; k < n; k++) {
		of[k] = at + k * each;
		of[n + k] = of[k] + each;
	}
	**ret = (struct unit_map){ .n_samples = n,
				   .n_units = ds->units.n_units,
				   .first = of,
				   .past = of + n };
	return 0;
}

/* --- where they are --- */

bool dataset_unit_is_found(const struct dataset *ds, struct unit_id unit)
{
	return unit_is_later(&ds->units, unit);
}

uint32_t dataset_around(const struct dataset *ds, struct entry_id e)
{
	return units_are_later(ds, e) ? atomic_load(&ds->later->file[index_of(ds, e)].around) : 0;
}

uint64_t dataset_found_start(const struct dataset *ds, struct unit_id unit)
{
	return bounds_of(ds, unit).at;
}

static struct dataset_extent extent_of(const struct dataset *ds, struct unit_id unit, uint64_t from,
				       uint64_t to)
{
	struct dataset_extent ret = { .entry = dataset_unit_entry(ds, unit), .offset = from };

	to = MIN(to, table_get_size(&ds->t, ret.entry.v));
	ret.length = to > from ? to - from : 0;
	return ret;
}

struct dataset_extent units_later_extent(const struct dataset *ds, struct unit_id unit)
{
	uint64_t page = ds->later->page;
	struct bounds b = bounds_of(ds, unit);

	return extent_of(ds, unit, ALIGN_DOWN(b.low, page), ALIGN_UP(b.end_high, page));
}

struct dataset_extent units_later_own(const struct dataset *ds, struct unit_id unit)
{
	uint64_t page = ds->later->page, size;
	struct bounds b = bounds_of(ds, unit);

	size = table_get_size(&ds->t, dataset_unit_entry(ds, unit).v);
	/* The last page of a file is as long as the file. */
	return extent_of(ds, unit, ALIGN_UP(b.high, page),
			 b.end_high < size ? ALIGN_DOWN(b.end_low, page) : size);
}

uint64_t units_later_bytes(const struct dataset *ds, struct unit_id unit)
{
	struct bounds b = bounds_of(ds, unit);

	return b.end_low - b.low;
}

/* The unit with the last record that may begin at or before that byte, and with what is of it there. */
static struct unit_id last_at(const struct dataset *ds, struct entry_id e, uint64_t offset)
{
	uint32_t i = index_of(ds, e);
	const struct units_later_file *shown = &ds->later->shown.file[i];
	const struct later_file *f = &ds->later->file[i];
	uint64_t n = (shown->end - shown->first) / f->each, record, part;

	if (offset < f->low)
		return UNIT_NONE;
	record = MIN((offset - f->low) / f->stride, n - 1);
	part = MIN((offset - f->low - record * f->stride) / UNIT_BYTES, f->each - 1);
	return (struct unit_id){ shown->first + (uint32_t)(record * f->each + part) };
}

struct unit_id units_later_before(const struct dataset *ds, struct entry_id e, uint64_t offset)
{
	uint64_t page = ds->later->page;

	return last_at(ds, e, ALIGN_DOWN(offset, page) + page - 1);
}

struct unit_id units_later_at(const struct dataset *ds, struct entry_id e, uint64_t offset)
{
	struct unit_id unit = last_at(ds, e, offset);

	if (unit_eq(unit, UNIT_NONE) || offset >= bounds_of(ds, unit).end_low)
		return UNIT_NONE;
	return unit;
}
