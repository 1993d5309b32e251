/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of the files that mounts keep outside: a daemon that is killed cannot remove its
 * textfile, and a node exporter would go on showing the numbers of a mount that is gone. So there
 * is a record per mountpoint in a directory of the user, locked while its daemon lives and naming
 * the file. The next mount and the next `clairfs umount` there find a record that nobody has
 * locked, and remove what it names.
 *
 * A record is a text that somebody may have meddled with: only a file of the user's own whose name
 * ends in .prom is ever removed for it. Where there is no directory for records (an ordinary user
 * without $XDG_RUNTIME_DIR) only the next mount with the same file replaces it.
 *
 * Any thread; blocks as file systems do, hence never called on the data path.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "clairfs/base/log.h"
#include "clairfs/metrics/leftover.h"

void mount_word(const char *mountpoint, char out[MOUNT_WORD])
{
	uint32_t sum = (uint32_t)XXH3_64bits(mountpoint, strlen(mountpoint));
	size_t n = 0;

	for (const char *at = mountpoint + (*mountpoint == '/'); *at && n < MOUNT_WORD - 16; at++) {
		bool is_plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
				(*at >= '0' && *at <= '9') || *at == '_' || *at == '.';

		out[n++] = is_plain ? *at : '-';
	}
	snprintf(out + n, MOUNT_WORD - n, "-%08x", sum);
}

/* The directory of records, made if need be; -1: there is none that can be trusted. */
static int open_records(bool may_make)
{
	const char *base = getenv("XDG_RUNTIME_DIR");
	char dir[PATH_MAX];
	struct stat st;
	int fd, n;

	if (base && *base == '/')
		n = snprintf(dir, sizeof(dir), "%s/clairfs", base);
	else if (geteuid() == 0)
		n = snprintf(dir, sizeof(dir), "/run/clairfs");
	else
		return -1;
	if (n >= (int)sizeof(dir) || (may_make && mkdir(dir, 0755) < 0 && errno != EEXIST))
		return -1;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 &&
	    (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))) {
		close(fd);
		return -1;
	}
	return fd;
}

static void record_name(const char *id, char out[MOUNT_WORD + 16])
{
	snprintf(out, MOUNT_WORD + 16, "%s.textfile", id);
}

/* Opens and locks a record. -ENOENT, -EBUSY: its daemon lives. Whoever has removed the record while
 * we waited for nothing leaves us a file without a name: look again. */
static int lock_record(int dir, const char *name, int flags, int *ret)
{
	for (int tries = 0; tries < 100; tries++) {
		AUTO_FD int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
		struct stat st, named;

		if (fd < 0 || fstat(fd, &st) < 0)
			return -errno;
		if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
			return -EPERM;
		if (flock(fd, LOCK_EX | LOCK_NB) < 0)
			return errno == EWOULDBLOCK ? -EBUSY : -errno;
		if (fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
		    named.st_ino == st.st_ino) {
			*ret = take_fd(&fd);
			return 0;
		}
	}
	return -EBUSY;
}

char *leftover_temp(const char *path)
{
	const char *name = strrchr(path, '/') + 1;
	char *temp;

	if (asprintf(&temp, "%.*s.%s.tmp", (int)(name - path), path, name) < 0)
		return NULL;
	return temp;
}

static bool is_textfile(const char *path)
{
	size_t n = strlen(path);

	return *path == '/' && n > 5 && strcmp(path + n - 5, ".prom") == 0;
}

static void remove_textfile(const char *path)
{
	AUTO_FREE char *temp = *path == '/' ? leftover_temp(path) : NULL;
	struct stat st;

	if (temp && lstat(temp, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid())
		unlink(temp);
	if (is_textfile(path) && lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
	    st.st_uid == geteuid())
		unlink(path);
}

bool leftover_parse(const char *bytes, size_t n, char out[PATH_MAX])
{
	/* Else it is not whole, or more than one. */
	if (n < 2 || n > PATH_MAX || bytes[n - 1] != '\n' || memchr(bytes, 0, n) ||
	    memchr(bytes, '\n', n - 1))
		return false;
	memcpy(out, bytes, n - 1);
	out[n - 1] = '\0';
	return is_textfile(out);
}

/* Removes what the record names. */
static void clear_record(int fd)
{
	char bytes[PATH_MAX + 1], path[PATH_MAX];
	ssize_t n = pread(fd, bytes, sizeof(bytes), 0);

	if (n > 0 && leftover_parse(bytes, (size_t)n, path))
		remove_textfile(path);
}

/* A record that cannot be written names nothing: then only the next mount replaces the file. */
static void write_record(int fd, const char *path)
{
	char line[PATH_MAX + 1];
	int n = snprintf(line, sizeof(line), "%s\n", path);

	if (ftruncate(fd, 0) < 0 || n >= (int)sizeof(line) || pwrite(fd, line, (size_t)n, 0) != n)
		log_info("metrics_textfile: no record of %s for the time after a kill", path);
}

int leftover_take(const char *id, const char *path, int *ret_fd)
{
	AUTO_FD int dir = open_records(path != NULL);
	char name[MOUNT_WORD + 16];
	int rc;

	*ret_fd = -1;
	if (dir < 0)
		return 0;
	record_name(id, name);
	rc = lock_record(dir, name, path ? O_CREAT : 0, ret_fd);
	if (rc < 0)
		return rc == -EBUSY ? rc : 0;
	clear_record(*ret_fd);
	if (path) {
		write_record(*ret_fd, path);
		return 0;
	}
	unlinkat(dir, name, 0);
	close(take_fd(ret_fd));
	return 0;
}

void leftover_release(const char *id, const char *path, int take_fd)
{
	AUTO_FD int fd = take_fd;
	AUTO_FD int dir = fd >= 0 ? open_records(false) : -1;
	char name[MOUNT_WORD + 16];

	remove_textfile(path);
	record_name(id, name);
	if (dir >= 0)
		unlinkat(dir, name, 0);
}

void leftover_clear(const char *mountpoint)
{
	char id[MOUNT_WORD];
	int fd;

	mount_word(mountpoint, id);
	if (leftover_take(id, NULL, &fd) < 0)
		return; /* its daemon lives and will do it */
}
