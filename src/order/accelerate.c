/* SPDX-License-Identifier: Apache-2.0 */
/* HF accelerate with its SeedableRandomSampler, which is what transformers' Trainer uses: the
 * permutation of epoch e comes from seed + e, and BatchSamplerShard deals it out by batches. The
 * key batch is what one rank reads per step; with split_batches=True that is the loader's
 * batch_size divided by the world, and the samples are the same. even_batches=1 refills the last
 * round from the front of the permutation.
 *
 * A single process is not sharded, so there is nothing to make even then. Checked against
 * prepare_data_loader itself in tests/golden. Pure; any thread. */
#include <errno.h>

#include "perm.h"
#include "turns.h"

struct accelerate {
	struct turns turns;
	uint64_t seed;
	bool is_shuffled, has_large;
};

static const struct order_key accelerate_keys[] = {
	{ .name = "seed", .type = ORDER_KEY_SEED, .def = 42 },
	ORDER_KEY_ROW_WORLD,
	ORDER_KEY_ROW_RANK,
	ORDER_KEY_ROW_RANKS,
	{ .name = "shuffle", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = "drop_last", .type = ORDER_KEY_BOOL, .def = 0 },
	{ .name = "even_batches", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = "large", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = NULL },
};

static enum turns_tail tail_of(const struct order_spec *spec)
{
	if (order_spec_u64(spec, "drop_last"))
		return TURNS_TAIL_DROP;
	return spec->world > 1 && order_spec_u64(spec, "even_batches") ? TURNS_TAIL_PAD
								       : TURNS_TAIL_UNEVEN;
}

static int accelerate_open(struct order *order, const struct order_spec *spec,
			   const struct order_params *params, struct err *err)
{
	struct accelerate *a = calloc(1, sizeof(*a));

	if (!a)
		return err_set(err, -ENOMEM, "out of memory");
	order->state = a;
	a->seed = order_spec_u64(spec, "seed");
	a->is_shuffled = order_spec_u64(spec, "shuffle");
	a->has_large = order_spec_u64(spec, "large");
	order->info.is_same_every_epoch = !a->is_shuffled;
	return turns_init(&a->turns, spec, tail_of(spec), err);
}

static int accelerate_fill(const struct order *order, uint64_t epoch, uint64_t length,
			   uint32_t *out, struct err *err)
{
	const struct accelerate *a = order->state;
	struct mt19937 rng;

	if (!a->is_shuffled) {
		perm_identity(out, (uint32_t)length);
		return 0;
	}
	mt19937_seed(&rng, (uint32_t)(a->seed + epoch));
	perm_torch(out, (uint32_t)length, a->has_large, &rng);
	return 0;
}

static uint64_t accelerate_rank_length(const struct order *order, uint64_t epoch, uint64_t length,
				       uint64_t rank)
{
	const struct accelerate *a = order->state;

	return turns_rank_length(&a->turns, length, rank);
}

static void accelerate_rank_read(const struct order *order, const struct order_span *common,
				 uint64_t rank, uint64_t from, uint32_t count, uint32_t *out)
{
	const struct accelerate *a = order->state;

	turns_rank_read(&a->turns, common, rank, from, count, out);
}

const struct order_kind order_kind_accelerate = {
	.help = "HF accelerate with a seedable sampler, transformers' Trainer; keys: seed(42) "
		"world(1) rank or ranks=0-3+6(all) shuffle(1) drop_last(0) even_batches(1) "
		"large(1)" ORDER_HELP_COMMON,
	.keys = accelerate_keys,
	.open = accelerate_open,
	.common_fill = accelerate_fill,
	.rank_length = accelerate_rank_length,
	.rank_read = accelerate_rank_read,
};
