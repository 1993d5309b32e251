/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of the daemon wait in its own mount: for a page that a READ has locked (the size of a
 * changed file is being made known, pages are pushed or dropped), or for a LOOKUP. If the daemon is
 * killed then, or crashes, such a thread cannot end before the answer comes, keeps the FUSE device
 * open until then, and so the kernel goes on waiting for the daemon that it has killed: all readers
 * of the mount hang, for good. Seen once in some hundred kills under load.
 *
 * So a small process of our own waits for the daemon's death and ends the connection: by the file
 * of fusectl, which belongs to who mounted, or else by force, which takes root. Then every request
 * fails and the killed threads end. The dead mount stays where it is, as it always does.
 *
 * The kernel tells of the death of the daemon's main thread (PR_SET_PDEATHSIG), which waits for
 * nothing that a kill does not end. The end of a pipe would not do: the threads that hang hold the
 * pipe open, too. Of a crash the daemon tells by itself: the kernel then stops all threads for a
 * core dump, and waits for those that hang before the main thread ends. The guard is told to end
 * before an orderly end. It never looks at anything below the mountpoint.
 *
 * Who kills both at once (a whole cgroup) is not helped.
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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clairfs/base/thr.h"

#define CONNECTIONS_DIR "/sys/fs/fuse/connections"
#define DEATH SIGRTMIN /* queues: others' signals do not swallow it */

/* What is to be watched; one message. */
struct place {
	dev_t dev;
	char mountpoint[PATH_MAX];
};

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
static void end_by_force(const struct place *place)
{
	int fd = open(place->mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 && device_of(fd, "") == place->dev)
		(void)umount2(place->mountpoint, MNT_FORCE | UMOUNT_NOFOLLOW);
}

/* True when the daemon has died; false when its signal was somebody else's. */
static bool is_death(const sigset_t *set, pid_t daemon)
{
	siginfo_t info;

	return sigwaitinfo(set, &info) == DEATH && info.si_pid == daemon;
}

/* A process group of its own: what is sent to the daemon's is for the daemon. */
static void guard_prepare(int told_fd)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	prctl(PR_SET_PDEATHSIG, DEATH);
	prctl(PR_SET_NAME, "clairfs-guard");
	setsid();
	if (told_fd > 0)
		dup2(told_fd, 0);
	closefrom(1);
}

static _Noreturn void watch_daemon(int told_fd, pid_t daemon)
{
	struct place place;
	sigset_t set;
	int fd;

	guard_prepare(told_fd);
	sigemptyset(&set);
	sigaddset(&set, DEATH);
	if (chdir("/") < 0 || write(0, "", 1) != 1 ||
	    read(0, &place, sizeof(place)) != (ssize_t)sizeof(place))
		_exit(0); /* there will be no mount */
	close(0);
	fd = open_abort(place.dev);
	while (!is_death(&set, daemon))
		;
	if (fd < 0 || write(fd, "1", 1) != 1)
		end_by_force(&place);
	_exit(0);
}

/* --- the daemon's side --- */

static volatile pid_t guard_pid; /* for the handler */
static struct sigaction before[NSIG];

/* Tells the guard, then what would have happened happens: at once for what somebody sent, else when
 * the instruction is executed again. */
static void guard_crashed(int sig, siginfo_t *info, void *context)
{
	int kept = errno;

	if (guard_pid > 0)
		(void)kill(guard_pid, DEATH);
	(void)sigaction(sig, &before[sig], NULL);
	if (info->si_code <= 0)
		(void)raise(sig);
	errno = kept;
}

static void catch_crashes(void)
{
	static const int crashes[] = { THR_CRASHES, SIGQUIT };
	struct sigaction act = { .sa_sigaction = guard_crashed, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	sigemptyset(&act.sa_mask);
	for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
		(void)sigaction(crashes[i], &act, &before[crashes[i]]);
}

void guard_start(struct guard *g)
{
	pid_t daemon = getpid();
	int fds[2];

	*g = (struct guard){ 0 };
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return;
	signal(SIGCHLD, SIG_DFL); /* else the number of one that has ended may be somebody else's */
	g->pid = fork();
	if (g->pid == 0)
		watch_daemon(fds[1], daemon);
	close(fds[1]);
	g->fd = fds[0];
	if (g->pid < 0) {
		close(g->fd);
		g->pid = 0;
	}
}

void guard_watch(struct guard *g, const char *mountpoint)
{
	struct place place = { .dev = device_of(AT_FDCWD, mountpoint) };
	char ready;

	if (!g->pid)
		return;
	if (place.dev == 0 || strlen(mountpoint) >= sizeof(place.mountpoint) ||
	    read(g->fd, &ready, 1) != 1) {
		guard_stop(g);
		return;
	}
	memcpy(place.mountpoint, mountpoint, strlen(mountpoint) + 1);
	if (send(g->fd, &place, sizeof(place), MSG_NOSIGNAL) != (ssize_t)sizeof(place)) {
		guard_stop(g);
		return;
	}
	guard_pid = g->pid;
	catch_crashes();
}

void guard_stop(struct guard *g)
{
	if (!g->pid)
		return;
	guard_pid = 0;
	close(g->fd);
	kill(g->pid, SIGKILL);
	while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
		;
	g->pid = 0;
}
