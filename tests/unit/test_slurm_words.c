/* SPDX-License-Identifier: Apache-2.0 */
/* Records that hooks leave, and what the kernel's texts say of processes, mounts and cgroups. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "check.h"
#include "clairfs/base/clock.h"
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
		"clairfs-job\njob 1\nuid 1\ngid 1\n",
		"clairfs-job x\njob 1\nuid 1\ngid 1\n",
		"clairfs-jobs 1\njob 1\nuid 1\ngid 1\n",
		"clairfs-job 2\njob 1\nuid 1\nother\n",
		"clairfs-job 2\njob 1\nuid 1\ngid 1\npid x\n",
		"clairfs-job 2\njob 1\nuid 1\ngid 1\nother 1",
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

static void a_record_of_another_version_names_its_daemon(void)
{
	struct slurm_record record;

	CHECK_INT(record_of("clairfs-job 2\nwords\njob 7\nuid 1\ngid 2\nnew a b\npid 8\nstart 9\n"
			    "cgroup /c/job_7_8\n",
			    &record),
		  0);
	CHECK(record.job == 7 && record.uid == 1 && record.gid == 2);
	CHECK(record.pid == 8 && record.start == 9);
	CHECK_STR(record.cgroup, "/c/job_7_8");
}

static void a_job_is_over_in_a_last_state_only(void)
{
	static const char answer[] = "17 RUNNING\n18 COMPLETED\n19 SIGNALING\n20 REQUEUE_HOLD\n"
				     "21 NO_SUCH_STATE\n22\n23 COMPLETED \n24 COMPLETE\n"
				     "25 OUT_OF_MEMORY\n25 STAGE_OUT\n26 NODE_FAIL\n27 ";

	CHECK(slurm_words_is_over(answer, 18));
	CHECK(slurm_words_is_over(answer, 26));
	CHECK(slurm_words_is_over(answer, 1)); /* not there at all */
	CHECK(slurm_words_is_over("", 17));
	for (uint32_t job = 19; job <= 25; job++)
		CHECK(!slurm_words_is_over(answer, job));
	CHECK(!slurm_words_is_over(answer, 17));
	CHECK(!slurm_words_is_over(answer, 27));
}

static int sleep_on(void *ctx)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	while (pause() < 0)
		;
	return 0;
}

static int fail(void *ctx)
{
	*(int *)ctx = 1; /* of the child's copy */
	return -EXDEV;
}

static int kill_itself(void *ctx)
{
	return raise(SIGKILL);
}

static void look_at_children(void)
{
	int changed = 0;

	CHECK_INT(slurm_bounded(sleep_on, NULL, 20 * NS_PER_MS), -ETIMEDOUT);
	CHECK_INT(waitpid(-1, NULL, 0), -1); /* it was killed and is gone */
	CHECK_INT(errno, ECHILD);
	CHECK_INT(slurm_bounded(fail, &changed, 60 * NS_PER_S), -EXDEV);
	CHECK_INT(changed, 0);
	CHECK_INT(slurm_bounded(kill_itself, NULL, 60 * NS_PER_S), -EIO);
}

static void a_child_that_does_not_end_is_given_up(void)
{
	struct rlimit limit, none;

	look_at_children();
	/* Also without a descriptor of it. */
	CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = limit.rlim_max };
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
	look_at_children();
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* 0, or what the lock of this job gives another process. */
static int lock_of_child(int run, uint32_t job)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(slurm_job_lock(run, job, 20 * NS_PER_MS) < 0 ? EBUSY : 0);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void hooks_of_one_job_keep_each_other_out(void)
{
	char dir[] = "/tmp/clairfs-lock-XXXXXX", path[64];
	int run, lock;

	CHECK(mkdtemp(dir) != NULL);
	run = open(dir, O_RDONLY | O_DIRECTORY);
	CHECK(run >= 0);
	lock = slurm_job_lock(run, UINT32_MAX - 1, 0);
	CHECK(lock >= 0);
	CHECK_INT(lock_of_child(run, UINT32_MAX - 1), EBUSY);
	CHECK_INT(lock_of_child(run, UINT32_MAX - 2), 0);
	close(lock);
	CHECK_INT(lock_of_child(run, UINT32_MAX - 1), 0);
	/* A link in its place is not followed. */
	snprintf(path, sizeof(path), "%s/.lock", dir);
	CHECK_INT(unlink(path), 0);
	CHECK_INT(symlink("/etc/passwd", path), 0);
	CHECK_INT(slurm_job_lock(run, 1, 0), -ELOOP);
	CHECK_INT(unlink(path), 0);
	close(run);
	CHECK_INT(rmdir(dir), 0);
}

/* "" when it is not there. */
static void read_text(const char *dir, const char *name, char out[32])
{
	char path[128];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY);
	n = fd < 0 ? 0 : read(fd, out, 31);
	CHECK(n >= 0);
	out[n] = 0;
	if (fd >= 0)
		close(fd);
	(void)unlink(path);
}

static void make_empty(const char *dir, const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	CHECK(fd >= 0);
	close(fd);
}

/* Directories with the files of either version. */
static void limits_of_both_versions_are_written(void)
{
	char dir[] = "/tmp/clairfs-cgroup-XXXXXX", text[32];

	CHECK(mkdtemp(dir) != NULL);
	make_empty(dir, "memory.limit_in_bytes");
	slurm_cgroup_fit(1, dir, 1ull << 30);
	read_text(dir, "memory.limit_in_bytes", text);
	CHECK_STR(text, "2147483648");
	make_empty(dir, "memory.max");
	make_empty(dir, "memory.high");
	slurm_cgroup_fit(1, dir, 1ull << 30);
	read_text(dir, "memory.max", text);
	CHECK_STR(text, "2147483648");
	read_text(dir, "memory.high", text);
	CHECK_STR(text, "1610612736");
	slurm_cgroup_fit(1, dir, 1ull << 30); /* no such files: said in the log */
	slurm_cgroup_fit(1, "", 1ull << 30);
	CHECK_INT(rmdir(dir), 0);
}

static void a_limit_leaves_twice_what_is_needed(void)
{
	uint64_t high, limit;

	slurm_cgroup_limits(1ull << 30, &high, &limit);
	CHECK(high == 3ull << 29 && limit == 2ull << 30);
	slurm_cgroup_limits(0, &high, &limit);
	CHECK(high >= 64ull << 20 && limit > high);
	slurm_cgroup_limits(UINT64_MAX, &high, &limit);
	CHECK(high < limit && limit <= INT64_MAX);
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
	{ "a_record_of_another_version_names_its_daemon",
	  a_record_of_another_version_names_its_daemon },
	{ "a_job_is_over_in_a_last_state_only", a_job_is_over_in_a_last_state_only },
	{ "a_child_that_does_not_end_is_given_up", a_child_that_does_not_end_is_given_up },
	{ "hooks_of_one_job_keep_each_other_out", hooks_of_one_job_keep_each_other_out },
	{ "limits_of_both_versions_are_written", limits_of_both_versions_are_written },
	{ "a_limit_leaves_twice_what_is_needed", a_limit_leaves_twice_what_is_needed },
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
