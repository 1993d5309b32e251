/* SPDX-License-Identifier: Apache-2.0 */
/* From what was told to the statistics: which reads have a place, and in what order they come. No
 * threads and no locks. */
#ifndef CLAIRFS_WAIT_FEED_H
#define CLAIRFS_WAIT_FEED_H

#include "machine.h"
#include "sampling.h"
#include "told.h"

struct feeder {
	struct stall *stall;
	struct sampling *sampling;
	struct machine *machine;
	/* The orders taken so far: by generation modulo their number. */
	struct order_taken {
		bool is_known;
		uint32_t generation, n_ranks;
		uint64_t from_ns, until_ns; /* reads with a place lie in between */
	} taken[STALL_ORDERS];
	uint32_t generation; /* of the last one */
	struct told early;   /* reads of orders that were not told yet */
	uint64_t early_ns;   /* since when */
};

void feeder_take(struct feeder *f, const struct told *t, uint64_t now_ns, bool is_final);
/* Workers of all ranks, by what passes of the order in force have shown; 0: not known. */
uint32_t feeder_seen_readers(const struct feeder *f);
void feeder_fini(struct feeder *f);

#endif
