/* SPDX-License-Identifier: Apache-2.0 */
/* What is in the arena, what leaves it, and how much of it can be used. Part of plan_priv.h, which
 * says how it belongs together; nothing else includes it. */
#ifndef CLAIRFS_PLAN_RETAIN_H
#define CLAIRFS_PLAN_RETAIN_H

#include "clairfs/plan.h"

#include "item.h"

/* retain.c: the arena's content, holds */
/* Between item_out and item_in. */
void item_set_state(struct plan *plan, uint32_t unit, uint32_t state);
void retain_opened(struct plan *plan, struct plan_job *job, uint64_t now_ns, uint32_t unit);
void retain_fetched(struct plan *plan, uint64_t now_ns, const struct plan_event *ev);
void retain_drop(struct plan *plan, struct plan_job *job, uint32_t unit);
void retain_lost(struct plan *plan); /* an order is not followed any more */
bool retain_lost_step(struct plan *plan); /* true when there is more to do at once */
uint64_t retain_step(struct plan *plan, uint64_t now_ns);
/* Where there is no job: what is here is the executive's own. True when there is more to do at
 * once. */
bool retain_let_go(struct plan *plan);
/* No key means "not needed in these passes" only when all their keys have been given out. */
bool retain_knows_keys(const struct plan *plan);
/* Frees room for `pages` more, by what no job at work needs. */
bool retain_make_room_unneeded(struct plan *plan, uint64_t pages);
/* Frees room for `pages` more, for the job, evicting only what is needed later than `when` (see
 * jobs_when). */
bool retain_make_room(struct plan *plan, struct plan_job *job, uint64_t pages, uint64_t when,
		      enum room_for what);
void retain_resized(struct plan *plan, uint32_t unit, uint64_t bytes);
void retain_lost_copy(struct plan *plan, uint32_t unit);

/* worth.c */
void worth_init(struct plan *plan);
void worth_read(struct plan *plan, uint64_t now_ns, uint32_t unit);

/* usable.c: as far as refused fetches have shown */
void usable_init(struct plan *plan);
void usable_step(struct plan *plan, uint64_t now_ns);
/* The arena has this many pages from now on. */
void usable_resize(struct plan *plan, uint64_t pages);
uint64_t usable_pages(const struct plan *plan);
/* For what is due soon, until it was pushed. */
uint64_t usable_soon_pages(const struct plan *plan);
void usable_answered(struct plan *plan, uint64_t now_ns, uint32_t pages, int status);

#endif
