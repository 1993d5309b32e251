/* SPDX-License-Identifier: Apache-2.0 */
/* What is worth keeping, where several jobs read. MIN keeps the shortest waits: a page that waits
 * for its next use for two seconds takes the room of two pages that wait for one. So what is read
 * is counted by when it is needed again, by any job; the shortest waits are taken until they fill
 * the arena for as long as the counting took, and where that ends is the boundary. Residents needed
 * later are junk: dropping them for a fetch far ahead costs nothing.
 *
 * Until a sixteenth of the units was counted everything is worth keeping. Counts are halved then,
 * so the boundary follows the jobs. Planner thread; used with several jobs only. */
#include "plan_priv.h"

#define PER_OCTAVE 4
/* Of the room: a boundary too near costs hits, one too far only some fetches far ahead. */
#define MORE 1.5

void worth_init(struct plan *plan)
{
	plan->worth = (struct worth){ .within = UINT64_MAX, .since_ns = plan->now_ns };
}

static uint32_t worth_bucket(uint64_t ns)
{
	uint32_t top = 63 - (uint32_t)__builtin_clzll(ns | 4);

	return (top - 2) * PER_OCTAVE + (uint32_t)((ns | 4) >> (top - 2) & 3);
}

/* Its middle. */
static double worth_ns(uint32_t bucket)
{
	return (4.5 + bucket % PER_OCTAVE) * (double)(1ull << bucket / PER_OCTAVE);
}

static void worth_judge(struct plan *plan)
{
	struct worth *w = &plan->worth;
	double room = MORE * (double)usable_pages(plan) * w->elapsed_ns, taken = 0;
	uint32_t b = 0;

	for (; b < WORTH_BUCKETS && taken <= room; b++)
		taken += (double)w->pages[b] * worth_ns(b);
	w->within = taken <= room ? UINT64_MAX : (uint64_t)worth_ns(b - 1);
}

void worth_read(struct plan *plan, uint64_t now_ns, uint32_t unit)
{
	struct worth *w = &plan->worth;
	const struct plan_job *home;
	uint64_t when;

	assert(plan->n_jobs > 1 && now_ns >= w->since_ns);
	home = jobs_home(plan, unit, &when);
	if (home && !home->is_over)
		w->pages[MIN(worth_bucket(when), WORTH_BUCKETS - 1)] += plan->item[unit].pages;
	if (++w->reads < MAX(plan->n_sized / 16, SCORE_READS))
		return;
	w->elapsed_ns += (double)(now_ns - w->since_ns);
	worth_judge(plan);
	w->since_ns = now_ns;
	w->reads = 0;
	w->elapsed_ns /= 2;
	for (uint32_t b = 0; b < WORTH_BUCKETS; b++)
		w->pages[b] /= 2;
}
