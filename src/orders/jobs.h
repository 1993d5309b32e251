/* SPDX-License-Identifier: Apache-2.0 */
/* Whose orders are in force: the table of jobs. Part of orders_priv.h; rules: "Whose order it is" in
 * src/README.md. */
#ifndef CLAIRFS_ORDERS_JOBS_H
#define CLAIRFS_ORDERS_JOBS_H

#include "clairfs/base/thr.h"
#include "clairfs/cache.h"
#include "clairfs/order.h"
#include "teller.h"

struct orders;

#define TELLERS_BESIDE 64
#define JOB_READERS 16

struct job {
	uint32_t id; /* of the cache's job */
	char *text;  /* its order's spec */
	char *name;  /* the spec's job=, or NULL */
	struct teller who;
	/* Others of this job that told the same: the ranks of a node. */
	struct process_id beside[TELLERS_BESIDE];
	uint32_t n_beside;
	struct order_info info; /* of the order, for the accounting; ranks are a copy */
	uint32_t *ranks;
	/* Of one that was found: the processes that read by it, as far as they are known. */
	struct process_id reader[JOB_READERS];
	struct process_id spawner[JOB_READERS]; /* whose worker that may be, or pid 0 */
	uint32_t n_readers;
	bool is_own_words; /* the mounting user's (option order), or made of them */
	bool is_found;     /* nobody told it */
	bool is_resident; /* its process told it itself, and was there when samples had been read */
	uint64_t gone_ns; /* since when none of its processes is there; 0: one is */
};

/* In the order in which the cache has them: the first one is "the order". Changed under change_mu
 * and order_mu, read under either. */
struct jobs {
	struct job job[PLAN_JOBS];
	uint32_t n, accounted; /* accounted: id of the job that GPU wait is accounted for */
	/* The first one has read the epoch that it told as a list, others are there, and its
	 * process has not told the next one yet: that comes first again. */
	bool is_first_away;
	struct process_id away;
	struct thr thr;
	struct mutex mu;
	struct cond cv;
	bool is_stopping; /* mu */
};

/* jobs.c */
void jobs_init(struct jobs *jobs);
void jobs_fini(struct jobs *jobs);
/* Looks once a second for jobs that are over. stop: also when it was never started. */
int jobs_start(struct orders *o, struct err *err) MUST_USE;
void jobs_stop(struct orders *o);
/* The order of the start, before there is a cache. */
int jobs_begin(struct orders *o, const struct order_spec *spec, const struct order *order,
		    struct err *err) MUST_USE;
/* All below with change_mu held; they wait for the planner. */
/* An order of this job's: in place of its last one, or one more. */
int jobs_put(struct orders *o, const struct order_spec *spec, const struct teller *who,
		  struct order *take_order, struct err *err) MUST_USE;
/* The first one's files are numbered in another way; whose it is does not change. */
int jobs_put_first(struct orders *o, const struct order_spec *spec, struct order *take_order,
			struct err *err) MUST_USE;
/* An order that was found, of the job *id or, if that is not there, of one more; is_only: then in
 * place of the first one's, whoever told that. *id: of the job from here on. -ENOSPC: there is no
 * room for one more. */
int jobs_put_found(struct orders *o, uint32_t *id, bool is_only, const struct order_spec *spec,
			struct order *take_order, struct err *err) MUST_USE;
/* A process that reads by the order that was found for this job. */
void jobs_add_reader(struct orders *o, uint32_t id, const struct teller *reader);
/* Whether all jobs there are have processes that are known, and this is none of them. Of a process
 * that nobody knows: never. */
bool jobs_is_stranger(struct orders *o, const struct teller *who);
/* GPU wait is accounted for the first one. */
void jobs_account(struct orders *o);
/* Found, and nobody was seen to read by it: the kernel has the pages, or the processes are out of sight. */
bool job_is_unseen(const struct job *job);
/* Whether the job is over, of which the cache says this. */
bool job_is_over(const struct job *job, const struct cache_job *view, uint64_t now_ns);
/* Takes the order of this job (of that name, if not NULL) back. */
int jobs_withdraw(struct orders *o, const char *name, const struct teller *who,
		       struct err *err) MUST_USE;

#endif
