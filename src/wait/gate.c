/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load that a control read sees. Without this mount the job's readers alone would load the
 * source, each with one request; with it prefetches do, many at a time. Where the source's link or
 * its servers are the bottleneck a read takes longer the more requests it has to share them with,
 * so a control read among prefetches would be as slow as the job never makes it, and the wait
 * "removed" a multiple of the truth (a link of 25 MB/s and a small cache: 28.9 s instead of 6.3 s).
 *
 * So while a control read waits for the source, or to be sent there, there are never more requests
 * with the source than the job has readers: prefetches wait (the gate is shut), and so does the control read
 * itself until enough of those under way have been answered. Prefetches that fit below this limit go on:
 * they are the load of the other readers, which would have asked for as much. How long the control
 * read waited here does not count as the source's time.
 *
 * That costs prefetching some of its throughput. It may be SHUT_SHARE of the time; beyond that no
 * sample is held out. No read waits longer than WAIT_MAX_NS for its turn, and none at all once the
 * cache stops: one that is sent among more requests than the limit, and any miss of which that is
 * true, is marked as such (is_loaded) and is no control read.
 *
 * Of a sample of several pieces the first one waits, the others follow it at once, read ahead as
 * the kernel would, and keep the gate shut; so a sample waits once.
 *
 * Any thread; the lock is a leaf. Sends nothing itself: who may go is handed to the caller.
 */
#include "gate.h"

#include <assert.h>

#include "clairfs/base/cleanup.h"
#include "sampling.h"

#define WAIT_MAX_NS NS_PER_S
#define ACTIVE_MAX_NS (5 * NS_PER_S)
#define SHUT_FREE_NS (int64_t)(NS_PER_S / 2)
enum { SHUT_SHARE = 20 }; /* one part of so many */

void gate_init(struct gate *g, struct clock *clock)
{
	*g = (struct gate){ .clock = clock, .credit_ns = SHUT_FREE_NS };
	mutex_init(&g->mu);
	list_init(&g->waiting);
	g->credit_at_ns = g->load_ns = clock_now(clock);
}

void gate_fini(struct gate *g)
{
	assert(list_is_empty(&g->waiting));
	mutex_fini(&g->mu);
}

/* Requests that the job alone would have with the source; as long as that is not known a control
 * read is alone. */
static uint32_t gate_limit(const struct gate *g)
{
	return MAX(atomic_load(&g->readers), 1u);
}

static bool is_control(const struct probe_request *r)
{
	return r->mark == WAIT_CONTROL;
}

static bool is_shut_locked(const struct gate *g) REQUIRES(g->mu)
{
	return (g->n_active || !list_is_empty(&g->waiting)) && !g->is_forced;
}

/* How long it may still be shut: that grows with time, up to SHUT_FREE_NS. */
static int64_t credit_locked(const struct gate *g, uint64_t now_ns) REQUIRES(g->mu)
{
	uint64_t since = now_ns - MIN(g->credit_at_ns, now_ns);
	uint64_t shut = g->shut_since_ns ? now_ns - MIN(g->shut_since_ns, now_ns) : 0;

	return MIN(g->credit_ns + (int64_t)(since / SHUT_SHARE), SHUT_FREE_NS) - (int64_t)shut;
}

/* Unless somebody is still waited for. */
static void open_locked(struct gate *g, uint64_t now_ns) REQUIRES(g->mu)
{
	if (g->n_active || !list_is_empty(&g->waiting))
		return;
	g->credit_ns = credit_locked(g, now_ns);
	assert(g->credit_ns <= SHUT_FREE_NS);
	g->credit_at_ns = now_ns;
	g->shut_since_ns = 0;
	g->active_since_ns = 0;
	g->is_forced = g->is_open;
}

static void shut_locked(struct gate *g, uint64_t now_ns) REQUIRES(g->mu)
{
	if (!g->shut_since_ns)
		g->shut_since_ns = now_ns;
}

/* Other requests beside which a control read may go. Of a sample of several pieces the one before
 * is still there, mostly. */
static uint32_t limit_for(const struct probe_request *r, uint32_t limit)
{
	return limit + (is_control(r) && r->piece > 0);
}

static void admit_locked(struct gate *g, struct probe_request *r, uint32_t limit, uint64_t now_ns)
	REQUIRES(g->mu)
{
	r->traits.is_loaded |=
		(r->is_demand || is_control(r)) && g->inflight >= limit_for(r, limit);
	g->inflight++;
	r->is_watched = is_control(r);
	if (!r->is_watched)
		return;
	if (r->waits_since_ns)
		r->traits.held_ns += now_ns - MIN(r->waits_since_ns, now_ns);
	r->waits_since_ns = 0;
	g->n_active++;
	assert(g->n_active <= g->inflight);
	if (!g->active_since_ns)
		g->active_since_ns = now_ns;
}

/* The first piece; and the second one when it is read ahead while the first one waits. */
static bool may_wait_locked(const struct gate *g, const struct probe_request *r) REQUIRES(g->mu)
{
	if (!is_control(r) || g->is_forced)
		return false;
	return r->piece ? r->piece == 1 && !r->is_demand && !g->n_active : r->is_demand;
}

bool gate_enter(struct gate *g, struct probe_request *r)
{
	uint64_t now = is_control(r) ? clock_now(g->clock) : 0;
	uint32_t limit = gate_limit(g);
	bool is_in;

	mutex_lock(&g->mu);
	assert(!r->is_watched && !r->waits_since_ns);
	is_in = !may_wait_locked(g, r) || g->inflight < limit_for(r, limit);
	if (is_in) {
		admit_locked(g, r, limit, now);
	} else {
		r->waits_since_ns = now;
		shut_locked(g, now);
		list_push_tail(&g->waiting, &r->node);
	}
	mutex_unlock(&g->mu);
	return is_in;
}

/* Takes out who may go now, oldest first: while there is room, or all that came before. */
static void take_locked(struct gate *g, uint32_t limit, uint64_t before_ns, uint64_t now_ns,
			struct list *ret) REQUIRES(g->mu)
{
	while (!list_is_empty(&g->waiting)) {
		struct probe_request *r =
			container_of(g->waiting.next, struct probe_request, node);

		assert(!r->is_watched);
		if (g->inflight >= limit_for(r, limit) && r->waits_since_ns >= before_ns)
			break;
		list_remove(&r->node);
		admit_locked(g, r, limit, now_ns);
		list_push_tail(ret, &r->node);
	}
}

bool gate_leave(struct gate *g, struct probe_request *r, struct list *go)
{
	uint64_t now = clock_now(g->clock);
	uint32_t limit = gate_limit(g);
	bool was_shut;

	mutex_lock(&g->mu);
	assert(g->inflight > 0);
	g->inflight--;
	g->answers++;
	g->answer_bytes += r->bytes;
	g->answer_latency_ns += r->latency_ns;
	was_shut = g->shut_since_ns != 0;
	if (r->is_watched) {
		assert(g->n_active > 0);
		g->n_active--;
		g->active_since_ns = now;
		r->traits.is_loaded |= g->is_forced;
		r->is_watched = false;
	}
	take_locked(g, limit, 0, now, go);
	open_locked(g, now);
	mutex_unlock(&g->mu);
	return was_shut;
}

bool gate_lets_prefetch(struct gate *g)
{
	uint32_t limit = gate_limit(g);
	bool is_let;

	mutex_lock(&g->mu);
	is_let = !is_shut_locked(g) || (list_is_empty(&g->waiting) && g->inflight < limit);
	if (!is_let)
		shut_locked(g, clock_now(g->clock));
	mutex_unlock(&g->mu);
	return is_let;
}

/* What the source gives under more load than the job alone makes: it would give no more to the job.
 * By Little's law the sum of latencies is the requests in flight. With just as many as the job
 * makes, nothing could be told of what it does under more. */
bool gate_take_load(struct gate *g, uint64_t now_ns, struct gate_load *ret)
{
	uint32_t limit = atomic_load(&g->readers);

	mutex_lock(&g->mu);
	*ret = (struct gate_load){ .took_ns = now_ns - MIN(g->load_ns, now_ns),
				   .answers = g->answers,
				   .bytes = g->answer_bytes,
				   .latency_ns = g->answer_latency_ns };
	if (ret->took_ns >= NS_PER_S) {
		g->load_ns = now_ns;
		g->answers = g->answer_bytes = g->answer_latency_ns = 0;
	}
	mutex_unlock(&g->mu);
	return ret->took_ns >= NS_PER_S && limit &&
	       ret->latency_ns / limit >= ret->took_ns + ret->took_ns / 2;
}

/* Whoever waits too long goes; a source that answers no control read must not hold up prefetching.
 */
bool gate_tick(struct gate *g, uint64_t now_ns, struct list *go)
{
	uint32_t limit = gate_limit(g);
	bool was_shut;

	mutex_lock(&g->mu);
	was_shut = g->shut_since_ns != 0;
	take_locked(g, limit, now_ns - MIN(now_ns, WAIT_MAX_NS), now_ns, go);
	if (g->active_since_ns && now_ns >= g->active_since_ns + ACTIVE_MAX_NS)
		g->is_forced = true;
	mutex_unlock(&g->mu);
	return was_shut;
}

void gate_open(struct gate *g, struct list *go)
{
	mutex_lock(&g->mu);
	g->is_open = g->is_forced = true;
	take_locked(g, UINT32_MAX - 1, UINT64_MAX, clock_now(g->clock), go);
	mutex_unlock(&g->mu);
}

bool gate_is_worn(struct gate *g)
{
	uint64_t now = clock_now(g->clock);
	bool is_worn;

	mutex_lock(&g->mu);
	is_worn = credit_locked(g, now) < 0;
	mutex_unlock(&g->mu);
	return is_worn;
}
