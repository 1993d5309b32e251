/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files the daemon reads for somebody else. Whoever tells an order through the mount may be
 * root of a container without a single capability, or the user's own job with less rights than the
 * daemon: it names a path, and it must not learn what is in a file that it could not read itself.
 * So only what the mount shows anyway is read, which is the source; the kernel resolves the path
 * (openat2), because nothing that is checked before an open holds at the open. Other files their
 * owner reads and hands over (hint.h: CLAIRFS_LIST_BYTES).
 */
#include "beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	while (n > 0 && dir[n - 1] == '/')
		n--;
	if (strncmp(path, dir, n) != 0 || path[n] != '/')
		return NULL;
	return path + n + strspn(path + n, "/");
}

const char *beneath_relative(const char *path, const char *source, const char *mountpoint)
{
	const char *found = below(path, source);

	if (*path != '/')
		return path;
	return found ? found : below(path, mountpoint);
}

int beneath_open(int dirfd, const char *relative, struct err *err)
{
	struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
	long fd = -1;

	errno = EXDEV;
	if (relative)
		fd = syscall(SYS_openat2, dirfd, *relative ? relative : ".", &how, sizeof(how));
	if (fd >= 0)
		return (int)fd;
	if (errno == EXDEV)
		return err_set(err, -EXDEV,
			       "not beneath the source, where alone files are read for an order "
			       "that is told; clairfs announce hands over other lists itself");
	if (errno == ENOSYS)
		return err_set(err, -ENOSYS,
			       "this kernel (before Linux 5.6) cannot tell what is beneath the "
			       "source, so no files are read for an order that is told");
	return err_set_errno(err, -errno, "cannot open");
}
