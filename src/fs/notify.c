/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stage operations: pages into the kernel's cache and out of it. They block while a page of
 * theirs is locked by a READ that is not answered yet, so only stagers call them, holding no lock,
 * and never the reactor, which takes those READs.
 *
 * Nothing is copied here: one memory buffer, without splice, is one writev of libfuse. While it
 * waits it keeps the FUSE device open whatever becomes of our descriptor. So the unmount lets no new
 * operation in and waits for those inside, which need nothing but answers to READs and lookups; the
 * device is taken away only then. After that they fail.
 *
 * A lookup for a push pins kernel memory that the reader has not asked for yet. Beyond the bound of
 * inodes_ahead it is refused as long as the readers have not opened enough of what was looked up
 * before; the sample then waits in the arena, where a READ finds it, for its turn to come.
 *
 * The lookup uses the whole path each time. An open descriptor of the mount would save the walk but
 * make it busy, and `umount` must work at any moment.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "fs_priv.h"

void fs_stage_init(struct fs *fs)
{
	mutex_init(&fs->stage.mu);
	cond_init(&fs->stage.cv);
}

int fs_stage_fill(struct fs *fs)
{
	fs->stage.is_ahead = calloc(dataset_n_entries(fs->params.dataset) / 32 + 1,
				    sizeof(*fs->stage.is_ahead));
	return fs->stage.is_ahead ? 0 : -ENOMEM;
}

void fs_stage_fini(struct fs *fs)
{
	free((void *)fs->stage.is_ahead);
	cond_fini(&fs->stage.cv);
	mutex_fini(&fs->stage.mu);
}

void fs_stage_close(struct fs *fs)
{
	mutex_lock(&fs->stage.mu);
	fs->stage.is_closed = true;
	mutex_unlock(&fs->stage.mu);
}

void fs_stage_wait(struct fs *fs)
{
	mutex_lock(&fs->stage.mu);
	while (fs->stage.n_running > 0)
		cond_wait(&fs->stage.cv, &fs->stage.mu);
	mutex_unlock(&fs->stage.mu);
}

/* False when it is too late. */
static bool stage_enter(struct fs *fs)
{
	bool is_open;

	mutex_lock(&fs->stage.mu);
	is_open = !fs->stage.is_closed;
	fs->stage.n_running += is_open;
	mutex_unlock(&fs->stage.mu);
	return is_open;
}

static int stage_leave(struct fs *fs, int rc)
{
	mutex_lock(&fs->stage.mu);
	if (--fs->stage.n_running == 0)
		cond_broadcast(&fs->stage.cv);
	mutex_unlock(&fs->stage.mu);
	return rc;
}

static int stage_store(void *ctx, struct stage_file file, uint64_t offset, const void *data,
		       size_t length)
{
	struct fs *fs = ctx;
	struct fuse_bufvec bufv = FUSE_BUFVEC_INIT(length);

	bufv.buf[0].mem = (void *)(uintptr_t)data; /* libfuse only reads it */
	if (!stage_enter(fs))
		return -ENOTCONN;
	return stage_leave(fs, fuse_lowlevel_notify_store(
				       fs->se, fs_ino_renewed(file.entry, file.renewal),
				       (off_t)offset, &bufv, FUSE_BUF_NO_SPLICE));
}

static int stage_inval(void *ctx, struct stage_file file, uint64_t offset, uint64_t length)
{
	struct fs *fs = ctx;

	if (!stage_enter(fs))
		return -ENOTCONN;
	return stage_leave(fs, fuse_lowlevel_notify_inval_inode(
				       fs->se, fs_ino_renewed(file.entry, file.renewal),
				       (off_t)offset, (off_t)length));
}

/* A negative offset: attributes only. */
static int drop_attributes(struct fs *fs, struct entry_id entry)
{
	uint32_t renewal = dataset_renewal(fs->params.dataset, entry);

	return fuse_lowlevel_notify_inval_inode(fs->se, fs_ino_renewed(entry, renewal), -1, 0);
}

static int stage_inval_attr(void *ctx, struct entry_id entry)
{
	struct fs *fs = ctx;

	if (!stage_enter(fs))
		return -ENOTCONN;
	return stage_leave(fs, drop_attributes(fs, entry));
}

static int stage_settle(void *ctx, struct entry_id entry)
{
	struct fs *fs = ctx;
	char path[PATH_MAX];
	int rc = fs_path(fs, entry, path, sizeof(path));

	if (rc < 0)
		return rc;
	if (!stage_enter(fs))
		return -ENOTCONN;
	rc = drop_attributes(fs, entry);
	/* Also when the kernel does not know it yet: the answer to a LOOKUP may be on its way. */
	if (rc == 0 || rc == -ENOENT)
		rc = fs_settle(fs, entry, path);
	return stage_leave(fs, rc);
}

static int stage_drop_name(void *ctx, struct entry_id entry)
{
	struct fs *fs = ctx;
	struct entry_id dir = dataset_parent(fs->params.dataset, entry);
	char name[FS_NAME_MAX + 1]; /* libfuse sends the zero behind it as well */
	const char *bytes;
	size_t len;

	bytes = dataset_name(fs->params.dataset, entry, &len);
	if (len > FS_NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(name, bytes, len);
	name[len] = '\0';
	if (!stage_enter(fs))
		return -ENOTCONN;
	return stage_leave(fs, fuse_lowlevel_notify_inval_entry(fs->se, fs_ino_of(dir), name, len));
}

void fs_stage_caught_up(struct fs *fs, struct entry_id entry)
{
	_Atomic uint32_t *word = &fs->stage.is_ahead[entry.v / 32];
	uint32_t bit = 1u << entry.v % 32;

	/* Read first: nearly always there is nothing to change. */
	if (atomic_load_explicit(word, memory_order_relaxed) & bit &&
	    atomic_fetch_and(word, ~bit) & bit)
		atomic_fetch_sub(&fs->stage.n_ahead, 1);
}

/* False when the kernel knows enough. A few threads at once may exceed the bound by one each. */
static bool go_ahead(struct fs *fs, struct entry_id entry)
{
	uint32_t most = fs->params.lookups_ahead ? fs->params.lookups_ahead : FS_LOOKUPS_AHEAD;
	uint32_t bit = 1u << entry.v % 32;

	if (atomic_load(&fs->inodes_known) >= fs->params.inodes_ahead &&
	    atomic_load(&fs->stage.n_ahead) >= most) {
		metrics_add(fs->params.metrics, METRIC_STAGE_LOOKUPS_REFUSED, 1);
		return false;
	}
	if (!(atomic_fetch_or(&fs->stage.is_ahead[entry.v / 32], bit) & bit))
		atomic_fetch_add(&fs->stage.n_ahead, 1);
	return true;
}

static int stage_lookup(void *ctx, struct entry_id entry)
{
	struct fs *fs = ctx;
	char path[PATH_MAX];
	struct statx stx;
	int rc = fs_path(fs, entry, path, sizeof(path));

	if (rc < 0)
		return rc;
	if (!stage_enter(fs))
		return -ENOTCONN;
	/* Before the lookup: an open right after it must find the mark. */
	if (!go_ahead(fs, entry))
		return stage_leave(fs, -ENOBUFS);
	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &stx) < 0)
		rc = -errno;
	if (rc < 0)
		fs_stage_caught_up(fs, entry);
	return stage_leave(fs, rc);
}

const struct stage_ops *fs_stage_ops(void)
{
	static const struct stage_ops ops = { .store = stage_store,
					      .inval = stage_inval,
					      .inval_attr = stage_inval_attr,
					      .settle = stage_settle,
					      .drop_name = stage_drop_name,
					      .lookup = stage_lookup };

	return &ops;
}
