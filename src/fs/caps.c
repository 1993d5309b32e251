/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernel and libfuse offer: both halves, at build time and at run time, in the one file of
 * this module that may have #if. Capabilities are set through fs_caps_want only: libfuse 3.17 keeps
 * them in a wider field and stops with EPROTO when the old field is changed beside it.
 *
 * fs_probe_caps mounts nothing and never fails; what cannot be found out is reported as not there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "clairfs/base/text.h"

#include "fs_priv.h"

bool fs_caps_has(const struct fuse_conn_info *conn, uint64_t cap)
{
	return (conn->capable & cap) == cap; /* those we ask for are all below bit 31 */
}

#if HAVE_FUSE_FEATURE_FLAG
bool fs_caps_want(struct fuse_conn_info *conn, uint64_t cap, bool is_wanted)
{
	if (is_wanted)
		return fuse_set_feature_flag(conn, cap);
	fuse_unset_feature_flag(conn, cap);
	return true;
}
#else
bool fs_caps_want(struct fuse_conn_info *conn, uint64_t cap, bool is_wanted)
{
	if (!is_wanted) {
		conn->want &= ~(unsigned)cap;
		return true;
	}
	if (!fs_caps_has(conn, cap))
		return false;
	conn->want |= (unsigned)cap;
	return true;
}
#endif

/* The first executable file of this name in a PATH-like list. */
static char *find_in(const char *dirs, const char *program)
{
	while (*dirs) {
		size_t len = strcspn(dirs, ":");
		char *path = NULL;

		if (len > 0 && asprintf(&path, "%.*s/%s", (int)len, dirs, program) < 0)
			return NULL;
		if (path && access(path, X_OK) == 0)
			return path;
		free(path);
		dirs += len + (dirs[len] == ':');
	}
	return NULL;
}

char *fs_caps_fusermount(void)
{
	const char *path = getenv("PATH");
	char *found = path ? find_in(path, "fusermount3") : NULL;

	return found ? found : find_in("/usr/bin:/bin:/usr/local/bin", "fusermount3");
}

static uint64_t read_limit(const char *path)
{
	AUTO_FILE FILE *f = fopen(path, "re");
	char line[32];
	uint64_t value;

	if (!f || !fgets(line, sizeof(line), f))
		return 0;
	line[strcspn(line, "\n")] = '\0';
	return text_to_u64(line, &value) == 0 ? value : 0;
}

/* The second is of a user namespace, where the first shows the limit of the machine. */
uint64_t fs_caps_max_watches(void)
{
	uint64_t all = read_limit("/proc/sys/fs/inotify/max_user_watches");
	uint64_t ours = read_limit("/proc/sys/user/max_inotify_watches");

	return MIN(all ? all : UINT64_MAX, ours ? ours : UINT64_MAX);
}

void fs_probe_caps(struct fs_caps *ret)
{
	AUTO_FD int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	AUTO_FREE char *fusermount = fs_caps_fusermount();
	int error = errno;

	memset(ret, 0, sizeof(*ret));
	snprintf(ret->libfuse_version, sizeof(ret->libfuse_version), "%s", fuse_pkgversion());
	ret->has_dev_fuse = fd >= 0;
	ret->dev_fuse_why =
		fd >= 0 ? ""
		: error == ENOENT || error == ENODEV
			? "no /dev/fuse: the fuse module is not loaded, or the container lacks the device"
		: error == EACCES || error == EPERM ? "this user may not open /dev/fuse"
						    : "/dev/fuse cannot be opened";
	ret->has_fusermount = fusermount != NULL;
	ret->built_with_passthrough = HAVE_FUSE_PASSTHROUGH;
	ret->built_with_feature_flag = HAVE_FUSE_FEATURE_FLAG;
	ret->inotify_max_watches = read_limit("/proc/sys/fs/inotify/max_user_watches");
	ret->inotify_max_queued = read_limit("/proc/sys/fs/inotify/max_queued_events");
}
