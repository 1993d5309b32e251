/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the cache. The table is sharded by entry, so everything about one file - its pieces,
 * how many READs of it are in flight, its version - lies under one lock. Lock order: shard->mu, then
 * prefetch.mu or the news' or account's (leaves, never two of them; account's alone may
 * ask the dataset for a size). No lock is held over I/O, a done(), or an operation of the stage.
 *
 * Life of an object (one piece), moved only by object_move_locked:
 *
 *	ABSENT -> QUEUED -> FETCHING -> RESIDENT -> GONE
 *	             |          |                     ^
 *	             +----------+---------------------+
 *
 * GONE objects are out of the table and live on while somebody holds a reference.
 *
 * A range is an object as well, of any part of a file of several pieces (ranges.c): in the list of
 * its file, but not in the table. Where records are units, their parts are objects in the table
 * (records.c).
 */
#ifndef CLAIRFS_CACHE_PRIV_H
#define CLAIRFS_CACHE_PRIV_H

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>

#include "clairfs/base/log.h"
#include "clairfs/base/queue.h"
#include "clairfs/base/thr.h"
#include "clairfs/cache.h"
#include "clairfs/metrics/trace.h"
#include "clairfs/dataset/units.h"
#include "clairfs/tier/chain.h"

#include "access_priv.h"
#include "account_priv.h"
#include "ahead_priv.h"
#include "prefetch_priv.h"

enum {
	SHARDS = 16,
	READ_TRIES = 64, /* attempts to get bytes of one version of a file that keeps changing */
	RANGES_MAX = 64, /* of one file, beside those that go with their READ */
	CACHE_PAGE = 4096,
};

enum object_state {
	OBJECT_ABSENT,
	OBJECT_QUEUED,
	OBJECT_FETCHING,
	OBJECT_RESIDENT,
	OBJECT_GONE,
	OBJECT_STATES
};

struct object {
	struct object *next_hash;
	struct list in_entry; /* entry_state.objects while in the table */
	struct list in_lru;   /* shard.lru while plain, resident and in the table; or shard.hot */
	struct list in_queue; /* prefetch.queue; the queue holds a reference */
	struct list waiters;  /* parts of reads, while FETCHING */
	struct entry_state *state_of;
	struct cache_fetch *job; /* the fetch of a unit that waits for this piece */
	struct file_identity identity;
	void *mem;         /* the fetch's until RESIDENT */
	uint64_t ready_ns; /* since when a prefetch waits for its first reader, else 0 */
	uint64_t start;    /* in the file; of a piece: PIECE_BYTES times its number */
	uint32_t piece, length, refs;
	uint64_t key; /* in the table: of a piece its number, of a part of a record records.c */
	struct cache_rights rights; /* while it is in the table they do not change */
	enum object_state state;
	int64_t young_until_ns; /* of the read; see tier.h */
	bool is_planned;        /* held: only its release or a change of the file frees it */
	bool is_prefetch;       /* nobody waited when it was started */
	bool is_demand;         /* somebody waits, also for a prefetch joined before its start */
	bool has_slot;          /* counts as a prefetch in flight */
	bool is_heap;           /* the arena was full: memory for this fetch only */
	bool is_range;          /* not in the table; the store has no such thing */
	bool is_record;         /* in the table, and no piece: a part of a record, or its tracer page */
	bool is_once;           /* a range that goes with those who wait for it */
	bool is_hot;            /* a range that stays, see hot.c; in shard.hot while it is resident */
	bool is_tracer;         /* a range, or of a record: the first page of a unit that the kernel has otherwise */
	bool is_ahead;          /* counted in ahead_bytes: nobody has come for it yet */
	bool is_charged, is_charged_whole; /* see ahead_spend */
	bool is_owed;              /* to be charged if it comes from the source after all */
	uint8_t mark;              /* of a range: all of a record that was held back, */
	struct unit_id held_out;   /* and which */
	enum read_class read_class; /* of the tier that gave it */
	struct read_traits traits;
	/* Pages that READs got, bit per page, until they had all; not there in files of one piece. */
	uint64_t used[];
};
#define OBJECT_USED_WORDS (PIECE_BYTES / CACHE_PAGE / 64)

/* What whoever plans believes of a unit. */
enum hold { HOLD_NONE, HOLD_FETCHING, HOLD_HELD };

struct fetch_result {
	int status;
	bool is_stale; /* the file is another one (the source may have an ESTALE of its own) */
	uint32_t bytes;
	uint64_t latency_ns;
};

/* What is known of a file while anything of it is here: pieces, READs, jobs. */
struct entry_state {
	struct entry_state *next_hash;
	struct entry_id entry;
	uint32_t refs;    /* objects, reads, jobs, units that are held or being fetched for that */
	uint32_t readers; /* READs not answered yet */
	uint32_t head_readers; /* of these: at the beginning, and not decided yet */
	uint64_t head_end;     /* what they have locked; since there are any of these */
	uint32_t pushers;      /* pushes of pages under way */
	uint32_t version; /* counts changes of the file; valid as long as a reference is held */
	uint32_t inval_version,
		inval_wait; /* READs that began before this version and must be answered first */
	struct list fetches; /* cache_fetch.node: of units of it that are HOLD_FETCHING */
	bool is_inval_queued, is_attr_queued, is_drop_queued, is_name_queued;
	bool is_unsettled; /* READs wait: the kernel does not know the size yet */
	uint32_t drop_renewal, inval_renewal; /* the inodes that drop and inval_job are about */
	struct list objects; /* ranges first, n_ranges of them; n_once of these go with their READ */
	uint32_t n_ranges, n_once, n_tracers, n_hot, n_listed;
	struct list reads; /* cache_read.in_entry of n_listed READs, of a file of several pieces */
	struct list attr_waiters; /* cache_read.node: not started before the file is settled */
	/* They are part of it, so they need no memory then, and take little in each. */
	struct page_job inval_job, attr_job, drop_job, name_job;
};

struct shard {
	struct mutex mu;
	struct cond idle;
	struct object **objects; /* mu, like all below */
	struct entry_state **entries;
	struct list lru; /* plain residents, oldest first */
	struct list hot; /* hot ranges, likewise; so many bytes */
	uint64_t hot_bytes;
	uint32_t busy;   /* reads and fetches in flight */
} CACHE_ALIGNED;

struct account;

struct cache {
	struct cache_params p;
	struct chain chain;
	struct tier *keeper; /* of the chain; NULL: nothing is kept beyond the arena */
	const struct stage_ops *stage;
	void *stage_ctx;
	struct shard shards[SHARDS];
	uint32_t buckets; /* per shard and table, a power of two */
	_Atomic uint64_t n_objects, n_files, plain_bytes, hot_bytes, arena_bytes;
		/* arena_bytes: for now */
	_Atomic uint32_t evict_at;
	_Atomic bool is_degraded, may_refuse_open, is_ordered;
	_Atomic uint64_t *touched; /* per entry: the kernel or we may hold bytes of it */
	_Atomic uint32_t n_touched;
	/* Per entry: the kernel may have pages of the inode that the name leads to. */
	_Atomic uint64_t *paged;
	/* Per entry: the source has said in this mount that it is what the index says. */
	_Atomic uint64_t *confirmed;
	/* Per entry: seen on another filesystem than the source directory. What is mounted there
	 * may be exchanged between two jobs, so nothing of it is kept beyond this one. */
	_Atomic uint64_t *abroad, *narrowed; /* narrowed: NULL unless shared, see access.c */
	_Atomic uint64_t *marked[2]; /* per unit, a bit of its mark each: see probed.c. Or NULL */
	_Atomic uint64_t *held[2];   /* per unit, the bits of its enum hold; see hold.c */
	uint64_t home_dev;        /* st_dev of the source directory */
	bool is_store_lasting;    /* what the keeper keeps outlives the mount */
	_Atomic uint64_t *staged; /* per unit: pushed, not known to be dropped or used up */
	_Atomic uint64_t *staged_opened; /* per unit: come to since it was pushed */
	_Atomic uint64_t *untraced; /* per unit: pushed with its tracer page */
	/* Per sample: its last READ was one of O_DIRECT; one was not, since it was pushed; and how
	 * sure it is that samples are read with O_DIRECT: direct.c. */
	_Atomic uint64_t *direct, *indirect;
	/* Per unit of a file of several pieces: some of it was pushed, and not come to since. */
	_Atomic uint64_t *pushed;
	_Atomic uint32_t asked_part; /* asked.c; 0: not known */
	_Atomic uint32_t n_direct, stage_probe;
	_Atomic uint64_t n_tracers; /* pages, see tracer.c */
	_Atomic uint64_t last_tracer[64]; /* by reader, see reached.c */
	uint32_t tracer_bytes;      /* a page of the kernel's */
	struct prefetch_queue prefetch;
	struct mutex ahead_mu; /* a leaf */
	struct ahead *ahead;   /* ahead_mu */
	_Atomic uint64_t ahead_bytes;
	struct account *account;
	struct queue attr_jobs, drop_jobs, name_jobs;
	struct thr attr_thread, drop_thread, name_thread, revalidator;
	struct mutex reval_mu;
	struct cond reval_cv;
	bool reval_stop; /* reval_mu */
	bool is_started;
};

/* --- read.c --- */
void read_begin(struct cache *c, struct cache_read *r);
void read_settle(struct cache *c, struct cache_read *r); /* one part less; the last one answers */

/* --- look.c --- */
/* Goes on with a cache_look, after it had to wait. */
void look_begin(struct cache *c, struct cache_read *r);

/* --- change.c --- */
/* The file that was `known` is seen to be another one (st), or gone (both NULL): drops what is kept
 * of it everywhere, unless it is known as another one by now. Any thread. */
void change_file(struct cache *c, struct entry_id entry, const struct file_identity *known,
		 const struct stat *st);
/* The kernel cannot be made to know the size: nobody reads on in that inode. */
void change_unsettled_locked(struct cache *c, struct shard *s, struct entry_state *es)
	REQUIRES(s->mu);
/* Has the attribute thread look at what is unsettled, and at who waits. */
void change_queue_attr_locked(struct cache *c, struct shard *s, struct entry_state *es)
	REQUIRES(s->mu);
/* A READ has been answered: queues the invalidation that waited for it. */
void change_read_ended_locked(struct cache *c, struct shard *s, struct entry_state *es,
			      uint32_t begin_version) REQUIRES(s->mu);

/* --- tracer.c --- */
/* Whether the kernel has the rest of it, and nobody has come yet. Without a lock, as tracer_page. */
bool tracer_is_awaited(struct cache *c, struct unit_id unit);
/* A page of the arena for the tracer of a unit that leaves it; NULL: there is no room. */
void *tracer_page(struct cache *c);
/* Keeps that page of the unit's first piece, which is here still; a page that was taken is NULL
 * afterwards. */
void tracer_keep_locked(struct cache *c, struct shard *s, struct entry_state *es,
			struct unit_id unit, void **page) REQUIRES(s->mu);
/* Has that page pushed instead, by a job of push_page_new, which is NULL afterwards if it was queued. */
void tracer_push_locked(struct cache *c, struct shard *s, struct entry_state *es,
			struct unit_id unit, struct page_job **take_job) REQUIRES(s->mu);
/* Of a unit that the kernel does not have any more, or that is here again. */
void tracer_drop_locked(struct cache *c, struct shard *s, struct entry_state *es,
			struct unit_id unit, struct list *dead) REQUIRES(s->mu);
/* The kernel has lost what was pushed of the unit, or was not asked about it. Without a lock. */
void tracer_lost(struct cache *c, struct unit_id unit);

/* --- reached.c --- */
/* What a READ is counted for: of records the first whose end it has; else as dataset_unit_of_read; or UNIT_NONE. */
struct unit_id reached_unit_of(struct cache *c, const struct cache_read *r);
/* A READ has come: tells who is at which unit, sets is_read_on. is_silent: nothing else would tell its reader. */
void reached_note(struct cache *c, struct cache_read *r, bool is_silent);

/* --- opened.c --- */
/* Tells whoever plans; UNIT_NONE: of nothing that is planned. */
void note_unit(struct cache *c, enum news_kind kind, struct unit_id unit);
/* Of all units of a file, if it is a sample. */
void note_units(struct cache *c, enum news_kind kind, struct entry_id entry);
/* A file has grown or shrunk: of the units for which that matters. */
void note_resized(struct cache *c, struct entry_id entry, uint64_t before, uint64_t now);
void note_news(struct cache *c, const struct news_item *item);

/* --- hold.c --- */
int holds_init(struct cache *c) MUST_USE;
void holds_fini(struct cache *c);
/* Changes only under the lock of its file's shard. */
enum hold hold_of(struct cache *c, struct unit_id unit);
/* A unit that is held is not there any more; its reference to the file is given back. */
void hold_lost_locked(struct cache *c, struct shard *s, struct entry_state *es, struct unit_id unit)
	REQUIRES(s->mu);
/* One piece of a unit's fetch has ended. */
void unit_fetch_piece_locked(struct cache *c, struct shard *s, struct object *obj,
			     const struct fetch_result *result, struct list *dead) REQUIRES(s->mu);
/* Between them no fetch of the file ends, whatever its pieces do. */
void unit_fetches_hold_locked(struct shard *s, struct entry_state *es) REQUIRES(s->mu);
void unit_fetches_release_locked(struct cache *c, struct shard *s, struct entry_state *es,
				 struct list *dead) REQUIRES(s->mu);

/* --- push.c --- */
/* The kernel's pages of one unit, of a file that has several: queues it. A READ that is under way fills
 * its pages again, and a stager waits for it. */
void push_drop_part(struct cache *c, struct unit_id unit);
/* Of that only its tracer page. */
void push_drop_tracer(struct cache *c, struct unit_id unit);
/* The last page of a unit that the kernel has otherwise, with room for its bytes; NULL: there is no memory,
 * or nothing is mounted. Freed by push_free_part until it is queued. Without a lock. */
struct page_job *push_page_new(struct cache *c, struct unit_id unit);
/* Queues it, with the bytes of the piece from that byte of the file on. It is pushed if then the file is
 * the same, nobody reads that page, and the unit is awaited as before and not here again. */
void push_page_locked(struct cache *c, struct shard *s, struct entry_state *es, const struct object *piece,
		      uint64_t at, struct page_job *take_job) REQUIRES(s->mu);
/* A job of it that nobody took up; NULL is fine. Without a lock. */
void push_free_part(struct cache *c, struct page_job *job);

/* --- settle.c: threads that make a change known to the kernel --- */
void *attr_main(void *cache);
void *drop_main(void *cache);
void *name_main(void *cache);

/* It is one of several of its file. Then the first page that is its own is never pushed: the READ of that
 * page, the tracer, says that a reader has come to it, once, however the file is read. */
static inline bool unit_is_traced(const struct cache *c, struct unit_id unit)
{
	const struct unit_map *map = dataset_unit_map(c->p.dataset);

	return map->first && unit_count(map, unit_sample(map, unit)) > 1;
}

#include "fetch_priv.h"
#include "hot_priv.h"
#include "object_priv.h"
#include "ranges_priv.h"
#include "records_priv.h"

#endif
