/* SPDX-License-Identifier: Apache-2.0 */
/* How much page cache a job would have without this mount: what the kernel calls available, or less
 * when the cgroup of this process, or one above it, has a limit. Asked once, before the arena is
 * filled. Files of the kernel that are not there, or say something else, are no limit. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "accounting_priv.h"
#include "clairfs/base/text.h"
#include "clairfs/daemon.h"

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

/* The cgroup and all above it. */
static void each_above(const char *root, char *cgroup, void (*look)(void *, const char *),
		       void *ctx)
{
	char dir[PATH_MAX + 64], *slash;

	for (;;) {
		snprintf(dir, sizeof(dir), "%s%s", root, cgroup);
		look(ctx, dir);
		slash = strrchr(cgroup, '/');
		if (!slash)
			return;
		*slash = 0;
	}
}

void cgroup_each(pid_t pid, const char *controller, void (*look)(void *, const char *), void *ctx)
{
	char line[PATH_MAX], root[64], path[64] = "/proc/self/cgroup";
	AUTO_FILE FILE *f = NULL;

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		char *kind = strchr(line, ':'), *name = kind ? strchr(kind + 1, ':') : NULL;

		if (!name)
			continue;
		*name++ = 0;
		name[strcspn(name, "\n")] = 0;
		snprintf(root, sizeof(root), "%s/%s", CGROUP_ROOT, controller);
		if (kind[1] == 0) /* the second version */
			each_above(CGROUP_ROOT, name, look, ctx);
		else if (strstr(kind, controller))
			each_above(root, name, look, ctx);
	}
}

static void look_memory(void *ctx, const char *dir)
{
	uint64_t *least = ctx;

	*least = MIN(*least, limit_in(dir, "memory.max"));
	*least = MIN(*least, limit_in(dir, "memory.limit_in_bytes"));
}

uint64_t ghost_bytes_auto(void)
{
	uint64_t least = available();

	cgroup_each(0, "memory", look_memory, &least);
	return least;
}

uint64_t daemon_memory_available(void)
{
	return ghost_bytes_auto();
}
