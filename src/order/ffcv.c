/* SPDX-License-Identifier: Apache-2.0 */
/* FFCV's OrderOption.RANDOM. One process: the permutation of numpy's default_rng(seed + epoch).
 * Several (Loader(distributed=True)): torch's DistributedSampler with the same seed and set_epoch,
 * padded, so a rank's i-th sample is common[(rank + i * world) % n] of a torch permutation.
 *
 * OrderOption.QUASI_RANDOM draws from numba's own copies of two generators and is not here: list
 * it. A loader without a seed draws one from the system when it is not distributed; with
 * distributed=True that is seed 0. Pure; any thread. */
#include <errno.h>

#include "order_priv.h"
#include "perm.h"

struct ffcv {
	uint64_t seed;
};

static const struct order_key ffcv_keys[] = {
	{ .name = "seed", .type = ORDER_KEY_U64, .is_required = true, .max = UINT64_MAX },
	ORDER_KEY_ROW_WORLD,
	ORDER_KEY_ROW_RANK,
	ORDER_KEY_ROW_RANKS,
	{ .name = NULL },
};

static int ffcv_open(struct order *order, const struct order_spec *spec,
		     const struct order_params *params, struct err *err)
{
	struct ffcv *ffcv = calloc(1, sizeof(*ffcv));

	if (!ffcv)
		return err_set(err, -ENOMEM, "out of memory");
	ffcv->seed = order_spec_u64(spec, "seed");
	order->state = ffcv;
	order->info.is_same_every_epoch = false;
	order->is_whole = spec->world == 1;
	return 0;
}

static int ffcv_common_fill(const struct order *order, uint64_t epoch, uint64_t length,
			    uint32_t *out, struct err *err)
{
	const struct ffcv *ffcv = order->state;
	struct mt19937 torch;
	struct pcg64 numpy;

	if (order->info.world > 1) {
		mt19937_seed(&torch, (uint32_t)(ffcv->seed + epoch));
		perm_torch(out, (uint32_t)length, true, &torch);
		return 0;
	}
	pcg64_seed(&numpy, (unsigned __int128)ffcv->seed + epoch);
	perm_identity(out, (uint32_t)length);
	shuffle_numpy_pcg64(out, (uint32_t)length, &numpy);
	return 0;
}

static uint64_t ffcv_rank_length(const struct order *order, uint64_t epoch, uint64_t length,
				 uint64_t rank)
{
	return DIV_ROUND_UP(length, order->info.world);
}

static void ffcv_rank_read(const struct order *order, const struct order_span *common,
			   uint64_t rank, uint64_t from, uint32_t count, uint32_t *out)
{
	uint64_t world = order->info.world;
	uint64_t at = rank + from * world;

	for (uint32_t i = 0; i < count; i++, at += world)
		out[i] = common->sample[at < common->length ? at : at % common->length];
}

const struct order_kind order_kind_ffcv = {
	.help = "FFCV, OrderOption.RANDOM: numpy's default_rng(seed + epoch), with several ranks "
		"DistributedSampler; keys: seed world(1) rank or ranks=0-3+6(all)" ORDER_HELP_COMMON,
	.keys = ffcv_keys,
	.open = ffcv_open,
	.common_fill = ffcv_common_fill,
	.rank_length = ffcv_rank_length,
	.rank_read = ffcv_rank_read,
};
