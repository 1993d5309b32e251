/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocking FIFO between threads. The nodes are embedded in the items, so pushing never allocates
 * and cannot fail: a completion can always be handed on. One lock and one condition are enough for
 * the few named threads of this program; the lock is held for a handful of pointer writes and never
 * while anybody works on an item.
 */
#include "clairfs/base/queue.h"

#include <assert.h>

void list_splice_tail(struct list *to, struct list *from)
{
	if (list_is_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

void queue_init(struct queue *q)
{
	mutex_init(&q->mu);
	cond_init(&q->cv);
	list_init(&q->head);
	q->length = 0;
	q->is_closed = false;
}

void queue_fini(struct queue *q)
{
	assert(list_is_empty(&q->head));
	cond_fini(&q->cv);
	mutex_fini(&q->mu);
}

void queue_push(struct queue *q, struct list *node)
{
	mutex_lock(&q->mu);
	list_push_tail(&q->head, node);
	q->length++;
	cond_signal(&q->cv);
	mutex_unlock(&q->mu);
}

static struct list *queue_take_locked(struct queue *q) REQUIRES(q->mu)
{
	struct list *node = list_pop_head(&q->head);

	if (node)
		q->length--;
	return node;
}

struct list *queue_pop(struct queue *q)
{
	struct list *node;

	mutex_lock(&q->mu);
	while (list_is_empty(&q->head) && !q->is_closed)
		cond_wait(&q->cv, &q->mu);
	node = queue_take_locked(q);
	mutex_unlock(&q->mu);
	return node;
}

struct list *queue_try_pop(struct queue *q)
{
	struct list *node;

	mutex_lock(&q->mu);
	node = queue_take_locked(q);
	mutex_unlock(&q->mu);
	return node;
}

void queue_close(struct queue *q)
{
	mutex_lock(&q->mu);
	q->is_closed = true;
	cond_broadcast(&q->cv);
	mutex_unlock(&q->mu);
}

size_t queue_length(struct queue *q)
{
	size_t length;

	mutex_lock(&q->mu);
	length = q->length;
	mutex_unlock(&q->mu);
	return length;
}
