/* SPDX-License-Identifier: Apache-2.0 */
/* The scan of a source, inside of the dataset module: a tree of directories with their names and
 * attributes, made by several threads, which build.c turns into a table once. */
#ifndef CLAIRFS_DATASET_SCAN_PRIV_H
#define CLAIRFS_DATASET_SCAN_PRIV_H

#include <dirent.h>
#include <stdatomic.h>

#include "clairfs/base/clock.h"
#include "dataset_priv.h"

/* A directory that changed less than this before it was scanned may change again without a new
 * timestamp. */
#define DATASET_RACY_NS (2 * (int64_t)NS_PER_S)

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
	bool is_unstable; /* skipped, but may come back without a change of the directory */
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
	uint32_t old_dir;   /* slot of the same directory in the snapshot, UINT32_MAX = none */
	DIR *stream;        /* open while its names get their stat */
	uint32_t next_rec;  /* mu of the scan: first record nobody has taken */
	uint32_t recs_left; /* mu of the scan: records not done */
	struct slot_attr attr;
	uint64_t dev;
	uint32_t skipped;
	uint32_t ordinal; /* in pre-order, the root is 0 */
	uint32_t n_links; /* symlinked directories on its path, itself included */
	bool is_link, is_below_link, is_untrusted;
	bool is_dropped; /* vanished or a loop: the parent leaves it out */
};

struct recheck;
struct scan {
	int source_fd;
	const struct table *old;       /* snapshot or NULL */
	const struct recheck *recheck; /* which directories of it changed */
	struct clock *wall_clock;
	bool is_shared; /* as in dataset_params */
	struct mutex mu;
	struct cond cv;
	struct scan_node *all, *dirs, *batches; /* mu */
	uint64_t n_pending;                     /* mu: nodes that are not finished */
	int error;                              /* mu: first fatal one */
	struct scan_node *root;
	unsigned links_max; /* see scan_links.c */
	atomic_uint_fast64_t n_linked;
	atomic_uint_fast64_t n_found, n_stats, n_logged, n_scanned, n_reused;
};

#define SCAN_BATCH 256u
#define STATX_WANTED                                                                               \
	(STATX_TYPE | STATX_MODE | STATX_UID | STATX_GID | STATX_MTIME | STATX_CTIME | STATX_INO | \
	 STATX_SIZE)

/* Scans everything below s->source_fd with `threads` threads; the tree hangs at s->root until
 * scan_fini. */
struct scan_options {
	unsigned threads;
	void (*tick)(void *ctx); /* every 100 ms, from the calling thread */
	void *tick_ctx;
};
void scan_init(struct scan *s, int source_fd, struct clock *wall_clock); /* links_max: deep */
void scan_fini(struct scan *s);
int scan_run(struct scan *s, const struct scan_options *options) MUST_USE;
/* A new node below parent for the name at name_off; NULL when out of memory. Not yet queued. */
struct scan_node *scan_node_new(struct scan *s, struct scan_node *parent, uint32_t name_off,
				uint32_t name_len);
void scan_queue_dir(struct scan *s, struct scan_node *node);
/* Says in the log what was left out and why; only the first few times. */
void scan_log_skip(struct scan *s, const struct scan_node *dir, const char *name, size_t len,
		   const char *why);
void scan_node_path(const struct scan_node *node, char out[DATASET_PATH_MAX + 1]);
/* Reads the names of a directory, or takes them from the snapshot. 0 or a fatal error. */
int scan_dir_read(struct scan *s, struct scan_node *node) MUST_USE;
/* Gives the records from..to their attributes. */
int scan_dir_stat(struct scan *s, struct scan_node *node, uint32_t from, uint32_t to) MUST_USE;
/* After the last record: counts, sorts, closes. */
void scan_dir_finish(struct scan_node *node);
/* Return the device, which is no attribute. */
uint64_t scan_attr_of_statx(const struct statx *sx, struct slot_attr *ret);
uint64_t scan_attr_of_stat(const struct stat *st, struct slot_attr *ret);
#define SCAN_LEAVES "leaves the source: not followed with allow_other"

/* scan_links.c: how deep symlinked directories are followed. scan_run fails with -EMLINK when that
 * leads to too many entries: then another scan follows fewer of them. */
#define SCAN_LINKS_DEEP 8u
bool scan_links_may_follow(const struct scan *s, const struct scan_node *dir,
			   const struct scan_rec *rec);
/* The names of a directory are known: 0 or -EMLINK. */
int scan_links_count(struct scan *s, const struct scan_node *dir) MUST_USE;
unsigned scan_links_fewer(unsigned links_max);

/* crew.c: fn(arg) in `threads` threads, or in the caller's when none can be started; tick every 100
 * ms meanwhile. */
void crew_run(const struct scan_options *options, const char *name, void (*fn)(void *arg),
	      void *arg);

/* recheck.c */
struct recheck {
	struct table *t;
	int source_fd;
	bool is_shared;
	uint32_t *links; /* entry numbers of symlinked files */
	uint32_t n_links;
	atomic_uchar *is_changed; /* per directory number */
	uint64_t *dev;            /* per directory number */
	atomic_uint_fast64_t next, n_stats, n_changed;
	atomic_bool has_new_attr;
};
int recheck_init(struct recheck *r, struct table *t, int source_fd, bool is_shared) MUST_USE;
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
int layout_walk(struct scan_node *root, enum dataset_layout layout,
		void (*emit)(void *ctx, struct scan_node *dir, struct scan_rec *rec),
		void *ctx) MUST_USE;

/* build.c: the table of what a scan found. */
int build_table(const struct scan *s, enum dataset_layout want, struct snapshot *ret,
		struct err *err) MUST_USE;

#endif
