/* SPDX-License-Identifier: Apache-2.0 */
/* GPU wait: what the mount removed of it. A thread that takes what the cache observes of reads
 * and what processes of the job tell of their steps, and has passes judged by pure statistics
 * (wait/stall.h: what the numbers mean). To the cache it is a probe (cache/probe.h), to the drive
 * another one (drive.h). */
#ifndef CLAIRFS_WAIT_H
#define CLAIRFS_WAIT_H

#include <jansson.h>

#include "clairfs/cache/probe.h"
#include "clairfs/drive.h"
#include "clairfs/order.h"
#include "clairfs/wait/stall.h"

struct clairfs_step_record;
struct dataset;

/* Options, as given; NULL: without a value. */
struct wait_options {
	const char *control_reads; /* "1/N" or "off" */
	const char *switchback;    /* percent or "off" */
	uint64_t ghost_bytes;      /* CONF_AUTO: available_bytes, if the source keeps pages */
	uint64_t available_bytes;  /* of memory, for the page cache of a job */
	uint64_t cpu_pressure;     /* percent of the time */
};
struct wait_params {
	double control_share, switchback_share, crowded_share;
	uint64_t ghost_bytes;
	bool is_ghost_auto; /* the source is asked whether its client keeps pages */
};
/* -EINVAL with a line that names the option. */
int wait_parse(const struct wait_options *options, struct wait_params *ret, struct err *err) MUST_USE;

struct wait;
int wait_new(const struct wait_params *params, uint32_t n_units, struct metrics *metrics,
	     struct wait **ret, struct err *err) MUST_USE;
/* Asks the source, if it is to be asked; before wait_start. ds: borrowed, until wait_stop. */
void wait_ask_source(struct wait *w, const struct dataset *ds);
int wait_start(struct wait *w, struct err *err) MUST_USE;
/* After drive_stop, which tells the last reads: judges what is left and ends the thread. NULL and
 * twice are fine. */
void wait_stop(struct wait *w);
void wait_free(struct wait *w); /* after drive_free, or without a drive */

/* For cache_params and drive_params; they live as long as w. */
const struct probe *wait_probe(const struct wait *w);
const struct drive_probe *wait_drive_probe(const struct wait *w);
/* An order is in force (NULL: none) since that generation of the drive. is_measured: what it numbers is
 * one unit each, mostly, and of a unit is known what reading it takes (else nothing is said of GPU wait).
 * Any thread. */
void wait_set_order(struct wait *w, const struct order_info *info, uint32_t generation,
		    bool is_measured);
/* Orders up to that generation that are not told by wait_set_order are other jobs': their reads
 * have no place. One of them may be told later, when its job's turn has come. Any thread. */
void wait_other_jobs(struct wait *w, uint32_t generation);
/* All of the order was read, or not. Any thread, never blocks. */
void wait_finished(struct wait *w, bool is_finished);
/* Steps that a process of the job told, checked. Any thread, never blocks for long. */
void wait_steps(struct wait *w, const struct clairfs_step_record *steps, size_t n);
/* The thread whose READ was told last, 0: none yet. Any thread. */
uint32_t wait_last_reader(const struct wait *w);

/* The object "gpu_wait" of stats.json. Any thread. */
json_t *wait_json(struct wait *w);
/* The object "replay" of a rank in a report; NULL: there is none. Any thread. */
json_t *wait_replay_json(struct wait *w, uint32_t rank);

/* What was found out about the page cache of the source's client. */
struct wait_pages {
	enum stall_pages pages;
	double warm_share; /* of the samples, in the page cache already; negative: not known */
};
struct wait_view {
	struct wait_params params;
	struct stall_node node;
	uint64_t dropped;
	struct wait_pages pages;
	struct stall_numbers *rank; /* [n_ranks], heap, the caller's; NULL and 0: no memory */
	uint32_t n_ranks;
};
/* A copy of the numbers of a moment ago. Any thread. */
void wait_look(struct wait *w, struct wait_view *ret);
#endif
