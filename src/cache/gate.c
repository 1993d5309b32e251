/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load that a control read sees. Without this mount the job's readers alone would load the
 * source, each with one request; with it prefetches do, many at a time. Where the source's link or
 * its servers are the bottleneck a read takes longer the more requests it has to share them with,
 * so a control read among prefetches would be as slow as the job never makes it, and the wait
 * "removed" a multiple of the truth (a link of 25 MB/s and a small cache: 28.9 s instead of 6.3 s).
 *
 * So while a control read waits for the source, or to be sent there, there are never more requests
 * with the source than the job has readers: prefetches are held back, and the control read itself
 * until enough of those under way have been answered. Prefetches that fit below this limit go on:
 * they are the load of the other readers, which would have asked for as much. How long the control
 * read was held back does not count as the source's time.
 *
 * That costs prefetching some of its throughput. It may be HELD_SHARE of the time; beyond that no
 * sample is held out. No read waits longer than WAIT_MAX_NS for its turn, and none at all once the
 * cache stops: one that is sent among more requests than the limit, and any miss of which that is
 * true, is marked as such (is_loaded) and is no control read.
 *
 * Of a sample of several pieces the first one waits, the others follow it at once, read ahead as
 * the kernel would, and keep the gate shut; so a sample is held back once.
 *
 * Any thread; the lock is a leaf below prefetch.mu. Never submits or pumps with the lock held.
 */
#include "cache_priv.h"

#define WAIT_MAX_NS NS_PER_S
#define ACTIVE_MAX_NS (5 * NS_PER_S)
#define HELD_FREE_NS (int64_t)(NS_PER_S / 2)
enum { HELD_SHARE = 20 }; /* one part of so many */

void gate_init(struct cache *c)
{
	mutex_init(&c->gate.mu);
	list_init(&c->gate.waiting);
	c->gate.credit_ns = HELD_FREE_NS;
	c->gate.credit_at_ns = clock_now(c->p.clock);
	c->gate.load_ns = c->gate.credit_at_ns;
}

void gate_fini(struct cache *c)
{
	assert(list_is_empty(&c->gate.waiting));
	mutex_fini(&c->gate.mu);
}

/* Requests that the job alone would have with the source; as long as that is not known a control
 * read is alone. */
static uint32_t gate_limit(const struct cache *c)
{
	const struct cache_watch *w = c->p.watch;

	return w && w->readers ? MAX(w->readers(w->ctx), 1u) : 1;
}

static bool is_shut_locked(const struct gate *g) REQUIRES(g->mu);
static bool is_shut_locked(const struct gate *g)
{
	return (g->n_active || !list_is_empty(&g->waiting)) && !g->is_forced;
}

/* What may still be held back: it grows with time, up to HELD_FREE_NS. */
static int64_t credit_locked(const struct gate *g, uint64_t now_ns) REQUIRES(g->mu);
static int64_t credit_locked(const struct gate *g, uint64_t now_ns)
{
	uint64_t since = now_ns - MIN(g->credit_at_ns, now_ns);
	uint64_t held = g->held_since_ns ? now_ns - MIN(g->held_since_ns, now_ns) : 0;

	return MIN(g->credit_ns + (int64_t)(since / HELD_SHARE), HELD_FREE_NS) - (int64_t)held;
}

/* Nobody is held back any more. */
static void settle_locked(struct gate *g, uint64_t now_ns) REQUIRES(g->mu);
static void settle_locked(struct gate *g, uint64_t now_ns)
{
	if (g->n_active || !list_is_empty(&g->waiting))
		return;
	g->credit_ns = credit_locked(g, now_ns);
	g->credit_at_ns = now_ns;
	g->held_since_ns = 0;
	g->active_since_ns = 0;
	g->is_forced = g->is_open;
}

static void hold_locked(struct gate *g, uint64_t now_ns) REQUIRES(g->mu);
static void hold_locked(struct gate *g, uint64_t now_ns)
{
	if (!g->held_since_ns)
		g->held_since_ns = now_ns;
}

static void admit_locked(struct gate *g, struct fetch *f, uint32_t limit, uint64_t now_ns)
	REQUIRES(g->mu);
static void admit_locked(struct gate *g, struct fetch *f, uint32_t limit, uint64_t now_ns)
{
	struct object *obj = f->object;

	/* Of a sample of several pieces the one before is still there, mostly. */
	obj->is_loaded |= (obj->is_demand || f->is_control) &&
			  g->inflight >= limit + (f->is_control && obj->piece > 0);
	g->inflight++;
	f->is_gated = f->is_control;
	if (!f->is_gated)
		return;
	if (f->waits_since_ns)
		obj->held_ns += now_ns - MIN(f->waits_since_ns, now_ns);
	f->waits_since_ns = 0;
	g->n_active++;
	if (!g->active_since_ns)
		g->active_since_ns = now_ns;
}

bool gate_enter(struct cache *c, struct fetch *f)
{
	bool is_control = f->is_control && f->object->is_demand && f->object->piece == 0;
	uint64_t now = f->is_control ? clock_now(c->p.clock) : 0;
	uint32_t limit = gate_limit(c);
	struct gate *g = &c->gate;
	bool is_in;

	mutex_lock(&g->mu);
	is_in = !is_control || g->is_forced || g->inflight < limit;
	if (is_in) {
		admit_locked(g, f, limit, now);
	} else {
		f->waits_since_ns = now;
		hold_locked(g, now);
		list_push_tail(&g->waiting, &f->in_gate);
	}
	mutex_unlock(&g->mu);
	return is_in;
}

/* Takes out who may go now, oldest first: while there is room, or all that came before. */
static void take_locked(struct gate *g, uint32_t limit, uint64_t before_ns, uint64_t now_ns,
			struct list *ret) REQUIRES(g->mu);
static void take_locked(struct gate *g, uint32_t limit, uint64_t before_ns, uint64_t now_ns,
			struct list *ret)
{
	while (!list_is_empty(&g->waiting)) {
		struct fetch *f = container_of(g->waiting.next, struct fetch, in_gate);

		if (g->inflight >= limit && f->waits_since_ns >= before_ns)
			break;
		list_remove(&f->in_gate);
		admit_locked(g, f, limit, now_ns);
		list_push_tail(ret, &f->in_gate);
	}
}

static void send_all(struct cache *c, struct list *list)
{
	struct list *node;

	while ((node = list_pop_head(list)))
		tier_read(c->p.source, &container_of(node, struct fetch, in_gate)->read);
}

void gate_leave(struct cache *c, struct fetch *f)
{
	uint64_t now = clock_now(c->p.clock);
	uint32_t limit = gate_limit(c);
	struct gate *g = &c->gate;
	bool has_held;
	struct list go;

	list_init(&go);
	mutex_lock(&g->mu);
	assert(g->inflight > 0);
	g->inflight--;
	g->answers++;
	g->answer_bytes += f->read.got;
	g->answer_latency_ns += f->read.latency_ns;
	has_held = g->held_since_ns != 0;
	if (f->is_gated) {
		assert(g->n_active > 0);
		g->n_active--;
		g->active_since_ns = now;
		f->object->is_loaded |= g->is_forced;
		f->is_gated = false;
	}
	take_locked(g, limit, 0, now, &go);
	settle_locked(g, now);
	mutex_unlock(&g->mu);
	send_all(c, &go);
	if (has_held)
		prefetch_pump(c);
}

bool gate_lets_prefetch(struct cache *c)
{
	uint32_t limit = gate_limit(c);
	struct gate *g = &c->gate;
	bool is_let;

	mutex_lock(&g->mu);
	is_let = !is_shut_locked(g) || (list_is_empty(&g->waiting) && g->inflight < limit);
	if (!is_let)
		hold_locked(g, clock_now(c->p.clock));
	mutex_unlock(&g->mu);
	return is_let;
}

/* What the source gives under more load than the job alone makes, once a second: it would give no
 * more to the job. By Little's law the sum of latencies is the requests in flight. With just as
 * many as the job makes, nothing could be told of what it does under more. */
static void tell_load(struct cache *c, uint64_t now_ns)
{
	const struct cache_watch *w = c->p.watch;
	uint32_t limit = w && w->readers ? w->readers(w->ctx) : 0;
	struct gate *g = &c->gate;
	struct cache_load load;

	mutex_lock(&g->mu);
	load = (struct cache_load){ .took_ns = now_ns - MIN(g->load_ns, now_ns),
				    .answers = g->answers,
				    .bytes = g->answer_bytes,
				    .latency_ns = g->answer_latency_ns };
	if (load.took_ns >= NS_PER_S) {
		g->load_ns = now_ns;
		g->answers = g->answer_bytes = g->answer_latency_ns = 0;
	}
	mutex_unlock(&g->mu);
	if (load.took_ns >= NS_PER_S && limit && w->load &&
	    load.latency_ns / limit >= load.took_ns + load.took_ns / 2)
		w->load(w->ctx, &load);
}

/* Whoever waits too long goes; a source that answers no control read must not hold up prefetching.
 */
void gate_tick(struct cache *c, uint64_t now_ns)
{
	uint32_t limit = gate_limit(c);
	struct gate *g = &c->gate;
	bool has_held;
	struct list go;

	tell_load(c, now_ns);
	list_init(&go);
	mutex_lock(&g->mu);
	has_held = g->held_since_ns != 0;
	take_locked(g, limit, now_ns - MIN(now_ns, WAIT_MAX_NS), now_ns, &go);
	if (g->active_since_ns && now_ns >= g->active_since_ns + ACTIVE_MAX_NS)
		g->is_forced = true;
	mutex_unlock(&g->mu);
	send_all(c, &go);
	if (has_held)
		prefetch_pump(c);
}

void gate_open(struct cache *c)
{
	struct gate *g = &c->gate;
	struct list go;

	list_init(&go);
	mutex_lock(&g->mu);
	g->is_open = g->is_forced = true;
	take_locked(g, UINT32_MAX, UINT64_MAX, clock_now(c->p.clock), &go);
	mutex_unlock(&g->mu);
	send_all(c, &go);
}

bool gate_is_worn(struct cache *c)
{
	uint64_t now = clock_now(c->p.clock);
	struct gate *g = &c->gate;
	bool is_worn;

	mutex_lock(&g->mu);
	is_worn = credit_locked(g, now) < 0;
	mutex_unlock(&g->mu);
	return is_worn;
}
