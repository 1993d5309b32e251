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
	_Atomic uint32_t id; /* of the job whose order it found, or CACHE_NO_JOB; under change_mu */
	_Atomic bool is_over;       /* it is to go */
	_Atomic bool is_joined;     /* then its readers read by the order of this finder: */
	_Atomic uint32_t joins;
	_Atomic uint32_t is_fresh;  /* looks left in which its readers are compared with the order */
	struct order_epoch *epoch; /* that it found, while is_fresh, or NULL; under change_mu */
	uint32_t ranks;            /* that read it */
};

struct opening {
	struct cache_open open;
	bool is_heard; /* the finder of everybody was told */
};

struct untold {
	struct orders *o;
	struct infer_params params; /* of finders to come */
	struct thr thr;
	struct mutex mu;
	struct cond cv;
	bool is_stopping;               /* mu */
	struct finder *finder[FINDERS]; /* changed under change_mu and mu */
	char gone[INFER_SPEC_MAX];        /* mu: the order of the job that has ended last, or "" */
	uint32_t most;
	/* More than one finder: the thread feeds all of them, and says how their plans do. */
	_Atomic bool is_sorted;
	_Atomic bool is_idle;        /* the thread waits for an open */
	_Atomic bool is_over;        /* an order of everybody's finder is not in force any more */
	_Atomic bool is_told;        /* an order was told, beside those that were found */
	_Atomic uint32_t head, tail; /* of the ring; head: the planner's */
	uint32_t due;                /* the thread's: opens before this one are old enough */
	uint32_t skipped;            /* the planner's */
	/* The thread's: orders were in force at the last looks, and all of them followed: what none of
	 * them has is nobody's of theirs. */
	bool was_followed, is_followed;
	/* Readers were told apart before there was any order: the finder of everybody hears of all
	 * their opens until there is one. */
	bool is_whole;
	uint64_t searched; /* looks of that finder that were for an order before this beginning */
	uint64_t pruned_ns;
	struct readers readers;
	struct opening ring[RING];
};

/* --- untold_find.c */
/* who: the first of its readers, NULL: everybody. */
int finder_new(struct untold *u, uint32_t index, const struct teller *who, struct finder **ret,
	       struct err *err) MUST_USE;
void finder_free(struct finder *f);
/* Whose order is that job's, or NULL. With change_mu or mu held, or by the thread. */
struct finder *finder_of(struct untold *u, uint32_t id);

#endif
