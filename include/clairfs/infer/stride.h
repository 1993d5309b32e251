/* SPDX-License-Identifier: Apache-2.0 */
/* Where the samples are in one large file, by what is READ of it: records of one length one behind the other
 * (NPY, raw, HDF5 contiguous, memmap), or a table of places that readers come to again and again. Fed with READs
 * as the kernel sends them, which begin at pages and are as long as its read-ahead says. Nothing of the file's bytes
 * is looked at.
 *
 * Pure; the caller locks. How it is decided: src/infer/stride.c. */
#ifndef CLAIRFS_INFER_STRIDE_H
#define CLAIRFS_INFER_STRIDE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clairfs/base/cleanup.h"

#define STRIDE_NONE UINT32_MAX
#define STRIDE_STARTS_MAX 1024 /* first places that are kept in the order they were read in */
#define STRIDE_TABLE_MAX 16384 /* distinct places */
#define STRIDE_LEAST 8192      /* bytes; shorter records do not show in pages */
#define STRIDE_COUNTS 8

enum stride_kind {
	STRIDE_NOTHING, /* is known */
	STRIDE_STREAMS, /* it is read from somewhere to somewhere, by `streams` readers */
	STRIDE_RECORDS, /* record k begins at origin + k * stride */
	STRIDE_TABLE,   /* `n` places, in the order of the file */
};

struct stride_view {
	enum stride_kind kind;
	uint64_t origin, stride; /* of records */
	uint64_t least;          /* what the origin may be instead: within a page of it, or it */
	uint64_t low, high;      /* likewise, if none of what was read is a stray: between these; both are the
				  * origin where records end with the file */
	/* Others fit what was read as well as `stride` does, from one to the other. Both are `stride` where only one
	 * fits, or it is round and by it alone the records end with the file. */
	uint64_t stride_least, stride_most;
	uint64_t n;              /* records that fit in the file; or places */
	uint64_t reach;          /* the last record that was read, + 1 */
	double bits;             /* how unlikely by chance, beyond all that was tried */
	uint32_t streams;
};

struct stride;
/* A file of so many bytes. Takes 24 KiB, and up to 300 where it has many places. -ENOMEM. */
int stride_new(uint64_t size, struct stride **ret) MUST_USE;
void stride_free(struct stride *s);
/* Some bytes are READ; reader: the thread, or 0. True: it is a jump, so something may begin there. A few hundred
 * instructions. */
bool stride_read(struct stride *s, uint64_t offset, uint64_t length, uint32_t reader);
/* What is known by now. Milliseconds, where nothing is found up to half a second: on no thread that others
 * wait for. cancel: once it is true this returns within a millisecond or so, with STRIDE_NOTHING; NULL: never. */
void stride_judge(const struct stride *s, const atomic_bool *cancel, struct stride_view *ret);
/* How many places were jumped to so far: when to judge again. */
uint64_t stride_jumps(const struct stride *s);

/* The record that begins in the page where a reader began to read, or STRIDE_NONE. */
uint32_t stride_number(const struct stride *s, const struct stride_view *v, uint64_t start);
/* The first records that were read, each once, in that order. Returns how many. */
size_t stride_numbers(const struct stride *s, const struct stride_view *v, uint32_t *ret, size_t max);
/* How many records a job may number, the likeliest first, which is also the most: what else is in the file
 * (labels, a footer) nobody knows. */
size_t stride_counts(const struct stride_view *v, uint64_t size, uint64_t ret[STRIDE_COUNTS]);
/* One line: "reads records of 150528 bytes", "of about" where others fit. */
void stride_say(const struct stride_view *v, char *out, size_t size);

#endif
