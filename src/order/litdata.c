/* SPDX-License-Identifier: Apache-2.0 */
/* litdata's StreamingDataset with FullShuffle, as 0.2.76 has it (older releases seed the shuffle
 * within a chunk otherwise: list those). Chunks are permuted; their items then form one stream that
 * is dealt out to the workers of all ranks, each a piece of it, counted in batches; a worker
 * shuffles what it has of a chunk in blocks of item_window items. A rank's batches come from its
 * workers in turn. With several nodes the first epoch's dealing decides which chunks a node has
 * touched, and in later epochs each node permutes and deals out just those, whole, to its ranks
 * (node_fits=0: the cache is too small for a node's chunks, and every epoch is dealt anew).
 *
 * All generators are numpy's RandomState seeded with a list of numbers. Epochs count from 1 there.
 * The common sequence is that of all ranks, one behind the other. Pure; any thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "order_priv.h"
#include "perm.h"
#include "sizes.h"

#define DROP_LAST_AUTO 2 /* litdata drops the rest when there are several ranks */

struct litdata {
	uint32_t seed;
	uint64_t batch, workers, nodes, ranks_per_node, item_window;
	bool is_shuffled, has_drop_last, has_node_fits;
	struct order_sizes chunks;
	uint32_t *begin; /* [chunks.n] first item of each chunk */
	/* With several nodes: what each node touches in the first epoch. */
	uint32_t *first;       /* [chunks.n] the first epoch's permutation of the chunks */
	uint32_t *node_first;  /* [nodes] index into `first` */
	uint32_t *node_chunks; /* [nodes] how many from there */
	uint64_t *node_items;  /* [nodes] items in them */
	uint64_t *node_start;  /* [nodes + 1] where a node's part of the common sequence starts */
};

/* Items dealt out: `n` of them to `world` ranks. Each rank has a number of batches, its first
 * workers one more than the others, and the last rank what is left over. */
struct deal {
	uint64_t n, world, workers, batch, per_rank; /* per_rank: batches */
	bool has_drop_last;
};

static const struct order_key litdata_keys[] = {
	{ .name = "seed", .type = ORDER_KEY_U64, .def = 42, .max = UINT32_MAX },
	{ .name = "shards", .type = ORDER_KEY_TEXT },
	ORDER_KEY_ROW_WORLD,
	ORDER_KEY_ROW_RANK,
	ORDER_KEY_ROW_RANKS,
	{ .name = "nodes", .type = ORDER_KEY_U64, .def = 1, .min = 1, .max = ORDER_WORLD_MAX },
	{ .name = "shuffle", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = "drop_last", .type = ORDER_KEY_BOOL, .def = DROP_LAST_AUTO },
	{ .name = "item_window", .type = ORDER_KEY_U64, .def = 256, .max = UINT32_MAX },
	{ .name = "node_fits", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = NULL },
};

static struct deal deal_of(const struct litdata *l, uint64_t n, uint64_t world)
{
	return (struct deal){
		.n = n,
		.world = world,
		.workers = l->workers,
		.batch = l->batch,
		.per_rank = n / l->batch / world,
		.has_drop_last = l->has_drop_last,
	};
}

/* The first item of a rank; rank == world: behind the last that is dealt out. */
static uint64_t deal_rank(const struct deal *d, uint64_t rank)
{
	return rank == d->world && !d->has_drop_last ? d->n : rank * d->per_rank * d->batch;
}

/* The items of a rank's worker. */
static uint64_t deal_worker(const struct deal *d, uint64_t rank, uint64_t worker)
{
	uint64_t more = d->per_rank % d->workers;
	uint64_t items = (d->per_rank / d->workers + (worker < more)) * d->batch;

	if (rank == d->world - 1 && worker == more)
		items += deal_rank(d, d->world) - d->world * d->per_rank * d->batch;
	return items;
}

/* numpy.random.RandomState([a, b, ...]) */
#define RANDOM_STATE(rng, ...)                                                                     \
	mt19937_seed_key((rng), (const uint32_t[]){ __VA_ARGS__ },                                 \
			 sizeof((const uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t))

/* Room for shuffling what a worker has of a chunk. */
struct room {
	uint32_t *item, *block; /* [largest chunk] */
};

/* Items [0, n) of `x`: blocks are shuffled within themselves, then with each other. */
static void shuffle_items(const struct litdata *l, struct room *room, uint32_t n, uint32_t *x,
			  struct mt19937 *rng)
{
	uint32_t window = (uint32_t)l->item_window, blocks = DIV_ROUND_UP(n, MAX(window, 1)),
		 at = 0;

	if (n < 2)
		return;
	if (window <= 1) {
		shuffle_numpy_mt19937(x, n, rng);
		return;
	}
	for (uint32_t i = 0; i < blocks; i++)
		shuffle_numpy_mt19937(x + (uint64_t)i * window,
				      (uint32_t)MIN(window, n - (uint64_t)i * window), rng);
	if (blocks < 2)
		return;
	perm_identity(room->block, blocks);
	shuffle_numpy_mt19937(room->block, blocks, rng);
	memcpy(room->item, x, n * sizeof(*x));
	for (uint32_t i = 0; i < blocks; i++) {
		uint64_t from = (uint64_t)room->block[i] * window;
		uint32_t size = (uint32_t)MIN(window, n - from);

		memcpy(x + at, room->item + from, size * sizeof(*x));
		at += size;
	}
}

/* Where the stream of the chunks stands. */
struct cursor {
	const uint32_t *chunk; /* the next one, or the one that is begun */
	uint32_t used;         /* items of it already taken */
};

/* The next n items of the stream, as a worker shuffles them, to out. */
static void take_items(const struct litdata *l, uint64_t epoch, struct cursor *c, uint64_t n,
		       struct room *room, uint32_t *out)
{
	struct mt19937 rng;

	while (n > 0) {
		uint32_t chunk = *c->chunk;
		uint32_t size = (uint32_t)MIN(l->chunks.size[chunk] - c->used, n);

		for (uint32_t i = 0; i < size; i++)
			out[i] = l->begin[chunk] + c->used + i;
		if (l->is_shuffled) {
			RANDOM_STATE(&rng, l->seed, l->chunks.n, (uint32_t)epoch, chunk);
			shuffle_items(l, room, size, out, &rng);
		}
		c->used += size;
		if (c->used == l->chunks.size[chunk]) {
			c->chunk++;
			c->used = 0;
		}
		out += size;
		n -= size;
	}
}

/* Deals a stream out, each rank's items in the sequence its loader takes them: a batch of each
 * worker in turn. A worker's items are a piece of the stream, so its j-th batch lies at a known
 * place; workers differ by a batch and the rest. */
static int deal_fill(const struct litdata *l, const struct deal *d, uint64_t epoch,
		     const uint32_t *chunk, uint32_t *out, struct err *err)
{
	struct cursor cursor = { .chunk = chunk };
	uint64_t most = deal_rank(d, d->world) - deal_rank(d, d->world - 1), largest = 0;
	uint32_t *items AUTO_FREE = order_alloc_u32(most);
	uint32_t *spare AUTO_FREE = NULL;
	struct room room;

	for (uint32_t i = 0; i < l->chunks.n; i++)
		largest = MAX(largest, l->chunks.size[i]);
	spare = order_alloc_u32(2 * largest);
	if (!items || !spare)
		return err_set(err, -ENOMEM, "out of memory");
	room = (struct room){ spare, spare + largest };
	for (uint64_t rank = 0; rank < d->world; rank++) {
		uint64_t length = deal_rank(d, rank + 1) - deal_rank(d, rank);
		uint64_t at = 0, active = MIN(d->workers, length);

		for (uint64_t worker = 0; worker < active; worker++) {
			uint64_t n = deal_worker(d, rank, worker);

			take_items(l, epoch, &cursor, n, &room, items + at);
			at += n;
		}
		for (uint64_t round = 0; length > 0; round++) {
			at = 0;
			for (uint64_t worker = 0; worker < active; worker++) {
				uint64_t n = deal_worker(d, rank, worker), from = round * d->batch;
				uint64_t size = from < n ? MIN(d->batch, n - from) : 0;

				memcpy(out, items + at + from, size * sizeof(*out));
				out += size;
				length -= size;
				at += n;
			}
		}
	}
	return 0;
}

/* RandomState([seed, epoch]).permutation of all chunks, epoch counted from 1. */
static void permute_chunks(const struct litdata *l, uint64_t epoch, uint32_t *chunk)
{
	struct mt19937 rng;

	perm_identity(chunk, l->chunks.n);
	if (!l->is_shuffled)
		return;
	RANDOM_STATE(&rng, l->seed, (uint32_t)epoch);
	shuffle_numpy_mt19937(chunk, l->chunks.n, &rng);
}

/* Which chunks a node touches in the first epoch: neighbours in its permutation. */
static void nodes_fill(struct litdata *l, uint64_t n)
{
	const struct deal d = deal_of(l, n, l->nodes * l->ranks_per_node);
	struct deal own;
	uint64_t passed = 0;
	uint32_t at = 0;

	permute_chunks(l, 1, l->first);
	for (uint64_t node = 0; node < l->nodes; node++) {
		uint64_t from = deal_rank(&d, node * l->ranks_per_node);
		uint64_t to = deal_rank(&d, (node + 1) * l->ranks_per_node), items = 0;
		uint32_t last;

		while (at < l->chunks.n && passed + l->chunks.size[l->first[at]] <= from)
			passed += l->chunks.size[l->first[at++]];
		for (last = at; last < l->chunks.n && passed + items < to && from < to; last++)
			items += l->chunks.size[l->first[last]];
		l->node_first[node] = at;
		l->node_chunks[node] = last - at;
		l->node_items[node] = items;
		own = deal_of(l, items, l->ranks_per_node);
		l->node_start[node + 1] = l->node_start[node] + deal_rank(&own, own.world);
	}
}

static int litdata_alloc(struct litdata *l, struct err *err)
{
	uint32_t begin = 0;

	l->begin = order_alloc_u32(l->chunks.n);
	l->first = order_alloc_u32(l->chunks.n);
	l->node_first = order_alloc_u32(l->nodes);
	l->node_chunks = order_alloc_u32(l->nodes);
	l->node_items = calloc(l->nodes, sizeof(*l->node_items));
	l->node_start = calloc(l->nodes + 1, sizeof(*l->node_start));
	if (!l->begin || !l->first || !l->node_first || !l->node_chunks || !l->node_items ||
	    !l->node_start)
		return err_set(err, -ENOMEM, "out of memory for %u chunks", l->chunks.n);
	for (uint32_t i = 0; i < l->chunks.n; i++) {
		l->begin[i] = begin;
		begin += l->chunks.size[i];
	}
	return 0;
}

static int litdata_open(struct order *order, const struct order_spec *spec,
			const struct order_params *params, struct err *err)
{
	struct litdata *l = calloc(1, sizeof(*l));
	uint64_t drop_last = order_spec_u64(spec, "drop_last");
	int rc;

	if (!l)
		return err_set(err, -ENOMEM, "out of memory");
	order->state = l;
	l->nodes = order_spec_u64(spec, "nodes");
	if (spec->world % l->nodes)
		return err_set(err, -EINVAL,
			       "a world of %" PRIu64 " ranks does not divide into %" PRIu64
			       " nodes (keys \"world\", \"nodes\")",
			       spec->world, l->nodes);
	l->ranks_per_node = spec->world / l->nodes;
	l->seed = (uint32_t)order_spec_u64(spec, "seed");
	l->batch = MAX(order->info.batch, 1);
	l->workers = MAX(order->info.workers, 1);
	l->item_window = order_spec_u64(spec, "item_window");
	l->is_shuffled = order_spec_u64(spec, "shuffle");
	l->has_node_fits = order_spec_u64(spec, "node_fits");
	l->has_drop_last = drop_last == DROP_LAST_AUTO ? spec->world > 1 : drop_last;
	order->info.is_same_every_epoch = !l->is_shuffled;
	rc = order_sizes_of_shards(order_spec_path(spec, "shards"), order, &l->chunks, err);
	if (rc == 0)
		rc = litdata_alloc(l, err);
	if (rc == 0)
		nodes_fill(l, params->n);
	return rc;
}

static void litdata_close(struct order *order)
{
	struct litdata *l = order->state;

	if (!l)
		return;
	free(l->chunks.size);
	free(l->begin);
	free(l->first);
	free(l->node_first);
	free(l->node_chunks);
	free(l->node_items);
	free(l->node_start);
	free(l);
}

/* Does every node deal out its own chunks in this epoch (counted from 0)? */
static bool is_by_node(const struct litdata *l, uint64_t epoch)
{
	return l->nodes > 1 && l->is_shuffled && l->has_node_fits && epoch > 0;
}

/* Where a rank's part of the common sequence starts; rank == world: its length. */
static uint64_t rank_start(const struct order *order, uint64_t epoch, uint64_t rank)
{
	const struct litdata *l = order->state;
	uint64_t node = rank / l->ranks_per_node;
	struct deal d;

	if (!is_by_node(l, epoch)) {
		d = deal_of(l, order->info.n, order->info.world);
		return deal_rank(&d, rank);
	}
	if (rank % l->ranks_per_node == 0)
		return l->node_start[node];
	d = deal_of(l, l->node_items[node], l->ranks_per_node);
	return l->node_start[node] + deal_rank(&d, rank % l->ranks_per_node);
}

static int litdata_common_length(const struct order *order, uint64_t epoch, uint64_t *ret,
				 struct err *err)
{
	*ret = rank_start(order, epoch, order->info.world);
	return 0;
}

static int litdata_common_fill(const struct order *order, uint64_t epoch, uint64_t length,
			       uint32_t *out, struct err *err)
{
	const struct litdata *l = order->state;
	uint32_t *chunk AUTO_FREE = order_alloc_u32(l->chunks.n);
	struct deal d = deal_of(l, order->info.n, order->info.world);
	struct mt19937 rng;
	int rc = 0;

	if (!chunk)
		return err_set(err, -ENOMEM, "out of memory");
	if (!is_by_node(l, epoch)) {
		permute_chunks(l, epoch + 1, chunk);
		return deal_fill(l, &d, epoch + 1, chunk, out, err);
	}
	for (uint64_t node = 0; rc == 0 && node < l->nodes; node++) {
		memcpy(chunk, l->first + l->node_first[node],
		       l->node_chunks[node] * sizeof(*chunk));
		RANDOM_STATE(&rng, l->seed, (uint32_t)(epoch + 1), (uint32_t)node);
		shuffle_numpy_mt19937(chunk, l->node_chunks[node], &rng);
		d = deal_of(l, l->node_items[node], l->ranks_per_node);
		rc = deal_fill(l, &d, epoch + 1, chunk, out + l->node_start[node], err);
	}
	return rc;
}

static uint64_t litdata_rank_length(const struct order *order, uint64_t epoch, uint64_t length,
				    uint64_t rank)
{
	return rank_start(order, epoch, rank + 1) - rank_start(order, epoch, rank);
}

static void litdata_rank_read(const struct order *order, const struct order_span *common,
			      uint64_t rank, uint64_t from, uint32_t count, uint32_t *out)
{
	memcpy(out, common->sample + rank_start(order, common->epoch, rank) + from,
	       count * sizeof(*out));
}

const struct order_kind order_kind_litdata = {
	.help = "litdata's StreamingDataset; keys: seed(42) shards(those of the table of records) "
		"world(1) rank or ranks=0-3+6(all) nodes(1) shuffle(1) drop_last(0, 1 with several ranks) "
		"item_window(256) node_fits(1)" ORDER_HELP_COMMON,
	.keys = litdata_keys,
	.numbers = ORDER_NUMBERS_RECORDS,
	.records_of = "chunks of litdata",
	.records_by = "clairfs index --records litdata",
	.open = litdata_open,
	.close = litdata_close,
	.common_length = litdata_common_length,
	.common_fill = litdata_common_fill,
	.rank_length = litdata_rank_length,
	.rank_read = litdata_rank_read,
};
