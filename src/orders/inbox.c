/* SPDX-License-Identifier: Apache-2.0 */
/* Orders that are told, found or numbered anew are messages to the one thread that has the table of
 * jobs. Who sends one waits: there are no more of them than threads that may tell (a lane each),
 * finders, and the one that numbers files, so the list is short and nothing in it is owned.
 *
 * The owner never waits for who sends: it takes a message, answers it, and looks for the next. The mutex
 * is held for moments, and nothing is called under it. */
#include <assert.h>
#include <errno.h>

#include "untold_priv.h"

void inbox_init(struct inbox *inbox)
{
	mutex_init(&inbox->mu);
	cond_init(&inbox->asked);
	cond_init(&inbox->answered);
	list_init(&inbox->waiting);
	inbox->is_closed = false;
}

void inbox_fini(struct inbox *inbox)
{
	assert(list_is_empty(&inbox->waiting));
	cond_fini(&inbox->answered);
	cond_fini(&inbox->asked);
	mutex_fini(&inbox->mu);
}

/* What nobody has taken out of it is given back. */
static void answer_locked(struct inbox *inbox, struct message *m, int rc) REQUIRES(inbox->mu)
{
	assert(!m->is_answered);
	order_free(TAKE(m->take_order));
	order_epoch_free(TAKE(m->take_epoch));
	m->rc = rc;
	m->is_answered = true;
	cond_broadcast(&inbox->answered);
}

static void refuse_locked(struct inbox *inbox, struct message *m) REQUIRES(inbox->mu)
{
	answer_locked(inbox, m, err_set_errno(&m->err, -ECANCELED, "the order stays as it was"));
}

void inbox_post(struct inbox *inbox, struct message *m)
{
	assert((m->kind == MESSAGE_WITHDRAWN) == !m->take_order);
	assert((m->kind == MESSAGE_FOUND) == (m->finder != NULL));
	assert((m->kind == MESSAGE_RENUMBERED) == (m->before != NULL));
	assert((m->kind == MESSAGE_RECORDS) == (m->records != NULL));
	mutex_lock(&inbox->mu);
	m->is_answered = false;
	if (inbox->is_closed || (m->finder && m->finder->is_refused)) {
		refuse_locked(inbox, m);
	} else {
		list_push_tail(&inbox->waiting, &m->node);
		cond_signal(&inbox->asked);
	}
	mutex_unlock(&inbox->mu);
}

int inbox_await(struct inbox *inbox, struct message *m)
{
	int rc;

	mutex_lock(&inbox->mu);
	while (!m->is_answered)
		cond_wait(&inbox->answered, &inbox->mu);
	rc = m->rc;
	mutex_unlock(&inbox->mu);
	return rc;
}

struct message *inbox_take(struct inbox *inbox)
{
	struct list *node;

	mutex_lock(&inbox->mu);
	node = list_pop_head(&inbox->waiting);
	mutex_unlock(&inbox->mu);
	return node ? container_of(node, struct message, node) : NULL;
}

void inbox_answer(struct inbox *inbox, struct message *m, int rc)
{
	mutex_lock(&inbox->mu);
	answer_locked(inbox, m, rc);
	mutex_unlock(&inbox->mu);
}

bool inbox_wait(struct inbox *inbox, uint64_t timeout_ns)
{
	bool is_open;

	mutex_lock(&inbox->mu);
	if (!inbox->is_closed && list_is_empty(&inbox->waiting))
		cond_wait_for(&inbox->asked, &inbox->mu, timeout_ns);
	is_open = !inbox->is_closed;
	mutex_unlock(&inbox->mu);
	return is_open;
}

void inbox_wake(struct inbox *inbox)
{
	cond_signal(&inbox->asked);
}

void inbox_refuse(struct inbox *inbox, struct finder *f)
{
	struct list *node, *next;

	mutex_lock(&inbox->mu);
	f->is_refused = true;
	for (node = inbox->waiting.next; node != &inbox->waiting; node = next) {
		struct message *m = container_of(node, struct message, node);

		next = node->next;
		if (m->finder != f)
			continue;
		list_remove(node);
		refuse_locked(inbox, m);
	}
	mutex_unlock(&inbox->mu);
}

void inbox_close(struct inbox *inbox)
{
	struct list *node;

	mutex_lock(&inbox->mu);
	inbox->is_closed = true;
	while ((node = list_pop_head(&inbox->waiting)))
		refuse_locked(inbox, container_of(node, struct message, node));
	cond_broadcast(&inbox->asked);
	mutex_unlock(&inbox->mu);
}
