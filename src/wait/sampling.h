/* SPDX-License-Identifier: Apache-2.0 */
/* The probes that cache and drive have: which reads are left to the source, and when they may be sent.
 * What is observed goes on to whoever accounts for it. */
#ifndef CLAIRFS_WAIT_SAMPLING_H
#define CLAIRFS_WAIT_SAMPLING_H

#include "clairfs/drive.h"
#include "clairfs/wait/switchback.h"
#include "gate.h"

/* Marks of reads; bits. */
enum { WAIT_CONTROL = 1, WAIT_SWITCHBACK = 2 };

struct sampling_params {
	/* The share of reads, chosen by chance that is the same in every run, that are control reads
	 * in a pass. 0: none. */
	double control_share;
	/* The share of the blocks of a pass (wait/switchback.h) in which all reads are left to the
	 * source, while an order is confirmed that says enough of the loader. 0: none. */
	double switchback_share;
	uint32_t n_samples; /* of the dataset */
	struct clock *clock;
};

struct sampling {
	struct probe probe;             /* for the cache */
	struct drive_probe drive_probe; /* for the drive */
	struct sampling_params p;
	struct gate gate;
	_Atomic uint64_t full;     /* bit per class of sizes: no more control reads are of use */
	_Atomic bool is_idle;      /* nothing is said of the order in force: none is, for now */
	struct switchback blocks;  /* planner: of the order of this job */
	uint32_t jobs;             /* planner: its id, and one; 0: there was none */
	_Atomic uint64_t until_ns; /* nothing is fetched ahead before; 0: readers are elsewhere */
	/* Who accounts for what is observed; to be set before the drive starts, or NULL. Planner
	 * thread, but for drive_stop's. */
	void (*observed)(void *ctx, const struct read_facts *facts, uint32_t n);
	void (*settled)(void *ctx, uint64_t before_ns);
	void (*load)(void *ctx, const struct gate_load *load);
	void *ctx;
};

void sampling_init(struct sampling *s, const struct sampling_params *params);
void sampling_fini(struct sampling *s);
/* Control reads of samples of about that size are known well enough. Any thread. */
void sampling_has_enough(struct sampling *s, uint64_t bytes);
/* How many requests the job's readers can have in flight: workers of all ranks here; 0: not known.
 * Any thread. */
void sampling_set_readers(struct sampling *s, uint32_t readers);
uint32_t sampling_readers(const struct sampling *s);
/* Whether a sample is one of the share that is held out of a pass. Pure. */
bool sampling_is_chosen(double share, uint32_t sample, uint64_t pass);
/* Whether a control read of that size is of use still. */
bool sampling_is_wanted(const struct sampling *s, uint64_t bytes);

#endif
