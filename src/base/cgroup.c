/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cgroups of a process. /proc/PID/cgroup names a path in each hierarchy, /proc/self/mountinfo
 * where a hierarchy is mounted and which part of it: in a container the two need not agree. A path
 * that begins with the mount's root is below the mount point; of any other path ("/../..", or the
 * host's while only the container's is mounted) nothing but the mount point itself can be seen.
 * Both versions are looked at, as both may be mounted.
 *
 * Texts of the kernel are taken as bytes that anybody may have written: lines are cut at their
 * length, numbers parsed whole, and what says something else than expected is no limit.
 */
#include "clairfs/base/cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clairfs/base/cleanup.h"
#include "clairfs/base/mem.h"
#include "clairfs/base/span.h"
#include "clairfs/base/text.h"

enum { FILE_MAX = 4 << 20 };

static uint64_t number_in(struct span s)
{
	uint64_t n;

	return span_number(s, &n) ? n : CGROUP_NONE;
}

bool cgroup_path(const char *text, size_t len, const char *controller, char path[PATH_MAX])
{
	struct span rest = { text, len }, line, id, list;

	while (span_take(&rest, '\n', &line)) { /* "4:cpu,cpuacct:/a/b", "0::/a/b" */
		if (!span_take(&line, ':', &id) || !span_take(&line, ':', &list) || !line.len)
			continue;
		if (controller ? span_has(list, controller) : !list.len && span_is(id, "0"))
			return line.at[0] == '/' && span_path(line, path);
	}
	return false;
}

static bool take_mount(struct span line, const char *controller, struct cgroup_mount *ret)
{
	struct mountinfo m;

	return mountinfo_parse(line, &m) && span_is(m.type, controller ? "cgroup" : "cgroup2") &&
	       (!controller || span_has(m.options, controller)) &&
	       mountinfo_path(m.root, ret->root) && mountinfo_path(m.at, ret->at);
}

/* The part of `path` behind the mount's root, or NULL. */
static const char *path_below(const char *root, const char *path)
{
	size_t len = strcmp(root, "/") == 0 ? 0 : strlen(root);

	if (strncmp(path, root, len) != 0 || (path[len] != 0 && path[len] != '/') ||
	    strstr(path + len, "/.."))
		return NULL;
	return strcmp(path + len, "/") == 0 ? "" : path + len;
}

bool cgroup_find_mount(const char *text, size_t len, const char *controller, const char *path,
		       struct cgroup_mount *ret)
{
	AUTO_FREE struct cgroup_mount *found = malloc(sizeof(*found));
	struct span rest = { text, len }, line;
	size_t best = 0;

	while (found && span_take(&rest, '\n', &line)) {
		const char *behind;
		size_t shows;

		if (!take_mount(line, controller, found))
			continue;
		behind = path_below(found->root, path);
		shows = behind ? 2 + strlen(behind) : 1; /* with the directories above it */
		if (shows <= best)
			continue;
		best = shows;
		*ret = *found;
	}
	return best > 0;
}

bool cgroup_dir(const struct cgroup_mount *mount, const char *path, char dir[PATH_MAX])
{
	const char *behind = path_below(mount->root, path);

	return (size_t)snprintf(dir, PATH_MAX, "%s%s", mount->at, behind ? behind : "") < PATH_MAX;
}

uint64_t cgroup_value(const char *text, size_t len, const char *key)
{
	struct span rest = { text, len }, line, name;

	while (span_take(&rest, '\n', &line))
		if (span_take(&line, ' ', &name) && span_is(name, key))
			return number_in(line);
	return CGROUP_NONE;
}

uint64_t cgroup_stalled_us(const char *text, size_t len)
{
	static const char key[] = "total=";
	struct span rest = { text, len }, line, part;

	while (span_take(&rest, '\n', &line)) {
		if (!span_take(&line, ' ', &part) || !span_is(part, "some"))
			continue;
		while (span_take(&line, ' ', &part))
			if (part.len > strlen(key) && memcmp(part.at, key, strlen(key)) == 0) {
				part.at += strlen(key);
				part.len -= strlen(key);
				return number_in(part);
			}
	}
	return CGROUP_NONE;
}

uint32_t cgroup_stalled(const char *text, size_t len)
{
	static const char begin[] = "some avg10=";
	struct span rest = { text, len }, line, whole, part;

	while (span_take(&rest, '\n', &line)) {
		uint64_t percent, hundredth;

		if (line.len < strlen(begin) || memcmp(line.at, begin, strlen(begin)) != 0)
			continue;
		line.at += strlen(begin);
		line.len -= strlen(begin);
		if (!span_take(&line, '.', &whole) || !span_take(&line, ' ', &part) ||
		    part.len != 2)
			return 0;
		percent = number_in(whole);
		hundredth = number_in(part);
		if (percent > 100 || hundredth > 99 || percent * 100 + hundredth > 10000)
			return 0;
		return (uint32_t)(percent * 100 + hundredth);
	}
	return 0;
}

/* --- reading them --- */

/* Heap, NULL: not there. Files of the kernel have no size before they are read. */
static char *read_whole(const char *path, size_t *ret_len)
{
	AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t size = 4096, len = 0;
	AUTO_FREE char *text = fd < 0 ? NULL : malloc(size);

	while (text) {
		ssize_t n = read(fd, text + len, size - len);
		char *more;

		if (n < 0)
			return NULL;
		len += (size_t)n;
		if (n == 0 || len >= FILE_MAX)
			break;
		if (len < size)
			continue;
		more = realloc(text, size * 2);
		if (!more)
			return NULL;
		text = more;
		size *= 2;
	}
	*ret_len = len;
	return TAKE(text);
}

uint64_t cgroup_number(const char *dir, const char *name)
{
	char path[PATH_MAX + 64], text[64];
	AUTO_FD int fd = -1;
	struct span rest, line;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text));
	rest = (struct span){ text, n > 0 ? (size_t)n : 0 };
	return span_take(&rest, '\n', &line) ? number_in(line) : CGROUP_NONE;
}

uint64_t cgroup_stat(const char *dir, const char *name, const char *key)
{
	AUTO_FREE char *text = NULL;
	char path[PATH_MAX + 64];
	size_t len;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	text = read_whole(path, &len);
	return text ? cgroup_value(text, len, key) : CGROUP_NONE;
}

/* The directory and all above it, up to the mount point. */
static void each_above(const struct cgroup_mount *mount, char *dir,
		       void (*look)(void *, const char *), void *ctx)
{
	size_t least = strlen(mount->at);

	for (;;) {
		char *slash;

		look(ctx, dir);
		slash = strrchr(dir, '/');
		if (!slash || (size_t)(slash - dir) < least || slash == dir)
			return;
		*slash = 0;
	}
}

struct place {
	struct cgroup_mount mount;
	char path[PATH_MAX], dir[PATH_MAX];
};

static void each_of(const struct cgroup_texts *t, struct place *at, const char *controller,
		    void (*look)(void *, const char *), void *ctx)
{
	if (cgroup_path(t->cgroup, t->cgroup_len, controller, at->path) &&
	    cgroup_find_mount(t->mounts, t->mounts_len, controller, at->path, &at->mount) &&
	    cgroup_dir(&at->mount, at->path, at->dir))
		each_above(&at->mount, at->dir, look, ctx);
}

void cgroup_each_in(const struct cgroup_texts *texts, const char *controller,
		    void (*look)(void *, const char *), void *ctx)
{
	AUTO_FREE struct place *at = malloc(sizeof(*at));

	if (!at)
		return;
	each_of(texts, at, NULL, look, ctx);
	each_of(texts, at, controller, look, ctx);
}

void cgroup_each(pid_t pid, const char *controller, void (*look)(void *, const char *), void *ctx)
{
	AUTO_FREE char *cgroup = NULL, *mounts = NULL;
	char path[64] = "/proc/self/cgroup";
	struct cgroup_texts texts = { 0 };

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	texts.cgroup = cgroup = read_whole(path, &texts.cgroup_len);
	texts.mounts = mounts = read_whole("/proc/self/mountinfo", &texts.mounts_len);
	if (cgroup && mounts)
		cgroup_each_in(&texts, controller, look, ctx);
}
