/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that change while the source reads them. A scripted engine carries a job out step by step
 * on the caller's thread and lets the test change the file between any two steps; it can hold jobs
 * on kept descriptors back. Whatever happens when, success must mean: the bytes of the version that
 * was expected.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "clairfs/base/thr.h"
#include "tier_reads.h"

enum step { BEFORE_OPEN, BEFORE_STAT, BEFORE_READ, MID_READ, BEFORE_CHECK, N_STEPS };

struct script {
	struct io io;
	void (*at)(void *ctx, enum step step, const struct io_job *job);
	void *ctx;
	bool holds_fd_jobs;
	struct list held;
};

static int run_read(struct script *s, struct io_job *job, int fd)
{
	uint32_t half = job->length / 2;

	for (int part = 0; part < 2; part++) {
		uint32_t want = part ? job->length : half;

		if (part && s->at)
			s->at(s->ctx, MID_READ, job);
		while (job->got < want) {
			ssize_t n = pread(fd, (char *)job->buf + job->got, want - job->got,
					  (off_t)(job->offset + job->got));

			if (n < 0)
				return -errno;
			if (n == 0)
				return 0;
			job->got += (uint32_t)n;
		}
	}
	return 0;
}

static int run_steps(struct script *s, struct io_job *job, int *fd)
{
	int rc;

	if (job->kind == IO_READ_PATH) {
		if (s->at)
			s->at(s->ctx, BEFORE_OPEN, job);
		*fd = openat(job->dirfd, job->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (*fd < 0)
			return -errno;
	}
	if (s->at)
		s->at(s->ctx, BEFORE_STAT, job);
	if (fstat(*fd, &job->st) < 0)
		return -errno;
	if (!S_ISREG(job->st.st_mode))
		return -EIO;
	if (s->at)
		s->at(s->ctx, BEFORE_READ, job);
	rc = run_read(s, job, *fd);
	if (rc < 0)
		return rc;
	if (s->at)
		s->at(s->ctx, BEFORE_CHECK, job);
	return fstat(*fd, &job->st_after) < 0 ? -errno : 0;
}

static void script_run(struct script *s, struct io_job *job)
{
	int fd = job->fd;
	bool is_path = job->kind == IO_READ_PATH;

	job->got = 0;
	job->status = run_steps(s, job, &fd);
	if (is_path && job->keep_open && job->status == 0)
		job->fd = take_fd(&fd);
	else if (is_path)
		job->fd = -1;
	job->done(job);
	if (is_path && fd >= 0)
		close(fd);
}

static void script_submit(struct io *io, struct io_job *job)
{
	struct script *s = container_of(io, struct script, io);

	CHECK(job->want_stat || job->kind == IO_READ_PATH);
	CHECK(job->want_check || job->length == 0); /* only opened, to be kept */
	if (s->holds_fd_jobs && job->kind == IO_READ_FD)
		list_push_tail(&s->held, &job->node);
	else
		script_run(s, job);
}

static const struct io_ops script_ops = { .name = "script", .submit = script_submit };

struct rig {
	struct script script;
	struct tier *tier;
	int dirfd;
	char *path;
	struct file_identity old;
	size_t size;
	enum step when;
	bool is_while_opened; /* then, and not while it is read */
	unsigned n_left; /* changes still to be made */
	void (*change)(struct rig *rig);
};

static struct file_identity identity_at(const char *path)
{
	struct stat st;

	CHECK_INT(stat(path, &st), 0);
	return file_identity_of(&st);
}

static void write_version(const char *path, uint64_t version, size_t size, const char *mode)
{
	AUTO_FREE uint8_t *bytes = version_bytes(version, 0, size);
	FILE *f = fopen(path, mode);

	CHECK(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
}

static void rewrite_in_place(struct rig *r)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = 12345 } };

	write_version(r->path, 2, r->size, "r+");
	/* The clock of a filesystem ticks every few milliseconds: within a tick nobody could see
	 * the change. Its times are set, as if it had ticked. */
	CHECK_INT(utimensat(AT_FDCWD, r->path, times, 0), 0);
}

static void shrink(struct rig *r)
{
	CHECK_INT(truncate(r->path, (off_t)r->size / 3), 0);
}

static void grow(struct rig *r)
{
	write_version(r->path, 2, 1000, "a");
}

static void empty(struct rig *r)
{
	CHECK_INT(truncate(r->path, 0), 0);
}

static void replace(struct rig *r)
{
	AUTO_FREE char *other = check_tmpfile("other");

	write_version(other, 2, r->size, "w");
	CHECK_INT(rename(other, r->path), 0);
}

static void vanish(struct rig *r)
{
	CHECK_INT(unlink(r->path), 0);
}

static void become_fifo(struct rig *r)
{
	vanish(r);
	CHECK_INT(mkfifo(r->path, 0600), 0);
}

static void become_dir(struct rig *r)
{
	vanish(r);
	CHECK_INT(mkdir(r->path, 0700), 0);
}

static void at_step(void *ctx, enum step step, const struct io_job *job)
{
	struct rig *r = ctx;

	if (step != r->when || r->n_left == 0 || r->is_while_opened != (job->length == 0))
		return;
	r->n_left--;
	r->change(r);
}

static void rig_init(struct rig *r, size_t size, uint32_t open_files)
{
	struct source_params params;

	memset(r, 0, sizeof(*r));
	r->script.io.ops = &script_ops;
	r->script.at = at_step;
	r->script.ctx = r;
	list_init(&r->script.held);
	r->dirfd = open(check_tmpdir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r->path = check_tmpfile("a");
	r->size = size;
	write_version(r->path, 1, size, "w");
	r->old = identity_at(r->path);
	params = (struct source_params){ .dirfd = r->dirfd,
					 .io = &r->script.io,
					 .open_files = open_files,
					 .reopen_ns = 3600 * 1000000000ull };
	CHECK_INT(source_new(&params, &r->tier, NULL), 0);
}

static void rig_fini(struct rig *r)
{
	tier_free(r->tier);
	(void)rmdir(r->path);
	(void)unlink(r->path);
	free(r->path);
	close(r->dirfd);
}

/* Success: the bytes are those of version 1, and st is what was expected. */
static int read_one(struct rig *r, uint32_t piece)
{
	struct waited_read *w = waited_read_new((struct entry_id){ 1 }, piece, "a", &r->old);
	int status = waited_read_run(r->tier, w);

	if (status == 0) {
		AUTO_FREE uint8_t *want =
			version_bytes(1, (uint64_t)piece * PIECE_BYTES, w->read.ask.length);

		CHECK_BYTES(w->read.ask.buf, want, w->read.ask.length);
	}
	if (status == -ESTALE) {
		struct file_identity now = file_identity_of(&w->read.answer.st);

		CHECK(w->read.answer.has_st);
		CHECK(!file_identity_eq(&now, &r->old) || !S_ISREG(w->read.answer.st.st_mode));
	}
	waited_read_free(w);
	return status;
}

struct change {
	const char *name;
	void (*fn)(struct rig *rig);
	bool is_by_name; /* the open file stays what it was: its bytes are still those expected */
};

static const struct change changes[] = {
	{ "rewrite_in_place", rewrite_in_place, false },
	{ "shrink", shrink, false },
	{ "grow", grow, false },
	{ "empty", empty, false },
	{ "replace", replace, true },
	{ "vanish", vanish, true },
	{ "become_fifo", become_fifo, true },
	{ "become_dir", become_dir, true },
};

enum state { NOT_KEPT, TO_BE_OPENED, TO_BE_KEPT, IS_KEPT };

static void change_at_any_step_is_never_success(size_t size, enum state state)
{
	for (size_t i = 0; i < ARRAY_LEN(changes); i++)
		for (enum step when = BEFORE_OPEN; when < N_STEPS; when++) {
			struct rig r;
			int status;

			/* There will be no open. */
			if (when == BEFORE_OPEN && (state == TO_BE_KEPT || state == IS_KEPT))
				continue;
			rig_init(&r, size, state == NOT_KEPT ? 0 : 4);
			if (state == IS_KEPT)
				CHECK_INT(read_one(&r, 0), 0);
			r.is_while_opened = state == TO_BE_OPENED;
			r.when = when;
			r.n_left = 1;
			r.change = changes[i].fn;
			status = read_one(&r, 0);
			CHECK_U64(r.n_left, 0);
			if (status == 0 && changes[i].is_by_name && when > BEFORE_OPEN)
				status = -ESTALE; /* as good: read_one has seen the bytes */
			if (status != -ESTALE && status != -ENOENT)
				printf("# %s at step %d: %d\n", changes[i].name, (int)when, status);
			CHECK(status == -ESTALE || status == -ENOENT);
			rig_fini(&r);
		}
}

static void small_file_that_changes_is_never_success(void)
{
	change_at_any_step_is_never_success(100000, NOT_KEPT);
}

static void large_file_that_changes_is_never_success(void)
{
	change_at_any_step_is_never_success(PIECE_BYTES + 5000, NOT_KEPT);
	change_at_any_step_is_never_success(PIECE_BYTES + 5000, TO_BE_OPENED);
	change_at_any_step_is_never_success(PIECE_BYTES + 5000, TO_BE_KEPT);
}

static void kept_file_that_changes_is_never_success(void)
{
	change_at_any_step_is_never_success(PIECE_BYTES + 5000, IS_KEPT);
}

/* A change that was over before the read began, with the reader knowing of it. */
static void new_identity_reads_the_new_version(void)
{
	struct rig r;

	rig_init(&r, 100000, 0);
	rewrite_in_place(&r);
	CHECK_INT(read_one(&r, 0), -ESTALE);
	write_version(r.path, 1, r.size, "r+");
	r.old = identity_at(r.path);
	CHECK_INT(read_one(&r, 0), 0);
	rig_fini(&r);
}

/* Reads wait in the engine while the descriptor they use is evicted, and detached by a failure. */
static void descriptor_in_use_outlives_its_eviction(void)
{
	enum { N = 4 }; /* the last of another file */
	struct waited_read *held[N];
	struct list *node;
	struct rig r;

	rig_init(&r, 2 * PIECE_BYTES, 1);
	AUTO_FREE char *other = check_tmpfile("b");

	write_version(other, 2, 2 * PIECE_BYTES, "w");
	CHECK_INT(read_one(&r, 0), 0);
	struct file_identity id = identity_at(other);

	r.script.holds_fd_jobs = true;
	for (uint32_t i = 0; i < N; i++) {
		bool is_other = i == N - 1; /* its descriptor takes the only place */

		held[i] = waited_read_new((struct entry_id){ is_other ? 2 : 1 }, i % 2,
					  is_other ? "b" : "no-such-path",
					  is_other ? &id : &r.old);
		tier_read(r.tier, &held[i]->read);
		CHECK_INT(held[i]->n_done, 0);
	}
	r.script.holds_fd_jobs = false;
	for (uint32_t i = 0; (node = list_pop_head(&r.script.held)); i++) {
		AUTO_FREE uint8_t *want =
			version_bytes(i == N - 1 ? 2 : 1, (uint64_t)(i % 2) * PIECE_BYTES,
				      PIECE_BYTES);

		CHECK(fcntl(container_of(node, struct io_job, node)->fd, F_GETFD) >= 0);
		script_run(&r.script, container_of(node, struct io_job, node));
		CHECK_INT(waited_read_wait(held[i]), 0);
		CHECK_BYTES(held[i]->read.ask.buf, want, PIECE_BYTES);
		waited_read_free(held[i]);
	}
	rig_fini(&r);
}

static const struct check_test tests[] = {
	{ "small_file_that_changes_is_never_success", small_file_that_changes_is_never_success },
	{ "large_file_that_changes_is_never_success", large_file_that_changes_is_never_success },
	{ "kept_file_that_changes_is_never_success", kept_file_that_changes_is_never_success },
	{ "new_identity_reads_the_new_version", new_identity_reads_the_new_version },
	{ "descriptor_in_use_outlives_its_eviction", descriptor_in_use_outlives_its_eviction },
};

CHECK_MAIN(tests)
