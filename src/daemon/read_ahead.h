/* SPDX-License-Identifier: Apache-2.0 */
/* How much the kernel reads ahead of the mount: as much as of the source, while nobody has told an order. */
#ifndef CLAIRFS_DAEMON_READ_AHEAD_H
#define CLAIRFS_DAEMON_READ_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/thr.h"

/* All in bytes. */
struct read_ahead {
	struct mutex mu;
	uint64_t wish;        /* what the mount should have; 0: it is left alone */
	int fd;               /* mu, like all below: of the mount; -1: not mounted, or left alone */
	uint64_t kernel, now; /* as the kernel had it; as we left it */
	bool is_told;         /* an order that somebody has told is in force */
};

/* What is known of source and memory; bytes. */
struct read_ahead_facts {
	uint64_t source; /* what the kernel reads ahead of the source; 0: not known */
	uint64_t large;  /* files of which a READ does not bring all, together */
	uint64_t there;  /* memory that the kernel may have for their pages */
};
/* Pure. 0: it is left alone. */
uint64_t read_ahead_wish(const struct read_ahead_facts *facts);

void read_ahead_init(struct read_ahead *r);
void read_ahead_fini(struct read_ahead *r);
/* Before the mount. source_fd: of the source's directory. Says in the log where the wish may not be done, as that
 * takes root; then there is none. */
void read_ahead_plan(struct read_ahead *r, const struct read_ahead_facts *facts, int source_fd);
/* What the kernel reads before what is missing of a mapped file, and as much behind it. */
uint64_t read_ahead_around(const struct read_ahead *r);
/* The mount with this st_dev answers. */
void read_ahead_begin(struct read_ahead *r, uint64_t device);
/* An order that was told is in force, or none is. Any thread; also before the mount answers, and after its end. */
void read_ahead_told(struct read_ahead *r, bool is_told);
/* The mount goes. */
void read_ahead_end(struct read_ahead *r);

#endif
