/* SPDX-License-Identifier: Apache-2.0 */
/* Records that hooks leave, and what the kernel's texts say of processes, mounts and cgroups. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"
#include "src/slurm/slurm_priv.h"

static int record_of(const char *text, struct slurm_record *record)
{
	return slurm_record_parse(text, strlen(text), record);
}

static void a_record_is_read_as_it_was_printed(void)
{
	struct slurm_record record = { .job = 17,
				       .uid = 1000,
				       .gid = 100,
				       .pid = 4711,
				       .start = UINT64_MAX,
				       .spec = "/a,ram=1G",
				       .cgroup = "/sys/x y" },
			    again;
	char text[SLURM_RECORD_MAX];

	slurm_record_print(&record, text);
	CHECK_INT(record_of(text, &again), 0);
	CHECK(again.job == 17 && again.uid == 1000 && again.gid == 100 && again.pid == 4711);
	CHECK(again.start == UINT64_MAX);
	CHECK_STR(again.spec, "/a,ram=1G");
	CHECK_STR(again.cgroup, "/sys/x y");
	/* A node that lost power while it was written. */
	for (size_t n = 1; n < strlen(text); n++)
		if (text[n - 1] != '\n')
			CHECK_INT(slurm_record_parse(text, n, &again), -EINVAL);
}

static void what_is_no_record_is_refused(void)
{
	static const char *const bad[] = {
		"",
		"clairfs-job 2\njob 1\nuid 1\ngid 1\n",
		"clairfs-job 1\njob 1\nuid 1\n",
		"clairfs-job 1\njob 0\nuid 1\ngid 1\n",
		"clairfs-job 1\njob 1\njob 1\nuid 1\ngid 1\n",
		"clairfs-job 1\njob 1\nuid 4294967295\ngid 1\n",
		"clairfs-job 1\njob 1\nuid 1\ngid 1\npid -1\n",
		"clairfs-job 1\njob 1\nuid 1\ngid 1\npid 2147483648\n",
		"clairfs-job 1\njob 1\nuid 1\ngid 1\nother 1\n",
		"clairfs-job 1\njob 1\nuid 1\ngid 1\ncgroup x\n",
		"clairfs-job 1\njob 1\nuid 1\ngid 1\nspec\n",
		"clairfs-job 1\njob 1\nuid 1\ngid 1",
	};
	struct slurm_record record;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		CHECK_INT(record_of(bad[i], &record), -EINVAL);
	CHECK_INT(record_of("clairfs-job 1\ngid 1\nuid 1\njob 1\n", &record), 0);
}

static void a_status_says_why_in_one_line(void)
{
	struct slurm_status status = { .state = SLURM_FAILED,
				       .why = "it\nexport X=1",
				       .source = "/a" },
			    again;
	char text[SLURM_STATUS_MAX];

	slurm_status_print(&status, text);
	CHECK_STR(text, "clairfs-status 1\nfailed it\\nexport X=1\nsource /a\n");
	CHECK_INT(slurm_status_parse(text, strlen(text), &again), 0);
	CHECK_STR(again.why, "it\\nexport X=1");
	memset(status.why, '\n', sizeof(status.why) - 1);
	slurm_status_print(&status, text);
	CHECK_INT(slurm_status_parse(text, strlen(text), &again), 0);
	CHECK_STR(again.source, "/a");
	CHECK_INT(slurm_status_parse("clairfs-status 1\n", 17, &again), -EINVAL);
	CHECK_INT(slurm_status_parse("clairfs-status 1\nready x\n", 25, &again), -EINVAL);
}

static void the_start_of_a_process_is_behind_its_name(void)
{
	static const char text[] = "7 (a) 1 (b) S 9) S "
				   "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20\n";
	uint64_t start = 0;

	CHECK(slurm_words_start(text, strlen(text), &start));
	CHECK(start == 4711);
	CHECK(!slurm_words_start("7 (a) S 1 2", 11, &start));
	CHECK(!slurm_words_start("", 0, &start));
}

static void a_job_is_told_by_its_whole_number(void)
{
	static const char environment[] = "XSLURM_JOB_ID=17\0SLURM_JOB_ID=1\0SLURM_JOB_ID=178";

	CHECK(slurm_words_is_of_job(environment, sizeof(environment), 1));
	CHECK(slurm_words_is_of_job(environment, sizeof(environment), 178));
	CHECK(!slurm_words_is_of_job(environment, sizeof(environment), 17));
	CHECK(slurm_words_is_step("slurmstepd: [17.extern]", 23, 17));
	CHECK(!slurm_words_is_step("slurmstepd: [178.0]", 19, 17));
	CHECK(!slurm_words_is_step("slurmstepd: [17", 15, 17));
}

static void an_unknown_process_is_not_dead(void)
{
	struct slurm_record record = { .job = 1, .pid = getpid() };
	struct rlimit limit, none;
	int fd;

	CHECK_INT(slurm_process_open(&record), -EAGAIN); /* which of that number? */
	record.start = slurm_process_start(record.pid);
	CHECK(record.start != 0);
	fd = slurm_process_open(&record);
	CHECK(fd >= 0);
	close(fd);
	CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = limit.rlim_max };
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
	CHECK_INT(slurm_process_open(&record), -EAGAIN);
	CHECK(slurm_process_has_step(1));
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
	record.start++;
	CHECK_INT(slurm_process_open(&record), -ESRCH);
	record.pid = 0;
	CHECK_INT(slurm_process_open(&record), -ESRCH);
}

static bool is_slurmstepd(const char *status)
{
	return slurm_words_is_slurmstepd(status, strlen(status));
}

static void a_step_is_roots_own(void)
{
	CHECK(is_slurmstepd("Name:\tslurmstepd\nPid:\t7\nUid:\t0\t0\t0\t0\nGid:\t1\t1\t1\t1\n"));
	CHECK(!is_slurmstepd("Name:\tslurmstepd\nUid:\t10\t10\t10\t10\n"));
	/* A program that is root's for whoever runs it, under another name. */
	CHECK(!is_slurmstepd("Name:\tslurmstepd\nUid:\t10\t0\t0\t0\n"));
	CHECK(!is_slurmstepd("Name:\tslurmstepd2\nUid:\t0\t0\t0\t0\n"));
	CHECK(!is_slurmstepd("Name:\tsh\nUid:\t0\t0\t0\t0\n"));
	CHECK(!is_slurmstepd("Name:\tslurmstepd\n"));
	CHECK(!is_slurmstepd(""));
}

static bool mount_of(const char *line, struct slurm_mount *m)
{
	return slurm_mount_parse(line, strlen(line), m);
}

static void mounts_of_ours_are_found(void)
{
	struct slurm_mount m;

	CHECK(mount_of("36 35 0:98 / /run/a\\040b ro,nosuid shared:1 master:2 - fuse.clairfs "
		       "/x,user_id=0 ro,user_id=1000,group_id=100,max_read=4096",
		       &m));
	CHECK(m.id == 36 && m.minor == 98 && m.owner == 1000 && m.group == 100);
	CHECK_STR(m.path, "/run/a b");
	CHECK(!mount_of("36 35 0:98 / /a ro - fuse.other /x ro,user_id=1,group_id=1", &m));
	CHECK(!mount_of("36 35 0:98 / /a ro - fuse.clairfs /x ro,group_id=1", &m));
	CHECK(!mount_of("36 35 0:98 / /a ro - fuse.clairfs /x", &m));
	CHECK(!mount_of("36 35 98 / /a ro - fuse.clairfs /x user_id=1,group_id=1", &m));
	CHECK(!mount_of("36 35 0:98 / a ro - fuse.clairfs /x user_id=1,group_id=1", &m));
}

static void a_bare_directory_is_no_mount(void)
{
	struct slurm_mount m = { .owner = geteuid(), .group = getegid(), .path = "/" };

	CHECK(!slurm_mount_answers(&m));
	CHECK(!slurm_mount_is_dead(&m));
}

static void the_first_version_of_cgroups_comes_first(void)
{
	static const char both[] =
		"1 0 0:1 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n"
		"2 0 0:2 /docker/x /sys/fs/cgroup/memory rw - cgroup none rw,memory\n"
		"3 0 0:3 / /sys/fs/cgroup/memory rw shared:1 - cgroup none rw,memory\n";
	static const char second[] = "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 none rw\n"
				     "3 0 0:3 / /c rw - cgroup none rw,memoryx\n";
	char top[PATH_MAX];
	bool is_v2;

	CHECK(slurm_cgroup_hierarchy(both, strlen(both), &is_v2, top));
	CHECK(!is_v2);
	CHECK_STR(top, "/sys/fs/cgroup/memory");
	CHECK(slurm_cgroup_hierarchy(second, strlen(second), &is_v2, top));
	CHECK(is_v2);
	CHECK_STR(top, "/sys/fs/cgroup");
	CHECK(!slurm_cgroup_hierarchy("", 0, &is_v2, top));
}

static const struct check_test tests[] = {
	{ "a_record_is_read_as_it_was_printed", a_record_is_read_as_it_was_printed },
	{ "what_is_no_record_is_refused", what_is_no_record_is_refused },
	{ "a_status_says_why_in_one_line", a_status_says_why_in_one_line },
	{ "the_start_of_a_process_is_behind_its_name", the_start_of_a_process_is_behind_its_name },
	{ "a_job_is_told_by_its_whole_number", a_job_is_told_by_its_whole_number },
	{ "an_unknown_process_is_not_dead", an_unknown_process_is_not_dead },
	{ "a_step_is_roots_own", a_step_is_roots_own },
	{ "mounts_of_ours_are_found", mounts_of_ours_are_found },
	{ "a_bare_directory_is_no_mount", a_bare_directory_is_no_mount },
	{ "the_first_version_of_cgroups_comes_first", the_first_version_of_cgroups_comes_first },
};

int main(int argc, char **argv)
{
	return check_main(argc, argv, tests, ARRAY_LEN(tests));
}
