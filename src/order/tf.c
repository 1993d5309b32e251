/* SPDX-License-Identifier: Apache-2.0 */
/* tf.data's shuffle, and list_files, which sorts the files and shuffles them with a buffer for all.
 * Elements go through a buffer: while it is not full it is filled, then a random one of it is
 * taken. The generator is Philox, with two seeds (rng_philox.c); an iterator that reshuffles takes
 * its two seeds from a generator of that kind, two words for each iteration, the first one
 * included. So any epoch is reached directly.
 *
 * The pair of seeds comes from shuffle(seed=) and tf.random.set_seed. Without seed= it depends on
 * what else the program made before, or on nothing at all: announce it. Pure; any thread. */
#include <errno.h>

#include "order_priv.h"
#include "perm.h"
#include "rng_philox.h"
#include "turns.h"

#define SEED_MAX INT32_MAX /* tf takes seeds modulo this */
#define GRAPH_SEED 87654321
#define NOT_GIVEN UINT64_MAX

struct tf {
	struct turns turns; /* first, for turns_rank_*() */
	uint32_t seed, seed2;
	uint64_t buffer; /* 0: as large as the dataset */
	bool has_reshuffle;
};

#define KEYS_OF_SEEDS                                                                              \
	{ .name = "seed", .type = ORDER_KEY_U64, .is_required = true, .max = INT64_MAX },          \
	{                                                                                          \
		.name = "global_seed", .type = ORDER_KEY_U64, .def = NOT_GIVEN, .max = INT64_MAX   \
	}

static const struct order_key shuffle_keys[] = {
	KEYS_OF_SEEDS,
	{ .name = "buffer",
	  .type = ORDER_KEY_U64,
	  .is_required = true,
	  .min = 1,
	  .max = INT64_MAX },
	{ .name = "reshuffle_each_iteration", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = NULL },
};

static const struct order_key list_files_keys[] = {
	KEYS_OF_SEEDS,       ORDER_KEY_ROW_WORLD, ORDER_KEY_ROW_RANK,
	ORDER_KEY_ROW_RANKS, { .name = NULL },
};

static int tf_new(struct order *order, const struct order_spec *spec, struct err *err)
{
	struct tf *tf = calloc(1, sizeof(*tf));
	uint64_t global = order_spec_u64(spec, "global_seed");

	if (!tf)
		return err_set(err, -ENOMEM, "out of memory");
	tf->seed = global == NOT_GIVEN ? GRAPH_SEED : (uint32_t)(global % SEED_MAX);
	tf->seed2 = (uint32_t)(order_spec_u64(spec, "seed") % SEED_MAX);
	if (tf->seed == 0 && tf->seed2 == 0)
		tf->seed2 = SEED_MAX; /* two zeros would mean a random seed */
	tf->has_reshuffle = true;
	order->state = tf;
	return 0;
}

static int shuffle_open(struct order *order, const struct order_spec *spec,
			const struct order_params *params, struct err *err)
{
	struct tf *tf;
	int rc = tf_new(order, spec, err);

	if (rc < 0)
		return rc;
	tf = order->state;
	tf->buffer = order_spec_u64(spec, "buffer");
	tf->has_reshuffle = order_spec_u64(spec, "reshuffle_each_iteration");
	order->info.is_same_every_epoch = !tf->has_reshuffle;
	return 0;
}

static int list_files_open(struct order *order, const struct order_spec *spec,
			   const struct order_params *params, struct err *err)
{
	int rc = tf_new(order, spec, err);

	if (rc < 0)
		return rc;
	((struct tf *)order->state)->turns =
		(struct turns){ .batch = 1, .world = spec->world, .tail = TURNS_TAIL_UNEVEN };
	order->info.is_same_every_epoch = false;
	order->is_whole = spec->world == 1;
	return 0;
}

/* The buffer holds everything: swap each place with a later one. */
static void shuffle_whole(uint32_t *out, uint32_t n, struct philox *rng)
{
	enum { BLOCK = 256 };
	uint32_t place[BLOCK];

	perm_identity(out, n);
	for (uint32_t i = 0; i < n;) {
		uint32_t count = MIN(n - i, BLOCK);

		for (uint32_t k = 0; k < count; k++) {
			place[k] = i + k + philox_u32(rng) % (n - i - k);
			__builtin_prefetch(&out[place[k]], 1);
		}
		for (uint32_t k = 0; k < count; k++, i++) {
			uint32_t taken = out[i];

			out[i] = out[place[k]];
			out[place[k]] = taken;
		}
	}
}

/* Element i enters at place i % size; `size` < n elements are in the ring until the last have
 * entered. */
static void shuffle_ring(uint32_t *out, uint32_t n, uint32_t *ring, uint32_t size,
			 struct philox *rng)
{
	perm_identity(ring, size);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t held = MIN(size, n - i), first = i % size;
		uint32_t at = (uint32_t)((i + (uint64_t)(philox_u32(rng) % held)) % size);

		out[i] = ring[at];
		ring[at] = ring[first];
		ring[first] = i + size; /* behind n it is never looked at */
	}
}

static int tf_common_fill(const struct order *order, uint64_t epoch, uint64_t length, uint32_t *out,
			  struct err *err)
{
	const struct tf *tf = order->state;
	uint32_t *ring AUTO_FREE = NULL;
	uint64_t seed = tf->seed, seed2 = tf->seed2;
	struct philox rng;

	if (tf->has_reshuffle) {
		philox_init(&rng, seed, seed2, 2 * epoch);
		seed = philox_u32(&rng);
		seed2 = philox_u32(&rng);
	}
	philox_init(&rng, seed, seed2, 0);
	if (tf->buffer == 0 || tf->buffer >= length) {
		shuffle_whole(out, (uint32_t)length, &rng);
		return 0;
	}
	ring = order_alloc_u32(tf->buffer);
	if (!ring)
		return err_set(err, -ENOMEM, "out of memory for a buffer of %lu samples",
			       (unsigned long)tf->buffer);
	shuffle_ring(out, (uint32_t)length, ring, (uint32_t)tf->buffer, &rng);
	return 0;
}

const struct order_kind order_kind_tf_shuffle = {
	.help = "tf.data.Dataset.shuffle(buffer, seed) of the samples in sequence; keys: seed "
		"global_seed(none) buffer reshuffle_each_iteration(1)" ORDER_HELP_COMMON,
	.keys = shuffle_keys,
	.open = shuffle_open,
	.common_fill = tf_common_fill,
};

const struct order_kind order_kind_tf_list_files = {
	.help = "tf.data.Dataset.list_files(seed=), with several ranks then .shard(world, rank); "
		"keys: seed global_seed(none) world(1) rank or ranks=0-3+6(all)" ORDER_HELP_COMMON,
	.keys = list_files_keys,
	.numbers = ORDER_NUMBERS_SHARDS,
	.open = list_files_open,
	.common_fill = tf_common_fill,
	.rank_length = turns_rank_length,
	.rank_read = turns_rank_read,
};
