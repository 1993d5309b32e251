/* SPDX-License-Identifier: Apache-2.0 */
/* How many requests the source has while a control read waits for it, see gate.c. Any thread; the
 * lock is a leaf. */
#ifndef CLAIRFS_WAIT_GATE_H
#define CLAIRFS_WAIT_GATE_H

#include "clairfs/base/clock.h"
#include "clairfs/base/queue.h"
#include "clairfs/base/thr.h"
#include "clairfs/cache/probe.h"

/* What the source has answered in a while. */
struct gate_load {
	uint64_t took_ns, answers, bytes;
	uint64_t latency_ns; /* of all of them together */
};

struct gate {
	struct mutex mu;
	struct clock *clock;
	_Atomic uint32_t readers; /* requests that the job's readers can have in flight; 0: unknown */
	struct list waiting;      /* mu, like all below: probe_request.node, oldest first */
	uint32_t inflight, n_active; /* requests with the source; control reads of those */
	uint64_t active_since_ns;    /* no control read was answered since; 0: there is none */
	uint64_t shut_since_ns;      /* somebody had to wait for it to open; 0: nobody has */
	int64_t credit_ns;           /* as of credit_at_ns */
	uint64_t credit_at_ns;
	/* since load_ns: answers of the source, their bytes, the sum of their latencies */
	uint64_t load_ns, answers, answer_bytes, answer_latency_ns;
	bool is_forced; /* nobody waits until no control read is left */
	bool is_open;   /* nor afterwards */
};

void gate_init(struct gate *g, struct clock *clock);
void gate_fini(struct gate *g);
/* It may go to the source now. False: it is handed out in a `go` later. */
bool gate_enter(struct gate *g, struct probe_request *r);
/* It was answered; and who may go now. True, as below: prefetches had to wait until now. */
bool gate_leave(struct gate *g, struct probe_request *r, struct list *go);
bool gate_lets_prefetch(struct gate *g);
/* Now and then, so that nobody waits for ever. */
bool gate_tick(struct gate *g, uint64_t now_ns, struct list *go);
/* For good: nobody waits any more. */
void gate_open(struct gate *g, struct list *go);
/* It was shut for long enough; that recovers with time. */
bool gate_is_worn(struct gate *g);
/* About once a second, true while at least 3/2 of `readers` were in flight on average. */
bool gate_take_load(struct gate *g, uint64_t now_ns, struct gate_load *ret);

#endif
