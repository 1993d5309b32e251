/* SPDX-License-Identifier: Apache-2.0 */
/* A doubly linked list of samples by number: the order of arrival (FIFO, CLOCK) or of use (LRU).
 * The list is circular through one extra link, so no operation has a special case. Eight bytes a
 * sample. A sample is in a list once or not at all; nothing here checks that. */
#include <errno.h>

#include "cached.h"

int arrivals_new(uint32_t n, void **ret)
{
	struct arrivals *c = calloc(1, sizeof(*c));

	*ret = c;
	if (!c)
		return -ENOMEM;
	c->n = n;
	c->link = malloc((n + 1ull) * sizeof(*c->link));
	if (!c->link)
		return -ENOMEM;
	c->link[n] = (struct arrival){ n, n };
	return 0;
}

void arrivals_free(void *list)
{
	struct arrivals *c = list;

	if (!c)
		return;
	free(c->link);
	free(c);
}

void arrivals_append(struct arrivals *c, uint32_t sample)
{
	uint32_t last = c->link[c->n].prev;

	c->link[sample] = (struct arrival){ last, c->n };
	c->link[last].next = sample;
	c->link[c->n].prev = sample;
}

void arrivals_remove(struct arrivals *c, uint32_t sample)
{
	struct arrival link = c->link[sample];

	c->link[link.prev].next = link.next;
	c->link[link.next].prev = link.prev;
}

uint32_t arrivals_first(const struct arrivals *c)
{
	uint32_t first = c->link[c->n].next;

	return first == c->n ? NONE : first;
}

int arrivals_policy_init(struct model *m, struct err *err)
{
	(void)err;
	return arrivals_new(m->run->s->n, &m->policy);
}

void arrivals_policy_fini(struct model *m)
{
	arrivals_free(m->policy);
}

void arrivals_policy_keep(struct model *m, uint32_t sample)
{
	arrivals_append(m->policy, sample);
}

void arrivals_policy_drop(struct model *m, uint32_t sample)
{
	arrivals_remove(m->policy, sample);
}

uint32_t arrivals_policy_victim(struct model *m, uint64_t due)
{
	(void)due;
	return arrivals_first(m->policy);
}
