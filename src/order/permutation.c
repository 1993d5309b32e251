/* SPDX-License-Identifier: Apache-2.0 */
/* Permutations of 0..n-1 made by one call with one seed: numpy's RandomState and Generator (which
 * HF datasets.shuffle is) and Python's random.shuffle. With add_epoch=1 epoch e is made with seed +
 * e, the usual way to have another one each epoch; jobs that shuffle the shuffled list again have
 * no kind.
 *
 * numpy's RandomState takes 32-bit seeds and refuses others, so with add_epoch an epoch may not
 * exist; the other two take seeds of any size. Pure; any thread. */
#include <errno.h>
#include <inttypes.h>

#include "order_priv.h"
#include "perm.h"

struct permutation {
	uint64_t seed;
	bool adds_epoch;
};

#define KEY_ROW_SEED(largest)                                                                      \
	{                                                                                          \
		.name = "seed", .type = ORDER_KEY_U64, .is_required = true, .max = (largest)       \
	}
#define KEY_ROW_ADD_EPOCH                                                                          \
	{                                                                                          \
		.name = "add_epoch", .type = ORDER_KEY_BOOL, .def = 0                              \
	}

static const struct order_key legacy_keys[] = {
	KEY_ROW_SEED(UINT32_MAX),
	KEY_ROW_ADD_EPOCH,
	{ .name = NULL },
};

static const struct order_key other_keys[] = {
	KEY_ROW_SEED(UINT64_MAX),
	KEY_ROW_ADD_EPOCH,
	{ .name = NULL },
};

static int permutation_open(struct order *order, const struct order_spec *spec,
			    const struct order_params *params, struct err *err)
{
	struct permutation *p = calloc(1, sizeof(*p));

	if (!p)
		return err_set(err, -ENOMEM, "out of memory");
	order->state = p;
	p->seed = order_spec_u64(spec, "seed");
	p->adds_epoch = order_spec_u64(spec, "add_epoch");
	order->info.is_same_every_epoch = !p->adds_epoch;
	return 0;
}

static unsigned __int128 seed_of(const struct order *order, uint64_t epoch)
{
	const struct permutation *p = order->state;

	return (unsigned __int128)p->seed + (p->adds_epoch ? epoch : 0);
}

static int legacy_length(const struct order *order, uint64_t epoch, uint64_t *ret, struct err *err)
{
	*ret = order->info.n;
	if (seed_of(order, epoch) > UINT32_MAX)
		return err_set(err, -ENOENT, "epoch %" PRIu64 ": numpy takes seeds below 2^32 only",
			       epoch);
	return 0;
}

static int legacy_fill(const struct order *order, uint64_t epoch, uint64_t length, uint32_t *out,
		       struct err *err)
{
	struct mt19937 rng;

	mt19937_seed(&rng, (uint32_t)seed_of(order, epoch));
	perm_identity(out, (uint32_t)length);
	shuffle_numpy_mt19937(out, (uint32_t)length, &rng);
	return 0;
}

static int generator_fill(const struct order *order, uint64_t epoch, uint64_t length, uint32_t *out,
			  struct err *err)
{
	struct pcg64 rng;

	pcg64_seed(&rng, seed_of(order, epoch));
	perm_identity(out, (uint32_t)length);
	shuffle_numpy_pcg64(out, (uint32_t)length, &rng);
	return 0;
}

static int python_fill(const struct order *order, uint64_t epoch, uint64_t length, uint32_t *out,
		       struct err *err)
{
	struct mt19937 rng;

	mt19937_seed_python(&rng, seed_of(order, epoch));
	perm_identity(out, (uint32_t)length);
	shuffle_python(out, (uint32_t)length, &rng);
	return 0;
}

const struct order_kind order_kind_numpy_legacy = {
	.help = "numpy.random.RandomState(seed).permutation(n); keys: seed "
		"add_epoch(0)" ORDER_HELP_COMMON,
	.keys = legacy_keys,
	.open = permutation_open,
	.common_length = legacy_length,
	.common_fill = legacy_fill,
};

const struct order_kind order_kind_numpy_generator = {
	.help = "numpy.random.default_rng(seed).permutation(n), also datasets.Dataset.shuffle(seed); "
		"keys: seed add_epoch(0)" ORDER_HELP_COMMON,
	.keys = other_keys,
	.open = permutation_open,
	.common_fill = generator_fill,
};

const struct order_kind order_kind_python_random = {
	.help = "random.Random(seed).shuffle of 0..n-1; keys: seed add_epoch(0)" ORDER_HELP_COMMON,
	.keys = other_keys,
	.open = permutation_open,
	.common_fill = python_fill,
};
