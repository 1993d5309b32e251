/* SPDX-License-Identifier: Apache-2.0 */
/* When a sample is needed after the two passes that are loaded. A node of many reads a part of the
 * samples in each epoch, and the next use of what it has just read is epochs away; without knowing
 * which are near nothing can be kept that is worth it. The number of the epoch is all that MIN
 * needs: positions within it add less than a tenth of a percent of hits. So each sample has a mask
 * with a bit per epoch, for 64 epochs, and residents without a key stand in the bucket of the epoch
 * of their next use. Among equals the resident stays, which costs fewest writes.
 *
 * Each epoch is computed once for the masks, one at a time, and taken in by the step; until then
 * the plan knows less and is no worse for it. An order that reads every sample in every epoch needs
 * none of this and has no masks. Must never trust a mask beyond the epochs that are known: bits
 * outside are those of epochs long past. */
#include "plan_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TAKE_CHUNK 65536u /* samples of an epoch taken in per step */
#define AHEAD 16          /* positions whose samples are brought near the processor */

static uint32_t bucket_of(const struct item *it)
{
	return (it->flags & FAR_MASK) >> FAR_SHIFT;
}

/* The first epoch of which no sample has a key. */
static uint64_t uses_start(const struct plan_job *job)
{
	const struct slot *cur = job_cur(job), *next = job_next(job);

	if (!next->ep || next->is_rerun)
		return cur->epoch + 1;
	return next->epoch + (next->absorbed == next->length);
}

static bool uses_are_known(const struct plan *plan, const struct plan_job *job)
{
	return plan->uses.mask && !plan->uses.is_leaving && !job->is_repeat && plan->n_jobs == 1;
}

/* The epoch of the next use beyond the keys, or NO_POS. */
static uint64_t uses_next(const struct plan *plan, const struct plan_job *job, uint32_t sample)
{
	const struct uses *u = &plan->uses;
	uint64_t from = MAX(uses_start(job), u->lo), bits;

	if (!uses_are_known(plan, job) || from >= u->hi)
		return NO_POS;
	bits = u->mask[sample];
	if (from % 64)
		bits = bits >> from % 64 | bits << (64 - from % 64);
	if (u->hi - from < 64)
		bits &= ~(~0ull << (u->hi - from));
	return bits ? from + (uint64_t)__builtin_ctzll(bits) : NO_POS;
}

void uses_put(struct plan *plan, struct plan_job *job, uint32_t sample)
{
	struct item *it = &plan->item[sample];
	uint64_t epoch =
		*job_key(plan, job, sample) == NO_KEY ? uses_next(plan, job, sample) : NO_POS;

	it->flags &= ~(uint32_t)FAR_MASK;
	if (epoch != NO_POS)
		it->flags |= (uint32_t)(1 + epoch % 64) << FAR_SHIFT;
}

void uses_enter(struct plan *plan, uint32_t sample)
{
	uint32_t bucket = bucket_of(&plan->item[sample]);

	if (!bucket) {
		tree_set(&plan->unkeyed, sample);
		return;
	}
	tree_set(&plan->uses.bucket[bucket - 1], sample);
	plan->uses.filled |= 1ull << (bucket - 1);
}

void uses_leave(struct plan *plan, uint32_t sample)
{
	uint32_t bucket = bucket_of(&plan->item[sample]);
	struct tree *t = bucket ? &plan->uses.bucket[bucket - 1] : &plan->unkeyed;

	tree_clear(t, sample);
	if (bucket && !t->count)
		plan->uses.filled &= ~(1ull << (bucket - 1));
}

void uses_forget_buckets(struct plan *plan)
{
	for (uint32_t i = 0; i < USES_EPOCHS && plan->uses.mask; i++)
		if (plan->uses.bucket[i].count)
			tree_clear_all(&plan->uses.bucket[i]);
	plan->uses.filled = 0;
}

/* Buckets from the first epoch without keys on, in a line. */
static uint64_t uses_filled(const struct plan *plan, const struct plan_job *job)
{
	uint32_t turn = uses_start(job) % 64;
	uint64_t f = plan->uses.filled;

	return turn ? f >> turn | f << (64 - turn) : f;
}

uint64_t uses_last(const struct plan *plan, const struct plan_job *job)
{
	uint64_t f = plan->uses.filled ? uses_filled(plan, job) : 0;

	if (!f)
		return NO_POS;
	return tree_max(
		&plan->uses.bucket[(uses_start(job) + 63 - (uint64_t)__builtin_clzll(f)) % 64]);
}

bool uses_are_near(const struct plan *plan, const struct plan_job *job, uint32_t sample)
{
	uint32_t bucket = bucket_of(&plan->item[sample]);
	uint64_t start = uses_start(job), away;

	if (!bucket || plan->uses.is_leaving || *job_key(plan, job, sample) != NO_KEY)
		return false;
	away = start - job_cur(job)->epoch + ((bucket - 1 - start) & 63);
	return away <= plan->uses.value_epochs;
}

void uses_fini(struct plan *plan)
{
	struct uses *u = &plan->uses;

	for (uint32_t i = 0; i < USES_EPOCHS; i++)
		tree_fini(&u->bucket[i]);
	free(u->mask);
	u->mask = NULL;
	order_epoch_free(u->taking);
	u->taking = NULL;
	u->filled = u->lo = u->hi = 0;
	u->judged = u->judged_out = 0;
	u->is_judged = u->is_leaving = false;
}

void uses_let_go(struct plan *plan)
{
	struct uses *u = &plan->uses;

	order_epoch_free(u->taking);
	u->taking = NULL;
	u->lo = u->hi = 0;
	u->is_judged = u->is_cut = false;
	u->judged = u->judged_out = 0;
	u->survey_pass = u->surveyed = 0;
	u->is_leaving = u->mask != NULL;
	u->left = plan->n;
}

void uses_left(struct plan *plan, uint32_t n)
{
	struct uses *u = &plan->uses;

	if (!u->is_leaving)
		return;
	u->left -= MIN(n, u->left);
	if (u->left)
		return;
	assert(!u->filled);
	uses_fini(plan);
}

/* So many samples are left out. */
static void uses_judged(struct plan *plan, const struct plan_job *job, uint32_t out)
{
	struct uses *u = &plan->uses;
	int r = 0;

	u->is_judged = true;
	if (out - MIN(out, job->n_outside) <= plan->n / 16)
		return;
	/* Zero pages until they are written: buckets that stay empty take no memory. */
	u->mask = mem_alloc_zero(plan->n, sizeof(*u->mask));
	for (uint32_t i = 0; i < USES_EPOCHS && u->mask && r == 0; i++)
		r = tree_init(&u->bucket[i], plan->n);
	if (r < 0) {
		uses_fini(plan);
		u->is_judged = true; /* no memory for it */
	}
	u->value_epochs = USES_EPOCHS;
}

/* Masks are worth their memory when passes leave out more than a few samples. In a pass without
 * repeats each position is another sample. In others they are counted, a share at a time; each pass
 * is as good for that as the one before. */
static void uses_judge(struct plan *plan, const struct plan_job *job)
{
	const struct order_epoch *ep = job_cur(job)->ep;
	struct uses *u = &plan->uses;
	uint32_t end = u->judged + MIN(plan->n - u->judged, TAKE_CHUNK);

	assert(!u->is_judged && ep->n == plan->n);
	if (job->info.is_same_every_epoch || job->info.epochs == 1) {
		u->is_judged = true;
	} else if (!ep->next_same) {
		uses_judged(plan, job, plan->n - (uint32_t)MIN(ep->length, plan->n));
	} else {
		for (; u->judged < end; u->judged++)
			u->judged_out += ep->first[u->judged] == SAMPLE_NONE;
		if (u->judged == plan->n)
			uses_judged(plan, job, u->judged_out);
	}
}

/* Whether both passes are loaded and known, so that it is time to look beyond them. */
static bool uses_are_due(const struct plan *plan, const struct plan_job *job)
{
	const struct slot *cur = job_cur(job), *next = job_next(job);

	return cur->ep && next->ep && !next->is_rerun && next->absorbed == next->length &&
	       plan->n_jobs == 1 && !plan->uses.is_leaving;
}

/* After a jump of the job to another epoch nothing may be left that is known. */
static void uses_follow(struct plan *plan, struct plan_job *job)
{
	struct uses *u = &plan->uses;
	uint64_t start = uses_start(job);

	if (start >= u->lo && start <= u->hi)
		return;
	if (u->taking)
		order_epoch_free(u->taking);
	u->taking = NULL;
	u->lo = u->hi = start;
}

uint64_t uses_wanted(struct plan *plan, struct plan_job *job)
{
	struct uses *u = &plan->uses;

	if (!uses_are_due(plan, job))
		return NO_POS;
	if (!u->is_judged)
		uses_judge(plan, job);
	if (!uses_are_known(plan, job))
		return NO_POS;
	uses_follow(plan, job);
	if (u->taking || u->is_cut || u->hi >= uses_start(job) + USES_EPOCHS)
		return NO_POS;
	if (job->has_epochs_end &&
	    u->hi >= job->info.start_epoch + job->info.epochs)
		return NO_POS;
	return u->hi;
}

void uses_arrived(struct plan *plan, struct plan_job *job, const struct plan_event *ev)
{
	struct order_epoch *ep = ev->order_epoch;
	struct uses *u = &plan->uses;
	bool is_wanted = uses_are_known(plan, job) && !u->taking && ev->epoch == u->hi;

	if (ev->status < 0 || !ep || ep->n != plan->n || !is_wanted) {
		u->is_cut = is_wanted;
		if (ev->status == 0)
			order_epoch_free(ep);
		return;
	}
	u->taking = ep;
	u->taken = 0;
	u->hi++;
	if (u->hi - u->lo > USES_EPOCHS)
		u->lo = u->hi - USES_EPOCHS;
}

/* Also those whose old bit was right by chance stood elsewhere: every sample with either bit is
 * looked at. */
static void uses_take_in(struct plan *plan, struct plan_job *job)
{
	struct uses *u = &plan->uses;
	uint64_t bit = 1ull << (u->hi - 1) % 64;
	uint32_t end = MIN(plan->n, u->taken + TAKE_CHUNK);

	for (; u->taken < end; u->taken++) {
		uint32_t s = u->taken;
		bool was = (u->mask[s] & bit) != 0, is = u->taking->first[s] != SAMPLE_NONE;

		if (was != is)
			u->mask[s] ^= bit;
		if ((was || is) && *job_key(plan, job, s) == NO_KEY) {
			item_out(plan, s);
			uses_put(plan, job, s);
			item_in(plan, s);
		}
	}
	if (u->taken < plan->n)
		return;
	order_epoch_free(u->taking);
	u->taking = NULL;
}

/* Shortest waits first, as MIN does: a page that is kept for g epochs takes the room of g pages
 * kept for one. */
static uint32_t uses_boundary(const struct plan *plan)
{
	const struct uses *u = &plan->uses;
	uint64_t room = plan->arena_pages, taken = 0;

	for (uint32_t g = 1; g <= USES_EPOCHS; g++) {
		taken += g * u->survey[g];
		if (taken > room)
			return g;
	}
	return USES_EPOCHS;
}

/* How long what this pass reads will wait: once per pass, and again when all is known. */
static bool uses_survey(struct plan *plan, struct plan_job *job)
{
	struct uses *u = &plan->uses;
	const struct slot *cur = job_cur(job), *next = job_next(job);
	uint64_t end = MIN(cur->length, u->surveyed + WORK_MOST);

	if (u->survey_pass != cur->pass + 1) {
		u->survey_pass = cur->pass + 1;
		u->surveyed = 0;
		memset(u->survey, 0, sizeof(u->survey));
		end = MIN(cur->length, WORK_MOST);
	}
	for (; u->surveyed < end; u->surveyed++) {
		uint32_t sample = cur->ep->sample[u->surveyed];
		uint64_t epoch = NO_POS, away = 0;

		if (u->surveyed + AHEAD < cur->length)
			__builtin_prefetch(&u->mask[cur->ep->sample[u->surveyed + AHEAD]]);
		if (next->ep->first[sample] != SAMPLE_NONE)
			away = 1;
		else if ((epoch = uses_next(plan, job, sample)) != NO_POS)
			away = MIN(epoch - cur->epoch, USES_EPOCHS);
		if (!(plan->item[sample].flags & PINNED))
			u->survey[away] += plan->item[sample].pages;
	}
	if (u->surveyed == cur->length)
		u->value_epochs = uses_boundary(plan);
	return u->surveyed < cur->length;
}

uint64_t uses_known(const struct plan *plan, const struct plan_job *job)
{
	const struct uses *u = &plan->uses;
	uint64_t from = MAX(uses_start(job), u->lo);

	/* The last one only when it is in. */
	return uses_are_known(plan, job) && u->hi > from ? u->hi - from - (u->taking != NULL) : 0;
}

bool uses_are_complete(struct plan *plan, struct plan_job *job)
{
	const struct slot *cur = job_cur(job), *next = job_next(job);

	if (plan->n_jobs != 1)
		return true;
	if (plan->uses.is_judged)
		return !plan->uses.taking && uses_wanted(plan, job) == NO_POS;
	/* One epoch or the same again and again: there is nothing to be known. */
	return !job->info.n || job->info.epochs == 1 ||
	       job->info.is_same_every_epoch ||
	       (cur->ep && cur->ep->length + job->n_outside >= plan->n &&
		!cur->ep->next_same) ||
	       (next->ep && next->is_rerun);
}

uint32_t uses_count(const struct plan *plan, uint32_t sample)
{
	const struct uses *u = &plan->uses;
	uint64_t bits;

	if (!u->mask || u->hi == u->lo)
		return 1;
	bits = u->mask[sample];
	if (u->lo % 64)
		bits = bits >> u->lo % 64 | bits << (64 - u->lo % 64);
	if (u->hi - u->lo < 64)
		bits &= ~(~0ull << (u->hi - u->lo));
	return (uint32_t)__builtin_popcountll(bits);
}

/* Pages of a pass that the best policy finds in the arena or the store. */
uint64_t uses_kept_pages(const struct plan *plan)
{
	const struct uses *u = &plan->uses;
	uint64_t kept = plan->pinned_pages, taken = 0;

	if (!u->mask || u->is_leaving)
		return kept + plan->arena_pages;
	for (uint32_t g = 1; g <= USES_EPOCHS && taken < plan->arena_pages; g++) {
		uint64_t room = (plan->arena_pages - taken) / g;

		kept += MIN(u->survey[g], room);
		taken += g * u->survey[g];
	}
	return kept;
}

bool uses_step(struct plan *plan, struct plan_job *job)
{
	struct uses *u = &plan->uses;
	uint64_t wanted;

	if (u->judged && !u->is_judged && uses_are_due(plan, job)) {
		uses_judge(plan, job);
		return true;
	}
	if (!u->mask || u->is_leaving)
		return false;
	if (u->taking) {
		uses_take_in(plan, job);
		return true;
	}
	wanted = uses_wanted(plan, job);
	if (wanted != NO_POS || !uses_are_due(plan, job) ||
	    (u->survey_pass == job_cur(job)->pass + 1 && u->surveyed == job_cur(job)->length))
		return false;
	return uses_survey(plan, job);
}

void uses_rolled(struct plan *plan)
{
	plan->uses.is_cut = false;
}
