/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the statistics of GPU wait: passes under way, control reads, the ghost page cache, the steps that
 * a job told. One thread at a time uses a struct stall; nothing here knows a clock. */
#ifndef CLAIRFS_WAIT_STALL_PRIV_H
#define CLAIRFS_WAIT_STALL_PRIV_H

#include <assert.h>

#include "clairfs/wait/stall.h"

#define STALL_PASSES 16u        /* per rank, not judged yet */
#define STALL_READERS_MAX 1024u /* threads told apart in a pass */
#define STALL_RUNS 8u           /* iterators of the job's loaders whose steps are kept */
#define STALL_CPU_POINTS 1024u
#define STALL_LOADS 256u
#define STALL_LOAD_NS 4000000000ull          /* told of as one */
#define STALL_LOAD_BEFORE_NS 600000000000ull /* of a pass, and still of use for it */
#define STALL_STEPS_MAX (1u << 20)
#define STALL_GROUP_MIN 16u    /* control reads of a group of classes */
#define STALL_HOLES_PERCENT 5u /* of a pass; with more of them it is not judged */
#define STALL_NEARLY_PERCENT 99u
#define STALL_SETTLED_NS 1000000000ull /* behind the latest open, and nothing was left */
#define STALL_NO_COMPUTE UINT64_MAX

/* Units that fit 32 bits: 2^14 ns is enough for 19 hours, 2^8 ns for 18 minutes. */
#define STALL_OPEN_SHIFT 14
#define STALL_WAIT_SHIFT 8
#define STALL_STEP_SHIFT 10

enum { SLOT_TOLD = 1, SLOT_CREDIT = 2, SLOT_GHOST = 4, SLOT_LOADED = 8 };
/* The upper half: how often it was opened again right away. */
#define SLOT_AGAIN_SHIFT 4
#define SLOT_AGAIN_MAX 15u
static_assert((SLOT_AGAIN_MAX << SLOT_AGAIN_SHIFT | SLOT_LOADED) <= UINT8_MAX, "flags are a byte");
static_assert(SLOT_LOADED < 1 << SLOT_AGAIN_SHIFT, "flags are below the count");

/* An order that reads may name. */
struct stall_order {
	uint32_t seq;         /* they count up; 0: none */
	uint32_t shape;       /* another number when the job, or what it told, is another */
	uint32_t n_open;      /* passes of it that are not judged */
	bool is_replaced;     /* another one was told since */
	enum stall_why off;   /* why nothing of it is judged; STALL_JUDGED: it is */
	struct stall_job job; /* without ranks, which are: */
	struct stall_order_rank {
		uint32_t at;     /* in stall.rank */
		uint64_t closed; /* passes and parts up to this one were judged; 0: none */
	} * rank;                /* [job.n_ranks] */
};

/* One read of a pass. */
struct stall_slot {
	uint32_t opened; /* since the pass began */
	uint32_t wait;
	uint16_t own; /* of the wait, what the source took, in STALL_OWN_ALL-ths */
	uint8_t size_class, flags;
};
#define STALL_OWN_ALL UINT16_MAX

struct stall_pass {
	struct stall_order *order;
	uint32_t rank_index;       /* in order->rank */
	uint64_t first_batch;      /* since the rank's first pass */
	uint64_t pass, part, base; /* base: the index of slot[0] */
	uint64_t length;           /* slots that it will have, 0: not known */
	struct stall_slot *slot;
	uint64_t capacity, end; /* end: behind the last one told */
	uint64_t from;          /* the first one told */
	uint64_t n_told, n_reader_reads, n_late;
	uint64_t bytes, ghost_bytes; /* of all reads; of those that the page cache would have served */
	uint64_t first_ns, last_ns; /* first open; end of the last read */
	uint64_t told_ns;           /* the latest open */
	uint64_t *reader;
	uint32_t n_readers;
	bool has_no_memory, is_switch_done;
};

/* Steps of one iterator. */
struct stall_run {
	uint32_t loader;
	bool is_over; /* the loop was left */
	uint64_t began_ns, last_ns;
	uint32_t n, capacity;
	uint32_t *compute;
	uint32_t *ready; /* since began_ns, STALL_OPEN_SHIFT: when each batch was there */
};

struct stall_rank {
	struct stall_numbers total; /* total.rank: its number */
	struct stall_pass *pass[STALL_PASSES];
	uint32_t n_passes;
	uint64_t n_batches;               /* of all passes so far */
	uint32_t seen_workers;            /* of an earlier pass of this job */
	struct stall_run run[STALL_RUNS]; /* ring, by when they began */
	uint32_t run_head, n_runs;
	uint64_t inner_ns, inner_last_ns; /* inner steps since the last other; end of the latest */
	struct switchback switchback;     /* of the passes that these are of: */
	struct switchback_sum switched;   /* nanoseconds of a step */
	uint64_t switch_due, switch_due_through; /* steps in no total yet */
};

struct stall_control {
	uint64_t n, bytes;
	double mean, m2; /* nanoseconds; m2: sum of squared distances from the mean */
	uint32_t *wait;  /* [STALL_CONTROLS_MAX], NULL until there is one */
};

struct stall_ghost {
	uint64_t limit, used; /* pages */
	uint32_t n, head, tail;
	uint32_t *prev, *next, *pages; /* [n]; pages 0: not in it */
};

struct stall_cpu {
	uint32_t n;
	uint64_t step_ns; /* points are at least so far apart */
	struct stall_cpu_point {
		uint64_t at_ns, busy_ns;
	} point[STALL_CPU_POINTS];
};

struct stall {
	struct stall_params params;
	struct stall_order order[STALL_ORDERS];
	struct stall_order *now; /* the last one told; NULL: none */
	struct stall_rank *rank[STALL_RANKS_MAX];
	uint32_t n_ranks;
	struct stall_control control[STALL_SIZE_CLASSES];
	struct stall_ghost ghost;
	enum stall_pages pages;
	struct stall_cpu cpu, crowd; /* busy; somebody waited for one */
	struct stall_load {
		uint64_t from_ns, to_ns; /* 0: none */
		double least, most;      /* bytes a nanosecond */
	} load[STALL_LOADS];
	uint32_t load_at;  /* the last one */
	uint32_t job_cpus; /* 0: as params.cpus */
	uint64_t settled_ns; /* reads opened before are told; 0: not known */
	bool is_finished;    /* the job has read all of `now` */
	struct stall_node node;
};

/* Linux would have had it in memory, as far as is known. */
static inline bool stall_is_ghost(const struct stall *s, uint8_t flags)
{
	return (flags & SLOT_GHOST) && s->pages != STALL_PAGES_NOT_KEPT;
}

/* --- stall_control.c --- */
/* Neighbouring classes with enough control reads together. */
struct stall_group {
	uint32_t first, last; /* classes */
	uint64_t n;
	double mean, variance;
};
struct stall_groups {
	uint32_t n, of[STALL_SIZE_CLASSES];
	struct stall_group group[STALL_SIZE_CLASSES];
};
uint32_t stall_size_class(uint64_t bytes);
/* -ENOMEM: the read is not counted. */
int stall_control_add(struct stall *s, uint64_t bytes, uint64_t wait_ns) MUST_USE;
/* False: fewer than STALL_CONTROLS_MIN. */
bool stall_groups_make(const struct stall *s, struct stall_groups *ret);
/* One of the control reads of the group, by chance that is the same for the same `chance`. */
uint64_t stall_group_draw(const struct stall *s, const struct stall_group *g, uint64_t chance);
/* The time of `n[g]` reads of each group: its expectation, and how far it may be off at 95 % (one
 * side). */
void stall_groups_sum(const struct stall_groups *g, const uint64_t *n, double *ret_mean,
		      double *ret_margin);

/* --- stall_cpu.c --- */
/* The share of the CPUs' time in which they were busy, 0 to 1; negative: not known. */
double stall_cpu_share(const struct stall *s, uint64_t from_ns, uint64_t to_ns);
/* Whether tasks waited for a CPU for too much of it; false also when that is not known. */
bool stall_is_crowded(const struct stall *s, uint64_t from_ns, uint64_t to_ns);
/* The least and the most that the source gave in that time, bytes a nanosecond. False: not told. */
bool stall_load_rates(const struct stall *s, uint64_t from_ns, uint64_t to_ns, double *ret_least,
		      double *ret_most);

/* --- stall_ghost.c --- */
int stall_ghost_init(struct stall_ghost *g, uint32_t n, uint64_t bytes) MUST_USE;
void stall_ghost_fini(struct stall_ghost *g);
/* True when it was in there; it is the youngest now. */
bool stall_ghost_read(struct stall_ghost *g, struct unit_id unit, uint64_t bytes);

/* --- stall_replay.c: the loader's recurrence (PyTorch: workers, prefetch_factor, round robin, in order) --- */
struct stall_batch {
	uint64_t io_ns;      /* the sum of its reads */
	uint64_t decode_ns;  /* the rest of its worker's time */
	uint64_t compute_ns; /* from having the batch to asking for the next */
};
struct stall_schedule {
	uint64_t wait_ns;    /* of the job for its batches, all together */
	uint64_t fetched_ns; /* when the last batch was complete; 0 is when the workers start */
	uint64_t end_ns;     /* when the last compute was over */
};
struct stall_play {
	uint32_t workers, prefetch; /* at least 1 */
	const struct stall_batch *batch;
	uint64_t n;
	double decode_share;  /* of decode_ns */
	uint64_t compute_ns;  /* of every batch; STALL_NO_COMPUTE: each its own */
	uint64_t *fin, *recv; /* scratch: [workers], [workers * prefetch] */
};
int stall_play_init(struct stall_play *p) MUST_USE; /* makes the scratch; -ENOMEM */
void stall_play_fini(struct stall_play *p);
/* Plays n batches; ret_wait, if not NULL, gets the wait for each. */
void stall_play_run(const struct stall_play *p, uint64_t *ret_wait, struct stall_schedule *ret);

/* --- stall_over.c --- */
/* Too little was told of it to judge it. */
bool stall_is_stray(const struct stall_pass *p);
/* Judges what is open of an order, as it is. */
void stall_order_end(struct stall *s, const struct stall_order *order);
/* Whether a pass was read that is not judged yet. */
bool stall_is_settling(const struct stall *s);

/* --- stall_judge.c --- */
/* The waits for each batch, of a pass that was judged; NULL: not known. */
struct stall_waits {
	uint64_t *with_ns, *without_ns, n; /* heap, the caller's */
};
enum stall_why stall_judge_pass(struct stall *s, struct stall_rank *r, const struct stall_pass *p,
				struct stall_waits *ret);

/* --- stall_switch.c --- */
/* What a job says of its loader is enough to have blocks. */
bool stall_switch_shape(const struct stall *s, const struct stall_job *job, struct switchback *ret);
/* One pass that is over, once. */
void stall_switch_pass(struct stall *s, struct stall_rank *r, struct stall_pass *p);

/* --- stall_steps.c --- */
void stall_runs_free(struct stall_rank *r);
/* The iterator whose steps were made while [from, to] was read, or NULL. */
const struct stall_run *stall_run_find(const struct stall_rank *r, uint64_t from_ns,
				       uint64_t to_ns);

/* --- stall_orders.c --- */
/* The order of that number, the last one told if there are several; NULL: none. */
struct stall_order *stall_order_find(struct stall *s, uint32_t id);
void stall_orders_free(struct stall *s);

/* --- stall.c --- */
void stall_pass_free(struct stall_pass *p);
/* Passes of an order and their parts in one number that grows. */
uint64_t stall_pass_key(const struct stall_pass *p);
/* Passes and their parts in the order in which they are read: below 0 when a comes first. */
int stall_pass_cmp(const struct stall_pass *a, const struct stall_pass *b);
int stall_rank_place(struct stall *s, uint32_t number, uint32_t *ret);
struct stall_rank *stall_rank_get(struct stall *s, uint32_t number); /* NULL: too many, no memory */

#endif
