/* SPDX-License-Identifier: Apache-2.0 */
/* The plan: what to fetch, stage, keep, pin and drop next. PURE: events in, actions out; time is an
 * argument; no I/O, no threads, no clock, no randomness. The daemon's planner thread and the
 * simulator run this same object code.
 *
 * A unit (base/units.h) is ABSENT -> FETCHING -> ARENA -> ABSENT; beside it the flags STAGED (its pages were
 * pushed into the kernel and it has not been opened since) and PINNED (kept in the store). Every
 * action is answered by exactly one event, except DROP and COME, which take effect at once. Source of the
 * policy: src/plan/README.md. */
#ifndef CLAIRFS_PLAN_H
#define CLAIRFS_PLAN_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/cleanup.h"
#include "clairfs/base/ids.h"
#include "clairfs/order.h"

/* Which units are pinned. */
enum plan_pin_rule {
	PLAN_PIN_AUTO, /* the smallest when requests cost the source more than bytes, as measured */
	PLAN_PIN_FIRST,    /* as they come */
	PLAN_PIN_SMALLEST, /* the smallest */
};

/* Of a unit that is not there yet: no order may have it before it was RESIZED. */
#define PLAN_NO_SIZE UINT64_MAX

struct plan_params {
	uint32_t n;                     /* units */
	const uint64_t *size;           /* [n] bytes, or PLAN_NO_SIZE; copied */
	const struct order_info *order; /* of the first job, copied; NULL: there is none yet */
	uint64_t arena_bytes; /* units FETCHING or ARENA hold no more than this; a unit costs
			       * its size rounded up to 4096 (empty: 4096). Of those larger than a
			       * quarter of it none is fetched */
	uint64_t spare_bytes; /* but for what is due soon: so much more, until it leaves the arena
				 for the kernel */
	uint64_t stage_bytes; /* pushed and not opened yet */
	uint64_t store_bytes;        /* budget of pins, 0 = no store */
	enum plan_pin_rule pin_rule; /* among units this node reads equally often; those that it
				      * reads more often always come first */
	uint32_t inflight_min,
		inflight_max;        /* units being fetched at once; adaptive between them */
	uint64_t source_bytes_per_s; /* cap of prefetching, 0 = none; demand reads use up the same
					tokens */
	uint32_t span; /* positions the job's readers are apart; 0 = from the order's batch,
			* workers, prefetch_factor and ranks, or learned when those are not given */
};

/* What the executive should have beyond arena_bytes for units on their way into the kernel. */
static inline uint64_t plan_spare_bytes(uint64_t arena_bytes)
{
	uint64_t most = arena_bytes / 64 > (128u << 20) ? arena_bytes / 64 : 128u << 20;

	return arena_bytes / 20 < most ? arena_bytes / 20 : most;
}

/* A FETCH or STAGE that was not carried out on purpose: the unit is to be read on demand this
 * time. It is nobody's failure. */
#define PLAN_HELD_OUT (-EBUSY)
/* A STAGE that has to wait until something was opened: the kernel has been told of as many inodes as
 * it is to know ahead of the readers. */
#define PLAN_NO_INODES (-ENOBUFS)

/* How a STAGE is answered whose unit was pushed with its tracer page: nobody will hear of its reader. */
#define PLAN_STAGED_WHOLE 1

enum plan_event_kind {
	PLAN_EV_OPENED,    /* unit: somebody opened its sample, of which it is the first */
	PLAN_EV_REACHED,   /* unit: a reader has come to it within its sample. It is read then, as one
			      that is opened, but no evidence for or against the order. Ignored where
			      it is not expected, was read already, or is the first of its sample */
	PLAN_EV_FETCHED,   /* answers FETCH: status, latency_ns, bytes; status 0: it is in the arena
			      now; latency_ns 0: it was there already, nobody was asked */
	PLAN_EV_STAGED,    /* answers STAGE: status; PLAN_STAGED_WHOLE; -ENOENT: the kernel does not know the inode;
			      PLAN_NO_INODES: nor is it to, now; -EAGAIN: being read */
	PLAN_EV_UNSTAGED,  /* unit: the kernel has dropped its pages or its inode */
	PLAN_EV_PINNED,    /* answers PIN: status; -ENOSPC: the store takes no more */
	PLAN_EV_PIN_ROOM,  /* the store takes pins again (status: is_pinning_over) */
	PLAN_EV_UNPINNED,  /* unit: the store has lost or forgotten it */
	PLAN_EV_KEPT,      /* unit: the store holds it already, without a PIN of this plan */
	PLAN_EV_LOST_COPY, /* unit: what we had of it is gone, in the arena and, pushed, in the
			      kernel (the file changed, it is set aside) */
	PLAN_EV_RESIZED,   /* unit, bytes: its new size */
	PLAN_EV_DEMAND,    /* bytes read from the source on demand, latency_ns; unit: only told
			      to who watches, and any number */
	PLAN_EV_BLIND,     /* opens were not seen (watch overflow) */
	PLAN_EV_EPOCH, /* answers EPOCH: status, epoch, order_epoch (the plan owns it from here) */
};

struct plan_event {
	enum plan_event_kind kind;
	struct unit_id unit;
	int status;
	uint64_t bytes, latency_ns, epoch;
	struct order_epoch *order_epoch;
	uint32_t job, version; /* EPOCH: whose, as the action said */
};

enum plan_action_kind {
	PLAN_ACT_FETCH, /* bring the unit into the arena; from the store when is_pinned */
	PLAN_ACT_STAGE, /* push the arena copy into the kernel */
	PLAN_ACT_DROP,  /* free the arena copy; is_left: whenever its room is wanted */
	PLAN_ACT_PIN,   /* write the arena copy to the store */
	PLAN_ACT_EPOCH, /* compute this epoch of the order */
	PLAN_ACT_COME,  /* a reader had the unit, which was pushed whole, of the kernel; not answered */
};

struct plan_action {
	enum plan_action_kind kind;
	struct unit_id unit;
	bool is_pinned;
	bool is_adopted;   /* FETCH of what a reader has just asked the source for: nobody is asked
			    * again, -EAGAIN when it is neither there nor under way */
	bool may_be_whole; /* STAGE: its reader need not be heard of (tracers.c) */
	bool is_left;      /* DROP: there is no job any more; the copy is the executive's own, to
			    * serve whoever reads it */
	uint64_t position; /* of the use it is for: epoch * 2^32 + position, or with several jobs
			    * the time in nanoseconds; smaller is due sooner. COME: plan_use.place of
			    * the use that it was */
	uint64_t pass;     /* of the job that uses it then: plan_use.pass; UINT64_MAX: not known */
	uint64_t epoch; /* COME: plan_use.places */
	uint32_t job, version; /* whose epoch it is, the answer says the same; of others: for whom */
};

enum plan_state {
	PLAN_NO_ORDER,  /* none given: an ordinary cache */
	PLAN_WAITING,   /* order given, nothing read yet: the start is prefetched */
	PLAN_CHECKING,  /* first reads agree so far */
	PLAN_FOLLOWING, /* confirmed */
	PLAN_SLOWED,    /* 50-95 % of the reads are where they are expected: shorter horizon */
	PLAN_LOST,      /* reads do not agree: no prefetching, looking for the position */
	PLAN_FINISHED,  /* all epochs of the order were read */
};
extern const char *const plan_state_names[]; /* "no_order" "waiting" ... */

struct plan_status {
	enum plan_state state;
	const char *why; /* static words for a person, e.g. "reads epoch 0 again: set_epoch is not
			    called" */
	uint64_t epoch, position, length; /* low-water mark in the epoch, and its length */
	uint64_t lead;          /* positions from the low-water mark to the first one not in RAM */
	uint32_t match_percent; /* of the last reads inside the expected window */
	uint32_t inflight, inflight_limit; /* without what readers had asked for */
	uint64_t arena_bytes, stage_bytes, stage_limit_bytes, pinned_bytes;
	uint64_t span;
	uint64_t epochs_known; /* later epochs of which it is known what this node reads; 0 where
				* every epoch reads everything */
	/* counters since plan_new */
	/* asked: of those issued, units that the source was asked for, with an answer */
	uint64_t opened, issued, asked, useful, late, wasted, failed, mismatches, resyncs;
	/* reads of samples that the job does not number, such as a validation set: ever, and
	 * without others between them; they count neither for the order nor against it */
	uint64_t outside, outside_run;
	/* The validation set, once the job has read one between two epochs: samples that are
	 * expected behind epoch valid_epoch, and how many of them were read; 0: none is expected.
	 * And reads ever that were where they were expected. */
	uint64_t valid_length, valid_read, valid_epoch, valid_foreseen;
	uint32_t
		other_percent; /* of the last reads, those of another reader; 0: none is known of */
	uint64_t last_epoch;   /* of the job, UINT64_MAX = unknown */
	uint64_t placed;       /* reads of the job, ever, that were where its order has them */
	bool is_over;          /* has left the plan: plan_end_job gives its index back */
	uint64_t lost, lost_reads; /* times LOST; opens since it was, 0 when it is not */
	bool is_pinning_over; /* the store was full or failed; nothing is pinned until PIN_ROOM */
	bool is_unread;       /* epochs were read, and nothing of this one yet */
	bool is_read_on;      /* lost, after all epochs of the order were read */
	bool is_found;        /* the order was found, not told: set by who knows, for the words */
};

#define PLAN_JOBS 8 /* jobs of one plan, at most */

struct plan;
/* One plan is for as long as units are read, whatever orders come and go. -EINVAL, -ENOMEM. */
int plan_new(const struct plan_params *params, struct plan **ret) MUST_USE;
void plan_free(struct plan *plan);
/* One more job that reads the same units in an order of its own (copied), at the same time. Who
 * reads is told by where a read fits; one that has begun before is shown the last opens when its
 * first epoch is there. Returns its index; -ENOSPC: PLAN_JOBS are at work already; -EINVAL,
 * -ENOMEM. A job that has read all its epochs leaves the plan by itself as long as there are
 * others. What is kept, pushed and on its way stays, whoever comes and goes: units get new keys
 * a share at each step. */
int plan_add_job(struct plan *plan, const struct order_info *order) MUST_USE;
/* The job reads in another order from here on, and begins with it. -EINVAL, -ENOMEM: nothing has
 * changed. */
int plan_change_job(struct plan *plan, uint32_t job, const struct order_info *order) MUST_USE;
/* Nothing is planned for it any more; its index may be another one's later. After the last one
 * everything is left to the executive, a share at each step. */
void plan_end_job(struct plan *plan, uint32_t job);
/* The last opens, oldest first; returns how many. */
uint32_t plan_last_opens(const struct plan *plan, struct unit_id *ret_unit, uint32_t max);
/* Another budget of arena and stage from here on, at most those of plan_new, and never so little
 * that a few of the largest units would not fit. What is above it leaves with the next steps, the
 * unit that is needed last first; what is staged stays until it is opened. */
void plan_set_memory(struct plan *plan, uint64_t arena_bytes, uint64_t stage_bytes);
/* Takes one event in. Time never goes back. */
void plan_event(struct plan *plan, uint64_t now_ns, const struct plan_event *event);
/* Decides; afterwards plan_next_action hands out the actions, most urgent first, until it returns
 * false. Returns the time at which it wants to be called again even without an event, or
 * UINT64_MAX. */
uint64_t plan_step(struct plan *plan, uint64_t now_ns);
bool plan_next_action(struct plan *plan, struct plan_action *ret);
void plan_get_status(const struct plan *plan, struct plan_status *ret); /* of the first job
									 * at work */
/* Memory that the plan itself takes, with the epochs that it owns; what does not grow with samples
 * or jobs is not counted. */
uint64_t plan_table_bytes(const struct plan *plan);
/* Of one job; false: there is none of that index. */
bool plan_get_job_status(const struct plan *plan, uint32_t job, struct plan_status *ret);
/* What the job seems to be doing, in words, e.g. "reads epoch 3 (the last is 89), 41 % of it so
 * far; left an epoch before its end". */
#define PLAN_TEXT 400
void plan_status_text(const struct plan_status *status, char out[PLAN_TEXT]);
/* status->why ("" where that is NULL), but of an order that was found nothing that only who told it
 * could know: the job had read before it was found, and its epochs have the numbers that fit. */
const char *plan_status_why(const struct plan_status *status);
/* Whether reads (the last one last; a few dozen) stand at one place of an epoch, as a plan that has
 * lost its order would look for them. Never true for an epoch so short that chance might do it. For
 * trying orders without making a plan of them; any thread. */
bool plan_epoch_fits(const struct order_info *info, const struct order_epoch *epoch,
		     const uint32_t *reads, uint32_t n_reads);
/* Where the unit of the last PLAN_EV_OPENED or PLAN_EV_REACHED was expected, and by the order of
 * which job. False: it was not, or it is not known yet. */
struct plan_use {
	uint32_t job;
	uint64_t pass;             /* grows by one with every pass of the job */
	uint64_t position, length; /* in its epoch */
	uint64_t place, places;    /* the same in samples, where the epoch is one of units */
};
bool plan_last_use(const struct plan *plan, struct plan_use *ret);
/* What the first job reads at a position of a pass; UNIT_NONE: nothing, or it is not known (only
 * the pass being read and the next one are). */
struct unit_id plan_unit_at(const struct plan *plan, uint64_t pass, uint64_t position);
/* True once the reads have confirmed the order (OPEN may be answered ENOSYS for good). */
bool plan_is_confirmed(const struct plan *plan);

/* --- what goes in and what comes out, for who writes it down (tape.h) --- */

enum plan_call_kind {
	PLAN_CALL_EVENT,     /* now_ns, event; before the plan takes it in */
	PLAN_CALL_STEP,      /* now_ns, and wake_ns that it has returned */
	PLAN_CALL_ACTION,    /* action: it was handed out */
	PLAN_CALL_NO_ACTION, /* there was none to hand out */
	PLAN_CALL_MEMORY,    /* arena_bytes, stage_bytes */
	PLAN_CALL_ADD_JOB,   /* order, and the result */
	PLAN_CALL_CHANGE_JOB, /* job, order, and the result */
	PLAN_CALL_END_JOB,   /* job */
	PLAN_CALL_FREE,
};

struct plan_call {
	enum plan_call_kind kind;
	uint64_t now_ns, wake_ns, arena_bytes, stage_bytes;
	const struct plan_event *event;
	const struct plan_action *action;
	const struct order_info *order;
	uint32_t job;
	int result;
};

/* Called by whoever calls the plan. Must not call it. */
struct plan_watch {
	void (*called)(void *ctx, const struct plan_call *call);
	void *ctx;
};
/* Copied; from here on. It hears of every call above that changes the plan: a plan that is made of
 * the same params and told the same decides the same. */
void plan_set_watch(struct plan *plan, const struct plan_watch *watch);

#endif
