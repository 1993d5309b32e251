/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Switchback: in blocks of a pass that were chosen by chance all samples are held out, the way
 * control reads are (control.c): not fetched, not pushed, what is there of them dropped, and the
 * reads go to the source. So for a while the job runs as if there were no cache, with as many
 * requests at the source as it has readers; what a step takes then is measured by whoever is told
 * the reads (metrics/stall_switch.c). Which blocks: metrics/switchback.h. The same on every node of
 * a job, so that all its ranks step aside together and none waits for another because of it.
 *
 * Nothing is chosen while the order is not confirmed: what the job reads next is not known then,
 * and a wrong order must not cost reads that would have been hits. What was pushed until then is
 * read from the kernel; the accounting leaves such blocks out.
 *
 * While readers are in such a block nothing is fetched ahead for later ones: requests that the job
 * would not make are not to slow its own down. What was fetched before the block waits behind it.
 * A job that stops within a block holds prefetching up for no longer than REST_NS. These reads are
 * no control reads, which are alone among hits, and the gate (gate.c) is not for them.
 */
#include "cache_priv.h"

#define REST_NS NS_PER_S

int cache_switchback_init(struct cache *c)
{
	if (c->p.switchback_share <= 0)
		return 0;
	c->switchback.held =
		calloc(dataset_n_samples(c->p.dataset) / 64 + 1, sizeof(*c->switchback.held));
	return c->switchback.held ? 0 : -ENOMEM;
}

void cache_switchback_fini(struct cache *c)
{
	free(c->switchback.held);
}

/* Of the order in force; made when it is another one than the last time. */
static const struct switchback *blocks_of(struct cache *c, const struct order_info *info)
{
	struct switchback_loader loader = { .n_samples = dataset_n_samples(c->p.dataset),
					    .workers = info->workers,
					    .prefetch = info->prefetch_factor,
					    .batch = info->batch };
	uint32_t orders = c->jobs[0].id + 1;

	if (c->switchback.orders != orders) {
		(void)switchback_init(&c->switchback.blocks, c->p.switchback_share, &loader);
		c->switchback.orders = orders;
	}
	return &c->switchback.blocks;
}

/* Of several jobs none has blocks: they would be in them at different times. */
static bool has_blocks(const struct cache *c)
{
	return c->n_jobs == 1 && plan_is_confirmed(c->plan);
}

/* What is read beside the passes of the job has no blocks. */
static bool is_in_block(struct cache *c, uint64_t pass, uint64_t position, uint32_t sample)
{
	const struct order_info *info;

	if (!has_blocks(c))
		return false;
	info = order_info(c->jobs[0].order->order);
	/* Positions run through the ranks of this node. */
	return switchback_holds(blocks_of(c, info), pass, position / MAX(info->n_ranks, 1)) &&
	       plan_sample_at(c->plan, pass, position) == sample;
}

bool cache_switchback_chooses(struct cache *c, const struct plan_action *action)
{
	if (!c->switchback.held)
		return false;
	if (!is_in_block(c, action->position >> 32, action->position & UINT32_MAX,
			 action->sample)) {
		bits_clear(c->switchback.held, action->sample);
		return false;
	}
	bits_set(c->switchback.held, action->sample); /* before it is held out, see cache_read */
	return true;
}

bool cache_switchback_is_held_out(struct cache *c, struct entry_id entry)
{
	return c->switchback.held && control_is_held_out(c, entry) &&
	       bits_get(c->switchback.held, entry.v);
}

/* --- prefetching meanwhile --- */

bool cache_switchback_holds_prefetch(struct cache *c)
{
	uint64_t until = atomic_load(&c->switchback.until_ns);

	return until && clock_now(c->p.clock) < until;
}

static void let_prefetch(struct cache *c)
{
	atomic_store(&c->switchback.until_ns, 0);
	prefetch_pump(c);
}

/* What is kept from earlier, or was fetched before the order was confirmed, may be read before it
 * is asked for once more, or is never pushed: it is dropped two blocks ahead of the readers. Their
 * own distance is a quarter of a block, so nobody has read it in this pass. */
static void set_aside_ahead(struct cache *c, const struct plan_use *use)
{
	const struct switchback *s = &c->switchback.blocks;
	uint64_t position = use->position;
	uint32_t sample;

	if (!has_blocks(c) || s->chance <= 0)
		return;
	position +=
		2ull * s->block * s->batch * MAX(order_info(c->jobs[0].order->order)->n_ranks, 1);
	sample = plan_sample_at(c->plan, use->pass, position);
	if (sample == SAMPLE_NONE || !is_in_block(c, use->pass, position, sample))
		return;
	bits_set(c->switchback.held, sample);
	control_set_aside(c, (struct entry_id){ sample });
}

void cache_switchback_opened(struct cache *c, uint64_t now_ns)
{
	struct plan_use use;

	if (!c->switchback.held || !plan_last_use(c->plan, &use))
		return;
	set_aside_ahead(c, &use);
	if (is_in_block(c, use.pass, use.position, plan_sample_at(c->plan, use.pass, use.position)))
		atomic_store(&c->switchback.until_ns, now_ns + REST_NS);
	else if (atomic_load(&c->switchback.until_ns))
		let_prefetch(c);
}

void cache_switchback_tick(struct cache *c, uint64_t now_ns)
{
	uint64_t until = atomic_load(&c->switchback.until_ns);

	if (until && now_ns >= until)
		let_prefetch(c);
}
