/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the page cache would have served a job that read the source without this mount. */
#ifndef CLAIRFS_DAEMON_SOURCE_PAGES_H
#define CLAIRFS_DAEMON_SOURCE_PAGES_H

#include "clairfs/base/cleanup.h"
#include "clairfs/metrics/stall.h"

struct dataset;
struct source_pages;
struct source_pages_found {
	enum stall_pages pages;
	double warm_share; /* of the samples, in the page cache already; negative: not known */
};
/* Of n files that were looked at: how many were found so, after a read (seen) and before any (warm).
 * *ret as it is where nothing follows. Pure. */
enum residence { ABSENT, PRESENT, UNTOLD, RESIDENCES };
void source_pages_judge(const uint32_t seen[RESIDENCES], const uint32_t warm[RESIDENCES], uint32_t n,
			struct source_pages_found *ret);
/* Begins to ask, on a thread of its own. -ENOMEM. */
int source_pages_new(const struct dataset *ds, struct source_pages **ret) MUST_USE;
/* False: there is no answer yet, which may be for ever; *ret stays as it is. Any thread, never blocks for long. */
bool source_pages_look(struct source_pages *pages, struct source_pages_found *ret);
/* Asks no further; does not wait for the source. NULL is fine. */
void source_pages_put(struct source_pages *pages);

#endif
