/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mounting for somebody else. A batch system's prolog is root and has to leave a mount that
 * belongs to the job's user, and a daemon that never sees a byte of the source with root's rights.
 * So the mount itself is made here, by root and mount(2): the kernel then lets nobody but that
 * user in. The daemon becomes the user before it opens the source, and has the device
 * (fs_params.fuse_fd).
 *
 * Until it serves, every access to the mount waits. Nothing here touches the mount.
 *
 * Threads: the one that calls it, before there are others.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "clairfs/fs.h"
#include "fs_priv.h"

int fs_premount_open(int *ret_fd, struct err *err)
{
	*ret_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	return *ret_fd < 0 ? err_set_errno(err, -errno, "/dev/fuse") : 0;
}

int fs_premount(const struct fs_premount *p, struct err *err)
{
	char options[192], target[32];

	snprintf(options, sizeof(options),
		 "fd=%d,rootmode=%o,user_id=%u,group_id=%u,default_permissions,max_read=%u",
		 p->fuse_fd, S_IFDIR, (unsigned)p->uid, (unsigned)p->gid, PIECE_BYTES);
	/* The directory itself, whatever its path leads to by now. */
	snprintf(target, sizeof(target), "/proc/self/fd/%d", p->dir_fd);
	if (mount(p->source, target, "fuse.clairfs", MS_RDONLY | MS_NOSUID | MS_NODEV, options) < 0)
		return err_set_errno(err, -errno, "mount");
	return 0;
}
