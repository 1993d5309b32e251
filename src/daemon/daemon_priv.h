/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of this module: the wired-up daemon. */
#ifndef CLAIRFS_DAEMON_PRIV_H
#define CLAIRFS_DAEMON_PRIV_H

#include <stdatomic.h>

#include "clairfs/base/thr.h"
#include "clairfs/cache.h"
#include "clairfs/daemon.h"
#include "clairfs/fs.h"
#include "clairfs/hint.h"
#include "clairfs/job.h"
#include "clairfs/order.h"
#include "clairfs/publish.h"
#include "clairfs/publish/hook.h"
#include "clairfs/publish/textfile.h"
#include "clairfs/tier/store.h"
#include "clairfs/base/crowd.h"
#include "duties.h"
#include "memlimit.h"
#include "mount_store.h"
#include "pressure.h"
#include "told.h"
#include "untold.h"

#include "clairfs/wait.h"

/* A list of samples in the making: numbers, or the bytes of a list file. A lane's thread's. */
struct told_list {
	uint8_t *data;
	uint64_t size, capacity; /* bytes */
	uint64_t token;
	unsigned width; /* of bytes: 4 or 8 when they are raw numbers, 0: a text */
	bool is_begun, is_bytes;
};

/* What has been told through the mount, for status; order_mu. */
struct told_last {
	uint64_t n, n_refused;
	char *answer; /* to the last one, or NULL */
	bool is_refused;
};

/* Everything a mount consists of, in the order it is built; torn down in reverse. */
struct wire {
	const struct mount_opts *opts;
	char *source, *mountpoint; /* absolute */
	uint64_t start_ns;
	struct metrics *metrics;
	struct order_spec *spec; /* of the start */
	struct mutex order_mu;
	struct mutex change_mu;    /* one change of the order at a time; outside of order_mu */
	struct order_maker *maker; /* from wire_mount on */
	struct told_last told;     /* order_mu */
	struct told_list list[FS_LANES];
	struct told_jobs jobs; /* whose orders are in force */
	struct dataset *dataset;
	struct order *order;
	struct memlimit_budget memory; /* ram, stage... as told, or derived */
	struct io *source_io;
	const char *source_io_why;
	struct tier *source_tier;
	struct arena *arena;
	struct mount_store store;
	struct untold *untold; /* looks for orders that nobody told */
	struct wait_params wait_params;
	struct wait *wait;
	struct cache_watch watch;
	struct tape *tape; /* NULL: no debug=plan_tape */
	struct cache *cache;
	struct pressure *pressure;
	struct renumber *renumber;
	_Atomic uint64_t numberings_tried; /* renumber.c: ways to number the files */
	struct hook hook;
	struct report_place report;
	int fuse_fd;     /* of a mount that is there already; 0: none */
	bool is_mounted; /* it was, all of it */
	struct fs *fs;
	struct fs_vfile vfiles[6];
	char word[MOUNT_WORD]; /* the mountpoint as one */
	char *textfile_path; /* of the metrics, NULL: none */
	struct textfile *textfile;
	struct duties *duties;
};

/* Checks paths and spec before anything is started. */
int wire_check(struct wire *w, const struct daemon_params *params, struct err *err) MUST_USE;
/* Scans the dataset and makes everything that works without a mount: may take long, leaves nothing
 * behind when it is interrupted. */
int wire_prepare(struct wire *w, const struct daemon_params *params, struct err *err) MUST_USE;
/* budget.c: with the dataset, before anything is made that has a budget. Warns of what is odd. */
void budget_derive(const struct mount_opts *opts, const struct dataset *ds,
		   struct memlimit_budget *ret);

/* Mounts and starts; afterwards the mount answers. */
int wire_mount(struct wire *w, struct err *err) MUST_USE;
void wire_down(struct wire *w);
/* Says in the log what was mounted. */
void wire_log(const struct wire *w);

/* wire_look.c: what the mount shows. Any thread; never blocks. published_fini. */
void wire_look(struct wire *w, struct published *ret);
/* Renderers of the virtual files; wire is a struct wire. */
int wire_render_stats(void *wire, struct buf_writer *out);
int wire_render_metrics(void *wire, struct buf_writer *out);
/* The same with a label in every row; any thread. */
int wire_render_labelled(void *wire, const char *label, struct buf_writer *out);
int wire_render_config(void *wire, struct buf_writer *out);
/* For fs: steps that a training loop tells. */
int wire_steps(void *wire, uint32_t uid, const struct clairfs_steps *steps);
/* Makes sense of the option. */
int wire_check_textfile(struct wire *w, struct err *err) MUST_USE;
/* With the mount. What goes wrong is logged. */
void wire_make_textfile(struct wire *w);
/* Writes the report, if there is to be one; a failure is logged. After fs_unmount, cache_stop. */
void wire_write_report(struct wire *w);

/* process.c: what the kernel counts of this process. Any thread. */
void process_update_metrics(struct metrics *m);
/* clairfs_mount_info; once, before there are threads. */
int process_describe_mount(struct wire *w, struct err *err) MUST_USE;

/* announce.c */
void wire_order_init(struct wire *w);
void wire_order_fini(struct wire *w);
/* Spec to order of this mount's dataset. It may read a file: never under a lock. */
int wire_make_order(struct wire *w, const struct order_spec *spec, struct order **ret,
		    struct err *err) MUST_USE;
/* What is odd about an order, for the log: once, when it is put in force. */
void wire_log_note(const struct order_spec *spec, const struct order *order);
/* A copy of the spec of the order in force (of the first job), heap, or NULL. Any thread. */
char *wire_get_order_text(struct wire *w);
/* Another order in place of the one told as `before`; -EAGAIN without a message when that is not in
 * force any more. */
int wire_change_order(struct wire *w, const char *before, const char *text,
		      struct err *err) MUST_USE;
/* For fs: somebody tells an order. */
int wire_announce(void *wire, const struct fs_told *told, struct buf_writer *answer);
/* The virtual files "control" and "answer". Any thread. */
int wire_render_order(void *wire, struct buf_writer *out);
int wire_render_answer(void *wire, struct buf_writer *out);
/* A copy: the answer is heap, or NULL. Any thread. */
void wire_get_told(struct wire *w, struct told_last *ret);

/* order_make.c: orders, when nobody may wait for ever for the file that one is read from. */
struct order_maker;
/* dirfd and what params refer to must hold until order_maker_free. */
int order_maker_new(int source_fd, const char *source, const char *mountpoint,
		    struct order_maker **ret, struct err *err) MUST_USE;
/* For whom an order is made. */
struct order_ask {
	unsigned lane;     /* below ORDER_LANES; each has a few threads that may be left behind */
	bool is_own_words; /* the mounting user's: any file; else those beneath the source */
	const _Atomic bool *is_gone; /* NULL: who asks waits to the end */
};
#define ORDER_LANE_OWN FS_LANES /* found, or numbered anew */
#define ORDER_LANES (FS_LANES + 1)
/* Like order_new, on a thread of its own. -ETIMEDOUT, -EBUSY: the files do not answer; -ECANCELED:
 * order_maker_quit was called; -EINTR: who asked is gone. Any thread. */
int order_make(struct order_maker *maker, const struct order_spec *spec,
	       const struct order_params *params, const struct order_ask *ask, struct order **ret,
	       struct err *err) MUST_USE;
/* Whoever waits in order_make returns, and all who come. NULL is fine. */
void order_maker_quit(struct order_maker *maker);
/* Waits a moment for the threads. False: one waits for its file for good, and what params refer to
 * must not be freed. */
bool order_maker_free(struct order_maker *maker) MUST_USE;

/* told_list.c */
void told_list_fini(struct told_list *list);
/* Puts what was told into params. */
void told_list_params(const struct told_list *list, struct order_params *params);
/* Takes a part and answers with its token. *ret: the order's spec after the last one, else NULL.
 * After an error the list is gone, but not after -ESTALE: it is somebody else's. */
int told_list_add(struct told_list *list, struct clairfs_list *part, uint32_t n_samples,
		  struct order_spec **ret, struct err *err) MUST_USE;

/* renumber.c: other numbers of the files, while the order is lost. stop: also when it was never
 * started. */
int renumber_start(struct wire *w, struct err *err) MUST_USE;
void renumber_stop(struct wire *w);

/* job.c */
/* Whether a spec has files in their order, so that the first of them look like all. */
bool job_is_unshuffled(const char *text);
int wire_make_job(struct wire *w, struct err *err) MUST_USE;

struct job_parts;
/* parts.c: the numberings that a job may use, for struct job_params. The dataset is borrowed. */
/* memory: for numberings that are kept; one always is. */
int job_parts_new(const struct dataset *ds, uint64_t memory, struct job_parts **ret,
		  struct err *err) MUST_USE;
/* How many were made so far. */
uint64_t job_parts_made(const struct job_parts *parts);
void job_parts_free(struct job_parts *parts);
const struct job_numbers *job_parts_numbers(const struct job_parts *parts);

#endif
