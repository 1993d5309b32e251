/* SPDX-License-Identifier: Apache-2.0 */
/* GPU wait removed: the definition, and what is kept until it can be judged.
 *
 * A rank's loop asks for batch k and waits w_k until it has it. Removed is the sum over k of
 * w_k(without) - w_k(with): the same order, workers, decoding and compute, but each read served as
 * if the source were mounted itself, with the page cache that Linux would have had. Both sums
 *belong to one rank and are seconds of the wall clock; ranks of a job that waits for all of them
 *must not be added up. The time a read would have taken:
 *
 *	a miss                    what the source took for it: no credit (also for control reads)
 *	a miss among prefetches   the same, but no more than the mean of b: they made it slow
 *	in the ghost page cache   nothing: no credit, and a miss of it counts against us nowhere; as
 *	                          any other read for the upper bound, and for all where the
 *	                          source's client keeps no pages
 *	any other                 b, by size, from the control reads: samples held out by chance,
 *	                          that are not fetched ahead but read from the source when they are
 *	                          wanted, while it is no busier than the job alone makes it
 *
 * It is judged pass by pass, never by the second: max(0, noise) of many small parts is not 0. Three
 * numbers (stall_judge.c):
 *
 *	lower     (sum of b + decoding) / W - T: W workers cannot have done that work faster,
 *	          whatever the loader is like; T is the time it took. b is the lower 95 % limit.
 *	          Where reads share a full link, or it is not known whether they would, decoding is
 *	          left out: one worker's link time is another one's decoding time.
 *	estimate  the loader's recurrence (stall_replay.c) played with b and with the reads as they
 *	          were; the difference of the two, so that what the model gets wrong it gets wrong
 *	          twice. Compute is what the job tells (hook), else the most that fits the time
 *	          taken. Where the job alone would have filled the source's link, without us is the
 *	          time in which the link carries the pass.
 *	upper     of each W batches in a row the one that saved most: a chain of events that delays
 *	          the job goes through at most one of them. b is taken at its upper 95 % limit, and
 *	          no page cache is taken off: nobody knows what Linux would really have kept. What
 *	          the ghost says of it is the difference of two replays, and told beside the bound.
 *
 * lower <= estimate <= upper: where the model disagrees, the cautious side wins. The plain sum of
 * saved latencies is no GPU time (1.4 to 250 times as much); it has a name of its own.
 *
 * One thread at a time; no clock, so a pass is over when it is complete or a later one goes on. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stall_priv.h"

const char *const stall_why_words[STALL_WHYS] = {
	[STALL_JUDGED] = "judged",
	[STALL_NOTHING_READ] = "no pass over the dataset is over yet",
	[STALL_NO_ORDER] = "the order of the job is not known, so nothing was fetched ahead",
	[STALL_NO_CONTROLS] = "too few control reads so far",
	[STALL_NO_WORKERS] =
		"how many workers the job has is not known: tell workers= in the order",
	[STALL_HOLES] = "too many reads of the pass were not seen",
	[STALL_NO_MEMORY] = "out of memory",
	[STALL_TOO_MANY_RANKS] = "this node has more ranks than are told apart",
	[STALL_CROWDED] =
		"the CPUs were too busy to tell waiting for them from waiting for the source",
	[STALL_SETTLING] = "a pass over the dataset is over, and its last reads are being counted",
};

int stall_new(const struct stall_params *params, struct stall **ret)
{
	struct stall *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->params = *params;
	s->node.controls_needed = STALL_CONTROLS_MIN;
	s->node.why = STALL_NOTHING_READ;
	if (stall_ghost_init(&s->ghost, params->n_samples, params->ghost_bytes) < 0) {
		stall_free(s);
		return -ENOMEM;
	}
	*ret = s;
	return 0;
}

static void pass_free(struct stall_pass *p)
{
	free(p->slot);
	free(p->reader);
	free(p);
}

static void rank_forget_passes(struct stall_rank *r)
{
	for (uint32_t i = 0; i < r->n_passes; i++)
		pass_free(r->pass[i]);
	r->n_passes = 0;
}

void stall_free(struct stall *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; i < s->n_ranks; i++) {
		rank_forget_passes(s->rank[i]);
		stall_runs_free(s->rank[i]);
		free(s->rank[i]);
	}
	for (uint32_t i = 0; i < STALL_SIZE_CLASSES; i++)
		free(s->control[i].wait);
	stall_orders_free(s);
	stall_ghost_fini(&s->ghost);
	free(s);
}

int stall_rank_place(struct stall *s, uint32_t number, uint32_t *ret)
{
	struct stall_rank *r;

	for (*ret = 0; *ret < s->n_ranks; ++*ret)
		if (s->rank[*ret]->total.rank == number)
			return 0;
	if (s->n_ranks == STALL_RANKS_MAX)
		return -EINVAL;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->total.rank = number;
	s->rank[s->n_ranks++] = r;
	return 0;
}

struct stall_rank *stall_rank_get(struct stall *s, uint32_t number)
{
	uint32_t at;

	return stall_rank_place(s, number, &at) == 0 ? s->rank[at] : NULL;
}

/* --- reads --- */

/* Passes of an order and their parts in one number that grows. */
static uint64_t pass_key(const struct stall_pass *p)
{
	return (p->pass << 12) + MIN(p->part, 4094) + 1;
}

int stall_pass_cmp(const struct stall_pass *a, const struct stall_pass *b)
{
	uint64_t x = pass_key(a), y = pass_key(b);

	if (a->order->seq != b->order->seq)
		return a->order->seq < b->order->seq ? -1 : 1;
	return (x > y) - (x < y);
}

/* Reads of a part: whole rounds of the workers, where their shape is known. */
static uint64_t part_reads(const struct stall_job *job)
{
	uint64_t round = (uint64_t)MAX(job->batch, 1) * MAX(job->workers, 1);

	return round >= STALL_PASS_READS_MAX ? round : STALL_PASS_READS_MAX / round * round;
}

/* Takes over what `key` says. */
static struct stall_pass *pass_new(struct stall_rank *r, const struct stall_pass *key,
				   uint64_t reads, uint64_t length)
{
	struct stall_pass *p;

	if (r->n_passes == STALL_PASSES)
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	*p = *key;
	p->base = p->part * reads;
	if (length > p->base)
		p->length = MIN(length - p->base, reads);
	p->from = UINT64_MAX;
	p->first_ns = UINT64_MAX;
	p->first_batch = r->n_batches;
	r->n_batches += DIV_ROUND_UP(p->length, MAX(p->order->job.batch, 1));
	p->order->n_open++;
	r->pass[r->n_passes++] = p;
	return p;
}

/* NULL: it is over, or there is no memory. */
static struct stall_pass *pass_of_read(struct stall *s, struct stall_order *order,
				       const struct stall_read *read)
{
	struct stall_order_rank *place = &order->rank[read->rank_index];
	struct stall_rank *r = s->rank[place->at];
	uint64_t reads = part_reads(&order->job);
	struct stall_pass key = { .order = order,
				  .rank_index = read->rank_index,
				  .pass = read->pass,
				  .part = read->index / reads };

	for (uint32_t i = r->n_passes; i-- > 0;)
		if (stall_pass_cmp(r->pass[i], &key) == 0)
			return r->pass[i];
	if (pass_key(&key) <= place->closed)
		return NULL;
	if (r->n_passes == STALL_PASSES) /* many short ones since the last look */
		stall_judge(s, 0, false);
	return pass_new(r, &key, reads, read->length);
}

static int pass_grow(struct stall_pass *p, uint64_t need)
{
	uint64_t capacity = MAX(p->capacity, 256);
	struct stall_slot *grown;

	while (capacity < need)
		capacity *= 2;
	if (capacity == p->capacity)
		return 0;
	grown = realloc(p->slot, capacity * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	memset(grown + p->capacity, 0, (capacity - p->capacity) * sizeof(*grown));
	p->slot = grown;
	p->capacity = capacity;
	return 0;
}

static void pass_reader(struct stall_pass *p, uint64_t id)
{
	uint64_t *grown;

	p->n_reader_reads++;
	for (uint32_t i = 0; i < p->n_readers; i++)
		if (p->reader[i] == id)
			return;
	if (p->n_readers == STALL_READERS_MAX)
		return;
	if ((p->n_readers & (p->n_readers - 1)) == 0) { /* grows at powers of two */
		grown = realloc(p->reader, (size_t)MAX(2 * p->n_readers, 4) * sizeof(*grown));
		if (!grown) {
			p->has_no_memory = true;
			return;
		}
		p->reader = grown;
	}
	p->reader[p->n_readers++] = id;
}

/* Opens are kept as times since the first; a read that was told later may have come before it. */
static void pass_move_start(struct stall_pass *p, uint64_t first_ns)
{
	uint64_t by = p->first_ns == UINT64_MAX ? 0 : p->first_ns - first_ns;

	for (uint64_t i = p->from; by && i < p->end; i++)
		p->slot[i].opened =
			(uint32_t)MIN(p->slot[i].opened + (by >> STALL_OPEN_SHIFT), UINT32_MAX);
	p->first_ns = first_ns;
}

static uint8_t slot_flags(const struct stall_read *read, bool is_ghost, bool has_ghost)
{
	bool is_hit = read->read_class != READ_MISS;

	uint8_t flags = SLOT_TOLD;

	/* Without a ghost page cache the source's client keeps no pages, so those are ours. */
	if (is_ghost || (read->is_kernels && has_ghost))
		flags |= SLOT_GHOST;
	if (!is_hit && read->is_loaded)
		flags |= SLOT_LOADED;
	if (is_hit && !read->is_control && !read->is_switchback)
		flags |= SLOT_CREDIT;
	return flags;
}

/* Without this mount nothing would be held back, nor go through it. */
static uint64_t source_ns(const struct stall_read *read)
{
	return read->wait_ns - MIN(read->held_ns, read->wait_ns);
}

static void slot_again(struct stall_slot *slot, uint32_t more)
{
	uint32_t n = (slot->flags >> SLOT_AGAIN_SHIFT) + more;

	slot->flags &= (1 << SLOT_AGAIN_SHIFT) - 1;
	slot->flags |= (uint8_t)(MIN(n, SLOT_AGAIN_MAX) << SLOT_AGAIN_SHIFT);
}

static void pass_take(struct stall_pass *p, const struct stall_read *read, uint8_t flags)
{
	uint64_t at = read->index - p->base, opened;
	struct stall_slot *slot = &p->slot[at];

	assert(read->index >= p->base && at < p->capacity);
	if (slot->flags) /* opened twice: the first time counts */
		return;
	if (read->opened_ns < p->first_ns)
		pass_move_start(p, read->opened_ns);
	opened = (read->opened_ns - p->first_ns) >> STALL_OPEN_SHIFT;
	*slot = (struct stall_slot){
		.opened = (uint32_t)MIN(opened, UINT32_MAX),
		.wait = (uint32_t)MIN(read->wait_ns >> STALL_WAIT_SHIFT, UINT32_MAX),
		.own = read->wait_ns ? (uint16_t)((double)source_ns(read) / (double)read->wait_ns *
						  STALL_OWN_ALL)
				     : 0,
		.size_class = (uint8_t)stall_size_class(read->bytes),
		.flags = flags,
	};
	assert(slot->flags);
	slot_again(slot, read->again);
	p->from = MIN(p->from, at);
	p->end = MAX(p->end, at + 1);
	p->n_told++;
	assert(p->from < p->end && p->n_told <= p->end - p->from);
	p->bytes += read->bytes;
	if (slot->flags & SLOT_GHOST)
		p->ghost_bytes += read->bytes;
	p->last_ns = MAX(p->last_ns, read->opened_ns + read->wait_ns);
	p->told_ns = MAX(p->told_ns, read->opened_ns);
	if (read->reader)
		pass_reader(p, read->reader);
}

/* Around a read: what is told of the CPUs comes once a second. */
#define CROWD_NS 1000000000ull

static int count_control(struct stall *s, const struct stall_read *read)
{
	s->node.control_reads++;
	s->node.control_bytes += read->bytes;
	s->node.control_cost_ns += read->wait_ns;
	if (stall_is_crowded(s, read->opened_ns - MIN(read->opened_ns, CROWD_NS),
			     read->opened_ns + read->wait_ns + CROWD_NS))
		return 0;
	return stall_control_add(s, read->bytes, source_ns(read));
}

/* Of a read that was told before; else there is nothing that it could be added to. */
static void pass_again(struct stall_pass *p, const struct stall_read *read)
{
	uint64_t at = p ? read->index - p->base : 0;

	if (p && at < p->end && p->slot[at].flags)
		slot_again(&p->slot[at], 1u + read->again);
}

static struct stall_pass *pass_for(struct stall *s, const struct stall_read *read)
{
	struct stall_order *order = read->has_place ? stall_order_find(s, read->order) : NULL;

	if (!order || order->off || read->rank_index >= order->job.n_ranks)
		return NULL;
	return pass_of_read(s, order, read);
}

static void count_switchback(struct stall *s, const struct stall_read *read)
{
	s->node.switchback_reads++;
	s->node.switchback_bytes += read->bytes;
	s->node.switchback_wait_ns += read->wait_ns;
}

int stall_read(struct stall *s, const struct stall_read *read)
{
	struct stall_pass *p = pass_for(s, read);
	bool is_ghost;
	int rc;

	if (read->is_again) {
		pass_again(p, read);
		return 0;
	}
	is_ghost = stall_ghost_read(&s->ghost, read->sample, read->bytes);
	rc = read->is_control ? count_control(s, read) : 0;
	s->node.reads++;
	if (read->is_switchback)
		count_switchback(s, read);
	if (!p) {
		s->node.unplaced_reads++;
		return rc;
	}
	if (pass_grow(p, read->index - p->base + 1) < 0) {
		p->has_no_memory = true;
		return -ENOMEM;
	}
	pass_take(p, read, slot_flags(read, is_ghost, s->params.ghost_bytes != 0));
	return rc;
}

void stall_set_pages(struct stall *s, enum stall_pages pages)
{
	s->pages = pages;
}

void stall_had_pages(struct stall *s, uint32_t sample, uint64_t bytes)
{
	(void)stall_ghost_read(&s->ghost, sample, bytes);
}

void stall_set_cpus(struct stall *s, uint32_t cpus)
{
	s->job_cpus = cpus;
}

/* --- when a pass is over --- */

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
	*closed = MAX(*closed, pass_key(p));
	p->order->n_open--;
	pass_free(p);
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

uint32_t stall_n_ranks(const struct stall *s)
{
	return s->n_ranks;
}

void stall_get_rank(const struct stall *s, uint32_t at, struct stall_numbers *ret)
{
	assert(at < s->n_ranks);
	*ret = s->rank[at]->total;
}

uint32_t stall_seen_workers(const struct stall *s)
{
	return s->now && !s->now->off && s->now->job.n_ranks
		       ? s->rank[s->now->rank[0].at]->seen_workers
		       : 0;
}

/* Whether a pass was read that is not judged yet. */
static bool is_settling(const struct stall *s)
{
	for (uint32_t i = 0; i < s->n_ranks; i++)
		for (uint32_t k = 0; k < s->rank[i]->n_passes; k++)
			if (is_complete(s->rank[i]->pass[k]) ||
			    is_left_behind(s, s->rank[i], s->rank[i]->pass[k]))
				return true;
	return false;
}

void stall_get_node(const struct stall *s, struct stall_node *ret)
{
	*ret = s->node;
	for (uint32_t i = 0; i < s->n_ranks; i++)
		ret->open += s->rank[i]->n_passes;
	if (ret->why != STALL_NOTHING_READ)
		return;
	if (is_settling(s))
		ret->why = STALL_SETTLING;
	else if (!s->now || s->now->job.n_ranks == 0)
		ret->why = STALL_NO_ORDER;
	else if (s->now->off)
		ret->why = s->now->off;
}
