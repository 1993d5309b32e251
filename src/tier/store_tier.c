/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store as a tier: the one table that the cache knows it by. It gives copies, so somebody else
 * has to say whether the file is still that version, and it keeps what it is given. Opening and
 * closing it, and what people are told about it, is its owner's (tier/store.h).
 *
 * Any thread. Must hold nothing of its own: a call here is one of the store's.
 */
#include "store_priv.h"

/* Of a drive that others use too. It only has to be more than memory and less than a network. */
#define COST_NS 200000u
#define BYTES_PER_NS 2u

static struct store *store_of(struct tier *tier)
{
	return container_of(tier, struct store, reader.tier);
}

static bool store_tier_has(struct tier *tier, struct piece_key key, const struct file_identity *identity)
{
	return store_has(store_of(tier), key, identity);
}

static uint64_t store_tier_cost(const struct tier *tier, uint32_t length)
{
	return COST_NS + length / BYTES_PER_NS;
}

/* --- what it keeps --- */

static void keep_put(struct tier *tier, struct tier_piece *pieces, size_t n)
{
	store_put_many(store_of(tier), pieces, n);
}

static bool keep_takes_more(struct tier *tier)
{
	return store_takes_more(store_of(tier));
}

static void keep_forget(struct tier *tier, const struct file_identity *identity, uint32_t first,
			uint32_t end)
{
	store_forget(store_of(tier), identity, first, end);
}

static void keep_unwant(struct tier *tier, const struct file_identity *identity, uint32_t first,
			uint32_t end)
{
	store_unwant(store_of(tier), identity, first, end);
}

static uint32_t keep_n_found(struct tier *tier)
{
	return store_n_found(store_of(tier));
}

static void keep_get_status(struct tier *tier, struct tier_kept_status *ret)
{
	struct store_status status;

	store_get_status(store_of(tier), &status);
	ret->is_lasting = status.is_persistent;
	ret->is_off = status.is_off || status.is_write_off;
	ret->bytes = status.bytes;
	ret->records = status.records;
	ret->record_bytes = status.record_bytes;
}

static void keep_stop(struct tier *tier)
{
	store_stop(store_of(tier));
}

static const struct tier_keep_ops keep_ops = {
	.put = keep_put,
	.takes_more = keep_takes_more,
	.forget = keep_forget,
	.unwant = keep_unwant,
	.n_found = keep_n_found,
	.get_status = keep_get_status,
	.stop = keep_stop,
};

const struct tier_ops store_tier_ops = {
	.name = "store",
	.read_class = READ_STORE,
	.has = store_tier_has,
	.cost = store_tier_cost,
	.read = store_tier_read,
	.free = store_tier_free,
	.keep = &keep_ops,
};

struct tier *store_tier(struct store *store)
{
	return store ? &store->reader.tier : NULL;
}
