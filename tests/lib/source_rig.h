/* SPDX-License-Identifier: Apache-2.0 */
/* A source over files of a temporary directory, through an engine that can be made to fail or wait.
 *
 *	rig_init(&r, 4, LONG_NS);
 *	id = make_file(&r, "a", 1, 3 * PIECE_BYTES);
 *	CHECK_INT(read_piece(&r, 1, 0, "a", &id), 0);
 *	rig_fini(&r);
 */
#ifndef CLAIRFS_TESTS_SOURCE_RIG_H
#define CLAIRFS_TESTS_SOURCE_RIG_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/thr.h"
#include "fault_io.h"
#include "tier_reads.h"

#define LONG_NS 3600000000000ull

struct rig {
	int dirfd;
	struct io
		*io; /* a fault engine above the pool: pauses and faults for those who want them */
	struct io *below;
	struct metrics *metrics;
	struct tier *tier;
	char prefix[16]; /* of the files of this test */
};

static inline int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	CHECK(dir != NULL);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 3; /* ".", ".." and dir */
}

/* Waits until so many are open: engine and source close after done(), so the last one may be a
 * moment late. A leak is a failure after ten seconds. */
static inline void check_fds(int want)
{
	uint64_t end = clock_now(clock_monotonic()) + 10 * NS_PER_S;

	while (count_fds() != want && clock_now(clock_monotonic()) < end)
		sched_yield();
	CHECK_INT(count_fds(), want);
}

static inline void rig_init(struct rig *r, uint32_t open_files, uint64_t reopen_ns)
{
	static unsigned n_rigs;
	struct io_params io = { .name = "src", .max_inflight = 8 };
	struct source_params params;

	snprintf(r->prefix, sizeof(r->prefix), "r%u-", ++n_rigs);
	r->dirfd = open(check_tmpdir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(r->dirfd >= 0);
	CHECK_INT(io_pool_new(&io, &r->below, NULL), 0);
	r->io = fault_io_new(r->below);
	r->metrics = metrics_new();
	params = (struct source_params){ .dirfd = r->dirfd,
					 .io = r->io,
					 .metrics = r->metrics,
					 .open_files = open_files,
					 .reopen_ns = reopen_ns };
	CHECK_INT(source_new(&params, &r->tier, NULL), 0);
}

static inline void rig_fini(struct rig *r)
{
	tier_free(r->tier);
	io_free(r->io);
	metrics_free(r->metrics);
	close(r->dirfd);
}

static inline char *rig_path(const struct rig *r, const char *name)
{
	char *path;

	CHECK(asprintf(&path, "%s/%s%s", check_tmpdir(), r->prefix, name) > 0);
	return path;
}

/* Makes a file of a version; its identity. */
static inline struct file_identity make_file(const struct rig *r, const char *name, uint64_t version,
				      size_t size)
{
	AUTO_FREE uint8_t *bytes = version_bytes(version, 0, size);
	AUTO_FREE char *path = rig_path(r, name);
	FILE *f = fopen(path, "w");
	struct stat st;

	CHECK(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
	CHECK_INT(stat(path, &st), 0);
	return file_identity_of(&st);
}

static inline struct waited_read *new_read(const struct rig *r, uint32_t entry, uint32_t piece,
				    const char *name, const struct file_identity *expect)
{
	char *path;

	CHECK(asprintf(&path, "%s%s", r->prefix, name) > 0);
	return waited_read_new((struct entry_id){ entry }, piece, path, expect);
}

static inline void free_read(struct waited_read *w)
{
	free((char *)w->read.ask.path);
	waited_read_free(w);
}

static inline void check_bytes_of(const struct waited_read *w, uint64_t version)
{
	AUTO_FREE uint8_t *want =
		version_bytes(version, (uint64_t)w->read.ask.key.piece * PIECE_BYTES,
			      w->read.ask.length);

	CHECK_BYTES(w->read.ask.buf, want, w->read.ask.length);
}

/* Reads one piece; its status. */
static inline int read_piece(const struct rig *r, uint32_t entry, uint32_t piece, const char *name,
		      const struct file_identity *expect)
{
	struct waited_read *w = new_read(r, entry, piece, name, expect);
	int status = waited_read_run(r->tier, w);

	if (status == 0)
		check_bytes_of(w, entry);
	free_read(w);
	return status;
}

/* The same, of a file whose version is its entry number, from a second look at it. */
static inline int read_stale(const struct rig *r, const char *name, const struct file_identity *expect,
		      struct stat *ret_st)
{
	struct waited_read *w = new_read(r, 1, 0, name, expect);
	int status = waited_read_run(r->tier, w);

	CHECK(w->read.answer.has_st || status != -ESTALE);
	*ret_st = w->read.answer.st;
	if (!w->read.answer.has_st)
		memset(ret_st, 0, sizeof(*ret_st));
	free_read(w);
	return status;
}

struct hand_clock {
	struct clock clock;
	_Atomic uint64_t ns;
};

static inline uint64_t hand_now(struct clock *clock)
{
	return atomic_load(&container_of(clock, struct hand_clock, clock)->ns);
}

#endif
