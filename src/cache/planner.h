/* SPDX-License-Identifier: Apache-2.0 */
/* The planner thread: what it is told (notes), and what it keeps to replace the order of a cache
 * that runs. Part of cache_priv.h. */
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
	LATE_KINDS = 4,    /* events of a sample that must not be lost */
	RECENT_MAX = 4096, /* opens that are shown to a new plan */
};

/* An order and who uses it: the planner, and epochs that are being computed. */
struct order_ref {
	struct order *order;
	bool is_owned;
	_Atomic uint32_t refs;
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
	struct plan *plan;       /* SET: made for it; then the one that was replaced */
	uint32_t job;            /* ADD: in place of this one; END; then the id of the new one */
	const char *why;         /* END, and SET of none: what is said then; static, or NULL */
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
	bool is_show_due; /* the last opens are to be shown to it when its first epoch has come */
	uint64_t told_ns, read_ns, placed; /* the last read that fits it, and how many did */
	uint64_t counted_mismatches, counted_resyncs; /* that the metrics hold */
};

/* What the planner keeps for the next plan; planner thread only. */
struct recent {
	uint32_t sample[RECENT_MAX]; /* ring of the last opens */
	bool is_placed[RECENT_MAX];  /* it was where a job was expected */
	uint32_t head, count, since; /* since: of them since the order was replaced */
	bool is_replay_due; /* the plan is to be shown these when its first epoch has come */
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
	/* Bit per sample, planner only: its size changed while a plan was being made of all sizes.
	 */
	uint64_t *resized;
	_Atomic bool is_making_plan;
	/* What the plan may use now; planned_: what it has been told (planner only). */
	_Atomic uint64_t arena_bytes, stage_bytes;
	uint64_t planned_arena_bytes, planned_stage_bytes;
};

/* --- switch.c --- */
struct order_ref *order_ref_new(struct order *order, bool is_owned);
void order_ref_put(struct order_ref *ref); /* NULL allowed */
/* O(n), up to seconds: any thread, best not the planner. */
int plan_make(struct cache *c, const struct order_ref *order, struct plan **ret) MUST_USE;
/* Between two rounds of the planner. */
void switch_order(struct cache *c, struct order_request *request, uint64_t now_ns);
/* An answer to an action of an old plan. */
void switch_absorb(struct cache *c, struct completion *done, uint64_t now_ns);
void recent_opened(struct cache *c, uint32_t sample);
void recent_placed(struct cache *c); /* the last one was where a job is expected */
/* The i-th open of the last ones, 0 is the last. */
uint32_t recent_ago(const struct recent *r, uint32_t ago);
bool recent_was_placed(const struct recent *r, uint32_t ago);
void recent_tell(struct cache *c, struct order_request *request);
/* Whether the plan believes what it was shown. */
bool recent_is_agreed(const struct plan_status *st);
/* Does not wait any more to show the plan the last opens: it hears of those that came since. */
void recent_flush(struct cache *c, uint64_t now_ns);
/* Whether it is known, without asking the plan, that the last opens are not of this epoch. */
bool recent_is_elsewhere(const struct cache *c, const struct order_epoch *ep);
/* The first epoch of the new order is there. */
void recent_replay(struct cache *c, bool is_elsewhere, uint64_t now_ns);
/* Tells the plan a share of what the store has; true when there is more. */
bool switch_tell_kept(struct cache *c, uint64_t now_ns);
/* Gives a share of the pages back that were pushed for jobs that are over; true when there is more. */
bool switch_give_back(struct cache *c);

/* --- planned.c: the jobs of the plan that is in force; planner thread --- */
/* The one with this index in the plan, or NULL. */
struct planned_job *planned_at(struct cache *c, uint32_t index);
/* The only one from here on; NULL: there is none. It has index 0 in the plan. */
void planned_set(struct cache *c, struct order_ref *take_order, uint64_t now_ns);
void planned_add(struct cache *c, struct order_request *request, uint64_t now_ns);
void planned_end(struct cache *c, struct order_request *request);
/* The first epoch of a job that was added has come (look: the plan does not know it yet). */
void planned_look(struct cache *c, struct planned_job *job, const struct order_epoch *ep);
void planned_show(struct cache *c, struct planned_job *job, uint64_t now_ns);
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
