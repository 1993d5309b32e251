/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is counted of reads, and which files are compared with the source. Any thread; the locks
 * are leaves below those of the shards.
 */
#ifndef CLAIRFS_CACHE_ACCOUNT_PRIV_H
#define CLAIRFS_CACHE_ACCOUNT_PRIV_H

#include "clairfs/cache.h"

/* --- account.c --- */
int account_new(struct cache *c) MUST_USE;
void account_free(struct cache *c);
/* A sample was opened: its first unit. */
void account_open(struct cache *c, struct unit_id unit, uint64_t now_ns);
/* The first page of a unit of several was asked for; before account_read_begin of that READ. True: the
 * unit is the first, and an open of its file that was never heard of went before. */
bool account_come(struct cache *c, struct unit_id unit, uint64_t now_ns);
/* Before account_read_begin: whether this READ of a unit shows that the kernel has dropped pages
 * which were pushed; says so once for each push. */
bool account_lacks_push(struct cache *c, const struct cache_read *r);
/* Pages of it that were pushed are gone, or of no use. */
void account_unpushed(struct cache *c, struct unit_id unit);
/* For r->is_accounted. */
bool account_read_begin(struct cache *c, struct cache_read *r);
void account_read_end(struct cache *c, const struct cache_read *r, int status, uint64_t bytes);
/* No open says that somebody has come to it: it is not the first unit of its file, or it is a record. */
bool account_is_reached_only(struct cache *c, struct unit_id unit);
/* Decides what has been quiet for long enough; everything when is_final. */
void account_sweep(struct cache *c, uint64_t now_ns, bool is_final);

/* --- direct.c --- */
/* A READ of a sample. was_staged: it is the first one since pages of it were pushed. */
void direct_read(struct cache *c, struct entry_id entry, bool is_direct, bool was_staged);
/* Pages of it were pushed: how it is read from now on is what counts. */
void direct_pushed(struct cache *c, struct entry_id entry);
/* A sample was read from pages that were pushed. */
void direct_used_pages(struct cache *c);

/* --- asked.c --- */
/* An open of a file of that size, of several pieces and one unit, has asked for so many bytes. */
void asked_learn(struct cache *c, uint64_t size, uint64_t bytes);

/* --- probed.c --- */
struct fetch;
int probed_init(struct cache *c) MUST_USE;
void probed_fini(struct cache *c);
/* Of a read that comes now; 0: none. */
uint8_t probed_mark(struct cache *c, struct unit_id unit);
/* A piece of it was read from the source; with the last one the mark is gone. */
void probed_done(struct cache *c, const struct object *obj, const struct tier_read *read);
/* A request of the source: sends it, now or when its turn has come; and its answer is here. */
void probed_send(struct cache *c, struct fetch *f);
void probed_answered(struct cache *c, struct fetch *f);
/* Whether prefetches need not wait. */
bool probed_lets_prefetch(struct cache *c);
/* Now and then, so that nobody waits for ever. */
void probed_tick(struct cache *c, uint64_t now_ns);
/* For good: nobody waits any more. */
void probed_end(struct cache *c);

/* --- change.c --- */
/* Drops all copies of a unit whose file has not changed; those who read it now are left alone. */
void change_drop_copies(struct cache *c, struct unit_id unit);

/* The kernel's copy of it, but for a file that is being read. */
void change_drop_pages(struct cache *c, struct unit_id unit);

/* --- revalidate.c --- */
/* From here on the file is compared with the source from time to time. */
void entry_touch(struct cache *c, struct entry_id entry);
void entry_untouch(struct cache *c, struct entry_id entry);
/* Time from one comparison to the next, so that n of them fill the interval. */
uint64_t revalidate_gap_ns(uint64_t interval_ns, uint64_t n);
void *revalidate_main(void *cache);

#endif
