/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking things away, for epilog, prolog (the same job once more) and reap. All of it may be there
 * or not, and may have been tried before: a node can stop at any moment and a job can be requeued
 * with its number. So each step looks at what is there now, and the directory goes last: as long as
 * it is there, somebody will come back to it.
 *
 * The order for one job: the mount is taken away, which ends its daemon; a mount in use is taken
 * away by force. A daemon that goes on (another mount namespace has a copy of the mount) is told to
 * end, waited for while it writes what it has, and then killed.
 *
 * A step that fails keeps none of the others from being tried. Whatever can hang is done by a child
 * with a limit of time. Callers hold the job's lock.
 *
 * As root, one thread.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "slurm_priv.h"

#define BUSY_TRIES 10 /* 20 ms each: a lookup of the daemon's own gives way */
#define KILLED_NS (3 * NS_PER_S)
#define USER_NS (3 * NS_PER_S)
#define UNMOUNT_NS NS_PER_S
#define REPORT_NS (2 * NS_PER_S)
#define LEAST_NS (100 * NS_PER_MS)
#define RUNS_MAX 100 /* reports of one job number on one node */
#define REPORT_MAX (256 << 20)

/* --- the mount --- */

struct job_mount {
	char path[PATH_MAX];
	uint64_t ns;
	int rc; /* of the last one that was taken away */
	bool is_any;
};

/* The daemon unmounts as well when it ends. */
static int clean_unmount(const char *path, int flags)
{
	if (umount2(path, flags | UMOUNT_NOFOLLOW) == 0 || errno == EINVAL || errno == ENOENT)
		return 0;
	return -errno;
}

/* By path: everything above the mountpoint is root's. */
static int take_away(void *ctx)
{
	const char *path = ctx;
	struct timespec pause = { .tv_nsec = 20 * NS_PER_MS };

	for (int i = 0; i < BUSY_TRIES; i++) {
		int rc = clean_unmount(path, 0);

		if (rc != -EBUSY)
			return rc;
		nanosleep(&pause, NULL);
	}
	return clean_unmount(path, MNT_FORCE | MNT_DETACH);
}

static bool look_job_mount(void *ctx, const struct slurm_mount *m)
{
	struct job_mount *job = ctx;

	if (strcmp(m->path, job->path) == 0) {
		job->is_any = true;
		job->rc = slurm_bounded(take_away, job->path, job->ns);
		if (job->rc == -EAGAIN || job->rc == -ENOMEM) /* rather without a limit */
			job->rc = take_away(job->path);
	}
	return true;
}

static int unmount_job(const struct slurm_clean *c, uint32_t job, bool *ret_was_mounted,
		       struct err *err)
{
	struct job_mount mount = { .ns = slurm_in_time(c, UNMOUNT_NS) };
	char run[PATH_MAX];
	int rc;

	*ret_was_mounted = false;
	/* As the kernel names it. */
	if (!realpath(c->site->run_dir, run))
		return err_set_errno(err, -errno, "run_dir");
	if (snprintf(mount.path, PATH_MAX, "%s/%u/data", run, job) >= PATH_MAX)
		return err_set_errno(err, -ENAMETOOLONG, "run_dir");
	rc = slurm_mount_each(look_job_mount, &mount);
	*ret_was_mounted = mount.is_any;
	if (rc == 0)
		rc = mount.rc;
	return rc < 0 ? err_set_errno(err, rc, "unmounting %s", mount.path) : 0;
}

/* --- the daemon --- */

uint64_t slurm_in_time(const struct slurm_clean *c, uint64_t ns)
{
	uint64_t now = clock_now(clock_monotonic());
	uint64_t left = c->deadline > now ? c->deadline - now : 0;

	return !c->deadline ? ns : MIN(ns, MAX(left, LEAST_NS));
}

static int end_daemon(const struct slurm_clean *c, const struct slurm_record *r, bool was_mounted,
		      struct err *err)
{
	/* The end of its mount ends it. Without one it makes its index still. */
	uint64_t first_ns = was_mounted ? MIN(c->wait_ns, NS_PER_S) : 0;
	AUTO_FD int fd = slurm_process_open(r);

	if (fd == -EAGAIN)
		return err_set(err, fd, "whether the daemon of job %u (%d) lives is not known",
			       r->job, (int)r->pid);
	if (fd < 0 || slurm_process_ends(fd, slurm_in_time(c, first_ns)))
		return 0;
	(void)syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0);
	if (slurm_process_ends(fd, slurm_in_time(c, c->wait_ns - first_ns)))
		return 0;
	log_warn("job %u: its daemon (%d) does not end and is killed", r->job, (int)r->pid);
	(void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
	if (slurm_process_ends(fd, slurm_in_time(c, KILLED_NS)))
		return 0;
	return err_set(err, -ETIMEDOUT, "the daemon of job %u (%d) cannot be killed", r->job,
		       (int)r->pid);
}

/* --- the report --- */

/* In a child: report_dir may be on another machine. */
struct report {
	const struct slurm_clean *c;
	const struct slurm_record *record;
	int from;
};

/* The daemon wrote it as the user, and may have written anything. */
static int copy_report(int from, int to)
{
	char chunk[65536];
	uint64_t all = 0;
	ssize_t n;

	while ((n = read(from, chunk, sizeof(chunk))) > 0) {
		all += (uint64_t)n;
		if (all > REPORT_MAX)
			return -EFBIG;
		if (write(to, chunk, (size_t)n) != n)
			return errno ? -errno : -EIO;
	}
	return n < 0 ? -errno : 0;
}

/* A job that was requeued has a report of each run; also of each job of that number, where numbers
 * begin again. */
static int name_report(int top, const char *temp, const struct report *r)
{
	char name[320];

	for (int run = 1; run <= RUNS_MAX; run++) {
		int len = snprintf(name, sizeof(name), "clairfs-%u-%.200s", r->record->job,
				   r->c->node);

		snprintf(name + len, sizeof(name) - (size_t)len, run == 1 ? ".json" : ".run%d.json",
			 run);
		if (linkat(top, temp, top, name, 0) == 0)
			return unlinkat(top, temp, 0) == 0 ? 0 : -errno;
		if (errno != EEXIST)
			return -errno;
	}
	return -EEXIST;
}

static int put_report(void *ctx)
{
	const struct report *r = ctx;
	AUTO_FD int top = open(r->c->site->report_dir,
			       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	AUTO_FD int to = -1;
	char temp[320];
	struct stat st;
	int rc;

	if (top < 0 || fstat(top, &st) < 0)
		return -errno;
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return -EPERM; /* others can write it */
	snprintf(temp, sizeof(temp), ".clairfs-%u-%.200s.json", r->record->job,
		 r->c->node);
	unlinkat(top, temp, 0); /* of an epilog that was not over in time */
	to = openat(top, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	rc = copy_report(r->from, to);
	if (rc == 0 && (fchown(to, r->record->uid, r->record->gid) < 0 || fchmod(to, 0440) < 0))
		rc = -errno;
	if (rc == 0)
		rc = name_report(top, temp, r);
	if (rc < 0)
		unlinkat(top, temp, 0);
	return rc;
}

static void keep_report(const struct slurm_clean *c, int dir_fd, const struct slurm_record *record)
{
	AUTO_FD int from = openat(dir_fd, "report", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct report report = { c, record, from };
	struct stat st;
	int rc;

	if (!c->site->report_dir || from < 0 || fstat(from, &st) < 0 || st.st_size == 0)
		return;
	rc = slurm_bounded(put_report, &report, slurm_in_time(c, REPORT_NS));
	if (rc < 0)
		log_warn("job %u: no report in %s: %s%s", record->job, c->site->report_dir,
			 strerror(-rc),
			 rc == -EPERM ? " (it must be root's, and nobody else may write it)" : "");
}

/* --- the directory --- */

static int remove_dir(const struct slurm_clean *c, uint32_t job, int dir_fd)
{
	char name[16];
	AUTO_FD int copy = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;

	if (!dir)
		return -errno;
	copy = -1;
	while ((entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
		    strcmp(entry->d_name, "data") != 0)
			unlinkat(dir_fd, entry->d_name, 0);
	closedir(dir);
	snprintf(name, sizeof(name), "%u", job);
	if (unlinkat(dir_fd, "data", AT_REMOVEDIR) < 0 && errno != ENOENT)
		return -errno;
	return unlinkat(c->run_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -errno;
}

int slurm_clean_job(const struct slurm_clean *c, uint32_t job, struct err *err)
{
	AUTO_FD int dir = slurm_dir_open(c->run_fd, job);
	struct slurm_record record;
	bool has_record, was_mounted;
	int rc;

	if (dir == -ENOENT)
		return 0;
	if (dir < 0)
		return err_set_errno(err, dir, "the directory of job %u", job);
	has_record = slurm_record_read(dir, &record) == 0 && record.job == job;
	rc = unmount_job(c, job, &was_mounted, err);
	if (has_record)
		rc = end_daemon(c, &record, was_mounted, err);
	/* What its daemon kept from being taken away. */
	if (rc == 0)
		rc = unmount_job(c, job, &was_mounted, err);
	if (rc < 0)
		return rc;
	if (has_record) {
		keep_report(c, dir, &record);
		if (*record.cgroup)
			slurm_cgroup_remove(record.cgroup);
	}
	rc = remove_dir(c, job, dir);
	return rc < 0 ? err_set_errno(err, rc, "the directory of job %u", job) : 0;
}

/* --- what jobs have mounted themselves --- */

struct user_mounts {
	uid_t uid;
	char jobs[PATH_MAX]; /* below it are those of jobs; empty: not known */
	uint64_t deadline; /* each that hangs costs two seconds */
};

static bool look_user_mount(void *ctx, const struct slurm_mount *m)
{
	const struct user_mounts *of = ctx;
	int rc;

	if (clock_now(clock_monotonic()) > of->deadline)
		return false;
	/* A later step of another job finds its mount dead. Without a mount it would find a bare
	 * directory. */
	if (*of->jobs && strncmp(m->path, of->jobs, strlen(of->jobs)) == 0)
		return true;
	if (m->owner != of->uid || !slurm_mount_is_dead(m))
		return true;
	rc = slurm_mount_detach(m);
	if (rc < 0)
		log_warn("a dead mount of user %u stays: %s", (unsigned)of->uid, strerror(-rc));
	else
		log_info("a dead mount of user %u is taken away", (unsigned)of->uid);
	return true;
}

void slurm_clean_user(const struct slurm_clean *c, uid_t uid)
{
	struct user_mounts of = { .uid = uid,
				  .deadline = clock_now(clock_monotonic()) +
					      slurm_in_time(c, USER_NS) };

	if (c->site && realpath(c->site->run_dir, of.jobs) && strlen(of.jobs) + 1 < PATH_MAX)
		strcat(of.jobs, "/");
	if (slurm_mount_each(look_user_mount, &of) < 0)
		log_warn("the kernel's table of mounts cannot be read");
}
