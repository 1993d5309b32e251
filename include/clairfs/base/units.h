/* SPDX-License-Identifier: Apache-2.0 */
/* Units: what the plan fetches, keeps and drops as one. A sample of up to UNIT_WHOLE_BYTES is one
 * unit: it is opened and read at once, and its open says that. A larger one is cut into several at
 * multiples of UNIT_BYTES, which follow each other in number and in the file. Where records within
 * files are units (dataset/units.h), a file is as many as it has records, and a record is cut as a
 * sample is. Arithmetic only; any thread. */
#ifndef CLAIRFS_BASE_UNITS_H
#define CLAIRFS_BASE_UNITS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/ids.h"

#define UNIT_BYTES (4u << 20)
#define UNIT_WHOLE_BYTES (16u << 20)

/* How many units a sample of that size is. */
static inline uint64_t unit_cut(uint64_t bytes)
{
	return bytes <= UNIT_WHOLE_BYTES ? 1 : (bytes + UNIT_BYTES - 1) / UNIT_BYTES;
}

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
};

static inline struct unit_id unit_first(const struct unit_map *map, struct sample_id sample)
{
	assert(sample.v < map->n_samples);
	return (struct unit_id){ map->first ? map->first[sample.v] : sample.v };
}

static inline uint32_t unit_count(const struct unit_map *map, struct sample_id sample)
{
	assert(sample.v < map->n_samples);
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
	return !map->first || map->first[unit_sample(map, unit).v] == unit.v;
}

/* Whether the units of this sample are records. */
static inline bool unit_is_in_records(const struct unit_map *map, struct sample_id sample)
{
	assert(sample.v < map->n_samples);
	return map->in_records && map->in_records[sample.v / 64] >> sample.v % 64 & 1;
}

#endif
