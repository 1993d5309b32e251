/* SPDX-License-Identifier: Apache-2.0 */
/* Files of cgroups as they are read. What their texts mean is held in test_daemon_memlimit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "clairfs/base/cgroup.h"
#include "clairfs/base/crowd.h"

static void write_text(const char *name, const char *text)
{
	free(check_write_file(name, text, strlen(text)));
}

static uint64_t number_of(const char *text)
{
	write_text("number", text);
	return cgroup_number(check_tmpdir(), "number");
}

static void a_number_is_all_of_the_first_line(void)
{
	CHECK_U64(number_of("4096\n"), 4096);
	CHECK_U64(number_of("0\n"), 0);
	CHECK_U64(number_of("17"), 17); /* no line end */
	CHECK_U64(number_of("18446744073709551614\n7\n"), UINT64_MAX - 1);
	CHECK_U64(number_of("max\n"), CGROUP_NONE);
	CHECK_U64(number_of("18446744073709551616\n"), CGROUP_NONE); /* one more than fits */
	CHECK_U64(number_of("-1\n"), CGROUP_NONE);
	CHECK_U64(number_of("12x\n"), CGROUP_NONE);
	CHECK_U64(number_of(" 12\n"), CGROUP_NONE);
	CHECK_U64(number_of("\n12\n"), CGROUP_NONE);
	CHECK_U64(number_of(""), CGROUP_NONE);
}

static void no_file_is_no_limit(void)
{
	CHECK_U64(cgroup_number(check_tmpdir(), "nothing"), CGROUP_NONE);
	CHECK_U64(cgroup_number("/nowhere/at/all", "memory.max"), CGROUP_NONE);
	CHECK_U64(cgroup_stat(check_tmpdir(), "nothing", "anon"), CGROUP_NONE);
	CHECK_U64(cgroup_stat("/", "proc", "anon"), CGROUP_NONE); /* a directory */
}

static void a_key_among_many(void)
{
	write_text("stat", "anon 1\nanon_thp 2\nfile 3\ninactive_file 44\nlast 5");
	CHECK_U64(cgroup_stat(check_tmpdir(), "stat", "anon"), 1);
	CHECK_U64(cgroup_stat(check_tmpdir(), "stat", "file"), 3);
	CHECK_U64(cgroup_stat(check_tmpdir(), "stat", "inactive_file"), 44);
	CHECK_U64(cgroup_stat(check_tmpdir(), "stat", "last"), 5);
	CHECK_U64(cgroup_stat(check_tmpdir(), "stat", "anon_"), CGROUP_NONE);
	CHECK_U64(cgroup_stat(check_tmpdir(), "stat", "active_file"), CGROUP_NONE);
}

/* memory.stat of today has 3 KB; nobody says that it stays so. */
static void a_file_of_any_length(void)
{
	enum { LINES = 5000 };
	AUTO_FREE char *text = malloc(LINES * 16);
	size_t at = 0;

	CHECK(text != NULL);
	for (int i = 0; i < LINES; i++)
		at += (size_t)sprintf(text + at, "key%d %d\n", i, i);
	write_text("long", text);
	CHECK_U64(cgroup_stat(check_tmpdir(), "long", "key0"), 0);
	CHECK_U64(cgroup_stat(check_tmpdir(), "long", "key341"), 341); /* about 4096 bytes in */
	CHECK_U64(cgroup_stat(check_tmpdir(), "long", "key4999"), 4999);
}

/* --- the cgroups of a process --- */

struct seen {
	unsigned n;
	char dirs[4 * PATH_MAX]; /* "/a/b /a" */
};

static void see(void *ctx, const char *dir)
{
	struct seen *s = ctx;
	size_t len = strlen(s->dirs);

	CHECK((size_t)snprintf(s->dirs + len, sizeof(s->dirs) - len, "%s%s", s->n ? " " : "", dir) <
	      sizeof(s->dirs) - len);
	s->n++;
}

static const char *seen_in(const char *cgroup, const char *mounts, const char *controller)
{
	const struct cgroup_texts texts = { .cgroup = cgroup,
					    .mounts = mounts,
					    .cgroup_len = strlen(cgroup),
					    .mounts_len = strlen(mounts) };
	static struct seen s;

	s = (struct seen){ .n = 0 };
	cgroup_each_in(&texts, controller, see, &s);
	return s.dirs;
}

static void from_the_inside_to_the_outside(void)
{
	static const char one[] = "35 31 0:32 / /sys/m rw - cgroup c rw,memory\n";
	static const char two[] = "41 31 0:38 / /sys/u rw - cgroup2 c rw\n";
	static const char both[] = "35 31 0:32 / /sys/m rw - cgroup c rw,memory\n"
				   "41 31 0:38 / /sys/u rw - cgroup2 c rw\n";
	static const char in[] = "4:cpu,memory:/a/b\n0::/u/v\n";

	CHECK_STR(seen_in(in, two, "memory"), "/sys/u/u/v /sys/u/u /sys/u");
	CHECK_STR(seen_in(in, one, "memory"), "/sys/m/a/b /sys/m/a /sys/m");
	/* One of each version: within one each is above the one before. */
	CHECK_STR(seen_in(in, both, "memory"), "/sys/u/u/v /sys/u/u /sys/u /sys/m/a/b /sys/m/a /sys/m");
	CHECK_STR(seen_in(in, both, "cpu"), "/sys/u/u/v /sys/u/u /sys/u");
	CHECK_STR(seen_in("0::/\n", both, "memory"), "/sys/u");
	CHECK_STR(seen_in("0::/../..\n", both, "memory"), "/sys/u"); /* above what can be seen */
	CHECK_STR(seen_in(in, "", "memory"), "");
	CHECK_STR(seen_in("", both, "memory"), "");
}

static struct seen look_at(pid_t pid, const char *controller)
{
	struct seen s = { .n = 0 };

	cgroup_each(pid, controller, see, &s);
	return s;
}

static char *text_of(const char *path)
{
	enum { SIZE = 1 << 20 };
	char *text = calloc(1, SIZE);
	FILE *f = fopen(path, "re");

	CHECK(text != NULL);
	if (f) /* else a kernel without cgroups, which says nothing */
		CHECK(fread(text, 1, SIZE - 1, f) < SIZE - 1 && fclose(f) == 0);
	return text;
}

/* Wherever this runs, be it in none. */
static void this_process_is_where_its_texts_say(void)
{
	AUTO_FREE char *cgroup = text_of("/proc/self/cgroup");
	AUTO_FREE char *mounts = text_of("/proc/self/mountinfo");
	struct seen mine = look_at(0, "memory"), other = look_at(getpid(), "memory");

	CHECK_STR(mine.dirs, seen_in(cgroup, mounts, "memory"));
	CHECK_STR(other.dirs, mine.dirs);
}

static void nobody_is_in_none(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	CHECK(pid > 0 && waitpid(pid, NULL, 0) == pid);
	CHECK_U64(look_at(pid, "memory").n, 0);
}

/* --- who waits for a CPU --- */

static void sums_in_files(void)
{
	AUTO_FREE char *path = NULL;

	write_text("cpu.pressure", "some avg10=1.00 avg60=0.00 avg300=0.00 total=1234\n"
				   "full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n");
	path = check_tmpfile("cpu.pressure");
	CHECK_U64(crowd_sum_in(path), 1234);
	write_text("cpu.pressure", "");
	CHECK_U64(crowd_sum_in(path), CGROUP_NONE);
	write_text("cpu.pressure", "nonsense\n");
	CHECK_U64(crowd_sum_in(path), CGROUP_NONE);
	CHECK_U64(crowd_sum_in("/nowhere"), CGROUP_NONE);
}

static void the_file_of_a_thread_says_something(void)
{
	char file[4096], small[4];

	if (!crowd_file_of(getpid(), file, sizeof(file))) {
		CHECK(!crowd_file_of(getpid(), small, sizeof(small)));
		return; /* a kernel without PSI, or one that shows no cgroup */
	}
	CHECK(strlen(file) > strlen("/cpu.pressure"));
	CHECK_STR(file + strlen(file) - strlen("/cpu.pressure"), "/cpu.pressure");
	CHECK(crowd_sum_in(file) != CGROUP_NONE);
	CHECK(!crowd_file_of(getpid(), small, sizeof(small))); /* it does not fit */
}

static const struct check_test tests[] = {
	{ "a_number_is_all_of_the_first_line", a_number_is_all_of_the_first_line },
	{ "no_file_is_no_limit", no_file_is_no_limit },
	{ "a_key_among_many", a_key_among_many },
	{ "a_file_of_any_length", a_file_of_any_length },
	{ "from_the_inside_to_the_outside", from_the_inside_to_the_outside },
	{ "this_process_is_where_its_texts_say", this_process_is_where_its_texts_say },
	{ "nobody_is_in_none", nobody_is_in_none },
	{ "sums_in_files", sums_in_files },
	{ "the_file_of_a_thread_says_something", the_file_of_a_thread_says_something },
};

CHECK_MAIN(tests)
