/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What jobs left that are not on this node any more: the epilog did not run, or not to its end. A
 * job is here while its daemon's prolog holds its directory, while Slurm has a process for one of
 * its steps, or while Slurm says so. Slurm's word comes last and only when it is needed: thousands
 * of epilogs that ask the controller are a load of their own. Without its answer, and in a state
 * that is not known to be a job's last, a job is here. Where the site has no squeue at all, a job
 * with a living daemon is left alone; a dead one's remains are of no use to anybody.
 *
 * As root, one thread. squeue is run with no shell and an environment of our own.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "slurm_priv.h"

#define SQUEUE_NS (3 * NS_PER_S)
#define OTHERS_NS (5 * NS_PER_S) /* the next epilog goes on */
#define WAIT_NS (200 * NS_PER_MS) /* for a daemon of a job that is gone */
#define ENDS_NS NS_PER_S /* after its last word */
#define ANSWER_MAX (4u << 20)

/* What is left over for looking at, as long as it is asked once. */
struct asked {
	bool is_asked, is_known;
	char *text; /* a job number and its state a line */
};

static int spawn_squeue(const struct slurm_clean *c, int out_fd, pid_t *ret_pid)
{
	char slurm_conf[PATH_MAX + 16] = "SLURM_CONF=", path[] = "PATH=/usr/bin:/bin";
	char a0[] = "squeue", a1[] = "-h", a2[] = "-o", a3[] = "%A %T", a4[] = "-t", a5[] = "all",
	     a6[] = "-w";
	char *argv[] = { a0, a1, a2, a3, a4, a5, a6, (char *)(uintptr_t)c->node, NULL };
	char *environment[] = { path, NULL, NULL };

	if (getenv("SLURM_CONF")) { /* slurmd's own */
		snprintf(slurm_conf, sizeof(slurm_conf), "SLURM_CONF=%s", getenv("SLURM_CONF"));
		environment[1] = slurm_conf;
	}
	/* No vfork, which posix_spawn is: the program may be on a filesystem that hangs. */
	*ret_pid = fork();
	if (*ret_pid == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		if (null >= 0 && dup2(null, 0) >= 0 && dup2(out_fd, 1) >= 0 && dup2(null, 2) >= 0)
			execve(c->site->squeue, argv, environment);
		_exit(127);
	}
	return *ret_pid < 0 ? -errno : 0;
}

/* Until the other side closes it. -ETIMEDOUT, or -EFBIG: more than anybody has jobs. */
static int read_squeue(int fd, uint64_t end, char *out, size_t size)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	size_t len = 0;

	for (;;) {
		uint64_t now = clock_now(clock_monotonic());
		ssize_t n;

		if (now >= end || poll(&pfd, 1, (int)DIV_ROUND_UP(end - now, NS_PER_MS)) == 0)
			return -ETIMEDOUT;
		n = read(fd, out + len, size - 1 - len);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return -errno;
		if (n == 0)
			break;
		len += n > 0 ? (size_t)n : 0;
		if (len == size - 1)
			return -EFBIG;
	}
	out[len] = 0;
	/* What is cut off in the middle of a line, or has a zero, says nothing. */
	return strlen(out) == len && (len == 0 || out[len - 1] == '\n') ? 0 : -EINVAL;
}

/* Runs it and collects what it says; NULL: no answer. */
static char *run_squeue(const struct slurm_clean *c)
{
	uint64_t end = clock_now(clock_monotonic()) + slurm_in_time(c, SQUEUE_NS);
	AUTO_FREE char *text = malloc(ANSWER_MAX);
	int fds[2], rc, status = -1;
	AUTO_FD int from = -1;
	pid_t pid;

	if (!text || pipe2(fds, O_CLOEXEC) < 0)
		return NULL;
	from = fds[0];
	rc = spawn_squeue(c, fds[1], &pid);
	close(fds[1]);
	if (rc < 0)
		return NULL;
	rc = read_squeue(from, end, text, ANSWER_MAX);
	if (!slurm_child_wait(pid, rc == 0 ? slurm_in_time(c, ENDS_NS) : 0, &status))
		return NULL;
	return rc == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? TAKE(text) : NULL;
}

static void ask_slurm(const struct slurm_clean *c, struct asked *asked)
{
	asked->is_asked = true;
	asked->text = run_squeue(c);
	asked->is_known = asked->text != NULL;
	if (!asked->is_known)
		log_warn("%s does not answer: what jobs left stays until it does", c->site->squeue);
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

static bool is_job_gone(const struct slurm_clean *c, uint32_t job, struct asked *asked)
{
	AUTO_FD int dir = slurm_dir_open(c->run_fd, job);
	AUTO_FD int lock = dir < 0 ? -1 : slurm_dir_lock(dir);

	if (lock < 0 || slurm_process_has_step(job))
		return false;
	if (!c->site->squeue)
		return is_daemon_gone(dir);
	if (!asked->is_asked)
		ask_slurm(c, asked);
	return asked->is_known && slurm_words_is_over(asked->text, job);
}

/* True when it was one that is gone, and nothing of it is left. */
static bool clean_other(const struct slurm_clean *c, uint32_t job, struct asked *asked)
{
	AUTO_FD int lock = slurm_job_lock(c->run_fd, job, 0);
	struct err err = { 0 };

	if (lock < 0 || !is_job_gone(c, job, asked))
		return false;
	if (slurm_clean_job(c, job, &err) < 0) {
		log_warn("leftovers of job %u: %s", job, err.msg);
		return false;
	}
	log_info("leftovers of job %u are taken away", job);
	return true;
}

int slurm_clean_others(const struct slurm_clean *from, uint32_t keep)
{
	struct slurm_clean c = *from;
	AUTO_FD int copy = openat(c.run_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct asked asked = { .is_asked = false };
	uint32_t job;
	int n = 0;

	if (!dir)
		return 0;
	copy = -1;
	/* It must be over before slurmd thinks that it hangs, with what came before. */
	c.deadline = clock_now(clock_monotonic()) + slurm_in_time(from, OTHERS_NS);
	c.wait_ns = WAIT_NS;
	while (clock_now(clock_monotonic()) < c.deadline && (job = slurm_dir_next(dir)) != 0)
		if (job != keep && clean_other(&c, job, &asked))
			n++;
	closedir(dir);
	free(asked.text);
	return n;
}
