/* SPDX-License-Identifier: Apache-2.0 */
/* Making the kernel know new attributes: see settle.c. */
#ifndef CLAIRFS_FS_SETTLE_PRIV_H
#define CLAIRFS_FS_SETTLE_PRIV_H

#include <limits.h>
#include <stdatomic.h>

#include "clairfs/base/thr.h"
#include "clairfs/fs.h"

#define FS_SETTLERS 4

struct fs_settler {
	struct fs_settle *of;
	struct thr thr;
	_Atomic pid_t tid;
	bool is_busy;        /* mu */
	char path[PATH_MAX]; /* the thread's while it is busy */
};

struct fs_settle {
	struct mutex mu;
	struct cond asked, done;
	bool is_quitting; /* mu */
	struct fs_settler settlers[FS_SETTLERS];
};

void fs_settle_init(struct fs *fs);
int fs_settle_start(struct fs *fs, struct err *err) MUST_USE;
/* After the reactor: whatever they wait for is gone. */
void fs_settle_quit(struct fs *fs);
void fs_settle_fini(struct fs *fs);
/* Returns when the kernel has the attributes of the entry that the dataset has; its old ones were
 * dropped before. -ETIMEDOUT, errno when the path does not lead to it any more. */
int fs_settle(struct fs *fs, struct entry_id entry, const char *path) MUST_USE;
/* A GETATTR of this thread is answered from the dataset at once. */
bool fs_is_settler(const struct fs *fs, pid_t tid);

#endif
