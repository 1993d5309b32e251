/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is told of reads that were decided (account.c), to whoever watches (cache/probe.h). It is gathered
 * with the lock of a shard of records held, and told without it. Runs on fs threads, I/O threads and the
 * planner; told by whoever sweeps.
 */
#include "record_priv.h"

#include <string.h>

enum { TOLD_MAX = 65536 };

void reading_add(struct reading *r, const struct reading *more)
{
	r->bytes += more->bytes;
	r->slowest = MAX(r->slowest, more->slowest);
	r->has_read |= more->has_read;
	r->has_failed |= more->has_failed;
	r->is_traced |= more->is_traced;
	read_traits_add(&r->traits, &more->traits);
	r->wait_ns += more->wait_ns;
	r->reader = r->reader ? r->reader : more->reader;
	if (!r->began_ns || (more->began_ns && more->began_ns < r->began_ns))
		r->began_ns = more->began_ns;
}

bool record_is_from_kernel(const struct record *rec, const struct reading *r)
{
	bool is_tracer = r->is_traced && rec->is_pushed && r->bytes <= TRACER_BYTES_MAX &&
			 r->slowest == READ_ARENA;

	return !r->has_read || is_tracer;
}

static struct read_facts *told_next_locked(struct account_shard *a) REQUIRES(a->mu)
{
	uint32_t size = MAX(a->told_size * 2, 64u);
	struct read_facts *grown;

	if (a->n_told < a->told_size)
		return &a->told[a->n_told++];
	grown = size <= TOLD_MAX ? realloc(a->told, size * sizeof(*grown)) : NULL;
	if (!grown)
		return NULL; /* not told: whoever watches sees a hole */
	a->told = grown;
	a->told_size = size;
	return &a->told[a->n_told++];
}

/* Of a read that is told. A record is as long as it is, whoever had it and whatever pages were asked for. */
static uint64_t bytes_of(struct cache *c, const struct record *rec, const struct reading *sum)
{
	uint64_t size = bytes_of_unit(c, rec->unit);
	uint64_t bytes = sum->bytes + rec->unseen;

	if (dataset_unit_is_record(c->p.dataset, rec->unit))
		return cache_asked_of(c, rec->unit);
	return is_large_unit(c, rec->unit) ? MIN(bytes ? bytes : cache_asked_of(c, rec->unit), size) : size;
}

void record_tell_locked(struct cache *c, struct account_shard *a, const struct record *rec)
{
	struct read_facts *facts = c->p.probe ? told_next_locked(a) : NULL;
	bool is_record = dataset_unit_is_record(c->p.dataset, rec->unit);
	bool is_nobodys = is_record && !rec->n_opens && !rec->now.is_traced;
	bool is_again = rec->is_again && !rec->has_use && !is_nobodys;
	struct reading sum = rec->now;
	const struct reading *r = &sum;

	if (!facts)
		return;
	/* Nobody hears of it when a reader comes to a record again: what is asked for once more was dropped. */
	if (is_again && is_record) {
		a->n_told--;
		return;
	}
	if (rec->has_before)
		reading_add(&sum, &rec->before);
	*facts = (struct read_facts){
		.unit = rec->unit,
		.reader = r->reader,
		.read_class = record_is_from_kernel(rec, r) ? READ_STAGED : r->slowest,
		.traits = { .mark = r->has_read && !r->has_failed ? r->traits.mark : 0,
			    .is_loaded = r->traits.is_loaded,
			    .held_ns = MIN(r->traits.held_ns, r->wait_ns) },
		.is_kernels = !r->has_read && !(rec->has_before ? rec->was_pushed : rec->is_pushed),
		.is_again = is_again,
		.again = rec->has_before && !is_record ? rec->n_before : 0,
		.is_record = is_record,
		.is_nobodys = is_nobodys,
		.is_late = rec->is_late,
		.has_use = rec->has_use || is_again,
		.generation = is_again ? rec->placed_by : rec->generation,
		.use = is_again ? rec->place : rec->use,
		.bytes = bytes_of(c, rec, r),
		.opened_ns = r->began_ns,
		.wait_ns = r->wait_ns,
	};
}

void account_tell(struct cache *c, struct account_shard *a)
{
	struct read_facts *told;
	uint32_t n;

	mutex_lock(&a->mu);
	told = TAKE(a->told);
	n = a->n_told;
	a->n_told = a->told_size = 0;
	mutex_unlock(&a->mu);
	if (n)
		c->p.probe->observed(c->p.probe->ctx, told, n);
	free(told);
}

/* The oldest open that is not told yet, or `least`. Also of what was decided after this sweep told: a
 * sample that was opened again meanwhile. */
static uint64_t untold_since(struct account_shard *a, uint64_t least)
{
	mutex_lock(&a->mu);
	if (!list_is_empty(&a->untold))
		least = MIN(least, container_of(a->untold.next, struct record, by_since)->since_ns);
	for (uint32_t i = 0; i < a->n_told; i++)
		least = MIN(least, a->told[i].opened_ns);
	mutex_unlock(&a->mu);
	return least;
}

/* Opens are heard of within milliseconds, or a moment later on a machine that is busy. */
void account_tell_settled(struct cache *c, uint64_t now_ns)
{
	uint64_t before_ns = now_ns - MIN(now_ns, HEARD_NS);

	if (!c->p.probe || !c->p.probe->settled || now_ns < atomic_load(&c->account->settle_ns))
		return;
	atomic_store(&c->account->settle_ns, now_ns + NS_PER_S);
	for (int i = 0; i < ACCOUNT_SHARDS; i++)
		before_ns = untold_since(&c->account->shards[i], before_ns);
	c->p.probe->settled(c->p.probe->ctx, before_ns);
}
