/* SPDX-License-Identifier: Apache-2.0 */
#include "clairfs/base/bdi.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "clairfs/base/text.h"

#define KIB 1024u

int bdi_open(dev_t dev, int flags)
{
	char path[80];
	int fd;

	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev), minor(dev));
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int bdi_read_ahead(int fd, uint64_t *ret)
{
	char text[32];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	uint64_t kib;

	if (n < 0)
		return -errno;
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (text_to_u64(text, &kib) < 0 || kib > UINT64_MAX / KIB)
		return -EINVAL;
	*ret = kib * KIB;
	return 0;
}

int bdi_set_read_ahead(int fd, uint64_t bytes)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%" PRIu64, bytes / KIB);

	return pwrite(fd, text, (size_t)len, 0) < 0 ? -errno : 0;
}
