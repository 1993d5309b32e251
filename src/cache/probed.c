/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the probe (cache/probe.h) is asked when the source is, and units that are set aside for it:
 * copies in arena and kernel are dropped, and the read that comes goes to the source like any read
 * that nobody foresaw, past the store and past what the source's own client has in the page cache.
 * Which ones that are, whoever plans says.
 *
 * Without a probe all of this is nothing. No lock is held over a call of the probe.
 */
#include "cache_priv.h"

/* Two bits for each unit: its mark. */
int probed_init(struct cache *c)
{
	size_t words = dataset_n_units(c->p.dataset) / 64 + 1;

	if (!c->p.sets_aside)
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

uint8_t probed_mark(struct cache *c, struct unit_id unit)
{
	if (!c->marked[1] || unit_eq(unit, UNIT_NONE))
		return 0;
	return (uint8_t)(bits_get(c->marked[0], unit.v) | bits_get(c->marked[1], unit.v) << 1);
}

static void set_mark(struct cache *c, struct unit_id unit, uint8_t mark)
{
	for (int i = 0; i < 2; i++)
		if (mark >> i & 1)
			bits_set(c->marked[i], unit.v);
	for (int i = 0; i < 2; i++) /* never in between without one */
		if (!(mark >> i & 1))
			bits_clear(c->marked[i], unit.v);
}

void cache_set_aside(struct cache *c, struct unit_id unit, uint8_t mark)
{
	set_mark(c, unit, mark);
	if (mark)
		change_drop_copies(c, unit);
}

/* Not when the read is accounted for: that is a second later, and the next pass may have begun. */
void probed_done(struct cache *c, const struct object *obj, const struct tier_read *read)
{
	uint64_t start = (uint64_t)read->ask.key.piece * PIECE_BYTES;
	struct unit_id unit = dataset_unit_at(c->p.dataset, read->ask.key.entry, start);

	if (obj->mark)
		set_mark(c, obj->held_out, 0);
	else if (read->ask.is_cold && !unit_eq(unit, UNIT_NONE) &&
	    read->ask.key.piece + 1 >= cache_unit_pieces(c, unit, read->ask.expect.size).end)
		set_mark(c, unit, 0);
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
