/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who mounts for a daemon that is not root any more. A mount that is made before its index would
 * keep everybody waiting who walks over it (df, find) as long as the source takes; a daemon that
 * stayed root until then would read the source with rights that are not its user's. So a child of
 * the daemon stays root, sleeps until the daemon has made its index as the user, mounts, and ends.
 * It reads nothing but the daemon's word, eight bytes that can make no more of it than this mount.
 *
 * The epilog may be at work by then: the job's lock keeps it out, and only the daemon that the
 * record names gets a mount. A daemon that ends before it asks ends this one with it.
 *
 *	daemon, root    fork ------------------------.
 *	  '' , user     index ... need ------------> mounter, root: mounts, ends
 *
 * One thread on each side.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "clairfs/base/clock.h"
#include "clairfs/fs.h"
#include "slurm_priv.h"

#define LOCK_NS (10 * NS_PER_S) /* a prolog or reap that is at work on this job's number */

/* What the other side hears; the text is for a person. */
struct answer {
	int rc;
	char why[256];
};

/* As long as there is a daemon. */
static int lock_job(const struct slurm_mounter_params *p)
{
	uint64_t end = clock_now(clock_monotonic()) + LOCK_NS;
	int fd;

	do {
		fd = slurm_job_lock(p->run_fd, p->record->job, LOCK_NS / 100);
	} while (fd == -EBUSY && getppid() == p->record->pid && clock_now(clock_monotonic()) < end);
	return fd;
}

static int mount_it(const struct slurm_mounter_params *p, uint64_t need, struct err *err)
{
	AUTO_FD int lock = lock_job(p);
	AUTO_FD int dir = lock < 0 ? -1 : slurm_dir_open(p->run_fd, p->record->job);
	AUTO_FD int data = -1;
	struct slurm_record now;
	struct fs_premount mount = { .fuse_fd = p->fuse_fd,
				     .source = p->source,
				     .uid = p->record->uid,
				     .gid = p->record->gid };

	if (lock < 0)
		return err_set_errno(err, lock, "another hook is at work on job %u",
				     p->record->job);
	if (dir < 0 || slurm_record_read(dir, &now) < 0 || now.pid != p->record->pid ||
	    now.start != p->record->start || getppid() != now.pid)
		return err_set(err, -ECANCELED, "job %u is over", p->record->job);
	data = openat(dir, "data", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (data < 0)
		return err_set_errno(err, -errno, "the mountpoint of job %u", p->record->job);
	if (p->fits_memory)
		slurm_cgroup_fit(p->record->job, p->record->cgroup, need);
	mount.dir_fd = data;
	return fs_premount(&mount, err);
}

static _Noreturn void wait_and_mount(const struct slurm_mounter_params *p, int fd)
{
	struct answer answer = { .rc = 0 };
	struct err err = { 0 };
	uint64_t need;
	ssize_t n;

	prctl(PR_SET_NAME, "clairfs-mounter");
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	do
		n = recv(fd, &need, sizeof(need), 0);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(need))
		_exit(0); /* the daemon has ended */
	answer.rc = mount_it(p, need, &err);
	snprintf(answer.why, sizeof(answer.why), "%.255s", err.msg);
	(void)!send(fd, &answer, sizeof(answer), MSG_NOSIGNAL);
	_exit(0);
}

int slurm_mounter_start(const struct slurm_mounter_params *p, struct slurm_mounter *ret,
			struct err *err)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return err_set_errno(err, -errno, "mount");
	signal(SIGCHLD, SIG_DFL); /* it is waited for */
	fflush(NULL);
	ret->pid = fork();
	if (ret->pid == 0) {
		close(fds[0]);
		wait_and_mount(p, fds[1]);
	}
	close(fds[1]);
	ret->fd = fds[0];
	return ret->pid < 0 ? err_set_errno(err, -errno, "mount") : 0;
}

int slurm_mounter_mount(struct slurm_mounter *m, uint64_t need, struct err *err)
{
	struct answer answer = { .rc = 0 };
	ssize_t n = send(m->fd, &need, sizeof(need), MSG_NOSIGNAL);

	if (n == (ssize_t)sizeof(need))
		do
			n = recv(m->fd, &answer, sizeof(answer), 0);
		while (n < 0 && errno == EINTR);
	close(take_fd(&m->fd));
	while (waitpid(m->pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (n != (ssize_t)sizeof(answer))
		return err_set(err, -EIO, "the process that mounts has ended");
	answer.why[sizeof(answer.why) - 1] = 0;
	return answer.rc < 0 ? err_set(err, answer.rc, "%s", answer.why) : 0;
}
