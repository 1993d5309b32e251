/* SPDX-License-Identifier: Apache-2.0 */
/* What untold.c and untold_find.c share. */
#ifndef CLAIRFS_ORDERS_UNTOLD_PRIV_H
#define CLAIRFS_ORDERS_UNTOLD_PRIV_H

#include <stdatomic.h>

#include "clairfs/base/crowd.h"
#include "orders_priv.h"
#include "readers.h"

#define FINDERS PLAN_JOBS
#define EVERYBODY 0
#define RING 8192u

struct finder {
	struct untold *u;
	uint32_t index;
	struct infer *infer;
	struct infer_numberings *parts;
	struct teller who; /* the first of its readers; pid 0: everybody's */
	struct crowd crowd; /* its search thread */
	_Atomic uint32_t id; /* of the job whose order it found, or DRIVE_NO_JOB */
	bool is_over;        /* it is to go */
	bool is_joined;      /* then its readers read by the order of this finder: */
	uint32_t joins;
	uint32_t is_fresh;         /* looks left in which its readers are compared with the order */
	struct order_epoch *epoch; /* that it found, while is_fresh, or NULL */
	uint32_t ranks;            /* that read it */
	struct finder *next;       /* of those that leave */
	bool is_refused;           /* the inbox's mu: nothing more is heard of it */
};

struct opening {
	struct drive_open open;
	bool is_heard; /* the finder of everybody was told */
};

/* The owner's, but for what is said to be another's. */
struct untold {
	struct orders *o;
	struct infer_params params; /* of finders to come */
	struct mutex mu;
	struct finder *finder[FINDERS]; /* changed under mu */
	char gone[INFER_SPEC_MAX];      /* mu: the order of the job that has ended last, or "" */
	struct finder *leaving;         /* that are still at work on what nobody wants */
	uint32_t most;
	/* More than one finder: the owner feeds all of them, and says how their plans do. */
	_Atomic bool is_sorted;
	_Atomic bool is_idle;        /* the owner waits for an open */
	_Atomic bool is_woken;       /* here is one */
	bool is_over;                /* an order of everybody's finder is not in force any more */
	bool is_told;                /* an order was told, beside those that were found */
	_Atomic uint32_t head, tail; /* of the ring; head: the planner's */
	uint32_t due;                /* opens before this one are old enough */
	uint32_t skipped;            /* the planner's */
	/* Orders were in force at the last looks, and all of them followed: what none of them has is
	 * nobody's of theirs. */
	bool was_followed, is_followed;
	/* Readers were told apart before there was any order: the finder of everybody hears of all
	 * their opens until there is one. */
	bool is_whole;
	uint64_t searched; /* looks of that finder that were for an order before this beginning */
	uint64_t pruned_ns, look_ns; /* look_ns: when to look again */
	struct readers readers;
	struct opening ring[RING];
};

/* --- untold_find.c */
/* who: the first of its readers, NULL: everybody. */
int finder_new(struct untold *u, uint32_t index, const struct teller *who, struct finder **ret,
	       struct err *err) MUST_USE;
void finder_free(struct finder *f);
/* Whose order is that job's, or NULL. With mu held, or by the owner. */
struct finder *finder_of(struct untold *u, uint32_t id);

/* untold.c: whether there is memory for one more finder. Those that leave have theirs until their
 * search has ended. The owner's. */
bool untold_has_room(const struct untold *u);

#endif
