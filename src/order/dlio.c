/* SPDX-License-Identifier: Apache-2.0 */
/* The PyTorch loader of the DLIO benchmark, in its three generations.
 *
 * v0.5: the list of files is shuffled by Python's random before every epoch, what the epoch before
 *       left, with seed + epoch counted from 1; DistributedSampler shuffles again on top.
 * v1:   the list of samples is shuffled by numpy's RandomState with the same seed every epoch, what
 *       the epoch before left, and cut into blocks, one for each rank. Release 2.0.0 cuts first and
 *       shuffles each block by itself: own_block=1.
 * v2:   (2.0.1 and later) the shuffle options change nothing: each rank reads its block in
 * sequence.
 *
 * v1 repeats one permutation P, so epoch e is P^(e+1), some log2(e) squarings. v0.5 is replayed, e
 * + 1 shuffles for epoch e. DLIO's shuffle=random reseeds nothing and is no function of anything
 * here. Pure; any thread. */
#include <errno.h>
#include <string.h>

#include "order_priv.h"
#include "perm.h"
#include "turns.h"

struct dlio {
	struct turns turns; /* of v0.5; first, for turns_rank_*() */
	uint64_t seed;
	bool has_file_shuffle, has_sample_shuffle, has_seed_change, has_own_block;
};

static const struct order_key v05_keys[] = {
	{ .name = "seed", .type = ORDER_KEY_U64, .def = 123, .max = INT64_MAX },
	ORDER_KEY_ROW_WORLD,
	ORDER_KEY_ROW_RANK,
	ORDER_KEY_ROW_RANKS,
	{ .name = "file_shuffle", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = "sample_shuffle", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = "seed_change_epoch", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = NULL },
};

static const struct order_key v1_keys[] = {
	{ .name = "seed", .type = ORDER_KEY_U64, .def = 123, .max = UINT32_MAX },
	ORDER_KEY_ROW_WORLD,
	ORDER_KEY_ROW_RANK,
	ORDER_KEY_ROW_RANKS,
	{ .name = "sample_shuffle", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = "own_block", .type = ORDER_KEY_BOOL, .def = 0 },
	{ .name = NULL },
};

static const struct order_key v2_keys[] = {
	ORDER_KEY_ROW_WORLD,
	ORDER_KEY_ROW_RANK,
	ORDER_KEY_ROW_RANKS,
	{ .name = NULL },
};

static int v05_open(struct order *order, const struct order_spec *spec,
		    const struct order_params *params, struct err *err)
{
	struct dlio *dlio = calloc(1, sizeof(*dlio));

	if (!dlio)
		return err_set(err, -ENOMEM, "out of memory");
	dlio->turns = (struct turns){ .batch = 1, .world = spec->world, .tail = TURNS_TAIL_PAD };
	dlio->seed = order_spec_u64(spec, "seed");
	dlio->has_file_shuffle = order_spec_u64(spec, "file_shuffle");
	dlio->has_sample_shuffle = order_spec_u64(spec, "sample_shuffle");
	dlio->has_seed_change = order_spec_u64(spec, "seed_change_epoch");
	order->state = dlio;
	order->info.is_same_every_epoch = !dlio->has_file_shuffle && !dlio->has_sample_shuffle;
	/* Whoever tells the order hears of it, not the thread that computes epochs. */
	return dlio->has_file_shuffle ? order_replay_check(order->info.start_epoch, params->n, err)
				      : 0;
}

/* 0..n-1 after the shuffles of epochs 1..epoch+1. */
static void v05_files(const struct dlio *dlio, uint64_t epoch, uint32_t n, uint32_t *file)
{
	struct mt19937 rng;

	perm_identity(file, n);
	for (uint64_t e = 1; dlio->has_file_shuffle && e <= epoch + 1; e++) {
		uint64_t seed = dlio->seed + (dlio->has_seed_change ? e : 0);
		const uint32_t key[] = { (uint32_t)seed, (uint32_t)(seed >> 32) };

		mt19937_seed_key(&rng, key, key[1] ? 2 : 1);
		shuffle_python(file, n, &rng);
	}
}

static int v05_common_fill(const struct order *order, uint64_t epoch, uint64_t length,
			   uint32_t *out, struct err *err)
{
	const struct dlio *dlio = order->state;
	uint32_t *file AUTO_FREE = NULL;
	uint32_t n = (uint32_t)length;
	struct mt19937 rng;
	int rc = dlio->has_file_shuffle ? order_replay_check(epoch, n, err) : 0;

	if (rc < 0)
		return rc;
	if (!dlio->has_sample_shuffle) {
		v05_files(dlio, epoch, n, out);
		return 0;
	}
	file = order_alloc_u32(n);
	if (!file)
		return err_set(err, -ENOMEM, "out of memory");
	v05_files(dlio, epoch, n, file);
	mt19937_seed(&rng, (uint32_t)(dlio->seed + epoch + 1));
	perm_torch(out, n, true, &rng);
	for (uint32_t i = 0; i < n; i++)
		out[i] = file[out[i]];
	return 0;
}

/* Rank's block of the list: [start, start + length). */
struct block {
	uint64_t start, length;
};

/* In v1 the blocks are rounded down and the rest is left out; own_block and v2 round up and the
 * last blocks are short. */
static struct block block_of(const struct order *order, uint64_t rank)
{
	const struct dlio *dlio = order->state;
	uint64_t n = order->info.n, world = order->info.world;
	uint64_t each = dlio->has_own_block ? DIV_ROUND_UP(n, world) : n / world;
	uint64_t start = MIN(rank * each, n);

	return (struct block){ start, MIN(each, n - start) };
}

static int blocks_open(struct order *order, const struct order_spec *spec,
		       const struct order_params *params, struct err *err)
{
	struct dlio *dlio = calloc(1, sizeof(*dlio));

	if (!dlio)
		return err_set(err, -ENOMEM, "out of memory");
	dlio->has_own_block = true;
	order->state = dlio;
	order->info.is_same_every_epoch = true;
	return 0;
}

static int v1_open(struct order *order, const struct order_spec *spec,
		   const struct order_params *params, struct err *err)
{
	struct dlio *dlio;
	int rc = blocks_open(order, spec, params, err);

	if (rc < 0)
		return rc;
	dlio = order->state;
	dlio->seed = order_spec_u64(spec, "seed");
	dlio->has_sample_shuffle = order_spec_u64(spec, "sample_shuffle");
	dlio->has_own_block = order_spec_u64(spec, "own_block");
	order->info.is_same_every_epoch = !dlio->has_sample_shuffle;
	return 0;
}

/* out[i] = p applied 1 + more times to i, by squaring p, which it destroys; `room` is as large.
 * Each step reads all over an array, but no read waits for another as they would along a cycle. */
static void power(uint32_t *p, uint32_t n, uint64_t more, uint32_t *room, uint32_t *out)
{
	memcpy(out, p, n * sizeof(*p));
	while (more > 0) {
		uint32_t *square = room;

		for (uint32_t i = 0; more & 1 && i < n; i++)
			out[i] = p[out[i]];
		more >>= 1;
		for (uint32_t i = 0; more > 0 && i < n; i++)
			square[i] = p[p[i]];
		room = p;
		p = square;
	}
}

/* out[0..n) = base + P^(1 + epoch) of 0..n-1; room holds 2n numbers. */
static void v1_shuffle(const struct dlio *dlio, uint64_t epoch, struct block block, uint32_t *room,
		       uint32_t *out)
{
	uint32_t n = (uint32_t)block.length;
	struct mt19937 rng;

	mt19937_seed(&rng, (uint32_t)dlio->seed);
	perm_identity(room, n);
	shuffle_numpy_mt19937(room, n, &rng);
	power(room, n, epoch, room + n, out);
	for (uint32_t i = 0; i < n; i++)
		out[i] += (uint32_t)block.start;
}

static int v1_common_fill(const struct order *order, uint64_t epoch, uint64_t length, uint32_t *out,
			  struct err *err)
{
	const struct dlio *dlio = order->state;
	uint64_t longest = dlio->has_own_block ? block_of(order, 0).length : length;
	uint32_t *room AUTO_FREE = NULL;

	if (!dlio->has_sample_shuffle) {
		perm_identity(out, (uint32_t)length);
		return 0;
	}
	room = order_alloc_u32(2 * longest);
	if (!room)
		return err_set(err, -ENOMEM, "out of memory");
	if (!dlio->has_own_block) {
		v1_shuffle(dlio, epoch, (struct block){ 0, length }, room, out);
		return 0;
	}
	for (uint64_t rank = 0; rank < order->info.world; rank++) {
		struct block block = block_of(order, rank);

		if (block.length == 0)
			break;
		v1_shuffle(dlio, epoch, block, room, out + block.start);
	}
	return 0;
}

static int v2_common_fill(const struct order *order, uint64_t epoch, uint64_t length, uint32_t *out,
			  struct err *err)
{
	perm_identity(out, (uint32_t)length);
	return 0;
}

static uint64_t block_rank_length(const struct order *order, uint64_t epoch, uint64_t length,
				  uint64_t rank)
{
	return block_of(order, rank).length;
}

static void block_rank_read(const struct order *order, const struct order_span *common,
			    uint64_t rank, uint64_t from, uint32_t count, uint32_t *out)
{
	uint64_t start = block_of(order, rank).start + from;

	for (uint32_t i = 0; i < count; i++)
		out[i] = common->sample[start + i];
}

const struct order_kind order_kind_dlio_v05 = {
	.help = "DLIO 0.5, PyTorch loader; keys: seed(123) world(1) rank or ranks=0-3+6(all) "
		"file_shuffle(1) sample_shuffle(1) seed_change_epoch(1)" ORDER_HELP_COMMON,
	.keys = v05_keys,
	.open = v05_open,
	.common_fill = v05_common_fill,
	.rank_length = turns_rank_length,
	.rank_read = turns_rank_read,
};

const struct order_kind order_kind_dlio_v1 = {
	.help = "DLIO 1.0 to 2.0.0, PyTorch loader; keys: seed(123) world(1) rank or "
		"ranks=0-3+6(all) sample_shuffle(1) own_block(0)" ORDER_HELP_COMMON,
	.keys = v1_keys,
	.open = v1_open,
	.common_fill = v1_common_fill,
	.rank_length = block_rank_length,
	.rank_read = block_rank_read,
};

const struct order_kind order_kind_dlio_v2 = {
	.help = "DLIO 2.0.1 and later, PyTorch loader: each rank its block, not shuffled; keys: "
		"world(1) rank or ranks=0-3+6(all)" ORDER_HELP_COMMON,
	.keys = v2_keys,
	.open = blocks_open,
	.common_fill = v2_common_fill,
	.rank_length = block_rank_length,
	.rank_read = block_rank_read,
};
