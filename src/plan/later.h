/* SPDX-License-Identifier: Apache-2.0 */
/* Uses beyond the two passes that are loaded, for a node that reads a part of the units in each
 * epoch. Part of plan_priv.h, which says how it belongs together; nothing else includes it. */
#ifndef CLAIRFS_PLAN_LATER_H
#define CLAIRFS_PLAN_LATER_H

#include "clairfs/order.h"
#include "clairfs/plan.h"

#include "clairfs/base/tree.h"

#define LATER_EPOCHS 64u /* of them are looked ahead: the bits of a mask */

struct plan_job;

struct later {
	uint64_t *mask; /* [n] bit (epoch % 64): this node reads the unit in that epoch; NULL: not
			 * needed, or no memory for it */
	struct tree bucket[LATER_EPOCHS]; /* by epoch % 64: units in the arena, evictable, without
					   * a key, whose next use is in that epoch */
	uint64_t filled;                 /* bit per bucket: it has members */
	uint64_t lo, hi;                 /* the masks know the epochs [lo, hi) */
	bool is_leaving;                 /* they are of a job that is not alone any more */
	uint32_t left;                   /* units that may still be in a bucket then */
	bool is_judged;                  /* whether passes leave units out has been looked at */
	uint32_t judged, judged_out;     /* units below have been, so many of them are left out */
	bool is_cut;                     /* epoch hi cannot be computed: not before the next pass */
	struct order_epoch *taking;      /* epoch hi - 1, on its way into the masks */
	uint32_t taken;                  /* units below are in */
	/* Pages read in the current pass by epochs until they are read again (0: not again). */
	uint64_t survey[LATER_EPOCHS + 1], surveyed, survey_pass;
	uint32_t worth_epochs; /* residents needed within so many epochs are worth keeping */
};

/* Finds the bucket of a unit by what is known now; between item_out and item_in. */
void later_find_bucket(struct plan *plan, struct plan_job *job, uint32_t unit);
/* A resident without a key enters its bucket, or the set of those of which nothing is known. */
void later_enter(struct plan *plan, uint32_t unit);
void later_leave(struct plan *plan, uint32_t unit);
void later_forget_buckets(struct plan *plan);
/* A unit without a key, needed last, or NO_POS. */
uint64_t later_last(const struct plan *plan, const struct plan_job *job);
/* Uses of a unit in the epochs that are known; 1 where every epoch reads every unit. */
uint32_t later_count(const struct plan *plan, uint32_t unit);
/* How many epochs beyond the keys are known. */
uint64_t later_known(const struct plan *plan, const struct plan_job *job);
/* Nothing more will become known in this pass. */
bool later_is_complete(struct plan *plan, struct plan_job *job);
/* Pages of a pass that the best policy finds in the arena or the store. */
uint64_t later_kept_pages(const struct plan *plan);
/* Whether the next use of a unit without a key is near enough to be worth keeping it. */
bool later_is_near(const struct plan *plan, const struct plan_job *job, uint32_t unit);
/* The epoch to compute for it, or NO_POS. */
uint64_t later_wanted(struct plan *plan, struct plan_job *job);
void later_arrived(struct plan *plan, struct plan_job *job, const struct plan_event *ev);
void later_rolled(struct plan *plan);
bool later_step(struct plan *plan, struct plan_job *job); /* true when there is more to do */
void later_fini(struct plan *plan);
/* They are of no use any more: rekey.c takes units out of the buckets, */
void later_let_go(struct plan *plan);
/* so many more of them. */
void later_left(struct plan *plan, uint32_t n);

#endif
