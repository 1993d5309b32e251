/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of an open dataset: the one part that changes while it is mounted, when a file turns
 * out to be another one than the index says. Locks are sharded by entry number, so neighbours in
 * the order, which are read at the same time, do not meet. The snapshot is not rewritten: it says
 * what the scan saw, and the next mount finds out again. Must never change the kind of an entry:
 * the kernel was told. Any thread. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <xxhash.h>

#include "dataset_priv.h"
#include "rights.h"

static struct dataset_shard *shard_of(const struct dataset *ds, uint32_t slot)
{
	return &ds->shards[slot % DATASET_SHARDS];
}

static struct mutex *lock_of(const struct dataset *ds, uint32_t slot)
{
	return &shard_of(ds, slot)->mu;
}

/* Without the lock, as every read asks: one that has met a change sees another turn, as it has seen
 * something that was stored after the turn was. Then it waits for its end. */
static void get_attr(const struct dataset *ds, uint32_t slot, struct slot_attr *ret)
{
	struct dataset_shard *shard = shard_of(ds, slot);
	uint32_t turn = atomic_load_explicit(&shard->turn, memory_order_acquire);

	table_get_attr(&ds->t, slot, ret);
	if (turn % 2 == 0 && atomic_load_explicit(&shard->turn, memory_order_relaxed) == turn)
		return;
	mutex_lock(&shard->mu);
	table_get_attr(&ds->t, slot, ret);
	mutex_unlock(&shard->mu);
}

static void set_attr_locked(struct dataset *ds, struct dataset_shard *shard, uint32_t slot,
			    const struct slot_attr *attr) REQUIRES(shard->mu)
{
	uint32_t turn = atomic_load_explicit(&shard->turn, memory_order_relaxed);

	assert(turn % 2 == 0);
	atomic_store_explicit(&shard->turn, turn + 1, memory_order_relaxed);
	table_set_attr(&ds->t, slot, attr);
	atomic_store_explicit(&shard->turn, turn + 2, memory_order_release);
}

uint32_t dataset_renewal(const struct dataset *ds, struct entry_id e)
{
	return atomic_load_explicit(&ds->renewals[dataset_slot(ds, e)], memory_order_acquire);
}

uint32_t dataset_stat_renewal(const struct dataset *ds, struct entry_id e, struct stat *ret)
{
	uint32_t slot = dataset_slot(ds, e), renewal;
	struct mutex *mu = lock_of(ds, slot);
	struct slot_attr attr;

	mutex_lock(mu);
	table_get_attr(&ds->t, slot, &attr);
	renewal = dataset_renewal(ds, e);
	mutex_unlock(mu);
	*ret = (struct stat){ .st_mode = attr.mode,
			      .st_nlink = 1,
			      .st_uid = attr.uid,
			      .st_gid = attr.gid,
			      .st_size = (off_t)attr.size,
			      .st_blksize = 4096,
			      .st_blocks = (blkcnt_t)(attr.size / 512 + (attr.size % 512 != 0)),
			      .st_atim = file_time_of(attr.mtime_ns),
			      .st_mtim = file_time_of(attr.mtime_ns),
			      .st_ctim = file_time_of(attr.ctime_ns) };
	if (table_is_dir(&ds->t, slot))
		ret->st_nlink = 2 + (nlink_t)ds->n_subdirs[table_dir_no(&ds->t, slot)];
	return renewal;
}

void dataset_stat(const struct dataset *ds, struct entry_id e, struct stat *ret)
{
	(void)dataset_stat_renewal(ds, e, ret);
}

void dataset_identity(const struct dataset *ds, struct entry_id e, struct file_identity *ret)
{
	struct slot_attr attr;

	get_attr(ds, dataset_slot(ds, e), &attr);
	*ret = (struct file_identity){ .ino = attr.ino,
				       .size = attr.size,
				       .mtime_ns = attr.mtime_ns,
				       .ctime_ns = attr.ctime_ns };
}

int dataset_kept_identity(const struct dataset *ds, struct entry_id e,
			  const struct file_identity *id, struct file_identity *ret)
{
	char path[4096];
	int rc = dataset_path(ds, e, path, sizeof(path));

	if (rc != 0)
		return rc;
	*ret = *id;
	ret->ino = XXH3_64bits_withSeed(path, strlen(path), id->ino);
	return 0;
}

uint64_t dataset_size(const struct dataset *ds, struct entry_id e)
{
	return table_get_size(&ds->t, dataset_slot(ds, e));
}

static void update(struct dataset *ds, struct entry_id e, const struct stat *st, bool is_renewed)
{
	uint32_t slot = dataset_slot(ds, e);
	struct dataset_shard *shard = shard_of(ds, slot);
	struct file_identity id = file_identity_of(st);
	struct slot_attr attr = { .size = id.size,
				  .ino = id.ino,
				  .mtime_ns = id.mtime_ns,
				  .ctime_ns = id.ctime_ns,
				  .uid = st->st_uid,
				  .gid = st->st_gid };

	mutex_lock(&shard->mu);
	attr.mode = (uint16_t)((ds->t.mode[slot] & S_IFMT) | (st->st_mode & ~(mode_t)S_IFMT));
	set_attr_locked(ds, shard, slot, &attr);
	if (is_renewed)
		atomic_fetch_add_explicit(&ds->renewals[slot], 1, memory_order_release);
	mutex_unlock(&shard->mu);
}

void dataset_update(struct dataset *ds, struct entry_id e, const struct stat *st)
{
	update(ds, e, st, false);
}

void dataset_renew(struct dataset *ds, struct entry_id e, const struct stat *st)
{
	if (st)
		update(ds, e, st, true);
	else
		atomic_fetch_add_explicit(&ds->renewals[dataset_slot(ds, e)], 1,
					  memory_order_release);
}

void dataset_update_rights(struct dataset *ds, struct entry_id e, const struct stat *st)
{
	uint32_t slot = dataset_slot(ds, e);
	struct dataset_shard *shard = shard_of(ds, slot);
	struct slot_attr attr;

	mutex_lock(&shard->mu);
	table_get_attr(&ds->t, slot, &attr);
	attr.uid = st->st_uid;
	attr.gid = st->st_gid;
	attr.mode = (uint16_t)((attr.mode & S_IFMT) | (st->st_mode & ~(mode_t)S_IFMT));
	set_attr_locked(ds, shard, slot, &attr);
	mutex_unlock(&shard->mu);
}

int dataset_look(const struct dataset *ds, struct entry_id e, struct stat *ret)
{
	char path[DATASET_PATH_MAX + 1];
	int rc = dataset_path(ds, e, path, sizeof(path));

	if (rc < 0)
		return rc;
	if (!ds->is_shared)
		return fstatat(ds->source_fd, path, ret, 0) < 0 ? -errno : 0;
	return entry_eq(e, ENTRY_ROOT) ? rights_look_root(ds->source_fd, ret)
				       : rights_look(ds->source_fd, path, ret);
}

bool dataset_is_shared(const struct dataset *ds)
{
	return ds->is_shared;
}

bool dataset_is_linked(const struct dataset *ds, struct entry_id e)
{
	uint32_t slot = dataset_slot(ds, e);

	while (slot != ds->t.n_entries && !(ds->t.flags[slot] & SLOT_IS_LINK))
		slot = ds->t.parent[slot];
	return slot != ds->t.n_entries;
}

uint32_t dataset_first_dir(const struct dataset *ds)
{
	return ds->t.n_samples;
}

uint32_t dataset_n_dirs(const struct dataset *ds)
{
	return ds->t.n_dirs;
}
