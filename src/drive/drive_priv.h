/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the drive: the planner thread around the deciding half (clairfs/step.h), and the threads that carry
 * out what may take long. Locks: order_mu, then ask_mu; status_mu is a leaf. None is held over a call
 * of the cache, but order_mu over news_ask, which is a leaf. */
#ifndef CLAIRFS_DRIVE_PRIV_H
#define CLAIRFS_DRIVE_PRIV_H

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>

#include "clairfs/base/log.h"
#include "clairfs/base/queue.h"
#include "clairfs/base/thr.h"
#include "clairfs/dataset/units.h"
#include "clairfs/drive.h"
#include "clairfs/metrics/trace.h"
#include "clairfs/step.h"
#include "clairfs/tier.h"

enum { STAGERS_MAX = 8, WRITERS = 4 };

/* Answers one action of the plan; first member of every job, which is one heap block. */
struct completion {
	struct news_answer answer;
	struct plan_event event;
};

struct fetch_job { /* the plan's FETCH */
	struct completion completion;
	struct cache_fetch fetch; /* answered itself */
};

struct push_job { /* the plan's STAGE */
	struct completion completion;
	struct page_job job;
	bool may_be_whole; /* as the plan says */
};

struct pin_job { /* the plan's PIN */
	struct completion completion;
	struct list node;
};

struct epoch_job { /* the plan's EPOCH */
	struct completion completion;
	struct list node;
	struct order_ref *order; /* a reference */
};

enum request_kind {
	REQUEST_SET,   /* the order of the only job there is from now on */
	REQUEST_ADD,   /* one more job, or the next order of one */
	REQUEST_END,   /* a job is over */
	REQUEST_OPENS, /* asks for the last opens */
};

/* A new order, or a question, on its way to the planner; lives on the stack of who waits for it. */
struct order_request {
	enum request_kind kind;
	struct order_ref *order; /* NULL = none; the planner's once it has taken the request */
	uint32_t job;            /* ADD: in place of this one; END; then the id of the new one */
	const char *why;         /* END: what is said then; static, or NULL */
	struct unit_id *opens;
	uint32_t max_opens, n_opens;
	int status;
	bool is_done; /* ask_mu, like status */
};

struct drive {
	struct drive_params p;
	struct dataset *dataset;
	struct metrics *metrics;
	struct clock *clock;
	struct cache *cache;
	struct tier *keeper; /* NULL: nothing is kept beyond the arena */
	const struct stage_ops *stage;
	void *stage_ctx;
	struct news *news;
	struct step step; /* planner thread; made by drive_start, for as long as the drive is */
	struct step_hands hands;
	struct plan_status counted; /* planner: what the counters of metrics already hold */
	uint64_t counted_mismatches, counted_resyncs;
	/* What the plan may use now. */
	_Atomic uint64_t arena_bytes, stage_bytes;
	_Atomic uint64_t plan_bytes;
	_Atomic uint32_t generation;
	_Atomic bool has_order, is_stopping;
	struct mutex order_mu; /* one request to the planner at a time */
	struct mutex ask_mu;
	struct cond answer_cv;         /* a request is done */
	struct order_request *request; /* ask_mu, like the next */
	bool is_planning;              /* the planner takes requests */
	struct mutex status_mu;
	struct plan_status status; /* status_mu, like the next; of the first job */
	struct drive_job shown[PLAN_JOBS];
	uint32_t n_shown;
	struct queue page_jobs, pin_jobs, epoch_jobs;
	struct thr planner, epochs, stagers[STAGERS_MAX], writers[WRITERS];
	bool is_started;
};

/* --- apply.c: the hands of the planner's thread --- */
extern const struct step_hands drive_hands; /* but for ctx */
/* A reader has come to that unit. Of a record that was found, who looks for records goes on with what is known of
 * it: where it was READ would say less. */
void drive_note_record(const struct drive *d, struct unit_id unit);
/* Answers the job, which is the planner's from here on. Any thread. Never fails. */
void drive_complete(struct drive *d, struct completion *take_done, enum plan_event_kind kind,
		    int status);

/* --- planner.c --- */
void *planner_main(void *drive);
/* Leaves a copy of what can be looked at for who asks. Planner thread, or before it runs. */
void planner_publish(struct drive *d);
/* After the planner: what nobody took any more. */
void planner_drop_answers(struct drive *d);

/* --- orders.c --- */
/* Takes a request, or NULL. is_last: and no more after it. Planner thread. */
struct order_request *request_take(struct drive *d, bool is_last);
void request_answer(struct drive *d, struct order_request *request, int status);

/* --- stager.c, writer.c, epochs.c --- */
void *stager_main(void *drive);
void *writer_main(void *drive);
void *epochs_main(void *drive);

#endif
