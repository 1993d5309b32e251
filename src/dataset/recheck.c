/* SPDX-License-Identifier: Apache-2.0 */
/* Is the snapshot still true? One stat per directory answers for the names in it: whoever adds,
 * removes or renames one changes the directory's mtime and ctime. Attributes of plain files are not
 * asked for: a file rewritten in place is found out when it is read (its identity is compared). A
 * symlink hides its target's changes from the directory, so a symlinked directory is stat'ed by
 * path like any other, and a symlinked file gets a stat of its own. Device numbers are not
 * compared: they change when a network filesystem is mounted again. Must never miss a change
 * because of the order of threads: marks are only ever set. Runs in the scan threads. */
#include <errno.h>
#include <fcntl.h>

#include "rights.h"
#include "scan_priv.h"

#define RECHECK_BATCH 32u

int recheck_init(struct recheck *r, struct table *t, int source_fd, bool is_shared)
{
	uint32_t at = 0, n_links = 0;

	*r = (struct recheck){ .t = t, .source_fd = source_fd, .is_shared = is_shared };
	for (uint32_t i = 0; i < t->n_entries; i++)
		n_links += (t->flags[i] & SLOT_IS_LINK) && !table_is_dir(t, i);
	r->n_links = n_links;
	r->links = malloc(((size_t)n_links + 1) * sizeof(*r->links));
	r->is_changed = calloc((size_t)t->n_dirs + 1, sizeof(*r->is_changed));
	r->dev = calloc((size_t)t->n_dirs + 1, sizeof(*r->dev));
	if (!r->links || !r->is_changed || !r->dev) {
		recheck_fini(r);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < t->n_entries && at < n_links; i++)
		if ((t->flags[i] & SLOT_IS_LINK) && !table_is_dir(t, i))
			r->links[at++] = i;
	return 0;
}

void recheck_fini(struct recheck *r)
{
	free(r->links);
	free(r->is_changed);
	free(r->dev);
}

static void mark(struct recheck *r, uint32_t dir_slot)
{
	if (!atomic_exchange(&r->is_changed[table_dir_no(r->t, dir_slot)], 1))
		atomic_fetch_add(&r->n_changed, 1);
}

static int stat_slot(struct recheck *r, uint32_t slot, struct slot_attr *ret, uint64_t *ret_dev)
{
	char path[DATASET_PATH_MAX + 1];
	int error = table_path(r->t, slot, path, sizeof(path));
	struct statx sx;
	struct stat st;

	if (error < 0)
		return error;
	atomic_fetch_add(&r->n_stats, 1);
	if (r->is_shared) {
		error = rights_look(r->source_fd, path, &st);
		if (error == 0)
			*ret_dev = scan_attr_of_stat(&st, ret);
		return error;
	}
	if (statx(r->source_fd, path, AT_NO_AUTOMOUNT, STATX_WANTED, &sx) < 0)
		return -errno;
	*ret_dev = scan_attr_of_statx(&sx, ret);
	return 0;
}

/* A symlink leads to it through directories of which it does not hear. */
static bool has_same_rights(const struct recheck *r, uint32_t slot, const struct slot_attr *now)
{
	const struct table *t = r->t;

	return !r->is_shared ||
	       (now->mode == t->mode[slot] && now->uid == t->uid[slot] && now->gid == t->gid[slot]);
}

static void check_dir(struct recheck *r, uint32_t dir_no)
{
	const struct table *t = r->t;
	uint32_t slot = table_dir_slot(t, dir_no);
	struct slot_attr now;

	if (t->flags[slot] & SLOT_UNTRUSTED) {
		mark(r, slot);
		/* It may be a loop by now, or gone: only reading the directory that holds the
		 * symlink tells. */
		if (t->flags[slot] & SLOT_IS_LINK)
			mark(r, t->parent[slot]);
		return;
	}
	if (stat_slot(r, slot, &now, &r->dev[dir_no]) < 0 || !S_ISDIR(now.mode)) {
		mark(r, slot);
		mark(r, t->parent[slot]);
		return;
	}
	if (now.ino == t->ino[slot] && now.mtime_ns == t->mtime_ns[slot] &&
	    now.ctime_ns == t->ctime_ns[slot] && has_same_rights(r, slot, &now))
		return;
	mark(r, slot);
}

static void check_link(struct recheck *r, uint32_t slot)
{
	struct slot_attr now, before;
	uint64_t dev;

	if (stat_slot(r, slot, &now, &dev) < 0 || !S_ISREG(now.mode)) {
		mark(r, r->t->parent[slot]);
		return;
	}
	table_get_attr(r->t, slot, &before);
	if (now.size == before.size && now.ino == before.ino && now.mtime_ns == before.mtime_ns &&
	    now.ctime_ns == before.ctime_ns && has_same_rights(r, slot, &now))
		return;
	/* No two threads have the same slot. */
	table_set_attr(r->t, slot, &now);
	atomic_store(&r->has_new_attr, true);
}

static void recheck_main(void *arg)
{
	struct recheck *r = arg;
	uint64_t n_dirs = (uint64_t)r->t->n_dirs + 1, n = n_dirs + r->n_links;

	for (;;) {
		uint64_t from = atomic_fetch_add(&r->next, RECHECK_BATCH);

		if (from >= n)
			return;
		for (uint64_t i = from; i < MIN(n, from + RECHECK_BATCH); i++) {
			if (i < n_dirs)
				check_dir(r, (uint32_t)i);
			else
				check_link(r, r->links[i - n_dirs]);
		}
	}
}

void recheck_run(struct recheck *r, const struct scan_options *options)
{
	crew_run(options, "clairfs-recheck", recheck_main, r);
}
