/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stage operations: pages into the kernel's cache and out of it. They block while a page of
 * theirs is locked by a READ that is not answered yet, so only stagers call them, holding no lock,
 * and never the reactor, which takes those READs.
 *
 * Nothing is copied here: one memory buffer, without splice, is one writev of libfuse. After the
 * unmount they fail.
 *
 * The lookup uses the whole path each time. An open descriptor of the mount would save the walk but
 * make it busy, and `umount` must work at any moment.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "fs_priv.h"

static int stage_store(void *ctx, struct entry_id entry, uint64_t offset, const void *data,
		       size_t length)
{
	struct fs *fs = ctx;
	struct fuse_bufvec bufv = FUSE_BUFVEC_INIT(length);

	bufv.buf[0].mem = (void *)(uintptr_t)data; /* libfuse only reads it */
	return fuse_lowlevel_notify_store(fs->se, fs_ino_of(entry), (off_t)offset, &bufv,
					  FUSE_BUF_NO_SPLICE);
}

static int stage_inval(void *ctx, struct entry_id entry, uint64_t offset, uint64_t length)
{
	struct fs *fs = ctx;

	return fuse_lowlevel_notify_inval_inode(fs->se, fs_ino_of(entry), (off_t)offset,
						(off_t)length);
}

static int stage_inval_attr(void *ctx, struct entry_id entry)
{
	struct fs *fs = ctx;

	return fuse_lowlevel_notify_inval_inode(fs->se, fs_ino_of(entry), -1,
						0); /* a negative offset: attributes only */
}

static int stage_lookup(void *ctx, struct entry_id entry)
{
	struct fs *fs = ctx;
	char path[PATH_MAX];
	struct statx stx;
	int rc = fs_path(fs, entry, path, sizeof(path));

	if (rc < 0)
		return rc;
	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &stx) < 0)
		return -errno;
	return 0;
}

const struct stage_ops *fs_stage_ops(void)
{
	static const struct stage_ops ops = { .store = stage_store,
					      .inval = stage_inval,
					      .inval_attr = stage_inval_attr,
					      .lookup = stage_lookup };

	return &ops;
}
