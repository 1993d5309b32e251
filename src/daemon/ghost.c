/* SPDX-License-Identifier: Apache-2.0 */
/* How much page cache a job would have without this mount: what the kernel calls available, or less
 * when the cgroup of this process, or one above it, has a limit. Asked once, before the arena is
 * filled. Files of the kernel that are not there, or say something else, are no limit. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "accounting.h"
#include "clairfs/base/text.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

static uint64_t available(void)
{
	AUTO_FILE FILE *f = fopen("/proc/meminfo", "re");
	char line[256];
	uint64_t kib;

	while (f && fgets(line, sizeof(line), f)) {
		char *value = line + strlen("MemAvailable:"), *end;

		if (strncmp(line, "MemAvailable:", strlen("MemAvailable:")) != 0)
			continue;
		value += strspn(value, " ");
		end = value + strcspn(value, " \n");
		*end = 0;
		if (text_to_u64(value, &kib) == 0 && kib < UINT64_MAX / 1024)
			return kib * 1024;
	}
	return 0;
}

/* A number in a file, or no limit. */
static uint64_t limit_in(const char *dir, const char *name)
{
	char path[PATH_MAX + 64], text[64];
	AUTO_FD int fd = -1;
	uint64_t limit;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return UINT64_MAX;
	text[n] = 0;
	text[strcspn(text, "\n")] = 0;
	return text_to_u64(text, &limit) == 0 ? limit : UINT64_MAX; /* "max" is no number */
}

/* Of the cgroup and all above it. */
static uint64_t limit_of(const char *root, char *cgroup, const char *name)
{
	uint64_t least = UINT64_MAX;
	char dir[PATH_MAX], *slash;

	for (;;) {
		uint64_t limit;

		snprintf(dir, sizeof(dir), "%s%s", root, cgroup);
		limit = limit_in(dir, name);
		least = MIN(least, limit);
		slash = strrchr(cgroup, '/');
		if (!slash)
			return least;
		*slash = 0;
	}
}

uint64_t ghost_bytes_auto(void)
{
	AUTO_FILE FILE *f = fopen("/proc/self/cgroup", "re");
	uint64_t least = available(), limit;
	char line[PATH_MAX];

	while (f && fgets(line, sizeof(line), f)) {
		char *kind = strchr(line, ':'), *path = kind ? strchr(kind + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = 0;
		path[strcspn(path, "\n")] = 0;
		limit = UINT64_MAX;
		if (kind[1] == 0) /* the second version */
			limit = limit_of(CGROUP_ROOT, path, "memory.max");
		else if (strstr(kind, "memory"))
			limit = limit_of(CGROUP_ROOT "/memory", path, "memory.limit_in_bytes");
		least = MIN(least, limit);
	}
	return least;
}
