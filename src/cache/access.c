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
 *    then on it is "narrowed": its name leads to a new inode (change.c), so the pages of those who
 *    may read are not those that the others have open; READs through the old one are refused, all
 *    others answered only to those who may read it now (by fs). What decides goes with the
 *    bytes, from the moment at which it is decided which version of the file they are of: the path
 *    may be flipped between two files while a READ is under way.
 *
 * A file that leaves the source by a symlink is closed to all. Must never run with a lock held
 * where it asks the source. Any thread that may block, but access_note and the questions.
 */
#include <errno.h>

#include "cache_priv.h"

#define ALL_READ (S_IRUSR | S_IRGRP | S_IROTH)
#define ALL_SEARCH (S_IXUSR | S_IXGRP | S_IXOTH)
#define RIGHTS ((mode_t)07777)

/* The root has no number of its own. */
static uint32_t bit_of(const struct cache *c, struct entry_id entry)
{
	return entry_eq(entry, ENTRY_ROOT) ? dataset_n_entries(c->p.dataset) : entry.v;
}

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

/* Whether a directory above was closed to somebody since it is mounted: files may be open whose
 * names are those of others by now. */
static bool has_narrowed_way(const struct cache *c, struct entry_id entry)
{
	do {
		entry = dataset_parent(c->p.dataset, entry);
		if (access_is_narrowed(c, entry))
			return true;
	} while (!entry_eq(entry, ENTRY_ROOT));
	return false;
}

bool access_note(struct cache *c, struct entry_id entry, const struct stat *st)
{
	struct stat known;
	bool is_narrower;

	if (!c->narrowed)
		return false;
	is_narrower = has_narrowed_way(c, entry);
	if (!is_narrower && (st->st_mode & ALL_READ) == ALL_READ) {
		bits_clear(c->narrowed, entry.v);
		return false;
	}
	dataset_stat(c->p.dataset, entry, &known);
	if (known.st_uid != st->st_uid || known.st_gid != st->st_gid ||
	    (known.st_mode & ~st->st_mode & ALL_READ))
		is_narrower = true;
	if (is_narrower)
		bits_set(c->narrowed, entry.v);
	return is_narrower;
}

bool access_is_narrowed(const struct cache *c, struct entry_id entry)
{
	return c->narrowed && bits_get(c->narrowed, bit_of(c, entry));
}

void access_rights(const struct cache *c, struct entry_id entry, struct cache_rights *ret)
{
	struct stat st;

	*ret = (struct cache_rights){ .is_narrowed = access_is_narrowed(c, entry) };
	if (!ret->is_narrowed)
		return;
	dataset_stat(c->p.dataset, entry, &st);
	ret->uid = st.st_uid;
	ret->gid = st.st_gid;
	ret->mode = (uint16_t)st.st_mode;
}

/* Whether the file that was read is as open as the index says. */
static bool is_as_shown(const struct cache *c, struct entry_id entry, const struct tier_read *read)
{
	struct stat known;

	if (dataset_is_linked(c->p.dataset, entry)) /* the way there counts as well */
		return bits_get(c->confirmed, entry.v);
	dataset_stat(c->p.dataset, entry, &known);
	return !read->answer.has_st ||
	       (known.st_uid == read->answer.st.st_uid && known.st_gid == read->answer.st.st_gid &&
		(known.st_mode & ~read->answer.st.st_mode & ALL_READ) == 0);
}

/* Another file is there: the way to it may be another one as well. */
static void check_way(struct cache *c, struct entry_id entry)
{
	do {
		entry = dataset_parent(c->p.dataset, entry);
		access_check_dir(c, entry);
	} while (!entry_eq(entry, ENTRY_ROOT));
}

int access_look_again(struct cache *c, struct entry_id entry)
{
	struct file_identity known, now;
	struct stat st;
	bool is_same;
	int rc;

	dataset_identity(c->p.dataset, entry, &known);
	rc = access_look(c, entry, &st);
	if (rc == -ENOENT)
		change_file(c, entry, NULL, NULL);
	if (rc != 0)
		return rc;
	now = file_identity_of(&st);
	is_same = file_identity_eq(&known, &now);
	if (is_same && !access_differs(c, entry, &st))
		return 0;
	if (!is_same)
		check_way(c, entry);
	change_file(c, entry, &known, &st);
	return -ESTALE;
}

int access_learn(struct cache *c, struct entry_id entry, const struct tier_read *read)
{
	int rc;

	if (!c->narrowed)
		return 0;
	if (read->answer.status == 0)
		return is_as_shown(c, entry, read) ? 0 : access_look_again(c, entry);
	if (read->answer.is_changed && S_ISREG(read->answer.st.st_mode)) {
		rc = access_look_again(c, entry);
		return rc == 0 ? -ESTALE : rc; /* the one that we know is there again */
	}
	if (is_closed(read->answer.status)) {
		(void)access_look_again(c, entry);
		return read->answer.status;
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
	if ((now.st_mode & ALL_SEARCH) == ALL_SEARCH)
		bits_clear(c->narrowed, bit_of(c, dir));
	else
		bits_set(c->narrowed, bit_of(c, dir));
	dataset_update_rights(c->p.dataset, dir, &now);
	if (c->stage)
		c->stage->inval_attr(c->stage_ctx, dir);
}
