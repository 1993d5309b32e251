/* SPDX-License-Identifier: Apache-2.0 */
/* Units of the dataset (base/units.h): which part of which file each is. Cut when the dataset is
 * opened, and once more by dataset_cut_records. What a file grows by later belongs to its last unit, as
 * far as that is no more than UNIT_BYTES (UNIT_WHOLE_BYTES of a file that is one), and to none beyond;
 * of a file in records to none. Any thread. */
#ifndef CLAIRFS_DATASET_UNITS_H
#define CLAIRFS_DATASET_UNITS_H

#include "clairfs/base/cleanup.h"
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
/* --- records as units: where the dataset has a table of them, and somebody asks for it --- */

/* Files of no more stay whole: they are fetched whole by any read. */
#define UNIT_FILE_LEAST (1u << 20)
/* Records are worth a request of their own from here on, on average: four pages. */
#define UNIT_RECORD_LEAST (16u << 10)

/* From here on each record of a file of more than one piece is a unit, or several at multiples of
 * UNIT_BYTES from its beginning if it is larger than UNIT_WHOLE_BYTES. Files without records, with one,
 * or of one piece stay as they are; a record in one of these has the units of its file. `page`: of the
 * kernel, a power of two. All or nothing, before anybody has asked for units: -ENODATA: there is no
 * table, or no such file; -E2BIG: records have more than `most` units, or there would be more than
 * UNITS_OF_LARGE_MAX with those of other larger files; -ENOTSUP: records are smaller than
 * UNIT_RECORD_LEAST on average in some file, several are in one extent, or some are in a file that is no
 * sample; -ENOMEM. Nothing has changed
 * then. Set-up only. */
int dataset_cut_records(struct dataset *ds, uint32_t page, uint64_t most) MUST_USE;
/* Whether the units of that file are records. Then the extent of a unit has whole pages, those at its
 * ends shared with its neighbours. Never true of what is no sample. */
bool dataset_is_in_records(const struct dataset *ds, struct entry_id e);
/* The whole pages that nothing of another unit is on, as the file is now; of a unit that is no record
 * its extent. Length 0: there are none. */
struct dataset_extent dataset_unit_own(const struct dataset *ds, struct unit_id unit);
/* So much of it is the record's, the rest of its pages are its neighbours'; else what its extent has. */
uint64_t dataset_unit_bytes(const struct dataset *ds, struct unit_id unit);
/* Of a file in records: the last unit whose extent begins at or before that byte; UNIT_NONE: none.
 * O(log units of the file). */
struct unit_id dataset_unit_before(const struct dataset *ds, struct entry_id e, uint64_t offset);
/* The unit that a read is of: of a file in records the one that has the middle of it, as its ends are
 * pages of two; else the one with its first byte. */
struct unit_id dataset_unit_of_read(const struct dataset *ds, struct entry_id e, uint64_t offset,
				    uint32_t length);

/* As dataset_is_in_records, of one unit: false of those that its file has no more. */
bool dataset_unit_is_record(const struct dataset *ds, struct unit_id unit);

/* Whether it is a record that the kernel asks for at once, of this mount as it would of the source. A larger
 * one takes several READs, as no FUSE filesystem may have longer ones, where the source's own client asks
 * for more at a time. */
#define UNIT_SMALL_MOST (128u << 10)
bool dataset_unit_is_small(const struct dataset *ds, struct unit_id unit);
/* Whether all units of records are, but for one in 200; false where dataset_cut_records made none. Goes
 * through an array of them. */
bool dataset_records_are_small(const struct dataset *ds);

/* --- records that are found while others use the units --- */

/* Has room for units of records behind all others: for those of all files that are cut, `most` at most.
 * None where no file is cut, or where there is no memory; not after dataset_cut_records. Set-up only. */
void dataset_reserve_units(struct dataset *ds, uint32_t page, uint64_t most);
/* How many there is room for. dataset_n_units has them, from the first one on. */
uint32_t dataset_n_reserved(const struct dataset *ds);

/* Records of one length, one behind the other, in one file. */
struct dataset_found {
	struct entry_id entry;
	uint64_t stride;        /* UNIT_RECORD_LEAST at least */
	uint64_t low, at, high; /* where the first one begins: between low and high, most likely at */
	uint32_t n;             /* how many there are from there on, at least */
	uint32_t around; /* bytes that the kernel asks for before a page and behind it: it is mapped; 0: it is not */
};
/* From here on the records of that file are its units, those before the first one as well, and as many as
 * it has room for. A unit has all pages that may be its record's, as its place is known to some bytes
 * only, and for itself those that must be. What numbers meant before they mean still: dataset_unit_extent.
 * *ret_first: the number in the file of the first one that was found. 0, also where the file is in these
 * records already; -EEXIST: it is in others; -E2BIG: there is no room for them; -ENOTSUP: it is no file
 * that is cut; -EINVAL: they cannot be in it. By one thread at a time; others need not know. */
int dataset_cut_found(struct dataset *ds, const struct dataset_found *found, uint32_t *ret_first)
	MUST_USE;
/* Whether the file is in these records; *ret_first as above. Any thread. */
bool dataset_is_cut_so(const struct dataset *ds, const struct dataset_found *found, uint32_t *ret_first);
/* Of a file that was cut so: an order that numbers n of its records, from that one on, has this map to
 * units (heap, one block). -EINVAL: it has fewer; -ENOMEM. */
int dataset_found_map(const struct dataset *ds, struct entry_id e, uint32_t first, uint32_t n,
		      struct unit_map **ret) MUST_USE;
/* Where the record of a unit that was cut so begins, most likely. */
uint64_t dataset_found_start(const struct dataset *ds, struct unit_id unit);
/* Whether it was. */
bool dataset_unit_is_found(const struct dataset *ds, struct unit_id unit);
/* `around` of a file that was cut so when that was said last; else 0. */
uint32_t dataset_around(const struct dataset *ds, struct entry_id e);
/* The units that such a file had before; 0: it is no such file. Something may still be held of them. */
uint32_t dataset_old_units(const struct dataset *ds, struct entry_id e, struct unit_id *ret_first);
/* How many units there are that are no such records: what dataset_n_units was without room for these. */
uint32_t dataset_n_file_units(const struct dataset *ds);

/* Bytes of samples that are cut, when the dataset was opened. */
uint64_t dataset_cut_bytes(const struct dataset *ds);
/* Its file. */
struct entry_id dataset_unit_entry(const struct dataset *ds, struct unit_id unit);

#endif
