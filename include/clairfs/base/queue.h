/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive FIFO (struct list) and a blocking queue of list nodes between threads. */
#ifndef CLAIRFS_BASE_QUEUE_H
#define CLAIRFS_BASE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clairfs/base/thr.h"

/* Doubly linked ring with a head; a node is in at most one list. */
struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *head)
{
	head->next = head->prev = head;
}
static inline bool list_is_empty(const struct list *head)
{
	return head->next == head;
}
static inline void list_push_tail(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}
static inline void list_push_head(struct list *head, struct list *node)
{
	list_push_tail(head->next, node);
}
static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	node->next = node->prev = node;
}
static inline struct list *list_pop_head(struct list *head)
{
	struct list *node = head->next;

	if (node == head)
		return NULL;
	list_remove(node);
	return node;
}
/* Moves all nodes of `from` behind those of `to`; `from` is empty afterwards. */
void list_splice_tail(struct list *to, struct list *from);

/* Blocking multi-producer multi-consumer FIFO; unbounded: whoever fills it bounds what is in
 * flight. */
struct queue {
	struct mutex mu;
	struct cond cv;
	struct list head; /* mu */
	size_t length;    /* mu */
	bool is_closed;   /* mu */
};

void queue_init(struct queue *q);
/* The queue must be empty. */
void queue_fini(struct queue *q);
void queue_push(struct queue *q, struct list *node);
/* Takes the first node, waiting for one; NULL once the queue is closed and empty. */
struct list *queue_pop(struct queue *q);
/* Takes the first node or NULL without waiting. */
struct list *queue_try_pop(struct queue *q);
/* Wakes everybody in queue_pop; nodes still queued are handed out first. */
void queue_close(struct queue *q);
size_t queue_length(struct queue *q);

#endif
