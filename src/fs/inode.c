/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inode numbers and what the kernel remembers. The number of an entry never changes, so nothing has
 * to be allocated or looked up when the kernel names an inode; all that is kept is one counter per
 * entry, the references the kernel holds (every answered LOOKUP and every entry of a READDIRPLUS is
 * one). When it falls to zero the inode is gone and its pages with it, which is the one exact sign
 * of eviction there is: the cache is told.
 *
 * A counter that reaches its largest value stays there: the inode then only looks known for ever.
 *
 * Runs on the reactor, so the counters need no lock; the total is atomic for fs_get_status.
 */
#include <string.h>

#include "fs_priv.h"

#define COUNT_BITS 24
#define COUNT_MAX ((1u << COUNT_BITS) - 1)

fuse_ino_t fs_ino_of(struct entry_id entry)
{
	return entry_eq(entry, ENTRY_ROOT) ? FS_INO_ROOT : (fuse_ino_t)entry.v + 2;
}

fuse_ino_t fs_ino_renewed(struct entry_id entry, uint32_t renewal)
{
	return fs_ino_of(entry) | (fuse_ino_t)renewal << FS_INO_RENEWAL_SHIFT;
}

bool fs_entry_of(const struct fs *fs, fuse_ino_t ino, struct entry_id *ret)
{
	ino &= (1ull << FS_INO_RENEWAL_SHIFT) - 1;
	if (ino == FS_INO_ROOT) {
		*ret = ENTRY_ROOT;
		return true;
	}
	if (ino < 2 || ino - 2 >= dataset_n_entries(fs->params.dataset))
		return false;
	ret->v = (uint32_t)(ino - 2);
	return true;
}

void fs_stat_entry(const struct fs *fs, struct entry_id entry, struct stat *ret)
{
	memset(ret, 0, sizeof(*ret));
	dataset_stat(fs->params.dataset, entry, ret);
	ret->st_ino = fs_ino_of(entry);
}

void fs_entry_param(const struct fs *fs, struct entry_id entry, struct fuse_entry_param *ret)
{
	uint32_t renewal;

	*ret = (struct fuse_entry_param){ .entry_timeout = FS_DAY_S, .attr_timeout = FS_DAY_S };
	renewal = dataset_stat_renewal(fs->params.dataset, entry, &ret->attr);
	ret->attr.st_ino = fs_ino_of(entry);
	ret->ino = fs_ino_renewed(entry, renewal);
	/* The kernel sends no READ of an empty file; so it has to ask for the size at least. */
	if (S_ISREG(ret->attr.st_mode) && ret->attr.st_size == 0 &&
	    cache_must_look(fs->params.cache, entry))
		ret->attr_timeout = 0;
}

static void count_inodes(struct fs *fs, int64_t delta)
{
	atomic_fetch_add_explicit(&fs->inodes_known, (uint64_t)delta, memory_order_relaxed);
	metrics_gauge_add(fs->params.metrics, METRIC_KERNEL_INODES, delta);
	metrics_gauge_add(fs->params.metrics, METRIC_KERNEL_INODE_BYTES,
			  delta * FS_INODE_BYTES_ESTIMATE);
}

void fs_inode_known(struct fs *fs, struct entry_id entry)
{
	uint32_t now, *n;

	if (entry_eq(entry, ENTRY_ROOT))
		return;
	n = &fs->nlookup[entry.v];
	now = dataset_renewal(fs->params.dataset, entry) << COUNT_BITS;
	if ((*n ^ now) >> COUNT_BITS) { /* what the kernel has of the inode before is not counted */
		if (*n & COUNT_MAX)
			count_inodes(fs, -1);
		*n = now;
	}
	if ((*n & COUNT_MAX) == 0)
		count_inodes(fs, 1);
	if ((*n & COUNT_MAX) < COUNT_MAX)
		(*n)++;
}

void fs_inode_forgotten(struct fs *fs, fuse_ino_t ino, uint64_t count)
{
	struct entry_id entry;
	uint32_t *n, had;

	if (fs_is_virtual(ino)) {
		fs_vfile_forget(fs, ino, count);
		return;
	}
	if (!fs_entry_of(fs, ino, &entry) || entry_eq(entry, ENTRY_ROOT))
		return;
	n = &fs->nlookup[entry.v];
	had = *n & COUNT_MAX;
	if (had == 0 || had == COUNT_MAX || (fs_renewal_of(ino) ^ *n >> COUNT_BITS) & 0xff)
		return;
	*n -= (uint32_t)MIN(count, had);
	if (had > count)
		return;
	count_inodes(fs, -1);
	fs_stage_caught_up(fs, entry);
	if (dataset_kind(fs->params.dataset, entry) == ENTRY_KIND_FILE)
		cache_note_forget(fs->params.cache, entry);
}

bool fs_is_shadowed(const struct fs *fs, struct entry_id dir)
{
	if (entry_eq(fs->shadowed, ENTRY_NONE))
		return false;
	while (!entry_eq(dir, ENTRY_ROOT)) {
		if (entry_eq(dir, fs->shadowed))
			return true;
		dir = dataset_parent(fs->params.dataset, dir);
	}
	return false;
}
