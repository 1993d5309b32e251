/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files cut into units. Where no file has more than one, as most often, there is no table at all. Made
 * in the thread that calls dataset_open; the rest is arithmetic, on any thread.
 */
#include "dataset_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "clairfs/base/log.h"
#include "clairfs/dataset/units.h"

static uint64_t units_wanted(uint64_t size)
{
	return MIN(unit_cut(size), (uint64_t)UNITS_OF_FILE_MAX);
}

static bool has_large(const struct table *t)
{
	for (uint32_t i = 0; i < t->n_samples; i++)
		if (unit_cut(t->size[i]) > 1)
			return true;
	return false;
}

/* Numbers are 32 bits, and the last one is UNIT_NONE. */
static uint32_t larger_most(uint32_t n_samples)
{
	return MIN(UNITS_OF_LARGE_MAX, UINT32_MAX - 1 - n_samples);
}

static void units_cut(struct dataset *ds, uint32_t *first)
{
	const struct table *t = &ds->t;
	uint32_t left = larger_most(t->n_samples), n_whole = 0, at = 0;

	for (uint32_t i = 0; i < t->n_samples; i++) {
		uint64_t more = units_wanted(t->size[i]) - 1;

		if (more > left) {
			n_whole++;
			more = 0;
		}
		first[i] = at;
		at += 1 + (uint32_t)more;
		ds->cut_bytes += more ? t->size[i] : 0;
		left -= (uint32_t)more;
	}
	first[t->n_samples] = at;
	if (n_whole)
		log_warn("%u files are too large for the rest of them: only their first %u MiB are "
			 "fetched ahead",
			 n_whole, UNIT_WHOLE_BYTES >> 20);
}

int units_init(struct dataset *ds)
{
	ds->units = (struct unit_map){ .n_samples = ds->t.n_samples, .n_units = ds->t.n_samples };
	if (!has_large(&ds->t))
		return 0;
	ds->unit_first = malloc(((size_t)ds->t.n_samples + 1) * sizeof(*ds->unit_first));
	if (!ds->unit_first)
		return -ENOMEM;
	units_cut(ds, ds->unit_first);
	ds->units.first = ds->unit_first;
	ds->units.n_units = ds->unit_first[ds->t.n_samples];
	return 0;
}

void units_fini(struct dataset *ds)
{
	units_records_fini(ds);
	units_later_fini(ds);
	free(ds->unit_first);
}

const struct unit_map *dataset_unit_map(const struct dataset *ds)
{
	return &ds->units;
}

uint32_t dataset_n_units(const struct dataset *ds)
{
	return ds->units.n_units;
}

uint64_t dataset_cut_bytes(const struct dataset *ds)
{
	return ds->cut_bytes;
}

struct entry_id dataset_unit_entry(const struct dataset *ds, struct unit_id unit)
{
	return (struct entry_id){ unit_sample(&ds->units, unit).v };
}

/* What the sample began with, also where it has others now. */
static uint32_t units_first(const struct dataset *ds, struct sample_id sample, uint32_t *ret_n)
{
	const uint32_t *first = ds->units.first;

	*ret_n = first ? first[sample.v + 1] - first[sample.v] : 1;
	return first ? first[sample.v] : sample.v;
}

struct dataset_extent dataset_unit_extent(const struct dataset *ds, struct unit_id unit)
{
	struct sample_id sample = unit_sample(&ds->units, unit);
	struct dataset_extent ret = { .entry = { sample.v } };
	uint64_t size = table_get_size(&ds->t, sample.v);
	uint32_t n, first = units_first(ds, sample, &n);

	if (unit_is_later(&ds->units, unit))
		return units_later_extent(ds, unit);
	if (unit_is_record(&ds->units, unit))
		return units_records_extent(ds, sample, unit);
	ret.offset = (uint64_t)(unit.v - first) * UNIT_BYTES;
	if (size > ret.offset)
		ret.length = MIN(size - ret.offset, n == 1 ? UNIT_WHOLE_BYTES : UNIT_BYTES);
	return ret;
}

struct unit_id dataset_unit_at(const struct dataset *ds, struct entry_id e, uint64_t offset)
{
	uint32_t first, n;
	uint64_t k;

	if (!dataset_is_sample(ds, e))
		return UNIT_NONE;
	if (units_are_later(ds, e))
		return units_later_at(ds, e, offset);
	if (ds->by_record && dataset_is_in_records(ds, e)) /* else it is in some since that look */
		return units_records_at(ds, e, offset);
	first = units_first(ds, (struct sample_id){ e.v }, &n);
	k = offset / (n == 1 ? UNIT_WHOLE_BYTES : UNIT_BYTES);
	return k < n ? (struct unit_id){ first + (uint32_t)k } : UNIT_NONE;
}

uint32_t dataset_units_of(const struct dataset *ds, struct entry_id e, struct unit_id *ret_first)
{
	const struct units_later_file *later;
	uint32_t n;

	*ret_first = UNIT_NONE;
	if (!dataset_is_sample(ds, e))
		return 0;
	later = unit_later_of(&ds->units, (struct sample_id){ e.v });
	if (later) {
		ret_first->v = later->first;
		return later->end - later->first;
	}
	ret_first->v = units_first(ds, (struct sample_id){ e.v }, &n);
	return n;
}

uint32_t dataset_old_units(const struct dataset *ds, struct entry_id e, struct unit_id *ret_first)
{
	uint32_t n = 0;

	*ret_first = UNIT_NONE;
	if (units_are_later(ds, e))
		ret_first->v = units_first(ds, (struct sample_id){ e.v }, &n);
	return n;
}
