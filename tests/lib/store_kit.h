/* SPDX-License-Identifier: Apache-2.0 */
/* Stores for tests: datasets of made-up files whose bytes are known, puts and reads of their
 * pieces, and segments made by hand as src/tier/FORMAT.md says, not as the product writes them. */
#ifndef CLAIRFS_TESTS_STORE_KIT_H
#define CLAIRFS_TESTS_STORE_KIT_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/tier/store.h"
#include "tier_reads.h"

#define KIT_FSID 0x1234567890abcdefull
#define KIT_BLOCK 4096u

/* File `n` of dataset `set`: size, identity and bytes are functions of the two. */
struct kit_file {
	uint32_t set, n;
};

uint64_t kit_size(struct kit_file file);
struct file_identity kit_identity(struct kit_file file);
/* Heap, a multiple of KIT_BLOCK long and aligned; zeros behind the length. */
uint8_t *kit_bytes(struct kit_file file, uint32_t piece, uint32_t *ret_length);

/* A directory of mode 0700 on a filesystem in memory where there is one; removed at exit. Its path
 * is the kit's. */
const char *kit_dir(const char *name);
/* Persistent, small segments, two reads at a time. */
struct store_params kit_params(const char *dir);
struct store *kit_open(const struct store_params *params);

int kit_put(struct store *store, struct kit_file file, uint32_t piece);
/* All pieces; the first status that is not 0. */
int kit_put_file(struct store *store, struct kit_file file);
/* All pieces of n files, from `first` on each step-th, at once; the first status of each that is
 * not 0. */
void kit_put_files(struct store *store, struct kit_file first, uint32_t step, uint32_t n,
		   int *statuses);
/* The status of the read; bytes are compared when it is 0, and a difference fails the test. */
int kit_get(struct store *store, struct kit_file file, uint32_t piece);
/* Pieces served of files 0 .. n-1 of the set; none may be wrong, or fail otherwise than -ENOENT and
 * -EIO, and one that failed is a miss the second time. */
unsigned kit_served(struct store *store, uint32_t set, uint32_t n);
unsigned kit_pieces(uint32_t set, uint32_t n);

/* --- by hand --- */
struct kit_record {
	struct kit_file file;
	uint32_t piece, entry;
	uint64_t fsid;  /* 0: KIT_FSID */
	uint32_t block; /* the kit's: where it came to lie */
	/* Spoils what is written of it; the sums are made afterwards. */
	void (*spoil)(uint8_t *payload, uint32_t length, uint8_t seal[96]);
};

/* An image of a sealed segment, heap. Those that end without footer are as a killed daemon leaves
 * them. */
struct kit_image {
	uint8_t *bytes;
	uint64_t size, number;
	uint32_t footer_block;
};
void kit_image_make(struct kit_image *image, uint64_t number, struct kit_record *records,
		    unsigned n, bool is_sealed);
/* Sums of header, seal, footer entries and trailer as the bytes now are. */
void kit_sum_header(uint8_t *header, uint64_t number);
void kit_sum_seal(uint8_t seal[96], const uint8_t *payload, uint32_t length, uint64_t number);
void kit_sum_footer(struct kit_image *image);
uint64_t kit_record_bytes(uint32_t length);
/* Writes the marker if it is missing and the image under its number's name, mode 0600. */
void kit_image_write(const struct kit_image *image, const char *dir);
/* Removes everything in dir. */
void kit_clear(const char *dir);

#endif
