/* SPDX-License-Identifier: Apache-2.0 */
/* The watcher (watch.c) and the thread that makes inodes known ahead (warm.c). */
#ifndef CLAIRFS_FS_WATCH_PRIV_H
#define CLAIRFS_FS_WATCH_PRIV_H

#include <stdatomic.h>

#include "clairfs/base/thr.h"
#include "clairfs/fs.h"

struct fs_watch {
	int fd; /* -1: nothing is watched */
	struct entry_id *dir_of_wd; /* watch descriptors are small and ascending */
	size_t capacity;
	/* Read by the reactor: whether opens of a directory's files are seen by the watcher. */
	_Atomic uint32_t *is_watched; /* bit per entry */
	_Atomic bool is_root_watched;
	_Atomic bool is_complete;
	_Atomic uint32_t count;
	char why[FS_WATCH_WHY]; /* fs->mu; why nothing is watched, or empty */
};

struct fs_warm {
	struct mutex mu;
	struct cond cv;
	bool is_quitting; /* mu */
	uint64_t known;   /* warm thread: entries listed so far */
};

/* watch.c */
int fs_watch_init(struct fs *fs) MUST_USE;
void fs_watch_fini(struct fs *fs);
void *fs_watch_main(void *fs);
/* Whether the watcher reports opens of this directory's files. Any thread. */
bool fs_is_dir_watched(const struct fs *fs, struct entry_id dir);

/* warm.c */
void fs_warm_init(struct fs *fs);
void fs_warm_fini(struct fs *fs);
void *fs_warm_main(void *fs);
void fs_warm_quit(struct fs *fs);

#endif
