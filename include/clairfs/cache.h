/* SPDX-License-Identifier: Apache-2.0 */
/* The cache: object table (one object per piece in flight or in the arena), single flight, the read
 * path, files that change. It knows no plan and no order: who plans (drive.h) holds samples in it and
 * has them pushed, and hears what happens by its news. A read never fails, hangs or differs because the
 * cache failed: whatever goes wrong in a tier, the source is asked, and its answer - bytes or errno -
 * is the answer. */
#ifndef CLAIRFS_CACHE_H
#define CLAIRFS_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/queue.h"
#include "clairfs/cache/news.h"
#include "clairfs/cache/probe.h"
#include "clairfs/cache/reads.h"
#include "clairfs/dataset.h"
#include "clairfs/metrics.h"
#include "clairfs/tier.h"

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
	struct metrics *metrics;
	struct clock *clock;
	const struct probe *probe; /* NULL = nobody measures; borrowed */
	/* What happens is put there; it and the next one live until cache_free. NULL: nobody plans. */
	struct news *news;
	/* struct page_job: work that waits for pages, put there under locks of the cache; who takes
	 * one has it done (cache_do_page_job). NULL: nobody does, and nothing may be mounted. */
	struct queue *pages;
	struct reads *reads; /* READs of files that are cut are noted there; borrowed. NULL: nobody looks */
	uint64_t arena_bytes; /* of the arena, what is planned with: its own limit is larger by what
			       * demand reads in flight may need */
	uint32_t prefetch_max;  /* requests in flight, 0 = 64 */
	bool sets_aside;        /* cache_set_aside is called */
	uint64_t revalidate_ns; /* files whose pages we or the kernel may hold are checked against
				 * the source this often; 0 = only when fetched */
};

struct cache;
int cache_new(const struct cache_params *params, struct cache **ret, struct err *err) MUST_USE;
/* The thread whose READ of the unit came last, if that was in the last second or so and after its
 * last open but one; else 0. Of pages that the kernel has there is none. Any thread. */
uint32_t cache_reader_of(struct cache *cache, struct unit_id unit);
/* Gives the operations of the mounted filesystem; before cache_start. Without them nothing is
 * staged. */
void cache_set_stage(struct cache *cache, const struct stage_ops *ops, void *ctx);
/* Starts revalidation. */
int cache_start(struct cache *cache, struct err *err) MUST_USE;
/* Ends the threads; reads and fetches in flight are answered by their tiers first, and what was held
 * for is answered. No cache_read may come any more, and who takes `pages` must still do so. */
void cache_stop(struct cache *cache);
/* The last of what is counted, after cache_stop and when nobody pushes any more. */
void cache_finish(struct cache *cache);
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
	struct unit_id unit, next_unit; /* where it begins; the one that it goes on in */
	struct entry_state *state;
	struct list in_entry; /* while it is under way, of a file of several pieces */
	struct cache_part part[CACHE_READ_PARTS];
	_Atomic uint32_t n_left;
	uint32_t n_parts, n_tries, begin_version, look_version;
	int refused;  /* 0, or what it is answered without looking further */
	bool is_look, is_looked; /* of cache_look; the source has answered */
	bool is_whole;           /* misses of it fetch whole pieces */
	bool is_again;           /* what it misses stays */
	bool is_read_on;         /* nobody has come to that page: the kernel reads on */
	bool is_accounted;
	bool is_decided; /* its answer is of the version that there is now */
	struct read_traits traits;
};
/* Never blocks; may call done() before it returns. Looks in: arena -> fetch in flight (joins it) ->
 * the tiers, as tier/chain.h says. Any thread. */
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
/* Whether OPEN may be answered ENOSYS for good, as was said last (at first: yes). fs also needs the
 * watch to cover all sample directories. */
bool cache_may_refuse_open(struct cache *cache);

/* Memory is short, or not any more: the arena has `ram_bytes` from here on; those of the start end
 * it. Plain copies leave at once, the oldest first. Any thread but the reactor. */
void cache_set_memory(struct cache *cache, uint64_t ram_bytes);

#define CACHE_HELD_BYTES 512u /* at most, beside the arena, of a sample of one piece */
struct cache_status {
	uint64_t objects;
	uint64_t files;       /* of which something is here, or under way */
	uint64_t held_bytes;  /* memory that is not the arena's but grows with objects and files */
	uint64_t table_bytes; /* that grows with the dataset: bits per file */
	bool is_degraded; /* something failed that costs speed (see the log), e.g. out of memory,
			     store switched off */
};
void cache_get_status(struct cache *cache, struct cache_status *ret);
/* Brings the gauges of metrics up to date (arena, store, dataset...). */
void cache_update_gauges(struct cache *cache);

#include "clairfs/cache/held.h"

#endif
