/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the page cache would have served a job that read the source without this mount. */
#ifndef CLAIRFS_WAIT_SOURCE_PAGES_H
#define CLAIRFS_WAIT_SOURCE_PAGES_H

#include "clairfs/base/cleanup.h"
#include "clairfs/wait.h"

struct dataset;
struct source_pages;
/* Of n files that were looked at: how many were found so, after a read (seen) and before any (warm).
 * *ret as it is where nothing follows. Pure. */
enum residence { ABSENT, PRESENT, UNTOLD, RESIDENCES };
void source_pages_judge(const uint32_t seen[RESIDENCES], const uint32_t warm[RESIDENCES], uint32_t n,
			struct wait_pages *ret);
/* Begins to ask, on a thread of its own. -ENOMEM. */
int source_pages_new(const struct dataset *ds, struct source_pages **ret) MUST_USE;
/* False: there is no answer yet, which may be for ever; *ret stays as it is. Any thread, never blocks for long. */
bool source_pages_look(struct source_pages *pages, struct wait_pages *ret);
/* Asks no further; does not wait for the source. NULL is fine. */
void source_pages_put(struct source_pages *pages);

#endif
