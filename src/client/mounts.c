/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts of this machine, seen through /proc/self/mountinfo. Nothing here may touch a mount that
 * could hang before it is known to be alive: a path is made absolute through its parent directory.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "client_priv.h"

static int absolute_path(const char *path, char out[PATH_MAX], struct err *err)
{
	char parent[PATH_MAX], resolved[PATH_MAX];
	size_t len = strlen(path);
	const char *base;
	int n;

	if (len == 0 || len >= sizeof(parent))
		return err_set(err, -EINVAL, "mountpoint '%s': not a usable path", path);
	memcpy(parent, path, len + 1);
	while (len > 1 && parent[len - 1] == '/')
		parent[--len] = 0;
	base = strrchr(parent, '/');
	base = base ? base + 1 : parent;
	if (strcmp(base, "..") == 0 || strcmp(base, ".") == 0 || *base == 0)
		return realpath(path, out) ? 0 : err_set_errno(err, -errno, "mountpoint %s", path);
	if (base == parent) {
		if (!realpath(".", resolved))
			return err_set_errno(err, -errno, "current directory");
	} else {
		char saved = parent[base - parent];

		parent[base - parent] = 0;
		if (!realpath(parent, resolved))
			return err_set_errno(err, -errno, "mountpoint %s", path);
		parent[base - parent] = saved;
	}
	n = snprintf(out, PATH_MAX, "%s/%s", strcmp(resolved, "/") == 0 ? "" : resolved, base);
	return n < PATH_MAX ? 0 : err_set(err, -ENAMETOOLONG, "mountpoint %s: path too long", path);
}

/* The kernel writes blanks, newlines and backslashes of names as \040 etc. */
static void unescape(char *s)
{
	char *out = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = 0;
}

/* One line of mountinfo: "36 35 98:0 /root /mountpoint options... - type device superoptions". */
static bool parse_line(char *line, uint64_t *ret_dev, char **ret_path, char **ret_type)
{
	char *field = line, *save = NULL;
	unsigned major, minor;
	int i = 0;

	for (field = strtok_r(line, " ", &save); field; field = strtok_r(NULL, " ", &save), i++) {
		if (i == 2 && sscanf(field, "%u:%u", &major, &minor) == 2)
			*ret_dev = (uint64_t)major << 32 | minor;
		if (i == 4)
			*ret_path = field;
		if (i > 5 && strcmp(field, "-") == 0) {
			*ret_type = strtok_r(NULL, " ", &save);
			return *ret_type != NULL;
		}
	}
	return false;
}

/* "... - fuse.clairfs SOURCE rw,user_id=1000,group_id=1000": the last field, as the source may be
 * called anything. UINT32_MAX: it does not say. */
static uid_t owner_of(const char *line)
{
	const char *options = strrchr(line, ' ');
	const char *option = options ? strstr(options, ",user_id=") : NULL;

	return option ? (uid_t)strtoul(option + strlen(",user_id="), NULL, 10) : UINT32_MAX;
}

/* The kernel's table of mounts. Without it nothing can be said about any. */
static FILE *open_table(struct err *err)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");

	if (!f && errno == ENOENT)
		err_set(err, -ENOENT,
			"there is no /proc/self/mountinfo: clairfs needs /proc to be mounted");
	else if (!f)
		err_set_errno(err, -errno, "/proc/self/mountinfo");
	return f;
}

void mounts_parse_line(char *line, struct mounts_line *ret)
{
	char *path = NULL, *type = NULL;

	*ret = (struct mounts_line){ .owner = owner_of(line) };
	if (!parse_line(line, &ret->dev, &path, &type) || !path)
		return;
	unescape(path);
	ret->path = path;
	ret->is_ours = strcmp(type, "fuse.clairfs") == 0;
}

void mounts_take_line(char *text, struct mount_info *ret)
{
	size_t len = strlen(ret->path);
	struct mounts_line line;

	mounts_parse_line(text, &line);
	if (!line.path)
		return;
	if (strncmp(line.path, ret->path, len) == 0 && line.path[len] == '/')
		ret->is_covered = true;
	if (strcmp(line.path, ret->path) != 0)
		return;
	ret->is_mounted = true; /* the last line is the mount on top */
	ret->is_covered = false;
	ret->is_ours = line.is_ours;
	ret->dev = line.dev;
	ret->owner = line.owner;
}

int mounts_find(const char *mountpoint, struct mount_info *ret, struct err *err)
{
	AUTO_FILE FILE *f = NULL;
	AUTO_FREE char *line = NULL;
	size_t size = 0;
	int rc;

	memset(ret, 0, sizeof(*ret));
	rc = absolute_path(mountpoint, ret->path, err);
	if (rc < 0)
		return rc;
	f = open_table(err);
	if (!f)
		return err->code;
	while (getline(&line, &size, f) > 0)
		mounts_take_line(line, ret);
	return 0;
}

int mounts_list(uid_t user, char **ret, uint32_t max, uint32_t *n, struct err *err)
{
	AUTO_FILE FILE *f = open_table(err);
	AUTO_FREE char *line = NULL;
	size_t size = 0;

	*n = 0;
	if (!f)
		return err->code;
	while (*n < max && getline(&line, &size, f) > 0) {
		struct mounts_line mount;

		mounts_parse_line(line, &mount);
		if (!mount.path || !mount.is_ours || mount.owner != user)
			continue;
		ret[*n] = strdup(mount.path);
		if (!ret[*n])
			return err_set_errno(err, -ENOMEM, "mounts");
		++*n;
	}
	return 0;
}

/* Attributes do not tell: the kernel goes on answering them from its cache when the daemon is gone.
 */
bool mounts_is_dead(const char *mountpoint)
{
	AUTO_FREE char *text = NULL;
	struct err ignored = { 0 };

	return mounts_read_vfile(mountpoint, "config", &text, &ignored) == -ENOTCONN;
}

int mounts_make_free(const char *mountpoint, char path[4096], struct err *err)
{
	struct mount_info mount;
	int rc = mounts_find(mountpoint, &mount, err);

	if (rc < 0)
		return rc;
	memcpy(path, mount.path, sizeof(mount.path));
	if (!mount.is_ours)
		return 0;
	if (!mounts_is_dead(path)) /* of a killed daemon */
		return err_set(err, -EBUSY, "mountpoint %s: already mounted", path);
	log_warn("%s: clearing a dead mount", path);
	return mounts_umount(&(struct umount_params){ .mountpoint = path, .is_lazy = true }, err);
}
