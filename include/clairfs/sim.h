/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator: a training job, its loader, a source and a cache in virtual time, so that a user
 * can know before the job starts what memory and a drive would buy. Pure: no clock, no I/O besides
 * what an order reads; the same parameters and seed give the same result. Policy "clairfs" is the
 * daemon's own plan and the deciding half of its drive, the same object code. The model:
 * src/sim/README.md. */
#ifndef CLAIRFS_SIM_H
#define CLAIRFS_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/conf.h"
#include "clairfs/base/err.h"
#include "clairfs/order.h"

struct tape;

/* One value per row of sim_option_table; workload files and the command line set the same names. */
struct sim_params {
	uint64_t samples, sample_bytes, sample_bytes_stdev;
	char *order; /* NULL: torch-distributed with `seed` */
	uint64_t epochs, nodes, ranks, jobs, seed;
	uint64_t cache_bytes, store_bytes, stage_bytes; /* bytes; 0: the fraction counts */
	double cache_fraction, store_fraction;          /* of the dataset */
	double source_latency_ms, source_latency_sigma, source_mbps;
	uint64_t source_parallel, inflight, window;
	double burst_amplitude, burst_period_s, outage_at_s, outage_s;
	double store_latency_ms, store_mbps;
	double hit_us, upcall_us;
	uint64_t batch, workers, prefetch_factor;
	double compute_ms, decode_ms;
	uint64_t valid_samples, valid_every; /* read in one order behind every so many epochs */
	/* No option: what a measured dataset tells an order about its files; NULL: there is none,
	 * orders know numbers only. Used while a setup is made. */
	const struct order_params *files;
	/* No options either: records the plan of policy clairfs (NULL: nobody does); the jobs begin
	 * so long after the caches, as they do when a mount is made early. */
	struct tape *tape;
	uint64_t start_ns;
	/* Bit n: at read n the kernel has dropped what was pushed, if it was; NULL: it never does.
	 */
	const uint64_t *dropped;
	uint64_t n_dropped; /* bits */
};
extern const struct conf_table sim_option_table;

/* A parameter set that has been checked, with its dataset and orders. */
struct sim_setup;
/* `take_size` (heap, bytes of each of params->samples, and without `files` of the validation set
 * behind them; NULL: made from sample_bytes and its
 * deviation) is consumed in every case. -EINVAL with one line for what is impossible, -ENOMEM, and
 * what the order says. `params` is copied but for the text, which must outlive the setup. */
int sim_setup_new(const struct sim_params *params, uint64_t *take_size, struct sim_setup **ret,
		  struct err *err) MUST_USE;
void sim_setup_free(struct sim_setup *setup);
/* The same setup with another size of cache and store. -EINVAL when no sample fits. */
int sim_setup_resize(struct sim_setup *setup, uint64_t cache_bytes, uint64_t store_bytes,
		     struct err *err) MUST_USE;

struct sim_facts {
	uint64_t samples, dataset_bytes, largest_bytes; /* of the dataset */
	uint64_t cache_bytes, store_bytes, stage_bytes;
	uint64_t ranks, jobs, world, epochs;
	uint64_t reads; /* samples that one epoch of one job reads on this node */
	uint64_t valid_reads, valid_every; /* and of the validation set behind it; 0: none */
	double bytes_per_s;                /* the node's source, on average */
	double need_bytes_per_s;           /* what all jobs would take if nothing ever stalled */
	const char *order;                 /* canonical spec of the first job */
};
void sim_setup_facts(const struct sim_setup *setup, struct sim_facts *ret);

/* The names that sim_run takes, NULL-terminated. */
const char *const *sim_policies(void);

/* What happened in one epoch; counts are sums over the jobs, times their mean. Every read is in
 * exactly one class. */
enum sim_class { SIM_STAGED, SIM_CACHE, SIM_LATE, SIM_STORE, SIM_MISS, SIM_CLASSES };
extern const char *const sim_class_names[]; /* "staged" "cache" "late" "store" "miss" */
struct sim_epoch {
	uint64_t reads, read_class[SIM_CLASSES];
	uint64_t source_reads, source_bytes; /* asked of the source: prefetched, or missed */
	uint64_t store_writes, store_write_bytes;
	double seconds, stall_seconds, compute_seconds;
	double bound_seconds; /* no cache of this size can end the epoch earlier */
	/* Of these, in the validation behind the epoch. */
	uint64_t valid_reads;
	double valid_seconds, valid_stall_seconds, valid_compute_seconds;
};
struct sim_result {
	const char *policy;
	uint64_t n_epochs;
	struct sim_epoch *epoch; /* heap */
};
void sim_result_fini(struct sim_result *result);
/* 1 - source reads / reads over epochs [from, n_epochs), never below 0. */
double sim_hit_ratio(const struct sim_result *result, uint64_t from);
/* Stall in percent of compute time, likewise; and of the bound. */
double sim_stall_pct(const struct sim_result *result, uint64_t from);
double sim_bound_stall_pct(const struct sim_result *result, uint64_t from);
/* Of the validations alone. */
double sim_valid_stall_pct(const struct sim_result *result, uint64_t from);

/* Called after each epoch of the first job. NULL: nobody wants to know. */
struct sim_progress {
	void (*fn)(void *ctx, const char *policy, uint64_t epoch, uint64_t epochs);
	void *ctx;
};
/* Runs one policy from a cold cache. "bound" gives the lower bound as if it were a policy. -EINVAL:
 * no such policy; -EOVERFLOW: too large for this policy; -ENOMEM; errors of the order. */
int sim_run(const struct sim_setup *setup, const char *policy, const struct sim_progress *progress,
	    struct sim_result *ret, struct err *err) MUST_USE;

/* Makes a job shorter without changing its character: fewer samples, with cache, store, window,
 * bursts and outage in proportion, for questions that need many runs. Jobs with an order of their
 * own stay as they are. Returns the factor (1: nothing was done); *size (NULL, or heap and
 * replaced) goes along. */
uint64_t sim_shorten(struct sim_params *params, uint64_t **size);

/* What memory and a drive would buy. */
enum sim_verdict {
	SIM_HELPS,      /* the sizes below reach the target */
	SIM_NOT_NEEDED, /* without clairfs the stall is within the target */
	SIM_NOT_ENOUGH, /* not even a cache of everything reaches it */
};
struct sim_size {
	uint64_t cache_bytes, store_bytes;
	double stall_pct, epoch_seconds, hit_ratio; /* epochs after the first, if there are any */
	double first_stall_pct;                     /* of the first */
};
#define SIM_STEPS 16
struct sim_advice {
	enum sim_verdict verdict;
	char why[640]; /* a few sentences */
	double target_pct;
	uint64_t memory_bytes;         /* of the node */
	struct sim_size without, full; /* page cache of all memory; everything cached */
	/* Smallest: memory alone; little memory and a store (of 0: then it is the same). */
	struct sim_size memory, drive;
	struct sim_size step[SIM_STEPS]; /* memory alone, step_bytes more each */
	uint64_t step_bytes;
	uint32_t n_steps;
	uint64_t shortened; /* factor, see sim_shorten */
};
/* Simulates with other sizes than params say. take_size as for sim_setup_new. -EINVAL also for a
 * job without compute time, which has no stall to speak of. */
int sim_advise(const struct sim_params *params, uint64_t *take_size, double target_pct,
	       uint64_t memory_bytes, const struct sim_progress *progress, struct sim_advice *ret,
	       struct err *err) MUST_USE;

#endif
