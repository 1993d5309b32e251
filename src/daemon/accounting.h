/* SPDX-License-Identifier: Apache-2.0 */
/* Stall accounting in a daemon: a thread that takes reads from the cache and steps from the job's
 * processes, and numbers for status, stats.json and metrics. What the numbers mean:
 * wait/stall.h. */
#ifndef CLAIRFS_DAEMON_ACCOUNTING_H
#define CLAIRFS_DAEMON_ACCOUNTING_H

#include <jansson.h>

#include "clairfs/cache.h"
#include "clairfs/wait/stall.h"
#include "clairfs/order.h"

struct mount_opts;
struct clairfs_step_record;

/* The options control_reads, ghost_bytes and switchback. -EINVAL with a line that names the option.
 */
struct accounting_params {
	double control_share, switchback_share, crowded_share;
	uint64_t ghost_bytes;
	bool is_ghost_auto; /* the source is asked whether its client keeps pages */
};
int accounting_parse(const struct mount_opts *opts, struct accounting_params *ret,
		     struct err *err) MUST_USE;

struct accounting;
int accounting_new(const struct accounting_params *params, uint32_t n_samples,
		   struct metrics *metrics, struct accounting **ret, struct err *err) MUST_USE;
/* Asks the source, if it is to be asked; before accounting_start. ds: borrowed, until accounting_stop.
 */
void accounting_ask_source(struct accounting *a, const struct dataset *ds);
int accounting_start(struct accounting *a, struct err *err) MUST_USE;
/* After cache_stop, which tells the last reads: judges what is left and ends the thread. NULL and
 * twice are fine. */
void accounting_stop(struct accounting *a);
void accounting_free(struct accounting *a);

/* For struct cache_watch; never block. */
void accounting_reads(struct accounting *a, const struct cache_read_note *notes, uint32_t n);
void accounting_settled(struct accounting *a, uint64_t before_ns);
void accounting_finished(struct accounting *a, bool is_finished); /* all of the order was read */
bool accounting_wants_control(struct accounting *a, uint64_t bytes);
void accounting_load(struct accounting *a, const struct cache_load *load);
uint32_t accounting_readers(struct accounting *a); /* any thread */
/* An order is in force (NULL: none) since that generation of the cache. Any thread. */
void accounting_set_order(struct accounting *a, const struct order_info *info, uint32_t generation);
/* Orders up to that generation that are not told by accounting_set_order are other jobs': their
 * reads have no place. One of them may be told later, when its job's turn has come. Any thread. */
void accounting_other_jobs(struct accounting *a, uint32_t generation);
/* Steps that a process of the job told, checked. Any thread, never blocks for long. */
void accounting_steps(struct accounting *a, const struct clairfs_step_record *steps, size_t n);

/* The object "gpu_wait" of stats.json. Any thread. */
json_t *accounting_json(struct accounting *a);

/* ghost.c: the page cache that this machine or the cgroup of this process would leave to a job. */
uint64_t ghost_bytes_auto(void);

#endif
