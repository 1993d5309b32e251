/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What jobs left that are not on this node any more: the epilog did not run, or not to its end. A
 * job is here while its daemon's prolog holds its directory, while Slurm has a process for one of
 * its steps, or while Slurm says so. Slurm's word comes last and only when it is needed: thousands
 * of epilogs that ask the controller are a load of their own. Without it (no squeue, no answer in
 * time) a job with a living daemon is left alone; a dead one's remains are of no use to anybody.
 *
 * As root, one thread. squeue is run with no shell and an environment of our own.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "slurm_priv.h"

#define SQUEUE_NS (3 * NS_PER_S)
#define OTHERS_NS (5 * NS_PER_S) /* the next epilog goes on */
#define WAIT_NS (200 * NS_PER_MS) /* for a daemon of a job that is gone */
#define ANSWER_MAX (1 << 20)

/* What is left over for looking at, as long as it is asked once. */
struct asked {
	bool is_asked, is_known;
	char *text; /* a job number a line */
};

/* Runs it and collects what it says; NULL: no answer. */
static char *run_squeue(const struct slurm_clean *c, int out_fds[2])
{
	char slurm_conf[PATH_MAX + 16] = "SLURM_CONF=", path[] = "PATH=/usr/bin:/bin";
	char a0[] = "squeue", a1[] = "-h", a2[] = "-o", a3[] = "%A", a4[] = "-t",
	     a5[] = "R,S,CG,CF,ST", a6[] = "-w";
	char *argv[] = { a0, a1, a2, a3, a4, a5, a6, (char *)(uintptr_t)c->node, NULL };
	char *environment[] = { path, NULL, NULL };
	uint64_t end = clock_now(clock_monotonic()) + slurm_in_time(c, SQUEUE_NS);
	AUTO_FREE char *text = malloc(ANSWER_MAX);
	posix_spawn_file_actions_t actions;
	size_t len = 0;
	ssize_t n = 0;
	pid_t pid;
	int fd, status = -1, rc;

	if (getenv("SLURM_CONF")) { /* slurmd's own */
		snprintf(slurm_conf, sizeof(slurm_conf), "SLURM_CONF=%s", getenv("SLURM_CONF"));
		environment[1] = slurm_conf;
	}
	if (!text || posix_spawn_file_actions_init(&actions) != 0)
		return NULL;
	posix_spawn_file_actions_adddup2(&actions, out_fds[1], 1);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	rc = posix_spawn(&pid, c->site->squeue, &actions, NULL, argv, environment);
	posix_spawn_file_actions_destroy(&actions);
	close(out_fds[1]);
	out_fds[1] = -1;
	if (rc != 0)
		return NULL;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	/* The pipe does not block: what is there when it has ended is the answer. */
	while (fd >= 0) {
		bool is_over = slurm_process_ends(fd, 20 * NS_PER_MS);

		while (len < ANSWER_MAX - 1 &&
		       (n = read(out_fds[0], text + len, ANSWER_MAX - 1 - len)) > 0)
			len += (size_t)n;
		if (is_over || clock_now(clock_monotonic()) > end)
			break;
	}
	kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (fd >= 0)
		close(fd);
	text[len] = 0;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 && len < ANSWER_MAX - 1 ? TAKE(text)
										     : NULL;
}

static void ask(const struct slurm_clean *c, struct asked *asked)
{
	int fds[2];

	asked->is_asked = true;
	if (!c->site->squeue || pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return;
	asked->text = run_squeue(c, fds);
	asked->is_known = asked->text != NULL;
	close(fds[0]);
	if (fds[1] >= 0)
		close(fds[1]);
}

static bool says_here(const struct asked *asked, uint32_t job)
{
	char want[16];
	size_t n = (size_t)snprintf(want, sizeof(want), "%u", job);

	for (const char *at = asked->text; at && *at;) {
		size_t len = strcspn(at, "\n");

		if (len == n && memcmp(at, want, n) == 0)
			return true;
		at += len + (at[len] == '\n');
	}
	return false;
}

/* A record that cannot be read may be of a daemon that lives: none at all is of a prolog that did
 * not come that far. */
static bool is_daemon_gone(int dir_fd)
{
	struct slurm_record record;
	int rc = slurm_record_read(dir_fd, &record);
	AUTO_FD int daemon = rc == 0 ? slurm_process_open(&record) : -1;

	return rc == 0 ? daemon == -ESRCH : rc == -ENOENT;
}

static bool is_gone(const struct slurm_clean *c, uint32_t job, struct asked *asked)
{
	AUTO_FD int dir = slurm_dir_open(c->run_fd, job);

	if (dir < 0 || slurm_dir_lock(dir) < 0 || slurm_process_has_step(job))
		return false;
	if (!asked->is_asked)
		ask(c, asked);
	return asked->is_known ? !says_here(asked, job) : is_daemon_gone(dir);
}

int slurm_clean_others(const struct slurm_clean *from, uint32_t keep)
{
	struct slurm_clean c = *from;
	AUTO_FD int copy = openat(c.run_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct asked asked = { .is_asked = false };
	struct err err = { 0 };
	uint32_t job;
	int n = 0;

	if (!dir)
		return 0;
	copy = -1;
	/* It must be over before slurmd thinks that it hangs, with what came before. */
	c.deadline = clock_now(clock_monotonic()) + slurm_in_time(from, OTHERS_NS);
	c.wait_ns = WAIT_NS;
	while (slurm_in_time(&c, NS_PER_S) > 0 && (job = slurm_dir_next(dir)) != 0) {
		if (job == keep || !is_gone(&c, job, &asked))
			continue;
		if (slurm_clean_job(&c, job, &err) < 0)
			log_warn("leftovers of job %u: %s", job, err.msg);
		else
			log_info("leftovers of job %u are taken away", job);
		n++;
	}
	closedir(dir);
	free(asked.text);
	return n;
}
