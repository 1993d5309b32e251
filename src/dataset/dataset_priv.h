/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the dataset module. Two representations exist:
 *   struct table      the finished index: arrays in one allocation, byte for byte what the snapshot holds;
 *   struct scan_node  a directory while it is being scanned; a tree of them is turned into a table once.
 * A table index ("slot" below) is an entry number; the root, which has no entry number, is slot n_entries. */
#ifndef CLAIRFS_DATASET_PRIV_H
#define CLAIRFS_DATASET_PRIV_H

#include <dirent.h>
#include <stdatomic.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/thr.h"
#include "clairfs/dataset.h"

#define DATASET_NAME_MAX 255u            /* bytes of one name */
#define DATASET_PATH_MAX 4095u           /* bytes of a path relative to the source, without its terminator */
#define DATASET_ENTRIES_MAX 0xfffffff0u  /* entry numbers above are ENTRY_ROOT and ENTRY_NONE */
#define DATASET_NAMES_MAX 0xfffffff0ull  /* bytes of all names: their offsets are 32 bits */
#define DATASET_SNAPSHOT_MAX (1ull << 40)
/* A directory that changed less than this before it was scanned may change again without a new timestamp. */
#define DATASET_RACY_NS (2 * (int64_t)NS_PER_S)

enum slot_flag {
	SLOT_IS_LINK = 1,   /* reached through a symlink: the target gets a stat of its own at each open */
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
	void *memory;  /* what to free; holds the sections, perhaps with a snapshot header in front */
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
	uint32_t *child;    /* n_entries: entry numbers, grouped by directory, sorted bytewise by name */
	uint32_t *dir_first;   /* n_dirs + 2: where a directory's children start; the root comes last */
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
/* True when every index is in range, names are names, the tree is a tree: nothing below need check again. */
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
void table_get_attr(const struct table *t, uint32_t slot, struct slot_attr *ret);
void table_set_attr(struct table *t, uint32_t slot, const struct slot_attr *attr);
/* UINT32_MAX when the directory has no such name. */
uint32_t table_lookup(const struct table *t, uint32_t dir, const char *name, size_t len);
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
/* Order of the strings that os.fsdecode makes of them: by code point, a byte that is no UTF-8 as U+DC00 + byte. */
int py_name_cmp(const struct py_name *a, const struct py_name *b);

/* scan.c, scan_dir.c */
enum rec_kind { REC_PENDING, REC_FILE, REC_DIR, REC_SKIPPED };

struct scan_node;
struct scan_rec {
	union {
		struct slot_attr attr; /* REC_FILE */
		struct scan_node *dir; /* REC_DIR */
	};
	uint32_t name_off; /* in the names of the directory */
	uint32_t id;       /* entry number, once given */
	uint8_t name_len;
	uint8_t kind;
	bool is_link;
	bool is_unstable; /* skipped, but may be there next time although the directory did not change */
};

struct scan_node {
	struct scan_node *parent;
	struct scan_node *next_all;  /* list of all nodes, mu of the scan */
	struct scan_node *next_work; /* stack of work, mu of the scan */
	struct scan_rec *recs;
	char *names;
	uint32_t n_recs, recs_capacity, names_size, names_capacity;
	uint32_t name_off, name_len; /* its own name, in the names of the parent */
	uint32_t path_len;
	uint32_t old_dir; /* slot of the same directory in the snapshot, UINT32_MAX = none */
	DIR *stream;      /* open while its names get their stat */
	uint32_t next_rec, recs_left; /* mu of the scan: first record nobody has taken; records not done */
	struct slot_attr attr;
	uint64_t dev;
	uint32_t skipped;
	uint32_t ordinal; /* in pre-order, the root is 0 */
	bool is_link, is_below_link, is_untrusted;
	bool is_dropped; /* vanished or a loop: the parent leaves it out */
	bool is_reused;
};

struct recheck;
struct scan {
	int source_fd;
	const struct table *old;       /* snapshot or NULL */
	const struct recheck *recheck; /* which directories of it changed */
	struct clock *wall_clock;
	struct mutex mu;
	struct cond cv;
	struct scan_node *all, *dirs, *batches; /* mu */
	uint64_t n_pending;                     /* mu: nodes that are not finished */
	int error;                              /* mu: first fatal one */
	struct scan_node *root;
	atomic_uint_fast64_t n_found, n_stats, n_logged, n_scanned, n_reused;
};

#define SCAN_BATCH 256u
#define STATX_WANTED                                                                               \
	(STATX_TYPE | STATX_MODE | STATX_UID | STATX_GID | STATX_MTIME | STATX_CTIME | STATX_INO | \
		STATX_SIZE)

/* Scans everything below s->source_fd with `threads` threads; the tree hangs at s->root until scan_fini. */
struct scan_options {
	unsigned threads;
	void (*tick)(void *ctx); /* every 100 ms, from the calling thread */
	void *tick_ctx;
};
void scan_init(struct scan *s, int source_fd, struct clock *wall_clock);
void scan_fini(struct scan *s);
int scan_run(struct scan *s, const struct scan_options *options) MUST_USE;
/* A new node below parent for the name at name_off; NULL when out of memory. Not yet queued. */
struct scan_node *scan_node_new(struct scan *s, struct scan_node *parent, uint32_t name_off, uint32_t name_len);
void scan_queue_dir(struct scan *s, struct scan_node *node);
/* Says in the log what was left out and why; only the first few times. */
void scan_log_skip(struct scan *s, const struct scan_node *dir, const char *name, size_t len, const char *why);
void scan_node_path(const struct scan_node *node, char out[DATASET_PATH_MAX + 1]);
/* Reads the names of a directory, or takes them from the snapshot. 0 or a fatal error. */
int scan_dir_read(struct scan *s, struct scan_node *node) MUST_USE;
/* Gives the records from..to their attributes. */
int scan_dir_stat(struct scan *s, struct scan_node *node, uint32_t from, uint32_t to) MUST_USE;
/* After the last record: counts, sorts, closes. */
void scan_dir_finish(struct scan_node *node);
void scan_attr_of_statx(const struct statx *sx, struct slot_attr *ret);

/* crew.c: fn(arg) in `threads` threads, or in the caller's when none can be started; tick every 100 ms meanwhile. */
void crew_run(const struct scan_options *options, const char *name, void (*fn)(void *arg), void *arg);

/* recheck.c */
struct recheck {
	struct table *t;
	int source_fd;
	uint32_t *links; /* entry numbers of symlinked files */
	uint32_t n_links;
	atomic_uchar *is_changed; /* per directory number */
	uint64_t *dev;            /* per directory number */
	atomic_uint_fast64_t next, n_stats, n_changed;
	atomic_bool has_new_attr;
};
int recheck_init(struct recheck *r, struct table *t, int source_fd) MUST_USE;
void recheck_fini(struct recheck *r);
/* One stat per directory and symlinked file of the snapshot. */
void recheck_run(struct recheck *r, const struct scan_options *options);

/* layout.c */
bool layout_is_image(const char *name, size_t len);
struct scan_tree {
	struct scan_node **dirs; /* pre-order, bytewise; [0] is the root; without dropped ones */
	uint32_t n_dirs;         /* with the root */
	uint64_t n_files, n_images_in_classes, names_bytes;
};
/* The rule of LAYOUT_AUTO, as dataset.h states it. -ENOMEM. */
int layout_detect(const struct scan_tree *tree, enum dataset_layout *ret) MUST_USE;
/* Calls emit for each sample in layout order. -ENOMEM. */
int layout_walk(struct scan_node *root, enum dataset_layout layout, void (*emit)(void *ctx, struct scan_node *dir,
	struct scan_rec *rec), void *ctx) MUST_USE;

/* snapshot.c */
struct snapshot_key { /* which source a snapshot is of */
	char path[DATASET_PATH_MAX + 1];
	uint64_t fsid, ino;
};
struct snapshot {
	struct table t;
	enum dataset_layout layout, auto_layout;
};
void snapshot_key_of(const char *source, int fd, uint64_t ino, struct snapshot_key *ret);
/* Opens (and creates) the directory; -1 after a warning when it cannot be used. */
int snapshot_dir_open(const char *path);
/* 0 with *ret filled, or a negative errno: -ENOENT none yet, -EBADMSG damaged or of something else. */
int snapshot_load(int dir_fd, const struct snapshot_key *key, struct snapshot *ret) MUST_USE;
int snapshot_save(int dir_fd, const struct snapshot_key *key, const struct snapshot *snap) MUST_USE;
/* Takes `bytes` (from malloc) in every case. key NULL = of any source. */
int snapshot_parse(void *take_bytes, size_t size, const struct snapshot_key *key, struct snapshot *ret) MUST_USE;

/* build.c: the table of what a scan found. */
int build_table(const struct scan *s, enum dataset_layout want, struct snapshot *ret, struct err *err) MUST_USE;

/* dataset.c */
#define DATASET_SHARDS 64u
struct dataset_shard {
	struct mutex mu; /* attributes of entries with number % DATASET_SHARDS */
} CACHE_ALIGNED;
struct dataset {
	struct table t;
	enum dataset_layout layout;
	uint64_t sample_bytes;
	uint32_t *n_subdirs; /* per directory number */
	struct dataset_shard *shards;
	int source_fd;
	struct dataset_stats stats;
};
/* Takes the contents of snap and source_fd when it succeeds. -ENOMEM. */
int dataset_of_snapshot(struct snapshot *snap, int source_fd, struct dataset **ret) MUST_USE;

static inline uint32_t dataset_slot(const struct dataset *ds, struct entry_id e)
{
	return entry_eq(e, ENTRY_ROOT) ? ds->t.n_entries : e.v;
}
static inline struct entry_id dataset_entry_of(const struct dataset *ds, uint32_t slot)
{
	return slot == ds->t.n_entries ? ENTRY_ROOT : (struct entry_id){ slot };
}

#endif
