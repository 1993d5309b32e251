/* SPDX-License-Identifier: Apache-2.0 */
/* The planner thread: what it is told (notes), and the jobs whose orders are in force. Part of
 * cache_priv.h. */
#ifndef CLAIRFS_CACHE_PLANNER_H
#define CLAIRFS_CACHE_PLANNER_H

#include <stdatomic.h>

#include "clairfs/base/queue.h"
#include "clairfs/base/thr.h"
#include "clairfs/cache.h"

struct completion;

enum {
	NOTES_MAX = 32768,    /* events kept for the planner */
	NOTES_RESERVE = 8192, /* of these not for opens */
	UNANSWERED_MAX = 4096,
	LATE_KINDS = 4, /* events of a sample that must not be lost */
};

/* An order and who uses it: the planner, and epochs that are being computed. */
struct order_ref {
	struct order *order;
	bool is_owned;
	_Atomic uint32_t refs;
	_Atomic bool is_over; /* no job has it any more: its epochs are not wanted */
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
	uint32_t *opens;
	uint32_t max_opens, n_opens;
	int status;
	bool is_done; /* notes.mu, like status */
};

/* A job whose order is in force; planner thread only. */
struct planned_job {
	struct order_ref *order;
	uint32_t id;      /* cache_generation when its order was put in force */
	uint32_t index;   /* in the plan */
	uint64_t told_ns, read_ns, placed; /* the last read that fits it, and how many did */
	uint64_t counted_mismatches, counted_resyncs; /* that the metrics hold */
};

struct notes {
	struct mutex mu;
	struct cond cv;
	struct plan_event *fill;  /* mu, like all below */
	struct plan_event *drain; /* planner only, besides the swap */
	uint32_t n_fill;
	/* Per kind and sample: such an event found no room. Pages that nobody writes to take no
	 * memory. */
	uint64_t *late_fill[LATE_KINDS];  /* mu, like all below */
	uint64_t *late_drain[LATE_KINDS]; /* planner only, besides the swap */
	bool has_late;
	struct list completions;
	bool is_waiting, is_blind, has_lost, is_stopping;
	struct order_request *request;
	bool is_planning;      /* the planner takes requests */
	struct cond answer_cv; /* a request is done */
	/* Planner only: answers to actions for which there was no memory; fed at the end of
	 * its round. */
	struct plan_event *unanswered;
	uint32_t n_unanswered;
	/* What the plan may use now; planned_: what it has been told (planner only). */
	_Atomic uint64_t arena_bytes, stage_bytes;
	uint64_t planned_arena_bytes, planned_stage_bytes;
};

/* --- switch.c --- */
struct order_ref *order_ref_new(struct order *order, bool is_owned);
void order_ref_put(struct order_ref *ref); /* NULL allowed */
/* O(n), up to seconds: before the planner runs. */
int plan_make(struct cache *c, const struct order_ref *order, struct plan **ret) MUST_USE;
/* All that is in the store is looked up once more; is_first: what no order wants is let go. */
void switch_look_again(struct cache *c, bool is_first);
/* There is no job any more: its pages are given back, or there is one again. */
void switch_pages(struct cache *c, bool is_over);
/* Tells the plan a share of what the store has; true when there is more. */
bool switch_tell_kept(struct cache *c, uint64_t now_ns);
/* Gives a share of the pages back that were pushed for jobs that are over; true when there is more. */
bool switch_give_back(struct cache *c);

/* --- planned.c: the jobs of the plan that is in force; planner thread --- */
/* The one with this index in the plan, or NULL. */
struct planned_job *planned_at(struct cache *c, uint32_t index);
/* Before the planner runs: the job that the plan was made with, or NULL. */
void planned_start(struct cache *c, struct order_ref *take_order, uint64_t now_ns);
/* The only one from here on, or none. */
void planned_set(struct cache *c, struct order_request *request, uint64_t now_ns);
void planned_add(struct cache *c, struct order_request *request, uint64_t now_ns);
void planned_end(struct cache *c, struct order_request *request);
/* What is to be said of the order where only one can be: the best that any job does. */
enum plan_state planned_state(const struct cache *c);
/* Lets go of those that have left the plan, counts, and leaves a copy for who asks. */
void planned_publish(struct cache *c, uint64_t now_ns);
void planned_free(struct cache *c); /* when nothing runs any more */

/* --- planner.c --- */
void *planner_main(void *cache);
void cache_degrade(struct cache *c, const char *why);
int notes_init(struct cache *c) MUST_USE;
void notes_fini(struct cache *c);
void note_event(struct cache *c, const struct plan_event *event);
void note_sample(struct cache *c, enum plan_event_kind kind, struct entry_id entry, uint64_t bytes);
/* Planner thread: fails an action that got no job. Never fails itself. */
void note_unanswered(struct cache *c, const struct plan_event *answer);
/* A copy that was lost so far is not the one that is fetched from now on. */
void note_fetched_anew(struct cache *c, struct entry_id entry);
/* Hands an answered job to the planner, which frees it. Never fails. */
void note_completion(struct cache *c, struct completion *take_completion);
void notes_wake_locked(struct notes *n) REQUIRES(n->mu);

/* --- orders.c --- */
/* Waits until the planner has answered; -ECANCELED when it does not run. */
int planner_ask(struct cache *c, struct order_request *request);

#endif
