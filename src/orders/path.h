/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the source, for orders that are told. */
#ifndef CLAIRFS_ORDERS_TOLD_PATH_H
#define CLAIRFS_ORDERS_TOLD_PATH_H

#include "clairfs/base/err.h"

/* The path relative to the source: of an absolute one that begins with the source or the
 * mountpoint, and of a relative one itself. NULL: it is elsewhere. Borrowed from `path`. */
const char *path_relative(const char *path, const char *source, const char *mountpoint);
/* Opens a file for reading that is beneath dirfd whatever symlinks and ".." say, without waiting
 * for a writer. A descriptor, or -EXDEV: it is elsewhere (relative NULL as well), or another errno
 * with one line that does not name the path. May wait for the source. */
int path_open(int dirfd, const char *relative, struct err *err) MUST_USE;

#endif
