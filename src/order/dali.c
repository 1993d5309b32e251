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
 * `libstdcxx` says which compiler built the DALI. What changed in DALI is the generator that
 * shuffle_after_epoch seeds: `engine` is the size of its words. Pure; any thread. */
#include <errno.h>

#include "order_priv.h"
#include "perm.h"
#include "rng_mt19937_64.h"

#define SEED 524287

struct dali {
	bool has_random_shuffle, has_stick, has_shuffle_after_epoch, has_checkpointing;
	bool is_old; /* libstdc++ of GCC 10 and before */
	bool has_engine_64;
};

/* One of the generators, and how its words become numbers. */
struct dice {
	bool is_old, is_64;
	struct mt19937 rng;
	struct mt19937_64 rng_64;
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
	{ .name = "engine", .type = ORDER_KEY_U64, .def = 64, .min = 32, .max = 64 },
	{ .name = NULL },
};

static uint64_t next_word(struct dice *dice)
{
	return dice->is_64 ? mt19937_64_u64(&dice->rng_64) : mt19937_u32(&dice->rng);
}

/* std::uniform_int_distribution(0, range - 1) of words up to `max`, range > 0. A multiplication
 * makes words of 32 bits numbers of 32 bits and words of 64 numbers of 64. */
static uint64_t draw(struct dice *dice, uint64_t range)
{
	uint64_t max = dice->is_64 ? UINT64_MAX : UINT32_MAX, scaling, word, low;
	unsigned __int128 product;

	/* Some numbers would come from one word more than others; those words are drawn again. */
	if (dice->is_old) {
		scaling = max / range;
		do
			word = next_word(dice);
		while (word >= scaling * range);
		return word / scaling;
	}
	do {
		product = (unsigned __int128)next_word(dice) * range;
		low = (uint64_t)product & max;
	} while (low < range && low < (max - range + 1) % range);
	return (uint64_t)(product >> (dice->is_64 ? 64 : 32));
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

/* Two places a draw, the odd one out first. */
static void shuffle_pairs(uint32_t *x, uint32_t n, struct dice *dice)
{
	enum { BLOCK = 256 };
	uint32_t place[BLOCK];
	uint32_t i = 1;

	if (n % 2 == 0) {
		place[0] = (uint32_t)draw(dice, 2);
		swap_up(x, i++, place, 1);
	}
	while (i < n) {
		uint32_t count = MIN(n - i, BLOCK);

		for (uint32_t k = 0; k < count; k += 2) {
			uint64_t range = i + k + 1ull, both = draw(dice, range * (range + 1));

			place[k] = (uint32_t)(both / (range + 1));
			place[k + 1] = (uint32_t)(both % (range + 1));
			__builtin_prefetch(&x[place[k]], 1);
			__builtin_prefetch(&x[place[k + 1]], 1);
		}
		swap_up(x, i, place, count);
		i += count;
	}
}

/* std::shuffle(x, x + n, dice) */
static void shuffle_libstdcxx(uint32_t *x, uint32_t n, struct dice *dice)
{
	enum { BLOCK = 256 };
	uint32_t place[BLOCK];

	if (n < 2)
		return;
	if (dice->is_64 || n <= UINT16_MAX) {
		shuffle_pairs(x, n, dice);
		return;
	}
	for (uint32_t i = 1; i < n;) {
		uint32_t count = MIN(n - i, BLOCK);

		for (uint32_t k = 0; k < count; k++) {
			place[k] = (uint32_t)draw(dice, i + k + 1ull);
			__builtin_prefetch(&x[place[k]], 1);
		}
		swap_up(x, i, place, count);
		i += count;
	}
}

/* Before epoch `e`, counted from 1. */
static void shuffle_epoch(const struct dali *dali, uint32_t *x, uint32_t n, uint64_t e)
{
	struct dice dice = { .is_old = dali->is_old, .is_64 = dali->has_engine_64 };

	if (dice.is_64)
		mt19937_64_seed(&dice.rng_64, SEED + (e << 32));
	else
		mt19937_seed(&dice.rng, (uint32_t)(SEED + e));
	shuffle_libstdcxx(x, n, &dice);
}

static int dali_open(struct order *order, const struct order_spec *spec,
		     const struct order_params *params, struct err *err)
{
	struct dali *dali = calloc(1, sizeof(*dali));
	uint64_t engine = order_spec_u64(spec, "engine");

	if (!dali)
		return err_set(err, -ENOMEM, "out of memory");
	order->state = dali;
	dali->has_random_shuffle = order_spec_u64(spec, "random_shuffle");
	dali->has_stick = order_spec_u64(spec, "stick_to_shard");
	dali->has_shuffle_after_epoch = order_spec_u64(spec, "shuffle_after_epoch");
	dali->has_checkpointing = order_spec_u64(spec, "checkpointing");
	dali->is_old = order_spec_u64(spec, "libstdcxx") == 10;
	dali->has_engine_64 = engine == 64;
	if (engine != 32 && engine != 64)
		return err_set(err, -EINVAL, "key \"engine\": %u is neither 32 nor 64",
			       (unsigned)engine);
	if (dali->has_shuffle_after_epoch && (dali->has_random_shuffle || dali->has_stick))
		return err_set(
			err, -EINVAL,
			"keys \"shuffle_after_epoch\" and \"%s\" exclude each other, as in DALI",
			dali->has_stick ? "stick_to_shard" : "random_shuffle");
	order->info.is_same_every_epoch =
		!dali->has_shuffle_after_epoch && (dali->has_stick || spec->world == 1);
	order->is_whole = spec->world == 1;
	/* Whoever tells the order hears of it, not the thread that computes epochs. */
	return dali->has_shuffle_after_epoch && !dali->has_checkpointing
		       ? order_replay_check(order->info.start_epoch, params->n, err)
		       : 0;
}

static int dali_common_fill(const struct order *order, uint64_t epoch, uint64_t length,
			    uint32_t *out, struct err *err)
{
	const struct dali *dali = order->state;
	struct dice once = { .is_old = dali->is_old };
	uint32_t n = (uint32_t)length;
	uint64_t e = dali->has_checkpointing ? epoch : 0;
	int rc = dali->has_shuffle_after_epoch ? order_replay_check(epoch - e, n, err) : 0;

	if (rc < 0)
		return rc;
	perm_identity(out, n);
	if (dali->has_random_shuffle) {
		mt19937_seed(&once.rng, SEED);
		shuffle_libstdcxx(out, n, &once);
	}
	for (uint64_t left = dali->has_shuffle_after_epoch ? epoch - e + 1 : 0; left > 0; left--)
		shuffle_epoch(dali, out, n, ++e);
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
		"libstdcxx(11) engine(64)" ORDER_HELP_COMMON,
	.keys = dali_keys,
	.open = dali_open,
	.common_fill = dali_common_fill,
	.rank_length = dali_rank_length,
	.rank_read = dali_rank_read,
};
