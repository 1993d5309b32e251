/* SPDX-License-Identifier: Apache-2.0 */
/* When a pass is over, and which one is judged next: those of a rank in order. A pass that lacks
 * control reads or workers waits for later ones, as long as there is room. Pure, like all of
 * stall.h. */
#include <assert.h>
#include <stdlib.h>

#include "stall_priv.h"

/* Whether its iterator still delivers: then the compute times of the last batches are not told yet.
 */
static bool is_running(const struct stall_rank *r, const struct stall_pass *p, uint64_t now_ns)
{
	const struct stall_run *run = stall_run_find(r, p->first_ns, p->last_ns + STALL_LATE_NS);
	uint32_t batch = p->order->job.batch;
	uint64_t batches = DIV_ROUND_UP(p->end - p->from, MAX(batch, 1));

	return run && !run->is_over && batch && run->n < batches &&
	       now_ns < run->last_ns + STALL_LATE_NS;
}

/* Fewer reads than a round of the workers, or a hundredth of the pass: they say nothing of the others. */
bool stall_is_stray(const struct stall_pass *p)
{
	const struct stall_job *job = &p->order->job;
	uint64_t round = (uint64_t)MAX(job->batch, 1) * MAX(job->workers, 1);

	return p->n_told < MAX(round, p->length / 100);
}

/* So many of a hundred were told, but for a last batch that is not full: jobs may leave it out. And
 * but for what is before the first one: the job went on in the middle, or its order was found late.
 * So says a round of the workers; a stray read near the end says nothing of what is before it.
 */
static bool is_pass_told(const struct stall_pass *p, uint64_t percent)
{
	uint64_t tail = p->length - MIN(p->end, p->length), length = p->length;

	if (tail < p->order->job.batch)
		length -= tail;
	if (!stall_is_stray(p))
		length -= MIN(p->from, length);
	return length && 100 * p->n_told >= percent * length;
}

static bool is_left_behind(const struct stall *s, const struct stall_rank *r,
			   const struct stall_pass *p)
{
	bool is_left = p->order->is_replaced || (s->is_finished && p->order == s->now);

	for (uint32_t i = 0; i < r->n_passes; i++)
		is_left |= stall_pass_cmp(r->pass[i], p) > 0;
	return is_left;
}

/* Nothing more comes: a lost open must not keep a pass waiting, nor a slow step end it. */
static bool is_quiet(const struct stall *s, const struct stall_rank *r, const struct stall_pass *p,
		     uint64_t now_ns)
{
	uint64_t batches = MAX(p->n_told / MAX(p->order->job.batch, 1), 1);
	uint64_t step_ns = (p->told_ns - MIN(p->first_ns, p->told_ns)) / batches;
	bool is_left = is_left_behind(s, r, p);

	if (is_pass_told(p, STALL_NEARLY_PERCENT)) {
		if (is_left && s->settled_ns >= p->told_ns + STALL_SETTLED_NS)
			return true;
		if (now_ns >= p->told_ns + MAX(STALL_QUIET_NS, 3 * step_ns) &&
		    (!s->settled_ns || s->settled_ns >= p->told_ns + STALL_SETTLED_NS))
			return true;
	}
	is_left |= is_pass_told(p, 100 - STALL_HOLES_PERCENT);
	return is_left && now_ns >= p->told_ns + MAX(STALL_LATE_NS, 3 * step_ns);
}

static bool is_complete(const struct stall_pass *p)
{
	return p->length && p->n_told >= p->length;
}

static bool pass_is_over(const struct stall *s, const struct stall_rank *r,
			 const struct stall_pass *p, uint64_t now_ns)
{
	return (is_complete(p) || is_quiet(s, r, p, now_ns)) && !is_running(r, p, now_ns);
}

void stall_settled(struct stall *s, uint64_t before_ns)
{
	s->settled_ns = MAX(s->settled_ns, before_ns);
}

void stall_finished(struct stall *s, bool is_finished)
{
	s->is_finished = is_finished;
}

/* What is judged now: all that is over, or whatever is open, of one order or of all. */
struct look {
	const struct stall *stall;
	uint64_t now_ns;
	bool is_final;
	const struct stall_order *order; /* NULL: any */
};

/* The oldest pass to be judged that comes after `after` (NULL: any), or none of it. */
static uint32_t pass_next(const struct stall_rank *r, const struct look *look,
			  const struct stall_pass *after)
{
	uint32_t best = STALL_PASSES;

	for (uint32_t i = 0; i < r->n_passes; i++) {
		const struct stall_pass *p = r->pass[i];

		if ((after && stall_pass_cmp(p, after) <= 0) ||
		    (look->order && look->order != p->order) ||
		    (!look->is_final && !pass_is_over(look->stall, r, p, look->now_ns)))
			continue;
		if (best == STALL_PASSES || stall_pass_cmp(p, r->pass[best]) < 0)
			best = i;
	}
	return best;
}

static void pass_close(struct stall_rank *r, uint32_t at)
{
	struct stall_pass *p = r->pass[at];
	uint64_t *closed = &p->order->rank[p->rank_index].closed;

	assert(at < r->n_passes && p->order->n_open > 0);
	*closed = MAX(*closed, stall_pass_key(p));
	p->order->n_open--;
	stall_pass_free(p);
	r->pass[at] = r->pass[--r->n_passes];
}

/* Tells what the totals grew by. */
static void tell_verdict(const struct stall *s, const struct stall_pass *p, enum stall_why why,
			 const struct stall_numbers *from, const struct stall_numbers *to,
			 const struct stall_waits *waits)
{
	struct stall_verdict v = { .order = p->order->job.id,
				   .rank = to->rank,
				   .pass = p->pass,
				   .part = p->part,
				   .why = why,
				   .reads = p->n_told,
				   .began_ns = p->n_told ? p->first_ns : 0,
				   .ended_ns = p->last_ns,
				   .took_ns = to->judged_ns - from->judged_ns,
				   .lower_ns = to->lower_ns - from->lower_ns,
				   .estimate_ns = to->estimate_ns - from->estimate_ns,
				   .estimate_hook_ns =
					   to->estimate_hook_ns - from->estimate_hook_ns,
				   .upper_ns = to->upper_ns - from->upper_ns,
				   .page_cache_ns = to->page_cache_ns - from->page_cache_ns,
				   .has_estimate = to->judged_replay > from->judged_replay,
				   .has_hook = to->judged_hook > from->judged_hook,
				   .first_batch = p->first_batch,
				   .n_batches = waits->n,
				   .with_ns = waits->with_ns,
				   .without_ns = waits->without_ns };

	if (waits->n)
		v.first_batch += p->from / p->order->job.batch;
	if (s->params.judged)
		s->params.judged(s->params.judged_ctx, &v);
}

/* False: it waits for what may still come. */
static bool judge_at(struct stall *s, struct stall_rank *r, uint32_t at, bool may_wait)
{
	struct stall_numbers before = r->total;
	struct stall_waits waits;
	enum stall_why why;

	stall_switch_pass(s, r, r->pass[at]);
	why = stall_judge_pass(s, r, r->pass[at], &waits);

	s->node.why = why;
	if ((why == STALL_NO_CONTROLS || why == STALL_NO_WORKERS) && may_wait)
		return false;
	if (why != STALL_JUDGED) {
		s->node.unjudged_why = why;
		r->total.unjudged++;
	}
	tell_verdict(s, r->pass[at], why, &before, &r->total, &waits);
	free(waits.with_ns);
	free(waits.without_ns);
	pass_close(r, at);
	return true;
}

static void judge_rank_passes(struct stall *s, struct stall_rank *r, const struct look *look)
{
	const struct stall_pass *after = NULL;
	uint32_t at;

	while ((at = pass_next(r, look, after)) != STALL_PASSES) {
		const struct stall_pass *p = r->pass[at];

		/* Room for later passes is needed at some time. */
		if (!judge_at(s, r, at, !look->is_final && r->n_passes < STALL_PASSES - 2))
			after = p;
	}
}

void stall_judge(struct stall *s, uint64_t now_ns, bool is_final)
{
	struct look look = { .stall = s, .now_ns = now_ns, .is_final = is_final };

	for (uint32_t i = 0; i < s->n_ranks; i++)
		judge_rank_passes(s, s->rank[i], &look);
}

void stall_order_end(struct stall *s, const struct stall_order *order)
{
	struct look look = { .stall = s, .is_final = true, .order = order };

	for (uint32_t i = 0; i < s->n_ranks && order->n_open; i++)
		judge_rank_passes(s, s->rank[i], &look);
}

bool stall_is_settling(const struct stall *s)
{
	for (uint32_t i = 0; i < s->n_ranks; i++)
		for (uint32_t k = 0; k < s->rank[i]->n_passes; k++)
			if (is_complete(s->rank[i]->pass[k]) ||
			    is_left_behind(s, s->rank[i], s->rank[i]->pass[k]))
				return true;
	return false;
}
