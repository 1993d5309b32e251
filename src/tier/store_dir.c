/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of a store: whose it is, what is in it, and the files of its segments.
 *
 * A private store makes files without a name, so that nothing is left behind however the process
 * ends. A persistent one marks its directory: a directory that holds something else is not taken,
 * so that a mistyped path costs a message and not somebody's data. Files are opened by name below
 * one descriptor, without following links, and are used only if they are the user's own, regular,
 * with one name and closed to others.
 *
 * Page cache is memory of the training job: reads and writes go around it (O_DIRECT) wherever the
 * filesystem lets them, which is found out by doing it once; elsewhere pages are dropped after use.
 *
 * Any thread. Must never remove a file that is not a segment.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include "store_priv.h"

#define MARKER "clairfs-store"
#define MARKER_TEXT "clairfs store 2\n"
#define LOCK_TRIES 100
#define LOCK_PAUSE_NS 10000000

static int sys_openat(int dirfd, const char *name, int flags, mode_t mode)
{
	return openat(dirfd, name, flags, mode);
}

const struct store_sys store_sys_real = {
	.openat = sys_openat,
	.pread = pread,
	.pwritev = pwritev,
	.fallocate = fallocate,
	.ftruncate = ftruncate,
	.fstatvfs = fstatvfs,
	.unlinkat = unlinkat,
};

/* --- the directory --- */

static int check_store_dir(const struct store_dir *dir, const char *path, struct err *err)
{
	struct stat st;

	if (fstat(dir->fd, &st) < 0)
		return err_set_errno(err, -errno, "store directory %s", path);
	if (!dir->is_persistent && (st.st_mode & S_ISVTX) &&
	    (st.st_uid == 0 || st.st_uid == geteuid()))
		return 0; /* like /tmp: others can't remove or replace what is ours */
	if (st.st_uid != geteuid())
		return err_set(err, -EPERM,
			       "store directory %s: it belongs to user %u; use one of your own",
			       path, (unsigned)st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return err_set(err, -EPERM,
			       "store directory %s: others may write to it; try chmod go-w, or a "
			       "directory of your own in it",
			       path);
	return 0;
}

/* Whether a name is one of a segment. */
static bool segment_id_of(const char *name, uint64_t *ret_id)
{
	char again[STORE_NAME_SIZE];

	if (strncmp(name, "seg-", 4) != 0)
		return false;
	*ret_id = strtoull(name + 4, NULL, 16);
	store_segment_name(*ret_id, again);
	return strcmp(name, again) == 0;
}

/* Nothing of anybody else's in it. lost+found: the root of a drive made for this; segments: a power
 * cut may take the marker's name only. */
static int check_store_empty(const struct store_dir *dir, const char *path, struct err *err)
{
	AUTO_FD int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *de;
	uint64_t id;
	int rc = 0;

	if (!d)
		return err_set_errno(err, -errno, "store directory %s", path);
	fd = -1;
	while (rc == 0 && (de = readdir(d)))
		if (!segment_id_of(de->d_name, &id) && strcmp(de->d_name, ".") != 0 &&
		    strcmp(de->d_name, "..") != 0 && strcmp(de->d_name, "lost+found") != 0 &&
		    strcmp(de->d_name, MARKER) != 0)
			rc = err_set(err, -ENOTEMPTY,
				     "store directory %s: it holds something else (%s); use an "
				     "empty one",
				     path, de->d_name);
	closedir(d);
	return rc;
}

/* 1: it is to be written. */
static int check_store_marker(int fd, const char *path, struct err *err)
{
	char text[64] = { 0 };
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_set_errno(err, -errno, "store directory %s", path);
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
		return err_set(err, -EPERM, "store directory %s: " MARKER " in it is not ours",
			       path);
	if (pread(fd, text, sizeof(text) - 1, 0) < 0)
		return err_set_errno(err, -errno, "store directory %s", path);
	if (strncmp(text, MARKER_TEXT, strlen(text)) != 0) /* empty, cut off: a power cut */
		return err_set(err, -EPROTONOSUPPORT,
			       "store directory %s: made by another version; remove what is in it",
			       path);
	return strcmp(text, MARKER_TEXT) != 0;
}

static int close_to_others(const struct store_dir *dir, const char *path, struct err *err)
{
	struct stat st;

	if (fstat(dir->fd, &st) < 0 || ((st.st_mode & 07777) != 0700 && fchmod(dir->fd, 0700) < 0))
		return err_set_errno(err, -errno, "store directory %s", path);
	return 0;
}

bool store_is_drive_error(int status)
{
	return status == -EROFS || status == -EACCES || status == -ENOSPC || status == -EDQUOT ||
	       status == -EIO || status == -ENXIO || status == -ENODEV || status == -ESTALE ||
	       status == -ETIMEDOUT;
}

/* What the drive refuses is noted, what is wrong with the directory is an error. */
static int note_status(struct store_dir *dir, int rc)
{
	if (!store_is_drive_error(rc))
		return rc;
	if (!dir->status)
		dir->status = rc;
	return 0;
}

static int marker_open(const struct store_dir *dir, int flags)
{
	int fd = dir->sys->openat(dir->fd, MARKER, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
				  0600);

	return fd < 0 ? -errno : fd;
}

/* The marker's descriptor; one is made in an empty directory. For reading only if need be. */
static int find_marker(struct store_dir *dir, const char *path, struct err *err)
{
	int fd = marker_open(dir, O_RDWR), rc;

	if (fd == -ENOENT) {
		rc = check_store_empty(dir, path, err);
		if (rc < 0)
			return rc;
		fd = marker_open(dir, O_RDWR | O_CREAT);
	} else if (store_is_drive_error(fd)) {
		(void)note_status(dir, fd);
		rc = marker_open(dir, O_RDONLY);
		fd = rc >= 0 ? rc : fd;
	}
	return fd < 0 ? err_set_errno(err, fd, "store directory %s: " MARKER, path) : fd;
}

static int open_marker(struct store_dir *dir, const char *path, struct err *err)
{
	struct iovec iov = { (char *)MARKER_TEXT, strlen(MARKER_TEXT) };
	int rc = find_marker(dir, path, err);

	if (rc < 0)
		return note_status(dir, rc);
	dir->marker_fd = rc;
	rc = check_store_marker(dir->marker_fd, path, err);
	if (rc > 0 && !dir->status) {
		rc = store_write_all(dir, dir->marker_fd, &iov, 1, 0);
		if (rc < 0)
			err_set_errno(err, rc, "store directory %s: " MARKER, path);
	}
	if (rc < 0)
		return note_status(dir, rc);
	rc = close_to_others(dir, path, err);
	return rc < 0 ? note_status(dir, rc) : 0;
}

static int make_unnamed_file(const struct store_dir *dir, int flags)
{
	int fd = dir->sys->openat(dir->fd, ".", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC | flags,
				  0600);

	if (fd >= 0)
		return fd;
	/* What a filesystem or a kernel without O_TMPFILE says; EINVAL may also mean O_DIRECT. */
	if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT)
		return store_file_make_named(dir, flags);
	return -errno;
}

static int try_file(const struct store_dir *dir, int flags)
{
	AUTO_FD int fd = make_unnamed_file(dir, flags);
	AUTO_FREE void *block = NULL;
	struct iovec iov;
	int rc;

	if (fd < 0)
		return fd;
	if (posix_memalign(&block, STORE_BLOCK, STORE_BLOCK) != 0)
		return -ENOMEM;
	memset(block, 0, STORE_BLOCK);
	iov = (struct iovec){ block, STORE_BLOCK };
	rc = store_write_all(dir, fd, &iov, 1, 0);
	return rc < 0 ? rc : store_read_all(dir, fd, block, STORE_BLOCK, 0);
}

int store_dir_try(const struct store_dir *dir)
{
	return try_file(dir, dir->is_direct ? O_DIRECT : 0);
}

/* A drive that is full or fails says nothing about it: its pages must not be in memory when it is
 * back. One that is read-only has the marker to try it with. */
static bool takes_direct(const struct store_dir *dir)
{
	AUTO_FD int fd =
		dir->status && dir->marker_fd >= 0 ? marker_open(dir, O_RDONLY | O_DIRECT) : -1;
	int rc = dir->status && dir->marker_fd >= 0 ? MIN(fd, 0) : try_file(dir, O_DIRECT);

	return rc != -EINVAL && rc != -EOPNOTSUPP;
}

int store_dir_open(struct store_dir *dir, const char *path, bool is_persistent,
		   const struct store_sys *sys, struct err *err)
{
	int rc;

	*dir = (struct store_dir){ .sys = sys, .fd = -1, .marker_fd = -1 };
	dir->is_persistent = is_persistent;
	dir->fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir->fd < 0)
		return err_set_errno(err, -errno, "store directory %s", path);
	rc = check_store_dir(dir, path, err);
	if (rc == 0 && is_persistent)
		rc = open_marker(dir, path, err);
	/* Tried, because what a filesystem accepts at open() it may still refuse here. */
	if (rc == 0)
		dir->is_direct = takes_direct(dir);
	if (rc == 0 && !is_persistent) {
		AUTO_FD int fd = make_unnamed_file(dir, 0);

		if (fd < 0)
			rc = note_status(dir, err_set_errno(err, fd,
							    "store directory %s: no file can be "
							    "made in it",
							    path));
	}
	if (rc < 0)
		store_dir_close(dir);
	return rc;
}

void store_dir_close(struct store_dir *dir)
{
	if (dir->fd >= 0)
		close(dir->fd);
	if (dir->marker_fd >= 0)
		close(dir->marker_fd);
	dir->fd = dir->marker_fd = -1;
}

int store_dir_again(struct store_dir *dir)
{
	int rc = 0;

	if (!dir->status)
		return 0;
	if (dir->marker_fd >= 0)
		close(dir->marker_fd);
	dir->marker_fd = -1;
	dir->status = 0;
	if (dir->is_persistent)
		rc = open_marker(dir, "", NULL);
	if (rc < 0) /* not ours any more */
		dir->status = rc;
	return dir->status;
}

void store_dir_lock(const struct store_dir *dir)
{
	static const struct timespec pause = { .tv_nsec = LOCK_PAUSE_NS };

	if (dir->marker_fd < 0)
		return;
	for (int i = 0; i < LOCK_TRIES && flock(dir->marker_fd, LOCK_EX | LOCK_NB) < 0; i++)
		nanosleep(&pause, NULL);
}

void store_dir_unlock(const struct store_dir *dir)
{
	if (dir->marker_fd >= 0)
		(void)flock(dir->marker_fd, LOCK_UN);
}

/* --- files --- */

void store_segment_name(uint64_t id, char name[STORE_NAME_SIZE])
{
	snprintf(name, STORE_NAME_SIZE, "seg-%016" PRIx64, id);
}

int store_file_make_named(const struct store_dir *dir, int flags)
{
	for (int tries = 0; tries < 100; tries++) {
		char name[32];
		uint64_t random;
		int fd;

		if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
			return -EIO;
		snprintf(name, sizeof(name), ".clairfs-%016" PRIx64, random);
		fd = dir->sys->openat(dir->fd, name,
				      flags | O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
				      0600);
		if (fd >= 0) {
			(void)unlinkat(dir->fd, name, 0);
			return fd;
		}
		if (errno != EEXIST) {
			int rc = -errno;

			/* A filesystem may refuse O_DIRECT after having made the file. */
			(void)unlinkat(dir->fd, name, 0);
			return rc;
		}
	}
	return -EEXIST;
}

int store_dir_make(const struct store_dir *dir, uint64_t id)
{
	int flags = dir->is_direct ? O_DIRECT : 0;
	char name[STORE_NAME_SIZE];
	AUTO_FD int fd = -1;
	struct stat st;

	if (!dir->is_persistent)
		return make_unnamed_file(dir, flags);
	store_segment_name(id, name);
	fd = dir->sys->openat(dir->fd, name,
			      flags | O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	/* Somebody who looks through the directory right now may take it for a ruin. */
	if (flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &st) < 0 || st.st_nlink == 0)
		return -EAGAIN;
	return take_fd(&fd);
}

int store_dir_open_segment(const struct store_dir *dir, uint64_t id, int access)
{
	/* The time of access tells when somebody wanted it last (store_touch_wanted). */
	int flags = access | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOATIME;
	char name[STORE_NAME_SIZE];
	AUTO_FD int fd = -1;
	struct stat st;

	store_segment_name(id, name);
	fd = dir->sys->openat(dir->fd, name, flags | (dir->is_direct ? O_DIRECT : 0), 0);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1 ||
	    (st.st_mode & 077))
		return -EPERM;
	/* O_NONBLOCK was for what is no regular file; a ring would not wait for such reads. */
	if (fcntl(fd, F_SETFL, O_NOATIME | (dir->is_direct ? O_DIRECT : 0)) < 0)
		return -errno;
	return take_fd(&fd);
}

int store_dir_each(const struct store_dir *dir, int (*each)(void *ctx, uint64_t id), void *ctx)
{
	AUTO_FD int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *de;
	int rc = 0;

	if (!d)
		return -errno;
	fd = -1;
	while (rc == 0 && (de = readdir(d))) {
		uint64_t id;

		if (segment_id_of(de->d_name, &id))
			rc = each(ctx, id);
	}
	closedir(d);
	return rc;
}

/* --- bytes --- */

int store_read_all(const struct store_dir *dir, int fd, void *bytes, size_t n, uint64_t at)
{
	uint8_t *to = bytes;

	while (n > 0) {
		ssize_t got = dir->sys->pread(fd, to, n, (off_t)at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return -EIO;
		to += got;
		at += (uint64_t)got;
		n -= (size_t)got;
	}
	return 0;
}

int store_write_all(const struct store_dir *dir, int fd, struct iovec *iov, int n_iov, uint64_t at)
{
	while (n_iov > 0) {
		ssize_t got;

		if (iov->iov_len == 0) {
			iov++;
			n_iov--;
			continue;
		}
		got = dir->sys->pwritev(fd, iov, n_iov, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return -EIO;
		at += (uint64_t)got;
		for (size_t left = (size_t)got; left > 0;) {
			size_t part = MIN(left, iov->iov_len);

			iov->iov_base = (char *)iov->iov_base + part;
			iov->iov_len -= part;
			left -= part;
			if (iov->iov_len == 0) {
				iov++;
				n_iov--;
			}
		}
	}
	return 0;
}

void store_drop_cache(const struct store_dir *dir, int fd, uint64_t at, uint64_t n)
{
	if (!dir->is_direct)
		(void)posix_fadvise(fd, (off_t)at, (off_t)n, POSIX_FADV_DONTNEED);
}
