/* SPDX-License-Identifier: Apache-2.0 */
/* The drive: carries out the plan. It feeds the plan with what the cache has to tell (cache/news.h) and
 * has done what the plan decides: samples held and let go, pages pushed, pins written, epochs computed.
 * It owns the cache that it drives. Orders come and go while everything runs; what is kept in memory,
 * pushed or on its way serves whoever reads it next. */
#ifndef CLAIRFS_DRIVE_H
#define CLAIRFS_DRIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/ids.h"
#include "clairfs/cache.h"
#include "clairfs/order.h"
#include "clairfs/plan.h"

struct tape;

/* Several jobs may read at the same time: each has an id, see drive_add_order. */
#define DRIVE_NO_JOB UINT32_MAX

struct drive_open {
	struct sample_id sample;
	uint32_t job;    /* whose order has it where that job reads, or DRIVE_NO_JOB */
	uint32_t reader; /* as cache_reader_of; 0: there was no READ yet, or it is not known */
};

/* Who looks at what the job does. On the planner's thread: must not block, nor call the drive. */
struct drive_watch {
	void (*opened)(void *ctx, const struct drive_open *open); /* every open, in order */
	void (*planned)(void *ctx, enum plan_state state);        /* after every round */
	void *ctx;
};

/* A use of a unit that is to come, or has. */
struct probe_use {
	struct unit_id unit;
	uint64_t bytes, pass, position; /* that are asked of it; of its order */
	const struct order_info *order; /* of the only job, when it is confirmed that the job reads
					   by it and has the sample there; else NULL */
	uint32_t job;                   /* its id then */
	bool is_ahead; /* nothing is done for it now: it is what `opened` asked for */
};

/* Whoever measures is asked which uses of units to hold back; beside struct probe, which the cache
 * asks. On the planner's thread, no lock held: must not block, nor call the drive. */
struct drive_probe {
	void *ctx;
	/* Whether this use is to be read from the source when somebody wants it, and not before; 0:
	 * no. Else a mark, 1 to 3, which the read has then. NULL: nothing ever is. */
	uint8_t (*hold_back)(void *ctx, const struct probe_use *use);
	/* By its order. Returns how many positions behind it hold_back is to be asked now, 0: none.
	 * *ret_lets: prefetches that were held up may be sent. NULL: none. */
	uint64_t (*opened)(void *ctx, const struct probe_use *use, uint64_t now_ns, bool *ret_lets);
};

struct drive_params {
	/* Of the cache, which is made with them; news, pages, prefetch_max and sets_aside are the
	 * drive's to set. */
	struct cache_params cache;
	struct order *order;             /* of the start, NULL = none; borrowed */
	const struct drive_watch *watch; /* NULL = nobody; borrowed */
	const struct drive_probe *probe; /* NULL = nobody measures; borrowed */
	uint64_t stage_bytes;
	uint64_t store_bytes;
	enum plan_pin_rule pin_rule;
	uint32_t inflight_min, inflight_max; /* prefetch requests of the source in flight */
	uint64_t source_bytes_per_s;
	uint32_t stagers;  /* 1..8 threads */
	struct tape *tape; /* records the plan; borrowed, NULL = none */
};

struct drive;
int drive_new(const struct drive_params *params, struct drive **ret, struct err *err) MUST_USE;
/* For those who read, and who hear of opens; it lives until drive_free. */
struct cache *drive_cache(struct drive *drive);
/* Gives the operations of the mounted filesystem, to the cache as well; before drive_start. Without
 * them nothing is staged. */
void drive_set_stage(struct drive *drive, const struct stage_ops *ops, void *ctx);
/* Starts planner, stagers, epoch thread and store writers, and the cache. */
int drive_start(struct drive *drive, struct err *err) MUST_USE;
/* Ends the threads, and stops the cache: see cache_stop. */
void drive_stop(struct drive *drive);
void drive_free(struct drive *drive);

/* The order of the only job from here on, while everything runs (NULL: there is none any more, and
 * what was pushed into the kernel and not read is given back). What is kept in memory, pushed or on
 * its way serves the next order, after the last one whoever reads it until its room is needed;
 * samples in the store stay known, and the last opens are shown to the job, so that one that tells
 * its order late is followed at once. Waits for the planner, a moment; any thread but the reactor.
 * The order is the drive's from here on, also when this fails: -ENOMEM, -EINVAL: the old order
 * stays in force; -ECANCELED: not started, or stopping. */
int drive_set_order(struct drive *drive, struct order *take_order) MUST_USE;
/* Grows by one with every order put in force: 0 is the one of the start. */
uint32_t drive_generation(struct drive *drive);

/* Several jobs may read at the same time, each in an order of its own. A job has the id that
 * drive_generation had when its order was put in force; ids are never used again. The first job is
 * the one that came first; where one order is spoken of, it is that one's. A job whose epochs are
 * over leaves by itself as long as there are others. */
struct drive_job {
	uint32_t id;
	struct plan_status plan;
	uint64_t told_ns, read_ns; /* put in force; its last read, or 0 (of the cache's clock) */
};
/* The order of one more job; or, with the id of one that is at work, its next order. As
 * drive_set_order otherwise; -ENOSPC: there are PLAN_JOBS jobs. *ret_id: of the job from here on.
 */
int drive_add_order(struct drive *drive, struct order *take_order, uint32_t instead_of,
		    uint32_t *ret_id) MUST_USE;
/* Nothing is planned for that job any more. -ENOENT: there is none; -ECANCELED: not started, or
 * stopping. The last one: as drive_set_order(NULL). why: what is said then, static. */
int drive_end_order(struct drive *drive, uint32_t id, const char *why) MUST_USE;
/* Those at work, in the order they came; how many. Any thread. */
uint32_t drive_get_jobs(struct drive *drive, struct drive_job ret[PLAN_JOBS]);
/* The last samples opened, at most max of them, the latest last. Asks the planner; any thread but
 * the reactor. 0 before drive_start and when stopping. */
uint32_t drive_last_opens(struct drive *drive, struct sample_id *ret, uint32_t max);

/* Records of that file have become units (dataset_cut_found): before an order has them. Any thread. */
void drive_note_cut(struct drive *drive, struct entry_id entry);
/* Readers had come to these, in that order, before their order was put in force. Any thread. */
void drive_note_come(struct drive *drive, const struct unit_id *unit, size_t n);

/* The thread that reads a sample, as cache_reader_of: of its first unit. Any thread. */
uint32_t drive_reader_of(struct drive *drive, struct sample_id sample);

/* Memory is short, or not any more: the arena has `ram_bytes` and the stage `stage_bytes` from here
 * on; those of the start end it. Plain copies leave at once, the oldest first, what is planned with
 * the planner's next round. Any thread but the reactor. */
void drive_set_memory(struct drive *drive, uint64_t ram_bytes, uint64_t stage_bytes);

struct drive_status {
	struct plan_status plan; /* of the first job */
	uint32_t n_jobs;         /* 0: there is no order */
	uint64_t table_bytes;    /* the plan's; grows with the dataset */
};
void drive_get_status(struct drive *drive, struct drive_status *ret);
/* Brings the gauges of metrics up to date, the cache's as well. */
void drive_update_gauges(struct drive *drive);

#endif
