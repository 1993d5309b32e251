/* SPDX-License-Identifier: Apache-2.0 */
/* Switchback, measured: the time of a step in blocks of a pass in which the cache stepped aside,
 * against the blocks beside them. switchback.h says which blocks those are, and why.
 *
 * When a batch was there is what the job told (hook); without that, when its first read was opened.
 * A loader hands out batch k when batch k - workers * prefetch is taken, so over a block opens come
 * as fast as steps do, and where workers cannot keep up they come at the pace that steps fall to.
 * All blocks are measured over the same part: from the mean time of a round of the workers, after
 * the wash-out, to that of the last round.
 *
 * A block in pass-through is spoiled when something of it was served all the same (the order was
 * not confirmed yet, pages were in the kernel), when reads of it were not seen, or there is no
 * block to compare it with. A block of which Linux's page cache would have had more than a few
 * reads says nothing: neither it nor its steps are counted, so that nothing is claimed for them.
 *
 * Pure, like all of stall.h; walks over a pass, once. */
#include "stall_priv.h"

#include <assert.h>

enum { SOME_PERCENT = 5 };

struct walk {
	const struct stall *s;
	const struct stall_pass *p;
	const struct switchback *sb;
	const struct stall_run *run; /* NULL: by opens */
	uint64_t run_first;          /* batch of the run's first step */
};

struct block {
	bool is_through, is_whole;            /* whole: all its batches are in the pass */
	uint64_t batches, told, ghosts, hits; /* hits: after the wash-out */
	double step_ns;                       /* negative: not known */
};

bool stall_switch_shape(const struct stall *s, const struct stall_job *job, struct switchback *ret)
{
	struct switchback_loader loader = { .n_samples = s->params.n_units,
					    .workers = job->workers,
					    .prefetch = job->prefetch,
					    .batch = job->batch };

	return switchback_init(ret, s->params.switchback_share, &loader);
}

/* What was found of a loader of another shape is forgotten, but for the totals. */
static void rank_take_shape(struct stall_rank *r, const struct switchback *now)
{
	struct switchback *old = &r->switchback;

	if (old->batch == now->batch && old->block == now->block && old->workers == now->workers)
		return;
	*old = *now;
	r->switched = (struct switchback_sum){ 0 };
	r->switch_due = r->switch_due_through = 0;
	r->total.switchback = (struct stall_switchback){ 0 };
}

/* --- one block --- */

/* Nanoseconds since the pass, or the iterator, began; negative: not known. */
static double batch_time(const struct walk *w, uint64_t batch)
{
	const struct stall_pass *p = w->p;
	uint64_t first = batch * w->sb->batch, end = first + w->sb->batch;
	uint32_t least = UINT32_MAX;

	if (w->run)
		return batch - w->run_first < w->run->n
			       ? (double)w->run->ready[batch - w->run_first] *
					 (1 << STALL_OPEN_SHIFT)
			       : -1;
	first = MAX(first, p->base + p->from);
	end = MIN(end, p->base + p->end);
	for (uint64_t i = first; i < end; i++)
		if (p->slot[i - p->base].flags)
			least = MIN(least, p->slot[i - p->base].opened);
	return least == UINT32_MAX ? -1 : (double)least * (1 << STALL_OPEN_SHIFT);
}

/* The mean of a round of the workers: single ones come in gatherings. */
static double round_time(const struct walk *w, uint64_t batch)
{
	double sum = 0, one;

	for (uint32_t i = 0; i < w->sb->workers; i++) {
		one = batch_time(w, batch + i);
		if (one < 0)
			return -1;
		sum += one;
	}
	return sum / w->sb->workers;
}

static void block_count_reads(const struct walk *w, uint64_t number, struct block *b)
{
	const struct stall_pass *p = w->p;
	uint64_t begin = number * w->sb->block * w->sb->batch;
	uint64_t end = begin + (uint64_t)w->sb->block * w->sb->batch;
	uint64_t measured = begin + (uint64_t)w->sb->wash * w->sb->batch;
	uint64_t from = MAX(begin, p->base + p->from), to = MIN(end, p->base + p->end);

	assert(begin < measured && measured < end && p->end <= p->capacity);
	b->is_whole = from == begin && to == end;
	b->batches = to > from ? DIV_ROUND_UP(to - from, w->sb->batch) : 0;
	for (uint64_t i = from; i < to; i++) {
		uint8_t flags = p->slot[i - p->base].flags;

		b->told += flags != 0;
		b->ghosts += stall_is_ghost(w->s, flags);
		b->hits += i >= measured && (flags & SLOT_CREDIT) &&
			   !stall_is_ghost(w->s, flags);
	}
}

static bool is_few_percent(uint64_t n, uint64_t of)
{
	return n * 100 <= of * SOME_PERCENT;
}

static void look_at_block(const struct walk *w, uint64_t number, struct block *b)
{
	uint64_t reads = (uint64_t)w->sb->block * w->sb->batch;
	uint64_t first = number * w->sb->block, rounds = w->sb->block / w->sb->workers;
	double begin, end;

	assert(w->sb->block > w->sb->wash + w->sb->workers);
	*b = (struct block){ .step_ns = -1 };
	b->is_through = switchback_is_chosen(w->sb, w->p->pass, number);
	block_count_reads(w, number, b);
	if (!b->is_whole || !is_few_percent(reads - b->told, reads) || !is_few_percent(b->ghosts, reads))
		return;
	if (b->is_through && !is_few_percent(b->hits, reads - (uint64_t)w->sb->wash * w->sb->batch))
		return;
	begin = round_time(w, first + w->sb->wash);
	end = round_time(w, first + (rounds - 1) * w->sb->workers);
	if (begin >= 0 && end > begin)
		b->step_ns = (end - begin) / (w->sb->block - w->sb->wash - w->sb->workers);
}

/* --- a pass --- */

static void count_block(struct stall_rank *r, const struct block *b)
{
	struct stall_switchback *sw = &r->total.switchback;

	if (b->is_through) {
		sw->steps_through += b->batches;
		r->switch_due_through += b->batches;
	} else if (!is_few_percent(b->ghosts, b->told)) {
		sw->steps_ghost += b->batches;
	} else {
		sw->steps += b->batches;
		r->switch_due += b->batches;
	}
}

/* near[0] and near[2] are the blocks beside near[1]. */
static void compare_block(struct stall_rank *r, const struct block near[3])
{
	double sum = 0;
	int n = 0;

	if (!near[1].is_through || near[1].batches == 0)
		return;
	for (int i = 0; i < 3; i += 2)
		if (!near[i].is_through && near[i].step_ns >= 0) {
			sum += near[i].step_ns;
			n++;
		}
	if (near[1].step_ns < 0 || n == 0) {
		r->total.switchback.spoiled++;
		return;
	}
	r->total.switchback.blocks++;
	switchback_add(&r->switched, near[1].step_ns - sum / n);
}

static void add_totals(struct stall_rank *r)
{
	struct stall_switchback *sw = &r->total.switchback;
	double mean, margin;

	sw->is_known = switchback_limits(&r->switched, &mean, &margin);
	if (!sw->is_known)
		return;
	sw->removed_ns = mean * (double)sw->steps;
	sw->margin_ns = margin * (double)sw->steps;
	sw->cost_ns = mean * (double)sw->steps_through;
	if (mean > 0) {
		r->total.estimate_switchback_ns += (uint64_t)(mean * (double)r->switch_due);
		r->total.switchback_cost_ns += (uint64_t)(mean * (double)r->switch_due_through);
	}
	r->switch_due = r->switch_due_through = 0;
}

/* The steps that the job told of this pass, when they are all there. */
static const struct stall_run *run_of_pass(const struct stall_rank *r, const struct stall_pass *p,
					   const struct switchback *sb)
{
	const struct stall_run *run = stall_run_find(r, p->first_ns, p->last_ns);
	uint64_t batches = DIV_ROUND_UP(p->end - p->from, sb->batch);

	if (!run || p->part || p->from % sb->batch || (uint64_t)run->n + 1 < batches ||
	    run->n > batches + 1)
		return NULL;
	return run;
}

void stall_switch_pass(struct stall *s, struct stall_rank *r, struct stall_pass *p)
{
	struct walk w = { .s = s, .p = p, .sb = &r->switchback };
	struct switchback shape;
	uint64_t number, end;
	struct block near[3];

	if (p->is_switch_done || p->has_no_memory || p->n_told == 0 ||
	    !stall_switch_shape(s, &p->order->job, &shape))
		return;
	p->is_switch_done = true;
	rank_take_shape(r, &shape);
	w.run = run_of_pass(r, p, w.sb);
	w.run_first = p->from / w.sb->batch;
	number = (p->base + p->from) / w.sb->batch / w.sb->block;
	end = DIV_ROUND_UP(DIV_ROUND_UP(p->base + p->end, w.sb->batch), w.sb->block);
	near[1] = (struct block){ .step_ns = -1 };
	look_at_block(&w, number, &near[2]);
	for (; number < end; number++) {
		near[0] = near[1];
		near[1] = near[2];
		look_at_block(&w, number + 1, &near[2]);
		count_block(r, &near[1]);
		compare_block(r, near);
	}
	add_totals(r);
}
