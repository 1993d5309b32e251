/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a segment (FORMAT.md): encoding and decoding, pure. What is decoded comes from a
 * drive that may hold anything: a function that returns true or 0 has checked everything that can
 * be checked without another part of the file. */
#ifndef CLAIRFS_TIER_STORE_FORMAT_H
#define CLAIRFS_TIER_STORE_FORMAT_H

#include "clairfs/tier.h"

#define STORE_VERSION 2u
#define STORE_BLOCK 4096u
#define STORE_SEAL_BYTES 96u
#define STORE_ENTRY_BYTES 48u
/* The longest record: a full piece and the page its seal needs. */
#define STORE_RECORD_MAX (PIECE_BYTES + STORE_BLOCK)
#define STORE_SEGMENT_BLOCKS (1u << 18) /* at most */

static inline uint32_t store_record_bytes(uint32_t length)
{
	return ALIGN_UP(length + STORE_SEAL_BYTES, STORE_BLOCK);
}
static inline uint32_t store_record_blocks(uint32_t length)
{
	return store_record_bytes(length) / STORE_BLOCK;
}
/* Blocks of a footer of n records, without the trailer. */
static inline uint32_t store_footer_blocks(uint32_t n)
{
	return (uint32_t)(((uint64_t)n * STORE_ENTRY_BYTES + STORE_BLOCK - 1) / STORE_BLOCK);
}

/* Which piece a record is of, and where it is. */
struct store_entry {
	uint32_t block, piece, length;
	uint32_t entry; /* for people */
	struct file_identity identity;
};

struct store_seal {
	struct store_entry what;
	uint64_t segment, fsid, payload_sum;
};

struct store_header {
	uint32_t n_blocks; /* reserved */
	uint64_t segment, fsid, made_ns;
};

struct store_trailer {
	uint32_t n_records, footer_block, footer_blocks;
	uint64_t segment, fsid, entries_sum;
};

/* --- encoding --- */
void store_seal_encode(const struct store_seal *seal, uint8_t *out);       /* STORE_SEAL_BYTES */
void store_header_encode(const struct store_header *header, uint8_t *out); /* a block */
void store_entry_encode(const struct store_entry *entry, uint8_t *out);    /* STORE_ENTRY_BYTES */
uint64_t store_entries_sum(const uint8_t *entries, uint32_t n, uint64_t segment);
void store_trailer_encode(const struct store_trailer *trailer, uint8_t *out); /* a block */

/* --- decoding --- */
/* 0; -EPROTONOSUPPORT: of another version; -EBADMSG. */
int store_header_decode(const uint8_t *block, struct store_header *ret) MUST_USE;
/* The last block of a file of n_blocks with this header. */
bool store_trailer_decode(const uint8_t *block, const struct store_header *header,
			  uint64_t n_blocks, struct store_trailer *ret);
/* The footer's bytes, footer_blocks of them: each entry to each() after all were found right.
 * -EBADMSG; what each() returns when it is not 0. */
int store_footer_decode(const uint8_t *bytes, const struct store_trailer *trailer,
			int (*each)(void *ctx, const struct store_entry *entry),
			void *ctx) MUST_USE;
/* Looks for seals in n blocks that begin at block `first` of the segment; *free_block: the first
 * block that no record before has taken, brought up to date. */
int store_scan(const uint8_t *bytes, uint32_t first, uint32_t n, const struct store_header *header,
	       uint32_t *free_block, int (*each)(void *ctx, const struct store_entry *entry),
	       void *ctx) MUST_USE;
/* Whether a whole record's sums are right and it is of this very piece: all of `want` but the
 * entry number. */
bool store_record_is(const uint8_t *bytes, const struct store_seal *want);
/* sum_caps.c: XXH3_64bits. */
uint64_t store_payload_sum(const void *payload, size_t length);
/* The same of a payload and a seal that were read to two places. */
bool store_payload_is(const uint8_t *payload, const uint8_t *seal, const struct store_seal *want);

#endif
