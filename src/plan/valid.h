/* SPDX-License-Identifier: Apache-2.0 */
/* The validation set: units that the job does not number and reads between its epochs. Part of
 * plan_priv.h, which says how it belongs together; nothing else includes it. */
#ifndef CLAIRFS_PLAN_VALID_H
#define CLAIRFS_PLAN_VALID_H

#include "clairfs/plan.h"

struct plan_job;

#define VALID_MAX (1u << 17) /* reads of one pass that are remembered: the first ones */
#define VALID_LEAST 8u       /* fewer are stray files */

struct valid {
	struct order_epoch *learned; /* what was read the last time, in that order; NULL: nothing */
	/* What is read now, since the epoch ended. */
	uint32_t *record, n_record, record_size;
	uint64_t *is_recorded; /* bit per unit; NULL until something is recorded */
	uint64_t reads, as_foreseen;
	uint64_t spread; /* how far apart the first workers were; 0: not known */
	bool is_expected; /* after this pass; slots[2] has what is left of it, unless given up */
	bool is_given_up; /* what came was mostly something else */
	/* Epochs since it was last read, or since the beginning; and from one time to the next. */
	uint64_t passes, period;
	bool is_period_sure; /* so many as the time before */
	bool is_any_order;   /* the last two times had not one order */
	uint32_t strikes;    /* in a row: not read when it was expected, or not like that */
	uint32_t pause;      /* so many times it is let by before it is expected again */
	uint64_t foreseen;   /* reads ever, that were where the plan had them */
};

/* A read of a unit that the job does not number. */
void valid_read(struct plan *plan, struct plan_job *job, uint64_t now_ns, uint32_t unit);
/* Whether the job is between two epochs and has not read this unit since the last one. */
bool valid_is_news(const struct plan_job *job, uint32_t unit);
/* Whether the job is between two epochs and has this unit still to read there. */
bool valid_is_due(const struct plan *plan, const struct plan_job *job, uint32_t unit);
/* The pass is over, before what is left of it is forgotten: the next one is being read. */
void valid_close(struct plan *plan, struct plan_job *job);
/* The next pass has become the current one: what is expected behind it. */
void valid_open(struct plan_job *job);
/* The job stands elsewhere: what was read is no part of a validation set. */
void valid_again(struct plan_job *job);
void valid_fini(struct plan_job *job);

#endif
