/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics as a file: where it is, that it is whole, and that it goes with the mount. The file
 * may be on a filesystem that hangs: rename() does, when it is told to. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "clairfs/publish/textfile.h"

#define INTERVAL 15000000000ull

static _Atomic bool is_hanging;
static _Atomic int n_hung;

int rename(const char *from, const char *to)
{
	if (atomic_load(&is_hanging))
		atomic_fetch_add(&n_hung, 1);
	while (atomic_load(&is_hanging))
		usleep(1000);
	return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

static int render(void *ctx, const char *label, struct buf_writer *out)
{
	const char *text = ctx;

	if (!text)
		return -ENOMEM;
	buf_put_bytes(out, text, strlen(text));
	buf_put_bytes(out, label, strlen(label));
	return 0;
}

/* A directory without records of others. */
static char *place(const char *name)
{
	char *dir = check_tmpfile(name);

	CHECK_INT(mkdir(dir, 0700), 0);
	CHECK_INT(setenv("XDG_RUNTIME_DIR", dir, 1), 0);
	return dir;
}

static char *in(const char *dir, const char *name)
{
	char *path = NULL;

	CHECK(asprintf(&path, "%s/%s", dir, name) > 0);
	return path;
}

static struct textfile *made(const char *path, const char *text, struct metrics *m)
{
	struct publish_source source = { render, (void *)(uintptr_t)text, m };
	struct textfile *t = NULL;
	struct err err = { 0 };

	CHECK_INT(textfile_new(path, "mnt-1", INTERVAL, &source, &t, &err), 0);
	return t;
}

/* Until the writer is back. */
static void write_once(struct textfile *t, struct metrics *m)
{
	uint64_t n = metrics_get(m, METRIC_TEXTFILE_WRITES) + metrics_get(m, METRIC_TEXTFILE_ERRORS);

	CHECK_U64(textfile_write(t, 0), 0);
	while (metrics_get(m, METRIC_TEXTFILE_WRITES) + metrics_get(m, METRIC_TEXTFILE_ERRORS) == n)
		sched_yield();
}

static void the_option_names_a_file_outside_of_the_mount(void)
{
	AUTO_FREE char *dir = place("option");
	AUTO_FREE char *wanted = in(dir, "clairfs_mnt-1.prom"), *other = in(dir, "other.prom");
	AUTO_FREE char *text = in(dir, "other.txt"), *path = NULL, *found = NULL;
	struct err err = { 0 };

	CHECK_INT(textfile_path(dir, "mnt-1", "/m", &path, &err), 0);
	CHECK_STR(path, wanted);
	CHECK_INT(textfile_path(other, "mnt-1", "/m", &found, &err), 0);
	CHECK_STR(found, other);
	AUTO_FREE char *none = NULL;

	CHECK_INT(textfile_path(text, "mnt-1", "/m", &none, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "neither a directory nor a name that ends in .prom");
	CHECK_INT(textfile_path(dir, "mnt-1", dir, &none, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "is within the mount");
	CHECK_INT(textfile_path(other, "mnt-1", check_tmpdir(), &none, &err), -EINVAL);
	CHECK(!none);
}

static void it_is_written_whole_and_removed_at_the_end(void)
{
	AUTO_FREE char *dir = place("whole"), *path = in(dir, "a.prom"), *temp = in(dir, ".a.prom.tmp");
	struct metrics *m = metrics_new();
	struct textfile *t = made(path, "x 1\n", m);
	struct stat st;
	char bytes[64] = "";

	CHECK_INT(access(path, F_OK), -1); /* not before its time */
	for (int i = 0; i < 3; i++)
		write_once(t, m);
	AUTO_FILE FILE *f = fopen(path, "re");

	CHECK(f && fread(bytes, 1, sizeof(bytes) - 1, f) > 0);
	CHECK_STR(bytes, "x 1\nmount=\"mnt-1\"");
	CHECK_INT(stat(path, &st), 0);
	CHECK_INT(st.st_mode & 07777, 0644);
	CHECK_INT(access(temp, F_OK), -1);
	CHECK_U64(metrics_get(m, METRIC_TEXTFILE_WRITES), 3);
	textfile_stop(t);
	CHECK_INT(access(path, F_OK), -1);
	CHECK_U64(metrics_get(m, METRIC_TEXTFILE_ERRORS), 0);
	metrics_free(m);
}

/* Counted each time; what is there stays as it is, and goes at the end. */
static void what_cannot_be_written_is_counted(void)
{
	AUTO_FREE char *dir = place("gone"), *sub = in(dir, "sub"), *path = in(sub, "a.prom");
	struct metrics *m = metrics_new();
	struct textfile *t = made(path, "x", m), *mute = NULL;

	write_once(t, m);
	write_once(t, m);
	CHECK_U64(metrics_get(m, METRIC_TEXTFILE_ERRORS), 2);
	CHECK_INT(mkdir(sub, 0700), 0);
	write_once(t, m);
	CHECK_U64(metrics_get(m, METRIC_TEXTFILE_WRITES), 1);
	CHECK_INT(access(path, F_OK), 0);
	textfile_stop(t);
	CHECK_INT(access(path, F_OK), -1);
	mute = made(path, NULL, m); /* whose source has no memory */
	write_once(mute, m);
	CHECK_U64(metrics_get(m, METRIC_TEXTFILE_ERRORS), 3);
	CHECK_INT(access(path, F_OK), -1);
	textfile_stop(mute);
	metrics_free(m);
}

/* The daemon that was here before lives. */
static void a_file_of_somebody_else_is_left_alone(void)
{
	AUTO_FREE char *dir = place("others"), *path = in(dir, "a.prom");
	struct metrics *m = metrics_new();
	struct textfile *first = made(path, "first", m), *second = made(path, "second", m);

	write_once(first, m);
	write_once(second, m);
	CHECK_U64(metrics_get(m, METRIC_TEXTFILE_ERRORS), 1);
	textfile_stop(second);
	CHECK_INT(access(path, F_OK), 0);
	textfile_stop(first);
	CHECK_INT(access(path, F_OK), -1);
	metrics_free(m);
}

/* Nobody waits for it; what it was asked for is done when it is back, with nothing of the mount. */
static void a_filesystem_that_hangs_is_left_behind(void)
{
	AUTO_FREE char *dir = place("hangs"), *path = in(dir, "a.prom");
	AUTO_FREE char *record = in(dir, "clairfs/mnt-1.textfile");
	struct metrics *m = metrics_new();
	struct textfile *t = made(path, "x", m);

	write_once(t, m);
	atomic_store(&is_hanging, true);
	CHECK_U64(textfile_write(t, 0), 0);
	while (!atomic_load(&n_hung))
		sched_yield();
	for (int i = 0; i < 100; i++) /* there is never a second one */
		CHECK_U64(textfile_write(t, 0), 0);
	CHECK_U64(metrics_get(m, METRIC_TEXTFILE_WRITES), 1);
	textfile_stop(t);
	CHECK_INT(atomic_load(&n_hung), 1);
	CHECK_INT(access(path, F_OK), 0);
	metrics_free(m);
	atomic_store(&is_hanging, false);
	while (access(path, F_OK) == 0 || access(record, F_OK) == 0)
		sched_yield();
}

static void what_was_never_written_is_stopped(void)
{
	AUTO_FREE char *dir = place("never"), *path = in(dir, "a.prom");
	AUTO_FREE char *mine = check_write_file("never/a.prom", "mine", 4);

	textfile_stop(made(path, "x", NULL));
	CHECK_INT(access(mine, F_OK), 0);
	textfile_stop(NULL);
}

static const struct check_test tests[] = {
	{ "the_option_names_a_file_outside_of_the_mount",
	  the_option_names_a_file_outside_of_the_mount },
	{ "it_is_written_whole_and_removed_at_the_end",
	  it_is_written_whole_and_removed_at_the_end },
	{ "what_cannot_be_written_is_counted", what_cannot_be_written_is_counted },
	{ "a_file_of_somebody_else_is_left_alone", a_file_of_somebody_else_is_left_alone },
	{ "a_filesystem_that_hangs_is_left_behind", a_filesystem_that_hangs_is_left_behind },
	{ "what_was_never_written_is_stopped", what_was_never_written_is_stopped },
};
CHECK_MAIN(tests)
