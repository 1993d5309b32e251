/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of time for what may never return: a path on a filesystem that hangs, a program that
 * cannot be killed, /proc of a process that holds its own locks. slurmd ends an epilog that takes
 * too long and drains the node, so a child does such work. It is killed when its time is up, and
 * left behind when even that does not end it: the kernel then has it.
 *
 * The child has none of our streams: slurmd waits for whoever holds the output of a hook. It may
 * give up rights, so nothing of it is ever done here in its place.
 *
 * One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "clairfs/base/clock.h"
#include "slurm_priv.h"

#define KILLED_NS (200 * NS_PER_MS)
#define POLL_NS (2 * NS_PER_MS)

/* Without a descriptor (before Linux 5.3, or none left) it looks every few milliseconds. */
static bool ends_in_time(pid_t pid, int fd, uint64_t ns)
{
	struct timespec pause = { .tv_nsec = POLL_NS };
	uint64_t end = clock_now(clock_monotonic()) + ns;

	if (fd >= 0)
		return slurm_process_ends(fd, ns);
	for (;;) {
		siginfo_t info = { .si_pid = 0 };

		if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		    info.si_pid == pid)
			return true;
		if (clock_now(clock_monotonic()) >= end)
			return false;
		nanosleep(&pause, NULL);
	}
}

bool slurm_child_wait(pid_t pid, uint64_t ns, int *ret_status)
{
	AUTO_FD int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	bool is_over = ends_in_time(pid, fd, ns), is_late = !is_over;
	pid_t got = 0;

	if (is_late) {
		kill(pid, SIGKILL);
		is_over = ends_in_time(pid, fd, KILLED_NS);
	}
	if (is_over)
		do
			got = waitpid(pid, ret_status, 0);
		while (got < 0 && errno == EINTR);
	return got == pid && !is_late;
}

static _Noreturn void work_alone(int (*work)(void *ctx), void *ctx)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), rc;

	for (int i = 0; i <= 2; i++)
		dup2(null, i);
	rc = work(ctx);
	_exit(rc > 0 || rc < -255 ? EIO : -rc);
}

int slurm_bounded(int (*work)(void *ctx), void *ctx, uint64_t ns)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		work_alone(work, ctx);
	if (pid < 0)
		return -errno;
	if (!slurm_child_wait(pid, ns, &status))
		return -ETIMEDOUT;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}
