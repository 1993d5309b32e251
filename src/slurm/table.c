/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mounts of ours on this machine, for who cleans up as root. A user chooses where they mount, may
 * rename directories at any moment, and may have a daemon that never answers. So:
 * - nothing is taken away by its path alone. The path is opened as the mount's owner, without
 *   following symlinks, and must lead to the very mount that the kernel's table had (its number
 *   there); then that descriptor is unmounted.
 * - a mount is touched by a child that is given up on, and only with its owner's rights: root would
 *   be refused, which says nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/span.h"
#include "slurm_priv.h"

#define ANSWER_NS NS_PER_S
#define FUSE_FS_MAGIC 0x65735546

static bool mount_number(struct span s, uint32_t *ret)
{
	uint64_t v;

	if (!span_number(s, &v) || v > UINT32_MAX)
		return false;
	*ret = (uint32_t)v;
	return true;
}

/* "rw,user_id=1000,group_id=1000" */
static bool id_of(struct span options, const char *key, uint32_t *ret)
{
	struct span one, name;

	while (span_take(&options, ',', &one))
		if (span_take(&one, '=', &name) && span_is(name, key))
			return mount_number(one, ret);
	return false;
}

bool slurm_mount_parse(const char *line, size_t len, struct slurm_mount *ret)
{
	struct span major;
	struct mountinfo m;

	return mountinfo_parse((struct span){ line, len }, &m) && span_is(m.type, "fuse.clairfs") &&
	       span_take(&m.device, ':', &major) && mount_number(m.id, &ret->id) &&
	       mount_number(m.device, &ret->minor) && id_of(m.options, "user_id", &ret->owner) &&
	       id_of(m.options, "group_id", &ret->group) && mountinfo_path(m.at, ret->path) &&
	       ret->path[0] == '/';
}

int slurm_mount_each(bool (*look)(void *ctx, const struct slurm_mount *m), void *ctx)
{
	AUTO_FILE FILE *f = fopen("/proc/self/mountinfo", "re");
	AUTO_FREE struct slurm_mount *all = NULL;
	AUTO_FREE char *line = NULL;
	size_t size = 0, n = 0;
	ssize_t len;

	if (!f)
		return -errno;
	/* All of it first: what look() does changes the table. */
	while ((len = getline(&line, &size, f)) > 0) {
		struct slurm_mount *more = realloc(all, (n + 1) * sizeof(*all));

		if (!more)
			return -ENOMEM;
		all = more;
		if (slurm_mount_parse(line, (size_t)len - (line[len - 1] == '\n'), &all[n]))
			n++;
	}
	while (n > 0 && look(ctx, &all[n - 1])) /* the last one is on top */
		n--;
	return 0;
}

static bool is_mount(int fd, uint32_t id)
{
	char path[64], line[256];
	AUTO_FILE FILE *f = NULL;
	unsigned found;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "mnt_id: %u", &found) == 1)
			return found == id;
	return false;
}

/* A descriptor of the mount itself, or a negative errno. */
static int open_mount(const struct slurm_mount *m)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
	uid_t own = geteuid();
	int fd, saved;

	/* A home directory may be closed to root. */
	if (own == 0 && seteuid(m->owner) < 0)
		return -errno;
	fd = (int)syscall(SYS_openat2, AT_FDCWD, m->path, &how, sizeof(how));
	saved = errno;
	if (own == 0 && seteuid(0) < 0)
		abort(); /* nothing may go on with the wrong rights */
	if (fd < 0)
		return -saved;
	if (is_mount(fd, m->id))
		return fd;
	close(fd);
	return -ESTALE;
}

static int detach_mount(void *ctx)
{
	const struct slurm_mount *m = ctx;
	AUTO_FD int fd = open_mount(m);
	char path[32];

	if (fd < 0)
		return fd;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	/* By force: what waits for it fails. */
	return umount2(path, MNT_FORCE | MNT_DETACH) == 0 ? 0 : -errno;
}

int slurm_mount_detach(const struct slurm_mount *m)
{
	struct slurm_mount copy = *m;

	return slurm_bounded(detach_mount, &copy, ANSWER_NS);
}

/* Not the bare directory that is there when the mount is gone, nor another filesystem below it. A
 * kernel that does not tell roots of mounts (before 5.8) is believed. */
static bool is_fuse_root(const char *path, const struct statfs *st)
{
	struct statx stx;

	if ((uint32_t)st->f_type != FUSE_FS_MAGIC ||
	    statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW, 0, &stx) < 0)
		return false;
	return !(stx.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) ||
	       (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

static int touch_mount(void *ctx)
{
	const struct slurm_mount *m = ctx;
	struct statfs st;

	/* Nothing of root's goes along, its other groups neither. */
	if (geteuid() == 0 && (setgroups(0, NULL) < 0 ||
			       setresgid(m->group, m->group, m->group) < 0 ||
			       setresuid(m->owner, m->owner, m->owner) < 0))
		return -EPERM;
	if (statfs(m->path, &st) < 0)
		return -errno;
	return is_fuse_root(m->path, &st) ? 0 : -ENOTDIR;
}

static int ask_mount(const struct slurm_mount *m)
{
	struct slurm_mount copy = *m;

	return slurm_bounded(touch_mount, &copy, ANSWER_NS);
}

bool slurm_mount_is_dead(const struct slurm_mount *m)
{
	int rc = ask_mount(m);

	return rc == -ENOTCONN || rc == -ECONNABORTED;
}

bool slurm_mount_answers(const struct slurm_mount *m)
{
	return ask_mount(m) == 0;
}
