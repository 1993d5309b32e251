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
#include "clairfs/base/text.h"

enum { FILE_MAX = 4 << 20, MOUNT_FIELDS = 6 };

struct span {
	const char *at;
	size_t len;
};

/* The next part of *rest up to `end`; false: there is no more. */
static bool take_span(struct span *rest, char end, struct span *ret)
{
	const char *stop;

	if (!rest->len)
		return false;
	stop = memchr(rest->at, end, rest->len);
	*ret = (struct span){ rest->at, stop ? (size_t)(stop - rest->at) : rest->len };
	rest->at += ret->len + (stop != NULL);
	rest->len -= ret->len + (stop != NULL);
	return true;
}

static bool span_is(struct span s, const char *word)
{
	return s.len == strlen(word) && memcmp(s.at, word, s.len) == 0;
}

static bool span_has(struct span list, const char *word)
{
	struct span one;

	while (take_span(&list, ',', &one))
		if (span_is(one, word))
			return true;
	return false;
}

static bool span_copy(struct span s, char out[PATH_MAX])
{
	if (s.len >= PATH_MAX || memchr(s.at, 0, s.len))
		return false;
	memcpy(out, s.at, s.len);
	out[s.len] = 0;
	return true;
}

static bool is_octal(const char *at)
{
	for (int i = 1; i <= 3; i++)
		if (at[i] < '0' || at[i] > '7')
			return false;
	return true;
}

/* As mountinfo writes paths: a blank is \040. */
static bool copy_escaped(struct span s, char out[PATH_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < s.len; i++) {
		unsigned c = (unsigned char)s.at[i];

		if (c == '\\' && s.len - i > 3 && is_octal(s.at + i)) {
			c = (unsigned)(s.at[i + 1] - '0') << 6 |
			    (unsigned)(s.at[i + 2] - '0') << 3 | (unsigned)(s.at[i + 3] - '0');
			i += 3;
		}
		if (n + 1 >= PATH_MAX || c == 0 || c > 255)
			return false;
		out[n++] = (char)c;
	}
	out[n] = 0;
	return true;
}

static uint64_t span_number(struct span s)
{
	char word[32];
	uint64_t n;

	if (s.len >= sizeof(word) || memchr(s.at, 0, s.len))
		return CGROUP_NONE;
	memcpy(word, s.at, s.len);
	word[s.len] = 0;
	return text_to_u64(word, &n) == 0 ? n : CGROUP_NONE;
}

bool cgroup_path(const char *text, size_t len, const char *controller, char path[PATH_MAX])
{
	struct span rest = { text, len }, line, id, list;

	while (take_span(&rest, '\n', &line)) { /* "4:cpu,cpuacct:/a/b", "0::/a/b" */
		if (!take_span(&line, ':', &id) || !take_span(&line, ':', &list) || !line.len)
			continue;
		if (controller ? span_has(list, controller) : !list.len && span_is(id, "0"))
			return line.at[0] == '/' && span_copy(line, path);
	}
	return false;
}

/* "36 35 98:0 /root /at rw,noatime master:1 - cgroup source rw,memory". */
static bool take_mount(struct span line, const char *controller, struct cgroup_mount *ret)
{
	struct span field[MOUNT_FIELDS], word, type, source;

	for (int i = 0; i < MOUNT_FIELDS; i++)
		if (!take_span(&line, ' ', &field[i]))
			return false;
	do { /* optional fields */
		if (!take_span(&line, ' ', &word))
			return false;
	} while (!span_is(word, "-"));
	if (!take_span(&line, ' ', &type) || !take_span(&line, ' ', &source))
		return false;
	if (!span_is(type, controller ? "cgroup" : "cgroup2") ||
	    (controller && !span_has(line, controller)))
		return false;
	return copy_escaped(field[3], ret->root) && copy_escaped(field[4], ret->at);
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

	while (found && take_span(&rest, '\n', &line)) {
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

	while (take_span(&rest, '\n', &line))
		if (take_span(&line, ' ', &name) && span_is(name, key))
			return span_number(line);
	return CGROUP_NONE;
}

uint64_t cgroup_stalled_us(const char *text, size_t len)
{
	static const char key[] = "total=";
	struct span rest = { text, len }, line, part;

	while (take_span(&rest, '\n', &line)) {
		if (!take_span(&line, ' ', &part) || !span_is(part, "some"))
			continue;
		while (take_span(&line, ' ', &part))
			if (part.len > strlen(key) && memcmp(part.at, key, strlen(key)) == 0) {
				part.at += strlen(key);
				part.len -= strlen(key);
				return span_number(part);
			}
	}
	return CGROUP_NONE;
}

uint32_t cgroup_stalled(const char *text, size_t len)
{
	static const char begin[] = "some avg10=";
	struct span rest = { text, len }, line, whole, part;

	while (take_span(&rest, '\n', &line)) {
		uint64_t percent, hundredth;

		if (line.len < strlen(begin) || memcmp(line.at, begin, strlen(begin)) != 0)
			continue;
		line.at += strlen(begin);
		line.len -= strlen(begin);
		if (!take_span(&line, '.', &whole) || !take_span(&line, ' ', &part) ||
		    part.len != 2)
			return 0;
		percent = span_number(whole);
		hundredth = span_number(part);
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
	return take_span(&rest, '\n', &line) ? span_number(line) : CGROUP_NONE;
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

struct texts {
	char *cgroup, *mounts;
	size_t cgroup_len, mounts_len;
	struct cgroup_mount mount;
	char path[PATH_MAX], dir[PATH_MAX];
};

static void each_of(struct texts *t, const char *controller, void (*look)(void *, const char *),
		    void *ctx)
{
	if (cgroup_path(t->cgroup, t->cgroup_len, controller, t->path) &&
	    cgroup_find_mount(t->mounts, t->mounts_len, controller, t->path, &t->mount) &&
	    cgroup_dir(&t->mount, t->path, t->dir))
		each_above(&t->mount, t->dir, look, ctx);
}

void cgroup_each(pid_t pid, const char *controller, void (*look)(void *, const char *), void *ctx)
{
	AUTO_FREE struct texts *t = calloc(1, sizeof(*t));
	char path[64] = "/proc/self/cgroup";

	if (!t)
		return;
	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	t->cgroup = read_whole(path, &t->cgroup_len);
	t->mounts = read_whole("/proc/self/mountinfo", &t->mounts_len);
	if (t->cgroup && t->mounts) {
		each_of(t, NULL, look, ctx);
		each_of(t, controller, look, ctx);
	}
	free(t->cgroup);
	free(t->mounts);
}
