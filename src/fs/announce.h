/* SPDX-License-Identifier: Apache-2.0 */
/* Orders told through the mount: what is kept of them, and what other files of fs ask for. Part of
 * fs_priv.h. */
#ifndef CLAIRFS_FS_ANNOUNCE_H
#define CLAIRFS_FS_ANNOUNCE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "clairfs/base/queue.h"
#include "clairfs/base/thr.h"
#include "clairfs/fs.h"

#include "fuse_version.h"

#define FS_NAME_MAX 255
#define FS_ASKED_MAX 64 /* orders that wait, of a lane */

/* Orders of one user. */
struct fs_asked {
	struct fs *fs;
	struct mutex mu;
	struct cond cv;
	struct list waiting; /* mu: not begun */
	uint32_t n_waiting;  /* mu */
	bool is_closed;      /* mu */
	struct thr thr;
	/* reactor: the last name that was looked up, and the file with the answer */
	char last_name[FS_NAME_MAX + 1];
	fuse_ino_t last_ino;
	pid_t last_pid;
	uint64_t last_ns, last_serial; /* serial 0: awaited */
};

struct fs_announce {
	struct fs_asked asked[FS_LANES];
	struct queue done;
	int done_fd;             /* eventfd: something is done */
	_Atomic uint64_t n_told; /* orders that were taken */
};

/* Whether this user may tell orders and steps, and see single reads: the one rule of .clairfs. */
bool fs_may_tell(uid_t uid);
#define FS_REFUSAL "only root and the user who mounted it may announce an order"
void fs_announce_init(struct fs *fs); /* done_fd is -1 when there is no descriptor left */
int fs_announce_start(struct fs *fs, struct err *err) MUST_USE;
void fs_announce_quit(struct fs *fs);
/* After all threads; requests not answered yet are answered into the dead session. */
void fs_announce_fini(struct fs *fs);
void fs_announce_lookup(fuse_req_t req, struct fs *fs, const char *name);
void fs_announce_ioctl(fuse_req_t req, struct fs *fs, const void *in, size_t in_size,
		       size_t out_size);
void fs_announce_list(fuse_req_t req, struct fs *fs, const void *in, size_t in_size,
		      size_t out_size);
/* Gives the answers that are ready (reactor). */
void fs_announce_finish(struct fs *fs);

#endif
