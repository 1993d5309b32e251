/* SPDX-License-Identifier: Apache-2.0 */
/* What the cache tells whoever plans for it: a queue of fixed size that any thread puts into, also
 * from under a lock of the cache, and one thread takes from. Nobody is called, so nothing goes up.
 * Answers come as a list through what was asked for, so an answer can neither be lost nor need memory.
 * When the buffer is full an open is dropped, and that something was is told; what else happened to a
 * unit is kept as a bit and told after the batch, because whoever plans would believe in a lost
 * copy for ever. */
#ifndef CLAIRFS_CACHE_NEWS_H
#define CLAIRFS_CACHE_NEWS_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/cleanup.h"
#include "clairfs/base/ids.h"
#include "clairfs/base/queue.h"

enum news_kind {
	/* These of a unit are not lost, and are told in this order when they are late. */
	NEWS_LOST_COPY, /* what we had of it is gone, in the arena and, pushed, in the kernel */
	NEWS_RESIZED,   /* bytes: its new size; of a late one not known */
	NEWS_UNPINNED,  /* the store has lost or forgotten it, or is not asked for it */
	NEWS_UNSTAGED,  /* the kernel has dropped its pages or its inode */
	NEWS_LATE_KINDS,
	NEWS_OPENED = NEWS_LATE_KINDS, /* a sample: its first unit */
	/* A unit of a file of several, but not the first: a READ asked for its first page, or for others
	 * some time ago. */
	NEWS_REACHED,
	NEWS_DEMAND, /* bytes that somebody waited for came from the source; latency_ns */
};

struct news_item {
	enum news_kind kind;
	struct unit_id unit; /* of NEWS_DEMAND: UNIT_NONE where no unit has the bytes */
	uint64_t bytes, latency_ns;
};

/* Answers something that was asked for; part of that. */
struct news_answer {
	struct list node;
	uint32_t at; /* items put before it, in the batch */
};

struct news;
int news_new(uint32_t n_units, struct news **ret) MUST_USE;
void news_free(struct news *n); /* NULL is fine; answers that nobody took are not touched */

/* --- any thread; never block, never fail, log nothing --- */
void news_put(struct news *n, const struct news_item *item);
/* One of the kinds that are not lost, of `count` units from `first` on: told late. */
void news_put_many(struct news *n, enum news_kind kind, struct unit_id first, uint32_t count);
void news_answer(struct news *n, struct news_answer *take_answer);
void news_blind(struct news *n); /* opens were not seen */
/* Whoever takes has something to do besides. */
void news_wake(struct news *n);
/* Likewise, and the batch says so: then all that was put before is in it or in an earlier one. */
void news_ask(struct news *n);
/* It does not rest any more; for good. */
void news_stop(struct news *n);
/* A copy that was lost so far is not the one that is fetched from now on. */
void news_fetched_anew(struct news *n, struct unit_id unit);

/* --- one thread --- */
/* What has come since the last batch; valid until the next one. */
struct news_batch {
	const struct news_item *items;
	uint32_t n_items;
	struct list answers; /* news_answer.node */
	bool is_blind;       /* opens were not seen, or did not fit: then has_lost as well */
	bool has_lost, has_late;
	bool is_asked; /* news_ask */
};
/* Waits so long for the first; returns at once after news_stop. */
void news_take(struct news *n, uint64_t wait_ns, struct news_batch *ret);
/* Hands out the late ones of the last batch, one at a time, of a kind one after the other by their
 * units. False: that is all. To be called until then. */
bool news_next_late(struct news *n, struct news_item *ret);
/* Nobody wakes it meanwhile: it is cheaper for those who put. */
void news_rest(struct news *n, uint64_t ns);

#endif
