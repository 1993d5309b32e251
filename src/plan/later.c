/* SPDX-License-Identifier: Apache-2.0 */
/* When a unit is needed after the two passes that are loaded. A node of many reads a part of the
 * units in each epoch, and the next use of what it has just read is epochs away; without knowing
 * which are near nothing can be kept that is worth it. The number of the epoch is all that MIN
 * needs: positions within it add less than a tenth of a percent of hits. So each unit has a mask
 * with a bit per epoch, for 64 epochs, and residents without a key stand in the bucket of the epoch
 * of their next use. Among equals the resident stays, which costs fewest writes.
 *
 * Each epoch is computed once for the masks, one at a time, and taken in by the step; until then
 * the plan knows less and is no worse for it. An order that reads every unit in every epoch needs
 * none of this and has no masks. Must never trust a mask beyond the epochs that are known: bits
 * outside are those of epochs long past. */
#include "plan_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TAKE_CHUNK 65536u /* units of an epoch taken in per step */
#define AHEAD 16          /* positions whose units are brought near the processor */

static uint32_t later_bucket_of(const struct item *it)
{
	return (it->flags & BUCKET_MASK) >> BUCKET_SHIFT;
}

/* The first epoch of which no unit has a key. */
static uint64_t later_start(const struct plan_job *job)
{
	const struct slot *cur = job_cur(job), *next = job_next(job);

	if (!next->ep || next->is_rerun)
		return cur->epoch + 1;
	return next->epoch + (next->absorbed == next->length);
}

static bool later_is_known(const struct plan *plan, const struct plan_job *job)
{
	return plan->later.mask && !plan->later.is_leaving && !job->is_repeat && plan->n_jobs == 1;
}

/* The epoch of the next use beyond the keys, or NO_POS. */
static uint64_t later_next_use(const struct plan *plan, const struct plan_job *job, uint32_t unit)
{
	const struct later *l = &plan->later;
	uint64_t from = MAX(later_start(job), l->lo), bits;

	if (!later_is_known(plan, job) || from >= l->hi)
		return NO_POS;
	bits = l->mask[unit];
	if (from % 64)
		bits = bits >> from % 64 | bits << (64 - from % 64);
	if (l->hi - from < 64)
		bits &= ~(~0ull << (l->hi - from));
	return bits ? from + (uint64_t)__builtin_ctzll(bits) : NO_POS;
}

void later_find_bucket(struct plan *plan, struct plan_job *job, uint32_t unit)
{
	struct item *it = &plan->item[unit];
	uint64_t epoch =
		*job_key(plan, job, unit) == NO_KEY ? later_next_use(plan, job, unit) : NO_POS;

	it->flags &= ~(uint32_t)BUCKET_MASK;
	if (epoch != NO_POS)
		it->flags |= (uint32_t)(1 + epoch % 64) << BUCKET_SHIFT;
}

void later_enter(struct plan *plan, uint32_t unit)
{
	uint32_t bucket = later_bucket_of(&plan->item[unit]);

	assert(bucket <= LATER_EPOCHS && (!bucket || plan->later.mask));
	if (!bucket) {
		tree_set(&plan->unkeyed, unit);
		return;
	}
	tree_set(&plan->later.bucket[bucket - 1], unit);
	plan->later.filled |= 1ull << (bucket - 1);
}

void later_leave(struct plan *plan, uint32_t unit)
{
	uint32_t bucket = later_bucket_of(&plan->item[unit]);
	struct tree *t = bucket ? &plan->later.bucket[bucket - 1] : &plan->unkeyed;

	tree_clear(t, unit);
	if (bucket && !t->count)
		plan->later.filled &= ~(1ull << (bucket - 1));
}

void later_forget_buckets(struct plan *plan)
{
	for (uint32_t i = 0; i < LATER_EPOCHS && plan->later.mask; i++)
		if (plan->later.bucket[i].count)
			tree_clear_all(&plan->later.bucket[i]);
	plan->later.filled = 0;
}

/* Buckets from the first epoch without keys on, in a line. */
static uint64_t later_filled(const struct plan *plan, const struct plan_job *job)
{
	uint32_t turn = later_start(job) % 64;
	uint64_t f = plan->later.filled;

	return turn ? f >> turn | f << (64 - turn) : f;
}

uint64_t later_last(const struct plan *plan, const struct plan_job *job)
{
	uint64_t f = plan->later.filled ? later_filled(plan, job) : 0;

	if (!f)
		return NO_POS;
	return tree_max(
		&plan->later.bucket[(later_start(job) + 63 - (uint64_t)__builtin_clzll(f)) % 64]);
}

bool later_is_near(const struct plan *plan, const struct plan_job *job, uint32_t unit)
{
	uint32_t bucket = later_bucket_of(&plan->item[unit]);
	uint64_t start = later_start(job), away;

	if (!bucket || plan->later.is_leaving || *job_key(plan, job, unit) != NO_KEY)
		return false;
	away = start - job_cur(job)->epoch + ((bucket - 1 - start) & 63);
	return away <= plan->later.worth_epochs;
}

void later_fini(struct plan *plan)
{
	struct later *l = &plan->later;

	for (uint32_t i = 0; i < LATER_EPOCHS; i++)
		tree_fini(&l->bucket[i]);
	free(l->mask);
	l->mask = NULL;
	order_epoch_free(l->taking);
	l->taking = NULL;
	l->filled = l->lo = l->hi = 0;
	l->judged = l->judged_out = 0;
	l->is_judged = l->is_leaving = false;
}

void later_let_go(struct plan *plan)
{
	struct later *l = &plan->later;

	order_epoch_free(l->taking);
	l->taking = NULL;
	l->lo = l->hi = 0;
	l->is_judged = l->is_cut = false;
	l->judged = l->judged_out = 0;
	l->survey_pass = l->surveyed = 0;
	l->is_leaving = l->mask != NULL;
	l->left = plan->n;
}

void later_left(struct plan *plan, uint32_t n)
{
	struct later *l = &plan->later;

	if (!l->is_leaving)
		return;
	l->left -= MIN(n, l->left);
	if (l->left)
		return;
	assert(!l->filled);
	later_fini(plan);
}

/* So many units are left out. */
static void later_judged(struct plan *plan, const struct plan_job *job, uint32_t out)
{
	struct later *l = &plan->later;
	int r = 0;

	l->is_judged = true;
	if (out - MIN(out, job->n_outside) <= plan->n_sized / 16)
		return;
	/* Zero pages until they are written: buckets that stay empty take no memory. */
	l->mask = mem_alloc_zero(plan->n, sizeof(*l->mask));
	for (uint32_t i = 0; i < LATER_EPOCHS && l->mask && r == 0; i++)
		r = tree_init(&l->bucket[i], plan->n);
	if (r < 0) {
		later_fini(plan);
		l->is_judged = true; /* no memory for it */
	}
	l->worth_epochs = LATER_EPOCHS;
}

/* Masks are worth their memory when passes leave out more than a few units. In a pass without
 * repeats each position is another unit. In others they are counted, a share at a time; each pass
 * is as good for that as the one before. */
static void later_judge(struct plan *plan, const struct plan_job *job)
{
	const struct order_epoch *ep = job_cur(job)->ep;
	struct later *l = &plan->later;
	uint32_t end = l->judged + MIN(plan->n - l->judged, TAKE_CHUNK);

	assert(!l->is_judged && ep->n == plan->n);
	if (job->info.is_same_every_epoch || job->info.epochs == 1) {
		l->is_judged = true;
	} else if (!ep->next_same) {
		later_judged(plan, job,
			     (uint32_t)(plan->n_sized - MIN(ep->length, plan->n_sized)));
	} else {
		for (; l->judged < end; l->judged++)
			l->judged_out += ep->first[l->judged] == SAMPLE_NONE;
		if (l->judged == plan->n)
			later_judged(plan, job,
				     l->judged_out - (uint32_t)(plan->n - plan->n_sized));
	}
}

/* Whether both passes are loaded and known, so that it is time to look beyond them. */
static bool later_is_due(const struct plan *plan, const struct plan_job *job)
{
	const struct slot *cur = job_cur(job), *next = job_next(job);

	return cur->ep && next->ep && !next->is_rerun && next->absorbed == next->length &&
	       plan->n_jobs == 1 && !plan->later.is_leaving;
}

/* After a jump of the job to another epoch nothing may be left that is known. */
static void later_follow(struct plan *plan, struct plan_job *job)
{
	struct later *l = &plan->later;
	uint64_t start = later_start(job);

	if (start >= l->lo && start <= l->hi)
		return;
	if (l->taking)
		order_epoch_free(l->taking);
	l->taking = NULL;
	l->lo = l->hi = start;
}

uint64_t later_wanted(struct plan *plan, struct plan_job *job)
{
	struct later *l = &plan->later;

	if (!later_is_due(plan, job))
		return NO_POS;
	if (!l->is_judged)
		later_judge(plan, job);
	if (!later_is_known(plan, job))
		return NO_POS;
	later_follow(plan, job);
	if (l->taking || l->is_cut || l->hi >= later_start(job) + LATER_EPOCHS)
		return NO_POS;
	if (job->has_epochs_end &&
	    l->hi >= job->info.start_epoch + job->info.epochs)
		return NO_POS;
	return l->hi;
}

void later_arrived(struct plan *plan, struct plan_job *job, const struct plan_event *ev)
{
	struct order_epoch *ep = ev->order_epoch;
	struct later *l = &plan->later;
	bool is_wanted = later_is_known(plan, job) && !l->taking && ev->epoch == l->hi;

	if (ev->status < 0 || !ep || ep->n != plan->n || !is_wanted) {
		l->is_cut = is_wanted;
		if (ev->status == 0)
			order_epoch_free(ep);
		return;
	}
	l->taking = ep;
	l->taken = 0;
	l->hi++;
	if (l->hi - l->lo > LATER_EPOCHS)
		l->lo = l->hi - LATER_EPOCHS;
}

/* Also those whose old bit was right by chance stood elsewhere: every unit with either bit is
 * looked at. */
static void later_take_in_epoch(struct plan *plan, struct plan_job *job)
{
	struct later *l = &plan->later;
	uint64_t bit = 1ull << (l->hi - 1) % 64;
	uint32_t end = MIN(plan->n, l->taken + TAKE_CHUNK);

	assert(l->mask && l->hi > l->lo && l->hi - l->lo <= LATER_EPOCHS);
	for (; l->taken < end; l->taken++) {
		uint32_t s = l->taken;
		bool was = (l->mask[s] & bit) != 0, is = l->taking->first[s] != SAMPLE_NONE;

		if (was != is)
			l->mask[s] ^= bit;
		if ((was || is) && *job_key(plan, job, s) == NO_KEY) {
			item_out(plan, s);
			later_find_bucket(plan, job, s);
			item_in(plan, s);
		}
	}
	if (l->taken < plan->n)
		return;
	order_epoch_free(l->taking);
	l->taking = NULL;
}

/* Shortest waits first, as MIN does: a page that is kept for g epochs takes the room of g pages
 * kept for one. */
static uint32_t later_boundary(const struct plan *plan)
{
	const struct later *l = &plan->later;
	uint64_t room = plan->arena_pages, taken = 0;

	for (uint32_t g = 1; g <= LATER_EPOCHS; g++) {
		taken += g * l->survey[g];
		if (taken > room)
			return g;
	}
	return LATER_EPOCHS;
}

/* How long what this pass reads will wait: once per pass, and again when all is known. */
static bool later_survey(struct plan *plan, struct plan_job *job)
{
	struct later *l = &plan->later;
	const struct slot *cur = job_cur(job), *next = job_next(job);
	uint64_t end = MIN(cur->length, l->surveyed + WORK_MOST);

	if (l->survey_pass != cur->pass + 1) {
		l->survey_pass = cur->pass + 1;
		l->surveyed = 0;
		memset(l->survey, 0, sizeof(l->survey));
		end = MIN(cur->length, WORK_MOST);
	}
	for (; l->surveyed < end; l->surveyed++) {
		uint32_t unit = cur->ep->sample[l->surveyed];
		uint64_t epoch = NO_POS, away = 0;

		if (l->surveyed + AHEAD < cur->length)
			__builtin_prefetch(&l->mask[cur->ep->sample[l->surveyed + AHEAD]]);
		if (next->ep->first[unit] != SAMPLE_NONE)
			away = 1;
		else if ((epoch = later_next_use(plan, job, unit)) != NO_POS)
			away = MIN(epoch - cur->epoch, LATER_EPOCHS);
		if (!(plan->item[unit].flags & PINNED))
			l->survey[away] += plan->item[unit].pages;
	}
	if (l->surveyed == cur->length)
		l->worth_epochs = later_boundary(plan);
	return l->surveyed < cur->length;
}

uint64_t later_known(const struct plan *plan, const struct plan_job *job)
{
	const struct later *l = &plan->later;
	uint64_t from = MAX(later_start(job), l->lo);

	/* The last one only when it is in. */
	return later_is_known(plan, job) && l->hi > from ? l->hi - from - (l->taking != NULL) : 0;
}

bool later_is_complete(struct plan *plan, struct plan_job *job)
{
	const struct slot *cur = job_cur(job), *next = job_next(job);

	if (plan->n_jobs != 1)
		return true;
	if (plan->later.is_judged)
		return !plan->later.taking && later_wanted(plan, job) == NO_POS;
	/* One epoch or the same again and again: there is nothing to be known. */
	return !job->info.n || job->info.epochs == 1 ||
	       job->info.is_same_every_epoch ||
	       (cur->ep && cur->ep->length + job->n_outside >= plan->n_sized &&
		!cur->ep->next_same) ||
	       (next->ep && next->is_rerun);
}

uint32_t later_count(const struct plan *plan, uint32_t unit)
{
	const struct later *l = &plan->later;
	uint64_t bits;

	if (!l->mask || l->hi == l->lo)
		return 1;
	bits = l->mask[unit];
	if (l->lo % 64)
		bits = bits >> l->lo % 64 | bits << (64 - l->lo % 64);
	if (l->hi - l->lo < 64)
		bits &= ~(~0ull << (l->hi - l->lo));
	return (uint32_t)__builtin_popcountll(bits);
}

/* Pages of a pass that the best policy finds in the arena or the store. */
uint64_t later_kept_pages(const struct plan *plan)
{
	const struct later *l = &plan->later;
	uint64_t kept = plan->pinned_pages, taken = 0;

	if (!l->mask || l->is_leaving)
		return kept + plan->arena_pages;
	for (uint32_t g = 1; g <= LATER_EPOCHS && taken < plan->arena_pages; g++) {
		uint64_t room = (plan->arena_pages - taken) / g;

		kept += MIN(l->survey[g], room);
		taken += g * l->survey[g];
	}
	return kept;
}

bool later_step(struct plan *plan, struct plan_job *job)
{
	struct later *l = &plan->later;
	uint64_t wanted;

	if (l->judged && !l->is_judged && later_is_due(plan, job)) {
		later_judge(plan, job);
		return true;
	}
	if (!l->mask || l->is_leaving)
		return false;
	if (l->taking) {
		later_take_in_epoch(plan, job);
		return true;
	}
	wanted = later_wanted(plan, job);
	if (wanted != NO_POS || !later_is_due(plan, job) ||
	    (l->survey_pass == job_cur(job)->pass + 1 && l->surveyed == job_cur(job)->length))
		return false;
	return later_survey(plan, job);
}

void later_rolled(struct plan *plan)
{
	plan->later.is_cut = false;
}
