/* SPDX-License-Identifier: Apache-2.0 */
/* What a miss fetches (src/cache/ahead.c), against a cache that is a set of bytes of 4096, and the
 * kernel in front of it. For tests; one thread. */
#ifndef CLAIRFS_TESTS_AHEAD_MODEL_H
#define CLAIRFS_TESTS_AHEAD_MODEL_H

#include "src/cache/ahead_priv.h"

#define PAGE 4096u
#define MIB (1u << 20)
enum { FILES = 64, LATENCY_MS = 10 };

struct page {
	uint32_t file, of; /* of: which file of that number */
	uint64_t page;
};

struct model {
	struct ahead ahead;
	uint8_t *there[FILES]; /* per page: 1: here; 2: here, ahead, and nobody came for it */
	uint64_t size[FILES];
	uint32_t of[FILES];
	uint64_t room, unused, now_ns;
	uint64_t asked, sent, n_reads, n_missed; /* bytes, and READs */
	uint64_t n_ahead; /* times that something was fetched ahead */
	/* Bytes of files that came to be fetched in whole pieces, and files: each once. */
	uint64_t was_whole, n_whole;
	uint64_t whole_size[FILES];
	uint8_t *kernel[FILES]; /* per page: the kernel has it; NULL: it keeps nothing */
	uint32_t reader;
	bool is_failing;    /* what is fetched ahead */
	/* Memory: what came first goes first, beyond so many pages. 0: all stays. */
	struct page *queue;
	uint64_t n_pages, first, next;
};

/* room: bytes for what nobody plans; the caller frees it. */
struct model *model_new(uint64_t room);
void model_free(struct model *m);
/* Of `size` bytes, of which nothing is here; there may have been another one of that number. */
void file_new(struct model *m, uint32_t file, uint64_t size);
/* One READ; true when somebody waited for the source. */
bool model_read(struct model *m, uint32_t file, uint64_t offset, uint32_t length);
/* READs of `step` bytes, one after the other. */
void run_of(struct model *m, uint32_t file, uint64_t from, uint64_t to, uint32_t step);
/* The offset of some page. */
uint64_t page_below(uint64_t *seed, uint64_t below);
/* From now on the kernel keeps what it has read of a file, and has nothing yet. */
void kernel_new(struct model *m, uint32_t file);
/* As read() at a place where nothing is read ahead: READs of the pages that the kernel has not. */
void kernel_read(struct model *m, uint32_t file, uint64_t at, uint64_t length);

#endif
