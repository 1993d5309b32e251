/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts of this machine, seen through /proc/self/mountinfo. Nothing here may touch a mount that
 * could hang before it is known to be alive: a path is made absolute through its parent directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "clairfs/base/clock.h"
#include "clairfs/daemon.h"
#include "publish.h"

#define UMOUNT_PATIENCE_NS (10 * NS_PER_S)
#define DAEMON_PATIENCE_MS 60000

static int absolute_path(const char *path, char out[PATH_MAX], struct err *err)
{
	char parent[PATH_MAX], resolved[PATH_MAX];
	size_t len = strlen(path);
	const char *base;
	int n;

	if (len == 0 || len >= sizeof(parent))
		return err_set(err, -EINVAL, "mountpoint '%s': not a usable path", path);
	memcpy(parent, path, len + 1);
	while (len > 1 && parent[len - 1] == '/')
		parent[--len] = 0;
	base = strrchr(parent, '/');
	base = base ? base + 1 : parent;
	if (strcmp(base, "..") == 0 || strcmp(base, ".") == 0 || *base == 0)
		return realpath(path, out) ? 0 : err_set_errno(err, -errno, "mountpoint %s", path);
	if (base == parent) {
		if (!realpath(".", resolved))
			return err_set_errno(err, -errno, "current directory");
	} else {
		char saved = parent[base - parent];

		parent[base - parent] = 0;
		if (!realpath(parent, resolved))
			return err_set_errno(err, -errno, "mountpoint %s", path);
		parent[base - parent] = saved;
	}
	n = snprintf(out, PATH_MAX, "%s/%s", strcmp(resolved, "/") == 0 ? "" : resolved, base);
	return n < PATH_MAX ? 0 : err_set(err, -ENAMETOOLONG, "mountpoint %s: path too long", path);
}

/* The kernel writes blanks, newlines and backslashes of names as \040 etc. */
static void unescape(char *s)
{
	char *out = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = 0;
}

/* One line of mountinfo: "36 35 98:0 /root /mountpoint options... - type device superoptions". */
static bool parse_line(char *line, char **ret_path, char **ret_type)
{
	char *field = line, *save = NULL;
	int i = 0;

	for (field = strtok_r(line, " ", &save); field; field = strtok_r(NULL, " ", &save), i++) {
		if (i == 4)
			*ret_path = field;
		if (i > 5 && strcmp(field, "-") == 0) {
			*ret_type = strtok_r(NULL, " ", &save);
			return *ret_type != NULL;
		}
	}
	return false;
}

int mounts_find(const char *mountpoint, struct mount_info *ret, struct err *err)
{
	AUTO_FILE FILE *f = fopen("/proc/self/mountinfo", "re");
	AUTO_FREE char *line = NULL;
	size_t size = 0;
	int rc;

	memset(ret, 0, sizeof(*ret));
	rc = absolute_path(mountpoint, ret->path, err);
	if (rc < 0)
		return rc;
	if (!f)
		return err_set_errno(err, -errno, "/proc/self/mountinfo");
	while (getline(&line, &size, f) > 0) {
		char *path = NULL, *type = NULL;

		if (!parse_line(line, &path, &type))
			continue;
		unescape(path);
		if (strcmp(path, ret->path) != 0)
			continue;
		ret->is_mounted = true; /* the last line is the mount on top */
		ret->is_ours = strcmp(type, "fuse.clairfs") == 0;
	}
	return 0;
}

/* "... - fuse.clairfs SOURCE rw,user_id=1000,group_id=1000" */
static bool is_of_user(const char *line, uid_t user)
{
	const char *option = strstr(line, ",user_id=");

	return option && strtoul(option + strlen(",user_id="), NULL, 10) == user;
}

int mounts_list(uid_t user, char **ret, uint32_t max, uint32_t *n, struct err *err)
{
	AUTO_FILE FILE *f = fopen("/proc/self/mountinfo", "re");
	AUTO_FREE char *line = NULL;
	size_t size = 0;

	*n = 0;
	if (!f)
		return err_set_errno(err, -errno, "/proc/self/mountinfo");
	while (*n < max && getline(&line, &size, f) > 0) {
		char *path = NULL, *type = NULL;
		bool is_his = is_of_user(line, user);

		if (!parse_line(line, &path, &type) || strcmp(type, "fuse.clairfs") != 0 || !is_his)
			continue;
		unescape(path);
		ret[*n] = strdup(path);
		if (!ret[*n])
			return err_set_errno(err, -ENOMEM, "mounts");
		++*n;
	}
	return 0;
}

static int run_fusermount(const char *path, bool is_lazy)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		if (null >= 0)
			dup2(null, 2);
		execlp("fusermount3", "fusermount3", "-u", "-q", is_lazy ? "-z" : "-q", "--", path,
		       (char *)NULL);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) < 0)
		return -errno;
	if (!WIFEXITED(status) || WEXITSTATUS(status) == 127)
		return -ENOENT;
	return WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

static int umount_once(const char *path, bool is_lazy)
{
	if (geteuid() == 0)
		return umount2(path, UMOUNT_NOFOLLOW | (is_lazy ? MNT_DETACH : 0)) == 0 ? 0
											: -errno;
	return run_fusermount(path, is_lazy);
}

/* A descriptor of the daemon by the pid it reports. -ETIMEDOUT when it hangs; else *ret_fd may stay
 * -1. */
static int daemon_pidfd(const char *path, int *ret_fd)
{
	AUTO_FREE char *text = NULL;
	struct err ignored = { 0 };
	const char *at;
	long pid;
	int rc = mounts_read_vfile(path, "stats.json", &text, &ignored);

	if (rc < 0)
		return rc;
	at = strstr(text, "\"pid\":");
	pid = at ? strtol(at + 6, NULL, 10) : 0;
	if (pid > 1)
		*ret_fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	return 0;
}

static int umount_patiently(const char *path, bool is_lazy)
{
	struct timespec pause = { .tv_nsec = 50 * NS_PER_MS };
	uint64_t start = clock_now(clock_monotonic());
	int rc;

	/* Busy may mean a lookup of our own warm thread: it gives way within moments, so try again
	 * for a while. */
	while ((rc = umount_once(path, is_lazy)) == -EBUSY &&
	       clock_now(clock_monotonic()) - start < UMOUNT_PATIENCE_NS)
		nanosleep(&pause, NULL);
	return rc;
}

static int umount_failed(const char *path, int rc, struct err *err)
{
	if (rc == -EBUSY)
		return err_set(err, rc, "%s: in use (see fuser -vm %s); -l detaches it anyway",
			       path, path);
	if (rc == -ENOENT)
		return err_set(err, rc, "fusermount3 is not installed");
	return err_set_errno(err, rc, "unmounting %s", path);
}

int mounts_umount(const char *mountpoint, bool is_lazy, struct err *err)
{
	struct pollfd daemon = { .fd = -1, .events = POLLIN };
	struct mount_info info;
	int rc = mounts_find(mountpoint, &info, err);

	if (rc < 0)
		return rc;
	if (!info.is_mounted) {
		leftover_clear(info.path);
		return err_set(err, -ENOENT, "%s: nothing is mounted there", info.path);
	}
	if (!info.is_ours)
		return err_set(err, -ENOENT, "%s: not a clairfs mount", info.path);
	if (!is_lazy) { /* a dead mount says at once that nobody is there */
		rc = daemon_pidfd(info.path, &daemon.fd);
		if (rc == -ETIMEDOUT)
			return err_set(err, rc,
				       "%s: its daemon hangs; -l detaches the mount anyway",
				       info.path);
	}
	rc = umount_patiently(info.path, is_lazy);
	if (rc < 0)
		rc = umount_failed(info.path, rc, err);
	else if (daemon.fd >= 0 && poll(&daemon, 1, DAEMON_PATIENCE_MS) == 0)
		rc = err_set(err, -ETIMEDOUT, "%s is unmounted, but its daemon is still running",
			     info.path);
	else
		leftover_clear(info.path);
	if (daemon.fd >= 0)
		close(daemon.fd);
	return rc;
}

/* Attributes do not tell: the kernel goes on answering them from its cache when the daemon is gone.
 */
bool mounts_is_dead(const char *mountpoint)
{
	AUTO_FREE char *text = NULL;
	struct err ignored = { 0 };

	return mounts_read_vfile(mountpoint, "config", &text, &ignored) == -ENOTCONN;
}
