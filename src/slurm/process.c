/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes: the daemon that a record names, daemons that a job has started by itself, and Slurm's
 * own for a step. A number may be somebody else's by the time it is used: who is signalled is held
 * by a descriptor first and looked at then.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/text.h"
#include "slurm_priv.h"

#define TEXT_MAX (256 << 10)
#define JOBS_OWN_MAX 32
#define LOOK_NS NS_PER_S

/* A file of /proc/PID, at most size bytes; 0: it cannot be read. */
static size_t read_pid_file(pid_t pid, const char *name, char *out, size_t size)
{
	char path[64];
	AUTO_FD int fd = -1;
	size_t len = 0;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && len < size && (n = read(fd, out + len, size - len)) > 0)
		len += (size_t)n;
	return len;
}

uint64_t slurm_process_start(pid_t pid)
{
	char text[1024];
	size_t len = read_pid_file(pid, "stat", text, sizeof(text));
	uint64_t start;

	return slurm_words_start(text, len, &start) ? start : 0;
}

static int open_process(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

int slurm_process_open(const struct slurm_record *record)
{
	AUTO_FD int fd = record->pid > 1 ? open_process(record->pid) : -1;
	uint64_t start;

	/* The other two: the number is of a thread of somebody else's. */
	if (fd < 0)
		return record->pid <= 1 || errno == ESRCH || errno == EINVAL || errno == ENOENT
			       ? -ESRCH
			       : -EAGAIN;
	start = slurm_process_start(record->pid);
	if (slurm_process_ends(fd, 0)) /* a zombie has a start, too */
		return -ESRCH;
	if (start == 0 || record->start == 0)
		return -EAGAIN;
	return start == record->start ? take_fd(&fd) : -ESRCH;
}

bool slurm_process_ends(int pid_fd, uint64_t ns)
{
	struct pollfd pfd = { .fd = pid_fd, .events = POLLIN };

	return poll(&pfd, 1, (int)MIN(DIV_ROUND_UP(ns, NS_PER_MS), INT32_MAX)) == 1;
}

/* Calls look() with every process until it returns false. False: they are not known. */
static bool each_process(bool (*look)(void *ctx, pid_t pid), void *ctx)
{
	DIR *proc = opendir("/proc");
	const struct dirent *entry;
	uint64_t pid;

	if (!proc)
		return false;
	while ((entry = readdir(proc)))
		if (text_to_u64(entry->d_name, &pid) == 0 && pid > 1 && pid <= INT32_MAX &&
		    !look(ctx, (pid_t)pid))
			break;
	closedir(proc);
	return true;
}

struct own {
	const struct slurm_job *job;
	uint64_t ns;
	int fd[JOBS_OWN_MAX];
	int n;
};

/* A clairfs of the user with the job's number in its environment. The daemon of the prolog is none:
 * it has ended by now. */
static bool is_own(const struct own *own, pid_t pid)
{
	AUTO_FREE char *text = malloc(TEXT_MAX);
	char path[32], name[32];
	struct stat st;
	size_t len;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (!text || stat(path, &st) < 0 || st.st_uid != own->job->uid)
		return false;
	len = read_pid_file(pid, "comm", name, sizeof(name));
	if (len != strlen("clairfs\n") || memcmp(name, "clairfs\n", len) != 0)
		return false;
	len = read_pid_file(pid, "environ", text, TEXT_MAX);
	return slurm_words_is_of_job(text, len, own->job->id);
}

static bool look_own(void *ctx, pid_t pid)
{
	struct own *own = ctx;
	bool is_us = pid == getpid() || pid == getppid(); /* of a job of the user who runs hooks */
	AUTO_FD int fd = !is_us && is_own(own, pid) ? open_process(pid) : -1;

	if (fd >= 0 && is_own(own, pid)) /* still the one that was looked at */
		own->fd[own->n++] = take_fd(&fd);
	return own->n < JOBS_OWN_MAX;
}

static void send_signal(int pid_fd, int number)
{
	(void)syscall(SYS_pidfd_send_signal, pid_fd, number, NULL, 0);
}

static int end_own(void *ctx)
{
	struct own *own = ctx;
	uint64_t end = clock_now(clock_monotonic()) + own->ns;

	(void)each_process(look_own, own);
	for (int i = 0; i < own->n; i++)
		send_signal(own->fd[i], SIGTERM);
	for (int i = 0; i < own->n; i++) {
		uint64_t now = clock_now(clock_monotonic());

		if (!slurm_process_ends(own->fd[i], now < end ? end - now : 0))
			send_signal(own->fd[i], SIGKILL);
		close(own->fd[i]);
	}
	return 0;
}

bool slurm_process_end_jobs(const struct slurm_job *job, uint64_t ns)
{
	struct own own = { .job = job, .ns = ns };

	return slurm_bounded(end_own, &own, ns + LOOK_NS) == 0;
}

struct step {
	uint32_t job;
	bool is_found;
};

static bool look_step(void *ctx, pid_t pid)
{
	struct step *step = ctx;
	char text[1024];
	size_t len = read_pid_file(pid, "status", text, sizeof(text));

	/* Anybody may have such a command line. To read it also takes a lock that a process has for
	 * as long as its source hangs; its status needs none. */
	if (!slurm_words_is_slurmstepd(text, len))
		return true;
	len = read_pid_file(pid, "cmdline", text, sizeof(text));
	step->is_found = slurm_words_is_step(text, len, step->job);
	return !step->is_found;
}

static int find_step(void *ctx)
{
	struct step *step = ctx;

	return !each_process(look_step, step) || step->is_found ? -EEXIST : 0;
}

bool slurm_process_has_step(uint32_t job)
{
	struct step step = { .job = job };

	return slurm_bounded(find_step, &step, LOOK_NS) < 0;
}
