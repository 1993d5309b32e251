/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's samplers whose order depends on nothing but their arguments: randperm of a seed, and
 * DistributedSampler. DistributedSampler pads (drop_last=0) by starting its permutation over, as
 * often as it takes, so a rank's i-th sample is common[(rank + i * world) % n]; with drop_last=1
 * the tail that does not fill a row is left out: ranks that take batches of one in turn.
 *
 * `large` chooses the branch of randperm for n >= 214748364: 1 is torch >= 2.6, 0 what older
 * releases do. Checked against vectors of the real library in tests/golden. Pure; any thread. */
#include "seeded.h"

static const struct order_key randperm_keys[] = {
	{ .name = "seed", .type = ORDER_KEY_SEED, .is_required = true },
	{ .name = "large", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = NULL },
};

static const struct order_key distributed_keys[] = {
	{ .name = "seed", .type = ORDER_KEY_SEED, .def = 0 },
	ORDER_KEY_ROW_WORLD,
	ORDER_KEY_ROW_RANK,
	ORDER_KEY_ROW_RANKS,
	{ .name = "shuffle", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = "drop_last", .type = ORDER_KEY_BOOL, .def = 0 },
	{ .name = "large", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = NULL },
};

static int randperm_open(struct order *order, const struct order_spec *spec,
			 const struct order_params *params, struct err *err)
{
	struct seeded *s;
	int rc = seeded_new(order, sizeof(*s), &s, err);

	if (rc < 0)
		return rc;
	s->seed = order_spec_u64(spec, "seed");
	s->has_large = order_spec_u64(spec, "large");
	s->adds_epoch = false;
	order->info.is_same_every_epoch = true;
	return 0;
}

static int distributed_open(struct order *order, const struct order_spec *spec,
			    const struct order_params *params, struct err *err)
{
	struct seeded *s;
	int rc = seeded_new(order, sizeof(*s), &s, err);

	if (rc < 0)
		return rc;
	seeded_read_keys(order, spec);
	s->seed = order_spec_u64(spec, "seed");
	s->turns = (struct turns){
		.batch = 1,
		.world = spec->world,
		.tail = order_spec_u64(spec, "drop_last") ? TURNS_TAIL_DROP : TURNS_TAIL_PAD,
	};
	order->is_whole = spec->world == 1; /* nothing to pad, nothing to drop: save the copy */
	return 0;
}

const struct order_kind order_kind_torch_randperm = {
	.help = "torch.randperm(n) of one seed, the same in every epoch; keys: seed "
		"large(1)" ORDER_HELP_COMMON,
	.keys = randperm_keys,
	.open = randperm_open,
	.common_fill = seeded_fill,
	.head_fill = seeded_head,
};

const struct order_kind order_kind_torch_distributed = {
	.help = "torch.utils.data.DistributedSampler with set_epoch; keys: seed(0) world(1) "
		"rank or ranks=0-3+6(all) shuffle(1) drop_last(0) large(1)" ORDER_HELP_COMMON,
	.keys = distributed_keys,
	.open = distributed_open,
	.common_fill = seeded_fill,
	.head_fill = seeded_head,
	.head_reach = turns_head_reach,
	.rank_length = turns_rank_length,
	.rank_read = turns_rank_read,
};
