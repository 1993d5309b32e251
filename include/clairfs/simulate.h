/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs simulate: the simulator (sim.h) on real data sets and filesystems, and what it found as
 * text, JSON and charts. One thread, and sixteen more while a filesystem is measured. */
#ifndef CLAIRFS_SIMULATE_H
#define CLAIRFS_SIMULATE_H

#include "clairfs/dataset.h"
#include "clairfs/sim.h"

#define POLICIES_MAX 16

struct simulate_args {
	struct sim_params params;
	const char *policies[POLICIES_MAX + 1]; /* NULL-terminated */
	uint64_t *size;                         /* of a dataset that was measured, heap */
	bool is_json, is_advice;
	struct dataset *ds; /* the one measured, open until the end */
	struct order_params files;
	const char *dataset, *plot; /* NULL: not asked for */
	double target_stall;        /* --advise */
	uint64_t memory_bytes;      /* 0: of this machine */
	bool has_latency, has_mbps; /* stated */
};

/* --dataset: sizes of its samples and, unless stated, what its filesystem gives. args->ds is the
 * caller's, also after an error. */
int simulate_measure(struct simulate_args *args, struct err *err) MUST_USE;
/* Simulates and prints to stdout; -EINVAL: the caller was wrong. */
int simulate_advise(struct simulate_args *args, struct err *err) MUST_USE;
int simulate_plot(struct simulate_args *args, struct err *err) MUST_USE;

/* One line of facts and a table for people. */
void simulate_print_text(const struct sim_setup *setup, const struct sim_result *results,
			 uint32_t n);
/* One object for one policy, {"runs": [...]} for several. */
void simulate_print_json(const struct sim_setup *setup, const struct sim_result *results,
			 uint32_t n);
/* Shows progress on a terminal; NULL where stderr is none. */
const struct sim_progress *simulate_progress(void);
void simulate_progress_end(void);
/* "unet3d" or a path -> sets the options of that workload. */
int simulate_workload(const char *name, struct sim_params *params, struct err *err) MUST_USE;

#endif
