/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the probe (cache/probe.h) is asked, and what is done about its answers. The plan asks for
 * every use of a sample with a FETCH or a STAGE, so that is where a use is held back: the action is
 * answered PLAN_HELD_OUT, copies in arena and kernel are dropped, and the read that comes goes to the
 * source like any read that nobody foresaw, past the store and past what the source's own client has
 * in the page cache. What was kept from earlier is not asked for again: the probe says how far ahead
 * of the readers to look for that.
 *
 * A sample that is read before its FETCH is due (the readers are faster than the plan) is a miss
 * anyhow. Without a probe all of this is nothing. No lock is held over a call of the probe.
 */
#include "cache_priv.h"

/* Two bits for each sample: its mark. */
int probed_init(struct cache *c)
{
	size_t words = dataset_n_samples(c->p.dataset) / 64 + 1;

	if (!c->p.probe || !c->p.probe->hold_back)
		return 0;
	for (int i = 0; i < 2; i++) {
		c->marked[i] = calloc(words, sizeof(*c->marked[i]));
		if (!c->marked[i])
			return -ENOMEM;
	}
	return 0;
}

void probed_fini(struct cache *c)
{
	free(c->marked[0]);
	free(c->marked[1]);
}

uint8_t probed_mark(struct cache *c, struct entry_id entry)
{
	if (!c->marked[1] || !dataset_is_sample(c->p.dataset, entry))
		return 0;
	return (uint8_t)(bits_get(c->marked[0], entry.v) | bits_get(c->marked[1], entry.v) << 1);
}

static void set_mark(struct cache *c, struct entry_id entry, uint8_t mark)
{
	for (int i = 0; i < 2; i++)
		if (mark >> i & 1)
			bits_set(c->marked[i], entry.v);
	for (int i = 0; i < 2; i++) /* never in between without one */
		if (!(mark >> i & 1))
			bits_clear(c->marked[i], entry.v);
}

void probed_set_aside(struct cache *c, struct entry_id entry, uint8_t mark)
{
	set_mark(c, entry, mark);
	change_drop_copies(c, entry);
}

/* The order, where there is one job that reads by it; of several none is spoken of. */
static struct probe_use use_at(struct cache *c, uint64_t pass, uint64_t position, uint32_t sample)
{
	struct probe_use use = { .sample = sample, .pass = pass, .position = position };

	use.bytes = asked_of(c, dataset_size(c->p.dataset, (struct entry_id){ sample }));
	if (c->n_jobs != 1 || !plan_is_confirmed(c->plan) ||
	    plan_sample_at(c->plan, pass, position) != sample)
		return use;
	use.order = order_info(c->jobs[0].order->order);
	use.job = c->jobs[0].id;
	return use;
}

bool probed_hold_back(struct cache *c, const struct plan_action *action)
{
	struct entry_id entry = { action->sample };
	struct probe_use use;
	uint8_t mark;

	/* What a reader is at now is adopted for its next use: that use has its STAGE to be caught.
	 */
	if (!c->marked[1] || action->is_adopted || action->pass == UINT64_MAX)
		return false;
	use = use_at(c, action->pass, action->position & UINT32_MAX, action->sample);
	mark = c->p.probe->hold_back(c->p.probe->ctx, &use);
	if (mark)
		probed_set_aside(c, entry, mark);
	else
		set_mark(c, entry, 0);
	return mark != 0;
}

static void look_ahead(struct cache *c, uint64_t pass, uint64_t position)
{
	uint32_t sample = plan_sample_at(c->plan, pass, position);
	struct probe_use use;
	uint8_t mark;

	if (sample == SAMPLE_NONE)
		return;
	use = use_at(c, pass, position, sample);
	use.is_ahead = true;
	mark = c->p.probe->hold_back(c->p.probe->ctx, &use);
	if (mark)
		probed_set_aside(c, (struct entry_id){ sample }, mark);
}

void probed_opened(struct cache *c, uint32_t sample, uint64_t now_ns)
{
	struct probe_use use;
	struct plan_use last;
	bool is_let = false;
	uint64_t ahead;

	if (!c->marked[1] || !c->p.probe->opened || !plan_last_use(c->plan, &last))
		return;
	use = use_at(c, last.pass, last.position, sample);
	ahead = c->p.probe->opened(c->p.probe->ctx, &use, now_ns, &is_let);
	if (ahead)
		look_ahead(c, last.pass, last.position + ahead);
	if (is_let)
		prefetch_pump(c);
}

/* Not when the read is accounted for: that is a second later, and the next pass may have begun. */
void probed_piece_done(struct cache *c, const struct tier_read *read)
{
	if (read->ask.is_cold && read->ask.key.piece + 1 >= piece_count(read->ask.expect.size))
		set_mark(c, read->ask.key.entry, 0);
}

/* --- requests of the source --- */

static void fetch_go(struct fetch *f)
{
	tier_read(walk_tier(&f->walk), &f->walk.read);
}

static void send_all(struct list *go)
{
	struct list *node;

	while ((node = list_pop_head(go)))
		fetch_go(container_of(node, struct fetch, request.node));
}

void probed_send(struct cache *c, struct fetch *f)
{
	if (!c->p.probe || c->p.probe->may_send(c->p.probe->ctx, &f->request))
		fetch_go(f); /* else somebody else does; f may be gone by now */
}

void probed_answered(struct cache *c, struct fetch *f)
{
	struct list go;
	bool is_let;

	if (!c->p.probe)
		return;
	list_init(&go);
	f->request.bytes = f->walk.read.answer.got;
	f->request.latency_ns = f->walk.read.answer.latency_ns;
	is_let = c->p.probe->answered(c->p.probe->ctx, &f->request, &go);
	send_all(&go);
	if (is_let)
		prefetch_pump(c);
}

bool probed_lets_prefetch(struct cache *c)
{
	return !c->p.probe || c->p.probe->may_prefetch(c->p.probe->ctx);
}

void probed_tick(struct cache *c, uint64_t now_ns)
{
	struct list go;
	bool is_let;

	if (!c->p.probe)
		return;
	list_init(&go);
	is_let = c->p.probe->tick(c->p.probe->ctx, now_ns, &go);
	send_all(&go);
	if (is_let)
		prefetch_pump(c);
}

void probed_end(struct cache *c)
{
	struct list go;

	if (!c->p.probe)
		return;
	list_init(&go);
	c->p.probe->end(c->p.probe->ctx, &go);
	send_all(&go);
}
