/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of a plan, and keys of those that have left. Part of plan_priv.h, which says how it
 * belongs together; nothing else includes it. */
#ifndef CLAIRFS_PLAN_JOBS_H
#define CLAIRFS_PLAN_JOBS_H

#include "clairfs/plan.h"

struct plan_job;

/* The next job at work, from *at on; NULL after the last one. */
struct plan_job *jobs_next(const struct plan *plan, uint32_t *at);
/* The first one at work; where none is, one that stands for nobody. */
struct plan_job *jobs_first(const struct plan *plan);
/* How long until a job gets there: in positions, or where there are several jobs in nanoseconds at
 * its pace. */
uint64_t jobs_when(const struct plan *plan, const struct plan_job *job, uint64_t due);
/* The job that needs the unit first; NULL: none does. */
struct plan_job *jobs_home(const struct plan *plan, uint32_t unit, uint64_t *ret_when);
void jobs_stage_dirty(struct plan *plan);
bool jobs_are_prefetching(const struct plan *plan);
/* Whether no order numbers the unit. */
bool jobs_are_outside(const struct plan *plan, uint32_t unit);
void jobs_leave(struct plan *plan, struct plan_job *job); /* is planned for no longer */
/* No unit has a key of it any more. */
void jobs_unkeyed(struct plan *plan, struct plan_job *job);
/* Frees a share of a job that is gone; false: there is none. */
bool jobs_bury_step(struct plan *plan);
/* As if it had just been added; but for its first epoch, which is there. */
void jobs_restart(struct plan *plan, struct plan_job *job);
int jobs_add(struct plan *plan, const struct order_info *info) MUST_USE;
void jobs_free(struct plan *plan);
void jobs_init_span(struct plan *plan, struct plan_job *job);

/* rekey.c: keys of jobs that have left. True when there is more to do at once. */
bool rekey_step(struct plan *plan);
/* Whether a job is about to know what it needs. */
bool rekey_is_awaited(const struct plan *plan);

#endif
