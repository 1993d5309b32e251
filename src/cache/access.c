/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mount that others than the daemon's user see (allow_other) must not give them what the source
 * does not. Who may open a file the kernel decides, by the attributes that the index has; so these
 * have to follow the source:
 *
 * 1. They are compared whenever the source is asked about a file, and by the revalidation, which
 *    looks at the directories as well. A symlink hides changes of the directories it leads through,
 *    so the first use of a symlinked file in a mount looks at the whole way.
 * 2. A file may have been opened before it was closed to the one who did, as far as we knew. From
 *    then on it is "narrowed": every READ of it is answered only to those who may read it now (fs
 *    asks cache_is_narrowed), and none of its pages stays with the kernel, who asks nobody.
 *
 * A file that leaves the source by a symlink is closed to all. Must never run with a lock held
 * where it asks the source. Any thread that may block, but access_note and the questions.
 */
#include <errno.h>

#include "cache_priv.h"

#define ALL_READ (S_IRUSR | S_IRGRP | S_IROTH)
#define RIGHTS ((mode_t)07777)

int access_init(struct cache *c)
{
	if (!dataset_is_shared(c->p.dataset))
		return 0;
	c->narrowed =
		calloc(dataset_n_entries(c->p.dataset) / 64 + 1, sizeof(*c->narrowed));
	return c->narrowed ? 0 : -ENOMEM;
}

static bool is_closed(int error)
{
	return error == -EXDEV || error == -EACCES || error == -ELOOP || error == -ENAMETOOLONG;
}

/* What the index has, with nobody let in. */
static void closed_stat(const struct cache *c, struct entry_id entry, struct stat *ret)
{
	struct file_identity id;

	dataset_stat(c->p.dataset, entry, ret);
	dataset_identity(c->p.dataset, entry, &id);
	ret->st_ino = id.ino;
	ret->st_mode &= (mode_t)S_IFMT;
}

int access_look(struct cache *c, struct entry_id entry, struct stat *ret)
{
	int rc = dataset_look(c->p.dataset, entry, ret);

	if (rc == 0)
		return S_ISREG(ret->st_mode) ? 0 : -ENOENT;
	if (rc == -ENOENT || rc == -ENOTDIR)
		return -ENOENT;
	if (!c->narrowed || !is_closed(rc))
		return rc;
	closed_stat(c, entry, ret);
	return 0;
}

static bool differs(const struct stat *a, const struct stat *b)
{
	return a->st_uid != b->st_uid || a->st_gid != b->st_gid ||
	       ((a->st_mode ^ b->st_mode) & RIGHTS) != 0;
}

bool access_differs(const struct cache *c, struct entry_id entry, const struct stat *st)
{
	struct stat known;

	if (!c->narrowed)
		return false;
	dataset_stat(c->p.dataset, entry, &known);
	return differs(&known, st);
}

bool access_note(struct cache *c, struct entry_id entry, const struct stat *st)
{
	struct stat known;
	bool is_narrower;

	if (!c->narrowed)
		return false;
	dataset_stat(c->p.dataset, entry, &known);
	if ((st->st_mode & ALL_READ) == ALL_READ) {
		bits_clear(c->narrowed, entry.v);
		return false;
	}
	is_narrower = known.st_uid != st->st_uid || known.st_gid != st->st_gid ||
		      (known.st_mode & ~st->st_mode & ALL_READ);
	if (is_narrower)
		bits_set(c->narrowed, entry.v);
	return is_narrower;
}

bool access_is_narrowed(const struct cache *c, struct entry_id entry)
{
	return c->narrowed && bits_get(c->narrowed, entry.v);
}

bool cache_is_narrowed(const struct cache *c, struct entry_id entry)
{
	return access_is_narrowed(c, entry);
}

/* Whether the file that was read is as open as the index says. */
static bool is_as_shown(const struct cache *c, struct entry_id entry, const struct tier_read *read)
{
	struct stat known;

	if (dataset_is_link(c->p.dataset, entry)) /* the way there counts as well */
		return bits_get(c->confirmed, entry.v);
	dataset_stat(c->p.dataset, entry, &known);
	return !read->has_st ||
	       (known.st_uid == read->st.st_uid && known.st_gid == read->st.st_gid &&
		(known.st_mode & ~read->st.st_mode & ALL_READ) == 0);
}

/* -ESTALE if the index was wrong. */
static int look_again(struct cache *c, struct entry_id entry)
{
	struct file_identity known, now;
	struct stat st;
	int rc = access_look(c, entry, &st);

	if (rc == -ENOENT)
		change_file(c, entry, NULL);
	if (rc != 0)
		return rc;
	dataset_identity(c->p.dataset, entry, &known);
	now = file_identity_of(&st);
	if (file_identity_eq(&known, &now) && !access_differs(c, entry, &st))
		return 0;
	change_file(c, entry, &st);
	return -ESTALE;
}

int access_learn(struct cache *c, struct entry_id entry, const struct tier_read *read)
{
	int rc;

	if (!c->narrowed)
		return 0;
	if (read->status == 0)
		return is_as_shown(c, entry, read) ? 0 : look_again(c, entry);
	if (read->is_changed && S_ISREG(read->st.st_mode)) {
		rc = look_again(c, entry);
		return rc == 0 ? -ESTALE : rc; /* it is the one that we know again */
	}
	if (is_closed(read->status)) {
		(void)look_again(c, entry);
		return read->status;
	}
	return 0;
}

void access_check_dir(struct cache *c, struct entry_id dir)
{
	struct stat known, now;
	int rc = dataset_look(c->p.dataset, dir, &now);

	if (is_closed(rc))
		closed_stat(c, dir, &now);
	else if (rc != 0 || !S_ISDIR(now.st_mode))
		return; /* nothing can be opened through it, or it says nothing */
	dataset_stat(c->p.dataset, dir, &known);
	if (!differs(&known, &now))
		return;
	dataset_update_rights(c->p.dataset, dir, &now);
	if (c->stage)
		c->stage->inval_attr(c->stage_ctx, dir);
}
