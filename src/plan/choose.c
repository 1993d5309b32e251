/* SPDX-License-Identifier: Apache-2.0 */
/* Which units go into the store. It is written once, so what is chosen is chosen for the life of
 * the order: those that save the source most per byte. A source whose requests cost more than their
 * bytes is saved most by keeping small units: half of the bytes are then two thirds of the
 * requests, at the same number of bytes. A node that reads a part of the units per epoch is saved
 * most by those it reads most often. Where neither makes a difference it is first come, which fills
 * the store soonest.
 *
 * Units are counted once by classes of gain, a sixteenth of an octave wide, and the class is
 * found at which the store is full; of that one as many are taken as there is room for. Nothing is
 * pinned before that is known: the units come by again. Must never choose a unit that this job
 * does not read again as far as is known. */
#include "plan_priv.h"

#include <stdlib.h>

#define MEASURED_FETCHES 64u
#define COUNT_CHUNK 65536u
#define FREED_PART 16u /* of the store: when so much has come free it is chosen again */
#define EVEN_VARIATION 0.01 /* square of the coefficient of variation */

void choose_init(struct plan *plan, double total, double squares)
{
	struct choice *c = &plan->choice;
	double n = MAX((double)plan->n, 1), mean = total / n;

	c->is_even = squares / n - mean * mean <= EVEN_VARIATION * mean * mean;
	c->is_small_first = plan->params.pin_rule == PLAN_PIN_SMALLEST;
	c->is_measured = plan->params.pin_rule != PLAN_PIN_AUTO || c->is_even;
	c->is_done = !plan->store_pages;
}

void choose_again(struct plan *plan)
{
	struct choice *c = &plan->choice;

	choose_fini(plan);
	c->is_counting = false;
	c->counted = 0;
	c->freed = 0;
	c->is_done = !plan->store_pages;
}

void choose_fini(struct plan *plan)
{
	free(plan->choice.pages);
	plan->choice.pages = NULL;
}

/* The first fetches are few at a time, so their latency is the source's and not that of a queue. */
void choose_fetched(struct plan *plan, uint32_t pages, uint64_t latency_ns)
{
	struct choice *c = &plan->choice;
	double x = pages, y = (double)latency_ns, slope, spread;

	if (c->is_measured)
		return;
	c->n++;
	c->x += x;
	c->y += y;
	c->xx += x * x;
	c->xy += x * y;
	if (c->n < MEASURED_FETCHES)
		return;
	spread = c->n * c->xx - c->x * c->x;
	slope = spread > 0 ? (c->n * c->xy - c->x * c->y) / spread : 0;
	/* What a request costs before its first byte, against all bytes of one. */
	c->is_small_first = slope <= 0 || (c->y - slope * c->x) > slope * c->x;
	c->is_measured = true;
}

/* 16 classes per octave of uses, or of uses per page; 0: of no use. */
static uint32_t choose_class(const struct plan *plan, uint32_t unit)
{
	uint64_t uses = later_count(plan, unit), gain = uses << 24;
	uint32_t top;

	if (plan->choice.is_small_first)
		gain /= plan->item[unit].pages;
	if (gain < 16)
		return uses ? 1 : 0;
	top = 63 - (uint32_t)__builtin_clzll(gain);
	return MIN(1 + 16 * (top - 4) + (uint32_t)(gain >> (top - 4) & 15), CHOOSE_CLASSES - 1);
}

static void choose_boundary(struct plan *plan)
{
	struct choice *c = &plan->choice;
	uint64_t room = plan->store_pages - MIN(plan->pinned_pages, plan->store_pages);

	assert(c->pages && c->counted == plan->n);
	c->least = CHOOSE_CLASSES - 1;
	while (c->least > 1 && c->pages[c->least] <= room)
		room -= c->pages[c->least--];
	c->least_left = room;
	c->is_done = true;
	choose_fini(plan);
}

bool choose_step(struct plan *plan, struct plan_job *job)
{
	struct choice *c = &plan->choice;
	uint32_t end = MIN(plan->n, c->counted + COUNT_CHUNK);

	if (c->is_done || !plan->n_jobs || !c->is_measured || !later_is_complete(plan, job))
		return false;
	if (!c->is_counting) {
		c->pages = calloc(CHOOSE_CLASSES, sizeof(*c->pages));
		if (!c->pages) {
			c->is_done = true; /* then it is first come */
			return false;
		}
		c->is_counting = true;
	}
	for (; c->counted < end; c->counted++) {
		const struct item *it = &plan->item[c->counted];

		if (!(it->flags & PINNED) && it->pages <= plan->max_pages &&
		    !jobs_are_outside(plan, c->counted))
			c->pages[choose_class(plan, c->counted)] += it->pages;
	}
	if (c->counted == plan->n)
		choose_boundary(plan);
	return !c->is_done;
}

bool choose_wants(const struct plan *plan, uint32_t unit)
{
	const struct choice *c = &plan->choice;
	uint32_t class = choose_class(plan, unit);

	return c->is_done && class && class >= c->least &&
	       (class > c->least || plan->item[unit].pages <= c->least_left);
}

void choose_taken(struct plan *plan, uint32_t unit, bool is_taken)
{
	struct choice *c = &plan->choice;
	uint32_t pages = plan->item[unit].pages;

	if (!c->is_done)
		return;
	if (!is_taken && (jobs_are_outside(plan, unit) || choose_class(plan, unit) < c->least)) {
		c->freed += pages;
		if (c->freed * FREED_PART >= plan->store_pages)
			choose_again(plan);
	} else if (choose_class(plan, unit) == c->least) {
		if (is_taken)
			c->least_left -= MIN(c->least_left, pages);
		else
			c->least_left += pages;
	}
}
