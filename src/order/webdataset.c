/* SPDX-License-Identifier: Apache-2.0 */
/* WebDataset's shard order; the samples of this kind are the shards, since each tar is read from
 * front to back. Rank R of W takes shards R, R+W, ... (split_by_node), its worker w of k every k-th
 * of those (split_by_worker), and each worker shuffles its own through a buffer with a Python
 * generator of the same seed. The workers of a rank run side by side: the rank's sequence is the
 * first shard of each worker, then the second of each, and so on.
 *
 * The shuffle without detshuffle starts from the same seed in every epoch. With detshuffle the
 * seed is seed + epoch, but the counter lives in the worker, so it starts over unless the workers
 * persist or there are none.
 *
 * Without seed= WebDataset draws one per process: announce it. Pure; any thread. */
#include <errno.h>
#include <string.h>

#include "order_priv.h"
#include "perm.h"

#define INITIAL 100 /* webdataset's default: shards in the buffer before the first is taken */

struct webdataset {
	uint64_t seed, buffer, workers;
	bool adds_epoch;
};

static const struct order_key webdataset_keys[] = {
	{ .name = "seed", .type = ORDER_KEY_U64, .is_required = true, .max = UINT64_MAX },
	{ .name = "shardshuffle", .type = ORDER_KEY_U64, .is_required = true, .max = UINT32_MAX },
	ORDER_KEY_ROW_WORLD,
	ORDER_KEY_ROW_RANK,
	ORDER_KEY_ROW_RANKS,
	{ .name = "detshuffle", .type = ORDER_KEY_BOOL, .def = 0 },
	{ .name = "persistent", .type = ORDER_KEY_BOOL, .def = 0 },
	{ .name = NULL },
};

static int webdataset_open(struct order *order, const struct order_spec *spec,
			   const struct order_params *params, struct err *err)
{
	struct webdataset *wds = calloc(1, sizeof(*wds));

	if (!wds)
		return err_set(err, -ENOMEM, "out of memory");
	wds->seed = order_spec_u64(spec, "seed");
	wds->buffer = order_spec_u64(spec, "shardshuffle");
	wds->workers = MAX(order->info.workers, 1);
	wds->adds_epoch = order_spec_u64(spec, "detshuffle") &&
			  (order->info.workers == 0 || order_spec_u64(spec, "persistent"));
	order->state = wds;
	order->info.is_same_every_epoch = !wds->adds_epoch;
	return 0;
}

/* random.Random(seed), seed >= 0: all words of the number, at least one. */
static void seed_python(struct mt19937 *rng, unsigned __int128 seed)
{
	const uint32_t key[] = { (uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)(seed >> 64) };

	mt19937_seed_key(rng, key, key[2] ? 3 : key[1] ? 2 : 1);
}

/* random.randint(0, n - 1), 0 < n < 2^32 */
static uint32_t random_below(struct mt19937 *rng, uint32_t n)
{
	uint32_t r;

	do
		r = mt19937_u32(rng) >> __builtin_clz(n);
	while (r >= n);
	return r;
}

/* Takes a shard out of the buffer. */
static uint32_t pick(uint32_t *buf, uint32_t *n, struct mt19937 *rng)
{
	uint32_t k = random_below(rng, *n);
	uint32_t taken = buf[k];

	buf[k] = buf[--*n];
	return taken;
}

/* Shards first, first + step, ...: what one worker owns. */
struct owned {
	uint64_t first, step, count;
};

/* An owner's shards through the buffer to out[0], out[workers], ... The buffer grows by two shards
 * for each one taken until it is full. */
static void shuffle_buffered(const struct webdataset *wds, const struct owned *own,
			     struct mt19937 *rng, uint32_t *buf, uint32_t *out)
{
	uint64_t initial = MIN(wds->buffer, INITIAL), next = 0;
	uint32_t n = 0;

	while (next < own->count) {
		buf[n++] = (uint32_t)(own->first + next++ * own->step);
		if (n < wds->buffer && next < own->count)
			buf[n++] = (uint32_t)(own->first + next++ * own->step);
		if (n >= initial) {
			*out = pick(buf, &n, rng);
			out += wds->workers;
		}
	}
	while (n > 0) {
		*out = pick(buf, &n, rng);
		out += wds->workers;
	}
}

static uint64_t rank_start(const struct order *order, uint64_t rank)
{
	uint64_t n = order->info.n, world = order->info.world;

	return n / world * rank + MIN(rank, n % world);
}

static uint64_t webdataset_rank_length(const struct order *order, uint64_t epoch, uint64_t length,
				       uint64_t rank)
{
	return rank_start(order, rank + 1) - rank_start(order, rank);
}

static int webdataset_common_fill(const struct order *order, uint64_t epoch, uint64_t length,
				  uint32_t *out, struct err *err)
{
	const struct webdataset *wds = order->state;
	uint64_t world = order->info.world, longest = DIV_ROUND_UP(length, world);
	uint32_t *buf AUTO_FREE = order_alloc_u32(DIV_ROUND_UP(longest, wds->workers) + 1);
	struct mt19937 seeded, rng;

	if (!buf)
		return err_set(err, -ENOMEM, "out of memory");
	seed_python(&seeded, (unsigned __int128)wds->seed + (wds->adds_epoch ? epoch : 0));
	for (uint64_t rank = 0; rank < MIN(world, length); rank++) {
		uint64_t n = webdataset_rank_length(order, epoch, length, rank);

		for (uint64_t worker = 0; worker < MIN(wds->workers, n); worker++) {
			const struct owned own = {
				.first = rank + worker * world,
				.step = world * wds->workers,
				.count = DIV_ROUND_UP(n - worker, wds->workers),
			};

			rng = seeded;
			shuffle_buffered(wds, &own, &rng, buf,
					 out + rank_start(order, rank) + worker);
		}
	}
	return 0;
}

static void webdataset_rank_read(const struct order *order, const struct order_span *common,
				 uint64_t rank, uint64_t from, uint32_t count, uint32_t *out)
{
	memcpy(out, common->sample + rank_start(order, rank) + from, count * sizeof(*out));
}

const struct order_kind order_kind_webdataset = {
	.help = "WebDataset's shards (the samples are the tars) with split_by_node; keys: seed "
		"shardshuffle world(1) rank or ranks=0-3+6(all) detshuffle(0) "
		"persistent(0)" ORDER_HELP_COMMON,
	.keys = webdataset_keys,
	.numbers = ORDER_NUMBERS_SHARDS,
	.open = webdataset_open,
	.common_fill = webdataset_common_fill,
	.rank_length = webdataset_rank_length,
	.rank_read = webdataset_rank_read,
};
