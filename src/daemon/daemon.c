/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the daemon: fork, report readiness through a pipe, serve, take signals, unmount. The
 * child leads a session of its own before the parent returns (a prolog script's process group is
 * killed when the script ends) and lets go of the parent's standard streams once it is ready (a
 * script that waits for their end would wait for the mount's). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "clairfs/base/log.h"
#include "clairfs/base/thr.h"
#include "daemon_priv.h"
#include "guard.h"

struct signals {
	struct thr thread;
	struct fs *fs;
	sigset_t set;
	atomic_bool is_ending; /* SIGUSR1 means: look here */
};

static void *signals_run(void *arg)
{
	struct signals *s = arg;
	int sig;

	while (sigwait(&s->set, &sig) == 0) {
		if (sig != SIGUSR1) {
			log_info("%s: unmounting",
				 sigabbrev_np(sig) ? sigabbrev_np(sig) : "signal");
			fs_stop(s->fs);
		} else if (atomic_load(&s->is_ending)) {
			return NULL;
		}
	}
	return NULL;
}

static void block_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
	sigaddset(set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, set, NULL);
}

/* Tells the parent: an int (0: ready) and, for errors, the text. False: the parent is gone. */
static bool report_ready(int fd, int rc, const char *msg)
{
	return fd < 0 || (write(fd, &rc, sizeof(rc)) == (ssize_t)sizeof(rc) &&
			  write(fd, msg, strlen(msg)) == (ssize_t)strlen(msg));
}

static void detach_streams(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return;
	for (int fd = 0; fd <= 2; fd++)
		dup2(null, fd);
	close(null);
}

/* From the mounted filesystem to its end. */
static int serve_mounted(const struct daemon_params *params, struct wire *w,
			 struct signals *signals, struct guard *guard, int ready_fd,
			 struct err *err)
{
	int rc = thr_start(&signals->thread, "signals", signals_run, signals, err);

	if (rc < 0)
		return rc;
	guard_watch(guard, w->mountpoint);
	if (ready_fd >= 0) {
		if (chdir("/") < 0)
			log_warn("chdir /: %s", strerror(errno));
		log_show_warnings(false);
		detach_streams();
		prctl(PR_SET_PDEATHSIG, 0);
		if (!report_ready(ready_fd, 0, "")) { /* interrupted: nobody knows of this mount */
			log_warn("whoever asked for %s is gone: unmounting", w->mountpoint);
			fs_stop(w->fs);
		}
		close(ready_fd);
	}
	if (params->ready)
		params->ready(params->ready_ctx);
	wire_log(w);
	fs_wait(w->fs);
	guard_stop(guard);
	atomic_store(&signals->is_ending, true);
	pthread_kill(signals->thread.id, SIGUSR1);
	thr_join(&signals->thread);
	log_info("%s: unmounted", w->mountpoint);
	return 0;
}

/* Returns when unmounted. ready_fd: where the parent listens, or -1 in the foreground. Until there
 * is something to unmount, signals have their usual effect: a scan can be interrupted. */
static int serve_mount(const struct daemon_params *params, int ready_fd, struct err *err)
{
	struct signals signals = { 0 };
	struct wire w = { 0 };
	struct guard guard;
	int rc;

	guard_start(&guard);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* the store then gets EFBIG and is switched off */
	if (ready_fd >= 0) {
		log_use_syslog(); /* from the start: stderr is for who mounts, who has to hear of errors and
				   * warnings only */
		log_show_warnings(true);
		prctl(PR_SET_PDEATHSIG, SIGTERM);
	}
	rc = wire_check(&w, params, err);
	if (rc == 0)
		rc = wire_prepare(&w, params, err);
	if (rc == 0 && params->mount)
		rc = params->mount(params->ready_ctx,
				   memlimit_need(&w.memory, dataset_n_entries(w.dataset)), err);
	block_signals(&signals.set);
	if (rc == 0)
		rc = wire_mount(&w, err);
	if (rc == 0) {
		signals.fs = w.fs;
		rc = serve_mounted(params, &w, &signals, &guard, ready_fd, err);
	}
	guard_stop(&guard);
	wire_down(&w);
	if (rc < 0)
		report_ready(ready_fd, rc, err->msg);
	return rc;
}

/* The parent's half: waits for the child's word. */
static int await_ready(int fd, pid_t pid, struct err *err)
{
	char text[sizeof(err->msg)];
	size_t len = 0;
	ssize_t got;
	int rc, status;

	do
		got = read(fd, &rc, sizeof(rc));
	while (got < 0 && errno == EINTR);
	if (got != (ssize_t)sizeof(rc)) {
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		return err_set(err, -EIO,
			       "the daemon ended before the mount was ready (see syslog)");
	}
	if (rc == 0)
		return 0;
	while (len < sizeof(text) - 1 && (got = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)got;
	text[len] = 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return err_set(err, rc, "%s", text);
}

int daemon_run(const struct daemon_params *params, struct err *err)
{
	int fds[2], rc;
	pid_t pid;

	if (params->is_foreground)
		return serve_mount(params, -1, err);
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_set_errno(err, -errno, "pipe");
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		rc = err_set_errno(err, -errno, "fork");
		close(fds[0]);
		close(fds[1]);
		return rc;
	}
	if (pid == 0) {
		close(fds[0]);
		setsid();
		_exit(serve_mount(params, fds[1], err) < 0 ? 1 : 0);
	}
	close(fds[1]);
	rc = await_ready(fds[0], pid, err);
	close(fds[0]);
	return rc;
}
