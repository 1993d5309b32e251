/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a daemon leaves the prolog. slurmd kills the process group of a prolog when it returns, and
 * waits for whoever holds its output: so the daemon is in a session of its own and has let go of
 * everything before the prolog goes on. Where systemd runs, a unit takes it, with a cgroup and a
 * journal; without that unit, or when the file of the site is another one, it is our own child.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "slurm_priv.h"

#define SYSTEMD_DIR "/run/systemd/system"
#define SYSTEMCTL "/usr/bin/systemctl"
#define SYSTEMCTL_NS NS_PER_S

/* True when systemd has taken the unit. */
static bool start_unit(uint32_t job)
{
	char unit[48], a0[] = "systemctl", a1[] = "--no-block", a2[] = "--quiet", a3[] = "start";
	char *argv[] = { a0, a1, a2, a3, unit, NULL };
	char path[] = "PATH=/usr/bin:/bin", *environment[] = { path, NULL };
	posix_spawn_file_actions_t actions;
	int rc, status = -1;
	pid_t pid;

	snprintf(unit, sizeof(unit), "clairfs@%u.service", job);
	if (posix_spawn_file_actions_init(&actions) != 0)
		return false;
	for (int i = 0; i <= 2; i++)
		posix_spawn_file_actions_addopen(&actions, i, "/dev/null", O_RDWR, 0);
	rc = posix_spawn(&pid, SYSTEMCTL, &actions, NULL, argv, environment);
	posix_spawn_file_actions_destroy(&actions);
	if (rc != 0)
		return false;
	return slurm_child_wait(pid, SYSTEMCTL_NS, &status) && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 0;
}

static void reset_signals(void)
{
	sigset_t none;

	for (int i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The child: tells that it left the prolog by closing go_fd, in execve. */
static _Noreturn void become_daemon(const char *conf, int dir_fd, struct slurm_record *record,
				    int go_fd)
{
	char self[] = "/proc/self/exe", a0[] = "clairfs", a1[] = "hook", a2[] = "serve",
	     dash_c[] = "-c", job[16], path[] = "PATH=/usr/bin:/bin";
	char *argv[] = { a0, a1, a2, job, NULL, NULL, NULL }, *environment[] = { path, NULL };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	reset_signals();
	snprintf(job, sizeof(job), "%u", record->job);
	if (conf) {
		argv[4] = dash_c;
		argv[5] = (char *)(uintptr_t)conf;
	}
	for (int i = 0; i <= 2; i++)
		dup2(null, i);
	record->pid = getpid();
	record->start = slurm_process_start(record->pid);
	if (slurm_record_write(dir_fd, record) < 0)
		_exit(1);
	dup3(go_fd, 3, O_CLOEXEC);
	closefrom(4);
	execve(self, argv, environment);
	_exit(1);
}

static int start_child(const char *conf, int dir_fd, const struct slurm_record *record,
		       pid_t *ret_pid, struct err *err)
{
	struct slurm_record own = *record;
	int fds[2];
	char byte;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_set_errno(err, -errno, "pipe");
	fflush(NULL);
	*ret_pid = fork();
	if (*ret_pid == 0)
		become_daemon(conf, dir_fd, &own, fds[1]);
	close(fds[1]);
	if (*ret_pid > 0)
		while (read(fds[0], &byte, 1) < 0 && errno == EINTR)
			;
	close(fds[0]);
	return *ret_pid < 0 ? err_set_errno(err, -errno, "fork") : 0;
}

int slurm_start(const struct slurm_call *call, const struct slurm_site *site, int dir_fd,
		const struct slurm_record *record, pid_t *ret_pid, struct err *err)
{
	*ret_pid = 0;
	/* The unit reads the site's file only. */
	if (site->systemd && !call->conf && access(SYSTEMD_DIR, F_OK) == 0 &&
	    start_unit(record->job))
		return 0;
	return start_child(call->conf, dir_fd, record, ret_pid, err);
}
