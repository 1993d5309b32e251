/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unmounting, for whoever waits for it: the mount must not be in use, then the daemon ends, which
 * takes as long as what it still writes. After three seconds a person is told which of the two it
 * is, and who holds the mount. Nothing here forces anything: when the time is over the mount is as
 * it was (in use), or gone while its daemon still ends.
 *
 * Root unmounts itself, others through fusermount3. Runs in the process of the command line.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clairfs/base/clock.h"
#include "clairfs/metrics/leftover.h"
#include "client_priv.h"

#define BUSY_PATIENCE_NS (10 * NS_PER_S)
#define ANSWER_PATIENCE_NS (10 * NS_PER_S)
#define DAEMON_PATIENCE_NS (60 * NS_PER_S)
#define SILENCE_NS (3 * NS_PER_S)

struct wait {
	const struct umount_params *p;
	struct mount_info info;
	uint64_t start;
	bool has_told; /* of what is being waited for now */
	int daemon_fd; /* -1: not known, or not waited for */
	long pid;
};

static uint64_t now_ns(void)
{
	return clock_now(clock_monotonic());
}

/* How long to go on with something that began then and has this patience by itself. */
static uint64_t left_ns(const struct wait *w, uint64_t since, uint64_t patience_ns)
{
	uint64_t end = w->p->has_timeout ? w->start + w->p->timeout_ns : since + patience_ns;
	uint64_t now = now_ns();

	return now < end ? end - now : 0;
}

static void umount_tell(struct wait *w, const char *line)
{
	if (!w->has_told && w->p->say)
		w->p->say(line);
	w->has_told = true;
}

static bool is_time_to_tell(const struct wait *w)
{
	return !w->has_told && now_ns() - w->start >= SILENCE_NS;
}

static int run_fusermount(const char *path, bool is_lazy)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		if (null >= 0)
			dup2(null, 2);
		execlp("fusermount3", "fusermount3", "-u", "-q", is_lazy ? "-z" : "-q", "--", path,
		       (char *)NULL);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) < 0)
		return -errno;
	if (!WIFEXITED(status) || WEXITSTATUS(status) == 127)
		return -ENOENT;
	return WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

static int umount_once(const char *path, bool is_lazy)
{
	if (geteuid() == 0)
		return umount2(path, UMOUNT_NOFOLLOW | (is_lazy ? MNT_DETACH : 0)) == 0 ? 0
											: -errno;
	return run_fusermount(path, is_lazy);
}

/* A descriptor of the daemon by the pid it reports. -ETIMEDOUT when it hangs; else daemon_fd may
 * stay -1. */
static int find_daemon(struct wait *w)
{
	uint64_t left = left_ns(w, w->start, ANSWER_PATIENCE_NS), more;
	uint64_t first = MAX(MIN(left, SILENCE_NS), NS_PER_S); /* also with --timeout 0 */
	AUTO_FREE char *text = NULL;
	struct err ignored = { 0 };
	const char *at;
	char line[sizeof(w->info.path) + 128];
	int rc = mounts_ask_vfile(w->info.path, "stats.json", first, &text, &ignored);

	more = rc == -ETIMEDOUT ? left_ns(w, w->start, ANSWER_PATIENCE_NS) : 0;
	if (more > 0) {
		snprintf(line, sizeof(line), "waiting: the daemon of %s does not answer",
			 w->info.path);
		umount_tell(w, line);
		rc = mounts_ask_vfile(w->info.path, "stats.json", more, &text, &ignored);
	}
	if (rc < 0)
		return rc;
	at = strstr(text, "\"pid\":");
	w->pid = at ? strtol(at + 6, NULL, 10) : 0;
	if (w->pid > 1)
		w->daemon_fd = (int)syscall(SYS_pidfd_open, (pid_t)w->pid, 0);
	return 0;
}

static int umount_patiently(struct wait *w)
{
	struct timespec pause = { .tv_nsec = 50 * NS_PER_MS };
	char holders[1024], line[sizeof(w->info.path) + sizeof(holders) + 64];
	uint64_t start = now_ns();
	int rc;

	/* Busy may mean a lookup of our own warm thread: it gives way within moments, so try again
	 * for a while. */
	while ((rc = umount_once(w->info.path, w->p->is_lazy)) == -EBUSY &&
	       left_ns(w, start, BUSY_PATIENCE_NS) > 0) {
		if (is_time_to_tell(w)) {
			snprintf(line, sizeof(line), "waiting: %s is in use by %s", w->info.path,
				 mounts_holders(&w->info, holders, sizeof(holders)));
			umount_tell(w, line);
		}
		nanosleep(&pause, NULL);
	}
	return rc;
}

static int umount_failed(const struct wait *w, int rc, struct err *err)
{
	char holders[1024];

	if (rc == -EBUSY)
		return err_set(err, rc, "%s: still mounted, in use by %s; -l detaches it anyway",
			       w->info.path, mounts_holders(&w->info, holders, sizeof(holders)));
	if (rc == -ENOENT)
		return err_set(err, rc, "fusermount3 is not installed");
	return err_set_errno(err, rc, "unmounting %s", w->info.path);
}

/* 0 when it has ended within this time. */
static int await_end(struct wait *w, uint64_t ns)
{
	struct pollfd daemon = { .fd = w->daemon_fd, .events = POLLIN };

	return poll(&daemon, 1, (int)MIN(DIV_ROUND_UP(ns, NS_PER_MS), INT32_MAX)) == 0 ? -ETIMEDOUT
										       : 0;
}

static int await_daemon(struct wait *w, struct err *err)
{
	uint64_t start = now_ns(), left = left_ns(w, start, DAEMON_PATIENCE_NS);
	char line[sizeof(w->info.path) + 128];
	int rc;

	if (w->daemon_fd < 0)
		return 0;
	w->has_told = false;
	rc = await_end(w, MIN(left, SILENCE_NS));
	if (rc < 0 && left > SILENCE_NS) {
		snprintf(line, sizeof(line),
			 "waiting: %s is unmounted, its daemon (%ld) writes what it has and ends",
			 w->info.path, w->pid);
		umount_tell(w, line);
		rc = await_end(w, left_ns(w, start, DAEMON_PATIENCE_NS));
	}
	return rc == 0 ? 0
		       : err_set(err, rc, "%s is unmounted, but its daemon (%ld) is still running",
				 w->info.path, w->pid);
}

static int check_mount(const struct wait *w, struct err *err)
{
	const struct mount_info *info = &w->info;

	if (!info->is_mounted) {
		leftover_clear(info->path);
		return err_set(err, -ENOENT, "%s: nothing is mounted there", info->path);
	}
	if (!info->is_ours)
		return err_set(err, -ENOENT, "%s: not a clairfs mount", info->path);
	if (geteuid() != 0 && info->owner != geteuid())
		return err_set(err, -EPERM, "not permitted: %s was mounted by uid %u", info->path,
			       (unsigned)info->owner);
	return 0;
}

static int umount_now(struct wait *w, struct err *err)
{
	int rc = 0;

	if (!w->p->is_lazy) /* a dead mount says at once that nobody is there */
		rc = find_daemon(w);
	if (rc == -ETIMEDOUT)
		return err_set(err, rc, "%s: its daemon hangs; -l detaches the mount anyway",
			       w->info.path);
	rc = umount_patiently(w);
	if (rc < 0)
		return umount_failed(w, rc, err);
	rc = await_daemon(w, err);
	if (rc == 0)
		leftover_clear(w->info.path);
	return rc;
}

int mounts_umount(const struct umount_params *params, struct err *err)
{
	struct wait w = { .p = params, .start = now_ns(), .daemon_fd = -1 };
	int rc = mounts_find(params->mountpoint, &w.info, err);

	if (rc == 0)
		rc = check_mount(&w, err);
	if (rc == 0)
		rc = umount_now(&w, err);
	if (w.daemon_fd >= 0)
		close(w.daemon_fd);
	return rc;
}
