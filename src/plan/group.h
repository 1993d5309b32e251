/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that may be sent in another order than they are due. Part of plan_priv.h, which says how
 * it belongs together; nothing else includes it. */
#ifndef CLAIRFS_PLAN_GROUP_H
#define CLAIRFS_PLAN_GROUP_H

#include "clairfs/plan.h"

#define GROUP_MAX 256u

struct plan_job;

struct group {
	uint32_t unit[GROUP_MAX]; /* ascending */
	uint32_t at, count;         /* those before `at` were asked for */
	uint64_t end;               /* all of them are due before */
};

/* Which of the missing units to ask the source for now, by when it is due, given the one that is
 * due first. *ret_last: when the last one of its group is due; making room for one of them must not
 * cost what is needed before that, or they would push out each other. */
uint64_t group_next(struct plan *plan, struct plan_job *job, uint64_t first, uint64_t *ret_last);
/* Back to what is due first. */
void group_forget(struct plan_job *job);

#endif
