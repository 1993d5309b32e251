/* SPDX-License-Identifier: Apache-2.0 */
/* What is fetched and not read in its pass. Part of plan_priv.h, which says how it belongs
 * together; nothing else includes it. */
#ifndef CLAIRFS_PLAN_WASTE_H
#define CLAIRFS_PLAN_WASTE_H

#include "clairfs/plan.h"

struct item;
struct plan_job;
struct slot;

struct waste {
	double fetched, wasted; /* of the last passes, each with half the weight of the next */
	bool is_much;
	double left;     /* of these wasted, units of samples that were opened; halved likewise */
	bool is_left;    /* that is too much: readers leave samples before their end */
};

/* retain.c: fetched and not opened since; between item_out and item_in. */
void item_set_fresh(struct plan *plan, struct item *it, bool is_fresh);

void waste_fetched(struct plan_job *job);
/* A unit of a sample that its readers have left is not going to be read. */
void waste_left(struct plan *plan, struct plan_job *job, uint32_t unit);
/* A pass is over, also one that was left early; before its positions are forgotten. */
void waste_rolled(struct plan *plan, struct plan_job *job, const struct slot *old);
/* How far ahead of its readers the job may be fetched for. */
uint64_t waste_lead_most(const struct plan_job *job);

#endif
