/* SPDX-License-Identifier: Apache-2.0 */
/* HF accelerate with its SeedableRandomSampler, which is what transformers' Trainer uses: the
 * permutation of epoch e comes from seed + e, and BatchSamplerShard deals it out by batches. The
 * key batch is what one rank reads per step; with split_batches=True that is the loader's
 * batch_size divided by the world, and the samples are the same. even_batches=1 refills the last
 * round from the front of the permutation.
 *
 * A single process is not sharded, so there is nothing to make even then. Checked against
 * prepare_data_loader itself in tests/golden. Pure; any thread. */
#include "seeded.h"

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
	struct seeded *s;
	int rc = seeded_new(order, sizeof(*s), &s, err);

	if (rc < 0)
		return rc;
	seeded_read_keys(order, spec);
	s->seed = order_spec_u64(spec, "seed");
	return turns_init(&s->turns, spec, tail_of(spec), err);
}

const struct order_kind order_kind_accelerate = {
	.help = "HF accelerate with a seedable sampler, transformers' Trainer; keys: seed(42) "
		"world(1) rank or ranks=0-3+6(all) shuffle(1) drop_last(0) even_batches(1) "
		"large(1)" ORDER_HELP_COMMON,
	.keys = accelerate_keys,
	.open = accelerate_open,
	.common_fill = seeded_fill,
	.head_fill = seeded_head,
	.head_reach = turns_head_reach,
	.rank_length = turns_rank_length,
	.rank_read = turns_rank_read,
};
