/* SPDX-License-Identifier: Apache-2.0 */
/* I/O engines: carry out reads asynchronously. Implementations: pool (threads with
 * open/pread/close), uring (one ring per thread), null (completes at once, reads nothing: the
 * ceiling). */
#ifndef CLAIRFS_IO_H
#define CLAIRFS_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "clairfs/base/err.h"
#include "clairfs/base/queue.h"
#include "clairfs/metrics.h"

enum io_kind {
	/* Open path below dirfd, fstat, read, fstat again when want_check, close. The file must
	 * be regular: a directory gives -EISDIR; a FIFO, socket or device gives -EIO, at once
	 * and without being read (a socket may give -ENXIO). */
	IO_READ_PATH,
	/* Read from fd, which may be of any kind that pread takes; fstat before when want_stat,
	 * after when want_check. */
	IO_READ_FD,
};

/* One read. Owned by the caller, who keeps it, the path and the buffer alive until done() is
 * called. */
struct io_job {
	struct list node; /* the engine's while queued */
	enum io_kind kind;
	int dirfd;        /* IO_READ_PATH */
	const char *path; /* IO_READ_PATH, relative */
	int fd;           /* IO_READ_FD */
	void *buf;
	uint64_t offset;
	uint32_t length; /* bytes wanted, <= INT32_MAX */
	/* IO_READ_FD: bytes from the head-th on go to tail instead of buf, unless that is NULL. */
	void *tail;
	uint32_t head;
	bool want_stat;  /* IO_READ_FD: fill st */
	bool want_check; /* fstat again after the read, into st_after */
	/* IO_READ_PATH: the path must not lead out of dirfd, by symlinks or "..": -EXDEV. */
	bool is_beneath;
	bool keep_open;  /* IO_READ_PATH: hand the descriptor over in fd; -1 there on failure */
	bool is_urgent;  /* demand read: goes before all jobs that are not */
	bool is_cold;    /* what the page cache has of these bytes is dropped first */
	/* pool only: 0, or what the filesystem takes as one request. Then nothing is read but what is
	 * asked for (the descriptor's own read-ahead is turned off when it is opened), and all of it
	 * is asked for at once instead of one request after the other. */
	uint32_t request_bytes;
	/* results */
	int status;   /* 0 or negative errno of the first call that failed */
	uint32_t got; /* bytes read; less than length only at the end of the file */
	struct stat st, st_after;
	/* CLOCK_MONOTONIC: start of the first call, end of the last read or fstat */
	uint64_t started_ns, done_ns;
	/* Called exactly once, on an engine thread, no lock held. The job may be freed or
	 * submitted again in it. It must not block for long. Called before the descriptor is
	 * closed: nobody waits for close(). */
	void (*done)(struct io_job *job);
	void *ctx;
};

struct io;
struct io_ops {
	const char *name;
	/* Queues a job; never fails, never blocks, never calls done() itself before returning
	 * except for null. */
	void (*submit)(struct io *io, struct io_job *job);
	/* Finishes every queued job, ends the threads. No submit may run beside it. */
	void (*free)(struct io *io);
};
struct io {
	const struct io_ops *ops;
};

static inline void io_submit(struct io *io, struct io_job *job)
{
	io->ops->submit(io, job);
}
void io_free(struct io *io); /* NULL allowed */
static inline const char *io_name(const struct io *io)
{
	return io->ops->name;
}

struct io_params {
	const char *name;      /* prefix of thread names, at most 8 characters */
	unsigned max_inflight; /* jobs carried out at once: threads of the pool, slots of the ring */
};

enum io_engine { IO_ENGINE_AUTO, IO_ENGINE_POOL, IO_ENGINE_URING };
extern const char *const io_engine_names[]; /* "auto" "pool" "uring", NULL */

int io_pool_new(const struct io_params *params, struct io **ret, struct err *err) MUST_USE;
/* -ENOSYS when built without liburing, else the kernel's refusal with a line that says why. */
int io_uring_new(const struct io_params *params, struct io **ret, struct err *err) MUST_USE;
int io_null_new(struct io **ret, struct err *err) MUST_USE;
/* The engine asked for; AUTO picks uring when the file behind probe_fd is on a local filesystem
 * whose reads do not block in the ring (ext4, xfs, btrfs, block devices; never FUSE, NFS,
 * Lustre, tmpfs) and a ring can be made, else the pool. *ret_why: static words for status and
 * caps. */
int io_new(enum io_engine engine, int probe_fd, const struct io_params *params, struct io **ret,
	   const char **ret_why, struct err *err) MUST_USE;

/* What this machine offers; filled by trying. Texts are static. */
struct io_caps {
	bool built_with_uring, has_uring;
	bool has_single_issuer, has_defer_taskrun, has_direct_descriptors;
	const char *uring_why_not; /* "" when it works */
};
void io_probe_caps(struct io_caps *ret);

#endif
