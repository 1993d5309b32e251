/* SPDX-License-Identifier: Apache-2.0 */
/* The dataset index: every directory and file below the source, with attributes, and the numbering of samples.
 * Made by a parallel scan, kept as a checksummed snapshot (src/dataset/FORMAT.md). The set of names is fixed while
 * mounted; attributes of single files can be updated. */
#ifndef CLAIRFS_DATASET_H
#define CLAIRFS_DATASET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "clairfs/base/err.h"
#include "clairfs/base/identity.h"
#include "clairfs/base/ids.h"

enum dataset_layout {
	LAYOUT_AUTO,        /* imagefolder when it fits (every top entry that is a directory holds an image), else files */
	LAYOUT_IMAGEFOLDER, /* torchvision: sorted class directories, then sorted os.walk; image extensions only */
	LAYOUT_FILES,       /* every regular file, sorted by path as Python sorts the list of relative paths */
};
extern const char *const dataset_layout_names[]; /* "auto" "imagefolder" "files", NULL */

enum entry_kind { ENTRY_KIND_FILE, ENTRY_KIND_DIR };

struct dataset_params {
	const char *source;       /* directory */
	const char *snapshot_dir; /* where the snapshot is kept, NULL = none; created 0700, owner checked */
	enum dataset_layout layout;
	unsigned scan_threads;    /* 1..64 */
	/* Progress, from the calling thread at most ten times a second; NULL = none. */
	void (*progress)(void *ctx, uint64_t entries);
	void *progress_ctx;
};

struct dataset_stats { /* how it was opened */
	bool from_snapshot;
	uint64_t dirs_scanned, dirs_reused, stats; /* stats: statx/fstat calls on the source */
	uint64_t seconds_ns;
	uint64_t skipped; /* unreadable directories, dangling or looping symlinks, sockets, devices (first ones are logged) */
};

struct dataset;
/* Scans or loads. A directory whose mtime or ctime differs from the snapshot is scanned again; others cost one stat.
 * Symlinks are followed: an entry has the kind and attributes of its target; loops and dangling ones are left out. */
int dataset_open(const struct dataset_params *params, struct dataset **ret, struct err *err) MUST_USE;
void dataset_free(struct dataset *ds);
void dataset_get_stats(const struct dataset *ds, struct dataset_stats *ret);

uint32_t dataset_n_samples(const struct dataset *ds);
uint32_t dataset_n_entries(const struct dataset *ds); /* samples, directories and other files, without the root */
uint64_t dataset_sample_bytes(const struct dataset *ds);
enum dataset_layout dataset_layout(const struct dataset *ds); /* never LAYOUT_AUTO */
int dataset_source_fd(const struct dataset *ds); /* O_PATH of the source directory, borrowed */

static inline bool dataset_is_sample(const struct dataset *ds, struct entry_id e)
{
	return e.v < dataset_n_samples(ds);
}
enum entry_kind dataset_kind(const struct dataset *ds, struct entry_id e); /* ENTRY_ROOT is a directory */
struct entry_id dataset_parent(const struct dataset *ds, struct entry_id e); /* ENTRY_ROOT for top entries */
/* Name within the parent, borrowed, not terminated. */
const char *dataset_name(const struct dataset *ds, struct entry_id e, size_t *ret_len);
/* Path relative to the source into out (terminated). -ENAMETOOLONG. */
int dataset_path(const struct dataset *ds, struct entry_id e, char *out, size_t size) MUST_USE;
/* ENTRY_NONE when the directory has no such name. */
struct entry_id dataset_lookup(const struct dataset *ds, struct entry_id dir, const char *name, size_t len);
/* A path relative to the root; ENTRY_NONE when there is none. Usable as order_resolve_fn through a small wrapper. */
struct entry_id dataset_resolve(const struct dataset *ds, const char *path, size_t len);
/* Children of a directory in sorted (bytewise) order: count and i-th child. */
uint32_t dataset_n_children(const struct dataset *ds, struct entry_id dir);
struct entry_id dataset_child(const struct dataset *ds, struct entry_id dir, uint32_t i);

/* Attributes, thread-safe (updates may run beside). st_ino is left 0; nlink 1 for files, 2 + subdirectories for
 * directories; blksize 4096. Write bits are kept as they are in the source. */
void dataset_stat(const struct dataset *ds, struct entry_id e, struct stat *ret);
void dataset_identity(const struct dataset *ds, struct entry_id e, struct file_identity *ret);
uint64_t dataset_size(const struct dataset *ds, struct entry_id e);
/* Replaces the attributes of a file seen to have changed (thread-safe). */
void dataset_update(struct dataset *ds, struct entry_id e, const struct stat *st);

#endif
