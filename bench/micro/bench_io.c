/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a read through each I/O engine costs: open, fstat, read, close of small files that are in
 * the page cache, with a fixed number of jobs in flight. Prints JSON lines, two for each
 * combination: CPU time of the whole process per job, and jobs per second.
 *
 *	bench_io [--seconds S] [DIRECTORY...]     default: the directory for temporary files,
 * /dev/shm
 *
 * Warm files on purpose: the time of a device would hide the engines. What distorts it: other work
 * on the machine (jobs per second much more than CPU), frequency scaling, and on a virtual machine
 * the cost of wake-ups across CPUs. The null engine shows what the bench itself costs.
 */
#include <fcntl.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "clairfs/base/clock.h"
#include "clairfs/io.h"

#define FILES 256
#define MAX_INFLIGHT 64

struct bench {
	struct io *io;
	const char *dir;
	int dirfd;
	uint32_t size;
	unsigned inflight;
	uint64_t end_ns;
	_Atomic uint64_t n_done, n_bad;
	_Atomic uint32_t next;
	sem_t is_over;
	char names[FILES][16];
};

struct bench_job {
	struct io_job job;
	struct bench *bench;
};

static void submit_next(struct bench_job *bj)
{
	struct bench *b = bj->bench;

	bj->job.path = b->names[atomic_fetch_add(&b->next, 1) % FILES];
	io_submit(b->io, &bj->job);
}

static void bench_done(struct io_job *job)
{
	struct bench_job *bj = container_of(job, struct bench_job, job);
	struct bench *b = bj->bench;

	atomic_fetch_add(&b->n_done, 1);
	if (job->status != 0 || job->got != b->size)
		atomic_fetch_add(&b->n_bad, 1);
	if (job->done_ns < b->end_ns)
		submit_next(bj);
	else
		sem_post(&b->is_over);
}

static uint64_t cpu_ns(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (uint64_t)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * NS_PER_S +
	       (uint64_t)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1000;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void make_files(struct bench *b)
{
	AUTO_FREE char *bytes = calloc(1, b->size);

	for (unsigned i = 0; i < FILES; i++) {
		AUTO_FD int fd = -1;

		snprintf(b->names[i], sizeof(b->names[i]), "%u", i);
		fd = openat(b->dirfd, b->names[i], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (fd < 0 || !bytes || write(fd, bytes, b->size) != (ssize_t)b->size)
			die(b->dir);
	}
}

static void remove_files(struct bench *b, const char *path)
{
	for (unsigned i = 0; i < FILES; i++)
		unlinkat(b->dirfd, b->names[i], 0);
	close(b->dirfd);
	rmdir(path);
}

static void print_result(const struct bench *b, const char *name, const char *unit, double value)
{
	printf("{\"name\": \"%s\", \"unit\": \"%s\", \"value\": %.3f, \"n\": %llu, "
	       "\"config\": {\"engine\": \"%s\", \"dir\": \"%s\", \"bytes\": %u, "
	       "\"inflight\": %u}}\n",
	       name, unit, value, (unsigned long long)atomic_load(&b->n_done), io_name(b->io),
	       b->dir, b->size, b->inflight);
	fflush(stdout);
}

/* Keeps `inflight` jobs under way for the given time; each done() starts the next. */
static void run(struct bench *b, double seconds)
{
	struct bench_job jobs[MAX_INFLIGHT];
	AUTO_FREE char *bufs = malloc((size_t)MAX_INFLIGHT * b->size);
	uint64_t start = clock_now(clock_monotonic()), cpu = cpu_ns(), wall;

	if (!bufs)
		die("memory");
	atomic_store(&b->n_done, 0);
	b->end_ns = start + (uint64_t)(seconds * 1e9);
	for (unsigned i = 0; i < b->inflight; i++) {
		jobs[i] = (struct bench_job){ .bench = b };
		jobs[i].job.dirfd = b->dirfd;
		jobs[i].job.buf = bufs + (size_t)i * b->size;
		jobs[i].job.length = b->size;
		jobs[i].job.done = bench_done;
		submit_next(&jobs[i]);
	}
	for (unsigned i = 0; i < b->inflight; i++) {
		while (sem_wait(&b->is_over) < 0)
			;
	}
	wall = clock_now(clock_monotonic()) - start;
	cpu = cpu_ns() - cpu;
	print_result(b, "io_cpu_per_job", "us", (double)cpu / 1e3 / (double)b->n_done);
	print_result(b, "io_jobs_per_second", "1/s", (double)b->n_done * 1e9 / (double)wall);
}

static void run_engines(struct bench *b, double seconds)
{
	static const unsigned inflights[] = { 1, 4, 16, 64 };

	for (size_t i = 0; i < ARRAY_LEN(inflights); i++) {
		struct io_params params = { .name = "bench", .max_inflight = inflights[i] };
		struct err err = { 0 };

		b->inflight = inflights[i];
		for (int engine = 0; engine < 3; engine++) {
			int r = engine == 0   ? io_null_new(&b->io, &err)
				: engine == 1 ? io_pool_new(&params, &b->io, &err)
					      : io_uring_new(&params, &b->io, &err);

			if (r < 0) {
				fprintf(stderr, "left out: %s\n", err.msg);
				continue;
			}
			run(b, engine == 0 ? seconds / 10 : seconds);
			io_free(b->io);
		}
	}
}

static void run_dir(const char *dir, double seconds)
{
	static const uint32_t sizes[] = { 16 << 10, 110 << 10 };
	static struct bench b;

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		char path[4096];

		snprintf(path, sizeof(path), "%s/bench_io.XXXXXX", dir);
		if (!mkdtemp(path))
			die(dir);
		memset(&b, 0, sizeof(b));
		sem_init(&b.is_over, 0, 0);
		b.dir = dir;
		b.size = sizes[i];
		b.dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		make_files(&b);
		run_engines(&b, seconds);
		remove_files(&b, path);
		if (atomic_load(&b.n_bad) > 0) {
			fprintf(stderr, "%s: failed reads\n", dir);
			exit(1);
		}
	}
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");
	double seconds = 0.5;
	int at = 1;

	if (argc > 2 && strcmp(argv[1], "--seconds") == 0) {
		seconds = strtod(argv[2], NULL);
		at = 3;
	}
	if (at == argc) {
		run_dir(tmp && *tmp ? tmp : "/tmp", seconds);
		run_dir("/dev/shm", seconds);
	}
	for (; at < argc; at++)
		run_dir(argv[at], seconds);
	return 0;
}
