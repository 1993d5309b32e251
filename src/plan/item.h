/* SPDX-License-Identifier: Apache-2.0 */
/* What the plan knows of a unit (struct item) and of one pass over the dataset (struct slot).
 * Part of plan_priv.h, which says how they belong together; nothing else includes it. */
#ifndef CLAIRFS_PLAN_ITEM_H
#define CLAIRFS_PLAN_ITEM_H

#include "clairfs/base/bitmap.h"
#include "clairfs/base/tree.h"
#include "clairfs/order.h"

struct plan;
struct plan_job;

enum item_flag {
	ABSENT = 0,
	FETCHING = 1,
	ARENA = 2,
	STATE_MASK = 3,
	STAGED = 1 << 2,
	STAGING = 1 << 3,
	PINNED = 1 << 4,
	PINNING = 1 << 5,
	HELD = 1 << 6,      /* opened a moment ago: somebody may still be reading it */
	FRESH = 1 << 7,     /* fetched and not opened since */
	ALONE = 1 << 8,     /* STAGED and ABSENT: only the kernel has it (alone.c) */
	TAIL = 1 << 9,      /* of the end of the pass before: reading it now says nothing */
	NO_FETCH = 1 << 10, /* failed: not again for this use */
	NO_STAGE = 1 << 11, /* likewise */
	OPENED = 1 << 12,   /* opened while FETCHING */
	FROM_STORE = 1 << 13,
	TRY_SHIFT = 14, /* two bits: STAGE attempts */
	TRY_MASK = 3 << TRY_SHIFT,
	AGAIN = 1 << 16, /* missing after all: its fetch failed, or the store has lost it */
	HOME_SHIFT = 25, /* four bits: the place of the job whose key counts for keeping it */
	HOME_MASK = 15 << HOME_SHIFT,
	ADOPTED = 1 << 24,     /* FETCHING, of what a reader had asked the source for */
	ALONE_FRESH = 1 << 30, /* it was FRESH when it left the arena */
	HELD_OUT = 1 << 29,    /* with NO_FETCH: on purpose, so it is not missing */
	BUCKET_SHIFT = 17, /* seven bits: 1 + bucket of a next use beyond the keys, 0: none known */
	BUCKET_MASK = 127 << BUCKET_SHIFT,
};

/* STAGED, with its tracer page: nobody hears of its reader (tracers.c). No enumerator has this bit. */
#define UNTRACED (1u << 31)

struct item {
	uint32_t pages; /* cost in the arena, the stage and the store */
	uint32_t key;   /* of the job that has no array of its own; see job_key */
	uint32_t flags;
};

/* What the job seems to be doing, or why it cannot be told; the words are in status.c. */
enum plan_why {
	WHY_OF_STATE, /* none of its own */
	WHY_NO_ORDER,
	WHY_NOTHING_READ,
	WHY_COMPUTING,
	WHY_COMPARING,
	WHY_FOLLOWS,
	WHY_OTHER_READER,
	WHY_STRAYS,
	WHY_UNPROVABLE,
	WHY_NOT_FOLLOWED,
	WHY_OUTSIDE,
	WHY_TRYING_LATER,
	WHY_NO_EPOCH,
	WHY_NO_MEMORY,
	WHY_FINISHED,
	WHY_JUMPED,
	WHY_RESUMED,
	WHY_EPOCH_AGAIN,
	WHY_RUN_AGAIN,
	WHY_REPEATS_0,
	WHY_REPEATS,
	WHY_READS_0,
	WHY_LEFT_EARLY,
	WHY_NEXT_ALREADY,
	WHY_EARLIER_EPOCH,
	WHY_LATER_EPOCH,
	WHY_COUNT,
};

/* How much a unit that is to come in may cost. */
enum room_for {
	ROOM_FAR,  /* only what is not worth keeping */
	ROOM_SOON, /* and what is in the kernel as well, and the spare */
	ROOM_NEAR, /* and what is worth keeping */
	ROOM_OF_READ, /* likewise, but nothing that was fetched and not read */
};

/* Opened a moment ago. */
struct hold {
	uint64_t read, at_ns;
	uint32_t unit;
};

/* Of 64 readers all that is told between two looks at the opens, with what is told for nothing. */
#define EARLY_READS 1024u

/* The last units that were told before the open of their samples, which may still be told, or that
 * had their place. */
struct early_reads {
	struct early {
		uint64_t until_ns; /* too long ago then */
		uint32_t unit;     /* UNIT_NONE: it was taken */
	} read[EARLY_READS]; /* ring, by time */
	uint32_t head, count; /* where the next one goes; those that may not be too long ago */
};

/* To be tried again at that time. */
struct retry {
	uint64_t at_ns;
	uint32_t unit;
	uint32_t flag; /* NO_FETCH or NO_STAGE: what is allowed again then */
};

enum slot_set {
	SET_WANT,  /* absent, to be fetched from the source */
	SET_STORE, /* absent, to be fetched from the store */
	SET_GAP,   /* absent and not to be fetched now: in flight, failed, too large */
	SET_KEEP,  /* in the arena and may be evicted */
	SET_STAGE, /* in the arena and may be staged */
	SET_COUNT,
};

/* One pass over the dataset: an epoch of the order, what of it was read, and the units whose next
 * use lies in it. */
struct slot {
	struct order_epoch *ep; /* both slots may share one (the same epoch again) */
	uint64_t epoch, pass;   /* pass: grows by one with every pass, as the epoch should */
	uint64_t index;         /* of the pass in the job's run */
	bool is_rerun;          /* a guess that the job may be started again: never fetched for */
	uint64_t length, low;   /* low: first position not consumed */
	uint64_t absorbed;      /* positions below have been given to their units as keys */
	uint64_t worth_end;     /* residents needed before this one are worth keeping */
	uint64_t worth_pages;
	struct bitmap consumed;
	uint64_t inner; /* of the positions consumed: units that are not the first of a sample */
	struct tree set[SET_COUNT];
};

/* item.c: the sets */
void item_out(struct plan *plan, uint32_t unit);
void item_in(struct plan *plan, uint32_t unit);
/* Out of the sets of all but this job. */
void item_out_of_others(struct plan *plan, const struct plan_job *job, uint32_t unit);
bool item_is_wanted(const struct plan *plan, const struct item *it); /* from the source */
/* By what of the job is consumed now. */
void item_next_key(struct plan *plan, struct plan_job *job, uint32_t unit);

#endif
