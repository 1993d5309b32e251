/* SPDX-License-Identifier: Apache-2.0 */
/* FFCV's OrderOption.RANDOM. One process: the permutation of numpy's default_rng(seed + epoch).
 * Several (Loader(distributed=True)): torch's DistributedSampler with the same seed and set_epoch,
 * padded. FFCV's Loader leaves an incomplete last batch out unless told otherwise, and then does
 * not read it either; without the key batch that cannot be known, and the epoch is whole.
 *
 * OrderOption.QUASI_RANDOM draws from numba's own copies of two generators and is not here: list
 * it. A loader without a seed draws one from the system when it is not distributed; with
 * distributed=True that is seed 0. Pure; any thread. */
#include "perm.h"
#include "seeded.h"

struct ffcv {
	struct seeded seeded;
	uint64_t multiple; /* a rank's length is cut to one of this */
};

static const struct order_key ffcv_keys[] = {
	{ .name = "seed", .type = ORDER_KEY_U64, .is_required = true, .max = UINT64_MAX },
	ORDER_KEY_ROW_WORLD,
	ORDER_KEY_ROW_RANK,
	ORDER_KEY_ROW_RANKS,
	{ .name = "drop_last", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = NULL },
};

static int ffcv_open(struct order *order, const struct order_spec *spec,
		     const struct order_params *params, struct err *err)
{
	struct ffcv *ffcv;
	struct seeded *s;
	int rc = seeded_new(order, sizeof(*ffcv), &s, err);

	if (rc < 0)
		return rc;
	s->seed = order_spec_u64(spec, "seed");
	s->turns = (struct turns){ .batch = 1, .world = spec->world, .tail = TURNS_TAIL_PAD };
	ffcv = order->state;
	ffcv->multiple = order_spec_u64(spec, "drop_last") ? MAX(order->info.batch, 1) : 1;
	order->is_whole = spec->world == 1 && ffcv->multiple == 1;
	return 0;
}

static int ffcv_common_fill(const struct order *order, uint64_t epoch, uint64_t length,
			    uint32_t *out, struct err *err)
{
	const struct ffcv *ffcv = order->state;
	struct pcg64 rng;

	if (order->info.world > 1)
		return seeded_fill(order, epoch, length, out, err);
	pcg64_seed(&rng, (unsigned __int128)ffcv->seeded.seed + epoch);
	perm_identity(out, (uint32_t)length);
	shuffle_numpy_pcg64(out, (uint32_t)length, &rng);
	return 0;
}

static uint64_t ffcv_rank_length(const struct order *order, uint64_t epoch, uint64_t length,
				 uint64_t rank)
{
	const struct ffcv *ffcv = order->state;

	return turns_rank_length(order, epoch, length, rank) / ffcv->multiple * ffcv->multiple;
}

const struct order_kind order_kind_ffcv = {
	.help = "FFCV, OrderOption.RANDOM: numpy's default_rng(seed + epoch), with several ranks "
		"DistributedSampler; keys: seed world(1) rank or ranks=0-3+6(all) "
		"drop_last(1)" ORDER_HELP_COMMON,
	.keys = ffcv_keys,
	.numbers = ORDER_NUMBERS_RECORDS,
	.records_of = "a .beton file",
	.records_by = "clairfs index --import with a list of them",
	.one_file = "NAME.beton",
	.open = ffcv_open,
	.common_fill = ffcv_common_fill,
	.rank_length = ffcv_rank_length,
	.rank_read = turns_rank_read,
};
