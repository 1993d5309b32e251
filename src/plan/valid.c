/* SPDX-License-Identifier: Apache-2.0 */
/* The validation set: reads that no order announces, but that come back. What a job reads between
 * two epochs of what it does not number is written down; the next time that much is expected, it
 * stands between the two passes in the line of what is read next (slots[2]). So its first units
 * are fetched and staged while the epoch ends, the rest is followed, and what comes first leaves
 * last, by the rules for everything else. Nothing here judges the order: reads that are foreseen
 * here count neither for it nor against it.
 *
 * The first time there is nothing to expect it by, but most validation sets are read in their order.
 * So where the first reads are a few runs of neighbours, one per worker, the rest is expected as
 * well: from the first of them up to the next unit that the order numbers.
 *
 * It is expected after as many epochs as lay between two times, so a job that validates
 * every fifth epoch is not fetched for in the four others. An expectation that failed, because
 * nothing came or because what came was something else and it was given up, is a strike, and only
 * one that was followed forgives: from the second strike on it is let by once, three times, seven
 * ... before it is tried again, so what is fetched in vain is bounded by the logarithm of the
 * epochs. Where the order is another one each time (shuffled, and larger than what the readers are
 * apart) nothing can be foreseen: after one mistake it is expected again when it was read twice in
 * one order, by more than chance. Must never judge the job by it. Planner thread. */
#include "plan_priv.h"

#include <stdlib.h>
#include <string.h>

#include "clairfs/base/compare.h"

#define STRIKES_MAX 7u
#define FORESEE_READS 16u /* of the first validation pass, before it is expected to go on: */
#define FORESEE_MOST 64u  /* or twice, four times as many */
#define FORESEEN_MOST 16384u
#define COMPARED 256u /* reads that show whether two passes have one order */

/* The pass was read but for the last of its readers, and nobody reads the next one yet. */
static bool valid_is_between(const struct plan_job *job)
{
	const struct slot *cur = job_cur(job), *next = job_next(job);

	return cur->ep && !next->consumed.count && cur->low + job->span >= cur->length &&
	       job->state >= PLAN_CHECKING && job->state != PLAN_LOST;
}

bool valid_is_due(const struct plan *plan, const struct plan_job *job, uint32_t unit)
{
	return key_is_valid(*job_key(plan, job, unit)) && valid_is_between(job);
}

static void valid_forget_record(struct valid *v)
{
	for (uint32_t i = 0; i < v->n_record; i++)
		v->is_recorded[v->record[i] / 64] &= ~(1ull << v->record[i] % 64);
	v->n_record = 0;
	v->reads = v->as_foreseen = 0;
}

/* Nothing is expected any more before the next pass. */
static void valid_drop(struct plan *plan, struct plan_job *job)
{
	struct slot *slot = job_valid(job);

	if (!slot->ep)
		return;
	while (slot->low < slot->length)
		window_pass_over(plan, job, slot, slot->low);
	epochs_uninstall(job, 2);
	group_forget(job);
	job->is_stage_dirty = true;
}

void valid_fini(struct plan_job *job)
{
	struct valid *v = &job->valid;

	epochs_uninstall(job, 2);
	order_epoch_free(v->learned);
	free(v->record);
	free(v->is_recorded);
	*v = (struct valid){ .learned = NULL };
}

/* False: it was already, or there is no memory for it. */
static bool valid_record(struct plan *plan, struct plan_job *job, uint32_t unit)
{
	struct valid *v = &job->valid;
	uint64_t bit = 1ull << unit % 64;

	if (!v->is_recorded)
		v->is_recorded = calloc(DIV_ROUND_UP((uint64_t)plan->n, 64), sizeof(uint64_t));
	if (!v->is_recorded || v->is_recorded[unit / 64] & bit)
		return false;
	if (v->n_record == VALID_MAX)
		return true; /* and no more is known of it: its first ones are enough */
	if (v->n_record == v->record_size) {
		uint32_t size = MAX(2 * v->record_size, 256);
		uint32_t *bigger = realloc(v->record, size * sizeof(*bigger));

		if (!bigger)
			return false;
		v->record = bigger;
		v->record_size = size;
	}
	assert(v->n_record < v->record_size && v->n_record < VALID_MAX);
	v->is_recorded[unit / 64] |= bit;
	v->record[v->n_record++] = unit;
	return true;
}

/* Whether it comes about when it was expected. */
static bool valid_follow(struct plan *plan, struct plan_job *job, uint64_t now_ns, uint32_t unit)
{
	const struct valid *v = &job->valid;
	struct slot *slot = job_valid(job);
	uint64_t pos, apart;
	uint32_t key;
	bool is_near;

	if (!slot->ep)
		return false;
	epochs_absorb_rest(plan, job, slot);
	key = *job_key(plan, job, unit);
	if (!key_is_valid(key))
		return false;
	pos = key_pos(key);
	/* Workers that begin together are known by the first time only: by numbers, in their order. */
	apart = v->learned ? 0 : 2 * v->spread;
	is_near = pos < slot->low + MAX(job->span, apart) || window_slide(plan, job, slot, pos);
	budget_read(plan, job, now_ns);
	window_set_consumed(plan, job, slot, pos);
	return is_near;
}

/* Something is left of what was expected, and most of what came is not where it was expected. Once
 * all of it was read nothing is left to be wrong about: more may come behind it. */
static bool valid_is_missed(const struct plan_job *job)
{
	const struct valid *v = &job->valid;
	const struct slot *slot = job_valid(job);

	return slot->ep && slot->low < slot->length && 2 * v->as_foreseen < v->reads;
}

/* Units from the first one on that are there and that the order does not number; no more than are taken in
 * at once. */
static struct order_epoch *valid_run(const struct plan *plan, const struct plan_job *job,
				     uint32_t first)
{
	struct order_epoch *ep = calloc(1, sizeof(*ep));
	uint32_t end = first;

	while (end < plan->n && end - first < FORESEEN_MOST && plan->item[end].pages &&
	       window_is_outside(plan, job, end))
		end++;
	if (!ep || end == first) {
		free(ep);
		return NULL;
	}
	*ep = (struct order_epoch){ .length = end - first, .n = plan->n };
	ep->sample = malloc(ep->length * sizeof(*ep->sample));
	for (uint32_t i = 0; ep->sample && i < ep->length; i++)
		ep->sample[i] = first + i;
	if (ep->sample)
		return ep;
	free(ep);
	return NULL;
}

/* Whether the reads so far are a few runs, one per worker: of reads in any order few are neighbours. */
static bool valid_is_run(const struct plan_job *job, uint32_t *ret_first, uint32_t *ret_spread)
{
	const struct valid *v = &job->valid;
	uint32_t sorted[FORESEE_MOST], n = MIN(v->n_record, FORESEE_MOST), runs = 1;

	if (!n)
		return false;
	memcpy(sorted, v->record, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_u32);
	for (uint32_t i = 1; i < n; i++)
		runs += sorted[i] - sorted[i - 1] > 2;
	*ret_first = sorted[0];
	*ret_spread = sorted[n - 1] - sorted[0];
	return 2 * runs <= n;
}

/* Expects the rest of it, once: what comes of it is learned as ever, and failing is no strike. */
static void valid_foresee(struct plan *plan, struct plan_job *job)
{
	struct valid *v = &job->valid;
	struct slot *slot = job_valid(job);
	struct order_epoch *ep;
	uint32_t first, spread;

	if (v->learned || slot->ep || !valid_is_run(job, &first, &spread))
		return;
	assert(first < plan->n);
	ep = valid_run(plan, job, first);
	if (!ep || epochs_install(job, 2, ep, job_cur(job)->epoch) < 0)
		return;
	v->spread = spread;
	v->as_foreseen = v->reads;
	slot->pass = job_cur(job)->pass;
	epochs_absorb_rest(plan, job, slot);
	for (uint32_t i = 0; i < v->n_record; i++)
		if (v->record[i] - first < slot->length)
			window_set_consumed(plan, job, slot, v->record[i] - first);
	group_forget(job);
}

void valid_read(struct plan *plan, struct plan_job *job, uint64_t now_ns, uint32_t unit)
{
	struct valid *v = &job->valid;
	bool is_near;

	if (!valid_is_between(job))
		return;
	is_near = valid_follow(plan, job, now_ns, unit);
	if (!valid_record(plan, job, unit))
		return; /* one more open of the same file */
	v->reads++;
	v->as_foreseen += is_near;
	v->foreseen += is_near;
	if (v->reads >= FORESEE_READS && v->reads <= FORESEE_MOST && !(v->reads & (v->reads - 1)))
		valid_foresee(plan, job);
	if (v->reads >= SYNC_READS && 2 * v->as_foreseen < v->reads) {
		v->is_given_up = v->is_given_up || valid_is_missed(job);
		valid_drop(plan, job);
	}
}

bool valid_is_news(const struct plan_job *job, uint32_t unit)
{
	const struct valid *v = &job->valid;

	return valid_is_between(job) &&
	       !(v->is_recorded && v->is_recorded[unit / 64] >> unit % 64 & 1);
}

static void valid_strike(struct valid *v)
{
	v->strikes = MIN(v->strikes + 1, STRIKES_MAX);
	v->pause = (1u << (v->strikes - 1)) - 1;
}

/* Whether it was read as the last time: more of its first reads stand about where they stood than
 * the half of what chance leaves over. In a shuffled set that is little larger than what the
 * readers are apart most stand there by chance. Where nearly all do, any order is near enough. */
static bool valid_has_one_order(const struct plan_job *job)
{
	const struct valid *v = &job->valid;
	uint64_t n = MIN(v->n_record, COMPARED), as_before = 0, in_reach = 0, by_chance;
	uint64_t span = job->span;

	if (!v->learned)
		return true;            /* nothing speaks against it */
	n = MIN(n, v->learned->length); /* one of them may be a part of the other */
	for (uint64_t i = 0; i < n; i++) {
		uint64_t at = i > span ? i - span : 0, end = MIN(i + span, v->learned->length);

		in_reach += end - at;
		while (at < end && v->learned->sample[at] != v->record[i])
			at++;
		as_before += at < end;
	}
	by_chance = in_reach / v->learned->length; /* is not 0: VALID_LEAST */
	return 2 * as_before >= MIN(n + by_chance, n * 7 / 4);
}

/* What was read becomes what is expected. */
static void valid_learn(struct plan *plan, struct plan_job *job)
{
	struct valid *v = &job->valid;
	struct order_epoch *ep = calloc(1, sizeof(*ep));

	if (!ep)
		return;
	*ep = (struct order_epoch){ .length = v->n_record, .n = plan->n };
	ep->sample = malloc(v->n_record * sizeof(*ep->sample));
	if (!ep->sample) {
		free(ep);
		return;
	}
	memcpy(ep->sample, v->record, v->n_record * sizeof(*ep->sample));
	order_epoch_free(v->learned);
	v->learned = ep;
}

/* It has come: so many epochs after the last time. One time that was left out, or one more, does
 * not change what has held before; the same again does. */
static void valid_learn_period(struct valid *v)
{
	bool is_same = v->passes == v->period;

	if (is_same || !v->is_period_sure)
		v->period = v->passes;
	v->is_period_sure = is_same;
	v->passes = 0;
}

void valid_close(struct plan *plan, struct plan_job *job)
{
	struct valid *v = &job->valid;
	bool has_come = v->reads >= VALID_LEAST;
	bool is_followed = has_come && !v->is_given_up && !valid_is_missed(job);

	valid_drop(plan, job);
	v->passes++;
	if (v->is_expected && is_followed)
		v->strikes = 0;
	else if (v->is_expected)
		valid_strike(v);
	else if (has_come && v->pause)
		v->pause--;
	v->is_expected = v->is_given_up = false;
	if (has_come) {
		v->is_any_order = !valid_has_one_order(job);
		valid_learn(plan, job);
		valid_learn_period(v);
	}
	valid_forget_record(v);
}

void valid_open(struct plan_job *job)
{
	struct valid *v = &job->valid;
	const struct slot *cur = job_cur(job);

	if (!v->learned || v->is_any_order || v->pause || v->passes + 1 != v->period)
		return;
	if (epochs_install(job, 2, v->learned, cur->epoch) < 0)
		return; /* no memory: it is read as if it had not been foreseen */
	job_valid(job)->pass = cur->pass;
	v->is_expected = true;
	group_forget(job);
}

void valid_again(struct plan_job *job)
{
	struct slot *slot = job_valid(job);

	valid_forget_record(&job->valid);
	if (!slot->ep)
		return;
	bitmap_clear_all(&slot->consumed);
	slot->low = slot->inner = 0;
	slot->pass = job_cur(job)->pass;
}
