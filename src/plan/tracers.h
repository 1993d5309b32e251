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

/* The unit is pushed for its next use: whether that may be whole. */
bool tracers_skip(const struct plan *plan, const struct plan_job *job, uint32_t unit);
/* Somebody came to the unit: what the job had before it without being heard of is taken as read. Before
 * it is found out where that was. */
void tracers_heard(struct plan *plan, struct plan_job *job, uint32_t unit);
/* True: it was pushed whole for this use, and is taken as read. */
bool tracers_take(struct plan *plan, struct plan_job *job, struct slot *slot, uint64_t pos);
/* The pass is over: what was pushed whole for it and may have been read was read. */
void tracers_rolled(struct plan *plan, struct plan_job *job, struct slot *slot);

#endif
