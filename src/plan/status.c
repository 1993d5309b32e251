/* SPDX-License-Identifier: Apache-2.0 */
/* What the plan says about itself. Every figure is one the plan decides by, none is computed for
 * show. */
#include "plan_priv.h"

const char *const plan_state_names[] = {
	[PLAN_NO_ORDER] = "no_order",   [PLAN_WAITING] = "waiting", [PLAN_CHECKING] = "checking",
	[PLAN_FOLLOWING] = "following", [PLAN_SLOWED] = "slowed",   [PLAN_LOST] = "lost",
	[PLAN_FINISHED] = "finished",
};

/* From the low-water mark to the first position whose sample is missing. */
static uint64_t status_lead(const struct plan *plan)
{
	const struct slot *slots[2] = { cur_slot(plan), next_slot(plan) };
	uint64_t low = plan_low(plan), end = low;

	for (uint32_t i = 0; i < 2 && slots[i]->ep; i++) {
		uint64_t first = slots[i]->absorbed;

		for (uint32_t s = SET_WANT; s <= SET_GAP; s++)
			first = MIN(first, tree_next(&slots[i]->set[s], slots[i]->low));
		end = MAX(end, virtual_pos(plan, slots[i], first));
		if (first < slots[i]->length)
			break;
	}
	return end - low;
}

void plan_get_status(const struct plan *plan, struct plan_status *ret)
{
	const struct slot *slot = cur_slot(plan);

	if (slot->ep && slot->low == slot->length && next_slot(plan)->ep &&
	    !next_slot(plan)->is_rerun)
		slot = next_slot(plan);
	*ret = (struct plan_status){
		.state = plan->state,
		.why = plan->why,
		.epoch = slot->ep ? slot->epoch : plan->info.start_epoch,
		.position = slot->low,
		.length = slot->length,
		.lead = status_lead(plan),
		.match_percent = score_percent(plan),
		.inflight = plan->inflight_source + plan->inflight_store,
		.inflight_limit = budget_limit(plan),
		.arena_bytes = plan->used_pages * PAGE_BYTES,
		.stage_bytes = plan->staged_pages * PAGE_BYTES,
		.stage_limit_bytes = (uint64_t)plan->stage_limit * PAGE_BYTES,
		.pinned_bytes = plan->pinned_pages * PAGE_BYTES,
		.span = plan->span,
		.epochs_known = uses_known(plan),
		.opened = plan->opened,
		.issued = plan->issued,
		.useful = plan->useful,
		.late = plan->late,
		.wasted = plan->wasted,
		.failed = plan->failed,
		.mismatches = plan->mismatches,
		.resyncs = plan->resyncs,
	};
}

bool plan_is_confirmed(const struct plan *plan)
{
	return plan->is_confirmed;
}
