/* SPDX-License-Identifier: Apache-2.0 */
/* The cache: object table (one object per piece in flight or in the arena), single flight, the read
 * path, and the planner thread that carries out the plan's actions. A read never fails, hangs or
 * differs because the cache failed: whatever goes wrong in a tier, the source is asked, and its
 * answer - bytes or errno - is the answer. */
#ifndef CLAIRFS_CACHE_H
#define CLAIRFS_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/queue.h"
#include "clairfs/cache/probe.h"
#include "clairfs/dataset.h"
#include "clairfs/metrics.h"
#include "clairfs/order.h"
#include "clairfs/plan.h"
#include "clairfs/tier.h"

struct tape;

/* Several jobs may read at the same time: each has an id, see cache_add_order. */
#define CACHE_NO_JOB UINT32_MAX

struct cache_open {
	uint32_t sample;
	uint32_t job;    /* whose order has it where that job reads, or CACHE_NO_JOB */
	uint32_t reader; /* as cache_reader_of; 0: there was no READ yet, or it is not known */
};

/* Who looks at what the job does. On the planner's thread: must not block, nor call the cache. */
struct cache_watch {
	void (*opened)(void *ctx, const struct cache_open *open);  /* every open, in order */
	void (*planned)(void *ctx, enum plan_state state); /* after every round */
	void *ctx;
};

/* What an arena must have beyond the `ram` bytes that the plan fills with samples: for those on
 * their way (plan_spare_bytes), the holes between them and demand reads, which would be pushed out
 * otherwise. Only used when needed. */
static inline uint64_t cache_spare_bytes(uint64_t ram)
{
	uint64_t most = ram / 32 > (256u << 20) ? ram / 32 : 256u << 20;

	return ram / 10 < most ? ram / 10 : most;
}

struct cache_params {
	struct dataset *dataset;
	struct tier *const *tiers; /* as for chain_init(): the source, and what keeps copies */
	size_t n_tiers;
	struct arena *arena;
	struct order *order; /* of the start, NULL = none; borrowed */
	struct metrics *metrics;
	struct clock *clock;
	const struct cache_watch *watch; /* NULL = nobody; borrowed */
	const struct probe *probe;       /* NULL = nobody measures; borrowed */
	uint64_t arena_bytes; /* budget of the plan within the arena (the arena's own limit is
			       * larger by what demand reads in flight may need) */
	uint64_t stage_bytes;
	uint64_t sample_max_bytes;
	uint64_t store_bytes;
	enum plan_pin_rule pin_rule;
	uint32_t inflight_min, inflight_max; /* prefetch requests of the source in flight */
	uint64_t source_bytes_per_s;
	uint32_t stagers;       /* 1..8 threads */
	uint64_t revalidate_ns; /* files whose pages we or the kernel may hold are checked against
				 * the source this often; 0 = only when fetched */
	struct tape *tape;      /* records all plans; borrowed, NULL = none */
};

struct cache;
int cache_new(const struct cache_params *params, struct cache **ret, struct err *err) MUST_USE;
/* Replaces the order while everything runs (NULL: none any more, and what was pushed into the kernel
 * for it and not read is given back). What the old plan keeps in memory stays as an ordinary cached
 * copy until its room is needed, samples in the store stay known, and
 * the last opens are shown to the new plan, so that a job that tells its order late is followed at
 * once. Makes the new plan itself (O(n), seconds with 10^8 samples, while the old one goes on),
 * then waits for the planner, a moment; any thread but the reactor. The order is the cache's from
 * here on, also when this fails: -ENOMEM, -EINVAL: the old order stays in force; -ECANCELED: not
 * started, or stopping. */
int cache_set_order(struct cache *cache, struct order *take_order) MUST_USE;
/* Grows by one with every order put in force: 0 is the one of the start. */
uint32_t cache_generation(struct cache *cache);

/* Several jobs may read at the same time, each in an order of its own. A job has the id that
 * cache_generation had when its order was put in force; ids are never used again. The first job is
 * the one that came first; where one order is spoken of, it is that one's. A job whose epochs are
 * over leaves by itself as long as there are others. */
struct cache_job {
	uint32_t id;
	struct plan_status plan;
	uint64_t told_ns, read_ns; /* put in force; its last read, or 0 (of the cache's clock) */
};
/* The order of one more job; or, with the id of one that is at work, its next order. What the plan
 * keeps stays. Takes the planner O(n): tens of milliseconds for a million samples. As
 * cache_set_order otherwise; -ENOSPC: there are PLAN_JOBS jobs. *ret_id: of the job from here on.
 */
int cache_add_order(struct cache *cache, struct order *take_order, uint32_t instead_of,
		    uint32_t *ret_id) MUST_USE;
/* Nothing is planned for that job any more. -ENOENT: there is none; -ECANCELED: not started, or
 * stopping. The last one: as cache_set_order(NULL). why: what is said then, static. */
int cache_end_order(struct cache *cache, uint32_t id, const char *why) MUST_USE;
/* Those at work, in the order they came; how many. Any thread. */
uint32_t cache_get_jobs(struct cache *cache, struct cache_job ret[PLAN_JOBS]);
/* The last samples opened, at most max of them, the latest last. Asks the planner; any thread but
 * the reactor. 0 before cache_start and when stopping. */
uint32_t cache_last_opens(struct cache *cache, uint32_t *ret_sample, uint32_t max);
/* The thread whose READ of the sample came last, if that was in the last second or so and after its
 * last open but one; else 0. Of pages that the kernel has there is none. Any thread. */
uint32_t cache_reader_of(struct cache *cache, uint32_t sample);
/* Gives the operations of the mounted filesystem; before cache_start. Without them nothing is
 * staged. */
void cache_set_stage(struct cache *cache, const struct stage_ops *ops, void *ctx);
/* Starts planner, stagers, epoch thread, store writer and revalidation. */
int cache_start(struct cache *cache, struct err *err) MUST_USE;
/* Ends the threads; reads in flight are answered by their tiers first. No cache_read may come any
 * more. */
void cache_stop(struct cache *cache);
void cache_free(struct cache *cache);

#define CACHE_READ_PARTS 4
/* The cache's: one of the pieces, or ranges, that a READ touches. */
struct cache_part {
	struct list node; /* in the list of the piece's waiters */
	struct cache_read *read;
	struct object *object; /* pinned once the part is served */
	enum read_class part_class;
	int status;
	bool is_restart;
};

/* Who may read the bytes of one version of a file, as dataset_stat said when it was fetched. */
struct cache_rights {
	uint32_t uid, gid;
	uint16_t mode;
	/* Somebody may have the file open who may not read it (any more): these bytes are only for
	 * those whom mode and the directories above let read. Never without dataset_is_shared. */
	bool is_narrowed;
};

/* One READ of a file. Owned by the caller until done(). */
struct cache_read {
	struct entry_id entry;
	uint64_t offset;
	uint32_t length; /* 1..PIECE_BYTES */
	uint64_t arrived_ns;
	uint32_t reader;  /* the thread that reads, 0: not known */
	bool is_direct;   /* O_DIRECT: it has no pages locked */
	uint32_t renewal; /* which of the file's inodes is read: dataset_renewal() when it was made */
	/* Called exactly once, on any thread, no lock held; iov is valid during the call only.
	 * status 0: the iov hold the bytes (fewer than length at the end of the file, none past
	 * it); else a negative errno of the source, or -ESTALE: the file was replaced, and what the
	 * reader may have of the one before does not go together with what there is now. */
	void (*done)(struct cache_read *read, int status, const struct iovec *iov, int n_iov);
	void *ctx;
	enum read_class read_class; /* of the slowest piece; valid in done() */
	struct cache_rights rights; /* of the bytes; valid in done() */
	/* the cache's, no need to initialise */
	struct list node;
	struct cache *cache;
	struct entry_state *state;
	struct list in_entry; /* while it is under way, of a file of several pieces */
	struct cache_part part[CACHE_READ_PARTS];
	_Atomic uint32_t n_left;
	uint32_t n_parts, n_tries, begin_version, look_version;
	int refused;  /* 0, or what it is answered without looking further */
	bool is_look, is_looked; /* of cache_look; the source has answered */
	bool is_whole;           /* misses of it fetch whole pieces */
	bool is_accounted;
	bool is_decided; /* its answer is of the version that there is now */
	struct read_traits traits;
};
/* Never blocks; may call done() before it returns. Looks in: arena -> fetch in flight (joins it) ->
 * store -> source. Any thread. */
void cache_read(struct cache *cache, struct cache_read *read);
/* Whether the size that the index has may not be told to a reader before cache_look was asked: the
 * file is empty as far as is known, and the kernel would send no READ. Any thread. */
bool cache_must_look(struct cache *cache, struct entry_id entry);
/* Asks the source whether the file is still what the index says; when done() is called the index
 * is right and the kernel knows. entry, done and ctx are to be set; status 0, or a negative errno of
 * the source (the index is as it was). Never blocks; may call done() before it returns. Any thread.
 */
void cache_look(struct cache *cache, struct cache_read *look);

/* What fs sees. Any thread, never blocks, never allocates unboundedly. */
void cache_note_open(struct cache *cache,
		     struct entry_id entry); /* from the watcher, or an OPEN upcall */
void cache_note_forget(struct cache *cache,
		       struct entry_id entry); /* the kernel dropped the inode and its pages */
void cache_note_blind(struct cache *cache);    /* opens were lost (watch overflow) */
/* Whether OPEN may be answered ENOSYS for good: the order is confirmed, or there is none to learn.
 * fs also needs the watch to cover all sample directories. */
bool cache_may_refuse_open(struct cache *cache);

/* Memory is short, or not any more: the arena has `ram_bytes` and the stage `stage_bytes` from here
 * on; those of the start end it. Plain copies leave at once, the oldest first, what is planned with
 * the planner's next round. Any thread but the reactor. */
void cache_set_memory(struct cache *cache, uint64_t ram_bytes, uint64_t stage_bytes);

#define CACHE_HELD_BYTES 512u /* at most, beside the arena, of a sample of one piece */
struct cache_status {
	struct plan_status plan; /* of the first job */
	uint32_t n_jobs;         /* 0: there is no order */
	uint64_t objects;
	uint64_t files;      /* of which something is here, or under way */
	uint64_t held_bytes; /* memory that is not the arena's but grows with objects and files */
	uint64_t table_bytes;        /* that grows with the dataset: bits per file, the plan's */
	bool is_degraded; /* something failed that costs speed (see the log), e.g. out of memory,
			     store switched off */
};
void cache_get_status(struct cache *cache, struct cache_status *ret);
/* Brings the gauges of metrics up to date (arena, stage, store, position...). */
void cache_update_gauges(struct cache *cache);

#endif
