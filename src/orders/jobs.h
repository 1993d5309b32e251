/* SPDX-License-Identifier: Apache-2.0 */
/* Whose orders are in force: the table of jobs. Part of orders_priv.h; rules: "Whose order it is" in
 * src/README.md. */
#ifndef CLAIRFS_ORDERS_JOBS_H
#define CLAIRFS_ORDERS_JOBS_H

#include "clairfs/drive.h"
#include "clairfs/order.h"
#include "teller.h"

struct orders;

#define TELLERS_BESIDE 64
#define JOB_READERS 16
#define NOBODY UINT32_MAX /* in place of an index */

/* Who tells an order. User and process are the kernel's word, the name is its own: of no other user's
 * jobs. */
struct announcer {
	uint32_t uid;          /* NOBODY: of an order that was found, which nobody told */
	const char *name;      /* checked by order_job_check; NULL: the job that has none */
	bool is_given;         /* the name, by job=; else it is what whoever tells goes by */
	struct teller process; /* that is to be there as long as the job is, as far as it is known */
};

/* Of one that is in the table; "Life of an order" in src/README.md has the picture. */
enum job_state {
	JOB_TOLD,    /* in force; little was read of it */
	JOB_RUNNING, /* it is read */
	JOB_GONE,    /* its processes are gone, or it has none yet: over in a while, if none comes */
};

struct job {
	uint32_t id; /* of the drive's job */
	char *text;  /* its order's spec */
	struct announcer by; /* its name is the heap's */
	/* Others that told the same under this name: the ranks of a node. */
	struct process_id beside[TELLERS_BESIDE];
	uint32_t n_beside;
	struct order_info info; /* of the order, for the accounting; ranks are a copy */
	bool is_in_records;     /* it is of records, which are units */
	uint32_t *ranks;
	/* Of one that was found: the processes that read by it, as far as they are known. */
	struct process_id reader[JOB_READERS];
	struct process_id spawner[JOB_READERS]; /* whose worker that may be, or pid 0 */
	uint32_t n_readers;
	bool is_own_words; /* the mounting user's (option order), or made of them */
	bool is_found;     /* nobody told it */
	bool is_of_records; /* nor does it number files: what it numbers was found, too */
	/* The owner's own: */
	enum job_state state;
	bool is_resident; /* its process told it itself, and was there when samples had been read */
	uint64_t gone_ns; /* JOB_GONE: since when */
};

/* In the order in which the drive has them: the first one is "the order". Changed by the owner
 * under order_mu, read by anybody under that. */
struct jobs {
	struct job job[PLAN_JOBS];
	uint32_t n, accounted; /* accounted: id of the job that GPU wait is accounted for */
	/* The first one has read the epoch that it told as a list, others are there, and it has not
	 * told the next one yet: that comes first again. */
	bool is_first_away;
	struct announcer away;
};

/* jobs.c */
void jobs_init(struct jobs *jobs);
void jobs_fini(struct jobs *jobs);
/* The order of the start, before there is a drive. */
int jobs_begin(struct orders *o, const struct order_spec *spec, const struct order *order,
	       struct err *err) MUST_USE;
/* Records may have become units since. Set-up only. */
void jobs_cut(struct orders *o);
/* All below are the owner's; they wait for the planner. */
/* Ends jobs that are over: once a second. */
void jobs_look(struct orders *o);
/* An order of this job's: in place of its last one, or one more. */
int jobs_put(struct orders *o, const struct order_spec *spec, const struct announcer *by,
	     struct order *take_order, struct err *err) MUST_USE;
/* The first one's files are numbered in another way; whose it is does not change. -EAGAIN without
 * words: its order is not `before` any more. */
int jobs_put_first(struct orders *o, const char *before, const struct order_spec *spec,
		   struct order *take_order, struct err *err) MUST_USE;
/* An order that was found, of the job *id or, if that is not there, of one more; is_only: then in
 * place of the first one's, whoever told that. *id: of the job from here on. -ENOSPC: there is no
 * room for one more. */
int jobs_put_found(struct orders *o, uint32_t *id, bool is_only, const struct order_spec *spec,
		   struct order *take_order, struct err *err) MUST_USE;
/* An order of records that were found, of the job *id or, if that is not there, of one more. *id: of the
 * job from here on. -ENOSPC: there is no room for one more. */
int jobs_put_records(struct orders *o, uint32_t *id, const struct order_spec *spec,
		     struct order *take_order, struct err *err) MUST_USE;
/* A process that reads by the order that was found for this job. */
void jobs_add_reader(struct orders *o, uint32_t id, const struct teller *reader);
/* GPU wait is accounted for the first one. */
void jobs_account(struct orders *o);
/* Ends all jobs whose records were found; returns how many. why: as drive_end_order has it. */
int jobs_end_records(struct orders *o, const char *why, struct err *err) MUST_USE;
/* Takes the order of this job back; with no name given all of records that were found, if there are any. */
int jobs_withdraw(struct orders *o, const struct announcer *by, struct err *err) MUST_USE;
/* A list that was told through the mount: it has no name of its own, so all have one text. */
bool jobs_is_told_list(const char *text);
/* What the drive says of the job of that id, or NULL. */
const struct drive_job *jobs_view_of(const struct drive_job *views, uint32_t n, uint32_t id);

/* --- whose.c: indices into the table, or NOBODY. */
/* The same user and the same name: what one tells is the other's next order. */
bool announcer_is_same(const struct announcer *a, const struct announcer *b);
/* Nobody told its order: it is an option's, or was found. */
bool job_is_untold(const struct job *job);
/* Whose next order this is. */
uint32_t jobs_find(const struct jobs *t, const struct announcer *by);
/* The one that gives way to one more of this user's: of the user's own the one that has read nothing for the
 * longest time, else of nobody's (found); another user's only if it does not read by its order. NOBODY: none,
 * which holds for root's as well. */
uint32_t jobs_find_quietest(struct orders *o, const struct drive_job *views, uint32_t n_views, uint32_t uid);
/* Whether all jobs there are have processes that are known, and this is none of them. Of a process
 * that nobody knows: never. */
bool jobs_is_stranger(struct orders *o, const struct teller *who);

/* --- over.c: one job, of which the drive says this (view NULL: nothing). */
/* Since when nothing of it was read. */
uint64_t job_quiet_ns(const struct drive_job *view, uint64_t now_ns);
/* How many of those that told it are there. */
uint32_t job_count_alive(const struct job *job);
/* Looks for its processes. */
void job_see(struct job *job, const struct drive_job *view, uint64_t now_ns);
/* Found, and nobody was seen to read by it: the kernel has the pages, or the processes are out of
 * sight. */
bool job_is_unseen(const struct job *job);
/* Whether it is over, as far as it was seen. */
bool job_is_over(const struct job *job, const struct drive_job *view, uint64_t now_ns);

#endif
