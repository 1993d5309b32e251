/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs for tests of I/O engines: a job that can be waited for, files with known bytes, engines
 * that must exist. */
#ifndef CLAIRFS_TESTS_IO_JOBS_H
#define CLAIRFS_TESTS_IO_JOBS_H

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "clairfs/io.h"

struct waited_job {
	struct io_job job;
	sem_t is_done;
};

static inline void waited_done(struct io_job *job)
{
	struct waited_job *w = job->ctx;

	sem_post(&w->is_done);
}

static inline void waited_wait(struct waited_job *w)
{
	while (sem_wait(&w->is_done) < 0)
		;
}

static inline void waited_init(struct waited_job *w)
{
	memset(w, 0, sizeof(*w));
	sem_init(&w->is_done, 0, 0);
	w->job.done = waited_done;
	w->job.ctx = w;
	w->job.fd = w->job.dirfd = -1;
}

/* Carries out one job and waits for it; returns its status. */
static inline int waited_run(struct io *io, struct waited_job *w)
{
	w->job.status = 77; /* must be overwritten */
	io_submit(io, &w->job);
	waited_wait(w);
	return w->job.status;
}

/* Byte `at` of every test file. */
static inline uint8_t pattern_byte(uint64_t at)
{
	return (uint8_t)((at * 0x9e3779b97f4a7c15ull) >> 56);
}

/* The engine, or NULL after saying why: when the system refuses rings that is checked to be
 * reported, and it is a pass. Any other failure to make one fails the test. */
static inline struct io *engine_or_reason(enum io_engine engine, unsigned max_inflight)
{
	struct io_params params = { .name = "test", .max_inflight = max_inflight };
	struct io_caps caps;
	struct io *io = NULL;
	struct err err = { 0 };
	int r;

	if (engine == IO_ENGINE_POOL) {
		CHECK_INT(io_pool_new(&params, &io, &err), 0);
		return io;
	}
	r = io_uring_new(&params, &io, &err);
	if (r == 0)
		return io;
	io_probe_caps(&caps);
	printf("# io_uring refused: %s\n", err.msg);
	CHECK(!caps.has_uring && caps.uring_why_not[0]);
	CHECK(r == -EPERM || r == -ENOSYS);
	CHECK_INT(err.code, r);
	return NULL;
}

/* fn(engine) as two tests, pool_fn and uring_fn, and their rows of the table. */
/* clang-format off */
#define IO_BOTH(fn) \
	static void pool_##fn(void) { fn(IO_ENGINE_POOL); } \
	static void uring_##fn(void) { fn(IO_ENGINE_URING); }
#define IO_ROWS(fn) { "pool_" #fn, pool_##fn }, { "uring_" #fn, uring_##fn }
/* clang-format on */

#endif
