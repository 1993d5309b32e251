/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of one read, and the queue of reads that wait: shared by the pool and the ring.
 *
 * open() is called with O_NONBLOCK and the type is looked at before anything is read, because the
 * source is not ours: a FIFO in place of a file would block open() for ever, and reading a device
 * has side effects. The flag means nothing for a regular file except in two places, both handled
 * here. A lease that another process holds makes the open fail with EWOULDBLOCK instead of waiting
 * until the lease is given back (only regular files have leases, so waiting is safe then). And a
 * descriptor that is handed over loses the flag, since io_uring answers EAGAIN for such descriptors
 * on filesystems without non-blocking reads.
 *
 * Called by engine threads; nothing here locks. A step must never leave a descriptor open that
 * it does not return. */
#include "io_priv.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>

#include "clairfs/base/beneath.h"
#include "clairfs/base/clock.h"

void io_queue_init(struct io_queue *q)
{
	list_init(&q->urgent);
	list_init(&q->normal);
}

void io_queue_push(struct io_queue *q, struct io_job *job)
{
	assert(job->length <= INT32_MAX && job->done);
	assert(job->kind != IO_READ_PATH || job->path);
	list_push_tail(job->is_urgent ? &q->urgent : &q->normal, &job->node);
}

struct io_job *io_queue_pop(struct io_queue *q)
{
	struct list *node = list_pop_head(&q->urgent);

	if (!node)
		node = list_pop_head(&q->normal);
	return node ? container_of(node, struct io_job, node) : NULL;
}

bool io_queue_is_empty(const struct io_queue *q)
{
	return list_is_empty(&q->urgent) && list_is_empty(&q->normal);
}

int io_params_check(const struct io_params *params, struct err *err)
{
	if (params->max_inflight == 0 || params->max_inflight > IO_MAX_INFLIGHT)
		return err_set(err, -EINVAL, "requests in flight: %u is not in 1..%u",
			       params->max_inflight, IO_MAX_INFLIGHT);
	return 0;
}

void io_job_begin(struct io_job *job)
{
	job->status = 0;
	job->got = 0;
	job->done_ns = 0;
	job->started_ns = clock_now(clock_monotonic());
}

static int open_once(const struct io_job *job, int flags)
{
	int fd;

	if (job->is_beneath)
		return beneath_open(job->dirfd, job->path, flags);
	fd = openat(job->dirfd, job->path, flags);
	return fd < 0 ? -errno : fd;
}

int io_job_open(const struct io_job *job)
{
	int flags = IO_OPEN_FLAGS;

	for (;;) {
		int fd = open_once(job, flags);

		if (fd == -EWOULDBLOCK && (flags & O_NONBLOCK))
			flags &= ~O_NONBLOCK; /* a lease, see above */
		else if (fd != -EINTR)
			return fd;
	}
}

int io_job_stat(struct io_job *job, int fd)
{
	if (job->is_cold) /* advice, like all of it */
		(void)posix_fadvise(fd, (off_t)job->offset, (off_t)job->length,
				    POSIX_FADV_DONTNEED);
	if (job->kind == IO_READ_FD && !job->want_stat)
		return 0;
	if (fstat(fd, &job->st) < 0)
		return -errno;
	if (job->kind == IO_READ_FD || S_ISREG(job->st.st_mode))
		return 0;
	return S_ISDIR(job->st.st_mode) ? -EISDIR : -EIO;
}

void io_job_advise(const struct io_job *job, int fd)
{
	if (job->request_bytes && job->kind == IO_READ_PATH)
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	/* Of each of these the kernel takes as much as it would read ahead, and does not wait. */
	for (uint32_t at = 0; job->length > job->request_bytes && job->request_bytes &&
			      at < job->length;
	     at += job->request_bytes)
		(void)posix_fadvise(fd, (off_t)(job->offset + at),
				    (off_t)MIN(job->request_bytes, job->length - at),
				    POSIX_FADV_WILLNEED);
}

unsigned io_job_missing(const struct io_job *job, struct iovec iov[2])
{
	uint32_t head = job->tail ? MIN(job->head, job->length) : job->length;
	uint32_t at = MAX(job->got, head);
	unsigned n = 0;

	assert(job->got < job->length);
	if (job->got < head)
		iov[n++] = (struct iovec){ (char *)job->buf + job->got, head - job->got };
	if (at < job->length)
		iov[n++] = (struct iovec){ (char *)job->tail + (at - head), job->length - at };
	return n;
}

int io_job_read(struct io_job *job, int fd)
{
	while (job->got < job->length) {
		struct iovec iov[2];
		int n_iov = (int)io_job_missing(job, iov);
		ssize_t n = preadv(fd, iov, n_iov, (off_t)(job->offset + job->got));

		if (n == 0)
			break;
		assert(n <= (ssize_t)(job->length - job->got));
		if (n > 0)
			job->got += (uint32_t)n;
		else if (errno != EINTR)
			return -errno;
	}
	return 0;
}

int io_job_check(struct io_job *job, int fd)
{
	if (job->want_check && fstat(fd, &job->st_after) < 0)
		return -errno;
	return 0;
}

int io_job_finish(struct io_job *job, int fd, int status)
{
	bool is_path = job->kind == IO_READ_PATH;

	assert(status <= 0 && job->got <= job->length);
	job->status = status;
	if (is_path) {
		job->fd = -1;
		if (job->keep_open && status == 0) {
			/* Cannot fail for a descriptor that is open; if it did, the flag would
			 * stay: no harm here. */
			(void)fcntl(fd, F_SETFL, 0);
			job->fd = take_fd(&fd);
		}
	}
	job->done_ns = clock_now(clock_monotonic());
	job->done(job);
	return is_path ? fd : -1;
}
