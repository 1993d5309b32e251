/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who reads with O_DIRECT: such READs never look at pages, so pushing pages for them is work for
 * nothing, and memory of the kernel's that others could use. Readers do it to all samples or to none.
 * So after some samples it is assumed of the others, and one in so many is pushed all the same.
 *
 * Another job may read otherwise: what is known of a sample counts only as long as somebody reads so
 * at all. Each sample that is read with pages, or from pages, says that they are wanted.
 *
 * A sample says so once and not with every READ: a shard weighs as much as a small file. One that is
 * read in both ways (a header through pages, the data past them; or by two jobs) takes back what it
 * said whenever its READs change: it says nothing, and is treated as the others are. Where all are
 * read so, what was pushed is passed by, which counts each time: then nothing is pushed, as most bytes
 * go past it.
 *
 * Any thread; never blocks.
 */
#include "cache_priv.h"

/* DIRECT_MOST: a dozen readers may all have read a header and no data yet. */
enum { DIRECT_SURE = 8, DIRECT_MOST = 24, DIRECT_PROBE = 16 };

/* Of two threads at once one may be lost: there will be more. */
static void score(struct cache *c, int32_t change)
{
	uint32_t n = atomic_load_explicit(&c->n_direct, memory_order_relaxed);

	if (change < 0 ? n == 0 : n >= DIRECT_MOST)
		return;
	(void)atomic_compare_exchange_weak(&c->n_direct, &n, n + (uint32_t)change);
}

void direct_read(struct cache *c, struct entry_id entry, bool is_direct, bool was_staged)
{
	bool is_new;

	if (is_direct) {
		is_new = bits_set(c->direct, entry.v);
	} else {
		is_new = bits_clear(c->direct, entry.v);
		is_new |= bits_set(c->indirect, entry.v);
	}
	if (is_new || was_staged)
		score(c, is_direct ? 1 : -1);
}

void direct_pushed(struct cache *c, struct entry_id entry)
{
	bits_clear(c->indirect, entry.v);
}

void direct_used_pages(struct cache *c)
{
	score(c, -1);
}

bool cache_expects_direct(struct cache *c, struct entry_id entry)
{
	bool is_own = bits_get(c->direct, entry.v) && !bits_get(c->indirect, entry.v);
	uint32_t n = atomic_load(&c->n_direct);

	if (!n || (n < DIRECT_SURE && !is_own))
		return false;
	return atomic_fetch_add(&c->stage_probe, 1) % DIRECT_PROBE != 0;
}
