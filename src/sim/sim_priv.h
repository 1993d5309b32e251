/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the simulator share. One run is one object (struct run) that nothing else
 * knows of: jobs with their loaders (loader.c) read samples from models (struct model: a cache
 * under one policy), models ask devices (device.c) for bytes, and a heap of events (run.c) says
 * what happens next. Single-threaded; many runs may exist at once. */
#ifndef CLAIRFS_SIM_PRIV_H
#define CLAIRFS_SIM_PRIV_H

#include <assert.h>

#include "clairfs/base/bitmap.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/ids.h"
#include "clairfs/base/mem.h"
#include "clairfs/base/units.h"
#include "clairfs/order.h"
#include "clairfs/sim.h"

#define NONE UINT32_MAX
#define QUANTILES 4096u

struct sim_setup {
	struct sim_params p;
	uint32_t n;     /* units; the same as samples where none is cut */
	uint64_t *size; /* [n] */
	uint64_t total, largest, smallest;
	uint64_t largest_sample;
	struct unit_map map;
	uint32_t *first; /* of the map, or NULL */
	uint64_t cache_bytes, store_bytes, stage_bytes;
	struct order **order; /* [jobs] */
	struct order_spec **spec;
	uint32_t ranks, batch, workers, prefetch_factor;
	uint64_t epochs, world, reads;
	uint32_t *valid; /* [n_valid] what this node reads between epochs, in this order */
	uint64_t n_valid, n_valid_units;
};

/* Without a look into memory where all are alike. */
static inline uint64_t setup_size(const struct sim_setup *s, uint32_t unit)
{
	return s->smallest == s->largest ? s->largest : s->size[unit];
}

/* --- run.c: events and requests --- */

enum ev_kind {
	EV_READ,  /* a worker has read and decoded its sample */
	EV_STEP,  /* a job has computed with a batch */
	EV_DONE,  /* a device has answered a request */
	EV_ROUND, /* a model wants to decide */
};

struct ev {
	uint64_t at;
	uint32_t seq, what; /* equal times are served in order; what: kind and index */
};

enum request_kind { REQ_DEMAND, REQ_AHEAD, REQ_PIN };
struct request {
	uint32_t sample, waiter,
		next; /* waiter: list of workers; next: free list or device queue */
	uint16_t model, job;
	uint8_t kind;
	bool is_store, is_opened, is_planned; /* planned: a demand read that the plan wants, too */
	uint64_t issued_ns;
};

/* Source and store: `parallel` requests at once, one link, then a latency of its own each. */
struct device {
	double ns_per_byte, link_free;
	double amplitude, period_ns, outage_from, outage_to;
	const double *latency; /* [QUANTILES] ns */
	uint32_t parallel, inflight, head, tail;
};

enum where {
	IN_CACHE = 1, /* bytes are in memory */
	FETCHING = 2, /* a request under way; the bits above WHERE_SHIFT are the request */
	IN_STORE = 4,
	STAGED = 8,
	STAGING = 16,
	FRESH = 32, /* prefetched and not read yet */
	PLAIN = 64, /* in memory because somebody read it, as long as nothing else needs the room */
	WHERE_SHIFT = 7,
};

struct run;
struct answer {
	uint64_t ns;      /* the read takes this long */
	uint32_t request; /* or is over with this request; NONE */
};

struct model;
/* How a model works: cached.c for all ordinary policies, clairfs.c for the plan. */
struct driver_ops {
	int (*init)(struct model *m, struct err *err);
	void (*fini)(struct model *m);
	void (*begin)(struct model *m, uint32_t job); /* an epoch of the job begins; NULL */
	struct answer (*read)(struct model *m, uint32_t job, uint64_t pos, uint32_t sample);
	void (*done)(struct model *m, uint32_t request);
	void (*round)(struct model *m); /* NULL: never asks for it */
};

/* A policy of cached.c: what to keep of what was read, and what leaves first. One file each. */
struct policy_ops {
	const char *name;
	const struct driver_ops *driver;
	bool is_ahead;     /* prefetches `window` samples */
	bool is_reserving; /* memory for what is prefetched is set aside: nothing kept ever leaves
			    */
	int (*init)(struct model *m, struct err *err);
	void (*fini)(struct model *m);
	/* The sample was read (it may be kept or not): position `pos` of job's epoch. NULL. */
	void (*read)(struct model *m, uint32_t job, uint64_t pos, uint32_t sample);
	bool (*wants)(struct model *m, uint32_t sample); /* NULL: everything */
	void (*keep)(struct model *m, uint32_t sample);
	void (*used)(struct model *m, uint32_t sample); /* read, and it was kept */
	void (*drop)(struct model *m, uint32_t sample);
	/* Who makes room for this sample; NONE: nobody. `due`: see model_key. */
	uint32_t (*victim)(struct model *m, uint64_t due);
	/* Value of a use: of position `pos` (in the line of the job's two epochs). NULL: 0. */
	uint64_t (*due)(struct model *m, uint32_t job, uint64_t pos);
	uint64_t (*next_due)(struct model *m, uint32_t sample); /* after the read just done */
};

struct model {
	struct run *run;
	const struct policy_ops *ops;
	uint32_t index, *where; /* [n] enum where */
	uint64_t capacity;
	void *state;  /* of the driver */
	void *policy; /* of the policy */
};

struct worker {
	uint32_t job, rank, next_batch, batch, at, count, waiter;
	uint32_t unit, units; /* of the sample it reads: which, and how many there are */
	bool is_busy;
};

struct rank_state {
	uint32_t received, limit, n_batches; /* batches below limit may be worked on */
	uint64_t samples;
	uint32_t *left; /* [workers * prefetch_factor] samples missing of a batch */
	bool is_waiting;
};

struct job {
	struct order_epoch *ep, *next; /* in units; next: NULL in the last epoch */
	struct order_epoch *dealt, *next_dealt; /* in samples; the same where none is cut */
	uint64_t start;                         /* where ep begins */
	uint64_t index, from, end, steps, step; /* index: of the epoch, from 0; end: of what is
						 * read now, the epoch or the validation */
	bool is_validating;
	uint64_t began_ns, waiting_since_ns, stall_ns;
	uint32_t n_received;
	struct worker *worker;   /* [ranks * workers] */
	struct rank_state *rank; /* [ranks] */
	struct model *model;
	bool is_over;
};

struct run {
	const struct sim_setup *s;
	uint64_t now, random;
	struct ev *heap;
	uint32_t n_heap, heap_size, seq;
	struct request *request;
	uint32_t n_requests, free_request;
	struct device source, store;
	double source_latency[QUANTILES], store_latency[QUANTILES];
	uint32_t n_jobs, n_models, jobs_left;
	struct job *job;
	struct model *model;
	struct sim_result *result;
	const struct sim_progress *progress;
	uint64_t hit_ns, upcall_ns, decode_ns, compute_ns;
	int rc; /* first error; the run ends */
	struct err *err;
};

uint64_t sim_mix(uint64_t x);
uint64_t run_random(struct run *run);
void run_fail(struct run *run, int rc);
void run_push(struct run *run, uint64_t at, enum ev_kind kind, uint32_t index);
/* A request to the source or the store; EV_DONE comes to the model. NONE after out of memory. */
uint32_t run_request(struct model *m, uint32_t job, uint32_t sample, enum request_kind kind,
		     bool is_store);
/* Its readers go on `extra_ns` later. */
void run_wake(struct run *run, uint32_t request, uint64_t extra_ns);
static inline struct sim_epoch *run_epoch(struct run *run, uint32_t job)
{
	return &run->result->epoch[run->job[job].index];
}
static inline uint32_t where_request(uint32_t where)
{
	return where >> WHERE_SHIFT;
}

/* device.c */
void device_init(struct device *d, const double *latency, double mbps, uint64_t parallel);
/* When `bytes` that may go from `at` on have gone. */
double device_transfer(const struct device *d, double at, double bytes);
void device_source(struct device *d, const struct sim_params *p, const double *latency);
void device_submit(struct run *run, struct device *d, uint32_t request);
void device_done(struct run *run, struct device *d);
/* [QUANTILES] of a lognormal distribution with this mean; sigma 0: the mean. */
void quantiles_lognormal(double *out, double mean, double sigma);

/* loader.c */
int loader_init(struct run *run, uint32_t job);
void loader_fini(struct job *job);
void loader_begin(struct run *run, uint32_t job); /* the next epoch */
void loader_read_done(struct run *run, uint32_t worker);
void loader_step_done(struct run *run, uint32_t job);
/* After this read: a sample is decoded when all of it was read. */
uint64_t loader_decode_ns(const struct run *run, const struct worker *worker);

/* setup.c */
/* With what the validation behind it reads, if there is one, from setup_end on. */
struct order_epoch *setup_dealt(const struct sim_setup *s, uint32_t job, uint64_t index,
				struct err *err);
/* Where in it the job begins, and the validation. */
uint64_t setup_start(const struct sim_setup *s, uint32_t job, uint64_t index);
uint64_t setup_end(const struct sim_setup *s, const struct order_epoch *dealt, uint64_t index);
/* Behind an epoch; false: no memory. */
bool setup_append(struct order_epoch *ep, const uint32_t *sample, uint64_t n);

/* units.c */
/* Cuts the samples when all else of the setup is known. */
int setup_cut(struct sim_setup *s, struct err *err);
/* The same epoch in units; it begins at its `start`. */
struct order_epoch *setup_epoch(const struct sim_setup *s, uint32_t job, uint64_t index,
				struct err *err);
struct order_epoch *setup_expand(const struct sim_setup *s, uint32_t job, uint64_t index,
				 const struct order_epoch *dealt, struct err *err);
/* Where the job begins in what setup_epoch gives. */
uint64_t setup_from(const struct sim_setup *s, uint32_t job, uint64_t index,
		    const struct order_epoch *ep);
/* The position in ep of a unit of the sample at this position. */
uint64_t setup_unit_pos(const struct order_epoch *dealt, const struct order_epoch *ep, uint64_t pos,
			uint32_t unit);

/* run.c */
int run_policy(const struct sim_setup *s, const struct policy_ops *ops,
	       const struct sim_progress *progress, struct sim_result *result, struct err *err);

/* bound.c */
int bound_run(const struct sim_setup *s, struct sim_result *result, struct err *err);

extern const struct driver_ops cached_driver, clairfs_driver;
extern const struct policy_ops policy_clairfs, policy_lru, policy_fifo, policy_clock, policy_random,
	policy_never_evict, policy_nopfs, policy_pagecache, policy_window, policy_belady;

#endif
