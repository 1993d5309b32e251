/* SPDX-License-Identifier: Apache-2.0 */
/* The deciding half of the drive. PURE: no I/O, no threads, no clock; time is an argument. The plan says
 * what is wanted of samples; this says what is done about it now, with what is known beside the plan:
 * which uses are held back, what the store keeps, pages of jobs that are over, memory, and the jobs
 * whose orders are in force. What it asks and what it has done goes through a table of functions (hands).
 * The daemon's planner thread has one (drive/apply.c), the simulator another (sim/hands.c), tests a
 * third: all run this same object code.
 *
 * One plan is for as long as samples are read. All functions are for one thread. */
#ifndef CLAIRFS_STEP_H
#define CLAIRFS_STEP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "clairfs/order.h"
#include "clairfs/plan.h"

enum {
	STEP_UNANSWERED_MAX = 4096, /* actions of a round that are answered at once */
	STEP_KEPT_EACH = 4096,      /* units looked up in a round */
};
#define STEP_KEPT_REST_NS (10 * 1000000000ull) /* a look costs a second of CPU for a million samples */
#define STEP_NO_JOB UINT32_MAX

/* An order and who uses it: the jobs, and epochs that are being computed. The plan has it in units. */
struct order_ref {
	struct order *order;
	bool is_owned;
	struct order_info info; /* in units; of the order itself where each sample is one */
	uint64_t *bits;         /* of info, or NULL */
	const struct unit_map *map; /* of what it numbers */
	const struct unit_map *files;
	/* What map is for an order of files: as these were cut when it was put in force. */
	struct unit_map files_then;
	struct units_later later_then;
	bool is_of_records; /* it numbers records, and these are units */
	_Atomic uint32_t refs;
	_Atomic bool is_over; /* no job has it any more: its epochs are not wanted */
};
/* One reference, the caller's. files: borrowed, as the order where it is not owned. NULL: out of memory, and
 * the order is the caller's still. Any thread. */
struct order_ref *order_ref_new(struct order *order, const struct unit_map *files, bool is_owned);
/* An epoch of it in units, the caller's; errors as order_epoch_new, with words. Any thread that has a
 * reference. May take seconds. */
int order_ref_epoch(const struct order_ref *ref, uint64_t epoch, struct order_epoch **ret,
		    struct err *err) MUST_USE;
void order_ref_put(struct order_ref *ref); /* NULL allowed; any thread */

/* Where a unit that was come to was expected, by the order of a job. */
struct step_place {
	uint32_t job;     /* its id */
	bool is_measured; /* and then, in samples, or in records where the job numbers these: */
	uint64_t pass, position, length;
};

/* A use of a unit that is to come, or has. */
struct step_use {
	struct unit_id unit;
	uint64_t pass, position;
	const struct order_info *order; /* of the only job, when it is confirmed that it reads by it and
					   has the sample there; else NULL */
	uint32_t job;                   /* its id then */
	bool is_ahead;                  /* nothing is done for it now */
};

/* What is asked and what is done. None of them may call the step. Those of what there is not (a probe, a
 * store that others fill, a kernel's pages) are NULL, where that is said below. */
struct step_hands {
	void *ctx;
	/* --- to be done; answered by a step_event sometime, or with an errno at once: then not --- */
	int (*fetch)(void *ctx, const struct plan_action *action);
	int (*stage)(void *ctx, const struct plan_action *action);
	int (*pin)(void *ctx, const struct plan_action *action);
	/* With a reference to the order; the step's still when it is answered with an errno. */
	int (*epoch)(void *ctx, const struct plan_action *action, struct order_ref *take_order);
	/* --- done at once --- */
	void (*drop)(void *ctx, const struct plan_action *action);
	/* A reader had all of the unit of the kernel: PLAN_ACT_COME. NULL: nobody wants to hear. */
	void (*come)(void *ctx, struct unit_id unit);
	/* An action was answered with -ENOMEM. NULL: who refuses it knows. */
	void (*no_memory)(void *ctx);
	/* Whether this use is left to its reader: then nothing is kept of it any more. NULL: none. */
	bool (*hold_back)(void *ctx, const struct step_use *use);
	/* That a reader has come to it has been fed. place: NULL when it was not expected, or that is not
	 * known. NULL: nobody wants to hear. */
	void (*opened)(void *ctx, struct unit_id unit, const struct step_place *place);
	/* Likewise; returns how many positions behind it hold_back is to be asked now. *ret_lets: go()
	 * is to be called. NULL: none; else hold_back is there, too. */
	uint64_t (*used)(void *ctx, const struct step_use *use, uint64_t now_ns, bool *ret_lets);
	void (*go)(void *ctx); /* NULL: as used is */
	/* --- the store; all NULL: it has only what was pinned, and never is full --- */
	bool (*keeps_any)(void *ctx);
	bool (*keeps)(void *ctx, struct unit_id unit);
	/* No order reads it: it is no reason to keep anything, until it is read. */
	void (*unwant)(void *ctx, struct unit_id unit);
	uint32_t (*n_found)(void *ctx); /* changes when others may have put something there */
	bool (*takes_more)(void *ctx);
	/* --- pages of jobs that are over; both NULL: they stay --- */
	/* Gives a share of them back, from *at on; true when there is more. */
	bool (*give_back)(void *ctx, uint32_t *at);
	void (*forget_pushed)(void *ctx, uint32_t at); /* those from there on stay */
};

/* A job whose order is in force. */
struct step_job {
	struct order_ref *order;
	uint32_t id;      /* of step.generation when its order was put in force */
	uint32_t index;   /* in the plan */
	uint64_t told_ns, read_ns, placed; /* the last read that fits it, and how many did */
	uint64_t counted_mismatches, counted_resyncs;
	struct plan_status plan; /* as of step_look */
};

struct step {
	struct plan *plan;
	const struct step_hands *hands;
	uint32_t n; /* units */
	struct step_job job[PLAN_JOBS]; /* in the order they came */
	uint32_t n_jobs;
	uint32_t generation;
	bool has_order;
	const char *why_none;  /* there was an order; NULL: there was none */
	/* As of step_look. */
	struct plan_status all;   /* counters of the plan */
	struct plan_status first; /* of the first job, or what is said where there is none */
	uint64_t mismatches, resyncs; /* of all jobs, ever */
	uint32_t kept_at, kept_found; /* units below were looked up; n_found() then */
	uint64_t kept_next_ns;        /* no new look before; 0: this is the first one */
	uint32_t give_back_at;        /* UINT32_MAX: nothing is given back */
	uint64_t arena_bytes, stage_bytes; /* that the plan was told */
	/* Answers to actions that were not sent; fed at the end of the round. */
	struct plan_event *unanswered;
	uint32_t n_unanswered;
};

struct step_params {
	struct plan *plan; /* the step's from here on, as the next one, also when step_init fails */
	struct order_ref *order; /* that it was made with, or NULL */
	const struct step_hands *hands;
	uint32_t n;                        /* units */
	uint64_t arena_bytes, stage_bytes; /* that the plan was made with */
};
/* -ENOMEM: nothing is left of it, and of what it was given. */
int step_init(struct step *s, const struct step_params *params, uint64_t now_ns) MUST_USE;
void step_fini(struct step *s); /* also of zeros */

/* Takes in what happened, and the answers of actions that were sent. Of the times that are given here and
 * below none is before the last. */
void step_event(struct step *s, uint64_t now_ns, const struct plan_event *event);
/* The memory there is, at most what the plan was made with. */
void step_memory(struct step *s, uint64_t arena_bytes, uint64_t stage_bytes);
/* Decides, and has it done. Returns when it is to be called again, even without news: a time, now_ns for
 * at once, UINT64_MAX for never. */
uint64_t step_round(struct step *s, uint64_t now_ns);
/* Now and then: whether there is room in the store again. */
void step_tick(struct step *s, uint64_t now_ns);
/* After a round, and after a change of orders: lets go of jobs that have left the plan, and brings up
 * to date what can be looked at. */
void step_look(struct step *s, uint64_t now_ns);

/* --- orders come, change and go; step_look must follow --- */
/* The only one from here on, or none. An order that was taken is NULL afterwards; one that was not is the
 * caller's. Errors of step_add_order. */
int step_set_order(struct step *s, struct order_ref **order, uint64_t now_ns) MUST_USE;
/* Of one more job, or of the one with that id; *ret_id: its id from here on. -ENOSPC: there are PLAN_JOBS;
 * -EINVAL: it is of another dataset; -ENOMEM. Then nothing has changed. */
int step_add_order(struct step *s, struct order_ref **order, uint32_t instead_of, uint64_t now_ns,
		   uint32_t *ret_id) MUST_USE;
/* why: static, what is said when it was the last one; NULL: usual words. -ENOENT: there are others, and
 * none of that id. */
int step_end_order(struct step *s, uint32_t id, const char *why) MUST_USE;
/* What is to be said of the order where only one can be: the best that any job does. */
enum plan_state step_state(const struct step *s);

#endif
