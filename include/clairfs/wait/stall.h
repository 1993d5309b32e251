/* SPDX-License-Identifier: Apache-2.0 */
/* How much GPU wait a mount removed. PURE: reads and steps in, numbers out; no clock, no threads,
 * no I/O. All times are nanoseconds of one clock, CLOCK_MONOTONIC in the daemon. What the numbers
 * mean and why they can be defended is written once, at the head of src/wait/stall.c.
 *
 * A `struct stall` is a node's. It is told each read of a sample once it is known how it was
 * served, and the place of the read in the job's order; each pass (one reading of the dataset,
 * mostly an epoch) of each rank is judged as a whole, once, when all of it was told. A pass of
 * which too little is known is not judged, adds to no number but `unjudged`, and that is said. */
#ifndef CLAIRFS_WAIT_STALL_H
#define CLAIRFS_WAIT_STALL_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/cleanup.h"
#include "clairfs/base/ids.h"
#include "clairfs/metrics.h"
#include "clairfs/wait/switchback.h"

/* More ranks of one node are not told apart: nothing is judged then. */
#define STALL_RANKS_MAX 256u
/* A longer pass is judged in parts of about this many reads. */
#define STALL_PASS_READS_MAX 2097152u
/* Control reads of one class of sizes; further ones are no use. */
#define STALL_CONTROLS_MAX 2000u
/* Fewer, of all sizes, and nothing is said. */
#define STALL_CONTROLS_MIN 8u
#define STALL_SIZE_CLASSES 64u

/* --- the accounting --- */

/* Why a pass was not judged. */
enum stall_why {
	STALL_JUDGED,
	STALL_NOTHING_READ, /* no pass is over yet */
	STALL_NO_ORDER,     /* it is not known what the job reads: nothing is prefetched */
	STALL_NO_CONTROLS,  /* too few control reads so far */
	STALL_NO_WORKERS,   /* neither told nor seen often enough */
	STALL_HOLES,        /* too many reads of the pass were not seen */
	STALL_NO_MEMORY,
	STALL_TOO_MANY_RANKS, /* of this node */
	STALL_SETTLING,       /* one is over, and not all its reads are told yet */
	STALL_CROWDED,        /* tasks waited for a CPU for too much of it */
	STALL_CUT,            /* what reading one takes is not known (wait_set_order) */
	STALL_WHYS
};
extern const char *const stall_why_words[STALL_WHYS]; /* for a person */

/* What became of one pass, or of a part of a long one, of one rank. */
struct stall_verdict {
	uint32_t order, rank; /* stall_job.id; the rank's number */
	uint64_t pass, part;
	enum stall_why why;          /* STALL_JUDGED, or why not: the numbers below are 0 then */
	uint64_t reads;              /* that were told */
	uint64_t began_ns, ended_ns; /* the first open; the end of the last read */
	uint64_t took_ns;            /* as judged_ns in stall_numbers; so are the others */
	uint64_t lower_ns, estimate_ns, estimate_hook_ns, upper_ns, page_cache_ns;
	bool has_estimate, has_hook;
	/* The waits for each batch, replayed with the cache and without it, by the better of the
	 * two sources; only until stall_params.judged returns. NULL: not known. first_batch counts
	 * from the first pass of the rank on, so that it is the same step on all nodes of a job. */
	uint64_t first_batch, n_batches;
	const uint64_t *with_ns, *without_ns;
};

struct stall_params {
	uint32_t n_units;     /* of the dataset: samples, or parts of them (base/units.h) */
	uint64_t ghost_bytes; /* of the page cache that Linux would have had; 0: none */
	uint32_t cpus;        /* that the job's workers share; 0: not known, as many as they need */
	/* A pass in which tasks waited for a CPU for more than this share of the time is not judged,
	 * and control reads of such a time are no measure. 0 or 1: all are. */
	double crowded_share;
	double switchback_share; /* of the blocks of a pass; 0: the cache never steps aside */
	/* Told each verdict, within stall_judge or stall_set_job; may be NULL. */
	void (*judged)(void *ctx, const struct stall_verdict *verdict);
	void *judged_ctx;
};
struct stall;
/* -ENOMEM. Memory: 12 bytes per unit if there is a ghost page cache, 12 per read of a pass that
 * is not judged yet, 8 KiB per class of sizes. */
int stall_new(const struct stall_params *params, struct stall **ret) MUST_USE;
void stall_free(struct stall *s); /* NULL allowed */

/* What is known of the job. Zeroes: not told; workers are then counted from their reads, prefetch
 * is taken as 2, and without batch there is no estimate and no bound of blocks. */
struct stall_job {
	uint32_t id;           /* of this order; reads name it */
	uint32_t n_ranks;      /* of this node */
	const uint32_t *ranks; /* [n_ranks] their numbers, ascending; copied; NULL: 0, 1, 2... */
	uint32_t workers, prefetch, batch;
	bool is_another; /* job than the one of the order before: nothing seen of that one holds */
};
/* Another job, or another order of it: one that lists its samples has one for each epoch. Reads of
 * the orders before may still be told; their passes are judged like any, and what is left of one
 * when nothing more comes for STALL_LATE_NS. Only the last STALL_ORDERS are known: what is open of
 * an older one is judged. Totals, control reads and the ghost page cache stay. -EINVAL: more than
 * STALL_RANKS_MAX; -ENOMEM: nothing of this order is judged. */
#define STALL_ORDERS 64u
int stall_set_job(struct stall *s, const struct stall_job *job) MUST_USE;

/* A read of a sample that is over: one open with all its READs. In any order, but see opened_ns. */
struct stall_read {
	bool has_place;      /* order, rank_index, pass, index are known */
	uint32_t order;      /* stall_job.id */
	bool is_control;     /* read from the source on purpose, for comparison */
	bool is_switchback;  /* likewise, as all of its block of the pass */
	bool is_kernels;     /* READ_STAGED, but of pages that nobody pushed */
	bool is_loaded;      /* READ_MISS, among more requests than the job alone makes */
	bool is_record;      /* of a larger file: the pages at its ends are its neighbours', too */
	bool is_nobodys;     /* Linux would have these pages; no reader came for them */
	bool is_late;        /* opened_ns is later than the open by an unknown time */
	/* Another open, right away, of the sample that was read at this place; or `again` more than
	 * the one that this is. A source whose client keeps no pages would have been read again. */
	bool is_again;
	uint8_t again;
	uint8_t read_class;  /* enum read_class */
	uint32_t rank_index; /* in stall_job.ranks */
	struct unit_id unit; /* that was read: the sample, unless samples are cut */
	uint64_t pass;   /* grows by one from pass to pass of the order */
	uint64_t index;  /* the rank's index-th sample of the pass, from 0 */
	uint64_t length; /* samples of the rank in the pass; 0: not known */
	uint64_t bytes;  /* of the sample */
	/* Reads of one rank need not come in this order, those of one sample must. */
	uint64_t opened_ns;
	uint64_t wait_ns; /* in which at least one READ of it was under way; 0: none was needed */
	uint64_t held_ns; /* of it: the source was not at work for it; this mount's own time */
	uint64_t reader; /* the thread that read, any number that tells threads apart; 0: unknown */
};
/* 0, or -ENOMEM: the pass it belongs to will not be judged. */
int stall_read(struct stall *s, const struct stall_read *read) MUST_USE;

/* Whether the source's client keeps the pages that were read for the next reader; only then would
 * Linux have had what the ghost page cache has. Not known: what rests on it is on the careful side,
 * lower bound and estimate as if it did. */
enum stall_pages { STALL_PAGES_UNKNOWN, STALL_PAGES_KEPT, STALL_PAGES_NOT_KEPT };
void stall_set_pages(struct stall *s, enum stall_pages pages);
/* The page cache had this unit when all began. Before its first read. */
void stall_had_pages(struct stall *s, struct unit_id unit, uint64_t bytes);

/* The CPUs that the job's workers share (stall_params.cpus) have been busy for busy_ns by now, all
 * together, since any time that stays the same. */
void stall_cpu(struct stall *s, uint64_t now_ns, uint64_t busy_ns);

/* Some task has waited for a CPU for waited_ns by now (PSI), since any time that stays the same. */
void stall_crowd(struct stall *s, uint64_t now_ns, uint64_t waited_ns);

/* Until now_ns, for took_ns, with at least half as many requests again in flight as the job alone
 * makes, the source gave so many bytes: it gives no more to the job alone. */
void stall_load(struct stall *s, uint64_t now_ns, uint64_t took_ns, uint64_t bytes);
/* The job may use no more of stall_params.cpus than these (an affinity, a quota); 0: not known. */
void stall_set_cpus(struct stall *s, uint32_t cpus);

/* What the job's own process says of one step (hint.h); the caller has checked that the times
 * ascend and are no future. rank: its number, of any job. False: not taken (too many ranks or
 * steps). */
struct clairfs_step_record;
bool stall_step(struct stall *s, const struct clairfs_step_record *step);

/* Every read that was opened before then is told, and none of those will be. Without it time alone
 * says that nothing more comes. */
void stall_settled(struct stall *s, uint64_t before_ns);
/* The job has read all of its order, or goes on (or begins again). */
void stall_finished(struct stall *s, bool is_finished);

/* Judges every pass that is over: all its reads were told; or 99 % were (but for a last batch that
 * is not full), the job is elsewhere (a later pass or another order has begun, or it has finished
 * this one), and all reads until a second behind its last one are settled; or 99 % were, they are
 * likewise, and nothing of it came for STALL_QUIET_NS (and three batches' time); or the job is elsewhere, or 95 %
 * were, and nothing of it came for STALL_LATE_NS; all of them when is_final. Takes 0.1 us per read
 * of a pass. */
#define STALL_QUIET_NS 5000000000ull
#define STALL_LATE_NS 10000000000ull
void stall_judge(struct stall *s, uint64_t now_ns, bool is_final);

/* What switchback has found, of the loader in its present shape. Steps are batches. */
struct stall_switchback {
	uint64_t blocks;        /* in pass-through, and measured */
	uint64_t spoiled;       /* in pass-through, but of no use: see stall_switch.c */
	uint64_t steps;         /* with the cache: those that the difference is removed from */
	uint64_t steps_through; /* in pass-through */
	uint64_t steps_ghost;   /* left out: Linux would have had what they read in memory */
	bool is_known;          /* there are enough blocks; else the rest is 0 */
	double removed_ns, margin_ns; /* all steps together; 95 %; may be negative */
	double cost_ns;               /* what the blocks in pass-through have cost, by that */
};

/* Totals since stall_new; none of them ever falls, but switchback. */
struct stall_numbers {
	uint32_t rank;
	uint64_t lower_ns;         /* removed at least */
	uint64_t estimate_ns;      /* the loader replayed, compute fitted to the time it took */
	uint64_t estimate_hook_ns; /* the same with the compute that the job told */
	uint64_t upper_ns;         /* removed at most, whatever Linux keeps */
	uint64_t page_cache_ns;    /* of that, what its page cache would have saved, about */
	uint64_t latency_saved_ns; /* sum over reads; much more than the wait removed */
	uint64_t prep_wait_ns;     /* wait that no cache removes: workers busy, no read pending */
	uint64_t read_wait_ns;     /* of workers, in reads of this mount */
	uint64_t judged_ns;        /* wall time of the passes judged */
	uint64_t judged, unjudged; /* passes (or parts of long ones) */
	uint64_t judged_replay, judged_hook; /* of those judged, with that estimate */
	uint64_t reads;                      /* of the passes judged */
	uint64_t ghost_reads; /* of them, those that Linux would have had in memory */
	/* of the hook, all steps; time within two loops counts once, as wait if either waited */
	uint64_t steps, gpu_wait_ns, compute_ns;
	/* the workers, prefetch and batch of the last pass judged */
	uint32_t workers, prefetch, batch;
	/* By switchback: at each pass its steps by what a step was known to be worth then. */
	uint64_t estimate_switchback_ns, switchback_cost_ns;
	struct stall_switchback switchback;
};
/* Of one rank; at is below stall_n_ranks, which counts all that were ever heard of. */
uint32_t stall_n_ranks(const struct stall *s);
void stall_get_rank(const struct stall *s, uint32_t at, struct stall_numbers *ret);
/* Workers of each rank that passes of the order in force, or of the job's like it, were seen to
 * have; 0: none was judged yet. */
uint32_t stall_seen_workers(const struct stall *s);
/* compute / (compute + wait) of the hook in percent; negative: there are no steps. */
double stall_au_percent(const struct stall_numbers *numbers);

/* Of the node. */
struct stall_node {
	uint64_t control_reads, control_bytes;
	uint64_t control_cost_ns; /* of their readers: the wait for them */
	uint64_t controls_used;   /* of them, those that the numbers rest on */
	uint64_t controls_needed; /* at least, before anything is said */
	uint64_t reads;           /* all that were told */
	uint64_t switchback_reads, switchback_bytes, switchback_wait_ns; /* in pass-through */
	bool has_switchback;     /* the order says enough of the loader for it */
	uint64_t unplaced_reads; /* of them, those whose place in the order is not known */
	uint64_t open;           /* passes of which something was read and that are not judged */
	enum stall_why why;      /* of the last pass that was looked at */
	enum stall_why unjudged_why; /* of the last that never will be judged; STALL_JUDGED: none */
};
void stall_get_node(const struct stall *s, struct stall_node *ret);
/* Whether a control read of this size would still teach something. */
bool stall_wants_control(const struct stall *s, uint64_t bytes);

#endif
