/* SPDX-License-Identifier: Apache-2.0 */
/* Opening what lies below a directory, and nothing else: neither an absolute symlink nor "..", nor
 * what is renamed meanwhile, leads out. */
#ifndef CLAIRFS_BASE_BENEATH_H
#define CLAIRFS_BASE_BENEATH_H

#include <stdbool.h>
#include <sys/stat.h>

#include "clairfs/base/cleanup.h"

#define BENEATH_LINKS_MAX 40 /* symlinks in one path, as in the kernel */

struct open_how; /* <linux/openat2.h> */

/* Opens a path relative to root_fd (which may be O_PATH) for reading, flags as of openat. Symlinks
 * are followed while they stay below root_fd. -EXDEV: it leads out; -ELOOP: too many symlinks;
 * -EAGAIN with O_NONBLOCK: a lease, as of openat. Any thread. */
int beneath_open(int root_fd, const char *path, int flags) MUST_USE;
/* The same without openat2(2), which the above uses when the kernel lets us. For tests, and for the
 * above. */
int beneath_open_by_steps(int root_fd, const char *path, int flags) MUST_USE;
/* How an io_uring asks for the same. False: it cannot be asked here, beneath_open can. */
bool beneath_how(int flags, struct open_how *ret);

/* A directory in which a name was looked up because of a symlink in the path, there or before, and
 * that the path does not have in front of its first symlink: one more whose permission decides. May
 * be told twice. fd: O_PATH. */
struct beneath_visit {
	void (*crossed)(void *ctx, int fd, const struct stat *st);
	void *ctx;
};
struct beneath_found {
	int fd; /* O_PATH, the caller's */
	struct stat st;
	bool is_link; /* the last component is a symlink */
};
/* Walks the path step by step, opening nothing but O_PATH. "." and "" are root_fd itself. visit may
 * be NULL. Errors as above, and those of openat. */
int beneath_look(int root_fd, const char *path, const struct beneath_visit *visit,
		 struct beneath_found *ret) MUST_USE;

#endif
