/* SPDX-License-Identifier: Apache-2.0 */
/* What is removed of a daemon that was killed, and what is not: records may be of anybody. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "clairfs/metrics/leftover.h"

/* A directory of records of this test's own. */
static char *records(void)
{
	AUTO_FREE char *base = check_tmpfile("run");
	char *dir = NULL;

	(void)mkdir(base, 0700);
	CHECK(setenv("XDG_RUNTIME_DIR", base, 1) == 0);
	CHECK(asprintf(&dir, "%s/clairfs", base) > 0);
	return dir;
}

static bool is_there(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static char *record_of(const char *id)
{
	AUTO_FREE char *dir = records();
	char *path = NULL;

	CHECK(asprintf(&path, "%s/%s.textfile", dir, id) > 0);
	return path;
}

static void a_word_for_a_mountpoint(void)
{
	char a[MOUNT_WORD], b[MOUNT_WORD], longest[5000];

	mount_word("/mnt/imagenet", a);
	CHECK_CONTAINS(a, "mnt-imagenet-");
	CHECK_U64(strlen(a), strlen("mnt-imagenet-") + 8);
	mount_word("/mnt/imagenet", b);
	CHECK_STR(a, b);
	mount_word("/mnt-imagenet", b); /* reads alike, and is another one */
	CHECK(strcmp(a, b) != 0);
	mount_word("/mnt/../x y\n\"$(id)\"", a);
	CHECK_U64(strspn(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"),
		  strlen(a));
	CHECK(strchr(a, '/') == NULL);
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	longest[0] = '/';
	mount_word(longest, a);
	longest[sizeof(longest) - 2] = 'b';
	mount_word(longest, b);
	CHECK(strlen(a) < MOUNT_WORD && strcmp(a, b) != 0);
	mount_word("", a);
	CHECK_U64(strlen(a), 9);
}

static void a_name_that_no_collector_takes(void)
{
	AUTO_FREE char *temp = leftover_temp("/var/metrics/clairfs.prom");

	CHECK_STR(temp, "/var/metrics/.clairfs.prom.tmp");
}

static bool parses(const char *bytes, size_t n)
{
	char path[PATH_MAX];

	return leftover_parse(bytes, n, path);
}
#define PARSES(text) parses(text, sizeof(text) - 1)

static void records_that_are_none(void)
{
	char path[PATH_MAX], text[PATH_MAX + 8];

	CHECK(leftover_parse("/a/b.prom\n", 10, path));
	CHECK_STR(path, "/a/b.prom");
	CHECK(!PARSES(""));
	CHECK(!PARSES("\n"));
	CHECK(!PARSES("/a/b.prom"));            /* not whole */
	CHECK(!PARSES("/a/b.prom\n/c.prom\n")); /* two */
	CHECK(!PARSES("a/b.prom\n"));
	CHECK(!PARSES("/etc/passwd\n"));
	CHECK(!PARSES(".prom\n"));
	CHECK(!PARSES("/a\0b.prom\n"));
	memset(text, 'x', sizeof(text));
	text[0] = '/';
	memcpy(text + PATH_MAX - 6, ".prom\n", 6);
	CHECK(parses(text, PATH_MAX));
	memcpy(text + PATH_MAX - 5, ".prom\n", 6);
	CHECK(!parses(text, PATH_MAX + 1)); /* longer than a path can be */
}

/* What the next mount at the same place does. */
static void what_a_killed_daemon_left_is_removed(void)
{
	AUTO_FREE char *record = record_of("id-1"), *file = check_write_file("one.prom", "1", 1),
		       *temp = check_write_file(".one.prom.tmp", "1", 1),
		       *other = check_write_file("two.prom", "2", 1);
	int fd, again;

	CHECK_INT(leftover_take("id-1", file, &fd), 0);
	CHECK(fd >= 0 && is_there(record) && is_there(file));
	close(fd); /* killed: the lock goes with it */
	CHECK_INT(leftover_take("id-1", other, &again), 0);
	CHECK(again >= 0);
	CHECK(!is_there(file) && !is_there(temp) && is_there(other));
	leftover_release("id-1", other, again);
	CHECK(!is_there(other) && !is_there(record));
}

static void a_daemon_that_lives_keeps_its_file(void)
{
	AUTO_FREE char *record = record_of("id-2"), *file = check_write_file("live.prom", "1", 1);
	int fd, other;

	CHECK_INT(leftover_take("id-2", file, &fd), 0);
	CHECK_INT(leftover_take("id-2", file, &other), -EBUSY);
	CHECK_INT(other, -1);
	CHECK_INT(leftover_take("id-2", NULL, &other), -EBUSY);
	CHECK(is_there(file) && is_there(record));
	CHECK_INT(leftover_take("id-3", file, &other),
		  0); /* another mountpoint is another record */
	close(other);
	leftover_release("id-2", file, fd);
	CHECK(!is_there(file) && !is_there(record));
}

static void clearing_needs_no_daemon(void)
{
	AUTO_FREE char *file = check_write_file("cleared.prom", "1", 1);
	AUTO_FREE char *record = NULL;
	char id[MOUNT_WORD];
	int fd;

	mount_word("/mnt/cleared", id);
	record = record_of(id);
	CHECK_INT(leftover_take(id, file, &fd), 0);
	close(fd);
	leftover_clear("/mnt/elsewhere");
	CHECK(is_there(file) && is_there(record));
	leftover_clear("/mnt/cleared");
	CHECK(!is_there(file) && !is_there(record));
	leftover_clear("/mnt/cleared"); /* nothing is there: nothing happens */
}

static void take_record(const char *id, const char *text)
{
	AUTO_FREE char *record = record_of(id);
	FILE *f = fopen(record, "we");
	int fd;

	CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
	CHECK_INT(leftover_take(id, NULL, &fd), 0);
	CHECK_INT(fd, -1);
	CHECK(!is_there(record));
}

/* Only a regular file of the user's own whose name ends in .prom. */
static void nothing_else_is_removed_for_a_record(void)
{
	AUTO_FREE char *file = check_write_file("data.txt", "1", 1),
		       *dir = check_tmpfile("dir.prom"), *link = check_tmpfile("link.prom"),
		       *target = check_write_file("t.prom", "1", 1);
	AUTO_FREE char *text = NULL, *more = NULL, *third = NULL;
	AUTO_FREE char *runtime = records();

	(void)mkdir(runtime, 0700);
	CHECK(mkdir(dir, 0700) == 0 && symlink(target, link) == 0);
	CHECK(asprintf(&text, "%s\n", file) > 0 && asprintf(&more, "%s\n", dir) > 0 &&
	      asprintf(&third, "%s\n", link) > 0);
	take_record("id-4", text);
	take_record("id-4", more);
	take_record("id-4", third);
	take_record("id-4", "garbage");
	CHECK(is_there(file) && is_there(dir) && is_there(link) && is_there(target));
}

static void a_record_that_is_no_file(void)
{
	AUTO_FREE char *record = record_of("id-5"), *file = check_write_file("x.prom", "1", 1),
		       *target = check_write_file("target", "/etc/x.prom\n", 12);
	int fd;

	CHECK(symlink(target, record) == 0);
	CHECK_INT(leftover_take("id-5", file, &fd), 0); /* no record; the mount goes on */
	CHECK_INT(fd, -1);
	CHECK(is_there(file) && is_there(target));
	CHECK(unlink(record) == 0 && mkdir(record, 0700) == 0);
	CHECK_INT(leftover_take("id-5", file, &fd), 0);
	CHECK_INT(fd, -1);
	CHECK(rmdir(record) == 0);
}

/* Then somebody else could say what is to be removed. */
static void a_directory_that_others_may_write_is_not_used(void)
{
	AUTO_FREE char *dir = records(), *file = check_write_file("y.prom", "1", 1);
	AUTO_FREE char *record = record_of("id-6");
	int fd;

	(void)mkdir(dir, 0700);
	CHECK(chmod(dir, 0777) == 0);
	CHECK_INT(leftover_take("id-6", file, &fd), 0);
	CHECK_INT(fd, -1);
	CHECK(!is_there(record) && is_there(file));
	leftover_release("id-6", file, fd); /* its own file is removed all the same */
	CHECK(!is_there(file));
	CHECK(chmod(dir, 0700) == 0);
}

static const struct check_test tests[] = {
	{ "a_word_for_a_mountpoint", a_word_for_a_mountpoint },
	{ "a_name_that_no_collector_takes", a_name_that_no_collector_takes },
	{ "records_that_are_none", records_that_are_none },
	{ "what_a_killed_daemon_left_is_removed", what_a_killed_daemon_left_is_removed },
	{ "a_daemon_that_lives_keeps_its_file", a_daemon_that_lives_keeps_its_file },
	{ "clearing_needs_no_daemon", clearing_needs_no_daemon },
	{ "nothing_else_is_removed_for_a_record", nothing_else_is_removed_for_a_record },
	{ "a_record_that_is_no_file", a_record_that_is_no_file },
	{ "a_directory_that_others_may_write_is_not_used",
	  a_directory_that_others_may_write_is_not_used },
};

CHECK_MAIN(tests)
