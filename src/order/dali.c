/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA DALI's readers.file. Its random_shuffle does not look at the pipeline's seed for the
 * sequence of reads: the sorted files are shuffled once with a fixed seed, alike on every shard,
 * and each epoch reads the whole list or, of several shards, the next one (rank + epoch; the own
 * one with stick_to_shard). The seed only permutes what is already in memory. shuffle_after_epoch
 * shuffles before each epoch with a seed of the epoch's, what the epoch before left or, with
 * checkpointing, the sorted files; it implies stick_to_shard. Epoch e of a cumulative shuffle is
 * replayed from the first: e + 1 shuffles.
 *
 * std::shuffle is libstdc++'s: two places from one draw while their product fits a word. What
 * changed with GCC 11 is how a draw becomes a number (a division before, a multiplication since);
 * `libstdcxx` says which compiler built the DALI. Pure; any thread. */
#include <errno.h>

#include "order_priv.h"
#include "perm.h"

#define SEED 524287

struct dali {
	bool has_random_shuffle, has_stick, has_shuffle_after_epoch, has_checkpointing, is_old;
};

static const struct order_key dali_keys[] = {
	ORDER_KEY_ROW_WORLD,
	ORDER_KEY_ROW_RANK,
	ORDER_KEY_ROW_RANKS,
	{ .name = "random_shuffle", .type = ORDER_KEY_BOOL, .def = 0 },
	{ .name = "stick_to_shard", .type = ORDER_KEY_BOOL, .def = 0 },
	{ .name = "shuffle_after_epoch", .type = ORDER_KEY_BOOL, .def = 0 },
	{ .name = "checkpointing", .type = ORDER_KEY_BOOL, .def = 0 },
	{ .name = "libstdcxx", .type = ORDER_KEY_U64, .def = 11, .min = 10, .max = 11 },
	{ .name = NULL },
};

/* std::uniform_int_distribution(0, range - 1), range > 0 */
static uint32_t draw(struct mt19937 *rng, uint32_t range, bool is_old)
{
	uint64_t product;
	uint32_t word;

	if (is_old) {
		uint32_t scaling = UINT32_MAX / range;

		do
			word = mt19937_u32(rng);
		while (word >= scaling * range);
		return word / scaling;
	}
	product = (uint64_t)mt19937_u32(rng) * range;
	if ((uint32_t)product < range)
		while ((uint32_t)product < -range % range)
			product = (uint64_t)mt19937_u32(rng) * range;
	return (uint32_t)(product >> 32);
}

/* Swaps places i, i+1, ... with place[0], place[1], ..., all below. */
static void swap_up(uint32_t *x, uint32_t i, const uint32_t *place, uint32_t count)
{
	for (uint32_t k = 0; k < count; k++, i++) {
		uint32_t taken = x[i];

		x[i] = x[place[k]];
		x[place[k]] = taken;
	}
}

/* Fewer than 2^16 elements: two places a draw, the odd one out first. */
static void shuffle_pairs(uint32_t *x, uint32_t n, struct mt19937 *rng, bool is_old)
{
	uint32_t place[2];
	uint32_t i = 1;

	if (n % 2 == 0) {
		place[0] = draw(rng, 2, is_old);
		swap_up(x, i++, place, 1);
	}
	for (; i < n; i += 2) {
		uint32_t both = draw(rng, (i + 1) * (i + 2), is_old);

		place[0] = both / (i + 2);
		place[1] = both % (i + 2);
		swap_up(x, i, place, 2);
	}
}

/* std::shuffle(x, x + n, std::mt19937(seed)) */
static void shuffle_libstdcxx(uint32_t *x, uint32_t n, uint32_t seed, bool is_old)
{
	enum { BLOCK = 256 };
	uint32_t place[BLOCK];
	struct mt19937 rng;

	if (n == 0)
		return;
	mt19937_seed(&rng, seed);
	if (UINT32_MAX / n >= n) {
		shuffle_pairs(x, n, &rng, is_old);
		return;
	}
	for (uint32_t i = 1; i < n;) {
		uint32_t count = MIN(n - i, BLOCK);

		for (uint32_t k = 0; k < count; k++) {
			place[k] = draw(&rng, i + k + 1, is_old);
			__builtin_prefetch(&x[place[k]], 1);
		}
		swap_up(x, i, place, count);
		i += count;
	}
}

static int dali_open(struct order *order, const struct order_spec *spec,
		     const struct order_params *params, struct err *err)
{
	struct dali *dali = calloc(1, sizeof(*dali));

	if (!dali)
		return err_set(err, -ENOMEM, "out of memory");
	order->state = dali;
	dali->has_random_shuffle = order_spec_u64(spec, "random_shuffle");
	dali->has_stick = order_spec_u64(spec, "stick_to_shard");
	dali->has_shuffle_after_epoch = order_spec_u64(spec, "shuffle_after_epoch");
	dali->has_checkpointing = order_spec_u64(spec, "checkpointing");
	dali->is_old = order_spec_u64(spec, "libstdcxx") == 10;
	if (dali->has_shuffle_after_epoch && (dali->has_random_shuffle || dali->has_stick))
		return err_set(err, -EINVAL,
			       "keys \"shuffle_after_epoch\" and \"%s\" exclude each other, as in DALI",
			       dali->has_stick ? "stick_to_shard" : "random_shuffle");
	order->info.is_same_every_epoch =
		!dali->has_shuffle_after_epoch && (dali->has_stick || spec->world == 1);
	order->is_whole = spec->world == 1;
	return 0;
}

static int dali_common_fill(const struct order *order, uint64_t epoch, uint64_t length,
			    uint32_t *out, struct err *err)
{
	const struct dali *dali = order->state;
	uint32_t n = (uint32_t)length;
	uint64_t e = dali->has_checkpointing ? epoch : 0;
	int rc = dali->has_shuffle_after_epoch ? order_replay_check(epoch - e, err) : 0;

	if (rc < 0)
		return rc;
	perm_identity(out, n);
	if (dali->has_random_shuffle)
		shuffle_libstdcxx(out, n, SEED, dali->is_old);
	if (!dali->has_shuffle_after_epoch)
		return 0;
	for (; e <= epoch; e++)
		shuffle_libstdcxx(out, n, (uint32_t)(SEED + e + 1), dali->is_old);
	return 0;
}

static uint64_t shard_of(const struct order *order, uint64_t epoch, uint64_t rank)
{
	const struct dali *dali = order->state;
	bool is_own = dali->has_stick || dali->has_shuffle_after_epoch;

	return is_own ? rank : (rank + epoch) % order->info.world;
}

static uint64_t shard_start(const struct order *order, uint64_t shard)
{
	return order->info.n * shard / order->info.world;
}

static uint64_t dali_rank_length(const struct order *order, uint64_t epoch, uint64_t length,
				 uint64_t rank)
{
	uint64_t shard = shard_of(order, epoch, rank);

	return shard_start(order, shard + 1) - shard_start(order, shard);
}

static void dali_rank_read(const struct order *order, const struct order_span *common,
			   uint64_t rank, uint64_t from, uint32_t count, uint32_t *out)
{
	uint64_t start = shard_start(order, shard_of(order, common->epoch, rank)) + from;

	for (uint32_t i = 0; i < count; i++)
		out[i] = common->sample[start + i];
}

const struct order_kind order_kind_dali_file = {
	.help = "DALI's readers.file; keys: world(1) rank or ranks=0-3+6(all) random_shuffle(0) "
		"stick_to_shard(0) shuffle_after_epoch(0) checkpointing(0) "
		"libstdcxx(11)" ORDER_HELP_COMMON,
	.keys = dali_keys,
	.open = dali_open,
	.common_fill = dali_common_fill,
	.rank_length = dali_rank_length,
	.rank_read = dali_rank_read,
};
