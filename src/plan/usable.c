/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the arena can be used. The plan counts pages; the arena needs runs of them, and holes
 * between units of different sizes take some percent of it, more as it gets older. Only the
 * answer -ENOMEM tells. A plan that went on believing in its budget would see room for ever where
 * none is, and would never drop anything again.
 *
 * So a refused fetch cuts it below what is in use, which makes the next step drop something;
 * refusals of requests that were asked for before the cut say nothing new. It comes back slowly, in
 * case sizes change. Must never fall below half of the arena: refusals then have another cause.
 *
 * An arena that became smaller refuses what is on its way, too, for what it still holds. That says
 * nothing of holes: once it was taken for them, and half of the memory that came back stayed unused
 * for five minutes. */
#include "plan_priv.h"

#include <errno.h>

#define CUT_PARTS 256   /* of the arena, at each refusal */
#define RECOVER_S 600.0 /* for all of the arena */
#define PAUSE_NS NS_PER_MS
#define PAUSE_DOUBLINGS 7u /* refused again and again: at most 128 ms */

void usable_init(struct plan *plan)
{
	plan->usable = (double)plan->arena_pages;
}

uint64_t usable_pages(const struct plan *plan)
{
	return (uint64_t)plan->usable;
}

/* Not while memory is short, or holes have the spare. */
uint64_t usable_soon_pages(const struct plan *plan)
{
	uint64_t pages = usable_pages(plan);

	return pages == plan->full_pages ? pages + plan->spare_pages : pages;
}

void usable_step(struct plan *plan, uint64_t now_ns)
{
	double all = (double)plan->arena_pages, passed = (double)(now_ns - plan->usable_grown_ns);

	plan->usable = MIN(all, plan->usable + passed / (double)NS_PER_S / RECOVER_S * all);
	plan->usable_grown_ns = now_ns;
}

/* What was asked for until now says nothing of the arena as it is from here on. */
static void usable_wait(struct plan *plan)
{
	plan->usable_unanswered =
		plan->inflight_source + plan->inflight_store + plan->inflight_adopted;
}

/* What is added is taken as without holes; and what the smaller one refused is not its doing. */
void usable_resize(struct plan *plan, uint64_t pages)
{
	assert(pages && pages <= plan->full_pages);
	if (pages > plan->arena_pages)
		plan->usable += (double)(pages - plan->arena_pages);
	else
		plan->usable *= (double)pages / (double)plan->arena_pages;
	if (pages != plan->arena_pages)
		usable_wait(plan);
	plan->arena_pages = pages;
}

static void usable_cut(struct plan *plan, uint32_t pages)
{
	double all = (double)plan->arena_pages;
	double cut = MAX(2.0 * pages, all / CUT_PARTS);

	plan->usable = MAX(MIN(plan->usable, (double)plan->used_pages) - cut, all / 2);
	usable_wait(plan);
}

/* A fetch was answered; it no longer counts as in flight but still as used. */
void usable_answered(struct plan *plan, uint64_t now_ns, uint32_t pages, int status)
{
	bool is_old = plan->usable_unanswered > 0;

	if (is_old)
		plan->usable_unanswered--;
	if (status != -ENOMEM) {
		if (status == 0)
			plan->usable_refused = 0;
		return;
	}
	if (is_old)
		return;
	usable_cut(plan, pages);
	plan->usable_not_before_ns =
		now_ns + (PAUSE_NS << MIN(plan->usable_refused, PAUSE_DOUBLINGS));
	plan->usable_refused++;
}
