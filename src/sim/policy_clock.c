/* SPDX-License-Identifier: Apache-2.0 */
/* Policy "clock": FIFO with a second chance: a sample that was used since the hand passed it goes
 * to the end once instead of leaving. The hand is the head of the chain. */
#include <errno.h>

#include "cached.h"

struct clock_policy {
	void *chain;
	struct bitmap used;
};

static int clock_init(struct model *m, struct err *err)
{
	struct clock_policy *c = calloc(1, sizeof(*c));
	int rc;

	(void)err;
	m->policy = c;
	if (!c)
		return -ENOMEM;
	rc = arrivals_new(m->run->s->n, &c->chain);
	return rc < 0 ? rc : bitmap_init(&c->used, m->run->s->n);
}

static void clock_fini(struct model *m)
{
	struct clock_policy *c = m->policy;

	if (!c)
		return;
	arrivals_free(c->chain);
	bitmap_fini(&c->used);
	free(c);
}

static void clock_keep(struct model *m, uint32_t sample)
{
	struct clock_policy *c = m->policy;

	bitmap_clear(&c->used, sample);
	arrivals_append(c->chain, sample);
}

static void clock_used(struct model *m, uint32_t sample)
{
	struct clock_policy *c = m->policy;

	bitmap_set(&c->used, sample);
}

static void clock_drop(struct model *m, uint32_t sample)
{
	struct clock_policy *c = m->policy;

	arrivals_remove(c->chain, sample);
}

static uint32_t clock_victim(struct model *m, uint64_t due)
{
	struct clock_policy *c = m->policy;
	uint32_t first = arrivals_first(c->chain);

	(void)due;
	while (first != NONE && bitmap_clear(&c->used, first)) {
		arrivals_remove(c->chain, first);
		arrivals_append(c->chain, first);
		first = arrivals_first(c->chain);
	}
	return first;
}

const struct policy_ops policy_clock = {
	.name = "clock",
	.driver = &cached_driver,
	.is_ahead = true,
	.init = clock_init,
	.fini = clock_fini,
	.keep = clock_keep,
	.used = clock_used,
	.drop = clock_drop,
	.victim = clock_victim,
};
