/* SPDX-License-Identifier: Apache-2.0 */
/* What is pushed into the kernel (stage.c), and what of it need not stay in the arena (alone.c).
 * Part of plan_priv.h; nothing else includes it. */
#ifndef CLAIRFS_PLAN_STAGE_H
#define CLAIRFS_PLAN_STAGE_H

#include <stdbool.h>
#include <stdint.h>

struct plan;
struct plan_job;

uint64_t stage_step(struct plan *plan, uint64_t now_ns);
void stage_consumed(struct plan *plan, struct plan_job *job, uint64_t due, uint32_t unit);
/* Between item_out and item_in. */
void stage_forget(struct plan *plan, uint32_t unit);
/* How far apart the readers of a job are in positions: each of these may be next. Farther when a pass
 * begins. */
uint64_t stage_apart(const struct plan_job *job);
/* Whether a job is about to read it. */
bool stage_is_due(const struct plan *plan, uint32_t unit);
/* Likewise of a job that is prefetched for. */
bool stage_is_wanted(const struct plan *plan, uint32_t unit);
void stage_answered(struct plan *plan, uint64_t now_ns, uint32_t unit, int status);
/* Between item_out and item_in: not now, but again in a while (flag: NO_FETCH or NO_STAGE), twice
 * per use; false: not again for this use. */
bool stage_try_again(struct plan *plan, uint64_t now_ns, uint32_t unit, uint32_t flag);
/* The kernel drops what was pushed: only what is due soon is pushed now, and for a while. */
void stage_distrust(struct plan *plan, uint64_t now_ns);
void stage_unstaged(struct plan *plan, uint64_t now_ns, uint32_t unit);

/* Units that were opened a moment ago and had been pushed. */
#define ALONE_RECENT 64u
struct alone_recent {
	uint32_t unit;
	bool was_alone;
};

/* Makes room in the arena by leaving the next staged unit to the kernel alone; false: there is
 * none, or that would cost a read. */
bool alone_make_room(struct plan *plan, struct plan_job *job);
/* Whether units may be left to a kernel that keeps what was pushed. */
bool alone_is_possible(const struct plan *plan);
/* That may be in the kernel alone, at most. */
uint64_t alone_pages(const struct plan *plan);
/* Units that were pushed lie from this virtual position on. */
void alone_staged(struct plan *plan, struct plan_job *job, uint64_t due);
/* Before its open is taken in. */
void alone_opened(struct plan *plan, uint32_t unit);
/* The kernel has dropped a staged unit before its use. */
void alone_dropped(struct plan *plan, struct plan_job *job, uint64_t now_ns, uint32_t unit);

#endif
