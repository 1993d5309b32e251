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
	[STALL_CUT] =
		("what a sample of more than 16 MiB, or a record of more than 128 KiB or one that was found, takes "
		 "without this mount is not known"),
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
	if (stall_ghost_init(&s->ghost, params->n_units, params->ghost_bytes) < 0) {
		stall_free(s);
		return -ENOMEM;
	}
	*ret = s;
	return 0;
}

void stall_pass_free(struct stall_pass *p)
{
	free(p->slot);
	free(p->reader);
	free(p);
}

static void rank_forget_passes(struct stall_rank *r)
{
	for (uint32_t i = 0; i < r->n_passes; i++)
		stall_pass_free(r->pass[i]);
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

uint64_t stall_pass_key(const struct stall_pass *p)
{
	return (p->pass << 12) + MIN(p->part, 4094) + 1;
}

int stall_pass_cmp(const struct stall_pass *a, const struct stall_pass *b)
{
	uint64_t x = stall_pass_key(a), y = stall_pass_key(b);

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
	if (stall_pass_key(&key) <= place->closed)
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
	p->n_late += read->is_late;
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

/* Records beside each other share pages: it must not have less than Linux would. */
static uint64_t ghost_bytes(const struct stall_read *read)
{
	return read->is_record ? ALIGN_DOWN(read->bytes, 4096) : read->bytes;
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
	is_ghost = stall_ghost_read(&s->ghost, read->unit, ghost_bytes(read));
	if (read->is_nobodys)
		return 0;
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

void stall_had_pages(struct stall *s, struct unit_id unit, uint64_t bytes)
{
	(void)stall_ghost_read(&s->ghost, unit, bytes);
}

void stall_set_cpus(struct stall *s, uint32_t cpus)
{
	s->job_cpus = cpus;
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

void stall_get_node(const struct stall *s, struct stall_node *ret)
{
	*ret = s->node;
	for (uint32_t i = 0; i < s->n_ranks; i++)
		ret->open += s->rank[i]->n_passes;
	if (ret->why != STALL_NOTHING_READ)
		return;
	if (stall_is_settling(s))
		ret->why = STALL_SETTLING;
	else if (!s->now || s->now->job.n_ranks == 0)
		ret->why = STALL_NO_ORDER;
	else if (s->now->off)
		ret->why = s->now->off;
}
