/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does any byte string crash the readers of the store's segments, or make them name a record that
 * can't be? 256 bytes of input are one block: 160 for its head (headers, trailers, footers), 96 for
 * its tail (seals), zeros between them; a corpus of whole blocks would be zeros mostly. The input
 * is taken as it is, and once more with magics, numbers and sums made right, since nothing would
 * get past the sums otherwise.
 *
 * What is accepted must lie within the segment, ascend, and be a piece that its identity can have;
 * and a scan must find the same however the segment is cut into parts.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "src/tier/store_format.h"

#define CHUNK 256u
#define HEAD (CHUNK - STORE_SEAL_BYTES)
#define MAX_BLOCKS 48u
#define NUMBER 0x5e65e65e65e65e60ull

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
	uint32_t n_blocks, free_block, n;
	uint64_t sum;
};

static void must(bool ok)
{
	if (!ok)
		abort();
}

static int each(void *ctx, const struct store_entry *entry)
{
	struct seen *seen = ctx;

	must(entry->block >= seen->free_block && entry->block > 0);
	must(entry->length <= PIECE_BYTES);
	must(entry->piece < piece_count(entry->identity.size));
	must(entry->length == piece_length(entry->identity.size, entry->piece));
	seen->free_block = entry->block + store_record_blocks(entry->length);
	must(seen->free_block <= seen->n_blocks);
	seen->n++;
	seen->sum = seen->sum * 31 + entry->block + entry->length + entry->identity.ino;
	return 0;
}

static int each_until_third(void *ctx, const struct store_entry *entry)
{
	unsigned *n = ctx;

	return ++*n == 3 ? -ECANCELED : 0;
}

/* In parts of `step` blocks, each in memory of its own so that reading beyond it is seen. */
static struct seen scan(const uint8_t *bytes, uint32_t n_blocks, uint32_t step,
			const struct store_header *header)
{
	struct seen seen = { .n_blocks = n_blocks };
	uint32_t free_block = 1;

	for (uint32_t at = 1; at < n_blocks; at += step) {
		uint32_t n = MIN(step, n_blocks - at);
		uint8_t *part = malloc((size_t)n * STORE_BLOCK);

		must(part != NULL);
		memcpy(part, bytes + (size_t)at * STORE_BLOCK, (size_t)n * STORE_BLOCK);
		must(store_scan(part, at, n, header, &free_block, each, &seen) == 0);
		must(free_block <= n_blocks);
		free(part);
	}
	return seen;
}

static void read_footer(const uint8_t *bytes, uint32_t n_blocks,
			const struct store_trailer *trailer)
{
	struct seen seen = { .n_blocks = trailer->footer_block };
	size_t size = (size_t)trailer->footer_blocks * STORE_BLOCK;
	uint8_t *footer = malloc(size + 1);
	unsigned n = 0;
	int rc;

	must(footer && trailer->footer_block + trailer->footer_blocks < n_blocks);
	memcpy(footer, bytes + (size_t)trailer->footer_block * STORE_BLOCK, size);
	rc = store_footer_decode(footer, trailer, each, &seen);
	must(rc == 0 || rc == -EBADMSG);
	must(rc == 0 ? seen.n == trailer->n_records : seen.n == 0);
	if (rc == 0 && seen.n >= 3)
		must(store_footer_decode(footer, trailer, each_until_third, &n) == -ECANCELED);
	free(footer);
}

static void read_segment(const uint8_t *bytes, uint32_t n_blocks)
{
	const uint8_t *last = bytes + (size_t)(n_blocks - 1) * STORE_BLOCK;
	struct store_trailer trailer;
	struct store_header header;
	struct seen whole;
	int rc = store_header_decode(bytes, &header);

	must(rc == 0 || rc == -EBADMSG || rc == -EPROTONOSUPPORT);
	if (rc < 0)
		return;
	if (store_trailer_decode(last, &header, n_blocks, &trailer))
		read_footer(bytes, n_blocks, &trailer);
	whole = scan(bytes, n_blocks, n_blocks, &header);
	for (uint32_t step = 1; step <= 5; step += 2) {
		struct seen parts = scan(bytes, n_blocks, step, &header);

		must(parts.n == whole.n && parts.sum == whole.sum);
	}
}

static void put_u64(uint8_t *at, uint64_t v)
{
	memcpy(at, &v, sizeof(v));
}

static void repair(uint8_t *bytes, uint32_t n_blocks)
{
	static const uint8_t version[4] = { STORE_VERSION };
	uint8_t *trailer = bytes + (size_t)(n_blocks - 1) * STORE_BLOCK;
	uint32_t footer_block, n_records;
	uint64_t room;

	for (uint32_t i = 1; i < n_blocks; i++) {
		uint8_t *seal = bytes + (size_t)(i + 1) * STORE_BLOCK - STORE_SEAL_BYTES;

		if (seal[0] != 'C') /* not every block is to be one */
			continue;
		memcpy(seal, "CLFSSEAL", 8);
		memcpy(seal + 8, version, 4);
		put_u64(seal + 16, NUMBER);
		memcpy(seal + 24, bytes + 24, 8);
		put_u64(seal + 88, XXH3_64bits_withSeed(seal, 88, NUMBER));
	}
	memcpy(trailer, "CLFSFOOT", 8);
	memcpy(trailer + 8, version, 4);
	put_u64(trailer + 16, NUMBER);
	memcpy(trailer + 24, bytes + 24, 8);
	memcpy(&n_records, trailer + 12, 4);
	memcpy(&footer_block, trailer + 32, 4);
	if (footer_block < n_blocks) {
		room = (uint64_t)(n_blocks - 1 - footer_block) * STORE_BLOCK;
		put_u64(trailer + 40,
			XXH3_64bits_withSeed(bytes + (size_t)footer_block * STORE_BLOCK,
					     MIN((uint64_t)n_records * STORE_ENTRY_BYTES, room),
					     NUMBER));
	}
	put_u64(trailer + 48, XXH3_64bits_withSeed(trailer, 48, NUMBER));
	memcpy(bytes, "CLFSSEGM", 8);
	memcpy(bytes + 8, version, 4);
	put_u64(bytes + 16, NUMBER);
	put_u64(bytes + 40, XXH3_64bits_withSeed(bytes, 40, NUMBER));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t n_blocks = (uint32_t)MIN(size / CHUNK, (size_t)MAX_BLOCKS);
	uint8_t *bytes;

	if (n_blocks < 2)
		return 0;
	bytes = calloc(n_blocks, STORE_BLOCK);
	must(bytes != NULL);
	for (uint32_t i = 0; i < n_blocks; i++) {
		uint8_t *block = bytes + (size_t)i * STORE_BLOCK;

		memcpy(block, data + (size_t)i * CHUNK, HEAD);
		memcpy(block + STORE_BLOCK - STORE_SEAL_BYTES, data + (size_t)i * CHUNK + HEAD,
		       STORE_SEAL_BYTES);
	}
	read_segment(bytes, n_blocks);
	repair(bytes, n_blocks);
	read_segment(bytes, n_blocks);
	free(bytes);
	return 0;
}
