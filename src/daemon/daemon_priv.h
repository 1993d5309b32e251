/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of this module: the wired-up daemon. */
#ifndef CLAIRFS_DAEMON_PRIV_H
#define CLAIRFS_DAEMON_PRIV_H

#include "clairfs/base/thr.h"
#include <jansson.h>

#include "clairfs/cache.h"
#include "clairfs/daemon.h"
#include "clairfs/fs.h"
#include "clairfs/job.h"

/* Everything a mount consists of, in the order it is built; torn down in reverse. */
struct wire {
	const struct mount_opts *opts;
	char *source, *mountpoint; /* absolute */
	uint64_t start_ns;
	struct metrics *metrics;
	struct order_spec *spec; /* of the start */
	struct mutex set_mu;     /* one order is put in force at a time; outside all other locks */
	struct mutex order_mu;
	char *order_text; /* order_mu: the spec in force, or NULL */
	struct dataset *dataset;
	struct order *order;
	struct io *source_io;
	const char *source_io_why;
	struct tier *source_tier;
	struct arena *arena;
	struct store *store;
	uint64_t store_bytes; /* its budget */
	struct job *job;
	struct cache_watch watch;
	struct cache *cache;
	struct fs *fs;
	struct fs_vfile vfiles[5];
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

/* announce.c */
void wire_order_init(struct wire *w);
void wire_order_fini(struct wire *w);
/* Spec to order of this mount's dataset. */
int wire_make_order(struct wire *w, const struct order_spec *spec, struct order **ret,
		    struct err *err) MUST_USE;
/* Puts an order in force (NULL: none any more); w->set_mu is held. */
int wire_replace_order(struct wire *w, const struct order_spec *spec, struct err *err) MUST_USE;
/* Keeps the text of the order in force; NULL: none. */
int wire_set_order_text(struct wire *w, const char *text) MUST_USE;
/* A copy of it, heap, or NULL. Any thread. */
char *wire_get_order_text(struct wire *w);
/* For fs: somebody tells an order. */
int wire_announce(void *wire, uint32_t uid, const char *text, struct buf_writer *answer);
/* The virtual file "order". */
int wire_render_order(void *wire, struct buf_writer *out);

/* job.c */
int wire_make_job(struct wire *w, struct err *err) MUST_USE;
/* What it does, for stats.json. */
json_t *wire_job_json(struct wire *w);

/* Renderers of the virtual files; ctx is a struct wire. */
int stats_render_json(void *ctx, struct buf_writer *out);
int stats_render_metrics(void *ctx, struct buf_writer *out);
int stats_render_config(void *ctx, struct buf_writer *out);

#endif
