/* SPDX-License-Identifier: Apache-2.0 */
/* What the cache does for whoever plans: units are held in the arena, pushed into the kernel, set
 * aside, and written to the tier that keeps. Part of cache.h. Any thread, unless it says otherwise; no
 * lock may be held. What goes the other way is news (cache/news.h), and the answers of what was asked
 * for. Nothing here decides what. */
#ifndef CLAIRFS_CACHE_HELD_H
#define CLAIRFS_CACHE_HELD_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/ids.h"
#include "clairfs/base/queue.h"
#include "clairfs/cache/news.h"
#include "clairfs/cache/probe.h"
#include "clairfs/tier.h"

struct cache;
struct object;
struct entry_state;

/* --- holding: hold.c --- */

/* Pieces [first, end) of a file, or parts of a unit that is a record, whose numbers say nothing. */
struct piece_span {
	uint32_t first, end;
};
/* Those of a unit, of a file of that size. */
struct piece_span cache_unit_pieces(const struct cache *cache, struct unit_id unit, uint64_t size);

/* All pieces of a unit. Owned by the caller, but while it is under way. */
struct cache_fetch {
	struct news_answer *answer_to; /* to be set: told when it is over; then these are set: */
	int status; /* 0: it is held; -ESTALE: the file changed; errno of the source */
	uint64_t bytes, latency_ns; /* 0: it was there already, nobody was asked */
	/* To be set: nobody is asked, what is there or under way is taken, or -EAGAIN. */
	bool is_adopting;
	/* To be set: the tier that keeps is counted upon; NEWS_UNPINNED when it has nothing of it. */
	bool is_kept;
	/* the cache's */
	struct list node;
	struct unit_id unit;
	uint32_t n_left;
};
/* Fetches what is missing of a unit that is not held, with requests that nobody waits for, and holds
 * it until cache_release or NEWS_LOST_COPY. Always answered. -ENOMEM: it was not taken, there is no
 * answer. One thread. */
int cache_hold(struct cache *cache, struct unit_id unit, struct cache_fetch *take_fetch) MUST_USE;
/* Nothing happens when it was lost, also if nobody has heard of that yet. is_left: its copy serves
 * whoever reads it until the room is wanted; else it goes at once. The thread of cache_hold. */
void cache_release(struct cache *cache, struct unit_id unit, bool is_left);

/* A piece that is here, with a reference. */
struct cache_copy {
	struct object *object;
	const void *data;
	uint64_t start; /* in the file */
	uint32_t piece, length;
	int64_t young_until_ns; /* see tier.h */
};
/* -ESTALE: not of that version, or not here. */
int cache_copy_get(struct cache *cache, struct entry_id entry, uint32_t piece,
		   const struct file_identity *version, struct cache_copy *ret) MUST_USE;
void cache_copy_put(struct cache *cache, const struct cache_copy *copy);
/* Drops the copies of the unit, whose file has not changed: what is wanted of it is fetched again. */
void cache_fetch_again(struct cache *cache, struct unit_id unit);

/* --- pages of the kernel: push.c --- */

/* Work for a thread that may wait for pages locked by READs. */
struct page_job {
	struct list node;
	struct entry_id entry;
	bool is_push; /* of who plans, who does it; else the cache's: cache_do_page_job */
	bool is_part; /* the cache's: of some pages only */
};
void cache_do_page_job(struct cache *cache, struct page_job *job);

/* A push of all pieces of a unit that is held. */
struct cache_push {
	struct unit_id unit;
	struct stage_file file;
	uint64_t size;             /* of the file */
	uint32_t first, end;       /* as cache_unit_pieces */
	/* Bytes from that place of the file on that are not to be pushed but dropped, 0: none. The
	 * tracer page of a file of several units, whose READ says that a reader has come there. */
	uint32_t tracer_bytes;
	uint64_t tracer_at;
	bool is_whole; /* cache_push_whole */
	struct entry_state *state; /* referenced */
	uint32_t version;
};
/* -ESTALE: it is not held. Else cache_push_end must follow. */
int cache_push_begin(struct cache *cache, struct unit_id unit, struct cache_push *ret) MUST_USE;
/* Before the first piece: a record's tracer page is pushed as well, and nobody will hear of its reader. Who
 * plans finds that out, and says so (cache_come). False: it has none that need not be left out. */
bool cache_push_whole(struct cache *cache, struct cache_push *push);
/* A reader had all of a unit that was pushed whole. Ignored where it was not, or that is known already. */
void cache_come(struct cache *cache, struct unit_id unit);
/* The piece, which nobody reads now, to be pushed: cache_push_unpin must follow. -EAGAIN while it is
 * read, -ESTALE when it is not what the push began with, -ENOENT when nobody may have its pages. */
int cache_push_pin(struct cache *cache, struct cache_push *push, uint32_t piece,
		   struct cache_copy *ret) MUST_USE;
void cache_push_unpin(struct cache *cache, struct cache_push *push, const struct cache_copy *copy,
		      bool is_pushed);
/* Returns rc, or -ESTALE when the file has changed meanwhile: then its pages are dropped. Only on a
 * thread that may wait for pages. */
int cache_push_end(struct cache *cache, struct cache_push *push, int rc);
/* Gives a share of the pages back that were pushed and not come to, from the word *at of the units'
 * bits on; true when there is more. */
bool cache_give_back(struct cache *cache, uint32_t *at);
/* What was pushed from there on is of no interest any more. */
void cache_forget_pushed(struct cache *cache, uint32_t at);
/* Whether pages of that file would be of no use to whoever reads it next: one of O_DIRECT, most
 * likely. Not every time. */
bool cache_expects_direct(struct cache *cache, struct entry_id entry);

/* --- the tier that keeps: hold.c --- */

struct tier *cache_keeper(struct cache *cache); /* NULL: there is none */
bool cache_keeps_any(struct cache *cache);
/* All of the version that the index has, and it may be asked for it. */
bool cache_keeps(struct cache *cache, struct unit_id unit);
/* Seen on another filesystem than the source directory: it is not to be kept. */
bool cache_is_abroad(struct cache *cache, struct entry_id entry);

/* --- what is measured: probed.c, account.c --- */

/* The next read of the unit goes to the source, with this mark, and nothing is kept of it until
 * then; mark 0: it is read like any other. */
void cache_set_aside(struct cache *cache, struct unit_id unit, uint8_t mark);
/* The news that a reader has come to it have been taken, and it was expected there, by the order of
 * that generation (place NULL: it was not). Returns the thread that reads it, as cache_reader_of. */
uint32_t cache_place_open(struct cache *cache, struct unit_id unit, uint32_t generation,
			  const struct read_place *place);
/* What is expected to be asked of it. */
uint64_t cache_asked_of(struct cache *cache, struct unit_id unit);
/* Records of that file have become its units: who plans hears how large they are. */
void cache_note_cut(struct cache *cache, struct entry_id entry);
/* Readers had come to these before they were units. */
void cache_note_come(struct cache *cache, const struct unit_id *unit, size_t n);
/* Prefetches that were held up by the probe may go. */
void cache_prefetch_go(struct cache *cache);
/* A few times a second: decides how reads were served, and asks the probe. One thread. */
void cache_tick(struct cache *cache, uint64_t now_ns);

/* --- what steers, pushed down as values --- */

void cache_set_may_refuse_open(struct cache *cache, bool may_refuse);
/* There is an order: samples are read whole, most likely. */
void cache_set_ordered(struct cache *cache, bool is_ordered);
/* Something failed that costs speed: said in status, and in the log now and then. */
void cache_degrade(struct cache *cache, const char *why);

#endif
