/* SPDX-License-Identifier: Apache-2.0 */
/* A job may tell an order for each epoch. Reads name the order that their place is of, and are told
 * up to seconds after they were made, so they come when the next order is in force already; and a
 * moment before anybody here hears of their own order, which they then wait for.
 *
 * Of several jobs at once one is accounted for. Reads of the others are told as well, and have no
 * place; when the one is gone and the next takes its turn, nothing of before counts for it: it is
 * the same time of the same ranks, and time that was judged for the one must not be judged again. */
#include "feed.h"

#include <assert.h>

#include "clairfs/base/cleanup.h"
#include "clairfs/base/log.h"

/* An order that is in force in the cache is told here by then, if ever. */
#define EARLY_NS (10 * NS_PER_S)

static const struct order_taken *taken_at(const struct feeder *f, uint32_t generation)
{
	return &f->taken[generation % STALL_ORDERS];
}

/* Ranks of that order; 0: it is none that was told. */
static uint32_t ranks_of(const struct feeder *f, uint32_t generation)
{
	const struct order_taken *o = taken_at(f, generation);

	return o->is_known && o->generation == generation ? o->n_ranks : 0;
}

/* Ranks of the order that it is a read of; 0: it has no place in what is accounted for. */
static uint32_t ranks_for(const struct feeder *f, const struct read_facts *facts)
{
	const struct order_taken *o = taken_at(f, facts->generation);
	uint64_t ended_ns = facts->opened_ns + facts->wait_ns;

	if (!facts->has_use || facts->opened_ns < o->from_ns ||
	    (o->until_ns && ended_ns > o->until_ns))
		return 0;
	return ranks_of(f, facts->generation);
}

/* Positions run through the ranks: all ranks' first samples, then all ranks' second ones. */
static void feed_read(struct feeder *f, const struct read_facts *facts)
{
	uint32_t ranks = ranks_for(f, facts), n = MAX(ranks, 1);
	struct stall_read read = {
		.has_place = ranks > 0,
		.order = facts->generation,
		.is_control = (facts->traits.mark & WAIT_CONTROL) && !facts->traits.is_loaded,
		.is_switchback = (facts->traits.mark & WAIT_SWITCHBACK) != 0,
		.is_kernels = facts->is_kernels,
		.is_loaded = facts->traits.is_loaded,
		.is_record = facts->is_record,
		.is_nobodys = facts->is_nobodys,
		.is_late = facts->is_late,
		.is_again = facts->is_again,
		.again = facts->again,
		.read_class = (uint8_t)facts->read_class,
		.rank_index = (uint32_t)(facts->use.position % n),
		.unit = facts->unit,
		.pass = facts->use.pass,
		.index = facts->use.position / n,
		.bytes = facts->bytes,
		.opened_ns = facts->opened_ns,
		.wait_ns = facts->wait_ns,
		.held_ns = facts->traits.held_ns,
		.reader = facts->reader,
	};

	if (read.has_place)
		machine_saw(f->machine, read.rank_index, facts->reader);
	assert(read.rank_index < n);
	if (facts->use.length > read.rank_index)
		read.length = DIV_ROUND_UP(facts->use.length - read.rank_index, n);
	if (stall_read(f->stall, &read) < 0)
		log_limited(LOG_LEVEL_WARN, "accounting: out of memory");
	if (read.is_control && !stall_wants_control(f->stall, facts->bytes))
		sampling_has_enough(f->sampling, facts->bytes);
}

static void end_orders(struct feeder *f, uint64_t until_ns)
{
	for (uint32_t i = 0; i < STALL_ORDERS; i++)
		if (f->taken[i].is_known && !f->taken[i].until_ns)
			f->taken[i].until_ns = until_ns;
}

static void take_order(struct feeder *f, struct told_order *o)
{
	o->job.ranks = o->ranks;
	o->job.is_another = o->turn_ns != 0;
	if (o->turn_ns)
		end_orders(f, o->turn_ns);
	/* A job that has read all it told leaves no order; its last reads are told after that. */
	if (o->job.n_ranks || !ranks_of(f, o->job.id))
		f->taken[o->job.id % STALL_ORDERS] =
			(struct order_taken){ .is_known = true,
					      .generation = o->job.id,
					      .n_ranks = o->job.n_ranks,
					      .from_ns = o->turn_ns };
	f->generation = o->job.id;
	if (stall_set_job(f->stall, &o->job) < 0)
		log_warn("GPU wait is not accounted for: %u ranks on this node", o->job.n_ranks);
}

/* Its order is in force in the cache, but was not told here yet. */
static bool is_early(const struct told *t, const struct read_facts *facts)
{
	return facts->has_use && !told_has_heard(t, facts->generation);
}

static void take_read(struct feeder *f, const struct told *t, const struct read_facts *facts,
		      uint64_t now_ns)
{
	if (is_early(t, facts) && told_reads(&f->early, facts, 1)) {
		if (f->early.n_reads == 1)
			f->early_ns = now_ns;
		return;
	}
	feed_read(f, facts);
}

/* Those whose order was told by now; all of them when nobody is going to. */
static void feed_early(struct feeder *f, const struct told *t, uint64_t now_ns, bool is_final)
{
	struct told *h = &f->early;
	bool is_all = is_final || now_ns >= f->early_ns + EARLY_NS;
	size_t n = h->n_reads;

	h->n_reads = 0;
	for (size_t i = 0; i < n; i++) {
		if (is_all || !is_early(t, &h->read[i]))
			feed_read(f, &h->read[i]);
		else
			h->read[h->n_reads++] = h->read[i];
	}
	assert(h->n_reads <= n && !(is_final && h->n_reads));
	if (!h->n_reads)
		told_free(h);
}

void feeder_take(struct feeder *f, const struct told *t, uint64_t now_ns, bool is_final)
{
	for (size_t i = 0; i < t->n_orders; i++)
		take_order(f, &t->order[i]);
	feed_early(f, t, now_ns, false);
	for (size_t i = 0; i < t->n_reads; i++)
		take_read(f, t, &t->read[i], now_ns);
	if (is_final)
		feed_early(f, t, now_ns, true);
	if (!f->early.n_reads)
		stall_settled(f->stall, t->settled_ns);
	if (t->load.took_ns)
		stall_load(f->stall, now_ns, t->load.took_ns, t->load.bytes);
	for (size_t i = 0; i < t->n_steps; i++)
		(void)stall_step(f->stall, &t->step[i]); /* it counts what it does not take */
}

uint32_t feeder_seen_readers(const struct feeder *f)
{
	return stall_seen_workers(f->stall) * ranks_of(f, f->generation);
}

void feeder_fini(struct feeder *f)
{
	told_free(&f->early);
}
