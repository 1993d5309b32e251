/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warm thread makes inodes known to the kernel before anybody needs them, by listing the
 * directories of the samples through the mount: each READDIRPLUS answers about twenty LOOKUPs at
 * once, pages can only be pushed into inodes that are known, and a reader's open() then finds its
 * path without an upcall.
 *
 * An open directory makes `umount` fail with EBUSY. So a directory is held open for a few hundred
 * entries only, and then nothing is held for nine times as long; the offsets of our listings stay
 * valid. The first few thousand entries are listed without rests, before fs_start returns: a small
 * dataset is then known as a whole.
 *
 * It uses the mount only, never the source, so that it always ends with the mount.
 *
 * Threads: fs-warm; fs_warm_quit runs on the thread of fs_unmount.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sys/resource.h>

#include "fs_priv.h"

#define FIRST_ROUND 4096 /* entries */
#define HOLD_ENTRIES 256
#define MIN_REST_NS (2 * NS_PER_MS)
#define RESTS_PER_OPEN 9
#define NICE 10

void fs_warm_init(struct fs *fs)
{
	mutex_init(&fs->warm.mu);
	cond_init(&fs->warm.cv);
}

void fs_warm_fini(struct fs *fs)
{
	cond_fini(&fs->warm.cv);
	mutex_fini(&fs->warm.mu);
}

void fs_warm_quit(struct fs *fs)
{
	mutex_lock(&fs->warm.mu);
	fs->warm.is_quitting = true;
	cond_broadcast(&fs->warm.cv);
	mutex_unlock(&fs->warm.mu);
}

/* False when the thread shall end. */
static bool warm_rest(struct fs *fs, uint64_t ns)
{
	struct fs_warm *warm = &fs->warm;
	bool is_quitting;

	mutex_lock(&warm->mu);
	if (!warm->is_quitting && ns > 0)
		cond_wait_for(&warm->cv, &warm->mu, ns);
	is_quitting = warm->is_quitting;
	mutex_unlock(&warm->mu);
	return !is_quitting;
}

static void warm_begun(struct fs *fs)
{
	mutex_lock(&fs->mu);
	fs->is_warm_begun = true;
	cond_broadcast(&fs->cv);
	mutex_unlock(&fs->mu);
}

/* Lists a part of a directory, from *at on; false at its end, or when it cannot be listed. */
static bool warm_list_part(struct fs *fs, const char *path, long *at)
{
	DIR *dir = opendir(path);
	uint32_t n = 0;
	bool is_more = true;

	if (!dir)
		return false;
	if (*at)
		seekdir(dir, *at);
	while (n < HOLD_ENTRIES && is_more) {
		is_more = readdir(dir) != NULL;
		n += is_more;
	}
	*at = telldir(dir);
	closedir(dir);
	fs->warm.known += n;
	return is_more;
}

/* False when the thread shall end or enough is known. */
static bool warm_list_dir(struct fs *fs, struct entry_id entry)
{
	char path[PATH_MAX];
	bool is_more = true;
	long at = 0;

	if (fs_path(fs, entry, path, sizeof(path)) < 0)
		return true;
	while (is_more) {
		uint64_t from_ns = clock_now(fs->params.clock), open_ns;

		is_more = warm_list_part(fs, path, &at);
		if (fs->warm.known >= fs->params.inodes_ahead)
			return false;
		open_ns = clock_now(fs->params.clock) - from_ns;
		if (fs->warm.known < FIRST_ROUND) {
			if (!warm_rest(fs, 0))
				return false;
			continue;
		}
		warm_begun(fs);
		if (!warm_rest(fs, MAX(RESTS_PER_OPEN * open_ns, MIN_REST_NS)))
			return false;
	}
	return true;
}

/* Every directory that holds samples, in the order of the samples. */
static void list_all(struct fs *fs)
{
	const struct dataset *ds = fs->params.dataset;
	struct entry_id dir, last = ENTRY_NONE;
	struct bitmap seen;

	if (bitmap_init(&seen, (uint64_t)dataset_n_entries(ds) + 1) < 0)
		return; /* it is only a gain not made */
	for (uint32_t s = 0; s < dataset_n_samples(ds); s++) {
		dir = dataset_parent(ds, (struct entry_id){ s });
		if (entry_eq(dir, last))
			continue;
		last = dir;
		if (!bitmap_set(&seen, entry_eq(dir, ENTRY_ROOT) ? dataset_n_entries(ds) : dir.v))
			continue;
		if (!fs_is_shadowed(fs, dir) && !warm_list_dir(fs, dir))
			break;
	}
	bitmap_fini(&seen);
}

void *fs_warm_main(void *arg)
{
	struct fs *fs = arg;

	setpriority(PRIO_PROCESS, 0, NICE); /* of this thread only, on Linux */
	if (fs->params.inodes_ahead > 0)
		list_all(fs);
	warm_begun(fs);
	return NULL;
}
