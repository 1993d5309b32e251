/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which reads are left to the source, to know what it takes.
 *
 * Control reads: a few samples of each pass, chosen by a hash of sample and pass. How long they take
 * is what the others would have taken, as long as the source is no busier than the job alone makes
 * it: gate.c sees to that. The choice is the same in every run and on every node; the only thing of
 * time that it depends on is that no sample is held out when prefetching had to wait too much of
 * late.
 *
 * Switchback: in blocks of a pass that were chosen by chance all samples are. So for a while the job
 * runs as if there were no cache, with as many requests at the source as it has readers; what a step
 * takes then is measured by stall_switch.c. Which blocks: switchback.h. The same on every node of a
 * job, so that all its ranks step aside together and none waits for another because of it. Nothing
 * is chosen while the order is not confirmed: what the job reads next is not known then, and a wrong
 * order must not cost reads that would have been hits. What was pushed until then is read from the
 * kernel; the accounting leaves such blocks out. Of several jobs none has blocks: they would be in
 * them at different times.
 *
 * While readers are in such a block nothing is fetched ahead for later ones: requests that the job
 * would not make are not to slow its own down. What was fetched before the block waits behind it.
 * A job that stops within a block lets prefetching wait for no longer than REST_NS. These reads are
 * no control reads, which are alone among hits, and the gate is not for them.
 */
#include "sampling.h"

#include <assert.h>

#include "mix.h"

#define REST_NS NS_PER_S

bool sampling_is_chosen(double share, uint32_t sample, uint64_t pass)
{
	return mix_share(mix_bits(mix_bits(pass + 1) ^ sample)) < share;
}

static uint32_t class_of(uint64_t bytes)
{
	return bytes ? MIN(64 - (uint32_t)__builtin_clzll(bytes), 63u) : 0;
}

bool sampling_is_wanted(const struct sampling *s, uint64_t bytes)
{
	return !(atomic_load_explicit(&s->full, memory_order_relaxed) >> class_of(bytes) & 1);
}

void sampling_has_enough(struct sampling *s, uint64_t bytes)
{
	atomic_fetch_or(&s->full, 1ull << class_of(bytes));
}

/* Of the order in force; made when it is another one than the last time. */
static const struct switchback *blocks_of(struct sampling *s, const struct probe_use *use)
{
	struct switchback_loader loader = { .n_samples = s->p.n_samples,
					    .workers = use->order->workers,
					    .prefetch = use->order->prefetch_factor,
					    .batch = use->order->batch };

	assert(use->order && s->p.switchback_share > 0);
	if (s->jobs != use->job + 1) {
		(void)switchback_init(&s->blocks, s->p.switchback_share, &loader);
		s->jobs = use->job + 1;
	}
	return &s->blocks;
}

/* What is read beside the passes of the job has no blocks. Positions run through the ranks of this
 * node. */
static bool is_in_block(struct sampling *s, const struct probe_use *use)
{
	return s->p.switchback_share > 0 && use->order &&
	       switchback_has(blocks_of(s, use), use->pass,
				use->position / MAX(use->order->n_ranks, 1));
}

static uint8_t sampling_hold_out(void *ctx, const struct probe_use *use)
{
	struct sampling *s = ctx;

	if (is_in_block(s, use))
		return WAIT_SWITCHBACK;
	if (use->is_ahead || atomic_load_explicit(&s->is_idle, memory_order_relaxed) ||
	    !sampling_is_chosen(s->p.control_share, use->unit.v, use->pass) ||
	    !sampling_is_wanted(s, use->bytes) || gate_is_worn(&s->gate))
		return 0;
	return WAIT_CONTROL;
}

/* --- prefetching meanwhile --- */

static bool let_prefetch(struct sampling *s)
{
	atomic_store(&s->until_ns, 0);
	return true;
}

/* What is kept from earlier, or was fetched before the order was confirmed, may be read before it
 * is asked for once more, or is never pushed: it is looked at two blocks ahead of the readers. Their
 * own distance is a quarter of a block, so nobody has read it in this pass. */
static uint64_t sampling_opened(void *ctx, const struct probe_use *use, uint64_t now_ns, bool *ret_lets)
{
	struct sampling *s = ctx;

	if (is_in_block(s, use))
		atomic_store(&s->until_ns, now_ns + REST_NS);
	else if (atomic_load(&s->until_ns))
		*ret_lets = let_prefetch(s);
	if (!use->order || s->blocks.chance <= 0)
		return 0;
	return 2ull * s->blocks.block * s->blocks.batch * MAX(use->order->n_ranks, 1);
}

static bool may_prefetch(void *ctx)
{
	struct sampling *s = ctx;
	uint64_t until = atomic_load(&s->until_ns);

	if (until && clock_now(s->p.clock) < until)
		return false;
	return gate_lets_prefetch(&s->gate);
}

static bool may_send(void *ctx, struct probe_request *request)
{
	return gate_enter(&((struct sampling *)ctx)->gate, request);
}

static bool sampling_answered(void *ctx, struct probe_request *request, struct list *go)
{
	return gate_leave(&((struct sampling *)ctx)->gate, request, go);
}

static bool sampling_tick(void *ctx, uint64_t now_ns, struct list *go)
{
	struct sampling *s = ctx;
	uint64_t until = atomic_load(&s->until_ns);
	struct gate_load load;
	bool is_let;

	if (gate_take_load(&s->gate, now_ns, &load) && s->load)
		s->load(s->ctx, &load);
	is_let = gate_tick(&s->gate, now_ns, go);
	return (until && now_ns >= until && let_prefetch(s)) || is_let;
}

static void sampling_end(void *ctx, struct list *go)
{
	gate_open(&((struct sampling *)ctx)->gate, go);
}

/* --- what is told on --- */

static void sampling_observed(void *ctx, const struct read_facts *facts, uint32_t n)
{
	const struct sampling *s = ctx;

	if (s->observed)
		s->observed(s->ctx, facts, n);
}

static void sampling_settled(void *ctx, uint64_t before_ns)
{
	const struct sampling *s = ctx;

	if (s->settled)
		s->settled(s->ctx, before_ns);
}

/* --- life --- */

void sampling_init(struct sampling *s, const struct sampling_params *params)
{
	bool is_any = params->control_share > 0 || params->switchback_share > 0;

	assert(params->control_share >= 0 && params->control_share <= 1);
	assert(params->switchback_share >= 0 && params->switchback_share <= SWITCHBACK_SHARE_MAX);

	*s = (struct sampling){ .p = *params,
				.drive_probe = { .ctx = s,
						 .hold_back = is_any ? sampling_hold_out : NULL,
						 .opened = params->switchback_share > 0 ? sampling_opened
											: NULL },
				.probe = { .ctx = s,
					   .may_send = may_send,
					   .answered = sampling_answered,
					   .may_prefetch = may_prefetch,
					   .tick = sampling_tick,
					   .end = sampling_end,
					   .observed = sampling_observed,
					   .settled = sampling_settled } };
	gate_init(&s->gate, params->clock);
}

void sampling_fini(struct sampling *s)
{
	gate_fini(&s->gate);
}

void sampling_set_readers(struct sampling *s, uint32_t readers)
{
	atomic_store(&s->gate.readers, readers);
}

uint32_t sampling_readers(const struct sampling *s)
{
	return atomic_load(&s->gate.readers);
}
