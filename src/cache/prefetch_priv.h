/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of prefetches: prefetch.c. Included by cache_priv.h. */
#ifndef CLAIRFS_CACHE_PREFETCH_PRIV_H
#define CLAIRFS_CACHE_PREFETCH_PRIV_H

#include "clairfs/base/queue.h"
#include "clairfs/base/thr.h"

struct cache;
struct object;

/* Prefetches that wait for a slot. */
struct prefetch_queue {
	struct mutex mu;
	struct list queue; /* mu, like all below */
	uint32_t inflight, max;
	bool is_pumping, is_closed;
	bool is_called; /* while it was pumping: it has to look again */
};

void prefetch_init(struct cache *c);
void prefetch_push(struct cache *c,
		   struct object *obj); /* gives the queue a reference that the caller holds */
void prefetch_pump(struct cache *c);
/* One that was started is over: its slot is free. */
void prefetch_ended(struct cache *c);
/* Fails what is still queued; nothing is started any more. */
void prefetch_close(struct cache *c);

#endif
