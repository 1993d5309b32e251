/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of traced events. A lock and not a ring without one: it is taken only while somebody
 * looks, for a copy of forty bytes, and a reader that never sees half an event needs no proof then.
 *
 * An event has a number that only rises; the reader's cursor is the number it wants next. Numbers
 * begin at 1, so that cursor 0 can mean "from now on"; when the ring was given up and made again,
 * they go on.
 *
 * Any thread. Must not touch the clock: the end of the last event is as good as now. */
#include "metrics_priv.h"

#include <errno.h>
#include <string.h>

#include "clairfs/base/clock.h"
#include "clairfs/metrics/trace.h"

#define RING_EVENTS 65536u
#define LEASE_NS (5 * NS_PER_S)

void trace_init(struct trace *t)
{
	mutex_init(&t->mu);
	t->next = 1;
}

void trace_fini(struct trace *t)
{
	free(t->ring);
	mutex_fini(&t->mu);
}

void metrics_trace(struct metrics *m, const struct trace_event *event)
{
	struct trace_event *over = NULL;
	struct trace *t;

	if (!metrics_is_tracing(m))
		return;
	t = &m->trace;
	mutex_lock(&t->mu);
	if (t->ring && event->end_ns > t->lease_ns) { /* nobody looks any more */
		over = TAKE(t->ring);
		atomic_store_explicit(&m->head.is_tracing, false, memory_order_relaxed);
	} else if (t->ring) {
		t->ring[t->next++ % RING_EVENTS] = *event;
	}
	mutex_unlock(&t->mu);
	free(over);
}

uint32_t metrics_trace_group(struct metrics *m)
{
	uint32_t group = atomic_fetch_add_explicit(&m->trace.group, 1, memory_order_relaxed) + 1;

	return group ? group : 1;
}

static void copy_locked(struct trace *t, struct trace_chunk *io) REQUIRES(t->mu)
{
	uint64_t at = io->cursor && io->cursor <= t->next ? io->cursor : t->next;
	uint64_t oldest = t->next - MIN(t->next - t->first, RING_EVENTS);

	if (at < oldest) {
		io->lost = oldest - at;
		at = oldest;
	}
	while (at < t->next && io->n < TRACE_CHUNK)
		io->event[io->n++] = t->ring[at++ % RING_EVENTS];
	io->cursor = at;
}

int metrics_trace_take(struct metrics *m, uint64_t now_ns, struct trace_chunk *io)
{
	struct trace *t = &m->trace;
	struct trace_event *ring = NULL;

	if (io->version != TRACE_VERSION)
		return -EPROTO;
	if (!metrics_is_tracing(m)) {
		ring = calloc(RING_EVENTS, sizeof(*ring));
		if (!ring)
			return -ENOMEM;
	}
	io->n = 0;
	io->lost = 0;
	mutex_lock(&t->mu);
	if (!t->ring && ring) {
		t->ring = TAKE(ring);
		t->first = t->next;
	}
	if (t->ring) {
		t->lease_ns = now_ns + LEASE_NS;
		atomic_store_explicit(&m->head.is_tracing, true, memory_order_relaxed);
		copy_locked(t, io);
	}
	mutex_unlock(&t->mu);
	free(ring);
	return 0;
}
