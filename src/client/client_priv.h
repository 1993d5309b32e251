/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of this module. */
#ifndef CLAIRFS_CLIENT_PRIV_H
#define CLAIRFS_CLIENT_PRIV_H

#include "clairfs/client.h"
#include "clairfs/hint.h"

/* name.c: the name under which this process tells an order: its job's, and of one of several ranks that tells
 * for itself (rank=, or a list where nobody speaks for the node) with the rank behind it. So the ranks' orders
 * are of different jobs. */
void client_job_name(const char *spec, char ret[CLAIRFS_HINT_JOB]);

/* ask.c: mounts_read_vfile() with another patience. */
int mounts_ask_vfile(const char *mountpoint, const char *name, uint64_t patience_ns, char **ret,
		     struct err *err) MUST_USE;

/* holders.c: "python3 (17, 2 open files), bash (42, current directory)": processes that keep
 * the mount busy, as far as they can be seen, or words that say that nobody is seen. Touches no
 * mount. Returns out. */
char *mounts_holders(const struct mount_info *info, char *out, size_t size);

/* mounts.c: what a line of /proc/self/mountinfo says. Any bytes with a zero behind; the line is
 * changed. Pure. */
struct mounts_line {
	char *path; /* NULL: it is no such line */
	uint64_t dev;
	uid_t owner; /* UINT32_MAX: it does not say */
	bool is_ours;
};
void mounts_parse_line(char *line, struct mounts_line *ret);
/* The line into what is known of the mount at ret->path; lines come from the lowest mount up. */
void mounts_take_line(char *line, struct mount_info *ret);

#endif
