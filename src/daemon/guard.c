/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of the daemon wait in its own mount: for a page that a READ has locked (the size of a
 * changed file is being made known, pages are pushed or dropped), or for a LOOKUP. Whoever is killed
 * there (kill -9, the OOM killer) cannot end before the answer comes, keeps the FUSE device open
 * until then, and so the kernel goes on waiting for the daemon that it has killed: all readers of
 * the mount hang, for good. Seen once in some hundred kills under load.
 *
 * So a small process of our own waits for the daemon's death and ends the connection: by the file
 * of fusectl, which belongs to who mounted, or else by force, which takes root. Then every request
 * fails and the killed threads end. The dead mount stays where it is, as it always does.
 *
 * The kernel tells of the death of the daemon's main thread (PR_SET_PDEATHSIG), which waits for
 * nothing that a kill does not end. The end of a pipe would not do: the threads that hang hold the
 * pipe open, too. The guard is told to end before an orderly end. It never looks at anything below
 * the mountpoint.
 */
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONNECTIONS_DIR "/sys/fs/fuse/connections"

/* Device number of what is at the path, without a question to whoever serves it; 0: none. */
static dev_t device_of(int fd, const char *path)
{
	struct statx stx;

	if (statx(fd, path, AT_STATX_DONT_SYNC | (*path ? 0 : AT_EMPTY_PATH), STATX_TYPE, &stx) < 0)
		return 0;
	return makedev(stx.stx_dev_major, stx.stx_dev_minor);
}

/* -1: fusectl is not mounted here, or the file is not ours. Opened while the daemon lives: once the
 * connection is gone the file leads nowhere, whoever gets its number next. */
static int open_abort(dev_t dev)
{
	char path[64];

	snprintf(path, sizeof(path), CONNECTIONS_DIR "/%u/abort", minor(dev));
	return open(path, O_WRONLY | O_CLOEXEC);
}

/* By force, which unmounts as well what nobody uses: hence it is used. */
static void end_by_force(const char *mountpoint, dev_t dev)
{
	int fd = open(mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 && device_of(fd, "") == dev)
		(void)umount2(mountpoint, MNT_FORCE | UMOUNT_NOFOLLOW);
}

/* True when the daemon has died; false when its signal was somebody else's. */
static bool is_death(const sigset_t *set, pid_t daemon)
{
	siginfo_t info;

	return sigwaitinfo(set, &info) == SIGTERM && info.si_pid == daemon;
}

static _Noreturn void watch(int pipe_fd, pid_t daemon)
{
	char mountpoint[PATH_MAX];
	sigset_t set;
	ssize_t len;
	dev_t dev;
	int fd;

	sigfillset(&set); /* what the terminal sends is for the daemon */
	sigprocmask(SIG_BLOCK, &set, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	prctl(PR_SET_NAME, "clairfs-guard");
	if (pipe_fd > 0)
		dup2(pipe_fd, 0);
	closefrom(1);
	if (chdir("/") < 0)
		_exit(1);
	len = read(0, mountpoint, sizeof(mountpoint)); /* one write of no more than PIPE_BUF */
	if (len <= 0 || mountpoint[len - 1] != '\0')
		_exit(0); /* there will be no mount */
	close(0);
	dev = device_of(AT_FDCWD, mountpoint);
	fd = open_abort(dev);
	while (!is_death(&set, daemon))
		;
	if (dev == 0 || (fd >= 0 && write(fd, "1", 1) == 1))
		_exit(0);
	end_by_force(mountpoint, dev);
	_exit(0);
}

void guard_start(struct guard *g)
{
	pid_t daemon = getpid();
	int fds[2];

	*g = (struct guard){ 0 };
	if (pipe2(fds, O_CLOEXEC) < 0)
		return;
	g->pid = fork();
	if (g->pid == 0)
		watch(fds[0], daemon);
	close(fds[0]);
	g->pipe_fd = fds[1];
	if (g->pid < 0) {
		close(fds[1]);
		g->pid = 0;
	}
}

void guard_watch(struct guard *g, const char *mountpoint)
{
	size_t size = strlen(mountpoint) + 1;

	if (!g->pid)
		return;
	if (size > PIPE_BUF || write(g->pipe_fd, mountpoint, size) != (ssize_t)size)
		guard_stop(g);
}

void guard_stop(struct guard *g)
{
	if (!g->pid)
		return;
	close(g->pipe_fd);
	kill(g->pid, SIGKILL);
	while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
		;
	g->pid = 0;
}
