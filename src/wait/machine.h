/* SPDX-License-Identifier: Apache-2.0 */
/* What the statistics hear of the machine. */
#ifndef CLAIRFS_WAIT_MACHINE_H
#define CLAIRFS_WAIT_MACHINE_H

#include <limits.h>
#include <sys/types.h>

#include "source_pages.h"

enum { CROWDS_MAX = 4, CROWD_READERS = 8 };
/* Cgroups that the job's own readers are in: its ranks may be in several. */
struct crowds {
	struct crowd_source {
		char file[PATH_MAX + 64]; /* that says how long its tasks have waited for a CPU */
		uint64_t us, seen_ns;     /* what it said last; a reader was in it last */
	} source[CROWDS_MAX];
	uint32_t n;
	uint64_t waited_ns; /* so far, of any of them: each second those who waited most */
};
/* A reader is in it. Files that nobody was in for a minute go, and those that are not there. */
void crowds_add(struct crowds *c, const char *file, uint64_t now_ns);
/* Looks into all of them. */
void crowds_look(struct crowds *c);

struct machine {
	const struct dataset *dataset; /* borrowed; NULL: the source is not asked */
	struct source_pages *asked;    /* NULL: that is over */
	struct wait_pages pages;
	pid_t reader[CROWD_READERS]; /* of this second: a thread of each rank; 0: none */
	struct crowds crowds;
};
/* Before the reads of this second are fed. True: `pages` is another. */
bool machine_pages(struct machine *m, struct stall *s);
/* A thread of the job that is accounted for has read. */
void machine_saw(struct machine *m, uint32_t rank_index, uint32_t reader);
/* After they are fed. */
void machine_feed(struct machine *m, struct stall *s, uint64_t now_ns);

#endif
