/* SPDX-License-Identifier: Apache-2.0 */
/* Which files are read for somebody else: those beneath the source, whatever a path says. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "src/orders/path.h"

static void is(const char *path, const char *want)
{
	const char *found = path_relative(path, "/data/set", "/mnt/set");

	CHECK_STR(found ? found : "(elsewhere)", want);
}

static void test_paths_are_relative_to_source_or_mountpoint(void)
{
	is("/data/set/a/b", "a/b");
	is("/data/set//a", "a");
	is("/mnt/set/a", "a");
	is("a/b", "a/b");
	is("../a", "../a"); /* the open says no */
	is("/data/set/../a", "../a");
	is("/data/set", "(elsewhere)");
	is("/data/sets/a", "(elsewhere)");
	is("/data", "(elsewhere)");
	is("/etc/passwd", "(elsewhere)");
	CHECK_STR(path_relative("/a/b", "/", "/mnt"), "a/b");
}

static int try_open(int dir, const char *path)
{
	struct err err = { 0 };
	int fd = path_open(dir, path, &err);

	CHECK((fd >= 0) == (err.msg[0] == '\0'));
	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

static void test_nothing_leads_out(void)
{
	AUTO_FREE char *inside = check_write_file("inside", "1", 1);
	AUTO_FREE char *top = strndup(inside, (size_t)(strrchr(inside, '/') - inside));
	AUTO_FD int above = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
	AUTO_FD int dir = -1;

	CHECK_INT(mkdirat(above, "source", 0700), 0);
	dir = openat(above, "source", O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK_INT(mkdirat(dir, "deep", 0700), 0);
	CHECK_INT(close(openat(dir, "deep/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600)), 0);
	CHECK_INT(symlinkat("deep/file", dir, "good"), 0);
	CHECK_INT(symlinkat("../inside", dir, "out"), 0);
	CHECK_INT(symlinkat(inside, dir, "far"), 0);
	CHECK_INT(symlinkat("..", dir, "up"), 0);
	CHECK_INT(mkfifoat(dir, "fifo", 0600), 0);
	CHECK_INT(try_open(dir, "deep/file"), 0);
	CHECK_INT(try_open(dir, "deep/../deep/file"), 0);
	CHECK_INT(try_open(dir, "good"), 0);
	CHECK_INT(try_open(dir, ""), 0);
	CHECK_INT(try_open(dir, "fifo"), 0); /* without waiting for a writer */
	CHECK_INT(try_open(dir, "missing"), -ENOENT);
	CHECK_INT(try_open(dir, "../inside"), -EXDEV);
	CHECK_INT(try_open(dir, "out"), -EXDEV);
	CHECK_INT(try_open(dir, "far"), -EXDEV);
	CHECK_INT(try_open(dir, "up/inside"), -EXDEV);
	CHECK_INT(try_open(dir, inside), -EXDEV);
	CHECK_INT(try_open(dir, NULL), -EXDEV);
}

static const struct check_test tests[] = {
	{ "paths_are_relative_to_source_or_mountpoint",
	  test_paths_are_relative_to_source_or_mountpoint },
	{ "nothing_leads_out", test_nothing_leads_out },
};

CHECK_MAIN(tests)
