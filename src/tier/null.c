/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The null tier: every read succeeds at once with zeros. It measures the ceiling, what everything
 * above the tiers costs when reading is free; it must never serve a real mount.
 *
 * done() runs inside of tier_read(), on the caller's thread. A caller that starts the next read in
 * done() would nest without bound, therefore the outermost read of a thread works off what the
 * inner ones queue. Zeros are written for real: a buffer that is not touched would flatter the
 * ceiling by the page faults it saves.
 */
#include <errno.h>
#include <string.h>

#include "clairfs/tier.h"

static void null_tier_complete(struct tier_read *read)
{
	if (read->ask.length)
		memset(read->ask.buf, 0, read->ask.length);
	read->answer.status = 0;
	read->answer.got = read->ask.length;
	read->answer.has_st = false;
	read->answer.latency_ns = 0;
	read->done(read);
}

static void null_read(struct tier *tier, struct tier_read *read)
{
	static _Thread_local struct list *pending; /* of the outermost read of this thread */
	struct list mine, *node;

	if (pending) {
		list_push_tail(pending, &read->own.node);
		return;
	}
	list_init(&mine);
	pending = &mine;
	null_tier_complete(read);
	while ((node = list_pop_head(&mine)))
		null_tier_complete(container_of(node, struct tier_read, own.node));
	pending = NULL;
}

static void null_tier_free(struct tier *tier)
{
	free(tier);
}

static uint64_t null_cost(const struct tier *tier, uint32_t length)
{
	return 0;
}

/* In the place of the source: no other tier can be asked instead, and its files never change. */
static const struct tier_ops null_ops = { .name = "null",
					  .read_class = READ_MISS,
					  .verifies_identity = true,
					  .cost = null_cost,
					  .read = null_read,
					  .free = null_tier_free };

int tier_null_new(struct tier **ret, struct err *err)
{
	struct tier *tier = calloc(1, sizeof(*tier));

	if (!tier)
		return err_set_errno(err, -ENOMEM, "null tier");
	tier->ops = &null_ops;
	*ret = tier;
	return 0;
}
