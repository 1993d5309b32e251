/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory the plan's tables take, by what they were made for: arrays per unit, and of each
 * job the passes that are loaded. What grows with nothing is left out. Trees are counted whole, as
 * their members are spread; of those for later epochs the ones that have members. */
#include "plan_priv.h"

static uint64_t memory_of_tree(const struct tree *tree)
{
	return tree->size / 8 + tree->size / 8 / 63;
}

static uint64_t memory_of_epoch(const struct order_epoch *ep)
{
	if (!ep)
		return 0;
	return (ep->length * (1 + (ep->next_same != NULL) + (ep->place != NULL)) + ep->n) *
	       sizeof(uint32_t);
}

/* Both passes may share an epoch, and so may the one before. */
static uint64_t memory_of_epochs(const struct plan_job *job)
{
	const struct order_epoch *a = job->slots[0].ep, *b = job->slots[1].ep, *c = job->before;

	return memory_of_epoch(a) + (b == a ? 0 : memory_of_epoch(b)) +
	       (c == a || c == b ? 0 : memory_of_epoch(c));
}

static uint64_t memory_of_job(const struct plan *plan, const struct plan_job *job)
{
	uint64_t sum = sizeof(*job) + memory_of_epochs(job);

	if (job->key)
		sum += (uint64_t)plan->n * sizeof(*job->key);
	if (job->unnumbered)
		sum += plan->n / 8;
	if (job->inner)
		sum += plan->n / 8;
	for (uint32_t i = 0; i < SLOTS; i++) {
		sum += job->slots[i].consumed.size / 8;
		for (uint32_t k = 0; k < SET_COUNT; k++)
			sum += memory_of_tree(&job->slots[i].set[k]);
	}
	return sum;
}

uint64_t plan_table_bytes(const struct plan *plan)
{
	uint64_t sum = sizeof(*plan) + (uint64_t)plan->n * sizeof(*plan->item) +
		       memory_of_tree(&plan->unkeyed) + plan->hold_size * sizeof(*plan->hold);

	if (plan->later.mask)
		sum += (uint64_t)plan->n * sizeof(*plan->later.mask);
	for (uint32_t i = 0; i < LATER_EPOCHS; i++)
		if (plan->later.filled >> i & 1)
			sum += memory_of_tree(&plan->later.bucket[i]);
	for (uint32_t i = 0; i < plan->top_home; i++)
		if (plan->keyed[i])
			sum += memory_of_job(plan, plan->keyed[i]);
	return sum;
}
