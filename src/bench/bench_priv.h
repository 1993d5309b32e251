/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of bench share. One process runs everything (the main process); each rank is
 * a child of it and each loader worker a child of its rank. They meet in memory shared by a block,
 * which is one epoch on one side. */
#ifndef CLAIRFS_BENCH_PRIV_H
#define CLAIRFS_BENCH_PRIV_H

#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "clairfs/bench.h"
#include "clairfs/dataset/records.h"
#include "clairfs/metrics.h"
#include "clairfs/order.h"

#define BENCH_RANKS_MAX 64
#define BENCH_WORKERS_MAX 1024
#define BENCH_ERROR 512

/* The job: checked, nothing about it can be wrong any more. */
struct bench_setup {
	const struct bench_args *args;
	char *path; /* absolute, of args->target */
	struct dataset *ds;
	struct order_spec *spec;
	struct order *order;
	const struct order_info *info;
	char *mount_spec; /* what a mount is told: the order with all about the loader; NULL: nothing */
	/* What the order numbers: files, or records of them. first: of records that are not in a table,
	 * the first one of each file, [samples + 1]; NULL: there is a table, or files are read. */
	uint32_t n_units;
	uint32_t *first;
	uint64_t epochs, first_epoch;
	uint32_t ranks, workers, prefetch, batch;
	uint64_t compute_ns, decode_ns;
	sigset_t signals; /* of children */
};
/* Where one of them is. */
struct dataset_extent bench_unit(const struct bench_setup *s, uint32_t unit);
/* Finds out what they are: s->args and s->ds are there. -EINVAL, -ENODATA, -EOVERFLOW, -ENOMEM. */
int bench_units_make(struct bench_setup *s, struct err *err) MUST_USE;

/* --- a block: one epoch on one side, loader.c --- */

struct bench_step { /* of one rank, CLOCK_MONOTONIC ns */
	uint64_t t_request, t_ready, t_computed, t_synced;
};
struct bench_read { /* of one position of one rank */
	uint64_t t_start, t_end, bytes;
	uint64_t sum; /* of its bytes and its number; 0 where nothing is compared */
	uint32_t sample, worker;
};
struct bench_rank {
	_Atomic uint64_t n_done; /* steps */
	uint64_t t_start, t_end;
	uint32_t n_samples, n_steps;
	const uint32_t *sample;  /* [n_samples], the main process's */
	struct bench_step *step; /* [n_steps], shared */
	struct bench_read *read; /* [n_samples], shared */
	char error[BENCH_ERROR]; /* "": none */
};
struct bench_block { /* shared, with the arrays behind it */
	pthread_barrier_t barrier;
	size_t size;  /* of the mapping */
	pid_t parent; /* the main process */
	uint32_t n_ranks, common_steps;
	bool is_warming; /* nothing but reading: no decoding, no computing */
	struct bench_rank rank[];
};
/* Memory for one epoch of the order, whose samples it computes. -ENOMEM, errors of the order. */
int bench_block_new(const struct bench_setup *s, uint64_t epoch, struct bench_block **ret,
		    struct err *err) MUST_USE;
void bench_block_free(struct bench_block *b);
/* The body of a rank's process: reads below `root` and never returns. */
void bench_rank_run(const struct bench_setup *s, struct bench_block *b, uint32_t rank,
		    const char *root) __attribute__((noreturn));

/* --- figures --- */

#define BENCH_BINS 240
#define BENCH_LATENCIES 96 /* quarters of a power of two, from 1 us */

/* What the counters of a mount say; differences of two for an epoch. NAN: not told. */
struct bench_counts {
	bool is_known;
	double reads[READ_CLASSES], read_bytes[READ_CLASSES];
	double opens, source_reads, source_bytes, cpu_seconds;
	/* Seconds of GPU wait; not of a mount, but of an epoch: bench_verdicts_give. */
	double removed_lower, removed_estimate, removed_upper;
	double passes;      /* of ranks, judged or left out so far; no difference */
	double cache_bytes; /* budgets of arena and store, no difference */
	double lead;        /* positions, no difference */
};

struct bench_result {
	enum bench_side side;
	uint64_t epoch; /* as the order counts */
	bool is_warm;   /* caches should have been dropped and were not */
	char note[160]; /* how caches were dropped, or why not; "" */
	uint64_t samples, steps;
	double bytes, seconds, compute_seconds, sync_seconds;
	uint64_t sum; /* of all reads, whatever their order */
	double au_percent;                                     /* NAN: less than two steps */
	double stall_seconds, stall_p50, stall_p99, stall_max; /* seconds; total: mean of ranks */
	double first_wait;
	double read_p50, read_p99, read_seconds; /* of single samples; sum */
	double *rank_stall;                      /* [ranks] */
	uint64_t latency[BENCH_LATENCIES];       /* reads by time */
	double stall_bin[BENCH_BINS];            /* rank 0: seconds waited per bin of the epoch */
	struct bench_counts counts;
	uint64_t t_begin;                 /* of the first rank, CLOCK_MONOTONIC ns */
	char why[160];                    /* counts.removed_* are not known: why not */
	double unique_bytes, bound_bytes; /* bound: least the source must give; NAN: not known */
	uint32_t n_leads;
	double lead_at[BENCH_BINS], lead[BENCH_BINS]; /* seconds into the epoch */
};
/* Everything that follows from the times of a block. -ENOMEM. */
int bench_numbers(const struct bench_setup *s, const struct bench_block *b,
		  struct bench_result *ret) MUST_USE;
/* NAN: there is no such number. */
double bench_number(const json_t *object, const char *key);
/* Lower edge in seconds of a bin of `latency`. */
double bench_latency_edge(uint32_t bin);

/* Gives the epochs on the mount (those whose counts are known) what its accounting says of them:
 * the mean of their ranks, of the upper bound their sum. gpu_wait: that object of stats.json, of
 * any number of moments; an epoch keeps what it was given before. */
void bench_verdicts_give(const json_t *gpu_wait, struct bench_result *result, size_t n_results,
			 const uint32_t *ranks, uint32_t n_ranks);
/* Nothing more comes: why the epochs that were given nothing have nothing; and all epochs together,
 * NAN unless each has its numbers. Nothing else of *ret is set. */
void bench_verdicts_end(const json_t *gpu_wait, struct bench_result *result, size_t n_results,
			struct bench_counts *ret);

struct bench_report {
	const struct bench_setup *setup;
	uint32_t n_results, n_sides;
	enum bench_side side[SIDES];
	struct bench_result *result; /* [n_results], as they were run */
	struct bench_counts total;   /* is_known: removed_* of all epochs on the mount */
	double load[2];              /* load average before and after */
	char words[BENCH_ERROR];     /* of the mount's accounting, at the end */
	json_t *switchback;          /* likewise; NULL: the mount never stepped aside */
	char order_note[512], host[65], kernel[160], time[32];
};
/* NULL: it was not measured. */
const struct bench_result *bench_find(const struct bench_report *r, enum bench_side side,
				      uint64_t epoch);
/* What a rank did not compute (stall, and waiting for other ranks, whose stall that is) without
 * clairfs minus that with it, mean of ranks; NAN when either was not measured. Without:
 * side source in the first epoch, side pagecache, if there is one, in later ones. */
double bench_removed(const struct bench_report *r, uint64_t epoch);
/* The same of all epochs. */
double bench_removed_total(const struct bench_report *r);

/* The stopwatch and what the mount says of itself, of the epochs that both know of. "": there is
 * none. False: the stopwatch is beyond the mount's bounds, by more than walls differ by chance; then
 * what the mount says is not to be shown as if it were so. */
#define BENCH_ACCOUNT 512
bool bench_account(const struct bench_report *r, char out[BENCH_ACCOUNT]);
/* Of how many reads one should be a control read, so that there are some thirty in all epochs; 0: as
 * the mount does by itself. Of a small dataset 1/1024 would be none, and nothing could be said. */
uint64_t bench_control_reads(uint64_t samples, uint64_t epochs);

/* --- what runs them --- */

/* Blocks the signals that end the bench; only then bench_wait may be called. *ret_before is for
 * children. */
void bench_signals_block(sigset_t *ret_before);
/* Sleeps until a child ended or `ns` have passed. -EINTR: told to stop. */
int bench_wait(uint64_t ns) MUST_USE;

/* A mount: of ours (started, paused and unmounted), or one that is there. */
struct bench_mount {
	pid_t pid;   /* ours; 0: none of ours */
	pid_t guard; /* 0: none */
	uint64_t t_paused;
	char *dir, *mountpoint, *log, *report; /* dir: private, removed at the end */
	json_t *gpu_wait;                      /* as it was last told; NULL: not at all */
};
int bench_mount_start(const struct bench_setup *s, struct bench_mount *m, struct err *err) MUST_USE;
/* Stops and goes on: a mount that waits for its turn must not read the source meanwhile. */
void bench_mount_pause(struct bench_mount *m);
void bench_mount_resume(struct bench_mount *m);
/* *ret->is_known is false where there is no mount. */
int bench_mount_counts(struct bench_mount *m, struct bench_counts *ret, struct err *err) MUST_USE;
/* Waits until all opens are in their class and so many passes are judged, but not for ever. */
int bench_mount_settle(struct bench_mount *m, double passes, uint64_t most_ns,
		       struct bench_counts *ret, struct err *err) MUST_USE;
/* Unmounts what is ours and removes the directory, whatever state it is in. Then gpu_wait is that
 * of the report which our mount has left, and the caller's to free with bench_mount_fini. */
int bench_mount_end(struct bench_mount *m, struct err *err) MUST_USE;

void bench_mount_fini(struct bench_mount *m);

/* Removes the private directory, once nothing is mounted there. 0 or -errno. */
int bench_mount_remove(const struct bench_mount *m);
/* A process that takes the mount down when the bench is killed outright. */
int bench_guard_start(struct bench_mount *m, struct err *err) MUST_USE;
void bench_guard_end(struct bench_mount *m);

/* Drops what the kernel has of the dataset below `path`, and looks whether it is gone. */
int bench_caches_drop(const struct bench_setup *s, bool *ret_is_warm, char *note, size_t size,
		      struct err *err) MUST_USE;

/* --- switchback.c --- */
/* A reference, or NULL: it never stepped aside. */
json_t *bench_switchback_of(const json_t *gpu_wait);
void bench_switchback_print(const json_t *said); /* one line; NULL: none */

/* --- telling --- */
#define BENCH_WINNER 192
/* Who won, by how much: one sentence. */
void bench_winner(const struct bench_report *r, char out[BENCH_WINNER]);
#endif
