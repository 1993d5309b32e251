/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefetches wait in a queue of our own until a slot is free, so at most `max` of them are with the
 * I/O engine. A READ that joins a prefetch still in this queue takes it out and starts it as
 * urgent; the engines cannot re-prioritise what they have, so the wiring must give them room for
 * `max` prefetches beside the demand reads.
 *
 * Runs on whoever has a prefetch to start, or has ended one; never blocks there. It must never hold
 * the queue's lock over anything but the queue.
 */
#include "cache_priv.h"

void prefetch_init(struct cache *c)
{
	mutex_init(&c->prefetch.mu);
	list_init(&c->prefetch.queue);
	c->prefetch.max = c->p.prefetch_max ? c->p.prefetch_max : 64;
}

void prefetch_push(struct cache *c, struct object *obj)
{
	mutex_lock(&c->prefetch.mu);
	list_push_tail(&c->prefetch.queue, &obj->in_queue);
	mutex_unlock(&c->prefetch.mu);
}

/* Starts a popped object unless a reader or a change of the file was faster; uses up the queue's
 * reference. */
static bool prefetch_start(struct cache *c, struct object *obj)
{
	struct shard *s = shard_of(c, obj->state_of->entry);
	bool is_mine;

	mutex_lock(&s->mu);
	is_mine = obj->state == OBJECT_QUEUED;
	if (is_mine) {
		obj->has_slot = true;
		fetch_claim_locked(s, obj);
	}
	mutex_unlock(&s->mu);
	if (is_mine)
		fetch_start(c, obj);
	object_put(c, obj);
	return is_mine;
}

/* True: one may be started, and counts as in flight. The probe is asked without the lock, so whoever
 * comes meanwhile with other news has it asked again. */
static bool prefetch_take(struct cache *c, struct object **ret)
{
	struct prefetch_queue *q = &c->prefetch;
	bool is_let = true, is_found = false;

	mutex_lock(&q->mu);
	do {
		q->is_called = false;
		if (q->inflight >= q->max || list_is_empty(&q->queue))
			break;
		mutex_unlock(&q->mu);
		is_let = probed_lets_prefetch(c);
		mutex_lock(&q->mu);
	} while (!is_let && q->is_called);
	is_found = is_let && q->inflight < q->max && !list_is_empty(&q->queue);
	if (is_found) {
		*ret = container_of(list_pop_head(&q->queue), struct object, in_queue);
		q->inflight++;
	} else {
		q->is_pumping = false;
	}
	mutex_unlock(&q->mu);
	return is_found;
}

void prefetch_pump(struct cache *c)
{
	struct prefetch_queue *q = &c->prefetch;
	struct object *obj;
	bool is_pumping;

	mutex_lock(&q->mu);
	is_pumping = q->is_pumping; /* then that thread looks again before it leaves; also ends
				       recursion when a tier answers at once */
	q->is_called = true;
	q->is_pumping = true;
	mutex_unlock(&q->mu);
	while (!is_pumping && prefetch_take(c, &obj))
		if (!prefetch_start(c, obj)) {
			mutex_lock(&q->mu);
			q->inflight--;
			mutex_unlock(&q->mu);
		}
}

void cache_prefetch_go(struct cache *c)
{
	prefetch_pump(c);
}

void prefetch_ended(struct cache *c)
{
	mutex_lock(&c->prefetch.mu);
	assert(c->prefetch.inflight > 0);
	c->prefetch.inflight--;
	mutex_unlock(&c->prefetch.mu);
	prefetch_pump(c);
}

void prefetch_close(struct cache *c)
{
	static const struct fetch_result canceled = { .status = -ECANCELED };
	struct list *node;

	for (;;) {
		struct list dead;
		struct object *obj;
		struct shard *s;

		mutex_lock(&c->prefetch.mu);
		c->prefetch.is_closed = true;
		node = list_pop_head(&c->prefetch.queue);
		mutex_unlock(&c->prefetch.mu);
		if (!node)
			return;
		obj = container_of(node, struct object, in_queue);
		s = shard_of(c, obj->state_of->entry);
		list_init(&dead);
		mutex_lock(&s->mu);
		if (obj->state == OBJECT_QUEUED) {
			object_drop_locked(c, s, obj, &dead);
			if (obj->job)
				unit_fetch_piece_locked(c, s, obj, &canceled, &dead);
		}
		object_put_locked(c, s, obj, &dead);
		mutex_unlock(&s->mu);
		objects_free(c, &dead);
	}
}
