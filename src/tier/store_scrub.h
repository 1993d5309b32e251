/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the store again in the background; the background thread's. */
#ifndef CLAIRFS_TIER_STORE_SCRUB_H
#define CLAIRFS_TIER_STORE_SCRUB_H

#include "store_priv.h"

struct store_scrub {
	uint32_t slot; /* of the segment */
	struct store_segment *segment;
	struct store_entry *entries;
	uint32_t n, at;
	void *buffer;
	uint64_t bytes; /* read in this step */
};

/* Looks at one record; how long to wait before the next, UINT64_MAX: for ever. */
uint64_t store_scrub_step(struct store *s, struct store_scrub *scrub);
void store_scrub_end(struct store *s, struct store_scrub *scrub);

#endif
