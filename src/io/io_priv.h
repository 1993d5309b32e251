/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the io module: what the engines share. A job is either queued (its node is in a
 * struct io_queue), carried out (one thread or ring slot has it), or the caller's again (from
 * the call of done() on). */
#ifndef CLAIRFS_IO_PRIV_H
#define CLAIRFS_IO_PRIV_H

#include <sys/uio.h>

#include "clairfs/io.h"

#define IO_THREAD_NAME_SIZE 24 /* ps shows 15 of them */
/* More than any storage can use; keeps ring and thread tables of sane size. */
#define IO_MAX_INFLIGHT 4096
/* O_NONBLOCK: a FIFO or a device that took the place of the file must not hold the thread in
 * open(). */
#define IO_OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)

/* Jobs that wait: urgent ones first, first come first served among equals. Belongs to the
 * engine's mutex. */
struct io_queue {
	struct list urgent, normal;
};

void io_queue_init(struct io_queue *q);
void io_queue_push(struct io_queue *q, struct io_job *job);
/* NULL when empty. */
struct io_job *io_queue_pop(struct io_queue *q);
bool io_queue_is_empty(const struct io_queue *q);

int io_params_check(const struct io_params *params, struct err *err) MUST_USE;

/* Where the bytes that are missing still belong: parts of iov, 1 or 2 while got < length. */
unsigned io_job_missing(const struct io_job *job, struct iovec iov[2]);
/* Steps of a job. Each returns 0 (or a descriptor) or a negative errno; none touches
 * job->status. */
void io_job_begin(struct io_job *job);
int io_job_open(const struct io_job *job) MUST_USE;
/* Drops cached pages if the job is cold. Fills st where the job wants it; refuses what is no
 * regular file for IO_READ_PATH. */
int io_job_stat(struct io_job *job, int fd) MUST_USE;
/* What the kernel should do with reads through it: see request_bytes. Advice, it cannot fail. */
void io_job_advise(const struct io_job *job, int fd);
/* Reads from got on until length or the end of the file. */
int io_job_read(struct io_job *job, int fd) MUST_USE;
int io_job_check(struct io_job *job, int fd) MUST_USE;
/* Sets the results, calls done() and returns the descriptor that is to be closed now, or -1. The
 * job is gone. */
int io_job_finish(struct io_job *job, int fd, int status);

#endif
