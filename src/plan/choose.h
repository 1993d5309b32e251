/* SPDX-License-Identifier: Apache-2.0 */
/* Which units the store gains most by. Part of plan_priv.h, which says how it belongs
 * together; nothing else includes it. */
#ifndef CLAIRFS_PLAN_CHOOSE_H
#define CLAIRFS_PLAN_CHOOSE_H

#include "clairfs/plan.h"

#define CHOOSE_CLASSES 512u /* of gain: 16 per octave */

struct plan_job;

struct choice {
	bool is_measured, is_small_first, is_even; /* even: all units are about as large */
	bool is_counting, is_done;
	uint32_t counted; /* units below are in */
	/* Latency against size of the first fetches: sums of x, y, x * x, x * y. */
	uint32_t n;
	double x, y, xx, xy;
	uint32_t least; /* class from which on units are wanted; of this one as many as fit */
	uint64_t least_left, *pages; /* [CHOOSE_CLASSES] while counting */
	uint64_t freed; /* pages that came free of units which are not wanted back */
};

/* total: pages of all units; squares: the sum of their squares. */
void choose_init(struct plan *plan, double total, double squares);
void choose_fini(struct plan *plan);
/* For another order: what the store has by now stays. */
void choose_again(struct plan *plan);
/* A fetch from the source was answered. */
void choose_fetched(struct plan *plan, uint32_t pages, uint64_t latency_ns);
/* True when there is more to do at once. */
bool choose_step(struct plan *plan, struct plan_job *job);
/* Whether the unit is to be pinned, now that it could be. */
bool choose_wants(const struct plan *plan, uint32_t unit);
/* Its place is taken, or free again. When much has come free it is chosen anew who is to have it. */
void choose_taken(struct plan *plan, uint32_t unit, bool is_taken);

#endif
