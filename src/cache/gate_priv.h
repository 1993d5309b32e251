/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What waits before it is sent to the source: prefetches for a slot, control reads for the others
 * to be answered (gate.c says why). Any thread. Lock order: prefetch.mu, then gate.mu; both are
 * leaves otherwise.
 */
#ifndef CLAIRFS_CACHE_GATE_PRIV_H
#define CLAIRFS_CACHE_GATE_PRIV_H

#include "clairfs/base/queue.h"
#include "clairfs/base/thr.h"

struct cache;
struct fetch;

struct prefetch_queue {
	struct mutex mu;
	struct list queue; /* mu, like all below */
	uint32_t inflight, max;
	bool is_pumping, is_closed;
};

struct gate {
	struct mutex mu;
	struct list waiting;         /* mu, like all below: fetch.in_gate, oldest first */
	uint32_t inflight, n_active; /* requests with the source; control reads of those */
	uint64_t active_since_ns;    /* no control read was answered since; 0: there is none */
	uint64_t held_since_ns;      /* somebody was held back, 0: nobody is */
	int64_t credit_ns;           /* as of credit_at_ns */
	uint64_t credit_at_ns;
	/* since load_ns: answers of the source, their bytes, the sum of their latencies */
	uint64_t load_ns, answers, answer_bytes, answer_latency_ns;
	bool is_forced; /* nobody is held back until no control read is left */
	bool is_open;   /* nor afterwards */
};

/* --- gate.c --- */
void gate_init(struct cache *c);
void gate_fini(struct cache *c);
/* f, a request of the source, may go there now. False: gate.c will send it; f may be gone. */
bool gate_enter(struct cache *c, struct fetch *f);
/* It was answered. */
void gate_leave(struct cache *c, struct fetch *f);
/* With prefetch.mu held. */
bool gate_lets_prefetch(struct cache *c);
/* Now and then, so that nobody waits for ever. */
void gate_tick(struct cache *c, uint64_t now_ns);
/* For good: nobody waits any more. */
void gate_open(struct cache *c);
/* Prefetches were held back for long enough; it recovers with time. */
bool gate_is_worn(struct cache *c);

#endif
