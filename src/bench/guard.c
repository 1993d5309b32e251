/* SPDX-License-Identifier: Apache-2.0 */
/* The guard of a bench's mount: a process that does nothing but wait for the death of the bench,
 * and then takes down what the bench could not, when it was killed outright. A stopped daemon would
 * otherwise stay, stopped, with a mount that hangs whoever touches it (the kernel continues orphans
 * only when every thread of theirs has stopped already). It is in a group of its own, so that
 * Ctrl-C does not reach it, and holds a pidfd: whatever number the daemon had, nobody else is ever
 * signalled. Must do nothing at all once it was told that the bench ends in order. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_priv.h"
#include "clairfs/client.h"

#define PATIENCE_MS 60000

static void tell_daemon(int pidfd, int sig)
{
	syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}

static void clean_up(const struct bench_mount *m, int pidfd)
{
	struct pollfd end = { .fd = pidfd, .events = POLLIN };
	struct umount_params detach = { .mountpoint = m->mountpoint, .is_lazy = true };
	struct err ignored = { 0 };

	tell_daemon(pidfd, SIGCONT);
	tell_daemon(pidfd, SIGTERM);
	if (poll(&end, 1, PATIENCE_MS) == 0) {
		tell_daemon(pidfd, SIGKILL);
		if (mounts_umount(&detach, &ignored) < 0)
			_exit(1);
	}
	bench_mount_remove(m);
}

static void guard(const struct bench_mount *m, int pidfd, pid_t parent) __attribute__((noreturn));
static void guard(const struct bench_mount *m, int pidfd, pid_t parent)
{
	sigset_t set;
	int sig = SIGUSR1;

	setpgid(0, 0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	prctl(PR_SET_PDEATHSIG, SIGUSR1);
	if (getppid() == parent)
		while (sigwait(&set, &sig) != 0)
			;
	if (sig == SIGUSR1)
		clean_up(m, pidfd);
	_exit(0);
}

int bench_guard_start(struct bench_mount *m, struct err *err)
{
	AUTO_FD int pidfd = (int)syscall(SYS_pidfd_open, m->pid, 0);
	pid_t me = getpid(), pid;
	sigset_t set, before;

	if (pidfd < 0)
		return err_set_errno(err, -errno, "pidfd_open");
	/* Blocked before the guard is there: it may be told to end at once. */
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, &before);
	pid = fork();
	if (pid == 0)
		guard(m, pidfd, me);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (pid < 0)
		return err_set_errno(err, -errno, "fork");
	m->guard = pid;
	return 0;
}

void bench_guard_end(struct bench_mount *m)
{
	if (!m->guard)
		return;
	kill(m->guard, SIGUSR2);
	while (waitpid(m->guard, NULL, 0) < 0 && errno == EINTR)
		;
	m->guard = 0;
}
