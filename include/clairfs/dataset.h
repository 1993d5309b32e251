/* SPDX-License-Identifier: Apache-2.0 */
/* The dataset index: every directory and file below the source, with attributes, and the numbering
 * of samples. Made by a parallel scan, kept as a checksummed snapshot (src/dataset/FORMAT.md). The
 * set of names is fixed while mounted; attributes of single files can be updated. */
#ifndef CLAIRFS_DATASET_H
#define CLAIRFS_DATASET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/err.h"
#include "clairfs/base/identity.h"
#include "clairfs/base/ids.h"

/* Hidden names count like others, as they do for the frameworks. Names are compared as Python
 * compares the strings that os.fsdecode makes of them, so also names that are no UTF-8 are in the
 * framework's place. The samples are those the framework finds when it lists the mount: what is
 * left out of the index (see dataset_open) is in neither. */
enum dataset_layout {
	/* imagefolder if at least one directory at the top holds an image (a listed extension, any
	 * depth), every directory at the top that holds files holds an image among them, and at
	 * least half of all files are images; else files. */
	LAYOUT_AUTO,
	/* torchvision: class directories sorted by name; in each sorted(os.walk(...)), that is
	 * directories sorted by whole path, in each the sorted names with extension .jpg .jpeg .png
	 * .ppm .bmp .pgm .tif .tiff .webp in any case. Files at the top are no samples. */
	LAYOUT_IMAGEFOLDER,
	/* every regular file, sorted by path as Python sorts the list of relative paths */
	LAYOUT_FILES,
};
extern const char *const dataset_layout_names[]; /* "auto" "imagefolder" "files", NULL */

enum entry_kind { ENTRY_KIND_FILE, ENTRY_KIND_DIR };

/* Where snapshots are kept (heap) if option snapshot_dir is `told` (NULL: not set); NULL: nowhere. */
char *dataset_snapshot_place(const char *told);

struct dataset_params {
	const char *source; /* directory */
	/* Where the snapshot is kept, NULL = none; created 0700, owner checked. */
	const char *snapshot_dir;
	/* Remove other snapshots there of sources that are gone, and old ones beyond 64 or 2 GiB:
	 * on a thread that nobody waits for. */
	bool tidies_snapshots;
	enum dataset_layout layout;
	unsigned scan_threads; /* 1..64 */
	/* Others than the user of this process see it: symlinks that leave the source are left out,
	 * modes (and groups) are narrowed by access lists and by directories that the mount does
	 * not have, so that nobody may read what the source keeps from them; see dataset_look. It
	 * has a snapshot of its own. */
	bool is_shared;
	/* Progress, from the calling thread at most ten times a second, and once when a scan is
	 * over; NULL = none. */
	void (*progress)(void *ctx, uint64_t entries);
	void *progress_ctx;
	/* Wall time in ns since 1970, for telling fresh timestamps from settled ones; NULL =
	 * CLOCK_REALTIME. */
	struct clock *wall_clock;
};

#define DATASET_WHY 512
struct dataset_stats {      /* how it was opened */
	bool from_snapshot; /* a valid snapshot was found, even if everything has changed since */
	uint64_t dirs_scanned, dirs_reused, stats; /* stats: statx/fstat calls on the source */
	uint64_t seconds_ns;
	/* Left out and counted, the first ones are logged: dangling and looping symlinks, what is
	 * behind more than eight symlinked directories (fewer where they multiply), symlinks that
	 * leave a shared source, sockets, devices, names above 255 and paths above 4095 bytes, files
	 * that cannot be stat'ed.
	 * Directories that cannot be read are counted here too, but they are there, empty. */
	uint64_t skipped;
	/* Why no snapshot is kept although snapshot_dir says where, for a person, in one line; else
	 * empty. */
	char snapshot_why[DATASET_WHY];
};

struct dataset;
/* Scans or loads. A directory whose mtime, ctime or inode differs from the snapshot is scanned
 * again; others cost one stat. So does each symlinked file. A directory that was modified less than
 * 2 s before it was scanned is scanned again the next time in any case. Attributes of other files
 * are as old as the last scan of their directory: whoever reads compares identities. Symlinks are
 * followed: an entry has the kind and attributes of its target; loops and dangling ones are left
 * out. Whatever is wrong with the snapshot is a warning and a scan. Errors: -ENOENT, -ENOTDIR,
 * -EACCES for the source, -EINVAL for parameters, -ENOMEM, -EOVERFLOW. */
int dataset_open(const struct dataset_params *params, struct dataset **ret,
		 struct err *err) MUST_USE;
void dataset_free(struct dataset *ds);
void dataset_get_stats(const struct dataset *ds, struct dataset_stats *ret);

uint32_t dataset_n_samples(const struct dataset *ds);
/* Samples, directories and other files, without the root. */
uint32_t dataset_n_entries(const struct dataset *ds);
/* When it was opened; updates do not change it. */
uint64_t dataset_sample_bytes(const struct dataset *ds);
/* Memory that the index takes. */
uint64_t dataset_memory_bytes(const struct dataset *ds);
enum dataset_layout dataset_layout(const struct dataset *ds); /* never LAYOUT_AUTO */
int dataset_source_fd(const struct dataset *ds); /* O_PATH of the source directory, borrowed */

static inline bool dataset_is_sample(const struct dataset *ds, struct entry_id e)
{
	return e.v < dataset_n_samples(ds);
}
/* ENTRY_ROOT is a directory. */
enum entry_kind dataset_kind(const struct dataset *ds, struct entry_id e);
/* ENTRY_ROOT for top entries. */
struct entry_id dataset_parent(const struct dataset *ds, struct entry_id e);
/* Name within the parent, borrowed, not terminated. */
const char *dataset_name(const struct dataset *ds, struct entry_id e, size_t *ret_len);
/* Path relative to the source into out (terminated), "." for ENTRY_ROOT. -ENAMETOOLONG. */
int dataset_path(const struct dataset *ds, struct entry_id e, char *out, size_t size) MUST_USE;
/* ENTRY_NONE when the directory has no such name. */
struct entry_id dataset_lookup(const struct dataset *ds, struct entry_id dir, const char *name,
			       size_t len);
/* A path relative to the root; ENTRY_NONE when there is none. Empty components and "." are passed
 * over, so "" is ENTRY_ROOT; ".." is no name. Usable as order_resolve_fn through a small wrapper.
 */
struct entry_id dataset_resolve(const struct dataset *ds, const char *path, size_t len);
/* Children of a directory in sorted (bytewise) order: count and i-th child. */
uint32_t dataset_n_children(const struct dataset *ds, struct entry_id dir);
struct entry_id dataset_child(const struct dataset *ds, struct entry_id dir, uint32_t i);

/* How else a job may number the samples: by its own listing of the dataset, or of a directory in it
 * (paths are relative to that one). */
enum dataset_sort {
	DATASET_SORT_INDEX,       /* as the index does; samples below the directory */
	DATASET_SORT_TORCHVISION, /* ImageFolder(directory): LAYOUT_IMAGEFOLDER's rules */
	DATASET_SORT_TIMM,        /* timm's ImageFolder: .png .jpg .jpeg, natural_key(path) */
	DATASET_SORT_PATH,        /* sorted(paths) */
	DATASET_SORT_NATURAL,     /* sorted(paths, key=natural_key) */
	DATASET_SORT_NOCASE,      /* sorted(paths, key=str.lower) */
	DATASET_SORT_WALK,        /* os.walk of the mount as it comes: files, then directories */
};
extern const char *const dataset_sort_names[]; /* "index" "torchvision" ..., NULL */
/* -EINVAL with the nearest name. */
int dataset_sort_parse(const char *name, enum dataset_sort *ret, struct err *err) MUST_USE;
/* The samples in the job's order: *ret_sample (heap, [*ret_n]) maps its numbers to ours; only
 * samples of the index take part, and none that only describe containers of a table
 * (dataset/records.h) beside them (index.json, NAME.idx). Equal keys stand as the index has them
 * (timm: as os.walk of the mount has them). under: path of a directory, NULL: all. O(n log n), any
 * thread. -ENOENT: no such directory, or no sample in it; -EINVAL, -EOVERFLOW, -ENOMEM. */
int dataset_numbering(const struct dataset *ds, enum dataset_sort sort, const char *under,
		      uint32_t **ret_sample, uint32_t *ret_n, struct err *err) MUST_USE;
/* The same with what only describes files. */
int dataset_number_all(const struct dataset *ds, enum dataset_sort sort, const char *under,
		       uint32_t **ret_sample, uint32_t *ret_n, struct err *err) MUST_USE;

/* Attributes, thread-safe (updates may run beside). st_ino is left 0; nlink 1 for files, 2 +
 * subdirectories for directories; atime = mtime; blksize 4096. Write bits are kept as they are in
 * the source. */
void dataset_stat(const struct dataset *ds, struct entry_id e, struct stat *ret);
/* dataset_stat, and the renewal that these attributes belong to. */
uint32_t dataset_stat_renewal(const struct dataset *ds, struct entry_id e, struct stat *ret);
void dataset_identity(const struct dataset *ds, struct entry_id e, struct file_identity *ret);
/* What the store keeps a version `id` of the entry as: its identity with the path relative to the
 * source mixed into the inode number. Two filesystems below one source may have files of one inode
 * number, size and times, and some filesystems make inode numbers up. Everything that puts into,
 * asks or forgets in the store goes through this. -ENAMETOOLONG. */
int dataset_kept_identity(const struct dataset *ds, struct entry_id e,
			  const struct file_identity *id, struct file_identity *ret) MUST_USE;
uint64_t dataset_size(const struct dataset *ds, struct entry_id e);
/* Asks the source what the entry is now, symlinks followed: 0 or a negative errno of fstatat. If it
 * is shared, with the mode and group to be shown; -EXDEV: it leaves the source. Any thread that may
 * block. */
int dataset_look(const struct dataset *ds, struct entry_id e, struct stat *ret) MUST_USE;
bool dataset_is_shared(const struct dataset *ds);
/* Whether its path has a symlink in the source, as of the scan. */
bool dataset_is_linked(const struct dataset *ds, struct entry_id e);
/* Directories are numbered without a gap, from here on; the root is none of them. */
uint32_t dataset_first_dir(const struct dataset *ds);
uint32_t dataset_n_dirs(const struct dataset *ds);
/* Replaces owner, group and permissions, and nothing else (thread-safe). */
void dataset_update_rights(struct dataset *ds, struct entry_id e, const struct stat *st);
/* Replaces the attributes of a file seen to have changed (thread-safe). Its kind stays. */
void dataset_update(struct dataset *ds, struct entry_id e, const struct stat *st);
/* dataset_update of a file that was replaced by another one, which shall not pass for the old one
 * with those that have it open: its renewal is the next number, in one step with the attributes.
 * NULL: they stay. */
void dataset_renew(struct dataset *ds, struct entry_id e, const struct stat *st);
/* How often the entry was renewed since the dataset was opened, modulo 2^16. Any thread. */
uint32_t dataset_renewal(const struct dataset *ds, struct entry_id e);

#endif
