/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of this module: the wired-up daemon. */
#ifndef CLAIRFS_DAEMON_PRIV_H
#define CLAIRFS_DAEMON_PRIV_H

#include "clairfs/cache.h"
#include "clairfs/daemon.h"
#include "clairfs/fs.h"
#include "clairfs/tier/store.h"

/* Everything a mount consists of, in the order it is built; torn down in reverse. */
struct wire {
	const struct mount_opts *opts;
	char *source, *mountpoint; /* absolute */
	uint64_t start_ns;
	struct metrics *metrics;
	struct order_spec *spec;
	struct dataset *dataset;
	struct order *order;
	struct io *source_io;
	const char *source_io_why;
	struct tier *source_tier;
	struct arena *arena;
	struct store *store;
	uint64_t store_bytes; /* its budget */
	struct cache *cache;
	struct fs *fs;
	struct fs_vfile vfiles[4];
};

/* Checks paths and spec before anything is started. */
int wire_check(struct wire *w, const struct daemon_params *params, struct err *err) MUST_USE;
/* Scans the dataset and makes everything that works without a mount: may take long, leaves nothing
 * behind when it is interrupted. */
int wire_prepare(struct wire *w, const struct daemon_params *params, struct err *err) MUST_USE;
/* Mounts and starts; afterwards the mount answers. */
int wire_mount(struct wire *w, struct err *err) MUST_USE;
void wire_down(struct wire *w);
/* Says in the log what was mounted. */
void wire_log(const struct wire *w);

/* Renderers of the virtual files; ctx is a struct wire. */
int stats_render_json(void *ctx, struct buf_writer *out);
int stats_render_metrics(void *ctx, struct buf_writer *out);
int stats_render_config(void *ctx, struct buf_writer *out);

#endif
