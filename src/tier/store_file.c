/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of the store: made without a name, so that nothing is left behind however the process
 * ends, and grown by segments that are reserved before they are written (records then lie together
 * on the device, and running out of space is noticed between segments, not in the middle of one).
 *
 * Page cache is memory of the training job: reads and writes go around it (O_DIRECT) wherever the
 * filesystem lets them, which is found out by doing it once; elsewhere pages are dropped after use.
 *
 * store_file_append() belongs to one thread at a time and blocks. Space is asked for only here. It
 * must never write over a record, nor take the filesystem below keep_free.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "store_priv.h"

#define SEGMENT_MIN (64ull << 20)
#define SEGMENT_MAX (256ull << 20)
#define DROP_BYTES (16ull << 20)

const struct store_sys store_sys_real = {
	.pwrite = pwrite,
	.fallocate = fallocate,
	.fstatvfs = fstatvfs,
};

static int check_dir(int dirfd, const char *dir, struct err *err)
{
	struct stat st;

	if (fstat(dirfd, &st) < 0)
		return err_set_errno(err, -errno, "store directory %s", dir);
	if ((st.st_mode & S_ISVTX) && (st.st_uid == 0 || st.st_uid == geteuid()))
		return 0; /* like /tmp: others can't remove or replace what is ours */
	if (st.st_uid != geteuid())
		return err_set(err, -EPERM,
			       "store directory %s: it belongs to user %u; use one of your own",
			       dir, (unsigned)st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return err_set(err, -EPERM,
			       "store directory %s: others may write to it; try chmod go-w", dir);
	return 0;
}

int store_file_make_named(int dirfd, int flags)
{
	for (int tries = 0; tries < 100; tries++) {
		char name[32];
		uint64_t random;
		int fd;

		if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
			return -EIO;
		snprintf(name, sizeof(name), ".clairfs-%016llx", (unsigned long long)random);
		fd = openat(dirfd, name, flags | O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			    0600);
		if (fd >= 0) {
			(void)unlinkat(dirfd, name, 0);
			return fd;
		}
		if (errno != EEXIST) {
			int rc = -errno;

			/* A filesystem may refuse O_DIRECT after having made the file. */
			(void)unlinkat(dirfd, name, 0);
			return rc;
		}
	}
	return -EEXIST;
}

static int make_file(int dirfd, int flags)
{
	int fd = openat(dirfd, ".", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);

	if (fd >= 0)
		return fd;
	/* What a filesystem or a kernel without O_TMPFILE says; EINVAL may also mean O_DIRECT. */
	if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT)
		return store_file_make_named(dirfd, flags);
	return -errno;
}

/* Whether blocks of ours can be written and read around the page cache: tried, because what a
 * filesystem accepts at open() it may still refuse here. Leaves the file empty. */
static bool can_do_direct(int fd)
{
	void *block = NULL;
	bool ok;

	if (posix_memalign(&block, STORE_BLOCK, STORE_BLOCK) != 0)
		return false;
	memset(block, 0, STORE_BLOCK);
	ok = pwrite(fd, block, STORE_BLOCK, 0) == (ssize_t)STORE_BLOCK &&
	     pread(fd, block, STORE_BLOCK, 0) == (ssize_t)STORE_BLOCK;
	free(block);
	return ftruncate(fd, 0) == 0 && ok;
}

int store_file_open(struct store_file *file, const struct store_params *params,
		    const struct store_sys *sys, struct err *err)
{
	AUTO_FD int dirfd = open(params->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	AUTO_FD int fd = -1;
	int rc;

	if (dirfd < 0)
		return err_set_errno(err, -errno, "store directory %s", params->dir);
	rc = check_dir(dirfd, params->dir, err);
	if (rc < 0)
		return rc;
	fd = make_file(dirfd, O_DIRECT);
	file->is_direct = fd >= 0 && can_do_direct(fd);
	if (!file->is_direct) {
		if (fd >= 0)
			close(take_fd(&fd));
		fd = make_file(dirfd, 0);
	}
	if (fd < 0) {
		rc = fd;
		fd = -1;
		return err_set_errno(err, rc, "store directory %s: no file can be made in it",
				     params->dir);
	}
	file->sys = sys;
	file->limit = MIN(ALIGN_DOWN(params->limit_bytes, (uint64_t)STORE_BLOCK),
			  (uint64_t)STORE_NO_BLOCK * STORE_BLOCK);
	file->keep_free = params->keep_free_bytes;
	file->reserved = 0;
	atomic_init(&file->tail, 0);
	file->fd = take_fd(&fd);
	return 0;
}

/* Bytes that may still be taken from the filesystem. */
static int free_bytes(const struct store_file *file, uint64_t *ret)
{
	struct statvfs st;
	uint64_t n;

	if (file->sys->fstatvfs(file->fd, &st) < 0)
		return -errno;
	n = (uint64_t)st.f_bavail * st.f_frsize;
	*ret = n > file->keep_free ? n - file->keep_free : 0;
	return 0;
}

/* Gets another segment, of at least n bytes. */
static int reserve(struct store_file *file, uint64_t n)
{
	uint64_t segment = MAX(SEGMENT_MIN, MIN(SEGMENT_MAX, file->limit / 64));
	uint64_t available = 0;
	int rc = free_bytes(file, &available);

	if (rc < 0)
		return rc;
	segment = MIN(segment, file->limit - file->reserved);
	segment = MIN(segment, ALIGN_DOWN(available, (uint64_t)STORE_BLOCK));
	for (; segment >= n; segment = ALIGN_DOWN(segment / 2, (uint64_t)STORE_BLOCK)) {
		do
			rc = file->sys->fallocate(file->fd, 0, (off_t)file->reserved,
						  (off_t)segment);
		while (rc < 0 && errno == EINTR);
		/* Without fallocate() space is taken as it is written. */
		if (rc == 0 || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) {
			file->reserved += segment;
			return 0;
		}
		if (errno != ENOSPC && errno != EDQUOT && errno != EFBIG)
			return -errno;
	}
	return -ENOSPC;
}

void store_file_drop_cache(const struct store_file *file, uint64_t offset, uint64_t n)
{
	if (!file->is_direct)
		(void)posix_fadvise(file->fd, (off_t)offset, (off_t)n, POSIX_FADV_DONTNEED);
}

static int write_all(const struct store_file *file, const uint8_t *bytes, uint32_t n, uint64_t at)
{
	while (n > 0) {
		ssize_t got = file->sys->pwrite(file->fd, bytes, n, (off_t)at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return -EIO;
		bytes += got;
		at += (uint64_t)got;
		n -= (uint32_t)got;
	}
	return 0;
}

/* After a write of n bytes through the page cache. Dirty pages can't be dropped: their way to the
 * device is started now, and what was started a while ago is dropped. */
static void clean_up_behind(const struct store_file *file, uint64_t at, uint64_t n)
{
	uint64_t step = at / DROP_BYTES;

	(void)sync_file_range(file->fd, (off_t)at, (off_t)n, SYNC_FILE_RANGE_WRITE);
	if ((at + n) / DROP_BYTES != step)
		store_file_drop_cache(file, (step > 0 ? step - 1 : 0) * DROP_BYTES, 2 * DROP_BYTES);
}

int store_file_append(struct store_file *file, const void *bytes, uint32_t n, uint32_t *ret_block)
{
	uint64_t at = atomic_load_explicit(&file->tail, memory_order_relaxed);
	int rc = 0;

	/* A record may begin in one segment and end in the next: they are one file. Segments end
	 * with the budget. */
	if (at + n > file->reserved)
		rc = reserve(file, at + n - file->reserved);
	if (rc == 0)
		rc = write_all(file, bytes, n, at);
	if (rc == -EDQUOT || rc == -EFBIG)
		return -ENOSPC;
	if (rc < 0)
		return rc;
	if (!file->is_direct)
		clean_up_behind(file, at, n);
	*ret_block = (uint32_t)(at / STORE_BLOCK);
	atomic_store_explicit(&file->tail, at + n, memory_order_relaxed);
	return 0;
}
