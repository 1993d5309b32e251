/* SPDX-License-Identifier: Apache-2.0 */
/* The one owner of the jobs that read on a mount and of their orders: told (by an option, or through
 * the mount), found by what is opened, numbered anew, ended. The drive carries out what is in force;
 * whoever else wants to know asks here. "Whose order it is" in src/README.md has the rules. */
#ifndef CLAIRFS_ORDERS_H
#define CLAIRFS_ORDERS_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/buf.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/err.h"
#include "clairfs/drive.h"
#include "clairfs/infer.h"
#include "clairfs/order.h"

struct clairfs_list;
struct dataset;
struct metrics;

/* What order_new needs to know about a dataset, which must live as long as *ret is used. */
void orders_dataset_params(struct dataset *dataset, struct order_params *ret);

/* Those who may tell have a lane each: nobody waits for another's files. */
#define ORDERS_LANES 2

struct orders;
struct orders_params {
	const char *source, *mountpoint; /* absolute; copied */
	struct dataset *dataset;         /* borrowed, until orders_free says so */
	struct clock *clock;             /* borrowed */
	uint64_t (*memory)(void);        /* see order_params; NULL: any */
};
int orders_new(const struct orders_params *params, struct orders **ret, struct err *err) MUST_USE;

/* --- Before the mount answers, in this order; one thread. */
/* The order of the start, in the words of the mounting user: it may name any file. One of records
 * needs a table of them, and that is gone when one of its files was changed: this is no error but a
 * warning, and there is no order then. */
int orders_begin(struct orders *o, const struct order_spec *spec, struct err *err) MUST_USE;
/* That one, for drive_params, or NULL; it lives until orders_free. */
struct order *orders_first(const struct orders *o);

/* How orders are looked for that nobody told. */
struct orders_search {
	enum infer_effort effort;
	unsigned threads;        /* of a search of all seeds */
	uint32_t world;          /* ranks of the job as its launcher says, 0: unknown */
	uint64_t ram;            /* the mount's; shares of it are taken */
	uint64_t around;         /* bytes that the kernel reads before and behind what is missing of a mapped file */
	struct metrics *metrics; /* borrowed */
	const char *snapshot_dir; /* as the mount was told, for words; borrowed. NULL: it was not */
};
int orders_search(struct orders *o, const struct orders_search *search, struct err *err) MUST_USE;

/* For cache_params, after orders_search: where READs of files that are cut are noted, for who looks for records in
 * them; it lives until orders_free. NULL: no file is cut, or nobody looks. */
struct reads *orders_reads(const struct orders *o);

/* Who accounts for the first job. Functions of any thread, that must not block for long. */
struct orders_watch {
	/* This order is in force (NULL: none) since that generation of the drive. of_records: it numbers
	 * records, each of which is a unit, and info is of these. */
	void (*first)(void *ctx, const struct order_info *info, bool of_records, uint32_t generation);
	/* Whether an order that somebody has told is in force, of any job; at each change of orders, also where it is
	 * as before. */
	void (*told)(void *ctx, bool is_told);
	/* Orders up to that generation that `first` was not told of are other jobs'. */
	void (*others)(void *ctx, uint32_t generation);
	/* The thread whose READ was told last, 0: none yet. */
	uint32_t (*last_reader)(void *ctx);
	void *ctx;
};
/* Copied. It is told of the order of the start at once. */
void orders_set_watch(struct orders *o, const struct orders_watch *watch);
/* The drive that carries orders out, made with orders_first; borrowed. */
void orders_set_drive(struct orders *o, struct drive *drive);
/* From here on somebody may tell an order: files are read without anybody waiting for them for
 * ever. */
int orders_listen(struct orders *o, struct err *err) MUST_USE;

/* --- While it is mounted. */
/* Starts the threads; after drive_start. */
int orders_start(struct orders *o, struct err *err) MUST_USE;
/* Nobody waits for files any more, and no records are looked for, as the mount is being taken away. NULL is fine,
 * as below. */
void orders_quit(struct orders *o);
/* Ends the threads; waits for searches, as infer_stop. Before drive_stop. Also when it was never
 * started. */
void orders_stop(struct orders *o);
/* After drive_free. False: a thread still waits for its file, and the dataset and its source must
 * not be freed. */
bool orders_free(struct orders *o) MUST_USE;

/* --- What happens. */
/* For drive_watch: planner's thread, never blocks. */
void orders_opened(struct orders *o, const struct drive_open *open);
void orders_planned(struct orders *o, enum plan_state state);

/* What somebody says through the mount. */
struct orders_said {
	uint32_t uid;
	int tid;        /* the thread that says it, which waits meanwhile; 0: not known */
	bool is_lookup; /* by a look at a name, as of cat: most often a command of its own */
	unsigned lane;  /* below ORDERS_LANES */
	const _Atomic bool *is_gone; /* it does not wait any more; NULL: it always does */
	const char *text; /* a spec, "none", "none:job=NAME", "?SPEC" or "?"; of a list: keys, or "" */
	const char *job;  /* the name that it says, any bytes; "": it says none */
	struct clairfs_list *list; /* NULL: none; the token is to be answered */
};
/* 0 or a negative errno; answer: the line that is shown in either case. One thread of each lane; waits
 * for files and the planner. */
int orders_announce(struct orders *o, const struct orders_said *said, struct buf_writer *answer);

/* --- What is so. Any thread, also the reactor; never blocks. */
/* A copy of the spec of the first job's order, heap, or NULL. */
char *orders_text(struct orders *o);
/* Why the order of the start was not taken, borrowed until orders_free, or NULL. */
const char *orders_not_taken(const struct orders *o);
/* Whether nobody told it. */
bool orders_is_found(struct orders *o);
/* How many ways to number the files were tried, as the order was lost. */
uint64_t orders_numberings_tried(const struct orders *o);
/* The virtual files "control" and "answer"; ctx is a struct orders. */
int orders_render_text(void *ctx, struct buf_writer *out);
int orders_render_answer(void *ctx, struct buf_writer *out);
/* An order in force. */
struct orders_job {
	char *spec, *name; /* heap; name NULL: it said none */
	int pid;           /* whose it is; 0: not known */
	bool is_found;     /* nobody told it */
	bool is_accounted; /* it is the first one */
	struct drive_job at;
};
/* Copies of all of them, in the order they came, and how many; less when out of memory. Texts are
 * the caller's. */
uint32_t orders_get_jobs(struct orders *o, struct orders_job ret[PLAN_JOBS]);
/* What has been told through the mount. */
struct orders_told {
	uint64_t n, n_refused;
	char *answer; /* to the last one, heap, or NULL */
	bool is_refused;
};
/* A copy: the answer is the caller's. */
void orders_get_told(struct orders *o, struct orders_told *ret);
/* The object of stats.json that says what is looked for and found; NULL when out of memory. */
json_t *orders_search_json(struct orders *o);

#endif
