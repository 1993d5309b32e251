/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel's table says of mounts: of which kind, whose, and which of several at one place
 * is meant. Without a mount of ours. */
#include <errno.h>
#include <string.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "src/client/client_priv.h"

#define OURS "36 35 0:98 / /m/a ro,nosuid shared:1 - fuse.clairfs /src ro,user_id=1000,group_id=1"
#define OTHER "37 36 0:99 / /m/a rw - tmpfs none rw"
#define BELOW "38 36 0:97 / /m/a/b rw - tmpfs none rw"
#define BESIDE "39 35 0:96 / /m/ab ro - fuse.clairfs /src ro,user_id=7,group_id=1"

static struct mounts_line parsed(const char *text, char copy[256])
{
	struct mounts_line line;

	snprintf(copy, 256, "%s", text);
	mounts_parse_line(copy, &line);
	return line;
}

static void a_line_says_what_is_mounted_where_and_for_whom(void)
{
	static const struct {
		const char *text, *path;
		uid_t owner;
		bool is_ours;
	} rows[] = {
		{ OURS, "/m/a", 1000, true },
		{ OTHER, "/m/a", UINT32_MAX, false },
		{ "1 2 0:9 / /a\\040b\\134c ro - fuse.clairfs x rw,user_id=0,group_id=0",
		  "/a b\\c", 0, true },
		/* The source may be called anything: neither kind nor owner are taken from it. */
		{ "1 2 0:9 / /a ro - ext4 fuse.clairfs,user_id=5 rw", "/a", UINT32_MAX, false },
		{ "1 2 0:9 / /a ro - fuse.clairfs.x x rw", "/a", UINT32_MAX, false },
		{ "1 2 0:9 / /a ro a:1 b:2 - fuse.clairfs x rw,user_id=3,group_id=0", "/a", 3,
		  true },
	};
	char copy[256];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct mounts_line line = parsed(rows[i].text, copy);

		CHECK_STR(line.path, rows[i].path);
		CHECK_U64(line.owner, rows[i].owner);
		CHECK_INT(line.is_ours, rows[i].is_ours);
	}
	CHECK_U64(parsed(OURS, copy).dev, 98);
}

static void what_is_no_line_names_no_mount(void)
{
	static const char *const rows[] = { "",	   "\n",
					    "36",  "36 35 0:98 / /m/a ro shared:1",
					    "- -", "1 2 0:9 / /a ro -",
					    " - fuse.clairfs" };
	char copy[256];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		CHECK_STR(parsed(rows[i], copy).path, NULL);
}

/* What the lines, from the lowest mount up, say of /m/a. */
static struct mount_info found(const char *const *lines, size_t n)
{
	struct mount_info info = { .path = "/m/a" };

	for (size_t i = 0; i < n; i++) {
		char copy[256];

		snprintf(copy, sizeof(copy), "%s", lines[i]);
		mounts_take_line(copy, &info);
	}
	return info;
}

static void the_mount_on_top_is_meant(void)
{
	struct mount_info info = found((const char *const[]){ OURS, OTHER }, 2);

	CHECK(info.is_mounted && !info.is_ours && !info.is_covered);
	CHECK_U64(info.dev, 99);
	info = found((const char *const[]){ OTHER, OURS }, 2);
	CHECK(info.is_mounted && info.is_ours && !info.is_covered);
	CHECK_U64(info.owner, 1000);
	info = found((const char *const[]){ OURS, BELOW }, 2);
	CHECK(info.is_ours && info.is_covered);
	info = found((const char *const[]){ OTHER, BELOW, OURS }, 3); /* it hides what was below */
	CHECK(info.is_ours && !info.is_covered);
	info = found((const char *const[]){ BESIDE }, 1); /* /m/ab */
	CHECK(!info.is_mounted && !info.is_covered);
}

static void a_directory_without_a_mount_is_free(void)
{
	AUTO_FREE char *dir = check_tmpfile("free");
	char path[4096], wanted[4096];
	struct err err = { 0 };

	CHECK_INT(mkdir(dir, 0700), 0);
	CHECK(realpath(dir, wanted));
	CHECK_INT(mounts_make_free(dir, path, &err), 0);
	CHECK_STR(path, wanted);
	CHECK_INT(mounts_make_free("", path, &err), -EINVAL);
	CHECK_INT(mounts_make_free("/nowhere/at/all", path, &err), -ENOENT);
}

static void what_is_no_mount_of_ours_is_left_alone(void)
{
	struct umount_params params = { .mountpoint = "/proc" };
	struct err err = { 0 };

	CHECK_INT(mounts_umount(&params, &err), -ENOENT);
	CHECK_CONTAINS(err.msg, "/proc: not a clairfs mount");
	params.mountpoint = check_tmpdir();
	CHECK_INT(mounts_umount(&params, &err), -ENOENT);
	CHECK_CONTAINS(err.msg, "nothing is mounted there");
}

/* A mount that speaks version 1: of a hint, and of lists without names. */
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	struct clairfs_hint *hint;
	struct clairfs_list *list;
	va_list args;

	CHECK(fd >= 0);
	va_start(args, request);
	hint = va_arg(args, struct clairfs_hint *);
	va_end(args);
	list = (struct clairfs_list *)hint;
	if (request == CLAIRFS_IOC_ANNOUNCE ? hint->version != CLAIRFS_HINT_VERSION_NAMELESS
					    : list->flags & CLAIRFS_LIST_NAMED) {
		errno = EPROTO;
		return -1;
	}
	if (request == CLAIRFS_IOC_LIST)
		snprintf(list->text, sizeof(list->text), "list of %u", list->count);
	return 0;
}

static void put_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void an_older_mount_is_told_without_a_name(void)
{
	const char *dir = check_tmpdir();
	struct err err = { 0 };
	char path[512], *line = NULL;

	snprintf(path, sizeof(path), "%s/.clairfs", dir);
	CHECK_INT(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/.clairfs/control", dir);
	put_file(path, "");
	CHECK_INT(mounts_announce(dir, "torch-randperm:seed=3", &line, &err), 0);
	CHECK_STR(line, "torch-randperm:seed=3");
	free(line);
	CHECK_INT(chdir(dir), 0);
	put_file("numbers.txt", "1\n2\n3\n");
	CHECK_INT(mounts_announce(dir, "list:path=numbers.txt", &line, &err), 0);
	CHECK_STR(line, "list of 6"); /* bytes */
	free(line);
}

static void set(const char *rank, const char *world, const char *local, const char *locals)
{
	const char *const value[] = { rank, world, local, locals };
	static const char *const name[] = { "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE" };

	for (size_t i = 0; i < ARRAY_LEN(name); i++)
		CHECK_INT(value[i] ? setenv(name[i], value[i], 1) : unsetenv(name[i]), 0);
}

static void check_name(const char *spec, const char *want)
{
	char name[CLAIRFS_HINT_JOB];

	client_job_name(spec, name);
	CHECK_STR(name, want);
}

static void a_rank_that_tells_for_itself_has_a_name_of_its_own(void)
{
	char all[CLAIRFS_HINT_JOB];

	CHECK_INT(setenv("SLURM_JOB_ID", "4711", 1), 0);
	CHECK_INT(setenv("SLURM_STEP_ID", "0", 1), 0);
	set("3", "8", NULL, NULL);
	check_name("torch-distributed:seed=1:world=8:rank=3", "4711.0-rank3");
	check_name("torch-distributed:seed=1:world=8:rank=12", "4711.0-rank12");
	check_name("list:path=x", "4711.0-rank3");
	check_name("none", "4711.0-rank3");
	check_name("torch-distributed:seed=1:world=8:ranks=0-3", "4711.0"); /* for its node */
	set("3", "8", "1", "2");
	check_name("torch-distributed:seed=1:world=8:rank=3", "4711.0-rank3");
	check_name("list:path=x", "4711.0"); /* one speaks for the node */
	set("3", "8", "0", "1"); /* the only one of its node */
	check_name("torch-distributed:seed=1:world=8:rank=3", "4711.0");
	set("0", "1", NULL, NULL);
	check_name("torch-distributed:rank=0", "4711.0");
	set(NULL, NULL, NULL, NULL);
	check_name("torch-distributed:seed=1:world=8:rank=3", "4711.0");
	set("1", "2", NULL, NULL);
	memset(all, 'x', sizeof(all) - 1);
	all[sizeof(all) - 1] = '\0';
	CHECK_INT(setenv("SLURM_JOB_ID", all, 1), 0);
	memcpy(all + strlen(all) - 6, "-rank1", 6); /* it never loses that */
	check_name("none", all);
}

static const struct check_test tests[] = {
	{ "an_older_mount_is_told_without_a_name", an_older_mount_is_told_without_a_name },
	{ "a_rank_that_tells_for_itself_has_a_name_of_its_own",
	  a_rank_that_tells_for_itself_has_a_name_of_its_own },
	{ "a_line_says_what_is_mounted_where_and_for_whom",
	  a_line_says_what_is_mounted_where_and_for_whom },
	{ "what_is_no_line_names_no_mount", what_is_no_line_names_no_mount },
	{ "the_mount_on_top_is_meant", the_mount_on_top_is_meant },
	{ "a_directory_without_a_mount_is_free", a_directory_without_a_mount_is_free },
	{ "what_is_no_mount_of_ours_is_left_alone", what_is_no_mount_of_ours_is_left_alone },
};
CHECK_MAIN(tests)
