/* SPDX-License-Identifier: Apache-2.0 */
/* The chain of tiers, and a walk along it: which tier is asked for a piece, and whom to ask when
 * that one has failed. A walk decides and sends nothing: its owner sends each request, when it likes
 * to, and says what the answer is worth. All that it has to remember is in the walk, so one piece may
 * have several of them under way. No locks, no threads, no memory. */
#ifndef CLAIRFS_TIER_CHAIN_H
#define CLAIRFS_TIER_CHAIN_H

#include "clairfs/tier.h"

#define CHAIN_MAX 8

struct chain {
	struct tier *tiers[CHAIN_MAX]; /* copies, the cheapest first; then the one that verifies */
	uint32_t n;
};

/* Any order; NULLs are left out. One of them verifies identities, and keeps nothing; -EINVAL else.
 * Borrowed. */
int chain_init(struct chain *chain, struct tier *const *tiers, size_t n,
	       struct err *err) MUST_USE;
/* The one that verifies. */
static inline struct tier *chain_source(const struct chain *chain)
{
	return chain->tiers[chain->n - 1];
}
/* The first one that keeps what it is given, or NULL. */
struct tier *chain_keeper(const struct chain *chain);

/*	NEW ----> COPY ----> the next COPY, SOURCE when there is none
 *	  \-----> CHECK ---> COPY, or SOURCE when it was lost meanwhile
 *	   \----> SOURCE
 *
 * and from all of these but NEW to OVER. */
enum walk_state {
	WALK_NEW,
	/* A tier has the piece, of the version that the file was of when somebody looked last: the
	 * source is asked whether it still is. No bytes. */
	WALK_CHECK,
	WALK_COPY,   /* a tier that does not verify is asked for the bytes */
	WALK_SOURCE, /* the one that does is: whatever it says is the answer */
	WALK_OVER,
	WALK_STATES
};

struct walk {
	/* The owner's, who may change them before walk_begin() and walk_answered(). */
	struct tier_request want;  /* as the source is to be asked for it */
	struct file_identity kept; /* that version, as tiers that do not verify know it */
	bool may_copy;             /* they may be asked */
	bool is_verified;          /* the file is that version still; set by a check */
	/* To be sent to walk_tier(); its done and ctx are the owner's. The answer, in walk_answered()
	 * and when it is over. */
	struct tier_read read;
	/* The walk's. */
	const struct chain *chain;
	enum walk_state state;
	uint32_t at;   /* the tier that was asked */
	uint32_t next; /* those before it were asked, or have nothing */
};

/* Puts the first request into `read`. */
void walk_begin(struct walk *walk, const struct chain *chain);
/* The tier to be asked; when it is over the one that has answered. */
static inline struct tier *walk_tier(const struct walk *walk)
{
	return walk->chain->tiers[walk->at];
}
/* The answer's status; -EIO when it says 0 with other bytes than were asked for. */
int walk_status(const struct walk *walk);
/* The tier has answered. status: what the owner makes of it, 0: it holds. False: it is over. True:
 * there is another request in `read`. */
bool walk_answered(struct walk *walk, int status) MUST_USE;

#endif
