/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a segment: header, seals, footer, trailer. FORMAT.md has the tables.
 *
 * What comes back from the device is foreign. A decoder bounds every number before anything is done
 * with it, and all sums are seeded with the random number of the segment, so a part of one segment
 * is never taken for one of another. Lengths are compared with what the identity says they must be;
 * the reader of a record compares all of it with what it asked for and follows none of it.
 *
 * Pure: no state, no I/O, nothing allocated; any thread. Must never read beyond the bytes given.
 */
#include "store_format.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "clairfs/base/buf.h"

#define HEADER_MAGIC 0x4d47455353464c43ull  /* "CLFSSEGM" in this order of bytes */
#define SEAL_MAGIC 0x4c41455353464c43ull    /* "CLFSSEAL" */
#define TRAILER_MAGIC 0x544f4f4653464c43ull /* "CLFSFOOT" */
#define HEADER_SUMMED 40u
#define SEAL_SUMMED 88u
#define TRAILER_SUMMED 48u

static uint8_t *put32(uint8_t *at, uint32_t v)
{
	v = htole32(v);
	return mempcpy(at, &v, sizeof(v));
}

static uint8_t *put64(uint8_t *at, uint64_t v)
{
	v = htole64(v);
	return mempcpy(at, &v, sizeof(v));
}

static uint8_t *put_identity(uint8_t *at, const struct file_identity *id)
{
	at = put64(at, id->ino);
	at = put64(at, id->size);
	at = put64(at, (uint64_t)id->mtime_ns);
	return put64(at, (uint64_t)id->ctime_ns);
}

static struct file_identity get_identity(struct buf_reader *r)
{
	struct file_identity id;

	id.ino = buf_get_u64(r);
	id.size = buf_get_u64(r);
	id.mtime_ns = (int64_t)buf_get_u64(r);
	id.ctime_ns = (int64_t)buf_get_u64(r);
	return id;
}

/* --- encoding --- */

void store_seal_encode(const struct store_seal *seal, uint8_t *out)
{
	uint8_t *at = put64(out, SEAL_MAGIC);

	at = put32(at, STORE_VERSION);
	at = put32(at, seal->what.block);
	at = put64(at, seal->segment);
	at = put64(at, seal->fsid);
	at = put32(at, seal->what.piece);
	at = put32(at, seal->what.length);
	at = put_identity(at, &seal->what.identity);
	at = put32(at, seal->what.entry);
	at = put32(at, 0);
	at = put64(at, seal->payload_sum);
	put64(at, XXH3_64bits_withSeed(out, SEAL_SUMMED, seal->segment));
}

void store_header_encode(const struct store_header *header, uint8_t *out)
{
	uint8_t *at = put64(out, HEADER_MAGIC);

	at = put32(at, STORE_VERSION);
	at = put32(at, header->n_blocks);
	at = put64(at, header->segment);
	at = put64(at, header->fsid);
	at = put64(at, header->made_ns);
	at = put64(at, XXH3_64bits_withSeed(out, HEADER_SUMMED, header->segment));
	memset(at, 0, STORE_BLOCK - (size_t)(at - out));
}

void store_entry_encode(const struct store_entry *entry, uint8_t *out)
{
	uint8_t *at = put32(out, entry->block);

	at = put32(at, entry->piece);
	at = put32(at, entry->length);
	at = put32(at, entry->entry);
	put_identity(at, &entry->identity);
}

uint64_t store_entries_sum(const uint8_t *entries, uint32_t n, uint64_t segment)
{
	return XXH3_64bits_withSeed(entries, (size_t)n * STORE_ENTRY_BYTES, segment);
}

void store_trailer_encode(const struct store_trailer *trailer, uint8_t *out)
{
	uint8_t *at = put64(out, TRAILER_MAGIC);

	at = put32(at, STORE_VERSION);
	at = put32(at, trailer->n_records);
	at = put64(at, trailer->segment);
	at = put64(at, trailer->fsid);
	at = put32(at, trailer->footer_block);
	at = put32(at, trailer->footer_blocks);
	at = put64(at, trailer->entries_sum);
	at = put64(at, XXH3_64bits_withSeed(out, TRAILER_SUMMED, trailer->segment));
	memset(at, 0, STORE_BLOCK - (size_t)(at - out));
}

/* --- decoding --- */

/* A piece that can be, in blocks that can be. */
static bool is_possible(const struct store_entry *e, uint32_t end_block)
{
	uint32_t n;

	if (e->length > PIECE_BYTES || e->piece >= piece_count(e->identity.size) ||
	    e->length != piece_length(e->identity.size, e->piece))
		return false;
	n = store_record_blocks(e->length);
	return e->block > 0 && e->block <= end_block && n <= end_block - e->block;
}

/* A seal of this segment; its piece has the length that the identity gives it, and the record lies
 * between the header and the end of the largest segment. */
static bool store_seal_decode(const uint8_t *bytes, uint64_t segment, struct store_seal *ret)
{
	struct buf_reader r;
	bool is_right;

	buf_reader_init(&r, bytes, STORE_SEAL_BYTES);
	is_right = buf_get_u64(&r) == SEAL_MAGIC;
	if (!is_right) /* most blocks that are looked at are no seals */
		return false;
	is_right &= buf_get_u32(&r) == STORE_VERSION;
	ret->what.block = buf_get_u32(&r);
	ret->segment = buf_get_u64(&r);
	ret->fsid = buf_get_u64(&r);
	ret->what.piece = buf_get_u32(&r);
	ret->what.length = buf_get_u32(&r);
	ret->what.identity = get_identity(&r);
	ret->what.entry = buf_get_u32(&r);
	is_right &= buf_get_u32(&r) == 0;
	ret->payload_sum = buf_get_u64(&r);
	is_right &= buf_get_u64(&r) == XXH3_64bits_withSeed(bytes, SEAL_SUMMED, segment);
	return is_right && !r.is_bad && ret->segment == segment &&
	       is_possible(&ret->what, STORE_SEGMENT_BLOCKS);
}

int store_header_decode(const uint8_t *block, struct store_header *ret)
{
	struct buf_reader r;
	bool is_right;
	uint32_t version;

	buf_reader_init(&r, block, STORE_BLOCK);
	if (buf_get_u64(&r) != HEADER_MAGIC)
		return -EBADMSG;
	version = buf_get_u32(&r);
	ret->n_blocks = buf_get_u32(&r);
	ret->segment = buf_get_u64(&r);
	ret->fsid = buf_get_u64(&r);
	ret->made_ns = buf_get_u64(&r);
	is_right = buf_get_u64(&r) == XXH3_64bits_withSeed(block, HEADER_SUMMED, ret->segment);
	if (!is_right || r.is_bad)
		return -EBADMSG;
	if (version != STORE_VERSION)
		return -EPROTONOSUPPORT;
	return ret->n_blocks <= STORE_SEGMENT_BLOCKS ? 0 : -EBADMSG;
}

bool store_trailer_decode(const uint8_t *block, const struct store_header *header,
			  uint64_t n_blocks, struct store_trailer *ret)
{
	struct buf_reader r;
	bool is_right;

	buf_reader_init(&r, block, STORE_BLOCK);
	is_right = buf_get_u64(&r) == TRAILER_MAGIC;
	is_right &= buf_get_u32(&r) == STORE_VERSION;
	ret->n_records = buf_get_u32(&r);
	ret->segment = buf_get_u64(&r);
	ret->fsid = buf_get_u64(&r);
	ret->footer_block = buf_get_u32(&r);
	ret->footer_blocks = buf_get_u32(&r);
	ret->entries_sum = buf_get_u64(&r);
	is_right &= buf_get_u64(&r) == XXH3_64bits_withSeed(block, TRAILER_SUMMED, header->segment);
	if (!is_right || r.is_bad || ret->segment != header->segment || ret->fsid != header->fsid)
		return false;
	return n_blocks <= STORE_SEGMENT_BLOCKS && ret->n_records < STORE_SEGMENT_BLOCKS &&
	       ret->footer_blocks == store_footer_blocks(ret->n_records) && ret->footer_block > 0 &&
	       (uint64_t)ret->footer_block + ret->footer_blocks + 1 == n_blocks;
}

static struct store_entry get_entry(struct buf_reader *r)
{
	struct store_entry e;

	e.block = buf_get_u32(r);
	e.piece = buf_get_u32(r);
	e.length = buf_get_u32(r);
	e.entry = buf_get_u32(r);
	e.identity = get_identity(r);
	return e;
}

int store_footer_decode(const uint8_t *bytes, const struct store_trailer *trailer,
			int (*each)(void *ctx, const struct store_entry *entry), void *ctx)
{
	size_t size = (size_t)trailer->footer_blocks * STORE_BLOCK;
	uint32_t free_block = 1;
	struct buf_reader r;

	if ((uint64_t)trailer->n_records * STORE_ENTRY_BYTES > size ||
	    store_entries_sum(bytes, trailer->n_records, trailer->segment) != trailer->entries_sum)
		return -EBADMSG;
	buf_reader_init(&r, bytes, size);
	for (uint32_t i = 0; i < trailer->n_records; i++) {
		struct store_entry e = get_entry(&r);

		if (r.is_bad || e.block < free_block || !is_possible(&e, trailer->footer_block))
			return -EBADMSG;
		free_block = e.block + store_record_blocks(e.length);
	}
	buf_reader_init(&r, bytes, size);
	for (uint32_t i = 0; i < trailer->n_records; i++) {
		struct store_entry e = get_entry(&r);
		int rc = each(ctx, &e);

		if (rc != 0)
			return rc;
	}
	return 0;
}

int store_scan(const uint8_t *bytes, uint32_t first, uint32_t n, const struct store_header *header,
	       uint32_t *free_block, int (*each)(void *ctx, const struct store_entry *entry),
	       void *ctx)
{
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *end = bytes + (size_t)(i + 1) * STORE_BLOCK;
		struct store_seal seal;
		int rc;

		if (!store_seal_decode(end - STORE_SEAL_BYTES, header->segment, &seal) ||
		    seal.fsid != header->fsid || seal.what.block < *free_block ||
		    seal.what.block + store_record_blocks(seal.what.length) != first + i + 1)
			continue;
		*free_block = first + i + 1;
		rc = each(ctx, &seal.what);
		if (rc != 0)
			return rc;
	}
	return 0;
}

bool store_payload_is(const uint8_t *payload, const uint8_t *seal, const struct store_seal *want)
{
	struct store_seal is;

	return store_seal_decode(seal, want->segment, &is) && is.fsid == want->fsid &&
	       is.what.block == want->what.block && is.what.piece == want->what.piece &&
	       is.what.length == want->what.length &&
	       file_identity_eq(&is.what.identity, &want->what.identity) &&
	       is.payload_sum == store_payload_sum(payload, want->what.length);
}

bool store_record_is(const uint8_t *bytes, const struct store_seal *want)
{
	return store_payload_is(
		bytes, bytes + store_record_bytes(want->what.length) - STORE_SEAL_BYTES, want);
}
