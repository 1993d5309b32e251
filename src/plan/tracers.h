/* SPDX-License-Identifier: Apache-2.0 */
/* Which units keep a tracer page, and what is taken as read by those that do. Part of plan_priv.h, which
 * says how it belongs together; nothing else includes it. Planner thread. */
#ifndef CLAIRFS_PLAN_TRACERS_H
#define CLAIRFS_PLAN_TRACERS_H

#include <stdbool.h>
#include <stdint.h>

struct plan;
struct plan_job;
struct slot;

/* What of the job's sequence was pushed without one since the last that has one. */
struct tracers {
	uint64_t pass, pos; /* of what was pushed last */
	uint64_t pages;
	uint32_t n;
};

/* The unit is pushed for its next use, after all that was pushed before: whether that may be whole. */
bool tracers_skip(struct plan *plan, struct plan_job *job, uint32_t unit);
/* Somebody came to the unit: what the job had before it without being heard of is taken as read. Before
 * it is found out where that was. */
void tracers_heard(struct plan *plan, struct plan_job *job, uint32_t unit);
/* True: it was pushed whole for this use, and is taken as read. */
bool tracers_take(struct plan *plan, struct plan_job *job, struct slot *slot, uint64_t pos);
/* The pass is over: so is what was pushed whole for it. */
void tracers_rolled(struct plan *plan, struct plan_job *job, struct slot *slot);

#endif
