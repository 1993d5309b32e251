/* SPDX-License-Identifier: Apache-2.0 */
/* Units: what the plan fetches, keeps and drops as one. A sample of up to UNIT_WHOLE_BYTES is one
 * unit: it is opened and read at once, and its open says that. A larger one is cut into several at
 * multiples of UNIT_BYTES, which follow each other in number and in the file. Where records within
 * files are units (dataset/units.h), a file is as many as it has records, and a record is cut as a
 * sample is. Records may be found while the mount runs: then units are added behind all others, and
 * no number ever means another part of a file. Arithmetic only; any thread. */
#ifndef CLAIRFS_BASE_UNITS_H
#define CLAIRFS_BASE_UNITS_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clairfs/base/ids.h"

#define UNIT_BYTES (4u << 20)
#define UNIT_WHOLE_BYTES (16u << 20)

/* How many units a sample of that size is. */
static inline uint64_t unit_cut(uint64_t bytes)
{
	return bytes <= UNIT_WHOLE_BYTES ? 1 : (bytes + UNIT_BYTES - 1) / UNIT_BYTES;
}

#define UNITS_LATER_FILES 8

/* Units behind those that the samples began with, of files whose records were found later. A file that
 * is here has these instead of its own from then on, which stay what they are. Files are added, by one
 * thread, and nothing else changes. */
struct units_later {
	uint32_t from;      /* the first of them; there is room for as many as the map has numbers */
	_Atomic uint32_t n; /* files: all of one is there before it counts */
	struct units_later_file {
		uint32_t sample, first, end;
	} file[UNITS_LATER_FILES];
};

struct unit_map {
	uint32_t n_samples, n_units;
	/* [n_samples + 1] sample -> its first unit, ascending; a sample has one at least. NULL: each
	 * sample is the unit of its number. Borrowed, as all below. */
	const uint32_t *first;
	/* [n_samples] the unit behind the last one of a sample. NULL: the first one of the next. With it
	 * first[] is in any sequence, units may be of no sample, and unit_sample is of no use. */
	const uint32_t *past;
	/* Of files, where records are units; else NULL: bitmap of the samples whose units are records,
	 * and the map of records to units. */
	const uint64_t *in_records;
	const struct unit_map *of_records;
	/* Of files, where records may be found later; else NULL. Then n_units has room for those, and
	 * what the functions below say of a sample changes once. */
	const struct units_later *later;
};

static inline bool unit_is_later(const struct unit_map *map, struct unit_id unit)
{
	return map->later && unit.v >= map->later->from;
}

/* NULL: the sample has the units that it began with. */
static inline const struct units_later_file *unit_later_of(const struct unit_map *map,
							   struct sample_id sample)
{
	uint32_t n = map->later ? atomic_load_explicit(&map->later->n, memory_order_acquire) : 0;

	for (uint32_t i = 0; i < n; i++)
		if (map->later->file[i].sample == sample.v)
			return &map->later->file[i];
	return NULL;
}

/* Whose it is, of one that is there. */
static inline const struct units_later_file *unit_later_file(const struct unit_map *map,
							     struct unit_id unit)
{
	uint32_t n = atomic_load_explicit(&map->later->n, memory_order_acquire), i = 0;

	while (i < n && unit.v >= map->later->file[i].end)
		i++;
	assert(i < n);
	return &map->later->file[i];
}

static inline struct unit_id unit_first(const struct unit_map *map, struct sample_id sample)
{
	const struct units_later_file *later = unit_later_of(map, sample);

	assert(sample.v < map->n_samples);
	if (later)
		return (struct unit_id){ later->first };
	return (struct unit_id){ map->first ? map->first[sample.v] : sample.v };
}

static inline uint32_t unit_count(const struct unit_map *map, struct sample_id sample)
{
	const struct units_later_file *later = unit_later_of(map, sample);

	assert(sample.v < map->n_samples);
	if (later)
		return later->end - later->first;
	if (!map->first)
		return 1;
	return (map->past ? map->past[sample.v] : map->first[sample.v + 1]) - map->first[sample.v];
}

/* O(log samples), and O(1) where each sample is one unit. */
static inline struct sample_id unit_sample(const struct unit_map *map, struct unit_id unit)
{
	uint32_t low = 0, high = map->n_samples;

	assert(unit.v < map->n_units && !map->past);
	if (!map->first)
		return (struct sample_id){ unit.v };
	if (unit_is_later(map, unit))
		return (struct sample_id){ unit_later_file(map, unit)->sample };
	while (high - low > 1) { /* first[low] <= unit < first[high] */
		uint32_t middle = low + (high - low) / 2;

		if (map->first[middle] <= unit.v)
			low = middle;
		else
			high = middle;
	}
	return (struct sample_id){ low };
}

static inline bool unit_is_first(const struct unit_map *map, struct unit_id unit)
{
	if (unit_is_later(map, unit))
		return unit_later_file(map, unit)->first == unit.v;
	return !map->first || map->first[unit_sample(map, unit).v] == unit.v;
}

/* Whether the units of this sample are records. */
static inline bool unit_is_in_records(const struct unit_map *map, struct sample_id sample)
{
	assert(sample.v < map->n_samples);
	return (map->in_records && map->in_records[sample.v / 64] >> sample.v % 64 & 1) ||
	       unit_later_of(map, sample);
}

/* Whether this one is a record, or a part of one; false of those that a file has no more. */
static inline bool unit_is_record(const struct unit_map *map, struct unit_id unit)
{
	if (unit_is_later(map, unit))
		return true;
	return map->in_records && unit_is_in_records(map, unit_sample(map, unit));
}

#endif
