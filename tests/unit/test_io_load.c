/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I/O engines under load: order of urgent jobs, many threads, jobs submitted again from done(),
 * freeing with jobs queued, how many run at once. Every behaviour runs on the pool and on the
 * ring. Order is forced with a gate: a job whose done() waits holds a one-job engine still.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>

#include "io_jobs.h"

#define FILE_SIZE 5000

static int load_dirfd(void)
{
	uint8_t bytes[FILE_SIZE];
	AUTO_FREE char *path = NULL;
	int fd;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = pattern_byte(i);
	path = check_write_file("load", bytes, sizeof(bytes));
	fd = open(check_tmpdir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

static unsigned count_entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

struct gate {
	struct waited_job w;
	sem_t is_reached, may_go;
	uint8_t byte;
};

static void gate_done(struct io_job *job)
{
	struct gate *g = job->ctx;

	sem_post(&g->is_reached);
	while (sem_wait(&g->may_go) < 0)
		;
	sem_post(&g->w.is_done);
}

/* Returns once the engine stands still in done(). */
static void gate_shut(struct gate *g, struct io *io, int dirfd)
{
	waited_init(&g->w);
	sem_init(&g->is_reached, 0, 0);
	sem_init(&g->may_go, 0, 0);
	g->w.job.dirfd = dirfd;
	g->w.job.path = "load";
	g->w.job.buf = &g->byte;
	g->w.job.length = 1;
	g->w.job.done = gate_done;
	g->w.job.ctx = g;
	io_submit(io, &g->w.job);
	while (sem_wait(&g->is_reached) < 0)
		;
}

struct order_log {
	int numbers[64];
	_Atomic unsigned n;
};

struct numbered_job {
	struct waited_job w;
	struct order_log *log;
	int number;
	uint8_t byte;
};

static void numbered_done(struct io_job *job)
{
	struct numbered_job *nj = container_of(job, struct numbered_job, w.job);

	nj->log->numbers[atomic_fetch_add(&nj->log->n, 1)] = nj->number;
	waited_done(job);
}

/* With one job at a time: 8 that nobody waits for are queued, then 4 urgent ones, which still go
 * first. */
static void urgent_goes_first(enum io_engine engine)
{
	static const int want[] = { 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7 };
	struct numbered_job jobs[12];
	struct order_log log = { .n = 0 };
	struct io *io = engine_or_reason(engine, 1);
	AUTO_FD int dirfd = load_dirfd();
	struct gate gate;

	if (!io)
		return;
	gate_shut(&gate, io, dirfd);
	for (int i = 0; i < 12; i++) {
		waited_init(&jobs[i].w);
		jobs[i].log = &log;
		jobs[i].number = i;
		jobs[i].w.job.dirfd = dirfd;
		jobs[i].w.job.path = "load";
		jobs[i].w.job.buf = &jobs[i].byte;
		jobs[i].w.job.length = 1;
		jobs[i].w.job.done = numbered_done;
		jobs[i].w.job.is_urgent = i >= 8;
		io_submit(io, &jobs[i].w.job);
	}
	sem_post(&gate.may_go);
	for (int i = 0; i < 12; i++)
		waited_wait(&jobs[i].w);
	io_free(io);
	for (int i = 0; i < 12; i++)
		CHECK_INT(log.numbers[i], want[i]);
}

#define CROWD_THREADS 4
#define CROWD_JOBS 1500
#define CROWD_WINDOW 50

struct crowd {
	struct io *io;
	pthread_t thread;
	uint64_t rng;
	int dirfd, fd;
	unsigned n_bad;
};

/* Keeps CROWD_WINDOW jobs in flight and checks the bytes of each. */
static void *crowd_run(void *arg)
{
	struct crowd *c = arg;
	struct waited_job *jobs = calloc(CROWD_WINDOW, sizeof(*jobs));
	uint8_t *bufs = malloc(CROWD_WINDOW * FILE_SIZE);

	for (unsigned i = 0; i < CROWD_JOBS + CROWD_WINDOW; i++) {
		struct waited_job *w = &jobs[i % CROWD_WINDOW];

		if (i >= CROWD_WINDOW) {
			const uint8_t *bytes = w->job.buf;

			waited_wait(w);
			c->n_bad += w->job.status != 0;
			c->n_bad += w->job.got != MIN(w->job.length, FILE_SIZE - w->job.offset);
			for (unsigned k = 0; k < w->job.got; k++)
				c->n_bad += bytes[k] != pattern_byte(w->job.offset + k);
		}
		if (i >= CROWD_JOBS)
			continue;
		waited_init(w);
		w->job.kind = check_rand_below(&c->rng, 2) ? IO_READ_PATH : IO_READ_FD;
		w->job.dirfd = c->dirfd;
		w->job.path = "load";
		w->job.fd = c->fd;
		w->job.offset = check_rand_below(&c->rng, FILE_SIZE);
		w->job.length = (uint32_t)check_rand_below(&c->rng, FILE_SIZE);
		w->job.is_urgent = check_rand_below(&c->rng, 4) == 0;
		w->job.want_check = check_rand_below(&c->rng, 2);
		w->job.buf = bufs + (i % CROWD_WINDOW) * FILE_SIZE;
		io_submit(c->io, &w->job);
	}
	free(bufs);
	free(jobs);
	return NULL;
}

static void many_threads_submit(enum io_engine engine)
{
	struct crowd crowds[CROWD_THREADS];
	unsigned n_fds = count_entries("/proc/self/fd");
	struct io *io = engine_or_reason(engine, 7);
	int dirfd = load_dirfd(), fd = openat(dirfd, "load", O_RDONLY | O_CLOEXEC);

	for (unsigned i = 0; io && i < CROWD_THREADS; i++) {
		crowds[i] = (struct crowd){
			.io = io, .rng = check_seed() + i, .dirfd = dirfd, .fd = fd
		};
		CHECK_INT(pthread_create(&crowds[i].thread, NULL, crowd_run, &crowds[i]), 0);
	}
	for (unsigned i = 0; io && i < CROWD_THREADS; i++)
		CHECK_INT(pthread_join(crowds[i].thread, NULL), 0);
	io_free(io);
	for (unsigned i = 0; io && i < CROWD_THREADS; i++)
		CHECK_INT(crowds[i].n_bad, 0);
	close(fd);
	close(dirfd);
	CHECK_INT(count_entries("/proc/self/fd"), n_fds); /* every close was carried out */
}

struct again_job {
	struct waited_job w;
	struct io *io;
	unsigned left, bad;
	uint8_t byte;
};

static void again_done(struct io_job *job)
{
	struct again_job *a = container_of(job, struct again_job, w.job);

	a->bad += job->status != 0 || job->got != job->length;
	if (a->left-- > 0)
		io_submit(a->io, job);
	else
		waited_done(job);
}

static void again_init(struct again_job *a, struct io *io, int dirfd, unsigned times,
		       uint32_t length)
{
	waited_init(&a->w);
	a->io = io;
	a->left = times;
	a->bad = 0;
	a->w.job.dirfd = dirfd;
	a->w.job.path = "load";
	a->w.job.buf = &a->byte;
	a->w.job.length = length;
	a->w.job.done = again_done;
}

/* Also with nothing to read, where a job ends without any completion of a read. */
static void done_may_submit_again(enum io_engine engine)
{
	struct io *io = engine_or_reason(engine, 2);
	AUTO_FD int dirfd = load_dirfd();
	AUTO_FD int fd = openat(dirfd, "load", O_RDONLY | O_CLOEXEC);
	struct again_job jobs[5];

	if (!io)
		return;
	for (unsigned i = 0; i < ARRAY_LEN(jobs); i++) {
		again_init(&jobs[i], io, dirfd, 500, i % 2);
		jobs[i].w.job.kind = i < 3 ? IO_READ_PATH : IO_READ_FD;
		jobs[i].w.job.fd = fd;
		io_submit(io, &jobs[i].w.job);
	}
	for (unsigned i = 0; i < ARRAY_LEN(jobs); i++) {
		waited_wait(&jobs[i].w);
		CHECK_INT(jobs[i].bad, 0);
	}
	io_free(io);
}

#define QUEUED 300

/* io_free returns after the done() of every job, those included that done() submits meanwhile. */
static void free_finishes_queued_jobs(enum io_engine engine)
{
	AUTO_FREE struct again_job *jobs = calloc(QUEUED, sizeof(*jobs));
	struct io *io = engine_or_reason(engine, 1);
	AUTO_FD int dirfd = load_dirfd();
	AUTO_FD int fd = openat(dirfd, "load", O_RDONLY | O_CLOEXEC);
	struct gate gate;
	int done;

	if (!io)
		return;
	gate_shut(&gate, io, dirfd);
	for (unsigned i = 0; i < QUEUED; i++) {
		again_init(&jobs[i], io, dirfd, 2, i % 3 > 0);
		jobs[i].w.job.kind = i % 2 ? IO_READ_PATH : IO_READ_FD;
		jobs[i].w.job.fd = fd;
		io_submit(io, &jobs[i].w.job);
	}
	sem_post(&gate.may_go);
	io_free(io);
	for (unsigned i = 0; i < QUEUED; i++) {
		sem_getvalue(&jobs[i].w.is_done, &done);
		CHECK_INT(done, 1);
		CHECK_INT(jobs[i].bad, 0);
	}
}

static void free_at_once(enum io_engine engine)
{
	struct again_job job;
	AUTO_FD int dirfd = load_dirfd();

	for (unsigned i = 0; i < 200; i++) { /* each time the threads are somewhere else */
		struct io *io = engine_or_reason(engine, 3);
		int done;

		if (!io)
			return;
		again_init(&job, io, dirfd, i % 3, 1);
		if (i % 2)
			io_submit(io, &job.w.job);
		io_free(io);
		sem_getvalue(&job.w.is_done, &done);
		CHECK_INT(done, i % 2);
	}
}

struct meeting {
	struct waited_job w;
	pthread_barrier_t *barrier;
	uint8_t byte;
};

static void meeting_done(struct io_job *job)
{
	struct meeting *m = container_of(job, struct meeting, w.job);

	pthread_barrier_wait(m->barrier);
	waited_done(job);
}

/* Four jobs that wait for each other end only if four are carried out at once. */
static void pool_runs_max_inflight_at_once(void)
{
	struct io *io = engine_or_reason(IO_ENGINE_POOL, 4);
	AUTO_FD int dirfd = load_dirfd();
	struct meeting jobs[8];
	pthread_barrier_t barrier;

	pthread_barrier_init(&barrier, NULL, 4);
	for (unsigned i = 0; i < ARRAY_LEN(jobs); i++) {
		waited_init(&jobs[i].w);
		jobs[i].barrier = &barrier;
		jobs[i].w.job.dirfd = dirfd;
		jobs[i].w.job.path = "load";
		jobs[i].w.job.buf = &jobs[i].byte;
		jobs[i].w.job.length = 1;
		jobs[i].w.job.done = meeting_done;
		io_submit(io, &jobs[i].w.job);
	}
	for (unsigned i = 0; i < ARRAY_LEN(jobs); i++)
		waited_wait(&jobs[i].w);
	io_free(io);
}

/* Threads of this process by the start of their name; a sanitizer has threads of its own. */
static unsigned count_threads(const char *prefix)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;
	unsigned n = 0;

	while ((e = readdir(dir))) {
		char path[sizeof(e->d_name) + 8], name[32] = "";
		AUTO_FD int fd = -1;

		snprintf(path, sizeof(path), "%s/comm", e->d_name);
		fd = openat(dirfd(dir), path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0 && read(fd, name, sizeof(name) - 1) > 0)
			n += strncmp(name, prefix, strlen(prefix)) == 0;
	}
	closedir(dir);
	return n;
}

/* However many jobs are allowed at once, one at a time needs one thread. */
static void has_threads_for_its_work_only(enum io_engine engine)
{
	struct io_params params = { .name = engine == IO_ENGINE_POOL ? "onepool" : "onering",
				    .max_inflight = 64 };
	struct io *io = engine_or_reason(engine, 1);
	AUTO_FD int dirfd = load_dirfd();
	struct again_job job;

	if (!io)
		return;
	io_free(io);
	CHECK_INT(engine == IO_ENGINE_POOL ? io_pool_new(&params, &io, NULL)
					   : io_uring_new(&params, &io, NULL),
		  0);
	again_init(&job, io, dirfd, 0, 1);
	CHECK_INT(waited_run(io, &job.w), 0);
	CHECK_INT(count_threads(params.name), 1);
	io_free(io);
}

struct submitter {
	struct io *io;
	struct waited_job w;
};

static void *submit_one(void *arg)
{
	struct submitter *s = arg;

	io_submit(s->io, &s->w.job);
	return NULL;
}

/* Whoever waited for the job may free the engine, though io_submit() has not returned yet in the
 * thread that called it. A sanitizer sees it touch the engine afterwards. */
static void free_while_submit_returns(enum io_engine engine)
{
	int dirfd = load_dirfd();

	for (unsigned i = 0; i < 200; i++) {
		struct submitter s = { .io = engine_or_reason(engine, 2) };
		struct thr thr = { 0 };
		struct err err;
		uint8_t byte;

		if (!s.io)
			break;
		waited_init(&s.w);
		s.w.job.dirfd = dirfd;
		s.w.job.path = "load";
		s.w.job.buf = &byte;
		s.w.job.length = 1;
		CHECK_INT(thr_start(&thr, "submitter", submit_one, &s, &err), 0);
		waited_wait(&s.w);
		CHECK_INT(s.w.job.status, 0);
		io_free(s.io);
		thr_join(&thr);
	}
	close(dirfd);
}

static void null_engine_is_the_ceiling(void)
{
	struct io *io = NULL;
	struct again_job job;
	struct err err;
	int done;

	CHECK_INT(io_null_new(&io, &err), 0);
	CHECK_STR(io_name(io), "null");
	again_init(&job, io, -1, 1000000, 1); /* nested calls would need more stack than there is */
	job.byte = 0xee;
	io_submit(io, &job.w.job);
	sem_getvalue(&job.w.is_done, &done); /* done before submit returns */
	CHECK_INT(done, 1);
	CHECK_INT(job.bad, 0);
	CHECK_INT(job.byte, 0xee);
	CHECK_INT(job.w.job.st.st_size, 1);
	CHECK(S_ISREG(job.w.job.st.st_mode));
	io_free(io);
}

IO_BOTH(urgent_goes_first)
IO_BOTH(many_threads_submit)
IO_BOTH(done_may_submit_again)
IO_BOTH(free_finishes_queued_jobs)
IO_BOTH(free_at_once)
IO_BOTH(free_while_submit_returns)
IO_BOTH(has_threads_for_its_work_only)

static const struct check_test tests[] = {
	IO_ROWS(has_threads_for_its_work_only),
	IO_ROWS(urgent_goes_first),
	IO_ROWS(many_threads_submit),
	IO_ROWS(done_may_submit_again),
	IO_ROWS(free_finishes_queued_jobs),
	IO_ROWS(free_at_once),
	IO_ROWS(free_while_submit_returns),
	{ "pool_runs_max_inflight_at_once", pool_runs_max_inflight_at_once },
	{ "null_engine_is_the_ceiling", null_engine_is_the_ceiling },
};
CHECK_MAIN(tests)
