/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mounting and unmounting. libfuse mounts (as root by mount(2), else through fusermount3), after
 * checks here that say in one line what is wrong with the mountpoint. Always read-only: a writable
 * mount costs a GETATTR per file read, through atime.
 *
 * Unmounting is not left to libfuse. It would close the device while threads that complete reads
 * may still write answers to that descriptor number, and by then the number may belong to another
 * file. So the mount is taken away first (fs_mount_detach) and another open file is put under the
 * same number later (fs_mount_cut): late answers fail harmlessly, and libfuse closes the number in
 * fs_free, when nobody else is left.
 *
 * Taking the descriptor away does not cut the connection as long as any system call on the old file
 * lasts; one that waits for a page of a READ would then wait for ever, because the answer goes to
 * the new file. Aborting the connection would end it, but not every user may: root may force the
 * unmount, others need fusectl to be mounted. So fs_unmount cuts only when nothing can be waiting
 * any more, and the abort merely makes it faster.
 *
 * Threads: the one that calls fs_new and fs_unmount.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "clairfs/base/log.h"

#include "fs_priv.h"
#include "overheard.h"

#define FUSE_FS_MAGIC 0x65735546
#define BLOCKED_FD_DEVICE "/dev/fuse"
#define CONNECTIONS_DIR "/sys/fs/fuse/connections"

/* While fuse_session_new and _mount run: where their words go. libfuse has one log function for the
 * whole process. */
static _Thread_local struct err *libfuse_err;

static void log_from_libfuse(enum fuse_log_level level, const char *fmt, va_list args)
	PRINTF_LIKE(2, 0);
static void log_from_libfuse(enum fuse_log_level level, const char *fmt, va_list args)
{
	char line[512];

	if (vsnprintf(line, sizeof(line), fmt, args) < 0)
		return;
	line[strcspn(line, "\n")] = '\0';
	if (libfuse_err)
		err_set(libfuse_err, -EIO, "%s", line);
	else
		log_line(level <= FUSE_LOG_ERR ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG, "libfuse: %s",
			 line);
}

static int dead_mount(const char *path, struct err *err)
{
	return err_set(err, -ENOTCONN, "mountpoint %s is a dead mount: run clairfs umount %s", path,
		       path);
}

static int check_is_empty_dir(const char *path, struct err *err)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int rc = 0;

	if (!dir)
		return err_set_errno(err, -errno, "mountpoint %s", path);
	errno = 0;
	while (rc == 0 && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			rc = err_set(err, -ENOTEMPTY, "mountpoint %s is not empty", path);
	if (rc == 0 && errno != 0)
		rc = err_set_errno(err, -errno, "mountpoint %s", path);
	closedir(dir);
	return rc;
}

static int check_mountpoint(const char *path, struct err *err)
{
	struct statx stx;
	struct statfs sfs;

	if (path[0] != '/')
		return err_set(err, -EINVAL, "mountpoint %s is not an absolute path", path);
	/* The attributes of a dead mount may still be cached: the filesystem itself must answer. */
	if (statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &stx) < 0) {
		if (errno == ENOTCONN || errno == ECONNABORTED)
			return dead_mount(path, err);
		if (errno == ENOENT)
			return err_set(err, -ENOENT, "mountpoint %s does not exist", path);
		return err_set_errno(err, -errno, "mountpoint %s", path);
	}
	if (!S_ISDIR(stx.stx_mode))
		return err_set(err, -ENOTDIR, "mountpoint %s is not a directory", path);
	if (statfs(path, &sfs) < 0)
		return errno == ENOTCONN ? dead_mount(path, err)
					 : err_set_errno(err, -errno, "mountpoint %s", path);
	if (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT && sfs.f_type == FUSE_FS_MAGIC)
		return err_set(err, -EBUSY, "mountpoint %s is mounted already", path);
	return check_is_empty_dir(path, err);
}

static int check_device(struct err *err)
{
	struct fs_caps caps;

	fs_probe_caps(&caps);
	if (!caps.has_dev_fuse)
		return err_set(err, -ENODEV, "cannot mount: %s", caps.dev_fuse_why);
	if (geteuid() != 0 && !caps.has_fusermount)
		return err_set(err, -ENOENT, "cannot mount: no fusermount3 in PATH, and not root");
	return 0;
}

/* The option string for libfuse, heap; NULL when out of memory. Its parser takes a backslash in
 * front of a comma or of another backslash. */
static char *mount_options(const struct fs_params *params)
{
	struct buf_writer w;

	buf_writer_init(&w);
	buf_printf(&w, "ro,default_permissions,nosuid,nodev,max_read=%u,subtype=clairfs%s,fsname=",
		   PIECE_BYTES, params->allow_other ? ",allow_other" : "");
	for (const char *c = params->source; *c; c++) {
		if (*c == ',' || *c == '\\')
			buf_put_u8(&w, '\\');
		buf_put_u8(&w, (uint8_t)*c);
	}
	buf_put_u8(&w, '\0');
	if (w.is_bad) {
		buf_writer_fini(&w);
		return NULL;
	}
	return (char *)w.data;
}

static int session_mount(struct fs *fs, char *options, struct err *err)
{
	char program[] = "clairfs", dash_o[] = "-o", device[32];
	char *argv[] = { program, dash_o, options, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);

	fs->se = fuse_session_new(&args, &fs_ops, sizeof(fs_ops), fs);
	fuse_opt_free_args(&args);
	if (!fs->se)
		return -EINVAL;
	if (!fs->params.fuse_fd)
		return fuse_session_mount(fs->se, fs->mountpoint) == 0 ? 0 : -EIO;
	snprintf(device, sizeof(device), "/dev/fd/%d", fs->params.fuse_fd);
	return fuse_session_mount(fs->se, device) == 0 ? 0 : -EIO;
}

int fs_mount(struct fs *fs, struct err *err)
{
	AUTO_FREE char *options = mount_options(&fs->params);
	struct err said = { .code = 0 }, reason = { .code = 0 };
	struct overheard overheard;
	int rc, fd;

	if (!options)
		return err_set_errno(err, -ENOMEM, "mount");
	if (!fs->params.fuse_fd) { /* else it is mounted, and would make us wait for ourselves */
		rc = check_mountpoint(fs->mountpoint, err);
		if (rc == 0)
			rc = check_device(err);
		if (rc < 0)
			return rc;
	}
	fuse_set_log_func(log_from_libfuse);
	libfuse_err = &said;
	overheard_begin(&overheard);
	rc = session_mount(fs, options, err);
	overheard_end(&overheard, &reason);
	libfuse_err = NULL;
	if (rc < 0)
		return err_set(err, rc, "cannot mount %s: %s", fs->mountpoint,
			       reason.msg[0] ? reason.msg
			       : said.msg[0] ? said.msg
					     : "libfuse gave no reason");
	fs->is_mounted = true;
	/* The reactor reads until nothing is left. */
	fd = fuse_session_fd(fs->se);
	if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
		return err_set_errno(err, -errno, "the FUSE device");
	return 0;
}

/* Device number of what is at the mountpoint now, 0 if that cannot be said. */
static uint64_t device_at(const char *path)
{
	struct statx stx;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_TYPE, &stx) < 0)
		return 0;
	return makedev(stx.stx_dev_major, stx.stx_dev_minor);
}

int fs_mount_identify(struct fs *fs, struct err *err)
{
	fs->mount_dev = device_at(fs->mountpoint);
	return fs->mount_dev ? 0
			     : err_set_errno(err, -errno, "the mount on %s does not answer",
					     fs->mountpoint);
}

uint64_t fs_device(const struct fs *fs)
{
	return fs->mount_dev;
}

static int fusermount_end(const char *mountpoint)
{
	AUTO_FREE char *program = fs_caps_fusermount();
	char a0[] = "fusermount3", a1[] = "-u", a2[] = "-z", a3[] = "-q", a4[] = "--";
	char *argv[] = { a0, a1, a2, a3, a4, (char *)(uintptr_t)mountpoint, NULL };
	pid_t pid;
	int rc, status;

	if (!program)
		return -ENOENT;
	rc = posix_spawn(&pid, program, NULL, NULL, argv, environ);
	if (rc != 0)
		return -rc;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status == 0 ? 0 : -EIO;
}

static void unmount_path(struct fs *fs)
{
	int rc;

	/* Somebody may have unmounted lazily, and mounted something else since: that is not ours to
	 * take away. */
	if (fs->mount_dev && device_at(fs->mountpoint) != fs->mount_dev)
		return;
	/* By force: the kernel ends all requests. Root of a user namespace may unmount only. */
	if (umount2(fs->mountpoint, MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
		return;
	if (umount2(fs->mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || fs->params.fuse_fd)
		return; /* what root has mounted for us, root takes away */
	rc = geteuid() == 0 && errno != EPERM ? -errno : fusermount_end(fs->mountpoint);
	if (rc < 0)
		log_warn("%s cannot be unmounted (%s)", fs->mountpoint, strerror(-rc));
}

static bool is_connected(struct fs *fs)
{
	struct pollfd pfd = { .fd = fuse_session_fd(fs->se) };

	return poll(&pfd, 1, 0) != 1 || !(pfd.revents & POLLERR);
}

/* The file belongs to the user who mounted; fusectl need not be mounted there. */
static void abort_connection(struct fs *fs)
{
	AUTO_FREE char *path = NULL;
	AUTO_FD int fd = -1;
	ssize_t put;

	if (!fs->mount_dev ||
	    asprintf(&path, CONNECTIONS_DIR "/%u/abort", minor(fs->mount_dev)) < 0)
		return;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	/* Asked after opening: while we are connected the number is ours and nobody else's. */
	if (fd < 0 || !is_connected(fs))
		return;
	put = write(fd, "1", 1);
	(void)put;
}

void fs_mount_detach(struct fs *fs)
{
	/* Not connected: unmounted from outside, or aborted; there may be a mount left in the
	 * latter case. */
	if (is_connected(fs) || device_at(fs->mountpoint) == fs->mount_dev)
		unmount_path(fs);
	if (is_connected(fs)) /* files of it are open, or were until just now */
		abort_connection(fs);
}

void fs_mount_cut(struct fs *fs)
{
	AUTO_FD int blocked = -1;

	fuse_session_exit(fs->se); /* libfuse keeps silent about what fails from here on */
	/* A device that is not mounted refuses every write, and polls as an error, which tells
	 * libfuse that there is nothing left to unmount. Without the right to open it, nothing is
	 * the next best. */
	blocked = open(BLOCKED_FD_DEVICE, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (blocked < 0)
		blocked = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (blocked < 0 || dup3(blocked, fuse_session_fd(fs->se), O_CLOEXEC) < 0)
		log_warn("the FUSE device of %s cannot be taken away: readers may wait until clairfs ends",
			 fs->mountpoint);
}

int fs_path(const struct fs *fs, struct entry_id entry, char *out, size_t size)
{
	size_t len = strlen(fs->mountpoint);

	if (len + 2 > size)
		return -ENAMETOOLONG;
	memcpy(out, fs->mountpoint, len);
	out[len] = '\0';
	if (entry_eq(entry, ENTRY_ROOT))
		return 0;
	out[len] = '/';
	return dataset_path(fs->params.dataset, entry, out + len + 1, size - len - 1);
}
