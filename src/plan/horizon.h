/* SPDX-License-Identifier: Apache-2.0 */
/* How far ahead of the readers a missing unit may cost a valuable one, in positions. Part of
 * plan_priv.h, which says how it belongs together; nothing else includes it. */
#ifndef CLAIRFS_PLAN_HORIZON_H
#define CLAIRFS_PLAN_HORIZON_H

#include "clairfs/plan.h"

struct plan_job;
struct slot;

struct horizon {
	double reach;
	uint64_t asked_pages; /* of the source, in this pass */
	uint64_t calm_until;  /* reads, and units reached */
	uint32_t late;
	bool is_late_pass;
	bool is_deep; /* what the stage can hold did not do */
	uint64_t waits_before, pass_began_ns;
	/* How long the source took for so many fetches: to tell outages from a slow source. */
	uint64_t began_ns, latency_ns, fastest_ns, fastest_latency_ns, slowest_late_ns;
	uint32_t done, windows;
	bool is_late_window;
};

/* Fetches that readers wait for, and the time in which there were any. */
struct awaited {
	uint32_t n;
	uint64_t since_ns, ns;
};

void horizon_init(struct plan_job *job);
uint64_t horizon_ahead(const struct plan *plan, const struct plan_job *job);
/* Within, a unit that is worth keeping may leave for it; beyond, only what is in the kernel. */
uint64_t horizon_near(const struct plan *plan, const struct plan_job *job);
uint64_t horizon_of_store(const struct plan *plan, const struct plan_job *job);
void horizon_opened(struct plan *plan, struct plan_job *job, uint32_t unit);
/* A reader begins or ends to wait for a fetch. */
void horizon_awaited(struct plan *plan, bool is_begin);
void horizon_fetched(struct plan_job *job, uint64_t now_ns, uint64_t latency_ns);
void horizon_asked(struct plan_job *job, uint32_t pages);
void horizon_unasked(struct plan_job *job, uint32_t pages);
void horizon_rolled(struct plan *plan, struct plan_job *job, const struct slot *old);

#endif
