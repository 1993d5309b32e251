/* SPDX-License-Identifier: Apache-2.0 */
/* The store's index: from a piece of a file to the place of its record, in memory, sharded. What it
 * says is a hint: a record is served after its seal has been compared, once per mount. Any thread;
 * a shard's lock is a leaf, held over nothing but the table. */
#ifndef CLAIRFS_TIER_STORE_INDEX_H
#define CLAIRFS_TIER_STORE_INDEX_H

#include "clairfs/base/thr.h"
#include "clairfs/tier/store.h"
#include "store_format.h"

#define STORE_SHARDS 64u

/* A place is slot of the segment << 18 | first block. */
#define STORE_NO_PLACE UINT32_MAX

static inline uint32_t store_place(uint32_t slot, uint32_t block)
{
	return slot << 18 | block;
}
static inline uint32_t store_place_slot(uint32_t place)
{
	return place >> 18;
}
static inline uint32_t store_place_block(uint32_t place)
{
	return place & (STORE_SEGMENT_BLOCKS - 1);
}

enum {
	STORE_VERIFIED = 1, /* need not be verified (again) */
	STORE_WANTED = 2,   /* asked for by this mount */
	STORE_FLAGS = 3,
};

struct store_tag {
	uint64_t high;
	uint32_t low; /* without STORE_FLAGS */
};

struct store_slot {
	uint64_t high;
	uint32_t low;   /* of the tag, and flags */
	uint32_t place; /* or STORE_NO_PLACE */
};

struct store_shard {
	struct mutex mu;
	struct store_slot *slots; /* mu; 0 or a power of two of them */
	uint32_t n_slots, n_used; /* mu */
} CACHE_ALIGNED;

struct store_index {
	uint64_t key;
	struct store_shard shards[STORE_SHARDS];
};

struct store_segment;
struct store_found {
	uint32_t place, flags;
	struct store_segment *segment; /* with a reference, where segments were given */
};

void store_index_init(struct store_index *index, uint64_t key);
void store_index_fini(struct store_index *index);
struct store_tag store_tag_of(const struct store_index *index, uint64_t fsid,
			      const struct file_identity *identity, uint32_t piece);
/* segments: by slot, to take a reference of; NULL = none is wanted. */
bool store_index_find(struct store_index *index, const struct store_tag *tag,
		      struct store_segment *const *segments, struct store_found *ret);
/* -EEXIST, -ENOMEM. */
int store_index_add(struct store_index *index, const struct store_tag *tag, uint32_t place,
		    uint32_t flags) MUST_USE;
/* Sets a flag of the record at this place; whether it was not set. */
bool store_index_mark(struct store_index *index, const struct store_tag *tag, uint32_t place,
		      uint32_t flag);
/* The same, but only while *round is still `expected`: whoever changes it does so before he calls
 * store_index_doubt(). */
bool store_index_verify(struct store_index *index, const struct store_tag *tag, uint32_t place,
			const _Atomic uint32_t *round, uint32_t expected);
/* Takes the flag away again; whether it was set. */
bool store_index_unmark(struct store_index *index, const struct store_tag *tag, uint32_t place,
			uint32_t flag);
/* The record at ret->place is at `place` from now on: not verified, wanted if it was. False when it
 * was there no more; else ret->flags are those that it had. */
bool store_index_move(struct store_index *index, const struct store_tag *tag, uint32_t place,
		      struct store_found *ret);
/* Only the record at this place, unless that is STORE_NO_PLACE; ret->segment is left alone. */
bool store_index_remove(struct store_index *index, const struct store_tag *tag, uint32_t place,
			struct store_found *ret);
/* Removes all of a segment. */
void store_index_sweep(struct store_index *index, uint32_t segment_slot);
/* Records of a segment are to be verified again; how many were not. */
uint32_t store_index_doubt(struct store_index *index, uint32_t segment_slot);
/* Bytes of the tables and pieces in them. */
void store_index_usage(struct store_index *index, uint64_t *ret_bytes, uint64_t *ret_pieces);

#endif
