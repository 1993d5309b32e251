/* SPDX-License-Identifier: Apache-2.0 */
/* The FUSE front-end, samples personality: read-only, one reactor thread that never blocks, the
 * inotify watcher, the warm thread that makes inodes known ahead, and the operations the stagers
 * push pages with. */
#ifndef CLAIRFS_FS_H
#define CLAIRFS_FS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "clairfs/cache.h"
#include "clairfs/dataset.h"
#include "clairfs/metrics.h"

#define FS_LOOKUPS_AHEAD 16384 /* times 1 KiB */

/* A file below <mountpoint>/.clairfs (hidden from readdir of the root), rendered anew at every
 * lookup (an open of a name looked up before makes two); the inode of one lookup keeps its text. Of
 * each user the last 64 texts (8 MiB) are kept, and of all users but root and the one who mounted
 * it 256 (32 MiB): a lookup never fails for those before it, but a file that was looked up longer
 * ago gives ESTALE. Those others get a text that is up to 100 ms old. render returns 0 or a
 * negative errno, runs on the reactor thread and must be quick (<= 5 ms) and never use the mount.
 */
struct fs_vfile {
	const char *name;
	int (*render)(void *ctx, struct buf_writer *out);
	void *ctx;
};

/* Those who may tell orders, neither of whom waits for the other: the user who mounted it (root as
 * well, if that is the same), and root. */
enum fs_lane { FS_LANE_OWNER, FS_LANE_ROOT, FS_LANES };

struct clairfs_list; /* hint.h */
/* What somebody says through the mount: a spec, or a part of a list. */
struct fs_told {
	uint32_t uid;
	int tid;          /* the thread that says it, which waits meanwhile; 0: not known */
	bool is_lookup;   /* by a look at a name, as of cat: most often a command of its own */
	enum fs_lane lane;
	const _Atomic bool *is_gone; /* it does not wait any more (a signal); NULL: it always does
				      */
	const char *text; /* any bytes, less than CLAIRFS_HINT_TEXT; of a list: keys, or empty */
	const char *job;  /* the name that it says, any bytes, less than CLAIRFS_HINT_JOB; "": none */
	struct clairfs_list *list; /* NULL: none; version and count are checked; the token is to be
				    * answered */
};

struct clairfs_steps; /* hint.h */

struct fs_params {
	struct dataset *dataset;
	struct cache *cache;
	struct metrics *metrics;
	struct clock *clock;
	const char *mountpoint; /* absolute */
	const char *source;     /* shown as the mount's device (df, findmnt) */
	bool allow_other;
	/* Kernel memory: the warm thread lists this many inodes ahead of the readers (0: none, and
	 * it may exceed it by one directory part of 256). For a push, inodes are looked up freely
	 * while the kernel knows fewer; beyond, only while fewer than lookups_ahead of the inodes
	 * looked up so were not opened yet. What readers look up themselves is not bounded. */
	uint64_t inodes_ahead;
	uint32_t lookups_ahead;        /* 0 = FS_LOOKUPS_AHEAD */
	const struct fs_vfile *vfiles; /* ends with name == NULL; borrowed */
	/* An order was told through the mount by who may: root or this process's user. Writes one
	 * line: what is in force now, or what is wrong. 0 or a negative errno. Runs on a thread of
	 * each lane, one at a time there, and may block. NULL: no orders are taken, and .clairfs
	 * has no announce. */
	int (*announce)(void *ctx, const struct fs_told *told, struct buf_writer *answer);
	void *announce_ctx;
	/* A training loop of root or this process's user has told its steps: magic, version and
	 * count are checked, nothing else is. 0 or a negative errno. Runs on the reactor thread and
	 * must be quick. NULL: none are taken. */
	int (*steps)(void *ctx, uint32_t uid, const struct clairfs_steps *steps);
	void *steps_ctx;
	bool force_open_answered; /* never answer OPEN with ENOSYS (debug=open:answer; for
				     comparison) */
	int fuse_fd; /* of fs_premount, consumed: it is mounted there already. 0: it mounts. */
};

struct fs;
/* Mounts. Errors are one line: mountpoint missing, not a directory, not empty, already mounted, no
 * /dev/fuse, no fusermount3. As root by mount(2), else through fusermount3 (libfuse does both). */
int fs_new(const struct fs_params *params, struct fs **ret, struct err *err) MUST_USE;
/* Starts reactor, watcher and warm thread; returns when the mount answers, the watches are in place
 * and the first few thousand inodes are known. -EINTR when fs_stop was called meanwhile. Whatever
 * it returns, fs_free ends everything. */
int fs_start(struct fs *fs, struct err *err) MUST_USE;
/* st_dev of the mount, once fs_start has returned. */
uint64_t fs_device(const struct fs *fs);
/* Blocks until the filesystem was unmounted from outside or fs_stop was called. */
void fs_wait(struct fs *fs);
/* Asks fs_wait to return; async-signal-safe. */
void fs_stop(struct fs *fs);
/* Unmounts (lazily when busy), ends the threads, whatever the source does. READs that the cache has
 * not answered fail with ENOTCONN or ECONNABORTED, stage operations that wait for them return,
 * later ones fail. cache_stop comes after it: what the cache completes then goes nowhere. */
void fs_unmount(struct fs *fs);
/* After cache_stop: every read has been answered. Unmounts when that was not done. NULL allowed. */
void fs_free(struct fs *fs);

/* For drive_set_stage, with ctx = fs. */
const struct stage_ops *fs_stage_ops(void);

#define FS_WATCH_WHY 256
struct fs_status {
	bool is_open_refused;   /* OPEN was answered ENOSYS */
	bool is_watch_complete; /* every directory that holds samples is watched */
	uint32_t watches;
	char watch_why[FS_WATCH_WHY]; /* why there are none, for a person; empty when there are */
	uint64_t inodes_known; /* by the kernel, as far as lookups and forgets tell */
	uint64_t table_bytes;  /* memory that grows with the dataset */
	uint32_t proto_major, proto_minor;
};
void fs_get_status(struct fs *fs, struct fs_status *ret);

/* The device, for fs_premount and fs_params.fuse_fd. */
int fs_premount_open(int *ret_fd, struct err *err) MUST_USE;
/* Mounts for a user, read-only, nosuid, nodev, nobody else let in. Needs root; another process may
 * serve. Until somebody does every access waits, once the device is closed all fail. */
struct fs_premount {
	int fuse_fd;
	int dir_fd;         /* the mountpoint: a directory, O_PATH will do */
	const char *source; /* shown as the mount's device */
	uid_t uid;
	gid_t gid;
};
int fs_premount(const struct fs_premount *p, struct err *err) MUST_USE;

/* What kernel and libfuse offer, without mounting anything of ours on the user's path: a private
 * probe, or "unknown". */
struct fs_caps {
	char libfuse_version[32];
	bool has_dev_fuse;        /* can be opened */
	const char *dev_fuse_why; /* static words when not */
	bool has_fusermount;
	bool built_with_passthrough, built_with_feature_flag;
	uint64_t inotify_max_watches, inotify_max_queued;
};
void fs_probe_caps(struct fs_caps *ret);

#endif
