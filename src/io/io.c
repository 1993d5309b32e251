/* SPDX-License-Identifier: Apache-2.0 */
/* Which engine serves a filesystem.
 *
 * AUTO asks where the file behind probe_fd lives. A ring pays only if the kernel can start a read
 * without blocking (FMODE_NOWAIT): ext4, xfs, btrfs and block devices can. Everywhere else each
 * step of a job would be handed to a kernel thread, at two to three times the CPU of a thread of
 * ours; so filesystems that are not on the list get the pool, known or not. On the list means: the
 * name is only for the message.
 *
 * Called at set-up by one thread. Must never fail for AUTO as long as one thread can be started. */
#include "io_priv.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/vfs.h>

const char *const io_engine_names[] = { "auto", "pool", "uring", NULL };

#define IO_XFS_MAGIC 0x58465342

struct io_fs {
	uint32_t magic;
	bool is_local; /* reads do not block in the ring */
	const char *why;
};

static const struct io_fs io_filesystems[] = {
	{ EXT4_SUPER_MAGIC, true, "ext4: local filesystem with non-blocking reads" },
	{ IO_XFS_MAGIC, true, "xfs: local filesystem with non-blocking reads" },
	{ BTRFS_SUPER_MAGIC, true, "btrfs: local filesystem with non-blocking reads" },
	{ 0x65735546, false, "FUSE: no non-blocking reads" },
	{ NFS_SUPER_MAGIC, false, "NFS: no non-blocking reads" },
	{ 0x0bd00bd0, false, "Lustre: no non-blocking reads" },
	{ 0x47504653, false, "GPFS: not known to have non-blocking reads" },
	{ 0x19830326, false, "BeeGFS: not known to have non-blocking reads" },
	{ 0x00c36400, false, "Ceph: not known to have non-blocking reads" },
	{ 0xff534d42, false, "CIFS: not known to have non-blocking reads" },
	{ 0xfe534d42, false, "SMB: not known to have non-blocking reads" },
	{ TMPFS_MAGIC, false, "tmpfs: nothing to wait for" },
	{ OVERLAYFS_SUPER_MAGIC, false, "overlayfs: what is below it is not known" },
};

/* Whether reads of the file are worth a ring; *ret_why: static words. */
static bool io_is_local(int fd, const char **ret_why)
{
	struct statfs fs;
	struct stat st;
	size_t i;

	*ret_why = "the filesystem could not be asked for its type";
	if (fd < 0 || fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return false;
	*ret_why = "block device";
	if (S_ISBLK(st.st_mode))
		return true;
	for (i = 0; i < ARRAY_LEN(io_filesystems); i++) {
		*ret_why = io_filesystems[i].why;
		if ((uint32_t)fs.f_type == io_filesystems[i].magic)
			return io_filesystems[i].is_local;
	}
	*ret_why = "a filesystem not known to have non-blocking reads";
	return false;
}

int io_new(enum io_engine engine, int probe_fd, const struct io_params *params, struct io **ret,
	   const char **ret_why, struct err *err)
{
	struct io_caps caps;

	*ret_why = "asked for";
	if (engine == IO_ENGINE_POOL)
		return io_pool_new(params, ret, err);
	if (engine == IO_ENGINE_URING)
		return io_uring_new(params, ret, err);
	if (!io_is_local(probe_fd, ret_why))
		return io_pool_new(params, ret, err);
	io_probe_caps(&caps);
	if (!caps.has_uring) {
		*ret_why = caps.uring_why_not;
		return io_pool_new(params, ret, err);
	}
	if (io_uring_new(params, ret, NULL) == 0)
		return 0;
	*ret_why = "a ring of this size could not be made";
	return io_pool_new(params, ret, err);
}

void io_free(struct io *io)
{
	if (io)
		io->ops->free(io);
}
