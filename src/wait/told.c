/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of what was told since the thread last looked, each with a bound: what finds no room is
 * dropped; the pass it belongs to has a hole then, and with many holes is not judged. */
#include "told.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "clairfs/base/cleanup.h"

enum { READS_MAX = 1 << 18, STEPS_MAX = 1 << 16 };

/* Room for n more, or for as many as there may be. */
static size_t room_for(void **list, size_t size_of_one, size_t used, size_t *size, size_t n,
		       size_t most)
{
	size_t want = MIN(used + n, most), grown = MAX(*size, 64);
	void *p;

	assert(used <= *size && used <= most);
	while (grown < want)
		grown *= 2;
	if (grown > *size) {
		p = realloc(*list, grown * size_of_one);
		if (!p)
			return *size - used;
		*list = p;
		*size = grown;
	}
	return want - used;
}

size_t told_reads(struct told *t, const struct read_facts *reads, size_t n)
{
	size_t room = room_for((void **)&t->read, sizeof(*t->read), t->n_reads, &t->reads_size, n,
			       READS_MAX);

	room = MIN(room, n);
	if (room)
		memcpy(&t->read[t->n_reads], reads, room * sizeof(*reads));
	t->n_reads += room;
	assert(t->n_reads <= t->reads_size && t->n_reads <= READS_MAX);
	return room;
}

size_t told_steps(struct told *t, const struct clairfs_step_record *steps, size_t n)
{
	size_t room = room_for((void **)&t->step, sizeof(*t->step), t->n_steps, &t->steps_size, n,
			       STEPS_MAX);

	room = MIN(room, n);
	if (room)
		memcpy(&t->step[t->n_steps], steps, room * sizeof(*steps));
	t->n_steps += room;
	assert(t->n_steps <= t->steps_size && t->n_steps <= STEPS_MAX);
	return room;
}

static uint32_t clamp_u32(uint64_t n)
{
	return (uint32_t)MIN(n, 1u << 20);
}

/* With too many at once the last one gives way: nobody reads that much in between. */
static void push_order(struct told *t, const struct told_order *order)
{
	uint64_t turn_ns = order->turn_ns;

	if (room_for((void **)&t->order, sizeof(*order), t->n_orders, &t->orders_size, 1,
		     STALL_ORDERS))
		t->n_orders++;
	else if (t->n_orders)
		turn_ns = MAX(turn_ns, t->order[t->n_orders - 1].turn_ns);
	assert(t->n_orders <= STALL_ORDERS);
	if (t->n_orders) {
		t->order[t->n_orders - 1] = *order;
		t->order[t->n_orders - 1].turn_ns = turn_ns;
	}
}

void told_set_order(struct told *t, const struct order_info *info, uint32_t generation,
		    uint64_t now_ns)
{
	struct told_order o = { .job.id = generation };

	if (info) {
		o.job.n_ranks = info->n_ranks;
		o.job.workers = clamp_u32(info->workers);
		o.job.prefetch = clamp_u32(info->prefetch_factor);
		o.job.batch = clamp_u32(info->batch);
	}
	if (info && info->n_ranks <= STALL_RANKS_MAX)
		memcpy(o.ranks, info->ranks, info->n_ranks * sizeof(*o.ranks));
	if (info && told_has_heard(t, generation)) /* in force before it is accounted for */
		o.turn_ns = now_ns;
	told_hear(t, generation);
	push_order(t, &o);
}

uint32_t told_readers(const struct order_info *info)
{
	return info ? clamp_u32(info->workers) * info->n_ranks : 0;
}

void told_hear(struct told *t, uint32_t generation)
{
	if (told_has_heard(t, generation))
		return;
	t->heard = generation;
	t->has_heard = true;
}

bool told_has_heard(const struct told *t, uint32_t generation)
{
	return t->has_heard && (int32_t)(generation - t->heard) <= 0;
}

struct told told_take(struct told *t)
{
	struct told all = *t;

	*t = (struct told){ .heard = all.heard, .has_heard = all.has_heard };
	return all;
}

void told_free(struct told *t)
{
	free(t->read);
	free(t->step);
	free(t->order);
	*t = (struct told){ 0 };
}
