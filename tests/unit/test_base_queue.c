/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The intrusive list and the blocking queue: order, closing, and that several producers and
 * consumers neither lose nor double an item.
 */
#include "clairfs/base/queue.h"

#include <string.h>

#include "check.h"

struct item {
	struct list link;
	unsigned int value;
	unsigned int producer;
};

static unsigned int item_value(struct list *node)
{
	return container_of(node, struct item, link)->value;
}

static void check_list(struct list *head, const char *want)
{
	char got[16] = "", back[16] = "";
	size_t n = 0, m = 0;

	for (struct list *node = head->next; node != head; node = node->next)
		got[n++] = (char)('0' + item_value(node));
	for (struct list *node = head->prev; node != head; node = node->prev)
		back[m++] = (char)('0' + item_value(node));
	CHECK_STR(got, want);
	CHECK_U64(m, n);
	for (size_t i = 0; i < n; i++)
		CHECK_INT(back[i], got[n - 1 - i]);
}

static void make_items(struct item *items, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		items[i].value = (unsigned int)i;
		list_init(&items[i].link);
	}
}

static void list_keeps_order(void)
{
	struct item items[5];
	struct list head;

	make_items(items, ARRAY_LEN(items));
	list_init(&head);
	CHECK(list_is_empty(&head));
	CHECK(list_pop_head(&head) == NULL);
	list_push_tail(&head, &items[1].link);
	list_push_tail(&head, &items[2].link);
	list_push_head(&head, &items[0].link);
	check_list(&head, "012");
	list_remove(&items[1].link);
	check_list(&head, "02");
	CHECK(list_is_empty(&items[1].link));
	list_remove(&items[1].link); /* harmless twice */
	CHECK(list_pop_head(&head) == &items[0].link);
	CHECK(list_pop_head(&head) == &items[2].link);
	CHECK(list_is_empty(&head));
}

static void splice_moves_all_behind(void)
{
	struct item items[4];
	struct list a, b;

	make_items(items, ARRAY_LEN(items));
	list_init(&a);
	list_init(&b);
	list_splice_tail(&a, &b);
	check_list(&a, "");
	list_push_tail(&b, &items[0].link);
	list_push_tail(&b, &items[1].link);
	list_splice_tail(&a, &b); /* into an empty list */
	check_list(&a, "01");
	check_list(&b, "");
	list_push_tail(&b, &items[2].link);
	list_push_tail(&b, &items[3].link);
	list_splice_tail(&a, &b);
	check_list(&a, "0123");
	list_splice_tail(&a, &b); /* from an empty list */
	check_list(&a, "0123");
	CHECK(list_is_empty(&b));
}

static void queue_is_first_in_first_out(void)
{
	struct item items[3];
	struct queue q;

	make_items(items, ARRAY_LEN(items));
	queue_init(&q);
	CHECK(queue_try_pop(&q) == NULL);
	for (size_t i = 0; i < ARRAY_LEN(items); i++) {
		queue_push(&q, &items[i].link);
		CHECK_U64(queue_length(&q), i + 1);
	}
	CHECK(queue_pop(&q) == &items[0].link);
	CHECK(queue_try_pop(&q) == &items[1].link);
	CHECK(queue_pop(&q) == &items[2].link);
	CHECK_U64(queue_length(&q), 0);
	queue_fini(&q);
}

static void closed_queue_hands_out_the_rest(void)
{
	struct item items[2];
	struct queue q;

	make_items(items, ARRAY_LEN(items));
	queue_init(&q);
	queue_push(&q, &items[0].link);
	queue_push(&q, &items[1].link);
	queue_close(&q);
	CHECK(queue_pop(&q) == &items[0].link);
	CHECK(queue_pop(&q) == &items[1].link);
	CHECK(queue_pop(&q) == NULL);
	CHECK(queue_pop(&q) == NULL);
	queue_fini(&q);
}

static void *pop_one(void *arg)
{
	return queue_pop(arg);
}

static void *pop_must_be_null(void *arg)
{
	CHECK(queue_pop(arg) == NULL);
	return NULL;
}

static void close_wakes_all_waiters(void)
{
	struct thr threads[3];
	struct queue q;

	queue_init(&q);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		CHECK_INT(thr_start(&threads[i], "pop", pop_must_be_null, &q, NULL), 0);
	usleep(10000); /* most likely they wait now; if not, the test is only weaker */
	queue_close(&q);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		thr_join(&threads[i]);
	queue_fini(&q);
}

static void push_wakes_a_waiter(void)
{
	struct item item;
	struct queue q;
	struct thr thr;

	make_items(&item, 1);
	queue_init(&q);
	CHECK_INT(thr_start(&thr, "pop", pop_one, &q, NULL), 0);
	usleep(10000);
	queue_push(&q, &item.link);
	thr_join(&thr);
	CHECK_U64(queue_length(&q), 0);
	queue_fini(&q);
}

enum { PRODUCERS = 3, CONSUMERS = 3, PER_PRODUCER = 5000 };

struct traffic {
	struct queue q;
	struct item items[PRODUCERS][PER_PRODUCER];
	_Atomic unsigned int n_seen[PRODUCERS][PER_PRODUCER];
	_Atomic unsigned int next_producer;
	_Atomic unsigned int n_disorder;
};

static void *produce(void *arg)
{
	struct traffic *t = arg;
	unsigned int me = t->next_producer++;

	for (unsigned int i = 0; i < PER_PRODUCER; i++) {
		t->items[me][i].value = i;
		t->items[me][i].producer = me;
		queue_push(&t->q, &t->items[me][i].link);
	}
	return NULL;
}

static void *consume(void *arg)
{
	struct traffic *t = arg;
	unsigned int next[PRODUCERS] = { 0 };
	struct list *node;

	while ((node = queue_pop(&t->q))) {
		struct item *item = container_of(node, struct item, link);

		/* What one consumer sees of one producer comes in the producer's order. */
		t->n_disorder += item->value < next[item->producer];
		next[item->producer] = item->value + 1;
		t->n_seen[item->producer][item->value]++;
	}
	return NULL;
}

static void nothing_is_lost_or_doubled(void)
{
	struct thr producers[PRODUCERS], consumers[CONSUMERS];
	struct traffic *t = calloc(1, sizeof(*t));

	CHECK(t != NULL);
	queue_init(&t->q);
	for (int i = 0; i < CONSUMERS; i++)
		CHECK_INT(thr_start(&consumers[i], "consume", consume, t, NULL), 0);
	for (int i = 0; i < PRODUCERS; i++)
		CHECK_INT(thr_start(&producers[i], "produce", produce, t, NULL), 0);
	for (int i = 0; i < PRODUCERS; i++)
		thr_join(&producers[i]);
	queue_close(&t->q);
	for (int i = 0; i < CONSUMERS; i++)
		thr_join(&consumers[i]);
	CHECK_U64(t->n_disorder, 0);
	for (int p = 0; p < PRODUCERS; p++) {
		for (int i = 0; i < PER_PRODUCER; i++)
			CHECK_U64(t->n_seen[p][i], 1);
	}
	queue_fini(&t->q);
	free(t);
}

static const struct check_test tests[] = {
	{ "list_keeps_order", list_keeps_order },
	{ "splice_moves_all_behind", splice_moves_all_behind },
	{ "queue_is_first_in_first_out", queue_is_first_in_first_out },
	{ "closed_queue_hands_out_the_rest", closed_queue_hands_out_the_rest },
	{ "close_wakes_all_waiters", close_wakes_all_waiters },
	{ "push_wakes_a_waiter", push_wakes_a_waiter },
	{ "nothing_is_lost_or_doubled", nothing_is_lost_or_doubled },
};

CHECK_MAIN(tests)
