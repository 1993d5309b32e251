/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of a job below RUN_DIR, and the small files in it. All are opened relative to a
 * descriptor and without following links: RUN_DIR is root's, and is refused when it is not. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/text.h"
#include "slurm_priv.h"

#define NAME_SIZE 16
#define LOCK_NAME ".lock"
#define LOCK_POLL_NS (10 * NS_PER_MS)

int slurm_run_open(const char *run_dir, bool may_make, struct err *err)
{
	AUTO_FD int fd = -1;
	struct stat st;

	if (may_make && mkdir(run_dir, 0755) < 0 && errno != EEXIST)
		return err_set_errno(err, -errno, "run_dir %s", run_dir);
	fd = open(run_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set_errno(err, -errno, "run_dir %s", run_dir);
	if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return err_set(err, -EPERM, "run_dir %s: others can write it", run_dir);
	return take_fd(&fd);
}

static void job_dir_name(uint32_t job, char out[NAME_SIZE])
{
	snprintf(out, NAME_SIZE, "%u", job);
}

int slurm_dir_open(int run_fd, uint32_t job)
{
	char name[NAME_SIZE];
	int fd;

	job_dir_name(job, name);
	fd = openat(run_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int slurm_dir_make(int run_fd, uint32_t job)
{
	char name[NAME_SIZE];
	AUTO_FD int fd = -1;

	job_dir_name(job, name);
	if (mkdirat(run_fd, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	fd = slurm_dir_open(run_fd, job);
	if (fd < 0)
		return fd;
	/* Whatever the umask was. */
	if (fchmod(fd, 0755) < 0 || (mkdirat(fd, "data", 0700) < 0 && errno != EEXIST))
		return -errno;
	return take_fd(&fd);
}

/* Of a file of root's, not of the directory: whoever may open that could hold it. */
int slurm_dir_lock(int dir_fd)
{
	AUTO_FD int fd = openat(dir_fd, ".prolog", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	return take_fd(&fd);
}

int slurm_job_lock(int run_fd, uint32_t job, uint64_t ns)
{
	AUTO_FD int fd = openat(run_fd, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = job, .l_len = 1 };
	struct timespec pause = { .tv_nsec = LOCK_POLL_NS };
	uint64_t end = clock_now(clock_monotonic()) + ns;

	if (fd < 0)
		return -errno;
	/* Of the process, not of the descriptor: a child that hangs does not have it. */
	while (fcntl(fd, F_SETLK, &lock) < 0) {
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			return -errno;
		if (clock_now(clock_monotonic()) >= end)
			return -EBUSY;
		nanosleep(&pause, NULL);
	}
	return take_fd(&fd);
}

/* At most size - 1 bytes, terminated; the length or a negative errno. */
static ssize_t read_job_file(int dir_fd, const char *name, char *out, size_t size)
{
	AUTO_FD int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	n = pread(fd, out, size, 0);
	if (n < 0)
		return -errno;
	if ((size_t)n == size)
		return -EFBIG;
	out[n] = 0;
	return n;
}

/* Whole or not at all. */
static int write_job_file(int dir_fd, const char *name, const char *text, mode_t mode, gid_t gid)
{
	char temp[64];
	AUTO_FD int fd = -1;
	size_t len = strlen(text);
	int rc = 0;

	snprintf(temp, sizeof(temp), ".%s.%d", name, (int)getpid());
	fd = openat(dir_fd, temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (fchown(fd, (uid_t)-1, gid) < 0 || fchmod(fd, mode) < 0 ||
	    write(fd, text, len) != (ssize_t)len || renameat(dir_fd, temp, dir_fd, name) < 0)
		rc = errno ? -errno : -EIO;
	if (rc < 0)
		unlinkat(dir_fd, temp, 0);
	return rc;
}

int slurm_record_read(int dir_fd, struct slurm_record *ret)
{
	char text[SLURM_RECORD_MAX];
	ssize_t n = read_job_file(dir_fd, "record", text, sizeof(text));

	return n < 0 ? (int)n : slurm_record_parse(text, (size_t)n, ret);
}

int slurm_record_write(int dir_fd, const struct slurm_record *record)
{
	char text[SLURM_RECORD_MAX];

	slurm_record_print(record, text);
	return write_job_file(dir_fd, "record", text, 0600, (gid_t)-1);
}

int slurm_status_write(int dir_fd, const struct slurm_status *status, gid_t gid)
{
	char text[SLURM_STATUS_MAX];

	slurm_status_print(status, text);
	return write_job_file(dir_fd, "status", text, 0640, gid);
}

int slurm_status_put(int fd, const struct slurm_status *status)
{
	char text[SLURM_STATUS_MAX];
	size_t len;

	slurm_status_print(status, text);
	len = strlen(text);
	if (ftruncate(fd, 0) < 0 || pwrite(fd, text, len, 0) != (ssize_t)len)
		return errno ? -errno : -EIO;
	return 0;
}

int slurm_status_read(int dir_fd, struct slurm_status *ret)
{
	char text[SLURM_STATUS_MAX];
	ssize_t n = read_job_file(dir_fd, "status", text, sizeof(text));

	return n < 0 ? (int)n : slurm_status_parse(text, (size_t)n, ret);
}

uint32_t slurm_dir_next(void *dir)
{
	const struct dirent *entry;
	uint64_t job;

	while ((entry = readdir(dir)))
		if (text_to_u64(entry->d_name, &job) == 0 && job > 0 && job < UINT32_MAX &&
		    entry->d_name[0] != '0')
			return (uint32_t)job;
	return 0;
}
