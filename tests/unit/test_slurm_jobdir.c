/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of a job and the files in it: whole or not at all, no links followed; locks; work
 * that is given up in time; and what a site decides. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../src/slurm/slurm_priv.h"
#include "check.h"
#include "clairfs/base/clock.h"

/* A new RUN_DIR of this test's own. */
static int run_new(const char *name)
{
	AUTO_FREE char *path = check_tmpfile(name);
	int fd = slurm_run_open(path, true, NULL);

	CHECK(fd >= 0);
	return fd;
}

static void a_directory_that_others_may_write(void)
{
	AUTO_FREE char *path = check_tmpfile("run_open"), *link = check_tmpfile("run_link");
	struct err err = { 0 };
	int fd;

	CHECK(slurm_run_open(path, false, &err) < 0); /* nobody made it */
	CHECK(access(path, F_OK) < 0);
	fd = slurm_run_open(path, true, &err);
	CHECK(fd >= 0);
	close(fd);
	CHECK(chmod(path, 0775) == 0);
	CHECK_INT(slurm_run_open(path, true, &err), -EPERM);
	CHECK_CONTAINS(err.msg, "others can write it");
	CHECK(chmod(path, 0757) == 0);
	CHECK_INT(slurm_run_open(path, true, &err), -EPERM);
	CHECK(chmod(path, 0755) == 0 && symlink(path, link) == 0);
	CHECK(slurm_run_open(link, true, &err) < 0);
}

static void a_job_has_a_directory_of_its_own(void)
{
	int run = run_new("run_jobs"), fd;
	struct stat st;

	CHECK_INT(slurm_dir_open(run, 4711), -ENOENT);
	fd = slurm_dir_make(run, 4711);
	CHECK(fd >= 0);
	CHECK(fstat(fd, &st) == 0);
	CHECK_U64(st.st_mode & 07777, 0755);
	CHECK(fstatat(fd, "data", &st, 0) == 0);
	CHECK_U64(st.st_mode & 07777, 0700); /* the mountpoint is the user's alone */
	close(fd);
	fd = slurm_dir_make(run, 4711); /* a prolog that runs again */
	CHECK(fd >= 0);
	close(fd);
	fd = slurm_dir_open(run, 4711);
	CHECK(fd >= 0);
	close(fd);
	CHECK(symlinkat("4711", run, "4712") == 0);
	CHECK(slurm_dir_open(run, 4712) < 0);
	CHECK(slurm_dir_make(run, 4712) < 0);
	close(run);
}

static void jobs_are_found_by_their_directories(void)
{
	static const char *const others[] = {
		"0", "007", "-3", "x12", "12x", "4294967295", "4294967296", "99999999999999999999"
	};
	int run = run_new("run_found");
	uint32_t sum = 0, n = 0, job;
	DIR *dir;

	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		CHECK(mkdirat(run, others[i], 0700) == 0);
	close(slurm_dir_make(run, 1));
	close(slurm_dir_make(run, 20));
	close(slurm_dir_make(run, 4294967294u - 21));
	dir = fdopendir(run);
	CHECK(dir != NULL);
	while ((job = slurm_dir_next(dir)) != 0) {
		sum += job;
		n++;
	}
	CHECK_U64(n, 3);
	CHECK_U64(sum, 4294967294u);
	closedir(dir);
}

/* --- files --- */

static void a_record_comes_back(void)
{
	struct slurm_record record = { .job = 7,
				       .uid = 1000,
				       .gid = 100,
				       .pid = 4242,
				       .start = 123456789,
				       .spec = "/lustre/x" },
			    back;
	int run = run_new("run_record"), dir = slurm_dir_make(run, 7);
	struct stat st;

	CHECK_INT(slurm_record_read(dir, &back), -ENOENT);
	CHECK_INT(slurm_record_write(dir, &record), 0);
	CHECK_INT(slurm_record_read(dir, &back), 0);
	CHECK_U64(back.job, 7);
	CHECK_U64(back.uid, 1000);
	CHECK_U64((uint64_t)back.pid, 4242);
	CHECK_U64(back.start, 123456789);
	CHECK_STR(back.spec, "/lustre/x");
	CHECK(fstatat(dir, "record", &st, 0) == 0);
	CHECK_U64(st.st_mode & 07777, 0600); /* root's */
	record.pid = 4243;
	CHECK_INT(slurm_record_write(dir, &record), 0);
	CHECK_INT(slurm_record_read(dir, &back), 0);
	CHECK_U64((uint64_t)back.pid, 4243);
	close(dir);
	close(run);
}

static void a_status_comes_back(void)
{
	struct slurm_status status = { .state = SLURM_FAILED, .why = "the source is gone" }, back;
	int run = run_new("run_status"), dir = slurm_dir_make(run, 7), fd;
	struct stat st;

	CHECK_INT(slurm_status_read(dir, &back), -ENOENT);
	CHECK_INT(slurm_status_write(dir, &status, getegid()), 0);
	CHECK(fstatat(dir, "status", &st, 0) == 0);
	CHECK_U64(st.st_mode & 07777, 0640);
	CHECK_INT(slurm_status_read(dir, &back), 0);
	CHECK_INT(back.state, SLURM_FAILED);
	CHECK_STR(back.why, "the source is gone");
	/* As the user, who may not make a file any more: shorter, and nothing is left of the other.
	 */
	fd = openat(dir, "status", O_RDWR | O_CLOEXEC);
	status = (struct slurm_status){ .state = SLURM_READY };
	CHECK_INT(slurm_status_put(fd, &status), 0);
	close(fd);
	CHECK_INT(slurm_status_read(dir, &back), 0);
	CHECK_INT(back.state, SLURM_READY);
	CHECK_STR(back.why, "");
	close(dir);
	close(run);
}

static void no_temporary_file_is_left(void)
{
	struct slurm_record record = { .job = 7, .spec = "/x" };
	int run = run_new("run_temp"), dir = slurm_dir_make(run, 7);
	const struct dirent *entry;
	unsigned n = 0;
	DIR *list;

	CHECK_INT(slurm_record_write(dir, &record), 0);
	CHECK(mkdirat(dir, "status", 0700) == 0); /* nothing can be put in its place */
	CHECK(slurm_status_write(dir, &(struct slurm_status){ .state = SLURM_READY }, getegid()) <
	      0);
	list = fdopendir(dir);
	while ((entry = readdir(list)))
		n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
	CHECK_U64(n, 3); /* data, record, status */
	closedir(list);
	close(run);
}

static void make_text(int dir, const char *name, size_t size)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	AUTO_FREE char *text = malloc(size + 1);

	CHECK(fd >= 0 && text);
	memset(text, 'x', size);
	CHECK(write(fd, text, size) == (ssize_t)size);
	close(fd);
}

/* Never more than there is room for, nor a wait for whoever writes a FIFO. */
static void files_that_are_none(void)
{
	int run = run_new("run_odd"), dir = slurm_dir_make(run, 7);
	struct slurm_record record;
	struct slurm_status status;

	make_text(dir, "record", SLURM_RECORD_MAX);
	CHECK_INT(slurm_record_read(dir, &record), -EFBIG);
	make_text(dir, "record", SLURM_RECORD_MAX - 1);
	CHECK(slurm_record_read(dir, &record) < 0);
	make_text(dir, "status", SLURM_STATUS_MAX);
	CHECK_INT(slurm_status_read(dir, &status), -EFBIG);
	CHECK(unlinkat(dir, "record", 0) == 0 && mkfifoat(dir, "record", 0600) == 0);
	CHECK_INT(slurm_record_read(dir, &record), -EINVAL);
	CHECK(unlinkat(dir, "status", 0) == 0 && symlinkat("record", dir, "status") == 0);
	CHECK_INT(slurm_status_read(dir, &status), -ELOOP);
	close(dir);
	close(run);
}

/* --- locks --- */

static void one_prolog_at_a_time(void)
{
	int run = run_new("run_prolog"), dir = slurm_dir_make(run, 7), first, second;

	first = slurm_dir_lock(dir);
	CHECK(first >= 0);
	CHECK_INT(slurm_dir_lock(dir), -EBUSY);
	close(first);
	second = slurm_dir_lock(dir);
	CHECK(second >= 0);
	close(second);
	close(dir);
	close(run);
}

/* Locks are a process's: another one has to ask. */
static int ask_for(int run, uint32_t job)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(slurm_job_lock(run, job, 0) >= 0 ? 0 : 1);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void locks_of_jobs_are_apart(void)
{
	int run = run_new("run_locks"), fd = slurm_job_lock(run, 7, 0);

	CHECK(fd >= 0);
	CHECK_INT(ask_for(run, 7), 1);
	CHECK_INT(ask_for(run, 6), 0);
	CHECK_INT(ask_for(run, 8), 0);
	CHECK_INT(ask_for(run, UINT32_MAX - 1), 0);
	close(fd);
	CHECK_INT(ask_for(run, 7), 0);
	close(run);
}

/* --- what may never return --- */

static int say(void *ctx)
{
	return *(const int *)ctx;
}

static int hang(void *ctx)
{
	while (ctx)
		pause();
	return 0;
}

static int crash(void *ctx)
{
	(void)ctx;
	raise(SIGKILL);
	return 0;
}

static int change(void *ctx)
{
	*(int *)ctx = 1;
	return 0;
}

static void work_says_what_became_of_it(void)
{
	static const int answers[] = { 0, -ENOENT, -EIO, -255 };
	static const int nonsense[] = { 1, -256, INT_MIN };
	int changed = 0;

	for (size_t i = 0; i < ARRAY_LEN(answers); i++)
		CHECK_INT(slurm_bounded(say, (void *)(uintptr_t)&answers[i], 60 * NS_PER_S),
			  answers[i]);
	for (size_t i = 0; i < ARRAY_LEN(nonsense); i++)
		CHECK_INT(slurm_bounded(say, (void *)(uintptr_t)&nonsense[i], 60 * NS_PER_S), -EIO);
	CHECK_INT(slurm_bounded(crash, NULL, 60 * NS_PER_S), -EIO);
	CHECK_INT(slurm_bounded(change, &changed, 60 * NS_PER_S), 0);
	CHECK_INT(changed, 0); /* in a child */
}

static void work_that_hangs_is_given_up(void)
{
	CHECK_INT(slurm_bounded(hang, &(int){ 0 }, NS_PER_MS), -ETIMEDOUT);
	CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD); /* and it is gone */
}

static void time_that_is_left(void)
{
	struct slurm_clean c = { .deadline = 0 };
	uint64_t now = clock_now(clock_monotonic());

	CHECK_U64(slurm_in_time(&c, 5 * NS_PER_S), 5 * NS_PER_S);
	c.deadline = now + 3600 * NS_PER_S;
	CHECK_U64(slurm_in_time(&c, 5 * NS_PER_S), 5 * NS_PER_S);
	c.deadline = 1; /* long ago: a moment is left for what has to be tried */
	CHECK(slurm_in_time(&c, 5 * NS_PER_S) > 0 && slurm_in_time(&c, 5 * NS_PER_S) < NS_PER_S);
	CHECK_U64(slurm_in_time(&c, 1), 1);
}

/* --- what a site decides --- */

static int load(const char *text, struct slurm_site *site, struct err *err)
{
	AUTO_FREE char *path = check_write_file("site.conf", text, strlen(text));

	CHECK(chmod(path, 0644) == 0);
	return slurm_site_load(path, site, err);
}

static void a_site_that_says_nothing(void)
{
	struct slurm_site site;

	CHECK_INT(load("[hook]\n", &site, NULL), 0);
	CHECK_STR(site.run_dir, "/run/clairfs");
	CHECK(site.cgroup && site.systemd && !site.store);
	CHECK(!site.prolog_drains && !site.epilog_drains); /* no node is drained for a cache */
	conf_fini(&slurm_site_table, &site);
}

static void sites_that_contradict_themselves(void)
{
	struct err err = { 0 };
	struct slurm_site site;

	CHECK_INT(load("[hook]\nrun_dir = run/clairfs\n", &site, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "run_dir");
	CHECK_INT(load("[hook]\nstore = on\n", &site, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "local_dir");
	CHECK(load("[hook]\nno_such_option = 1\n", &site, &err) < 0);
	CHECK_CONTAINS(err.msg, "no_such_option");
	CHECK_INT(load("[hook]\nstore = on\nlocal_dir = /local\n[mount]\nram = 1G\n", &site, &err),
		  0);
	CHECK(site.store);
	CHECK_STR(site.local_dir, "/local");
	conf_fini(&slurm_site_table, &site);
	CHECK(slurm_site_load("/nowhere/clairfs.conf", &site, &err) < 0);
}

static void a_file_that_others_could_write_is_not_roots(void)
{
	AUTO_FREE char *path = check_write_file("open.conf", "[hook]\n", 7);
	struct err err = { 0 };
	struct slurm_site site;

	CHECK(chmod(path, 0666) == 0);
	if (geteuid() == 0) {
		CHECK_INT(slurm_site_load(path, &site, &err), -EPERM);
		CHECK_CONTAINS(err.msg, "others than root can write it");
	} else {
		CHECK_INT(slurm_site_load(path, &site, &err), 0);
		conf_fini(&slurm_site_table, &site);
	}
}

static void memory_that_a_job_may_ask_for(void)
{
	struct slurm_site site = { .ram_max = CONF_AUTO };
	uint64_t gib = UINT64_C(1) << 30;

	CHECK_U64(slurm_ram_max(&site, 256 * gib), 16 * gib);
	CHECK_U64(slurm_ram_max(&site, gib / 2), gib / 16); /* a little, however small the node */
	site.ram_max = 3 * gib;
	CHECK_U64(slurm_ram_max(&site, 256 * gib), 3 * gib);
	site.ram_max = 0;
	CHECK_U64(slurm_ram_max(&site, 256 * gib), UINT64_MAX);
}

static const struct check_test tests[] = {
	{ "a_directory_that_others_may_write", a_directory_that_others_may_write },
	{ "a_job_has_a_directory_of_its_own", a_job_has_a_directory_of_its_own },
	{ "jobs_are_found_by_their_directories", jobs_are_found_by_their_directories },
	{ "a_record_comes_back", a_record_comes_back },
	{ "a_status_comes_back", a_status_comes_back },
	{ "no_temporary_file_is_left", no_temporary_file_is_left },
	{ "files_that_are_none", files_that_are_none },
	{ "one_prolog_at_a_time", one_prolog_at_a_time },
	{ "locks_of_jobs_are_apart", locks_of_jobs_are_apart },
	{ "work_says_what_became_of_it", work_says_what_became_of_it },
	{ "work_that_hangs_is_given_up", work_that_hangs_is_given_up },
	{ "time_that_is_left", time_that_is_left },
	{ "a_site_that_says_nothing", a_site_that_says_nothing },
	{ "sites_that_contradict_themselves", sites_that_contradict_themselves },
	{ "a_file_that_others_could_write_is_not_roots",
	  a_file_that_others_could_write_is_not_roots },
	{ "memory_that_a_job_may_ask_for", memory_that_a_job_may_ask_for },
};

CHECK_MAIN(tests)
