/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's samplers whose order depends on nothing but their arguments: randperm of a seed, and
 * DistributedSampler. A torch CPU generator keeps the low 32 bits of its seed, so seeds are 64-bit
 * numbers here only to be added to an epoch and cut then. DistributedSampler pads (drop_last=0) by
 * starting its permutation over, as often as it takes, so a rank's i-th sample is common[(rank + i
 * * world) % n]; with drop_last=1 the tail that does not fill a row is left out.
 *
 * `large` chooses the branch of randperm for n >= 214748364: 1 is torch >= 2.6, 0 what older
 * releases do. Checked against vectors of the real library in tests/golden. Pure; any thread. */
#include <errno.h>

#include "order_priv.h"
#include "perm.h"

struct torch {
	uint64_t seed;
	bool is_shuffled, has_drop_last, has_large, adds_epoch;
};

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

static int torch_new(struct order *order, const struct order_spec *spec, struct err *err)
{
	struct torch *torch = calloc(1, sizeof(*torch));

	if (!torch)
		return err_set(err, -ENOMEM, "out of memory");
	torch->seed = order_spec_u64(spec, "seed");
	torch->has_large = order_spec_u64(spec, "large");
	torch->is_shuffled = true;
	order->state = torch;
	return 0;
}

static int randperm_open(struct order *order, const struct order_spec *spec,
			 const struct order_params *params, struct err *err)
{
	order->info.is_same_every_epoch = true;
	return torch_new(order, spec, err);
}

static int distributed_open(struct order *order, const struct order_spec *spec,
			    const struct order_params *params, struct err *err)
{
	struct torch *torch;
	int rc = torch_new(order, spec, err);

	if (rc < 0)
		return rc;
	torch = order->state;
	torch->is_shuffled = order_spec_u64(spec, "shuffle");
	torch->has_drop_last = order_spec_u64(spec, "drop_last");
	torch->adds_epoch = true;
	order->info.is_same_every_epoch = !torch->is_shuffled;
	order->is_whole = spec->world == 1; /* nothing to pad, nothing to drop: save the copy */
	return 0;
}

static int torch_common_fill(const struct order *order, uint64_t epoch, uint64_t length,
			     uint32_t *out, struct err *err)
{
	const struct torch *torch = order->state;
	struct mt19937 rng;

	if (!torch->is_shuffled) {
		perm_identity(out, (uint32_t)length);
		return 0;
	}
	mt19937_seed(&rng, (uint32_t)(torch->seed + (torch->adds_epoch ? epoch : 0)));
	perm_torch(out, (uint32_t)length, torch->has_large, &rng);
	return 0;
}

static uint64_t distributed_rank_length(const struct order *order, uint64_t epoch, uint64_t length,
					uint64_t rank)
{
	const struct torch *torch = order->state;
	uint64_t world = order->info.world;

	return torch->has_drop_last ? length / world : DIV_ROUND_UP(length, world);
}

static void distributed_rank_read(const struct order *order, const struct order_span *common,
				  uint64_t rank, uint64_t from, uint32_t count, uint32_t *out)
{
	uint64_t world = order->info.world;
	uint64_t at = rank + from * world;

	for (uint32_t i = 0; i < count; i++, at += world)
		out[i] = common->sample[at < common->length ? at : at % common->length];
}

const struct order_kind order_kind_torch_randperm = {
	.help = "torch.randperm(n) of one seed, the same in every epoch; keys: seed "
		"large(1)" ORDER_HELP_COMMON,
	.keys = randperm_keys,
	.open = randperm_open,
	.common_fill = torch_common_fill,
};

const struct order_kind order_kind_torch_distributed = {
	.help = "torch.utils.data.DistributedSampler with set_epoch; keys: seed(0) world(1) "
		"rank or ranks=0-3+6(all) shuffle(1) drop_last(0) large(1)" ORDER_HELP_COMMON,
	.keys = distributed_keys,
	.open = distributed_open,
	.common_fill = torch_common_fill,
	.rank_length = distributed_rank_length,
	.rank_read = distributed_rank_read,
};
