/* SPDX-License-Identifier: Apache-2.0 */
/* Who keeps a mount busy: processes that have a file of it open or mapped, or a directory of it as
 * their current one, from /proc. It is for people who wait, so whatever cannot be seen (processes
 * of others, what goes away meanwhile) is left out. Names of processes are theirs to choose: they
 * are printed escaped. The device tells what is of the mount: paths would not in another namespace.
 * Must never touch the mount, whose daemon may hang: descriptors are asked for nothing but their
 * device, which the kernel has. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clairfs/base/text.h"
#include "client_priv.h"

#define SHOWN_MAX 5u

struct holder {
	uint32_t n_files, n_maps;
	bool is_here, is_root, is_program;
};

static bool is_of(const char *path, uint64_t dev)
{
	struct statx stx;

	/* Nothing is asked for but what comes anyway: no request to the daemon. */
	return statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, 0, &stx) == 0 &&
	       ((uint64_t)stx.stx_dev_major << 32 | stx.stx_dev_minor) == dev;
}

static uint32_t count_files(const char *pid, uint64_t dev)
{
	char path[64 + NAME_MAX * 2];
	struct dirent *entry;
	uint32_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%s/fd/%s", pid, entry->d_name);
		n += entry->d_name[0] != '.' && is_of(path, dev);
	}
	if (dir)
		closedir(dir);
	return n;
}

/* "7f00-7f01 r--p 00000000 08:01 1234 /path" */
static uint32_t count_maps(const char *pid, uint64_t dev)
{
	char path[64 + NAME_MAX];
	AUTO_FILE FILE *file = NULL;
	AUTO_FREE char *line = NULL;
	unsigned major, minor;
	size_t size = 0;
	uint32_t n = 0;

	snprintf(path, sizeof(path), "/proc/%s/maps", pid);
	file = fopen(path, "re");
	while (file && getline(&line, &size, file) > 0)
		n += sscanf(line, "%*s %*s %*s %x:%x", &major, &minor) == 2 &&
		     ((uint64_t)major << 32 | minor) == dev;
	return n;
}

static bool has_link(const char *pid, const char *name, uint64_t dev)
{
	char path[64 + NAME_MAX];

	snprintf(path, sizeof(path), "/proc/%s/%s", pid, name);
	return is_of(path, dev);
}

static bool holder_look(const char *pid, uint64_t dev, struct holder *ret)
{
	*ret = (struct holder){ .n_files = count_files(pid, dev),
				.n_maps = count_maps(pid, dev),
				.is_here = has_link(pid, "cwd", dev),
				.is_root = has_link(pid, "root", dev),
				.is_program = has_link(pid, "exe", dev) };
	return ret->n_files || ret->n_maps || ret->is_here || ret->is_root || ret->is_program;
}

static void holder_name(const char *pid, char *out, size_t size)
{
	char path[64 + NAME_MAX], name[64] = "?";
	AUTO_FD int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, name, sizeof(name) - 1);
	if (n > 0)
		name[n - (name[n - 1] == '\n')] = 0;
	text_escape(name, strlen(name), out, size);
}

static void describe(const char *pid, const struct holder *h, char *out, size_t size)
{
	char name[128], files[32];

	holder_name(pid, name, sizeof(name));
	snprintf(files, sizeof(files), "%u open file%s", h->n_files, h->n_files == 1 ? "" : "s");
	snprintf(out, size, "%s (%s, %s)", name, pid,
		 h->n_files   ? files
		 : h->is_here ? "current directory"
		 : h->n_maps  ? "a mapped file"
			      : "its program or root");
}

static void append(char *out, size_t size, const char *text)
{
	size_t len = strlen(out);

	snprintf(out + len, size - len, "%s%s", len > 0 ? ", " : "", text);
}

char *mounts_holders(const struct mount_info *info, char *out, size_t size)
{
	DIR *proc = opendir("/proc");
	uint32_t n = 0;
	struct dirent *entry;
	struct holder holder;
	char text[256];

	out[0] = 0;
	while (proc && (entry = readdir(proc))) {
		if (strspn(entry->d_name, "0123456789") != strlen(entry->d_name) ||
		    atoi(entry->d_name) == getpid() ||
		    !holder_look(entry->d_name, info->dev, &holder))
			continue;
		if (n++ >= SHOWN_MAX)
			continue;
		describe(entry->d_name, &holder, text, sizeof(text));
		append(out, size, text);
	}
	if (proc)
		closedir(proc);
	if (n > SHOWN_MAX) {
		snprintf(text, sizeof(text), "and %u more", n - SHOWN_MAX);
		append(out, size, text);
	}
	if (info->is_covered)
		append(out, size, "another filesystem is mounted below it");
	if (!out[0])
		snprintf(out, size, geteuid() == 0 ? "somebody who cannot be seen from here"
						   : "a process of another user, or one that cannot be seen from here");
	return out;
}
