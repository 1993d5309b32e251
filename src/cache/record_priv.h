/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of reads until they are decided, and told: account.c and account_told.c only. */
#ifndef CLAIRFS_CACHE_RECORD_PRIV_H
#define CLAIRFS_CACHE_RECORD_PRIV_H

#include "cache_priv.h"

enum { ACCOUNT_SHARDS = 16, ACCOUNT_BUCKETS = 1024 };
#define HEARD_NS (NS_PER_S / 4)

enum age { AGE_WHOLE, AGE_PARTIAL, AGES }; /* see grace_ns */

/* READs that belong together. */
struct reading {
	uint64_t bytes;             /* answered to them */
	uint64_t began_ns, wait_ns; /* first sign of it; time in which a READ was in flight */
	enum read_class slowest;
	uint32_t reader;
	struct read_traits traits;
	bool has_read, has_failed;
	bool is_traced; /* the first page of a unit of several was asked for */
};

struct record {
	struct record *next_hash;
	struct list by_age; /* of a list unless READs are in flight */
	struct list by_since; /* of `untold` while something of it is neither told nor given up */
	uint64_t since_ns;    /* then: the first sign of that, or of an open before it */
	struct unit_id unit;
	uint32_t n_inflight;
	uint32_t n_opens;         /* more than one: the others came while READs were in flight */
	uint64_t last_ns;         /* of the last open or READ */
	struct reading now, next; /* next: of an open that was not heard of yet */
	bool is_counted;          /* one of the opens is, before it was seen */
	bool is_fresh;   /* a file of several pieces: some of it was pushed since it was last opened */
	bool is_summed;  /* likewise: what it had of pushed pages is known, */
	uint64_t unseen; /* so many bytes */
	bool is_pushed;           /* its pages were, when it was opened */
	bool has_use;
	uint32_t generation; /* of the order that said so */
	struct read_place use;
	uint64_t busy_ns; /* since when READs have been in flight */
	/* Of opens before, counted but not told: their place was not known yet. */
	struct reading before;
	uint8_t n_before;
	bool has_before, was_pushed;
	bool is_again; /* the open before had a place, `place` */
	struct read_place place;
	uint32_t placed_by; /* the generation of that */
	bool is_kept_back; /* while it is decided */
	bool is_fed;       /* who plans has heard of the open */
	bool is_late;      /* the open is known by what was read later */
	uint32_t reader;  /* the thread of the last READ that came */
};

struct account_shard {
	struct mutex mu;
	struct record *buckets[ACCOUNT_BUCKETS]; /* mu, like all below */
	struct list by_age[AGES];                /* oldest activity first */
	struct list untold;                      /* by since_ns */
	uint32_t n;
	struct read_facts *told; /* decided since the last sweep */
	uint32_t n_told, told_size;
} CACHE_ALIGNED;

struct account {
	struct account_shard shards[ACCOUNT_SHARDS];
	_Atomic uint64_t settle_ns; /* when it is told next what is settled */
};

static inline uint64_t bytes_of_unit(struct cache *c, struct unit_id unit)
{
	return dataset_unit_extent(c->p.dataset, unit).length;
}

/* A unit of a file of several pieces. */
static inline bool is_large_unit(struct cache *c, struct unit_id unit)
{
	return bytes_of_unit(c, unit) > PIECE_BYTES || unit_is_traced(c, unit);
}

#define TRACER_BYTES_MAX (64u << 10) /* pages are no larger */

/* --- account_told.c --- */
void reading_add(struct reading *r, const struct reading *more);
/* No READ has come but the one for the tracer page, and that was here. */
bool record_is_from_kernel(const struct record *rec, const struct reading *r);
/* It is decided: tells whoever watches, at the next sweep. */
void record_tell_locked(struct cache *c, struct account_shard *a, const struct record *rec)
	REQUIRES(a->mu);
/* What was decided goes to whoever watches, without the lock. */
void account_tell(struct cache *c, struct account_shard *a);
/* And up to when everything is told. */
void account_tell_settled(struct cache *c, uint64_t now_ns);

#endif
