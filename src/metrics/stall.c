/* SPDX-License-Identifier: Apache-2.0 */
/* GPU wait removed: the definition, and what is kept until it can be judged.
 *
 * A rank's loop asks for batch k and waits w_k until it has it. Removed is the sum over k of
 * w_k(without) - w_k(with): the same order, workers, decoding and compute, but each read served as
 *if the source were mounted itself, with the page cache that Linux would have had. Both sums belong
 *to one rank and are seconds of the wall clock; ranks of a job that waits for all of them must not
 *be added up. The time a read would have taken:
 *
 *	a miss                    what it took: no credit (also for control reads)
 *	in the ghost page cache   nothing: no credit, and a miss of it counts against us nowhere
 *	any other                 b, by size, from the control reads: samples held out by chance,
 *that are not fetched ahead but read from the source when they are wanted
 *
 * It is judged pass by pass, never by the second: max(0, noise) of many small parts is not 0. Three
 * numbers (stall_judge.c):
 *
 *	lower     (sum of b + decoding) / W - T: W workers cannot have done that work faster,
 *whatever the loader is like; T is the time it took. b is the lower 95 % limit. estimate  the
 *loader's recurrence (stall_replay.c) played with b and with the reads as they were; the difference
 *of the two, so that what the model gets wrong it gets wrong twice. Compute is what the job tells
 *(hook), else the most that fits the time taken. upper     of each W batches in a row the one that
 *saved most: a chain of events that delays the job goes through at most one of them. b is taken at
 *its upper 95 % limit.
 *
 * lower <= estimate <= upper: where the model disagrees, the cautious side wins. The plain sum of
 * saved latencies is no GPU time (1.4 to 250 times as much); it has a name of its own.
 *
 * One thread at a time; no clock, so a pass is over when it is complete or a later one goes on. */
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
	r->closed = 0;
	r->seen_workers = 0;
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
	stall_ghost_fini(&s->ghost);
	free(s);
}

static int rank_place(struct stall *s, uint32_t number, uint32_t *ret)
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

	return rank_place(s, number, &at) == 0 ? s->rank[at] : NULL;
}

int stall_set_job(struct stall *s, const struct stall_job *job)
{
	int rc = job->n_ranks > STALL_RANKS_MAX ? -EINVAL : 0;

	stall_judge(s, UINT64_MAX, true);
	for (uint32_t i = 0; i < s->n_ranks; i++)
		rank_forget_passes(s->rank[i]);
	for (uint32_t i = 0; i < job->n_ranks && rc == 0; i++)
		rc = rank_place(s, job->ranks ? job->ranks[i] : i, &s->rank_at[i]);
	s->job = *job;
	s->job.ranks = NULL;
	stall_switch_job(s);
	s->is_off = rc < 0;
	return rc;
}

/* --- reads --- */

/* Passes and their parts in one number that grows. */
static uint64_t pass_key(const struct stall_pass *p)
{
	return (p->pass << 12) + MIN(p->part, 4094) + 1;
}

/* Reads of a part: whole rounds of the workers, where their shape is known. */
static uint64_t part_reads(const struct stall *s)
{
	uint64_t round = (uint64_t)MAX(s->job.batch, 1) * MAX(s->job.workers, 1);

	return round >= STALL_PASS_READS_MAX ? round : STALL_PASS_READS_MAX / round * round;
}

static struct stall_pass *pass_new(struct stall_rank *r, const struct stall_read *read,
				   uint64_t reads)
{
	struct stall_pass *p;

	if (r->n_passes == STALL_PASSES)
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->pass = read->pass;
	p->part = read->index / reads;
	p->base = p->part * reads;
	if (read->length > p->base)
		p->length = MIN(read->length - p->base, reads);
	p->from = UINT64_MAX;
	p->first_ns = UINT64_MAX;
	r->pass[r->n_passes++] = p;
	return p;
}

/* NULL: it is over, or there is no memory. */
static struct stall_pass *pass_of(struct stall *s, struct stall_rank *r,
				  const struct stall_read *read)
{
	uint64_t reads = part_reads(s);
	struct stall_pass key = { .pass = read->pass, .part = read->index / reads };

	for (uint32_t i = r->n_passes; i-- > 0;)
		if (r->pass[i]->pass == key.pass && r->pass[i]->part == key.part)
			return r->pass[i];
	return pass_key(&key) <= r->closed ? NULL : pass_new(r, read, reads);
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

static uint8_t slot_flags(const struct stall_read *read, bool is_ghost)
{
	bool is_hit = read->read_class != READ_MISS;

	if (is_ghost || read->is_kernels)
		return SLOT_TOLD | SLOT_GHOST;
	return is_hit && !read->is_control && !read->is_switchback ? SLOT_TOLD | SLOT_CREDIT
								   : SLOT_TOLD;
}

static void pass_take(struct stall_pass *p, const struct stall_read *read, bool is_ghost)
{
	uint64_t at = read->index - p->base, opened;
	struct stall_slot *slot = &p->slot[at];

	if (slot->flags) /* opened twice: the first time counts */
		return;
	if (read->opened_ns < p->first_ns)
		pass_move_start(p, read->opened_ns);
	opened = (read->opened_ns - p->first_ns) >> STALL_OPEN_SHIFT;
	*slot = (struct stall_slot){
		.opened = (uint32_t)MIN(opened, UINT32_MAX),
		.wait = (uint32_t)MIN(read->wait_ns >> STALL_WAIT_SHIFT, UINT32_MAX),
		.size_class = (uint8_t)stall_size_class(read->bytes),
		.flags = slot_flags(read, is_ghost),
	};
	p->from = MIN(p->from, at);
	p->end = MAX(p->end, at + 1);
	p->n_told++;
	p->last_ns = MAX(p->last_ns, read->opened_ns + read->wait_ns);
	p->told_ns = MAX(p->told_ns, read->opened_ns);
	if (read->reader)
		pass_reader(p, read->reader);
}

static int count_control(struct stall *s, const struct stall_read *read)
{
	s->node.control_reads++;
	s->node.control_bytes += read->bytes;
	s->node.control_cost_ns += read->wait_ns;
	return stall_control_add(s, read->bytes, read->wait_ns);
}

static void count_switchback(struct stall *s, const struct stall_read *read)
{
	s->node.switchback_reads++;
	s->node.switchback_bytes += read->bytes;
	s->node.switchback_wait_ns += read->wait_ns;
}

int stall_read(struct stall *s, const struct stall_read *read)
{
	bool is_ghost = stall_ghost_read(&s->ghost, read->sample, read->bytes);
	struct stall_pass *p;
	int rc = read->is_control ? count_control(s, read) : 0;

	if (read->is_switchback)
		count_switchback(s, read);
	if (!read->has_place || s->is_off || read->rank_index >= s->job.n_ranks) {
		s->node.unplaced_reads++;
		return rc;
	}
	p = pass_of(s, s->rank[s->rank_at[read->rank_index]], read);
	if (!p) {
		s->node.unplaced_reads++;
		return rc;
	}
	if (pass_grow(p, read->index - p->base + 1) < 0) {
		p->has_no_memory = true;
		return -ENOMEM;
	}
	pass_take(p, read, is_ghost);
	return rc;
}

/* --- when a pass is over --- */

/* Whether its iterator still delivers: then the compute times of the last batches are not told yet.
 */
static bool is_running(const struct stall *s, const struct stall_rank *r,
		       const struct stall_pass *p, uint64_t now_ns)
{
	const struct stall_run *run = stall_run_find(r, p->first_ns, p->last_ns + STALL_LATE_NS);
	uint64_t batches = DIV_ROUND_UP(p->end - p->from, MAX(s->job.batch, 1));

	return run && !run->is_over && s->job.batch && run->n < batches &&
	       now_ns < run->last_ns + STALL_LATE_NS;
}

static bool pass_is_over(const struct stall *s, const struct stall_rank *r,
			 const struct stall_pass *p, uint64_t now_ns)
{
	bool is_complete = p->length && p->n_told >= p->length, is_left;

	/* Nearly all of it, and then nothing: jobs leave out the last batch. */
	is_left = p->length && 100 * p->n_told >= (100 - STALL_HOLES_PERCENT) * p->length;
	for (uint32_t i = 0; i < r->n_passes; i++)
		is_left |= pass_key(r->pass[i]) > pass_key(p);
	if (!is_complete && !(is_left && now_ns >= p->told_ns + STALL_LATE_NS))
		return false;
	return !is_running(s, r, p, now_ns);
}

/* The oldest pass that is over, or none of it. */
static uint32_t pass_next(const struct stall *s, const struct stall_rank *r, uint64_t now_ns,
			  bool is_final, uint64_t after)
{
	uint32_t best = STALL_PASSES;

	for (uint32_t i = 0; i < r->n_passes; i++) {
		const struct stall_pass *p = r->pass[i];

		if (pass_key(p) <= after || (!is_final && !pass_is_over(s, r, p, now_ns)))
			continue;
		if (best == STALL_PASSES || pass_key(p) < pass_key(r->pass[best]))
			best = i;
	}
	return best;
}

static void pass_close(struct stall_rank *r, uint32_t at)
{
	r->closed = MAX(r->closed, pass_key(r->pass[at]));
	pass_free(r->pass[at]);
	r->pass[at] = r->pass[--r->n_passes];
}

static void judge_rank(struct stall *s, struct stall_rank *r, uint64_t now_ns, bool is_final)
{
	uint64_t after = 0;
	uint32_t at;

	while ((at = pass_next(s, r, now_ns, is_final, after)) != STALL_PASSES) {
		struct stall_pass *p = r->pass[at];
		/* What is missing may still come, as long as there is room for later passes. */
		bool may_wait = !is_final && r->n_passes < STALL_PASSES - 2;

		after = pass_key(p);
		stall_switch_pass(s, r, p);
		s->node.why = stall_judge_pass(s, r, p);
		if ((s->node.why == STALL_NO_CONTROLS || s->node.why == STALL_NO_WORKERS) &&
		    may_wait)
			continue;
		if (s->node.why != STALL_JUDGED)
			r->total.unjudged++;
		pass_close(r, at);
	}
}

void stall_judge(struct stall *s, uint64_t now_ns, bool is_final)
{
	for (uint32_t i = 0; i < s->n_ranks; i++)
		judge_rank(s, s->rank[i], now_ns, is_final);
}

uint32_t stall_n_ranks(const struct stall *s)
{
	return s->n_ranks;
}

void stall_get_rank(const struct stall *s, uint32_t at, struct stall_numbers *ret)
{
	*ret = s->rank[at]->total;
}

void stall_get_node(const struct stall *s, struct stall_node *ret)
{
	*ret = s->node;
	if (s->job.n_ranks == 0 && ret->why == STALL_NOTHING_READ)
		ret->why = STALL_NO_ORDER;
}
