/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this module share. */
#ifndef CLAIRFS_ORDERS_PRIV_H
#define CLAIRFS_ORDERS_PRIV_H

#include <stdatomic.h>
#include <stdlib.h>

#include "clairfs/base/cleanup.h"
#include "clairfs/base/thr.h"
#include "clairfs/dataset.h"
#include "clairfs/dataset/units.h"
#include "clairfs/orders.h"
#include "inbox.h"
#include "jobs.h"
#include "untold.h"

/* A list of samples in the making: numbers, or the bytes of a list file. A lane's thread's. */
struct told_list {
	uint8_t *data;
	uint64_t size, capacity; /* bytes */
	uint64_t token;
	unsigned width; /* of bytes: 4 or 8 when they are raw numbers, 0: a text */
	bool is_begun, is_bytes;
};

/* What carries orders out; as the functions of drive.h say. */
struct carrier {
	uint32_t (*get_jobs)(void *ctx, struct drive_job ret[PLAN_JOBS]);
	int (*add)(void *ctx, struct order *take_order, uint32_t instead_of, uint32_t *ret_id);
	int (*end)(void *ctx, uint32_t id, const char *why);
	int (*clear)(void *ctx); /* there is no order any more */
	uint32_t (*generation)(void *ctx);
	uint32_t (*last_opens)(void *ctx, struct sample_id *ret, uint32_t max);
	uint32_t (*reader_of)(void *ctx, struct sample_id sample);
	void (*cut)(void *ctx, struct entry_id entry);
	void (*come)(void *ctx, const struct unit_id *unit, size_t n);
};
extern const struct carrier carrier_drive; /* ctx: a struct drive */

struct orders {
	char *source, *mountpoint; /* absolute */
	struct dataset *dataset;
	struct clock *clock;
	uint64_t (*memory)(void); /* see order_params */
	struct order_spec *spec; /* of the start */
	struct order *order;     /* likewise */
	char *not_taken;         /* why there is none of the start, though one was said; NULL */
	struct orders_search search;
	struct orders_watch watch; /* first NULL: nobody's */
	const struct carrier *carrier; /* NULL: not yet */
	void *carrier_ctx;
	struct order_maker *maker; /* from orders_listen on */
	struct inbox inbox;
	struct thr thr; /* the owner */
	/* The owner's: */
	uint64_t now_ns, look_ns; /* of this step; when to look for jobs that are over */
	_Atomic bool is_none_told; /* the last word was that there is no order; read by anybody */
	struct untold *untold;    /* looks for orders that nobody told */
	struct renumber *renumber;
	struct strides *strides; /* looks for records in files that are cut; NULL: there are none */
	/* The lanes': */
	struct told_list list[ORDERS_LANES];
	/* Anybody's: */
	struct mutex order_mu; /* a leaf */
	struct orders_told told; /* order_mu */
	struct jobs jobs;      /* whose orders are in force; changed by the owner, under order_mu */
	_Atomic uint64_t numberings_tried; /* ways to number the files */
};

/* The owner: answers what it is asked, and looks at what it is time to look at. Returns when it wants to
 * be called again at the latest. Tests call it in place of a thread. */
uint64_t orders_step(struct orders *o, uint64_t now_ns);
/* Spec to order of this mount's dataset. It may read a file: never under a lock. */
int orders_make(struct orders *o, const struct order_spec *spec, struct order **ret,
		struct err *err) MUST_USE;
/* What is odd about an order, for the log: once, when it is put in force. */
void orders_log_note(const struct order_spec *spec, const struct order *order);
/* The first files of a dataset in their order, a few classes, look like all of them. */
bool orders_is_unshuffled(const char *text);

/* make.c: orders, when nobody may wait for ever for the file that one is read from. */
struct order_maker;
/* dirfd and what params refer to must hold until order_maker_free. */
int order_maker_new(int source_fd, const char *source, const char *mountpoint,
		    struct order_maker **ret, struct err *err) MUST_USE;
/* For whom an order is made. */
struct order_ask {
	unsigned lane;     /* below MAKE_LANES; each has a few threads that may be left behind */
	bool is_own_words; /* the mounting user's: any file; else those beneath the source */
	const _Atomic bool *is_gone; /* NULL: who asks waits to the end */
};
#define MAKE_LANE_OWN ORDERS_LANES /* found, or numbered anew */
#define MAKE_LANES (ORDERS_LANES + 1)
/* Like order_new, on a thread of its own. -ETIMEDOUT, -EBUSY: the files do not answer; -ECANCELED:
 * order_maker_quit was called; -EINTR: who asked is gone. Any thread. */
int order_make(struct order_maker *maker, const struct order_spec *spec,
	       const struct order_params *params, const struct order_ask *ask, struct order **ret,
	       struct err *err) MUST_USE;
/* Whoever waits in order_make returns, and all who come. NULL is fine. */
void order_maker_quit(struct order_maker *maker);
/* Waits a moment for the threads. False: one waits for its file for good, and what params refer to
 * must not be freed. */
bool order_maker_free(struct order_maker *maker) MUST_USE;

/* list.c */
void told_list_fini(struct told_list *list);
/* Puts what was told into params. */
void told_list_params(const struct told_list *list, struct order_params *params);
/* Takes a part and answers with its token. *ret: the order's spec after the last one, else NULL.
 * After an error the list is gone, but not after -ESTALE: it is somebody else's. */
int told_list_add(struct told_list *list, struct clairfs_list *part, uint32_t n_samples,
		  struct order_spec **ret, struct err *err) MUST_USE;

/* strides.c: records in files that are cut, which nobody told. */
struct strides;
/* *ret is NULL where no file is cut, or nothing is looked for. */
int strides_new(struct orders *o, struct strides **ret, struct err *err) MUST_USE;
int strides_start(struct strides *s, struct err *err) MUST_USE; /* NULL is fine, as below */
/* Nothing is looked for any more: cancels what is under way, waits for nothing. Any thread. */
void strides_quit(struct strides *s);
/* Ends the thread; also when it was never started. */
void strides_stop(struct strides *s);
void strides_free(struct strides *s); /* waits for searches, as infer_stop */
struct reads *strides_reads(const struct strides *s);
/* READs that found no room in the ring, so nobody looked at them. Any thread. */
uint64_t strides_lost(const struct strides *s);
/* What is known of each file, an array; NULL when out of memory. Any thread, never waits for a search. */
json_t *strides_json(struct strides *s);

/* strides_say.c */
struct infer_record_file;
/* Whether an order of its records is in force; which need not be the one that was found last. */
struct strides_state {
	bool is_followed, is_lost; /* is_lost: but what is read is not where it says */
	char spec[INFER_SPEC_MAX]; /* of the order that is in force */
	const char *why_not;       /* else; static words, or NULL: nobody has tried */
};
/* One of them, as an object with words for a person; NULL when out of memory. state NULL: nobody has tried to
 * follow it. Any thread. */
json_t *strides_say(const struct orders *o, const struct infer_record_file *file,
		    const struct strides_state *state);
/* Whether the dataset has a table of these very records. */
bool strides_has_table(const struct dataset *ds, const struct infer_record_file *file);
/* Whether everybody who sees the mount may hear the name of that file. */
bool strides_may_name(const struct dataset *ds, struct entry_id e);

/* records_found.c */
/* Records of a file, and how an order numbers them. */
struct records_found {
	struct dataset_found at; /* where those are that the order numbers */
	uint32_t n;
	const uint32_t *begun; /* numbers of those that were read last, in that order */
	size_t n_begun;
	uint32_t id; /* the job whose order it is, DRIVE_NO_JOB: of one more; then what it is now */
};
/* Has the order of that spec, of the records, put in force, and waits for that. Not now: -EBUSY, another one is;
 * -ENOSPC, there are as many jobs as there may be; -ECANCELED, it is being stopped. Never: -ENOTSUP, -E2BIG, -EEXIST,
 * -EINVAL, -ENOMEM. On cl-strides. */
int records_follow(struct orders *o, const char *spec, struct records_found *found,
		   struct err *err) MUST_USE;
/* That job is there, and its order is one of those. ret: what the drive says of it; NULL is fine. Any thread. */
bool records_are_followed(struct orders *o, uint32_t id, struct drive_job *ret);
int records_obey(struct orders *o, struct message *m) MUST_USE; /* the owner's half */
/* An order of the dataset's table that was told: where that is of a file whose records were found, it has
 * these as units. The owner's. */
void records_take_units(struct orders *o, struct order *order);

/* renumber.c: other numbers of the files, while the order is lost. */
int renumber_start(struct orders *o, struct err *err) MUST_USE;
/* The owner's; returns when to look again. r NULL: never. */
uint64_t renumber_step(struct renumber *r, uint64_t now_ns);
/* With the inbox closed; also when it was never started. */
void renumber_stop(struct orders *o);

#endif
