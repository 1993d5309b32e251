/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files the daemon reads for somebody else. Whoever tells an order through the mount may be
 * root of a container without a single capability, or the user's own job with less rights than the
 * daemon: it names a path, and it must not learn what is in a file that it could not read itself.
 * So only what the mount shows anyway is read, which is the source; the path is
 * resolved while it is opened (base/beneath.c), because nothing that is checked before an open holds
 * at the open. Other files their
 * owner reads and hands over (hint.h: CLAIRFS_LIST_BYTES).
 */
#include "path.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "clairfs/base/beneath.h"

static const char *below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	while (n > 0 && dir[n - 1] == '/')
		n--;
	if (strncmp(path, dir, n) != 0 || path[n] != '/')
		return NULL;
	return path + n + strspn(path + n, "/");
}

const char *path_relative(const char *path, const char *source, const char *mountpoint)
{
	const char *found = below(path, source);

	if (*path != '/')
		return path;
	return found ? found : below(path, mountpoint);
}

int path_open(int dirfd, const char *relative, struct err *err)
{
	int fd = -EXDEV;

	if (relative)
		fd = beneath_open(dirfd, *relative ? relative : ".",
				  O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0)
		return fd;
	if (fd == -EXDEV)
		return err_set(err, -EXDEV,
			       "not beneath the source, where alone files are read for an order "
			       "that is told; clairfs announce hands over other lists itself");
	return err_set_errno(err, fd, "cannot open");
}
