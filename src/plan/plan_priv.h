/* SPDX-License-Identifier: Apache-2.0 */
/* The body of struct plan, shared by the files of this module only.
 *
 * Every unit has at most one key: the first position, in the two passes that are loaded, at which
 * it has not been read yet. Whatever is to be done with a unit hangs on its key, in one of a few
 * sets of positions (see item_sets): so "what is due next and missing" and "what is needed last"
 * are each one look into a tree. A unit leaves the sets (item_out), is changed, and enters them
 * again (item_in); nothing else touches the trees. */
#ifndef CLAIRFS_PLAN_PRIV_H
#define CLAIRFS_PLAN_PRIV_H

#include <assert.h>

#include "choose.h"
#include "clairfs/base/bitmap.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/ids.h"
#include "clairfs/base/mem.h"
#include "clairfs/base/tree.h"
#include "clairfs/plan.h"
#include "item.h"
#include "job.h"
#include "jobs.h"
#include "later.h"
#include "recent.h"
#include "retain.h"
#include "stage.h"
#include "tracers.h"

#define PAGE_BYTES 4096u
#define ACTIONS_MAX 4096u   /* waiting to be handed out */
/* Units that a step gives keys to, or takes them from, at most: about a millisecond. A quarter of
 * it where there are so many that none is in a cache. */
#define WORK_MOST 16384u
#define WORK_MANY (1u << 22)
#define KEY_CHUNK (1u << 17) /* keys that get memory, or give it back, in a step: half a MiB */
#define SYNC_READS 32u      /* reads that are enough to agree on a position */
#define TRIED_FIRST 3u      /* epochs up to start + 2 are tried each time */
#define TRIED_ROUND 4u
#define KEYED_MAX (2 * PLAN_JOBS) /* as many as item flags can name */
#define NO_HOME KEYED_MAX
#define PINS_MAX 16u /* in flight */
#define PIN_QUEUE 1024u
#define RETRY_QUEUE 256u
#define TAIL_MAX 16384u
#define HOLD_NS NS_PER_S
#define HOLD_TAKEN_NS (8 * NS_PER_S)

struct budget {
	double limit, best_rate, best_limit, base_ns;
	double latency_ns, deviation_ns; /* of the source */
	uint64_t since_ns, done, done_ns;
	struct pace pace;
	uint32_t calm; /* intervals to wait before another number of requests is tried */
	int probe;     /* +1, -1: trying more, fewer than best_limit */
	bool is_full, is_awaited; /* in this interval the limit was reached, a reader waited */
	double tokens;
	uint64_t tokens_ns;
	uint32_t failures; /* in a row */
	uint64_t not_before_ns;
};

#define WORTH_BUCKETS 256u
/* worth.c: how long a use may be away that is worth waiting for, where there are several jobs. */
struct worth {
	uint64_t pages[WORTH_BUCKETS]; /* read, by when they are needed again: four per octave */
	uint64_t since_ns, reads;
	double elapsed_ns; /* that the counts are of, halved like them */
	uint64_t within;   /* nanoseconds */
};

struct plan {
	struct plan_params params;
	struct plan_watch watch;
	struct plan_job *jobs[PLAN_JOBS]; /* by index; NULL: none */
	uint32_t n_jobs;                  /* that are planned for */
	uint32_t version[PLAN_JOBS];      /* of the next job at that index */
	struct plan_job *nobody;          /* stands for the first job where there is none */
	/* All that units may have keys of: those, and the ones that rekey.c has to come by for. */
	struct plan_job *keyed[KEYED_MAX];
	uint32_t top_home;         /* one more than the last place that is taken there */
	struct plan_job *item_job; /* whose keys are in the items; NULL: nobody's */
	struct plan_job *only_job; /* the last one that was alone; NULL: none since */
	struct plan_job *buried;   /* no unit has a key of them: freed a share at a time */
	uint32_t rekey_at, n_leaving; /* the unit looked at next; of how many jobs keys may be left */
	uint32_t work_most, work; /* WORK_MOST; what is left of it in this step */
	bool is_cut; /* there was more to look at than that: the next step goes on at once */
	uint64_t touched;         /* units that were looked at, or entered their sets, ever */
	struct recent recent;
	uint32_t n;
	uint64_t arena_pages; /* budget now; see plan_set_memory */
	uint64_t stage_most;  /* likewise, of what is staged */
	uint64_t full_pages;  /* arena_pages when nothing is short */
	uint64_t spare_pages; /* beyond full_pages, for what is due soon */
	uint64_t stage_pages, max_pages, store_pages, mean_pages;
	uint64_t sum_pages, n_sized; /* what mean_pages is of: units that are there */
	uint64_t largest; /* pages of a unit that is fetched, at most */
	struct item *item;
	struct tree unkeyed; /* units in the arena, evictable, of which no next use is known */
	struct later later;  /* next uses beyond the two passes */

	/* usable.c: what the arena turned out to hold; holes between units take the rest */
	double usable; /* pages */
	uint64_t usable_grown_ns, usable_not_before_ns;
	uint32_t usable_unanswered,
		usable_refused; /* fetches asked for before the last cut or change of size; in a row */
	uint64_t used_pages, staged_pages, pinned_pages; /* also what is being staged, pinned */
	uint64_t held_pages, fresh_pages, fetching_pages;
	uint32_t lost_next; /* the unit that retain_shed looks at next */
	uint32_t forget_at; /* likewise retain_lost_step */
	uint64_t grown_pages; /* by which files in use have grown: budgets may be exceeded by it */
	uint32_t inflight_source, inflight_store, inflight_adopted, n_pinning;
	bool is_pinning_over;
	uint32_t pin_failures;

	struct choice choice;
	struct worth worth;

	/* stage.c, alone.c */
	double stage_limit; /* pages */
	uint64_t stage_shrunk_ns, stage_grown_ns;
	uint64_t stage_pause_ns, stage_not_before_ns; /* if the kernel drops what is pushed, or 0 */
	uint64_t stage_left;   /* units that had left the kernel at the last step */
	uint32_t stage_credit; /* if is_stage_bounded: STAGEs that are free now, in sixteenths */
	bool is_stage_bounded;
	uint32_t n_untraced; /* units that are UNTRACED */
	uint64_t alone_not_before_ns, alone_pause_ns;
	struct alone_recent alone_recent[ALONE_RECENT]; /* ring */
	uint32_t alone_recent_head;
	uint32_t alone_drops; /* times DROP_COST, less the pushes since */

	struct plan_use last_use; /* of the last open, if has_last_use */
	bool has_last_use;
	struct early_reads early, last_reached; /* reach.c */

	struct hold *hold; /* ring */
	uint32_t hold_head, hold_count, hold_size, hold_reads;
	struct retry retry[RETRY_QUEUE];
	uint32_t retry_head, retry_count;
	uint32_t pin_queue[PIN_QUEUE], pin_head, pin_count;
	struct plan_action actions[ACTIONS_MAX];
	uint32_t action_head, action_count;
	struct budget budget;
	struct awaited awaited;
	uint64_t now_ns;
	uint64_t reached; /* units within samples, that were where they were expected */
	uint64_t opened, issued, asked, useful, late, wasted, failed, unstaged;
};

static inline uint32_t item_state(const struct item *it)
{
	return it->flags & STATE_MASK;
}
static inline bool item_is_evictable(const struct item *it)
{
	return item_state(it) == ARENA && !(it->flags & (HELD | STAGED | STAGING | PINNING));
}
/* The job whose SET_KEEP an evictable unit with a key stands in. */
static inline struct plan_job *item_home(const struct plan *plan, const struct item *it)
{
	return plan->keyed[(it->flags & HOME_MASK) >> HOME_SHIFT];
}
/* When the job uses a unit next: a position, and in which slot; or NO_KEY. */
static inline uint32_t *job_key(const struct plan *plan, const struct plan_job *job,
				uint32_t unit)
{
	return job->key ? &job->key[unit] : &plan->item[unit].key;
}
static inline uint64_t job_due(const struct plan *plan, const struct plan_job *job, uint32_t unit)
{
	uint32_t key = *job_key(plan, job, unit);

	return key == NO_KEY ? NO_POS : job_virtual(job, key_slot(job, key), key_pos(key));
}
static inline uint32_t actions_left(const struct plan *plan)
{
	return ACTIONS_MAX - plan->action_count;
}

/* plan.c */
/* One more unit that is there, of so many pages that were not counted yet. */
void plan_sized(struct plan *plan, uint32_t pages);
/* job: whose epoch it is, or for whom. */
struct plan_action *plan_act(struct plan *plan, const struct plan_job *job,
			     enum plan_action_kind kind, uint32_t unit);

/* fetch.c */
bool fetch_is_transient(int status);
uint64_t fetch_step(struct plan *plan, uint64_t now_ns);
void fetch_adopt(struct plan *plan, struct plan_job *job, uint32_t unit);

/* pin.c */
void pin_offer(struct plan *plan, uint32_t unit);
bool pin_step(struct plan *plan); /* true when there is more to do at once */
void pin_answered(struct plan *plan, uint32_t unit, int status);
void pin_again(struct plan *plan);
void pin_lost(struct plan *plan, uint32_t unit);
void pin_kept(struct plan *plan, uint32_t unit);

/* window.c */
/* Positions from the low-water mark to below `end` that were not read. */
uint64_t window_unread_below(const struct slot *slot, uint64_t end);
uint64_t window_first_use(const struct slot *slot, const struct plan *plan,
			  const struct plan_job *job, uint32_t unit);
/* One of several jobs that has read nearly all of its last epoch is finished when it is quiet; and
 * any that has opened all samples of it. Returns when to look again, or UINT64_MAX. */
uint64_t window_leave(struct plan *plan, struct plan_job *job, uint64_t now_ns);
void window_read(struct plan *plan, struct plan_job *job, uint64_t now_ns, uint32_t unit);
/* Whose read it is; NULL: nobody's as far as can be told. */
struct plan_job *window_reader(const struct plan *plan, uint32_t unit);
/* Whether it may be a read of the job, among several. */
bool window_fits(const struct plan *plan, const struct plan_job *job, uint32_t unit);
bool window_was_just_read(const struct plan_job *job, const struct slot *slot, uint32_t unit);
struct plan_use window_use_at(const struct plan_job *job, const struct slot *slot, uint64_t pos);
/* The job's last use is this one. */
void window_remember(struct plan *plan, struct plan_job *job, const struct slot *slot, uint64_t pos);
/* After a position was consumed: the pass, or all of them, may be over. */
void window_ended(struct plan *plan, struct plan_job *job);
bool window_is_outside(const struct plan *plan, const struct plan_job *job, uint32_t unit);
void window_begins(struct plan_job *job);
bool window_is_recent(const struct plan *plan, const struct plan_job *job, uint32_t unit);
void window_pass_over(struct plan *plan, struct plan_job *job, struct slot *slot, uint64_t pos);
void window_set_consumed(struct plan *plan, struct plan_job *job, struct slot *slot, uint64_t pos);
/* A read a little beyond the window: moves the window when everything but a few holes was read. */
bool window_slide(struct plan *plan, struct plan_job *job, struct slot *slot, uint64_t pos);
void window_replay(struct plan *plan, struct plan_job *job, uint64_t now_ns);

/* reach.c: a reader has come to a unit that is not the first of its sample */
void reach_read(struct plan *plan, uint64_t now_ns, uint32_t unit);
/* The sample's first unit was opened, and had its place: what was told of others before counts now. */
void reach_opened(struct plan *plan, const struct plan_job *job, uint64_t now_ns, uint32_t unit);
/* The reader stands there: where samples are often left, what is next of this one may be fetched. */
void reach_allow(struct plan *plan, const struct plan_job *job, uint32_t unit);
/* True: the unit is not fetched before its reader comes near. */
bool reach_defers(struct plan *plan, const struct plan_job *job, uint32_t unit);

/* score.c */
void score_read(struct plan_job *job, uint32_t unit);
void score_push(struct plan_job *job, bool is_in);
void score_strange(struct plan_job *job, bool is_strange); /* the job itself would hardly make it */
uint32_t score_strangers(const struct plan_job *job); /* percent of those, in a small epoch; or 0 */
void score_reset(struct plan_job *job);
uint32_t score_percent(const struct plan_job *job);
uint32_t score_need(const struct plan_job *job);
bool score_is_agreed(const struct plan_job *job);
void score_kept(struct plan_job *job); /* a position of the order was read */
void score_left(struct plan_job *job); /* ... was left out */
void score_judge(struct plan *plan, struct plan_job *job);
/* WHY_OF_STATE: what the state itself means. */
void plan_enter(struct plan *plan, struct plan_job *job, enum plan_state state, enum plan_why why);

/* proof.c */
void proof_weigh_read(struct plan_job *job, const struct slot *slot, uint64_t pos);
void proof_reset(struct plan_job *job);
void proof_judge(struct plan_job *job);
bool proof_is_likely(const struct plan_job *job);

/* resync.c */
void resync_try(struct plan *plan, struct plan_job *job); /* with what is loaded */
bool resync_candidate(struct plan *plan, struct plan_job *job,
		      struct order_epoch *take_ep); /* false: does not fit, freed */
uint64_t resync_next_candidate(struct plan_job *job);

/* epochs.c */
int epochs_install(struct plan_job *job, uint32_t slot, struct order_epoch *take_ep,
		   uint64_t epoch) MUST_USE;
void epochs_uninstall(struct plan_job *job, uint32_t slot);
void epochs_absorb_rest(struct plan *plan, struct plan_job *job, struct slot *slot);
void epochs_arrived(struct plan *plan, struct plan_job *job, uint64_t now_ns,
		    const struct plan_event *ev);
/* The first epoch of all, also one more time. */
int epochs_set_first(struct plan_job *job, struct order_epoch *take_ep) MUST_USE;
uint64_t epochs_step(struct plan *plan, struct plan_job *job, uint64_t now_ns);
void epochs_roll(struct plan *plan, struct plan_job *job);
void epochs_consume_below(const struct plan_job *job, struct slot *slot, uint64_t pos);
void epochs_rebuild(struct plan *plan, struct plan_job *job);
void epochs_forget_before(struct plan_job *job);
bool epochs_is_last(const struct plan_job *job, const struct slot *slot);

/* budget.c */
void budget_init(struct plan *plan);
void budget_read(struct plan *plan, struct plan_job *job, uint64_t now_ns);
void budget_fetched(struct plan *plan, uint64_t now_ns, uint64_t latency_ns, int status);
void budget_demand(struct plan *plan, uint64_t now_ns, uint64_t bytes);
/* Whether one more source read of this size may start; if not, *wake_ns is lowered to when to ask
 * again. */
bool budget_allows(struct plan *plan, uint64_t now_ns, uint64_t bytes, uint64_t *wake_ns);
void budget_spend(struct plan *plan, uint64_t bytes);
uint32_t budget_limit(const struct plan *plan);

#endif
