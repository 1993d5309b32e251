/* SPDX-License-Identifier: Apache-2.0 */
/* Policy "clairfs": what its two files share. clairfs.c runs the step (clairfs/step.h) and serves reads;
 * hands.c is what the step has done. */
#ifndef CLAIRFS_SIM_HANDS_H
#define CLAIRFS_SIM_HANDS_H

#include "cached.h"
#include "clairfs/plan.h"
#include "clairfs/step.h"

#define AHEAD 16u /* samples whose state is brought near the processor */
#define PAGE 4096u

struct staging {
	uint64_t at_ns;
	uint32_t sample;
};

struct taking {
	uint32_t sample;
	int status;
};

/* The answer to EPOCH. */
struct computing {
	struct order_epoch *epoch; /* NULL: none */
	uint64_t number, at;
	uint32_t version;
};

struct clairfs {
	struct step step;
	struct step_hands hands;
	struct plan_action next[AHEAD]; /* of the round, not carried out yet */
	uint32_t n_next;
	uint64_t round_at, last_round;
	double stager_free;
	struct staging *staging; /* ring */
	uint32_t staging_size, staging_head, staging_count;
	uint64_t room, planned_bytes, plain_bytes; /* in pages; of the plan, of nobody */
	struct arrivals *plain;                    /* oldest first */
	struct taking *there;                      /* FETCHes that ask nobody; [2 * inflight] */
	uint32_t n_there;
	uint64_t reads;
	struct computing epoch[PLAN_JOBS]; /* by their index in the plan, which is the job's here */
};

extern const struct step_hands clairfs_hands; /* but for ctx, which is the model */
/* What was asked in this round and is still to be done. */
void hands_carry_out(struct model *m);
/* Somebody has read it: it stays as long as the plan leaves room. */
void hands_keep_plain(struct model *m, uint32_t sample);

#endif
