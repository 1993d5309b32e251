/* SPDX-License-Identifier: Apache-2.0 */
/* Who tells an order, and whose orders are in force. Part of daemon_priv.h; rules: "Whose order it
 * is" in src/README.md. */
#ifndef CLAIRFS_DAEMON_TOLD_H
#define CLAIRFS_DAEMON_TOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/thr.h"
#include "clairfs/cache.h"
#include "clairfs/order.h"

struct wire;
struct fs_told;

#define TELLER_ABOVE 24
#define TELLERS_BESIDE 64
#define JOB_READERS 16

/* With the time of its start a pid is no other process's. */
struct process_id {
	int pid;
	uint64_t start;
};

/* The process that an order is of: the one that told it, or the one that had it told. */
struct teller {
	struct process_id id; /* pid 0: nobody knows (an option, a process out of sight) */
	int session;
	bool is_itself; /* it told it, not a command that it ran */
	/* Of a reader: its parent has the same name and session, so it may be a worker of that, which
	 * multiprocessing has spawned. */
	bool is_spawned;
	/* Its parent, whoever started that, and so on, but for the first of all. */
	struct process_id above[TELLER_ABOVE];
	uint32_t n_above;
};

/* teller.c: what /proc says. Any thread; never blocks. */
/* is_passing: the thread belongs to a command that is over at once, and its parent is meant. */
void teller_find(int tid, bool is_passing, struct teller *ret);
/* Who reads, from one of its threads: the process, or the one that forked it to read for it (the
 * workers of a loader), as far up as nobody has executed another program since. */
void teller_find_reader(int tid, struct teller *ret);
/* Whether somebody has started both, or one the other. Not of those that nobody knows. */
bool teller_has_common(const struct teller *a, const struct teller *b);
bool teller_is_alive(const struct teller *t);
bool process_is_alive(const struct process_id *id);
/* Whether it is that process, or below it. */
bool teller_is_of(const struct teller *t, const struct process_id *process);
/* Whether it is the same process. */
bool teller_is_itself(const struct teller *now, const struct teller *then);
/* Whether both are of one job; `then` may be gone. Not of those that nobody knows. */
bool teller_is_same(const struct teller *now, const struct teller *then);
/* Whether both may be of one job when they tell the same order: also two that were started by the
 * same process or have the same session, and are both there. Not of those that nobody knows. */
bool teller_is_related(const struct teller *now, const struct teller *then);

struct told_job {
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
struct told_jobs {
	struct told_job job[PLAN_JOBS];
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

/* told_jobs.c */
void told_jobs_init(struct told_jobs *jobs);
void told_jobs_fini(struct told_jobs *jobs);
/* Looks once a second for jobs that are over. stop: also when it was never started. */
int told_jobs_start(struct wire *w, struct err *err) MUST_USE;
void told_jobs_stop(struct wire *w);
/* The order of the start, before there is a cache. */
int told_jobs_begin(struct wire *w, const struct order_spec *spec, const struct order *order,
		    struct err *err) MUST_USE;
/* All below with change_mu held; they wait for the planner. */
/* An order of this job's: in place of its last one, or one more. */
int told_jobs_put(struct wire *w, const struct order_spec *spec, const struct teller *who,
		  struct order *take_order, struct err *err) MUST_USE;
/* The first one's files are numbered in another way; whose it is does not change. */
int told_jobs_put_first(struct wire *w, const struct order_spec *spec, struct order *take_order,
			struct err *err) MUST_USE;
/* An order that was found, of the job *id or, if that is not there, of one more; is_only: then in
 * place of the first one's, whoever told that. *id: of the job from here on. -ENOSPC: there is no
 * room for one more. */
int told_jobs_put_found(struct wire *w, uint32_t *id, bool is_only, const struct order_spec *spec,
			struct order *take_order, struct err *err) MUST_USE;
/* A process that reads by the order that was found for this job. */
void told_jobs_add_reader(struct wire *w, uint32_t id, const struct teller *reader);
/* Whether all jobs there are have processes that are known, and this is none of them. Of a process
 * that nobody knows: never. */
bool told_jobs_is_stranger(struct wire *w, const struct teller *who);
/* Whether nobody told the first one. Without change_mu. */
bool told_jobs_is_found(struct wire *w);
/* GPU wait is accounted for the first one. */
void told_jobs_account(struct wire *w);
/* Found, and nobody was seen to read by it: the kernel has the pages, or the processes are out of sight. */
bool told_job_is_unseen(const struct told_job *job);
/* Whether the job is over, of which the cache says this. */
bool told_job_is_over(const struct told_job *job, const struct cache_job *view, uint64_t now_ns);
/* Takes the order of this job (of that name, if not NULL) back. */
int told_jobs_withdraw(struct wire *w, const char *name, const struct teller *who,
		       struct err *err) MUST_USE;

#endif
