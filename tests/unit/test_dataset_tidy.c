/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of sources that are gone are removed, and the least recently used ones beyond the
 * limits; nothing else ever is: not the one in use, not what only looks like a snapshot, not one
 * whose filesystem may come back. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dataset_kit.h"
#include "src/dataset/dataset_priv.h"

#define PATHS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define DAY 86400
#define MANY ((struct snapshot_limits){ 1000, UINT64_MAX })

struct sources {
	char *dir; /* of the snapshots */
	int dir_fd;
	struct {
		char *root, *file;
		struct snapshot_key key;
	} of[6];
};

static struct snapshot_key key_of(const char *root)
{
	struct snapshot_key key;
	struct stat st;
	AUTO_FD int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);

	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	snapshot_key_of(root, fd, st.st_ino, &key);
	return key;
}

/* Datasets "NAME0" ... with a snapshot each. */
static struct sources make_sources(const char *name, size_t n)
{
	struct sources s = { .dir = check_tmpfile(name) };

	for (size_t i = 0; i < n; i++) {
		AUTO_FREE char *tree = NULL;
		char file[SNAPSHOT_NAME_SIZE];

		CHECK(asprintf(&tree, "%s.tree%zu", name, i) > 0);
		s.of[i].root = kit_tree(tree, PATHS("a"));
		dataset_free(kit_open(s.of[i].root, (struct kit_open){ .snapshot_dir = s.dir }));
		s.of[i].key = key_of(s.of[i].root);
		snapshot_name(&s.of[i].key, file);
		s.of[i].file = kit_path(s.dir, file);
		CHECK_INT(access(s.of[i].file, F_OK), 0);
	}
	s.dir_fd = open(s.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(s.dir_fd >= 0);
	return s;
}

static void sources_end(struct sources *s)
{
	for (size_t i = 0; i < ARRAY_LEN(s->of); i++) {
		free(s->of[i].root);
		free(s->of[i].file);
	}
	free(s->dir);
	close(s->dir_fd);
}

static bool is_there(const struct sources *s, size_t i)
{
	return access(s->of[i].file, F_OK) == 0;
}

static void set_used(const struct sources *s, size_t i, int64_t when)
{
	struct timespec times[2] = { { .tv_sec = when }, { .tv_sec = when } };

	CHECK_INT(utimensat(AT_FDCWD, s->of[i].file, times, 0), 0);
}

static void remove_source(const struct sources *s, size_t i)
{
	kit_remove(s->of[i].root, "a");
	CHECK_INT(rmdir(s->of[i].root), 0);
}

static void sources_that_are_gone_go_at_once(void)
{
	struct sources s = make_sources("gone", 4);
	int64_t now = time(NULL);

	remove_source(&s, 1);
	remove_source(&s, 2);
	CHECK_U64(snapshot_tidy(s.dir_fd, &s.of[2].key, &MANY, now), 1);
	CHECK(is_there(&s, 0) && !is_there(&s, 1) && is_there(&s, 3));
	CHECK(is_there(&s, 2)); /* in use, whatever became of it */
	CHECK_U64(snapshot_tidy(s.dir_fd, &s.of[0].key, &MANY, now), 1);
	CHECK(!is_there(&s, 2));
	sources_end(&s);
}

/* Rewrites the snapshot as if its source were on another filesystem. */
static void move_to_filesystem(struct sources *s, size_t i, uint64_t fsid)
{
	struct snapshot snap;
	char name[SNAPSHOT_NAME_SIZE];

	CHECK_INT(snapshot_load(s->dir_fd, &s->of[i].key, &snap), 0);
	s->of[i].key.fsid = fsid;
	CHECK_INT(snapshot_save(s->dir_fd, &s->of[i].key, &snap), 0);
	CHECK_INT(remove(s->of[i].file), 0);
	snapshot_name(&s->of[i].key, name);
	free(s->of[i].file);
	s->of[i].file = kit_path(s->dir, name);
	table_fini(&snap.t);
}

static void what_is_not_mounted_now_has_a_week(void)
{
	struct sources s = make_sources("unmounted", 3);
	int64_t now = time(NULL);

	for (size_t i = 1; i < 3; i++) {
		move_to_filesystem(&s, i, i == 1 ? 4711 : 0);
		remove_source(&s, i);
		set_used(&s, i, now - 6 * DAY);
	}
	CHECK_U64(snapshot_tidy(s.dir_fd, &s.of[0].key, &MANY, now), 0);
	CHECK_U64(snapshot_tidy(s.dir_fd, &s.of[0].key, &MANY, now + 2 * DAY), 2);
	CHECK(is_there(&s, 0) && !is_there(&s, 1) && !is_there(&s, 2));
	sources_end(&s);
}

/* Sets a byte of the file. */
static void set_byte(const struct sources *s, size_t i, off_t at, uint8_t value)
{
	AUTO_FD int fd = open(s->of[i].file, O_WRONLY | O_CLOEXEC);

	CHECK(fd >= 0 && pwrite(fd, &value, 1, at) == 1);
}

static void what_another_version_wrote_has_a_week(void)
{
	struct sources s = make_sources("version", 3);
	int64_t now = time(NULL);

	set_byte(&s, 1, 16, 1);   /* version 1 */
	set_byte(&s, 2, 0, 'X');  /* no snapshot, whatever its name */
	for (size_t i = 1; i < 3; i++)
		set_used(&s, i, now - 6 * DAY);
	CHECK_U64(snapshot_tidy(s.dir_fd, &s.of[0].key, &MANY, now), 0);
	CHECK_U64(snapshot_tidy(s.dir_fd, &s.of[0].key, &MANY, now + 2 * DAY), 1);
	CHECK(is_there(&s, 0) && !is_there(&s, 1) && is_there(&s, 2));
	sources_end(&s);
}

static void the_least_recently_used_go_beyond_the_limits(void)
{
	struct sources s = make_sources("limits", 6);
	struct snapshot_limits few = { .files = 4, .bytes = UINT64_MAX }, small;
	int64_t now = time(NULL);
	struct stat st;

	for (size_t i = 0; i < 6; i++)
		set_used(&s, i, now - (int64_t)(i + 1) * DAY);
	/* The oldest is in use, so the next two go. */
	CHECK_U64(snapshot_tidy(s.dir_fd, &s.of[5].key, &few, now), 2);
	CHECK(is_there(&s, 0) && is_there(&s, 1) && is_there(&s, 2) && is_there(&s, 5));
	CHECK_INT(stat(s.of[5].file, &st), 0);
	small = (struct snapshot_limits){ .files = 4, .bytes = (uint64_t)st.st_size * 5 / 2 };
	/* Using one makes it the youngest. */
	dataset_free(kit_open(s.of[2].root, (struct kit_open){ .snapshot_dir = s.dir }));
	CHECK_U64(snapshot_tidy(s.dir_fd, &s.of[5].key, &small, now), 2);
	CHECK(!is_there(&s, 0) && !is_there(&s, 1) && is_there(&s, 2) && is_there(&s, 5));
	small.files = 0;
	CHECK_U64(snapshot_tidy(s.dir_fd, &s.of[5].key, &small, now), 1);
	CHECK(is_there(&s, 5));
	sources_end(&s);
}

static void what_is_no_snapshot_of_ours_stays(void)
{
	struct sources s = make_sources("strangers", 3);
	struct snapshot_limits none = { 0, 0 };
	const char *other = "0123456789abcdef0123456789abcdef.snapshot";
	AUTO_FREE char *renamed = kit_path(s.dir, other);
	AUTO_FREE char *link = kit_path(s.dir, "1123456789abcdef0123456789abcdef.snapshot");
	AUTO_FREE char *text = kit_path(s.dir, "2123456789abcdef0123456789abcdef.snapshot");
	AUTO_FREE char *notes = kit_path(s.dir, "notes.snapshot");
	AUTO_FREE char *fifo = kit_path(s.dir, "3123456789abcdef0123456789abcdef.snapshot");

	/* Under another name than its own; by a symlink; of other bytes; of another name. */
	remove_source(&s, 1);
	remove_source(&s, 2);
	CHECK_INT(rename(s.of[1].file, renamed), 0);
	CHECK_INT(symlink(s.of[2].file, link), 0);
	kit_file(s.dir, strrchr(text, '/') + 1, 5000);
	kit_file(s.dir, "notes.snapshot", 10);
	CHECK_INT(mkfifo(fifo, 0600), 0);
	CHECK_U64(snapshot_tidy(s.dir_fd, &s.of[0].key, &none, time(NULL) + 100 * DAY), 1);
	CHECK(is_there(&s, 0) && !is_there(&s, 2));
	CHECK(access(renamed, F_OK) == 0 && access(text, F_OK) == 0 && access(notes, F_OK) == 0);
	CHECK(access(fifo, F_OK) == 0 && faccessat(AT_FDCWD, link, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
	sources_end(&s);
}

static void leftovers_of_crashes_are_removed(void)
{
	struct sources s = make_sources("leftovers", 1);
	AUTO_FREE char *old = kit_path(s.dir, "0123456789abcdef0123456789abcdef.77.tmp");
	AUTO_FREE char *young = kit_path(s.dir, "0123456789abcdef0123456789abcdef.78.tmp");
	struct timespec hours_ago[] = { { .tv_sec = time(NULL) - 7200 },
					{ .tv_sec = time(NULL) - 7200 } };

	kit_file(s.dir, strrchr(old, '/') + 1, 10);
	kit_file(s.dir, strrchr(young, '/') + 1, 10);
	CHECK_INT(utimensat(AT_FDCWD, old, hours_ago, 0), 0);
	CHECK_U64(snapshot_tidy(s.dir_fd, &s.of[0].key, &MANY, time(NULL)), 1);
	CHECK(access(old, F_OK) < 0);
	/* That one may be somebody who is writing. */
	CHECK_INT(access(young, F_OK), 0);
	CHECK(is_there(&s, 0));
	sources_end(&s);
}

static const struct check_test tests[] = {
	{ "sources_that_are_gone_go_at_once", sources_that_are_gone_go_at_once },
	{ "what_is_not_mounted_now_has_a_week", what_is_not_mounted_now_has_a_week },
	{ "what_another_version_wrote_has_a_week", what_another_version_wrote_has_a_week },
	{ "the_least_recently_used_go_beyond_the_limits",
	  the_least_recently_used_go_beyond_the_limits },
	{ "what_is_no_snapshot_of_ours_stays", what_is_no_snapshot_of_ours_stays },
	{ "leftovers_of_crashes_are_removed", leftovers_of_crashes_are_removed },
};
CHECK_MAIN(tests)
