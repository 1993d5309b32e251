/* SPDX-License-Identifier: Apache-2.0 */
/* detectron2's TrainingSampler: one endless stream of permutations from one generator, of which
 * rank r reads every world-th sample, also across the seam of two permutations. The stream has no
 * epochs. Here epoch e is its e-th permutation, so a rank's epochs, one after the other, are
 * exactly what it reads; where n is no multiple of the world their lengths differ by one and the
 * rank starts at another place in each:
 *
 *   n = 5, world = 2    epoch 0: 0 1 0 1 0    epoch 1: 1 0 1 0 1
 *
 * Permutations before epoch e are skipped, not made (rng_mt19937_skip.c). Pure; any thread. */
#include <errno.h>

#include "order_priv.h"
#include "perm.h"

struct training {
	uint64_t seed;
	bool is_shuffled, has_large;
};

static const struct order_key training_keys[] = {
	{ .name = "seed", .type = ORDER_KEY_SEED, .is_required = true },
	ORDER_KEY_ROW_WORLD,
	ORDER_KEY_ROW_RANK,
	ORDER_KEY_ROW_RANKS,
	{ .name = "shuffle", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = "large", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = NULL },
};

static int training_open(struct order *order, const struct order_spec *spec,
			 const struct order_params *params, struct err *err)
{
	struct training *t = calloc(1, sizeof(*t));

	if (!t)
		return err_set(err, -ENOMEM, "out of memory");
	order->state = t;
	t->seed = order_spec_u64(spec, "seed");
	t->is_shuffled = order_spec_u64(spec, "shuffle");
	t->has_large = order_spec_u64(spec, "large");
	order->is_whole = spec->world == 1;
	order->info.is_same_every_epoch = !t->is_shuffled && params->n % spec->world == 0;
	return 0;
}

static void seek_epoch(const struct training *t, uint64_t epoch, uint64_t length,
		       struct mt19937 *rng)
{
	mt19937_seed(rng, (uint32_t)t->seed);
	mt19937_skip(rng, perm_torch_words((uint32_t)length, t->has_large), epoch);
}

static int training_fill(const struct order *order, uint64_t epoch, uint64_t length, uint32_t *out,
			 struct err *err)
{
	const struct training *t = order->state;
	struct mt19937 rng;

	if (!t->is_shuffled) {
		perm_identity(out, (uint32_t)length);
		return 0;
	}
	seek_epoch(t, epoch, length, &rng);
	perm_torch(out, (uint32_t)length, t->has_large, &rng);
	return 0;
}

static int training_head(const struct order *order, const struct order_span *common, uint64_t count,
			 uint32_t *out, struct err *err)
{
	const struct training *t = order->state;
	struct mt19937 rng;

	if (!t->is_shuffled) {
		perm_identity(out, (uint32_t)count);
		return 0;
	}
	seek_epoch(t, common->epoch, common->length, &rng);
	return perm_torch_head(out, (uint32_t)count, (uint32_t)common->length, t->has_large, &rng) < 0
		       ? err_set(err, -ENOMEM, "out of memory")
		       : 0;
}

static uint64_t training_head_reach(const struct order *order, uint64_t length, uint64_t rows)
{
	return rows * order->info.world;
}

/* The rank's first place in this epoch's permutation. */
static uint64_t first_place(const struct order *order, uint64_t epoch, uint64_t length,
			    uint64_t rank)
{
	uint64_t world = order->info.world;
	uint64_t before = epoch % world * (length % world) % world;

	return (rank + world - before) % world;
}

static uint64_t training_rank_length(const struct order *order, uint64_t epoch, uint64_t length,
				     uint64_t rank)
{
	uint64_t first = first_place(order, epoch, length, rank);

	return first < length ? DIV_ROUND_UP(length - first, order->info.world) : 0;
}

static void training_rank_read(const struct order *order, const struct order_span *common,
			       uint64_t rank, uint64_t from, uint32_t count, uint32_t *out)
{
	uint64_t world = order->info.world;
	uint64_t at = first_place(order, common->epoch, common->length, rank) + from * world;

	for (uint32_t i = 0; i < count; i++, at += world)
		out[i] = common->sample[at];
}

const struct order_kind order_kind_detectron2_training = {
	.help = "detectron2's TrainingSampler, cut into epochs of n; keys: seed world(1) rank or "
		"ranks=0-3+6(all) shuffle(1) large(1)" ORDER_HELP_COMMON,
	.keys = training_keys,
	.open = training_open,
	.common_fill = training_fill,
	.head_fill = training_head,
	.head_reach = training_head_reach,
	.rank_length = training_rank_length,
	.rank_read = training_rank_read,
};
