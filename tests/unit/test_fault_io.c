/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of faults itself: tests of the cache rely on it to hit exactly the jobs they name,
 * and to let everything else through unharmed. Runs on the null engine where only counting
 * matters and on the pool where bytes do.
 */
#include "fault_io.h"

#include <fcntl.h>

#include "clairfs/base/clock.h"
#include "io_jobs.h"

static struct io *on_null(void)
{
	struct io *below = NULL;

	CHECK_INT(io_null_new(&below, NULL), 0);
	return fault_io_new(below);
}

static int run_one(struct io *io)
{
	struct waited_job w;

	waited_init(&w);
	w.job.length = 100;
	return waited_run(io, &w);
}

static void fails_the_named_jobs_only(void)
{
	struct io *io = on_null();

	CHECK_INT(run_one(io), 0);
	fault_io_set(io, &(struct fault_io_rule){ FAULT_IO_FAIL, .countdown = 2, .repeat = 3,
						  .status = -ESTALE });
	for (int i = 0; i < 8; i++)
		CHECK_INT(run_one(io), i >= 2 && i < 5 ? -ESTALE : 0);
	CHECK_INT(fault_io_fired(io), 3);
	fault_io_set(io, &(struct fault_io_rule){ FAULT_IO_FAIL, .countdown = 1, .repeat = 0,
						  .status = -EIO });
	for (int i = 0; i < 8; i++)
		CHECK_INT(run_one(io), i >= 1 ? -EIO : 0);
	CHECK_INT(fault_io_fired(io), 7);
	fault_io_set(io, NULL);
	CHECK_INT(run_one(io), 0);
	CHECK_INT(fault_io_fired(io), 0);
	CHECK_INT(fault_io_seen(io), 18);
	io_free(io);
}

static void fails_without_a_descriptor(void)
{
	struct io *io = on_null();
	struct waited_job w;

	waited_init(&w);
	w.job.keep_open = true;
	w.job.fd = 7;
	w.job.got = 3;
	fault_io_set(io, &(struct fault_io_rule){ FAULT_IO_FAIL, .status = -EIO });
	CHECK_INT(waited_run(io, &w), -EIO);
	CHECK_INT(w.job.fd, -1);
	CHECK_INT(w.job.got, 0);
	CHECK(w.job.started_ns > 0 && w.job.done_ns >= w.job.started_ns);
	io_free(io);
}

static void shortens_like_an_early_end(void)
{
	static const char bytes[] = "0123456789";
	AUTO_FREE char *path = check_write_file("short", bytes, 10);
	struct io_params params = { .name = "test", .max_inflight = 2 };
	struct io *below = NULL, *io;
	struct waited_job w;
	char buf[11] = "..........";

	CHECK_INT(io_pool_new(&params, &below, NULL), 0);
	io = fault_io_new(below);
	waited_init(&w);
	w.job.dirfd = AT_FDCWD;
	w.job.path = path;
	w.job.buf = buf;
	w.job.length = 10;
	w.job.keep_open = true;
	fault_io_set(io, &(struct fault_io_rule){ FAULT_IO_SHORTEN, .repeat = 1, .length = 4 });
	CHECK_INT(waited_run(io, &w), 0);
	CHECK_INT(w.job.got, 4);
	CHECK_INT(w.job.length, 10);
	CHECK_STR(buf, "0123......");
	CHECK_INT(w.job.st.st_size, 10);
	CHECK(w.job.fd >= 0);
	close(w.job.fd);
	w.job.keep_open = false;
	CHECK_INT(waited_run(io, &w), 0);
	CHECK_STR(buf, bytes);
	io_free(io);
}

static void delays_by_the_given_time(void)
{
	const uint64_t delay = 30 * NS_PER_MS;
	struct io *io = on_null();
	struct waited_job late, early;
	uint64_t start = clock_now(clock_monotonic());

	waited_init(&late);
	waited_init(&early);
	fault_io_set(io, &(struct fault_io_rule){ FAULT_IO_DELAY, .repeat = 1, .delay_ns = delay });
	io_submit(io, &late.job);
	CHECK_INT(waited_run(io, &early), 0); /* not held up by the one before it */
	waited_wait(&late);
	CHECK(late.job.started_ns >= start + delay);
	CHECK_INT(late.job.status, 0);
	io_free(io);
}

static void holds_jobs_while_paused(void)
{
	struct io *io = on_null();
	struct waited_job jobs[5];
	int done;

	fault_io_set(io, &(struct fault_io_rule){ FAULT_IO_FAIL, .countdown = 3, .repeat = 1,
						  .status = -EIO });
	fault_io_pause(io);
	for (int i = 0; i < 5; i++) {
		waited_init(&jobs[i]);
		io_submit(io, &jobs[i].job);
	}
	fault_io_wait_held(io, 5);
	for (int i = 0; i < 5; i++) {
		sem_getvalue(&jobs[i].is_done, &done);
		CHECK_INT(done, 0);
	}
	CHECK_INT(fault_io_fired(io), 0);
	fault_io_resume(io);
	for (int i = 0; i < 5; i++) {
		waited_wait(&jobs[i]);
		/* The rule counts in the order of submission. */
		CHECK_INT(jobs[i].job.status, i == 3 ? -EIO : 0);
	}
	CHECK_INT(run_one(io), 0);
	io_free(io);
}

static void free_lets_everything_through(void)
{
	struct io *io = on_null();
	struct waited_job late, held;
	int done;

	waited_init(&late);
	waited_init(&held);
	fault_io_set(io, &(struct fault_io_rule){ FAULT_IO_DELAY, .delay_ns = 3600 * NS_PER_S });
	io_submit(io, &late.job);
	fault_io_pause(io);
	io_submit(io, &held.job);
	io_free(io);
	sem_getvalue(&late.is_done, &done);
	CHECK_INT(done, 1);
	sem_getvalue(&held.is_done, &done);
	CHECK_INT(done, 1);
}

static const struct check_test tests[] = {
	{ "fails_the_named_jobs_only", fails_the_named_jobs_only },
	{ "fails_without_a_descriptor", fails_without_a_descriptor },
	{ "shortens_like_an_early_end", shortens_like_an_early_end },
	{ "delays_by_the_given_time", delays_by_the_given_time },
	{ "holds_jobs_while_paused", holds_jobs_while_paused },
	{ "free_lets_everything_through", free_lets_everything_through },
};
CHECK_MAIN(tests)
