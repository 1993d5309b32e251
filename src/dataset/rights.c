/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is shown of a file or directory to users who are not the daemon's (rights.h). Its own
 * directories need nothing: the mount has them, and the kernel checks them. Two kinds of
 * directories the mount does not have: those that a symlink leads through, wherever in the path it
 * is (who may replace the symlink may lead the path to another directory, before the kernel hears
 * of that), and those above the source. Whoever may not search one of these does not get at the
 * file, so the rights are folded in: a class keeps its bits if everybody in it may pass.
 *
 * Must never give a class more than it had. Asks the source, and for directories above the source
 * perhaps the user database; any thread that may block.
 */
#include "rights.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include "clairfs/base/beneath.h"

enum { ABOVE_MAX = 4096, GROUPS_MAX = 65536 };

void rights_fold(struct rights *shown, const struct rights *dir, bool is_member)
{
	bool u = dir->mode & S_IXUSR, g = dir->mode & S_IXGRP, o = dir->mode & S_IXOTH;
	bool is_owner = dir->uid == shown->uid, is_group = dir->gid == shown->gid;
	unsigned owner = shown->mode & 0700u, group = shown->mode & 0070u;
	unsigned other = shown->mode & 0007u;

	if (u && g && o)
		return;
	if (!(is_owner ? u : is_member && g))
		owner = 0;
	/* Only the directory's group passes, if also its owner does who may be in it: that is the
	 * group to show. Who is in it may have been one of the group or one of the others. */
	if (g && (u || is_owner)) {
		group = is_group ? group : group & other << 3;
		shown->gid = dir->gid;
	} else {
		group = 0;
	}
	shown->mode = (uint16_t)((shown->mode & ~0777u) | owner | group);
}

static struct rights rights_of(const struct stat *st)
{
	return (struct rights){ st->st_uid, st->st_gid, (uint16_t)st->st_mode };
}

static void fold_into(struct stat *st, const struct rights *dir, bool is_member)
{
	struct rights shown = rights_of(st);

	rights_fold(&shown, dir, is_member);
	st->st_gid = shown.gid;
	st->st_mode = (st->st_mode & ~(mode_t)0777) | (shown.mode & 0777u);
}

/* --- symlinks --- */

struct crossing {
	struct rights *dirs;
	uint32_t n, room;
	int error;
};

static void crossed(void *ctx, int fd, const struct stat *st)
{
	struct crossing *c = ctx;
	struct rights dir = rights_of(st);

	dir.mode = acl_narrow_fd(fd, dir.mode);
	if (c->n == c->room) {
		uint32_t room = MAX(8u, 2 * c->room);
		struct rights *more = realloc(c->dirs, room * sizeof(*more));

		if (!more) {
			c->error = -ENOMEM;
			return;
		}
		c->dirs = more;
		c->room = room;
	}
	c->dirs[c->n++] = dir;
}

int rights_look(int source_fd, const char *path, struct stat *ret)
{
	struct crossing c = { 0 };
	struct beneath_visit visit = { crossed, &c };
	struct beneath_found found;
	int rc = beneath_look(source_fd, path, &visit, &found);

	if (rc == 0) {
		found.st.st_mode = acl_narrow_fd(found.fd, (uint16_t)found.st.st_mode);
		for (uint32_t i = 0; i < c.n; i++)
			fold_into(&found.st, &c.dirs[i], false);
		close(found.fd);
		*ret = found.st;
		rc = c.error;
	}
	free(c.dirs);
	return rc;
}

/* --- above the source --- */

/* Whether a user is in a group, as far as this machine knows. */
static bool is_in_group(uid_t uid, gid_t gid)
{
	AUTO_FREE char *text = malloc(GROUPS_MAX);
	AUTO_FREE gid_t *groups = malloc(GROUPS_MAX * sizeof(*groups));
	struct passwd user, *found = NULL;
	int n = GROUPS_MAX;

	if (!text || !groups || getpwuid_r(uid, &user, text, GROUPS_MAX, &found) != 0 || !found ||
	    getgrouplist(user.pw_name, user.pw_gid, groups, &n) < 0)
		return false;
	for (int i = 0; i < n; i++)
		if (groups[i] == gid)
			return true;
	return false;
}

static void fold_above(struct stat *st, int fd, const struct stat *above)
{
	struct rights dir = rights_of(above);
	bool is_member = false;

	dir.mode = acl_narrow_fd(fd, dir.mode);
	if ((dir.mode & 0111) != 0111 && (dir.mode & S_IXGRP) && dir.uid != st->st_uid &&
	    (st->st_mode & 0700))
		is_member = is_in_group(st->st_uid, dir.gid);
	fold_into(st, &dir, is_member);
}

static bool is_same_stat(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

int rights_look_root(int source_fd, struct stat *ret)
{
	AUTO_FD int fd = -1;
	struct stat top, here, above;
	int up;

	if (fstat(source_fd, &here) < 0 || stat("/", &top) < 0)
		return -errno;
	*ret = here;
	ret->st_mode = acl_narrow_fd(source_fd, (uint16_t)here.st_mode);
	for (int i = 0; i < ABOVE_MAX; i++) {
		up = openat(fd < 0 ? source_fd : fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (up < 0)
			return -errno;
		if (fd >= 0)
			close(fd);
		fd = up;
		if (fstat(fd, &above) < 0)
			return -errno;
		/* Its own parent, and not a directory bound to a name in itself. */
		if (is_same_stat(&above, &here) && is_same_stat(&above, &top))
			return 0;
		fold_above(ret, fd, &above);
		here = above;
	}
	return -ELOOP;
}
