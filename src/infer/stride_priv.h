/* SPDX-License-Identifier: Apache-2.0 */
/* READs of one large file -> runs (stride.c) -> places where one began -> records or a table
 * (stride_find.c) -> numbers, and the order they come in (stride_order.c). */
#ifndef CLAIRFS_INFER_STRIDE_PRIV_H
#define CLAIRFS_INFER_STRIDE_PRIV_H

#include "clairfs/infer/stride.h"
#include "infer_priv.h"

#define STRIDE_PAGE 4096u
#define STRIDE_RUNS 64u

/* A reader's READs, each where the one before it ended. */
struct stride_run {
	uint64_t begin, end;
	uint32_t reader;
	uint32_t start; /* number of its beginning in `start`, or STRIDE_NONE */
	uint64_t used;  /* 0: free */
};

/* A place where a run began. */
struct stride_start {
	uint64_t at;
	uint32_t pages;
	bool is_over; /* its reader went on elsewhere: it was not cut short by our looking */
	bool is_new;  /* nobody began there before */
};

struct stride {
	uint64_t size, reads, chained, jumps;
	struct stride_run run[STRIDE_RUNS];
	struct stride_start start[STRIDE_STARTS_MAX];
	uint32_t n_starts;
	/* Distinct places, by page + 1; 0: free. A power of two, at most half full. */
	uint64_t *slot;
	uint32_t n_slots, n_places;
	/* Of the jumps while there were places enough: those to known ones, and all. */
	uint64_t again, tried;
	uint64_t fresh; /* the last 64 jumps, 1: to a new place; the youngest is bit 0 */
};

/* Records, from the distinct places. False: there are none, or it was cancelled. */
bool stride_find(const struct stride *s, const atomic_bool *cancel, struct stride_view *ret);

#endif
