/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts of this machine as commands reach them: found, asked, told an order, unmounted. Any of
 * them may be of a daemon that hangs or is gone, so none of this waits without a limit. Children
 * are forked and nothing is locked: for programs of one thread. */
#ifndef CLAIRFS_CLIENT_H
#define CLAIRFS_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "clairfs/base/err.h"

struct mount_info {
	bool is_mounted; /* something is mounted exactly there */
	bool is_ours;    /* of type fuse.clairfs */
	bool is_covered; /* something is mounted below it */
	uint64_t dev;    /* major << 32 | minor */
	uid_t owner;     /* who mounted it, if it is ours */
	char path[4096]; /* absolute, as the kernel names it */
};
/* Looks the mountpoint up in the kernel's table without touching the mount itself (a hung mount
 * hangs whoever does). */
int mounts_find(const char *mountpoint, struct mount_info *ret, struct err *err) MUST_USE;
/* Mountpoints of ours that this user has mounted, `max` at most: *n texts from the heap. Touches
 * no mount. */
int mounts_list(uid_t user, char **ret, uint32_t max, uint32_t *n, struct err *err) MUST_USE;
/* Whether the daemon of a mount of ours is gone. Asks the mount, as mounts_read_vfile does. */
bool mounts_is_dead(const char *mountpoint);
/* Before a mount: *path is absolute, as the kernel names it, and touching it asks no daemon. A dead
 * mount of ours there is cleared; -EBUSY: one that lives. */
int mounts_make_free(const char *mountpoint, char path[4096], struct err *err) MUST_USE;
struct umount_params {
	const char *mountpoint;
	bool is_lazy;        /* detach now even when busy, and do not wait for the daemon */
	bool has_timeout;    /* for all of it; else 10 s while it is busy, 60 s for the daemon */
	uint64_t timeout_ns; /* nothing is forced when it passes (-EBUSY, -ETIMEDOUT) */
	/* Told once or twice, after three seconds: a line that says what is waited for. NULL: not
	 * told. */
	void (*say)(const char *line);
};
/* Unmounts and waits until the daemon has ended. -EPERM at once for a mount of another user, unless
 * root asks. */
int mounts_umount(const struct umount_params *params, struct err *err) MUST_USE;
/* Text of one virtual file of a mount; heap, terminated. Gives up after 10 s when the mount hangs
 * (-ETIMEDOUT). */
int mounts_read_vfile(const char *mountpoint, const char *name, char **ret,
		      struct err *err) MUST_USE;
/* Tells the mount an order ("none": no order any more). A list that is not beneath its source is
 * read here and handed over. *ret_line: what is in force now, heap. */
int mounts_announce(const char *mountpoint, const char *spec, char **ret_line,
		    struct err *err) MUST_USE;

#endif
