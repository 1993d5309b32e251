/* SPDX-License-Identifier: Apache-2.0 */
/* Units: what the plan fetches, keeps and drops as one. A sample of up to UNIT_WHOLE_BYTES is one
 * unit: it is opened and read at once, and its open says that. A larger one is cut into several at
 * multiples of UNIT_BYTES, which follow each other in number and in the file. Arithmetic only; any
 * thread. */
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
	 * sample is the unit of its number. Borrowed. */
	const uint32_t *first;
};

static inline struct unit_id unit_first(const struct unit_map *map, struct sample_id sample)
{
	assert(sample.v < map->n_samples);
	return (struct unit_id){ map->first ? map->first[sample.v] : sample.v };
}

static inline uint32_t unit_count(const struct unit_map *map, struct sample_id sample)
{
	assert(sample.v < map->n_samples);
	return map->first ? map->first[sample.v + 1] - map->first[sample.v] : 1;
}

/* O(log samples), and O(1) where each sample is one unit. */
static inline struct sample_id unit_sample(const struct unit_map *map, struct unit_id unit)
{
	uint32_t low = 0, high = map->n_samples;

	assert(unit.v < map->n_units);
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

#endif
