/* SPDX-License-Identifier: Apache-2.0 */
/* What the files about mounts of this machine share. */
#ifndef CLAIRFS_DAEMON_MOUNTS_PRIV_H
#define CLAIRFS_DAEMON_MOUNTS_PRIV_H

#include "clairfs/daemon.h"

/* mounts_ask.c: mounts_read_vfile() with another patience. */
int mounts_ask_vfile(const char *mountpoint, const char *name, uint64_t patience_ns, char **ret,
		     struct err *err) MUST_USE;

/* mounts_holders.c: "python3 (17, 2 open files), bash (42, current directory)": processes that keep
 * the mount busy, as far as they can be seen, or words that say that nobody is seen. Touches no
 * mount. Returns out. */
char *mounts_holders(const struct mount_info *info, char *out, size_t size);

#endif
