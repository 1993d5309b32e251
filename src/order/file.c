/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and reading the files that some kinds take their order from. They are named by a person
 * and may be anything, so nothing here may hang or read what is no regular file; what their bytes
 * mean is the kind's business. Set-up code of one thread. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "order_priv.h"

static int open_file(const struct order_params *params, const char *path, struct err *err)
{
	int fd;

	if (params && params->open_file)
		return params->open_file(params->open_ctx, path, err);
	/* Not blocking: opening a FIFO must not wait for a writer before it is refused. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	return fd < 0 ? err_set_errno(err, -errno, "cannot open") : fd;
}

int order_file_open(const struct order_params *params, const char *path, int *ret_fd,
		    uint64_t *ret_size, struct err *err)
{
	int fd AUTO_FD = open_file(params, path, err);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return err_set_errno(err, -errno, "cannot open");
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "not a regular file");
	*ret_size = (uint64_t)st.st_size;
	*ret_fd = take_fd(&fd);
	return 0;
}

int order_file_read(int fd, void *buf, size_t size, size_t *ret, struct err *err)
{
	*ret = 0;
	while (*ret < size) {
		ssize_t n = read(fd, (char *)buf + *ret, size - *ret);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set_errno(err, -errno, "cannot read");
		if (n == 0)
			break;
		*ret += (size_t)n;
	}
	return 0;
}
