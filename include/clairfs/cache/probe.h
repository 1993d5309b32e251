/* SPDX-License-Identifier: Apache-2.0 */
/* The seam between the data path and whoever measures it. The cache knows nothing of what is
 * measured, or how: it asks when a request may be sent, and tells what became of each read. Nobody is
 * asked or told anything from under a lock of the cache. Which reads are held back is asked by who
 * plans (struct drive_probe in drive.h). */
#ifndef CLAIRFS_CACHE_PROBE_H
#define CLAIRFS_CACHE_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/ids.h"
#include "clairfs/base/queue.h"
#include "clairfs/metrics.h"

/* What was noticed while bytes were brought; of a read, by all that brought some of it. */
struct read_traits {
	uint8_t mark;   /* of cache_set_aside, when its unit was; else 0 */
	bool is_loaded; /* by may_send: more requests were with the source than readers make */
	/* In which the source was not at work for it: it was not asked yet, or had answered. A read
	 * may be held back, and all have their way through this mount. */
	uint64_t held_ns;
};

static inline void read_traits_add(struct read_traits *t, const struct read_traits *more)
{
	t->mark |= more->mark;
	t->is_loaded |= more->is_loaded;
	t->held_ns = more->held_ns > t->held_ns ? more->held_ns : t->held_ns;
}

/* A place in the order of a job. */
struct read_place {
	uint64_t pass; /* grows by one with every pass of the job */
	uint64_t position, length; /* in its epoch */
};

/* One read of a unit that is over: an open, or that a reader has come to it, and its READs. */
struct read_facts {
	struct unit_id unit;
	uint32_t reader; /* the thread of one of its READs, 0: there were none, or unknown */
	enum read_class read_class;
	struct read_traits traits; /* mark 0 where there was no READ, or one failed */
	bool is_kernels; /* READ_STAGED, of pages that the kernel had kept and nobody pushed */
	bool is_record;  /* of a larger file: its ends are on pages of its neighbours */
	bool is_nobodys; /* the kernel read on, and no reader came: it has these pages, and no more */
	bool is_late;    /* opened_ns is when something read later was heard of */
	/* The sample was opened again right away: these are of such an open, with the place of the
	 * one before; or so many more are in it, as the place was not known before they came. */
	bool is_again;
	uint8_t again;
	/* Where it was expected (cache_place_open), by the order of that generation, which is also the
	 * id of its job. */
	bool has_use;
	uint32_t generation;
	struct read_place use;
	uint64_t bytes;     /* of the unit, as far as they were asked for */
	uint64_t opened_ns; /* or its first READ */
	uint64_t wait_ns;   /* in which a READ of it was under way */
};

/* A request of the source. */
struct probe_request {
	struct list node; /* the probe's while the request waits */
	uint8_t mark;
	uint32_t piece;                 /* of its sample */
	bool is_demand;                 /* somebody waits */
	struct read_traits traits;      /* the probe adds to them */
	uint64_t bytes, latency_ns;     /* of the answer */
	uint64_t waits_since_ns;        /* the probe's, likewise */
	bool is_watched;
};

/* Any thread. Must not block, nor call the cache. */
struct probe {
	void *ctx;
	/* False: not yet; it will be handed out in a `go`, and may be gone by now. */
	bool (*may_send)(void *ctx, struct probe_request *request);
	/* True, as of all that follow: prefetches that were held up may be sent. go: requests. */
	bool (*answered)(void *ctx, struct probe_request *request, struct list *go);
	bool (*may_prefetch)(void *ctx);
	/* A few times a second. */
	bool (*tick)(void *ctx, uint64_t now_ns, struct list *go);
	/* For good: nothing waits any more. */
	void (*end)(void *ctx, struct list *go);
	/* Seconds after the reads, in no order; the thread of cache_tick, or cache_finish's. */
	void (*observed)(void *ctx, const struct read_facts *facts, uint32_t n);
	/* After these: every read that was opened before then is told. NULL: not asked for. */
	void (*settled)(void *ctx, uint64_t before_ns);
};

#endif
