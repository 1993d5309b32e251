/* SPDX-License-Identifier: Apache-2.0 */
/* READs of files that are cut into units, for whoever looks for records in them (infer/records.h). A ring of
 * fixed size that any thread puts into without a lock, and one thread takes from. What finds no room is
 * dropped: nobody who reads waits for who looks. */
#ifndef CLAIRFS_CACHE_READS_H
#define CLAIRFS_CACHE_READS_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/cleanup.h"
#include "clairfs/base/ids.h"

#define READS_MAX 8192u /* notes that it has room for; a power of two */

/* A READ, as the kernel sent it. Of pages that were pushed, or that the kernel has, there is none. */
struct read_note {
	struct entry_id entry;
	uint32_t length;       /* bytes */
	uint64_t offset, at_ns; /* at_ns: when it came, by the cache's clock */
	uint32_t reader;       /* the thread, 0: not known */
	/* No READ: a reader has come to a record whose place is known, by whatever says so. */
	bool is_record;
};

struct reads;
/* Takes 400 KB. -ENOMEM, or why there is no eventfd. */
int reads_new(struct reads **ret) MUST_USE;
void reads_free(struct reads *r); /* NULL is fine; nobody uses it any more */

/* Any thread, also under a lock: takes none, waits for nothing, fails never. One system call, when the taker sleeps. */
void reads_note(struct reads *r, const struct read_note *note);
/* Has reads_wait return, now or the next time. Any thread. */
void reads_wake(struct reads *r);
/* How many were dropped so far. Any thread. */
uint64_t reads_lost(const struct reads *r);

/* The one thread that takes: copies of the oldest ones, `max` at most; returns how many. Waits for nothing. */
uint32_t reads_take(struct reads *r, struct read_note *ret, uint32_t max);
/* Likewise: sleeps until there is one, or reads_wake was called. */
void reads_wait(struct reads *r);

#endif
