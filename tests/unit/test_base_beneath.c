/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths that must not lead out of a directory: with openat2 where the kernel has it and step by
 * step, both against the same table; which directories a symlink is said to lead through; and
 * somebody who replaces files and directories while they are opened.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"
#include "clairfs/base/beneath.h"
#include "clairfs/base/thr.h"

typedef int (*open_fn)(int root_fd, const char *path, int flags);
static const open_fn ways[] = { beneath_open, beneath_open_by_steps };

enum { FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK };

static void make_dir(int at, const char *name, mode_t mode)
{
	CHECK_INT(mkdirat(at, name, 0755), 0);
	CHECK_INT(fchmodat(at, name, mode, 0), 0);
}

static void make_file(int at, const char *name, const char *text)
{
	AUTO_FD int fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	CHECK(fd >= 0);
	CHECK_INT(write(fd, text, strlen(text)), (int64_t)strlen(text));
}

/* A new directory with `root` in it, and a file beside that. */
static int make_root(const char *name, char **ret_dir)
{
	char *dir = check_tmpfile(name);
	AUTO_FD int fd = -1;

	CHECK_INT(mkdir(dir, 0755), 0);
	fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(fd >= 0);
	make_dir(fd, "root", 0755);
	make_dir(fd, "root2", 0755);
	make_file(fd, "outside", "outside");
	make_file(fd, "root2/file", "outside");
	*ret_dir = dir;
	return openat(fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static int read_text(int root, open_fn way, const char *path, char *out, size_t size)
{
	AUTO_FD int fd = way(root, path, FLAGS);
	ssize_t n;

	if (fd < 0)
		return fd;
	n = read(fd, out, size - 1);
	if (n < 0)
		return -errno;
	out[n] = '\0';
	return 0;
}

/* As containers do it. */
static int refuse_openat2(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { ARRAY_LEN(code), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
		return -errno;
	return 0;
}

/* In a process of its own, before this one has asked: the answer is kept. */
static void where_openat2_is_refused_files_are_opened_all_the_same(void)
{
	AUTO_FREE char *dir = NULL;
	AUTO_FD int root = make_root("refused", &dir);
	struct open_how how;
	char text[16];
	int status;
	pid_t pid;

	make_file(root, "file", "f");
	CHECK_INT(symlinkat("../outside", root, "out"), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		bool is_right = refuse_openat2() == 0 && !beneath_how(FLAGS, &how) &&
				read_text(root, beneath_open, "file", text, sizeof(text)) == 0 &&
				strcmp(text, "f") == 0 &&
				read_text(root, beneath_open, "out", text, sizeof(text)) == -EXDEV;

		_exit(is_right ? 0 : 1);
	}
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(status, 0);
}

static void both_ways_open_and_refuse_alike(void)
{
	static const struct {
		const char *link, *target; /* made first, NULL: none */
		const char *path;
		int status;
		const char *text;
	} rows[] = {
		{ NULL, NULL, "file", 0, "f" },
		{ NULL, NULL, "./a//b/./file", 0, "ab" },
		{ NULL, NULL, "a/../a/b/file", 0, "ab" },
		{ NULL, NULL, "a/b/../../file", 0, "f" },
		{ NULL, NULL, "..", -EXDEV, NULL },
		{ NULL, NULL, "../root/file", -EXDEV, NULL },
		{ NULL, NULL, "a/../../outside", -EXDEV, NULL },
		{ NULL, NULL, "../root2/file", -EXDEV, NULL },
		{ NULL, NULL, "missing", -ENOENT, NULL },
		{ NULL, NULL, "file/", -ENOTDIR, NULL },
		{ NULL, NULL, "file/x", -ENOTDIR, NULL },
		{ "l1", "file", "l1", 0, "f" },
		{ "a/l2", "../file", "a/l2", 0, "f" },
		{ "a/l3", "../../outside", "a/l3", -EXDEV, NULL },
		{ "l4", "/etc/passwd", "l4", -EXDEV, NULL },
		{ "l5", "a", "l5/b/file", 0, "ab" },
		{ "l6", "l5/b", "l6/../b/file", 0, "ab" },
		{ "a/b/l7", "../../l6/file", "a/b/l7", 0, "ab" },
		{ "l8", "l8", "l8", -ELOOP, NULL },
		{ "l9", "l10", "l9/x", -ENOENT, NULL },
		{ "l10", "l9", "l10", -ELOOP, NULL },
		{ "l11", "..", "l11/outside", -EXDEV, NULL },
		{ "l12", "a/b/../../../outside", "l12", -EXDEV, NULL },
		{ "l13", "file/", "l13", -ENOTDIR, NULL },
		{ "l14", "..", "l14", -EXDEV, NULL },
		{ "l15", "/proc/self/root/etc/passwd", "l15", -EXDEV, NULL },
	};
	AUTO_FREE char *dir = NULL;
	AUTO_FD int root = make_root("table", &dir);
	char text[16];

	make_file(root, "file", "f");
	make_dir(root, "a", 0755);
	make_dir(root, "a/b", 0755);
	make_file(root, "a/b/file", "ab");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (rows[i].link)
			CHECK_INT(symlinkat(rows[i].target, root, rows[i].link), 0);
		for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
			printf("# %s, way %zu\n", rows[i].path, w);
			CHECK_INT(read_text(root, ways[w], rows[i].path, text, sizeof(text)),
				  rows[i].status);
			if (rows[i].text)
				CHECK_STR(text, rows[i].text);
		}
	}
}

static void forty_links_are_followed_and_not_one_more(void)
{
	AUTO_FREE char *dir = NULL;
	AUTO_FD int root = make_root("chain", &dir);
	char name[16], target[16] = "file", text[8];

	make_file(root, "file", "f");
	for (int i = 1; i <= BENEATH_LINKS_MAX + 1; i++) {
		snprintf(name, sizeof(name), "l%d", i);
		CHECK_INT(symlinkat(target, root, name), 0);
		snprintf(target, sizeof(target), "%s", name);
	}
	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		CHECK_INT(read_text(root, ways[w], "l40", text, sizeof(text)), 0);
		CHECK_INT(read_text(root, ways[w], "l41", text, sizeof(text)), -ELOOP);
	}
}

struct crossings {
	ino_t ino[8];
	unsigned n;
};

static void note_crossed(void *ctx, int fd, const struct stat *st)
{
	struct crossings *c = ctx;

	CHECK(c->n < ARRAY_LEN(c->ino));
	c->ino[c->n++] = st->st_ino;
}

static ino_t ino_of(int root, const char *path)
{
	struct stat st;

	CHECK_INT(fstatat(root, path, &st, 0), 0);
	return st.st_ino;
}

/* Looks and compares what was crossed with a list of paths, ended by NULL. */
static void check_crossed(int root, const char *path, bool is_link, const char *const *wanted)
{
	struct crossings c = { .n = 0 };
	struct beneath_visit visit = { note_crossed, &c };
	struct beneath_found found;
	unsigned i;

	printf("# %s\n", path);
	CHECK_INT(beneath_look(root, path, &visit, &found), 0);
	CHECK_INT(found.is_link, is_link);
	CHECK_U64(found.st.st_ino, ino_of(root, path));
	close(found.fd);
	for (i = 0; wanted[i]; i++) {
		CHECK(i < c.n);
		CHECK_U64(c.ino[i], ino_of(root, wanted[i]));
	}
	CHECK_INT(c.n, i);
}

static void only_directories_that_the_path_does_not_have_are_crossed(void)
{
	AUTO_FREE char *dir = NULL;
	AUTO_FD int root = make_root("crossed", &dir);

	make_dir(root, "x", 0755);
	make_dir(root, "x/y", 0755);
	make_dir(root, "links", 0755);
	make_file(root, "x/y/file", "f");
	make_file(root, "links/plain", "f");
	CHECK_INT(symlinkat("../x/y/file", root, "links/file"), 0);
	CHECK_INT(symlinkat("plain", root, "links/near"), 0);
	CHECK_INT(symlinkat("../x/y", root, "links/dir"), 0);
	CHECK_INT(symlinkat("../x/../links/plain", root, "links/around"), 0);
	CHECK_INT(symlinkat("../y/file", root, "x/y/back"), 0);
	check_crossed(root, ".", false, (const char *const[]){ NULL });
	check_crossed(root, "x/y/file", false, (const char *const[]){ NULL });
	check_crossed(root, "links/near", true, (const char *const[]){ NULL });
	check_crossed(root, "links/file", true, (const char *const[]){ "x", "x/y", NULL });
	check_crossed(root, "links/dir", true, (const char *const[]){ "x", NULL });
	/* Also behind it: what the path has there may be another directory soon. */
	check_crossed(root, "links/dir/file", false, (const char *const[]){ "x", "x/y", NULL });
	check_crossed(root, "links/dir/back", true,
		      (const char *const[]){ "x", "x/y", "x/y", "x", "x/y", NULL });
	check_crossed(root, "links/around", true, (const char *const[]){ "x", NULL });
}

static void no_descriptor_is_left(void)
{
	AUTO_FREE char *dir = NULL;
	AUTO_FD int root = make_root("fds", &dir);
	int before = dup(root), after;

	close(before);
	make_dir(root, "a", 0755);
	CHECK_INT(symlinkat("../a/missing", root, "a/l"), 0);
	for (int i = 0; i < 100; i++) {
		struct beneath_found found;

		CHECK_INT(beneath_open_by_steps(root, "a/l", FLAGS), -ENOENT);
		CHECK_INT(beneath_look(root, "a/../..", NULL, &found), -EXDEV);
		CHECK_INT(beneath_look(root, "a", NULL, &found), 0);
		close(found.fd);
	}
	after = dup(root);
	close(after);
	CHECK_INT(after, before);
}

struct attacker {
	int dir; /* above root */
	_Atomic bool is_over;
};

/* Puts a file, a symlink that leaves, and a directory that is moved out of the root where the same
 * names are. */
static void *attack(void *arg)
{
	struct attacker *a = arg;

	while (!atomic_load(&a->is_over)) {
		(void)renameat(a->dir, "root/leaving", a->dir, "root/spare");
		(void)renameat(a->dir, "root/file", a->dir, "root/leaving");
		(void)renameat(a->dir, "root/leaving", a->dir, "root/file");
		(void)renameat(a->dir, "root/spare", a->dir, "root/file");
		(void)renameat(a->dir, "root/a/b", a->dir, "b");
		(void)renameat(a->dir, "b", a->dir, "root/a/b");
		(void)unlinkat(a->dir, "root/file", 0);
		(void)symlinkat("../outside", a->dir, "root/leaving");
		make_file(a->dir, "root/file", "inside");
	}
	return NULL;
}

static void whoever_replaces_things_meanwhile_leads_nobody_out(void)
{
	static const char *const paths[] = { "file", "a/b/../../file", "leaving", "a/b/../outside",
					     "a/b/../../outside" };
	struct attacker a = { .is_over = false };
	AUTO_FREE char *dir = NULL;
	AUTO_FD int root = make_root("race", &dir);
	unsigned n_read = 0;
	struct thr thr = { 0 };
	char text[16] = "";

	make_dir(root, "a", 0755);
	make_dir(root, "a/b", 0755);
	a.dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(a.dir >= 0);
	CHECK_INT(thr_start(&thr, "attack", attack, &a, NULL), 0);
	for (int i = 0; i < 20000; i++) {
		open_fn way = ways[i % 2];

		if (read_text(root, way, paths[i % ARRAY_LEN(paths)], text, sizeof(text)) < 0)
			continue;
		n_read++;
		if (strcmp(text, "outside") == 0)
			break;
	}
	atomic_store(&a.is_over, true);
	thr_join(&thr);
	close(a.dir);
	CHECK(strcmp(text, "outside") != 0);
	printf("# %u opened\n", n_read);
}

static const struct check_test tests[] = {
	{ "where_openat2_is_refused_files_are_opened_all_the_same",
	  where_openat2_is_refused_files_are_opened_all_the_same },
	{ "both_ways_open_and_refuse_alike", both_ways_open_and_refuse_alike },
	{ "forty_links_are_followed_and_not_one_more", forty_links_are_followed_and_not_one_more },
	{ "only_directories_that_the_path_does_not_have_are_crossed",
	  only_directories_that_the_path_does_not_have_are_crossed },
	{ "no_descriptor_is_left", no_descriptor_is_left },
	{ "whoever_replaces_things_meanwhile_leads_nobody_out",
	  whoever_replaces_things_meanwhile_leads_nobody_out },
};

CHECK_MAIN(tests)
