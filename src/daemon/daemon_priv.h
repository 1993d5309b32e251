/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of this module: the wired-up daemon. */
#ifndef CLAIRFS_DAEMON_PRIV_H
#define CLAIRFS_DAEMON_PRIV_H

#include <stdatomic.h>

#include "clairfs/base/thr.h"
#include "clairfs/drive.h"
#include "clairfs/daemon.h"
#include "clairfs/fs.h"
#include "clairfs/hint.h"
#include "clairfs/order.h"
#include "clairfs/orders.h"
#include "clairfs/publish.h"
#include "clairfs/publish/hook.h"
#include "clairfs/publish/textfile.h"
#include "clairfs/tier/store.h"
#include "duties.h"
#include "memlimit.h"
#include "mount_store.h"
#include "pressure.h"
#include "read_ahead.h"

#include "clairfs/wait.h"

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
	struct mount_store store;
	struct wait_params wait_params;
	bool are_files_measured, are_records_measured; /* of what GPU wait is accounted for */
	struct wait *wait;
	struct drive_watch watch;
	struct tape *tape; /* NULL: no debug=plan_tape */
	struct drive *drive;
	struct pressure *pressure;
	struct read_ahead read_ahead; /* of the kernel */
	struct hook hook;
	struct report_place report;
	int fuse_fd;     /* of a mount that root makes; 0: none */
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

/* wire_look.c: what the mount shows. Renderers of the virtual files; wire is a struct wire. Any
 * thread; never blocks. */
int wire_render_stats(void *wire, struct buf_writer *out);
int wire_render_metrics(void *wire, struct buf_writer *out);
int wire_render_config(void *wire, struct buf_writer *out);
/* For fs: steps that a training loop tells. */
int wire_steps(void *wire, uint32_t uid, const struct clairfs_steps *steps);
/* Makes sense of the option. */
int wire_check_textfile(struct wire *w, struct err *err) MUST_USE;
/* With the mount. What goes wrong is logged. */
void wire_make_textfile(struct wire *w);
/* Writes the report, if there is to be one; a failure is logged. After fs_unmount, drive_stop. */
void wire_write_report(struct wire *w);

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


#endif
