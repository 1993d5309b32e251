/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of fs share: the mounted filesystem, and which thread owns which part of it.
 *
 *   reactor   answers the kernel; owns inodes and snapshots; never blocks
 *   watcher   inotify: sees opens without being in the reader's way; owns `watch`
 *   warm      makes inodes known ahead, then ends
 *   announce  takes orders told through the mount; a thread for our user, one for root
 *   settle    ask the kernel to fetch attributes of changed files (four)
 *   statfs    asks the source, may be left behind there; sees nothing of struct fs
 *   stagers   (threads of the cache) call the stage operations
 *   others    complete reads: take from and give to the pool
 *
 * Order of locks: there is none to keep, no two are ever held together. */
#ifndef CLAIRFS_FS_PRIV_H
#define CLAIRFS_FS_PRIV_H

#include <stdatomic.h>
#include <sys/statvfs.h>

#include "clairfs/base/bitmap.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/queue.h"
#include "clairfs/base/thr.h"
#include "clairfs/fs.h"

#include "announce.h"
#include "fuse_version.h"
#include "settle_priv.h"
#include "watch_priv.h"

#define FS_DAY_S 86400.0
#define FS_VDIR_NAME ".clairfs"
#define FS_ADIR_NAME "announce"
#define FS_USER_TEXTS 64 /* kept of one user, see fs.h */
#define FS_USER_TEXT_BYTES ((size_t)8 << 20)
#define FS_WAITERS_MAX 64   /* for one text */
#define FS_OTHERS_TEXTS 256 /* of all but root and our own user */
#define FS_OTHERS_TEXT_BYTES ((size_t)32 << 20)
#define FS_READS_KEPT                                                                              \
	256 /* structs for READs that stay allocated: the kernel has 128 in the background */
#define FS_INODE_BYTES_ESTIMATE 1024 /* FUSE inode and dentry, without page cache */

/* Inode numbers: 1 is the root, entry e has e + 2 (below 2^32), then what is not of the dataset. To
 * the kernel an entry that was renewed is another inode: the renewal's number stands above bit 40.
 * What stat() shows stays e + 2. */
#define FS_INO_ROOT 1ull
#define FS_INO_RENEWAL_SHIFT 40
#define FS_INO_VDIR (1ull << 32)
#define FS_INO_VFILE_SHOWN (FS_INO_VDIR + 1) /* + index: only as d_ino of readdir */
#define FS_INO_ADIR (FS_INO_VDIR + 4096)     /* .clairfs/announce */
#define FS_INO_REFUSED (FS_INO_VDIR + 4097)  /* what .clairfs/announce says to others */
#define FS_INO_SNAPSHOT (1ull << 33)         /* + a serial number that is never used again */

struct fs_snapshot;
struct fs_read;
struct fs_statfs;

struct fs_reads {
	struct mutex mu;
	struct list idle;      /* mu */
	struct list out;       /* mu: with the cache, or being answered */
	struct fs_read *first; /* FS_READS_KEPT of them in one piece */
	bool is_refusing;      /* mu */
};

/* The stage operations that are going on. */
struct fs_stage {
	struct mutex mu;
	struct cond cv;
	uint32_t n_running; /* mu */
	bool is_closed;     /* mu */
	/* Entries that were looked up for a push and not opened since: a bit each, and how many. */
	_Atomic uint32_t *is_ahead;
	_Atomic uint64_t n_ahead;
};

struct fs {
	struct fs_params params; /* mountpoint and source point to the copies below */
	char *mountpoint, *source;
	struct fuse_session *se;
	bool is_mounted;    /* thread of fs_new .. fs_free */
	uint64_t mount_dev; /* st_dev behind the mountpoint once it answers, 0 before */
	int wait_fd;        /* eventfd: fs_wait returns */
	int quit_fd;        /* eventfd: the threads end */
	_Atomic bool is_quitting, is_stopping;

	struct mutex mu;
	struct cond cv;
	bool is_initialised; /* mu: INIT was answered */
	bool is_ended;       /* mu: the reactor is gone */
	bool is_watching;    /* mu: watches are in place (or cannot be had) */
	bool is_warm_begun;  /* mu: the first round of the warm thread is over */

	struct thr reactor, watcher, warm_thr;

	/* reactor */
	/* Per entry: references the kernel holds to its inode of now (24 bits), and which that is
	 * (the low 8 bits of the renewal, above). */
	uint32_t *nlookup;
	struct entry_id shadowed; /* a top entry of the source named like our own directory, or
				     ENTRY_NONE */
	struct list snapshots;    /* the newest first */
	struct fs_rendered *rendered; /* vfile.c: what others share */
	uint64_t next_snapshot;
	char *dir_buf;                    /* answers of readdir */
	bool has_no_open, has_no_opendir; /* the kernel understands ENOSYS there */

	_Atomic bool is_open_refused;
	_Atomic uint64_t inodes_known;
	_Atomic uint32_t proto_major, proto_minor;

	struct fs_reads reads;
	struct fs_stage stage;
	struct fs_watch watch;
	struct fs_warm warm;
	struct fs_settle settle;
	struct fs_announce announce;
	struct fs_statfs *statfs; /* outlives us when the source hangs */
};

static inline struct fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* inode.c (reactor) */
/* The number that stat() shows, and the kernel's of a renewal. */
fuse_ino_t fs_ino_of(struct entry_id entry);
fuse_ino_t fs_ino_renewed(struct entry_id entry, uint32_t renewal);
/* False for numbers that are no entry of the dataset. */
bool fs_entry_of(const struct fs *fs, fuse_ino_t ino, struct entry_id *ret);
static inline uint32_t fs_renewal_of(fuse_ino_t ino)
{
	return (uint32_t)(ino >> FS_INO_RENEWAL_SHIFT) & 0xffff;
}
void fs_stat_entry(const struct fs *fs, struct entry_id entry, struct stat *ret);
/* What LOOKUP and READDIRPLUS tell of an entry: number, attributes, and for how long they hold. */
void fs_entry_param(const struct fs *fs, struct entry_id entry, struct fuse_entry_param *ret);
void fs_inode_known(struct fs *fs, struct entry_id entry, fuse_ino_t ino);
void fs_inode_forgotten(struct fs *fs, fuse_ino_t ino, uint64_t count);
/* True when a path through this directory does not lead to the dataset because our own directory
 * has its name. Any thread. */
bool fs_is_shadowed(const struct fs *fs, struct entry_id dir);

/* ops_meta.c, ops_dir.c, ops_read.c (reactor) */
void fs_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count);
void fs_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void fs_op_statfs(fuse_req_t req, fuse_ino_t ino);
void fs_op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
		 unsigned flags, const void *in, size_t in_size, size_t out_size);
void fs_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void fs_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void fs_op_access(fuse_req_t req, fuse_ino_t ino, int mask);
void fs_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void fs_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void fs_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		   struct fuse_file_info *fi);
void fs_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi);
int fs_dir_init(struct fs *fs) MUST_USE;
void fs_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void fs_reads_init(struct fs *fs);
int fs_reads_fill(struct fs *fs) MUST_USE;
void fs_reads_fini(struct fs *fs);
/* Answers every READ of a file with ENOTCONN, those that wait for the cache and those that come.
 * The cache may complete them later, to nobody. Thread of fs_unmount. */
void fs_reads_refuse(struct fs *fs);

/* vfile.c (reactor) */
bool fs_is_virtual(fuse_ino_t ino);
void fs_vfile_lookup(fuse_req_t req, struct fs *fs, fuse_ino_t parent, const char *name);
void fs_vfile_getattr(fuse_req_t req, struct fs *fs, fuse_ino_t ino);
void fs_vfile_read(fuse_req_t req, struct fs *fs, fuse_ino_t ino, size_t size, off_t off);
void fs_vfile_forget(struct fs *fs, fuse_ino_t ino, uint64_t count);
/* Answers a LOOKUP with a file that has FS_REFUSAL, of which there is one for all: it takes no
 * memory. */
void fs_vfile_reply_refused(fuse_req_t req, struct fs *fs);
/* Answers a LOOKUP with a file whose text comes later: *is_gone is raised when all who waited for
 * it were interrupted, and must live until fs_vfile_fill. The inode, or 0: it was not taken. */
fuse_ino_t fs_vfile_reply_awaited(fuse_req_t req, struct fs *fs, _Atomic bool *is_gone);
/* Answers with the same file once more; false: there is none any more, and no answer. */
bool fs_vfile_reply_again(fuse_req_t req, struct fs *fs, fuse_ino_t ino);
/* The text has come; it is used up. */
void fs_vfile_fill(struct fs *fs, fuse_ino_t ino, struct buf_writer *take_text);
/* Who still waits gets ENOTCONN, after the reactor has ended. */
void fs_vfile_end_waiting(struct fs *fs);
void fs_vfiles_fini(struct fs *fs);

/* reactor.c */
extern const struct fuse_lowlevel_ops fs_ops;
void *fs_reactor_main(void *fs);

/* caps.c */
/* Wants or unwants a capability; false when the kernel does not have it. */
bool fs_caps_want(struct fuse_conn_info *conn, uint64_t cap, bool is_wanted);
bool fs_caps_has(const struct fuse_conn_info *conn, uint64_t cap);
/* Path of fusermount3, heap, or NULL. */
char *fs_caps_fusermount(void);
/* inotify watches that this user may have; UINT64_MAX: not known. */
uint64_t fs_caps_max_watches(void);

/* mount.c */
int fs_mount(struct fs *fs, struct err *err) MUST_USE;
/* Once the mount answers: remembers which device it is. */
int fs_mount_identify(struct fs *fs, struct err *err) MUST_USE;
/* Takes the mount away, and has the kernel end all requests where we may ask for that. Whoever has
 * files of it open can still make requests. */
void fs_mount_detach(struct fs *fs);
/* Puts another file under the number of the device. The connection ends with the last reference to
 * the device, so nothing may poll it or be stuck in a write to it; threads may still write answers.
 */
void fs_mount_cut(struct fs *fs);
/* "<mountpoint>/<path of the entry>". -ENAMETOOLONG. Any thread. */
int fs_path(const struct fs *fs, struct entry_id entry, char *out, size_t size) MUST_USE;

/* notify.c */
void fs_stage_init(struct fs *fs);
int fs_stage_fill(struct fs *fs) MUST_USE;
/* The entry was opened or forgotten: its inode is not ahead of the reader any more. Any thread. */
void fs_stage_caught_up(struct fs *fs, struct entry_id entry);
void fs_stage_fini(struct fs *fs);
/* New stage operations fail from now on. */
void fs_stage_close(struct fs *fs);
/* Waits for those that had begun; the reactor must run. */
void fs_stage_wait(struct fs *fs);

/* statfs.c */
int fs_statfs_init(struct fs *fs) MUST_USE;
/* Waits for the first answer of the source, but not long. */
void fs_statfs_wait_first(struct fs *fs);
void fs_statfs_fini(struct fs *fs);
/* What the source said last; asks for newer numbers when they are old. Never blocks. */
void fs_statfs_get(struct fs *fs, struct statvfs *ret);

#endif
