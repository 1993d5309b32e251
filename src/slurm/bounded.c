/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of time for what may never return: a path on a filesystem that hangs, a program that cannot
 * be killed, /proc of a process that holds its own locks. slurmd ends an epilog that takes too long
 * and drains the node, so a child does such work. It is killed when its time is up, and left behind
 * when even that does not end it: the kernel then has it, and it ends with what it waits for.
 *
 * The child has none of our streams. slurmd waits for whoever holds the output of a hook.
 *
 * One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "clairfs/base/clock.h"
#include "slurm_priv.h"

#define KILLED_NS (200 * NS_PER_MS)

bool slurm_child_wait(pid_t pid, uint64_t ns, int *ret_status)
{
	AUTO_FD int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	bool is_over = fd >= 0 && slurm_process_ends(fd, ns), is_late = !is_over;
	pid_t got = 0;

	if (!is_over)
		kill(pid, SIGKILL);
	if (!is_over && fd >= 0)
		is_over = slurm_process_ends(fd, KILLED_NS);
	if (is_over || fd < 0)
		do
			got = waitpid(pid, ret_status, fd < 0 ? WNOHANG : 0);
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
	if (pid < 0) /* rather without a limit than not at all */
		return work(ctx);
	if (!slurm_child_wait(pid, ns, &status))
		return -ETIMEDOUT;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}
