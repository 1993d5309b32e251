/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is counted of reads, and which files are compared with the source. Any thread; the locks
 * are leaves below those of the shards.
 */
#ifndef CLAIRFS_CACHE_ACCOUNT_PRIV_H
#define CLAIRFS_CACHE_ACCOUNT_PRIV_H

#include "clairfs/cache.h"
#include "clairfs/metrics/switchback.h"

/* --- account.c --- */
int account_new(struct cache *c) MUST_USE;
void account_free(struct cache *c);
void account_open(struct cache *c, struct entry_id entry, uint64_t now_ns);
/* The plan has just been fed this open: keeps where it belongs. Returns the thread that reads it, as
 * cache_reader_of. Planner thread. */
uint32_t account_place(struct cache *c, struct entry_id entry);
/* Before account_read_begin: whether this READ of a sample shows that the kernel has dropped pages
 * which were pushed; says so once for each push. */
bool account_lacks_push(struct cache *c, struct entry_id entry);
/* For r->is_accounted. */
/* is_control: or another read on demand on purpose. */
bool account_read_begin(struct cache *c, const struct cache_read *r, bool is_control);
void account_read_end(struct cache *c, const struct cache_read *r, int status, uint64_t bytes);
/* Decides what has been quiet for long enough; everything when is_final. */
void account_sweep(struct cache *c, uint64_t now_ns, bool is_final);

/* --- control.c --- */
int control_init(struct cache *c) MUST_USE;
void control_fini(struct cache *c);
/* Whether a sample is one of the share that is held out of a pass. Pure. */
bool control_is_chosen(double share, uint32_t sample, uint64_t pass);
/* Whether this sample is to be read on demand the next time; then what is kept of it is gone.
 * Planner thread. */
bool control_hold_out(struct cache *c, const struct plan_action *action);
/* It is to be; what is kept of it is dropped. Planner thread. */
void control_set_aside(struct cache *c, struct entry_id entry);
/* Whether a read of it now is a control read. */
bool control_is_held_out(struct cache *c, struct entry_id entry);
/* A piece of it was read from the source; with the last one the control read is over. */
void control_piece_done(struct cache *c, const struct tier_read *read);

/* --- switchback.c --- */
struct cache_switchback {
	_Atomic uint64_t *held;    /* per sample: if it is held out, then for this. NULL: never */
	struct switchback blocks;  /* planner: of the order that is this one */
	uint32_t orders;           /* planner: the id of its job, and one */
	_Atomic uint64_t until_ns; /* nothing is fetched ahead before; 0: readers are elsewhere */
};
int cache_switchback_init(struct cache *c) MUST_USE;
void cache_switchback_fini(struct cache *c);
/* Whether the use that an action is for lies in a block of switchback; keeps what it says in mind
 * until the sample is asked for again. Planner thread. */
bool cache_switchback_chooses(struct cache *c, const struct plan_action *action);
/* Whether a read of a sample that is held out is for the sake of switchback. */
bool cache_switchback_is_held_out(struct cache *c, struct entry_id entry);
/* Whether prefetches have to wait: the job is in a block of switchback. */
bool cache_switchback_holds_prefetch(struct cache *c);
/* The plan has just been fed an open. Planner thread. */
void cache_switchback_opened(struct cache *c, uint64_t now_ns);
/* Now and then: a job that has stopped in a block must not hold prefetching up. Planner thread. */
void cache_switchback_tick(struct cache *c, uint64_t now_ns);

/* --- change.c --- */
/* Drops all copies of a file that has not changed; those who read it now are left alone. Planner
 * thread. */
void change_drop_copies(struct cache *c, struct entry_id entry);

/* The kernel's copy of it, but for one that is being read. Planner thread. */
void change_drop_pages(struct cache *c, struct entry_id entry);

/* --- revalidate.c --- */
/* From here on the file is compared with the source from time to time. */
void entry_touch(struct cache *c, struct entry_id entry);
void entry_untouch(struct cache *c, struct entry_id entry);
/* Time from one comparison to the next, so that n of them fill the interval. */
uint64_t revalidate_gap_ns(uint64_t interval_ns, uint64_t n);
void *revalidate_main(void *cache);

#endif
