/* SPDX-License-Identifier: Apache-2.0 */
/* The last opens. Part of plan_priv.h, which says how it belongs together; nothing else includes
 * it. */
#ifndef CLAIRFS_PLAN_RECENT_H
#define CLAIRFS_PLAN_RECENT_H

#include "clairfs/plan.h"

struct plan_job;

#define RECENT_MAX 4096u

struct recent {
	uint32_t unit[RECENT_MAX]; /* ring */
	bool is_placed[RECENT_MAX];  /* it was where a job was expected */
	uint32_t head, count;
};

void recent_opened(struct plan *plan, uint32_t unit);
/* The last one was where a job was expected. */
void recent_placed(struct plan *plan);
/* The first epoch of the job is there: what of the last opens was its own. -ENOMEM: it has none any
 * more, and is as if it had just been added. */
int recent_show(struct plan *plan, struct plan_job *job) MUST_USE;

#endif
