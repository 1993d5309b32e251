/* SPDX-License-Identifier: Apache-2.0 */
/* Pages pushed into the kernel's cache of the FUSE inodes. Part of tier.h. */
#ifndef CLAIRFS_TIER_STAGE_H
#define CLAIRFS_TIER_STAGE_H

#include <stddef.h>
#include <stdint.h>

#include "clairfs/base/err.h"
#include "clairfs/base/ids.h"

/* A file as the kernel knows it: since a renewal (dataset_renew) its name leads to another inode, and
 * the old one is left to those that have it open. */
struct stage_file {
	struct entry_id entry;
	uint32_t renewal;
};

struct stage_ops {
	/* FUSE_NOTIFY_STORE / FUSE_NOTIFY_INVAL_INODE. Blocking; only stager threads call them,
	 * with no lock held. 0, -ENOENT when the kernel does not know the inode, else errno. length
	 * 0 means all from offset on. */
	int (*store)(void *ctx, struct stage_file file, uint64_t offset, const void *data,
		     size_t length);
	int (*inval)(void *ctx, struct stage_file file, uint64_t offset, uint64_t length);
	/* Drops attributes only (no pages). */
	int (*inval_attr)(void *ctx, struct entry_id entry);
	/* Makes the kernel know the attributes that the dataset has now, above all the size: when it
	 * returns 0, whoever reads the inode sees them, or the kernel does not know it. It never
	 * waits for a page. One thread at a time. -ETIMEDOUT after seconds, errno. */
	int (*settle)(void *ctx, struct entry_id entry);
	/* The name leads to the inode of now for who looks it up from now on. Never waits for a
	 * page. */
	int (*drop_name)(void *ctx, struct entry_id entry);
	/* Makes the kernel know the inode by looking its path up through the mount; may block on
	 * the reactor. -ENOBUFS: it knows enough until readers have opened some. */
	int (*lookup)(void *ctx, struct entry_id entry);
};
struct stage_piece {
	struct stage_file file;
	uint64_t offset; /* of a page */
	uint32_t length; /* PIECE_BYTES at most; to the end of a page, or of the file */
	const void *data;
	uint64_t size; /* of the file */
};
/* Pushes them at once. -EINVAL: they are no whole pages, or past the size. */
int stage_push(const struct stage_ops *ops, void *ctx, const struct stage_piece *piece) MUST_USE;

#endif
