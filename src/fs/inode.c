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

fuse_ino_t fs_ino_of(struct entry_id entry)
{
	return entry_eq(entry, ENTRY_ROOT) ? FS_INO_ROOT : (fuse_ino_t)entry.v + 2;
}

bool fs_entry_of(const struct fs *fs, fuse_ino_t ino, struct entry_id *ret)
{
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

static void count_inodes(struct fs *fs, int64_t delta)
{
	atomic_fetch_add_explicit(&fs->inodes_known, (uint64_t)delta, memory_order_relaxed);
	metrics_gauge_add(fs->params.metrics, METRIC_KERNEL_INODES, delta);
	metrics_gauge_add(fs->params.metrics, METRIC_KERNEL_INODE_BYTES,
			  delta * FS_INODE_BYTES_ESTIMATE);
}

void fs_inode_known(struct fs *fs, struct entry_id entry)
{
	uint32_t *n;

	if (entry_eq(entry, ENTRY_ROOT))
		return;
	n = &fs->nlookup[entry.v];
	if (*n == 0)
		count_inodes(fs, 1);
	if (*n < UINT32_MAX)
		(*n)++;
}

void fs_inode_forgotten(struct fs *fs, fuse_ino_t ino, uint64_t count)
{
	struct entry_id entry;
	uint32_t *n;

	if (fs_is_virtual(ino)) {
		fs_vfile_forget(fs, ino, count);
		return;
	}
	if (!fs_entry_of(fs, ino, &entry) || entry_eq(entry, ENTRY_ROOT))
		return;
	n = &fs->nlookup[entry.v];
	if (*n == 0 || *n == UINT32_MAX)
		return;
	*n -= (uint32_t)MIN(count, *n);
	if (*n > 0)
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
