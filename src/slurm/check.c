/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a node is fit for mounts: for a health check program, every few minutes on every node.
 * So it is over in moments, asks no other node, and touches mounts and directories only in a child
 * that is given up on. A finding is a line that begins with "bad": something that only an operator
 * mends. What makes a mount slower or a node less tidy is "note", and no reason to take a node out.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/text.h"
#include "clairfs/fs.h"
#include "slurm_priv.h"

#define ALL_NS (3 * NS_PER_S) /* for all jobs, and for all mounts */
#define DIR_NS NS_PER_S

struct check {
	FILE *out;
	int n_bad;
	uint64_t deadline; /* of looking at jobs, then at mounts */
	int n_not_looked_at;
};

static void check_line(struct check *c, const char *word, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void check_line(struct check *c, const char *word, const char *fmt, ...)
{
	char text[1100], shown[1200];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	text_escape(text, strlen(text), shown, sizeof(shown));
	fprintf(c->out, "%-5s %s\n", word, shown);
	c->n_bad += strcmp(word, "bad") == 0;
}

static void check_kernel(struct check *c)
{
	struct fs_caps caps;

	fs_probe_caps(&caps);
	if (caps.has_dev_fuse)
		check_line(c, "ok", "/dev/fuse");
	else
		check_line(c, "bad", "/dev/fuse: %s", caps.dev_fuse_why);
	if (access("/sys/fs/fuse/connections", F_OK) < 0)
		check_line(c, "note", "the kernel has no /sys/fs/fuse: FUSE is not loaded");
	if (access("/proc/self/mountinfo", R_OK) < 0)
		check_line(c, "bad", "/proc is not mounted");
}

static void check_memory(struct check *c)
{
	uint64_t bytes = daemon_memory_available();
	char text[32];

	if (bytes)
		check_line(c, "ok", "memory: %s available", text_from_bytes(bytes, text, sizeof(text)));
}

/* What a child finds out about a directory, in memory of both. */
struct dir_look {
	char path[PATH_MAX];
	struct statvfs fs;
	struct stat st;
};

static int look_at_dir(void *ctx)
{
	struct dir_look *look = ctx;

	return stat(look->path, &look->st) < 0 || statvfs(look->path, &look->fs) < 0 ? -errno : 0;
}

/* word: of what is not as it must be. */
static void check_option_dir(struct check *c, const char *word, const char *option, const char *dir)
{
	struct dir_look *look = mmap(NULL, sizeof(*look), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char text[32];
	int rc;

	if (look == MAP_FAILED) {
		check_line(c, "note", "%s %s: %s", option, dir, strerror(errno));
		return;
	}
	snprintf(look->path, sizeof(look->path), "%s", dir);
	rc = slurm_bounded(look_at_dir, look, DIR_NS);
	if (rc < 0)
		check_line(c, word, "%s %s: %s", option, dir, strerror(-rc));
	else if (!S_ISDIR(look->st.st_mode) || look->st.st_uid != geteuid() ||
		 (look->st.st_mode & (S_IWGRP | S_IWOTH)))
		check_line(c, word, "%s %s: not a directory that root alone can write", option, dir);
	else
		check_line(c, "ok", "%s %s: %s free", option, dir,
			   text_from_bytes((uint64_t)look->fs.f_bavail * look->fs.f_frsize, text,
					   sizeof(text)));
	munmap(look, sizeof(*look));
}

static bool look_mount(void *ctx, const struct slurm_mount *m)
{
	struct check *c = ctx;

	if (clock_now(clock_monotonic()) > c->deadline)
		c->n_not_looked_at++;
	else if (slurm_mount_is_dead(m))
		check_line(c, "note", "%s is a dead mount of user %u", m->path, (unsigned)m->owner);
	return true;
}

/* Directories whose daemon has ended; a job may still be there. */
static void check_jobs(struct check *c, int run_fd)
{
	AUTO_FD int copy = openat(run_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct slurm_record record;
	uint32_t job;
	int alive = 0;

	if (!dir)
		return;
	copy = -1;
	while ((job = slurm_dir_next(dir)) != 0) {
		AUTO_FD int job_dir = slurm_dir_open(run_fd, job);
		AUTO_FD int daemon = job_dir >= 0 && slurm_record_read(job_dir, &record) == 0
					     ? slurm_process_open(&record)
					     : -1;

		if (daemon >= 0)
			alive++;
		else if (clock_now(clock_monotonic()) > c->deadline)
			c->n_not_looked_at++;
		else if (!slurm_process_has_step(job))
			check_line(c, "note", "job %u has left something: clairfs hook reap", job);
	}
	closedir(dir);
	check_line(c, "ok", "jobs with a mount: %d", alive);
}

static void check_site(struct check *c, const struct slurm_call *call)
{
	struct slurm_site site;
	struct err err = { 0 };
	AUTO_FD int run = -1;

	if (slurm_site_load(call->conf, &site, &err) < 0) {
		check_line(c, "bad", "%s", err.msg);
		return;
	}
	run = slurm_run_open(site.run_dir, geteuid() == 0, &err);
	if (run < 0)
		check_line(c, geteuid() == 0 ? "bad" : "note", "%s", err.msg);
	else
		check_jobs(c, run);
	if (site.local_dir)
		check_option_dir(c, "bad", "local_dir", site.local_dir);
	if (site.report_dir)
		check_option_dir(c, "note", "report_dir", site.report_dir);
	if (site.memory_max && site.memory_max != CONF_AUTO &&
	    (!site.cgroup || (site.systemd && access("/run/systemd/system", F_OK) == 0)))
		check_line(c, "note",
			   "memory_max is not applied without a cgroup of ours: with systemd set "
			   "MemoryMax= for clairfs@.service");
	if (site.spec) {
		struct slurm_spec spec;

		if (slurm_spec_parse(site.spec, strlen(site.spec), &spec, &err) < 0)
			check_line(c, "bad", "option spec: %s", err.msg);
	}
	conf_fini(&slurm_site_table, &site);
}

static void check_mount_options(struct check *c, const struct slurm_call *call)
{
	static const char *const others[] = { "hook", NULL };
	const char *path = slurm_conf_path(call->conf);
	struct mount_opts opts;
	struct err err = { 0 };
	struct stat st;

	if (path && stat(path, &st) == 0 && !(st.st_mode & S_IROTH))
		check_line(c, "note", "%s: not all users can read it, and the task prolog is one", path);
	if (!path || conf_init(&mount_option_table, &opts, &err) < 0)
		return;
	if (conf_load_beside(&mount_option_table, &opts, path, others, &err) < 0)
		check_line(c, "bad", "%s", err.msg);
	else if (opts.allow_other)
		check_line(c, "bad", "%s: allow_other is not for mounts of jobs", path);
	else
		check_line(c, "ok", "%s", path);
	conf_fini(&mount_option_table, &opts);
}

int slurm_check(const struct slurm_call *call)
{
	struct check c = { .out = call->out, .deadline = clock_now(clock_monotonic()) + ALL_NS };

	check_kernel(&c);
	check_memory(&c);
	check_site(&c, call);
	check_mount_options(&c, call);
	c.deadline = clock_now(clock_monotonic()) + ALL_NS;
	if (slurm_mount_each(look_mount, &c) < 0)
		check_line(&c, "bad", "the kernel's table of mounts cannot be read");
	if (c.n_not_looked_at)
		check_line(&c, "note", "jobs and mounts not looked at, as others did not answer: %d",
			   c.n_not_looked_at);
	return c.n_bad ? 1 : 0;
}
