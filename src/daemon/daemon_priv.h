/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of this module: the wired-up daemon. */
#ifndef CLAIRFS_DAEMON_PRIV_H
#define CLAIRFS_DAEMON_PRIV_H

#include <stdatomic.h>

#include "clairfs/base/thr.h"
#include <jansson.h>

#include "clairfs/cache.h"
#include "clairfs/daemon.h"
#include "clairfs/fs.h"
#include "clairfs/hint.h"
#include "clairfs/order.h"
#include "clairfs/orders.h"
#include "clairfs/report.h"
#include "clairfs/tier/store.h"
#include "memlimit.h"
#include "pressure.h"
#include "publish.h"

#include "clairfs/wait.h"

#define HOOK_MAX_RANKS 256 /* of one node, of each user that may tell steps */

/* What a rank's training loop has told. */
struct hook_rank {
	uint32_t rank, world;
	uint32_t uid;              /* who told it first */
	uint64_t run;              /* of its process */
	uint64_t n_runs;           /* processes before that one */
	uint64_t last_ns;          /* end of its last step that is not within another */
	struct step_totals totals; /* of all processes */
	struct step_log log;       /* of the last one */
};

struct hook {
	struct clock *clock;
	uint64_t start_ns;
	struct mutex mu;         /* a leaf */
	struct hook_rank *ranks; /* mu, like all below */
	uint32_t n_ranks;
	char job[CLAIRFS_JOB_NAME];
};

/* Everything a mount consists of, in the order it is built; torn down in reverse. */
struct wire {
	const struct mount_opts *opts;
	char *source, *mountpoint; /* absolute */
	uint64_t start_ns;
	struct metrics *metrics;
	struct order_spec *spec; /* of the start */
	struct dataset *dataset;
	struct orders *orders;
	struct memlimit_budget memory; /* ram, stage... as told, or derived */
	struct io *source_io;
	const char *source_io_why;
	struct tier *source_tier;
	struct arena *arena;
	struct store *store;
	uint64_t store_bytes; /* its budget */
	bool is_store_lost;   /* there was to be one, and its drive could not even be opened */
	struct wait_params wait_params;
	struct wait *wait;
	struct cache_watch watch;
	struct tape *tape; /* NULL: no debug=plan_tape */
	struct cache *cache;
	struct pressure *pressure;
	struct hook hook;
	char *report_dir,
		*report_name;      /* absolute; name NULL: to be made up; dir NULL: no report */
	int report_fd;             /* in place of report_dir; 0: none */
	uint64_t store_held_bytes; /* in the store when the mount began */
	int fuse_fd;               /* of a mount that root makes; 0: none */
	bool is_mounted;           /* it was, all of it */
	struct fs *fs;
	struct fs_vfile vfiles[6];
	char publish_id[PUBLISH_ID];
	char *textfile_path; /* of the metrics, NULL: none */
	struct textfile *textfile;
};

/* Checks paths and spec before anything is started. */
int wire_check(struct wire *w, const struct daemon_params *params, struct err *err) MUST_USE;
/* Scans the dataset and makes everything that works without a mount: may take long, leaves nothing
 * behind when it is interrupted. */
int wire_prepare(struct wire *w, const struct daemon_params *params, struct err *err) MUST_USE;
/* The store, if there is to be one; with the dataset. */
int wire_make_store(struct wire *w, struct err *err) MUST_USE;
/* wire_memory.c: the budgets, with dataset and order, before anything is made that has one. */
void wire_budget(struct wire *w);
/* What the mount is meant to need at most. */
uint64_t wire_memory_need(const struct wire *w);
/* What watches how much memory there is; with the cache. */
int wire_make_pressure(struct wire *w, struct err *err) MUST_USE;
json_t *wire_memory_json(struct wire *w);

/* Mounts and starts; afterwards the mount answers. */
int wire_mount(struct wire *w, struct err *err) MUST_USE;
void wire_down(struct wire *w);
/* Says in the log what was mounted. */
void wire_log(const struct wire *w);

/* publish.c: metrics outside of the mount. check: makes sense of the options. */
int wire_check_publish(struct wire *w, struct err *err) MUST_USE;
/* With the mount. What goes wrong is logged. */
void wire_publish(struct wire *w);
/* Before anything else is torn down; also when nothing was ever published. */
void wire_unpublish(struct wire *w);

/* process.c: what the kernel counts of this process. Any thread. */
void process_update_metrics(struct metrics *m);
/* clairfs_mount_info; once, before there are threads. */
int process_describe_mount(struct wire *w, struct err *err) MUST_USE;

/* orders.c: the order of the start; how others are looked for; who accounts for them. */
int wire_make_orders(struct wire *w, struct err *err) MUST_USE;
int wire_make_search(struct wire *w, struct err *err) MUST_USE;
void wire_watch_orders(struct wire *w);
/* For fs: somebody tells an order. */
int wire_announce(void *wire, const struct fs_told *told, struct buf_writer *answer);

/* hook.c: steps of training loops */
void hook_init(struct hook *h, struct clock *clock);
void hook_fini(struct hook *h);
/* For fs. */
int wire_steps(void *wire, uint32_t uid, const struct clairfs_steps *steps);
/* What was told, for stats.json; NULL when out of memory. */
json_t *hook_json(struct hook *h);
/* The ranks of a report, with their steps; NULL when out of memory. */
json_t *hook_report_json(struct hook *h);

/* report.c */
int wire_report_check(struct wire *w, struct err *err) MUST_USE;
/* Writes the report, if there is to be one; a failure is logged. After fs_unmount, cache_stop. */
void wire_report_write(struct wire *w);
void wire_report_fini(struct wire *w);

/* What stats.json has; NULL when out of memory. */
json_t *stats_json(struct wire *w);
/* Renderers of the virtual files; ctx is a struct wire. */
int stats_render_json(void *ctx, struct buf_writer *out);
int stats_render_metrics(void *ctx, struct buf_writer *out);
/* The same with a label in every row; any thread. */
int stats_render_labelled(void *ctx, const char *label, struct buf_writer *out);
int stats_render_config(void *ctx, struct buf_writer *out);

#endif
