/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader, replayed: with the reads as they were, and as they would have been without us.
 *
 * Compute, unless told, is the most that lets the replayed loader fetch the last batch when the
 * real one did. That makes the replay of what was agree with what was measured, whatever the model
 * leaves out, and with no hits both replays are the same and the estimate is 0 exactly.
 *
 * Pure: reads a pass. Takes a few dozen times the number of batches. */
#include "stall_judge.h"

#include <assert.h>

enum { FIT_STEPS = 24 };

static uint64_t read_chance(const struct judge *j, uint64_t i)
{
	return j->p->pass * 0x9e3779b97f4a7c15u + (uint64_t)j->r->total.rank * 0xff51afd7ed558ccdu +
	       j->p->base + i;
}

static uint64_t time_without(const struct judge *j, const struct without *w,
			     const struct stall_slot *slot, uint64_t i)
{
	uint64_t again = (uint64_t)(judge_times_again(j, w, slot) * judge_group(j, slot)->mean);

	if (judge_is_cached(j, w, slot))
		return again;
	if (slot->flags & SLOT_CREDIT)
		return again + stall_group_draw(j->s, judge_group(j, slot), read_chance(j, i));
	return again + (uint64_t)judge_own_wait(j, slot);
}

/* Of a sample: decoding, and with us the way to us. */
static uint64_t decode_without(const struct judge *j, const struct stall_slot *slot)
{
	double staged = j->staged_ns < 0 ? j->decode_ns : MIN(j->staged_ns, j->decode_ns);

	return (uint64_t)(slot->wait && (slot->flags & SLOT_CREDIT) ? staged : j->decode_ns);
}

void stall_judge_batches(struct judge *j)
{
	const struct stall_pass *p = j->p;

	for (uint64_t i = p->from; i < p->end; i++) {
		const struct stall_slot *slot = &p->slot[i];
		uint64_t k = (i - p->from) / j->batch, decode;

		if (!slot->flags)
			continue;
		assert(k < j->n_batches);
		decode = decode_without(j, slot);
		j->with[k].io_ns += wait_of(slot);
		j->with[k].decode_ns += (uint64_t)j->decode_ns;
		j->cached.batch[k].io_ns += time_without(j, &j->cached, slot, i);
		j->cached.batch[k].decode_ns += decode;
		j->bare.batch[k].io_ns += time_without(j, &j->bare, slot, i);
		j->bare.batch[k].decode_ns += decode;
	}
}

void stall_judge_play(const struct judge *j, struct stall_play *play,
		       const struct stall_batch *batch, struct stall_schedule *ret)
{
	play->batch = batch;
	stall_play_run(play, NULL, ret);
	ret->end_ns = MAX(ret->end_ns, (uint64_t)j->floor_ns);
}

void stall_judge_play_without(const struct judge *j, const struct without *w,
			       struct stall_play *play, const struct stall_schedule *act,
			       struct stall_schedule *ret)
{
	uint64_t last = play->compute_ns;

	stall_judge_play(j, play, w->batch, ret);
	if (w->link_ns <= 0)
		return;
	if (last == STALL_NO_COMPUTE)
		last = w->batch[j->n_batches - 1].compute_ns;
	ret->end_ns = MAX(act->end_ns, (uint64_t)w->link_ns + last);
}

/* The largest value in [0, most] with which the loader has fetched everything in time. */
void stall_judge_fit(struct judge *j, struct stall_play *play)
{
	double low = 0, high = 1;
	uint64_t least = 0, most;

	play->decode_share = 1;
	play->compute_ns = 0;
	stall_judge_play(j, play, j->with, &j->act);
	if (j->act.fetched_ns > j->reads_ns) {
		for (int i = 0; i < FIT_STEPS; i++) {
			play->decode_share = (low + high) / 2;
			stall_judge_play(j, play, j->with, &j->act);
			*(j->act.fetched_ns > j->reads_ns ? &high : &low) = play->decode_share;
		}
		play->decode_share = low;
	}
	most = (j->next_ns ? j->next_ns : j->reads_ns) / j->n_batches;
	if (!j->next_ns && j->n_batches > 2ull * j->workers * j->prefetch)
		most = j->reads_ns / (j->n_batches - (uint64_t)j->workers * j->prefetch);
	for (int i = 0; i < FIT_STEPS; i++) {
		play->compute_ns = least + (most - least + 1) / 2;
		stall_judge_play(j, play, j->with, &j->act);
		if (j->act.fetched_ns > j->reads_ns)
			most = play->compute_ns ? play->compute_ns - 1 : 0;
		else
			least = play->compute_ns;
	}
	play->compute_ns = least;
	assert(play->decode_share >= 0 && play->decode_share <= 1);
	j->share = play->decode_share;
	j->compute_ns = least;
}

/* The job's own compute times; false when it told none for this pass. */
bool stall_judge_hook(struct judge *j, struct stall_play *play, double *ret_ns, double *ret_took)
{
	const struct stall_run *run = stall_run_find(j->r, j->p->first_ns, j->p->last_ns);
	struct stall_schedule act, cf;
	double sum = 0;

	if (!run || run->n == 0 || (uint64_t)run->n + 1 < j->n_batches || j->p->part ||
	    run->n > j->n_batches + 1)
		return false;
	for (uint32_t i = 0; i < run->n; i++)
		sum += (double)run->compute[i];
	for (uint64_t k = 0; k < j->n_batches; k++) {
		double c = k < run->n ? (double)run->compute[k] : sum / run->n;

		j->with[k].compute_ns = j->cached.batch[k].compute_ns =
			(uint64_t)(c * (1 << STALL_STEP_SHIFT));
	}
	play->compute_ns = STALL_NO_COMPUTE;
	stall_judge_play(j, play, j->with, &act);
	stall_judge_play_without(j, &j->cached, play, &act, &cf);
	*ret_ns = ends_apart(&cf, &act);
	*ret_took = (double)(run->last_ns - MIN(j->p->first_ns, run->began_ns));
	return true;
}
