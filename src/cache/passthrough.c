/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Switchback: in blocks of a pass that were chosen by chance all samples are held out, the way
 * control reads are (control.c): not fetched, not pushed, what is there of them dropped, and the
 * reads go to the source. So for a while the job runs as if there were no cache, with as many
 * requests at the source as it has readers; what a step takes then is measured by whoever is told
 * the reads (wait/stall_switch.c). Which blocks: wait/switchback.h. The same on every node of
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

int passthrough_init(struct cache *c)
{
	if (c->p.switchback_share <= 0)
		return 0;
	c->passthrough.held =
		calloc(dataset_n_samples(c->p.dataset) / 64 + 1, sizeof(*c->passthrough.held));
	return c->passthrough.held ? 0 : -ENOMEM;
}

void passthrough_fini(struct cache *c)
{
	free(c->passthrough.held);
}

/* Of the order in force; made when it is another one than the last time. */
static const struct switchback *blocks_of(struct cache *c, const struct order_info *info)
{
	struct switchback_loader loader = { .n_samples = dataset_n_samples(c->p.dataset),
					    .workers = info->workers,
					    .prefetch = info->prefetch_factor,
					    .batch = info->batch };
	uint32_t orders = c->jobs[0].id + 1;

	if (c->passthrough.orders != orders) {
		(void)switchback_init(&c->passthrough.blocks, c->p.switchback_share, &loader);
		c->passthrough.orders = orders;
	}
	return &c->passthrough.blocks;
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

bool passthrough_chooses(struct cache *c, const struct plan_action *action)
{
	if (!c->passthrough.held)
		return false;
	if (!is_in_block(c, action->position >> 32, action->position & UINT32_MAX,
			 action->sample)) {
		bits_clear(c->passthrough.held, action->sample);
		return false;
	}
	bits_set(c->passthrough.held, action->sample); /* before it is held out, see cache_read */
	return true;
}

bool passthrough_is_held_out(struct cache *c, struct entry_id entry)
{
	return c->passthrough.held && control_is_held_out(c, entry) &&
	       bits_get(c->passthrough.held, entry.v);
}

/* --- prefetching meanwhile --- */

bool passthrough_holds_prefetch(struct cache *c)
{
	uint64_t until = atomic_load(&c->passthrough.until_ns);

	return until && clock_now(c->p.clock) < until;
}

static void let_prefetch(struct cache *c)
{
	atomic_store(&c->passthrough.until_ns, 0);
	prefetch_pump(c);
}

/* What is kept from earlier, or was fetched before the order was confirmed, may be read before it
 * is asked for once more, or is never pushed: it is dropped two blocks ahead of the readers. Their
 * own distance is a quarter of a block, so nobody has read it in this pass. */
static void set_aside_ahead(struct cache *c, const struct plan_use *use)
{
	const struct switchback *s = &c->passthrough.blocks;
	uint64_t position = use->position;
	uint32_t sample;

	if (!has_blocks(c) || s->chance <= 0)
		return;
	position +=
		2ull * s->block * s->batch * MAX(order_info(c->jobs[0].order->order)->n_ranks, 1);
	sample = plan_sample_at(c->plan, use->pass, position);
	if (sample == SAMPLE_NONE || !is_in_block(c, use->pass, position, sample))
		return;
	bits_set(c->passthrough.held, sample);
	control_set_aside(c, (struct entry_id){ sample });
}

void passthrough_opened(struct cache *c, uint64_t now_ns)
{
	struct plan_use use;

	if (!c->passthrough.held || !plan_last_use(c->plan, &use))
		return;
	set_aside_ahead(c, &use);
	if (is_in_block(c, use.pass, use.position, plan_sample_at(c->plan, use.pass, use.position)))
		atomic_store(&c->passthrough.until_ns, now_ns + REST_NS);
	else if (atomic_load(&c->passthrough.until_ns))
		let_prefetch(c);
}

void passthrough_tick(struct cache *c, uint64_t now_ns)
{
	uint64_t until = atomic_load(&c->passthrough.until_ns);

	if (until && now_ns >= until)
		let_prefetch(c);
}
