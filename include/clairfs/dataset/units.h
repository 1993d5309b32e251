/* SPDX-License-Identifier: Apache-2.0 */
/* Units of the dataset (base/units.h): which part of which file each is. Cut once, when the dataset
 * is opened; what a file grows by later belongs to its last unit, as far as that is no more than
 * UNIT_BYTES (UNIT_WHOLE_BYTES of a file that is one), and to none beyond. Any thread. */
#ifndef CLAIRFS_DATASET_UNITS_H
#define CLAIRFS_DATASET_UNITS_H

#include "clairfs/base/units.h"
#include "clairfs/dataset/records.h"

/* Units of one file, at most (1 TiB); what is behind them is read as of any other file. */
#define UNITS_OF_FILE_MAX (1u << 18)
/* Of all larger files together, at most (16 TiB): how large a file is may be a lie, and each unit takes
 * some 200 bytes of memory. Those that come after have one unit each. */
#define UNITS_OF_LARGE_MAX (1u << 22)

/* Lives as long as the dataset. */
const struct unit_map *dataset_unit_map(const struct dataset *ds);
uint32_t dataset_n_units(const struct dataset *ds);
/* As the file is now: length 0 where it has become shorter. */
struct dataset_extent dataset_unit_extent(const struct dataset *ds, struct unit_id unit);
/* The unit with that byte of a file, whether it is there yet or not; UNIT_NONE: no unit has it. */
struct unit_id dataset_unit_at(const struct dataset *ds, struct entry_id e, uint64_t offset);
/* The first unit of a file and how many it has; 0: it is no sample. */
uint32_t dataset_units_of(const struct dataset *ds, struct entry_id e, struct unit_id *ret_first);
/* Bytes of samples that are cut, when the dataset was opened. */
uint64_t dataset_cut_bytes(const struct dataset *ds);
/* Its file. */
struct entry_id dataset_unit_entry(const struct dataset *ds, struct unit_id unit);

#endif
