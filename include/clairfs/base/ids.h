/* SPDX-License-Identifier: Apache-2.0 */
/* One-field structs for numbers that must not be mixed: between modules a sample, a unit, an entry
 * or a piece (struct piece_key of tier.h) is one of them. Plain are positions in an epoch (uint32_t
 * or uint64_t, named pos), and the numbers that an order has. These may be samples of the dataset,
 * of a part of it, or records: `order`, `recover` and `infer` do not know which. Within `plan`
 * units are indices of its tables. */
#ifndef CLAIRFS_BASE_IDS_H
#define CLAIRFS_BASE_IDS_H

#include <stdbool.h>
#include <stdint.h>

/* An entry of the dataset: samples are entries 0..n_samples-1, then directories and other files.
 * FUSE inode number = v + 2 (the root directory is 1 and has no entry number: ENTRY_ROOT). */
struct entry_id {
	uint32_t v;
};

#define ENTRY_ROOT ((struct entry_id){ UINT32_MAX })
#define ENTRY_NONE ((struct entry_id){ UINT32_MAX - 1 })

static inline bool entry_eq(struct entry_id a, struct entry_id b)
{
	return a.v == b.v;
}

/* A sample number = the number of its entry. */
struct sample_id {
	uint32_t v;
};

#define SAMPLE_NONE UINT32_MAX

/* A part of a sample, or all of it: base/units.h. */
struct unit_id {
	uint32_t v;
};

#define UNIT_NONE ((struct unit_id){ UINT32_MAX })

static inline bool unit_eq(struct unit_id a, struct unit_id b)
{
	return a.v == b.v;
}

#endif
