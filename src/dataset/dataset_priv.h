/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the dataset module: the finished index (struct table: arrays in one allocation, byte
 * for byte what the snapshot holds), the snapshot and the open dataset. While a source is being
 * scanned it is a tree of struct scan_node instead: scan_priv.h. A table index ("slot" below) is an
 * entry number; the root, which has no entry number, is slot n_entries. */
#ifndef CLAIRFS_DATASET_PRIV_H
#define CLAIRFS_DATASET_PRIV_H

#include <stdatomic.h>

#include "clairfs/base/thr.h"
#include "clairfs/base/units.h"
#include "clairfs/dataset.h"
#include "records_priv.h"

#define DATASET_NAME_MAX 255u /* bytes of one name */
#define DATASET_PATH_MAX                                                                           \
	4095u /* bytes of a path relative to the source, without its terminator                    \
	       */
#define DATASET_ENTRIES_MAX 0xfffffff0u /* entry numbers above are ENTRY_ROOT and ENTRY_NONE */
#define DATASET_NAMES_MAX 0xfffffff0ull /* bytes of all names: their offsets are 32 bits */
#define DATASET_SNAPSHOT_MAX (1ull << 40)

enum slot_flag {
	SLOT_IS_LINK =
		1, /* reached through a symlink: the target gets a stat of its own at each open */
	SLOT_UNTRUSTED = 2, /* directory that has to be scanned again at the next open */
	SLOT_FLAGS_ALL = 3,
};

struct slot_attr {
	uint64_t size, ino;
	int64_t mtime_ns, ctime_ns;
	uint32_t uid, gid;
	uint16_t mode;
};

/* table.c */
struct table {
	void *memory;  /* what to free; holds the sections, perhaps with a snapshot header in front
			*/
	uint8_t *blob; /* the sections, 8-aligned */
	uint32_t n_samples, n_dirs, n_others;
	uint32_t n_entries; /* the sum; also the slot of the root */
	uint64_t names_bytes;
	/* n_entries + 1 items each */
	uint64_t *size, *ino;
	int64_t *mtime_ns, *ctime_ns;
	uint32_t *uid, *gid;
	uint32_t *parent;   /* slot; the root is its own */
	uint32_t *name_off; /* n_entries + 2: a name ends where the next one starts */
	uint32_t *
		child; /* n_entries: entry numbers, grouped by directory, sorted bytewise by name */
	uint32_t *
		dir_first; /* n_dirs + 2: where a directory's children start; the root comes last */
	uint32_t *dir_skipped; /* n_dirs + 1: what was left out of it */
	uint16_t *mode;
	uint8_t *flags;
	char *names;
};

/* Bytes of the sections for the counts in t. */
uint64_t table_blob_bytes(const struct table *t);
/* Sets the pointers for the counts in t; blob has table_blob_bytes() bytes. Sets n_entries. */
void table_place(struct table *t, void *blob);
/* Allocates for the counts in t. -ENOMEM. */
int table_alloc(struct table *t) MUST_USE;
void table_fini(struct table *t);
/* True when every index is in range, names are names, the tree is a tree: nothing below need check
 * again. */
bool table_is_valid(const struct table *t);

static inline bool table_is_dir(const struct table *t, uint32_t slot)
{
	return slot == t->n_entries || (slot >= t->n_samples && slot - t->n_samples < t->n_dirs);
}
/* Number of a directory in dir_first and dir_skipped. */
static inline uint32_t table_dir_no(const struct table *t, uint32_t slot)
{
	return slot == t->n_entries ? t->n_dirs : slot - t->n_samples;
}
static inline uint32_t table_dir_slot(const struct table *t, uint32_t dir_no)
{
	return dir_no == t->n_dirs ? t->n_entries : t->n_samples + dir_no;
}
static inline const char *table_name(const struct table *t, uint32_t slot, uint32_t *ret_len)
{
	*ret_len = t->name_off[slot + 1] - t->name_off[slot];
	return t->names + t->name_off[slot];
}
/* May be called while another thread sets them: each is one that was there, but they may be of two
 * versions. */
void table_get_attr(const struct table *t, uint32_t slot, struct slot_attr *ret);
uint64_t table_get_size(const struct table *t, uint32_t slot);
void table_set_attr(struct table *t, uint32_t slot, const struct slot_attr *attr);
/* UINT32_MAX when the directory has no such name. */
uint32_t table_lookup(const struct table *t, uint32_t dir, const char *name, size_t len);
/* A path relative to the root, as dataset_resolve; UINT32_MAX when there is none. */
uint32_t table_resolve(const struct table *t, const char *path, size_t len);
uint32_t table_resolve_from(const struct table *t, uint32_t dir, const char *path, size_t len);
bool table_has_identity(const struct table *t, uint32_t slot, const struct file_identity *identity);
/* "." for the root. -ENAMETOOLONG. */
int table_path(const struct table *t, uint32_t slot, char *out, size_t size) MUST_USE;
/* memcmp order, the shorter first. */
int name_cmp(const char *a, size_t a_len, const char *b, size_t b_len);

/* pyorder.c: names as Python strings */
struct py_name {
	const char *bytes;
	uint32_t len;
	bool has_slash; /* compared as if a '/' followed */
};
/* Order of the strings that os.fsdecode makes of them: by code point, a byte that is no UTF-8 as
 * U+DC00 + byte. */
int py_name_cmp(const struct py_name *a, const struct py_name *b);
/* The code point at *i, which moves on; *i must be within the name. */
int32_t py_next_code_point(const struct py_name *n, uint32_t *i);

/* snapshot.c */
struct snapshot_key { /* which source a snapshot is of */
	char path[DATASET_PATH_MAX + 1];
	uint64_t fsid, ino;
	bool is_shared; /* it has other modes and leaves out other symlinks */
};
struct snapshot {
	struct table t;
	struct records records; /* of the table's slots */
	enum dataset_layout layout, auto_layout;
};
void snapshot_key_of(const char *source, int fd, uint64_t ino, struct snapshot_key *ret);
/* Opens (and creates) the directory; -1 and why when it cannot be used. */
int snapshot_dir_open(const char *path, char why[DATASET_WHY]);
/* 0 with *ret filled, or a negative errno: -ENOENT none yet, -EBADMSG damaged or of something else.
 */
int snapshot_load(int dir_fd, const struct snapshot_key *key, struct snapshot *ret) MUST_USE;
/* The key in the header of a file of this size; false: it is no snapshot. */
bool snapshot_read_key(int fd, uint64_t size, struct snapshot_key *ret);
/* Written by another version of the program, and of no use to this one. */
bool snapshot_is_of_other_version(int fd);
#define SNAPSHOT_NAME_SIZE (32 + sizeof(".snapshot"))
void snapshot_name(const struct snapshot_key *key, char out[SNAPSHOT_NAME_SIZE]);
int snapshot_save(int dir_fd, const struct snapshot_key *key, const struct snapshot *snap) MUST_USE;
void snapshot_fini(struct snapshot *snap);
/* Takes `bytes` (from malloc) in every case. key NULL = of any source. */
int snapshot_parse(void *take_bytes, size_t size, const struct snapshot_key *key,
		   struct snapshot *ret) MUST_USE;

/* snapshot_tidy.c: removes snapshots of sources that are gone, and the least recently used ones
 * beyond the limits, but never the one in use; returns how many files. A snapshot takes about 100
 * bytes for each file: the bytes are the index of twenty million. */
#define SNAPSHOTS_MAX 64
#define SNAPSHOTS_BYTES_MAX ((uint64_t)2 << 30)
struct snapshot_limits {
	uint32_t files;
	uint64_t bytes;
};
uint32_t snapshot_tidy(int dir_fd, const struct snapshot_key *in_use,
		       const struct snapshot_limits *limits, int64_t now);
/* The same on a thread that nobody waits for, with the limits above. */
void snapshot_tidy_start(int dir_fd, const struct snapshot_key *in_use);

/* dataset.c */
#define DATASET_SHARDS 64u
struct dataset_shard {
	struct mutex mu; /* to change attributes of entries with number % DATASET_SHARDS */
	_Atomic uint32_t turn; /* odd while one of them is being changed */
} CACHE_ALIGNED;
struct dataset {
	struct table t;
	struct records records; /* no blob: samples are whole files */
	enum dataset_layout layout;
	uint64_t sample_bytes;
	struct unit_map units;
	uint32_t *unit_first; /* of units; NULL: each sample is one */
	uint64_t cut_bytes;   /* of samples that are several */
	struct record_units *by_record; /* NULL: records are no units */
	struct later_units *later;      /* NULL: none become units */
	uint32_t *n_subdirs; /* per directory number */
	/* Per entry; changed under the shard's lock. Pages of zeros until something is renewed. */
	_Atomic uint16_t *renewals;
	struct dataset_shard *shards;
	int source_fd;
	bool is_shared;
	struct dataset_stats stats;
};
/* Takes the contents of snap and source_fd when it succeeds. -ENOMEM. */
int dataset_of_snapshot(struct snapshot *snap, int source_fd, struct dataset **ret) MUST_USE;

/* units.c. -ENOMEM */
int units_init(struct dataset *ds) MUST_USE;
void units_fini(struct dataset *ds);

/* units_records.c: where units are records. Those of other files have no place here. */
struct record_units {
	uint64_t *start;       /* [n_units] in the file */
	uint32_t *length;      /* [n_units] */
	uint32_t *first, *past; /* [n_records] of the map */
	uint64_t *in_records;  /* bitmap by sample */
	struct unit_map map;   /* record -> units */
	uint32_t page;
};
void units_records_fini(struct dataset *ds);
uint64_t units_records_bytes(const struct dataset *ds);
/* Of a file in records. */
struct dataset_extent units_records_extent(const struct dataset *ds, struct sample_id file,
					   struct unit_id unit);
struct unit_id units_records_at(const struct dataset *ds, struct entry_id e, uint64_t offset);

/* units_later.c: where they become units while others use them. Of a unit that is one of those, and of
 * a file that has them. */
struct later_units {
	struct units_later shown;
	struct later_file {
		/* Record 0 of the file begins between the two, most likely at `at`. */
		uint64_t low, at, high, stride;
		uint32_t each; /* units of a record */
		_Atomic uint32_t around;
	} file[UNITS_LATER_FILES];
	uint32_t page;
};
void units_later_fini(struct dataset *ds);
struct dataset_extent units_later_extent(const struct dataset *ds, struct unit_id unit);
struct dataset_extent units_later_own(const struct dataset *ds, struct unit_id unit);
uint64_t units_later_bytes(const struct dataset *ds, struct unit_id unit);
/* As units_records_at; and as dataset_unit_before. */
struct unit_id units_later_at(const struct dataset *ds, struct entry_id e, uint64_t offset);
struct unit_id units_later_before(const struct dataset *ds, struct entry_id e, uint64_t offset);

static inline bool units_are_later(const struct dataset *ds, struct entry_id e)
{
	return ds->later && e.v < ds->t.n_samples &&
	       unit_later_of(&ds->units, (struct sample_id){ e.v });
}

static inline uint32_t dataset_slot(const struct dataset *ds, struct entry_id e)
{
	return entry_eq(e, ENTRY_ROOT) ? ds->t.n_entries : e.v;
}
static inline struct entry_id dataset_entry_of(const struct dataset *ds, uint32_t slot)
{
	return slot == ds->t.n_entries ? ENTRY_ROOT : (struct entry_id){ slot };
}

#endif
