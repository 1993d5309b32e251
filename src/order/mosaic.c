/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of MosaicML Streaming, one for each shuffle_algo. The common sequence is the shuffle of
 * an epoch; a rank reads the places of it that get_partitions gives its workers. The defaults are
 * those of StreamingDataset: as many canonical nodes as nodes (64 times as many for py1s and py2s),
 * and a block of 4 million samples over the canonical nodes, at least 2^18.
 *
 * One stream that is read once per epoch: proportions, repeats and choose draw further numbers and
 * are not here, nor is a resumption on another number of nodes. List those. Pure; any thread. */
#include <errno.h>
#include <inttypes.h>

#include "mosaic.h"
#include "order_priv.h"

#define NODES_MAX 65536
#define CANONICAL_MAX ((uint64_t)64 * NODES_MAX)
#define BLOCK_MAX ((uint64_t)1 << 31) /* its draws fit 32 bits */

struct mosaic {
	struct mosaic_shuffle shuffle;
	struct mosaic_partition partition;
	bool is_shuffled;
};

#define KEYS                                                                                       \
	{                                                                                          \
		{ .name = "seed", .type = ORDER_KEY_U64, .def = 9176, .max = UINT64_MAX },         \
			{ .name = "shards", .type = ORDER_KEY_TEXT },                              \
			{ .name = "canonical_nodes",                                               \
			  .type = ORDER_KEY_U64,                                                   \
			  .min = 1,                                                                \
			  .max = CANONICAL_MAX },                                                  \
			{ .name = "block", .type = ORDER_KEY_U64, .min = 2, .max = BLOCK_MAX },    \
			ORDER_KEY_ROW_WORLD, ORDER_KEY_ROW_RANK, ORDER_KEY_ROW_RANKS,              \
			{ .name = "nodes",                                                         \
			  .type = ORDER_KEY_U64,                                                   \
			  .def = 1,                                                                \
			  .min = 1,                                                                \
			  .max = NODES_MAX },                                                      \
			{ .name = "shuffle", .type = ORDER_KEY_BOOL, .def = 1 },                   \
		{                                                                                  \
			.name = NULL                                                               \
		}                                                                                  \
	}

static const struct order_key mosaic_keys[] = KEYS;

/* Fills what the shuffle and the partition share. */
static int mosaic_set(struct mosaic *m, const struct order_spec *spec, uint64_t n, struct err *err)
{
	struct mosaic_shuffle *shuffle = &m->shuffle;
	uint64_t nodes = order_spec_u64(spec, "nodes");
	uint64_t canonical = order_spec_u64(spec, "canonical_nodes");
	bool is_fine = shuffle->algorithm == MOSAIC_PY1S || shuffle->algorithm == MOSAIC_PY2S;

	if (spec->world % nodes)
		return err_set(err, -EINVAL,
			       "a world of %" PRIu64 " ranks does not divide into %" PRIu64
			       " nodes (keys \"world\", \"nodes\")",
			       spec->world, nodes);
	if (canonical == 0)
		canonical = is_fine ? 64 * nodes : nodes;
	if (n > 0 && n < canonical && shuffle->algorithm == MOSAIC_PY1E)
		return err_set(err, -EINVAL,
			       "%" PRIu64 " samples are fewer than %" PRIu64
			       " canonical nodes, Streaming refuses that",
			       n, canonical);
	shuffle->n = (uint32_t)n;
	shuffle->canonical = (uint32_t)canonical;
	shuffle->seed = order_spec_u64(spec, "seed");
	shuffle->block = order_spec_u64(spec, "block");
	if (shuffle->block == 0)
		shuffle->block = MAX(4000000 / canonical, 1 << 18);
	m->is_shuffled = order_spec_u64(spec, "shuffle");
	return mosaic_partition_init(&m->partition, n, canonical, nodes, spec->world / nodes, err);
}

static int mosaic_open(struct order *order, const struct order_spec *spec,
		       const struct order_params *params, enum mosaic_algorithm algorithm,
		       struct err *err)
{
	struct mosaic *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return err_set(err, -ENOMEM, "out of memory");
	order->state = m;
	m->shuffle.algorithm = algorithm;
	rc = mosaic_set(m, spec, params->n, err);
	if (rc == 0 && algorithm == MOSAIC_NAIVE && !order_spec_path(spec, "shards"))
		rc = order_sizes_parse(NULL, "shards", params->n, &m->shuffle.shards, err);
	else if (rc == 0)
		rc = order_sizes_of_shards(order_spec_path(spec, "shards"), order,
					   &m->shuffle.shards, err);
	order->info.is_same_every_epoch = !m->is_shuffled;
	return rc;
}

static void mosaic_close(struct order *order)
{
	struct mosaic *m = order->state;

	if (m)
		free(m->shuffle.shards.size);
	free(m);
}

static int naive_open(struct order *order, const struct order_spec *spec,
		      const struct order_params *params, struct err *err)
{
	return mosaic_open(order, spec, params, MOSAIC_NAIVE, err);
}

static int py1s_open(struct order *order, const struct order_spec *spec,
		     const struct order_params *params, struct err *err)
{
	return mosaic_open(order, spec, params, MOSAIC_PY1S, err);
}

static int py2s_open(struct order *order, const struct order_spec *spec,
		     const struct order_params *params, struct err *err)
{
	return mosaic_open(order, spec, params, MOSAIC_PY2S, err);
}

static int py1br_open(struct order *order, const struct order_spec *spec,
		      const struct order_params *params, struct err *err)
{
	return mosaic_open(order, spec, params, MOSAIC_PY1BR, err);
}

static int py1e_open(struct order *order, const struct order_spec *spec,
		     const struct order_params *params, struct err *err)
{
	return mosaic_open(order, spec, params, MOSAIC_PY1E, err);
}

static int mosaic_common_fill(const struct order *order, uint64_t epoch, uint64_t length,
			      uint32_t *out, struct err *err)
{
	const struct mosaic *m = order->state;

	if (m->is_shuffled)
		return mosaic_shuffle_fill(&m->shuffle, epoch, out, err);
	for (uint64_t i = 0; i < length; i++)
		out[i] = (uint32_t)i;
	return 0;
}

static uint64_t mosaic_rank_length(const struct order *order, uint64_t epoch, uint64_t length,
				   uint64_t rank)
{
	const struct mosaic *m = order->state;

	return mosaic_partition_length(&m->partition);
}

static void mosaic_rank_read(const struct order *order, const struct order_span *common,
			     uint64_t rank, uint64_t from, uint32_t count, uint32_t *out)
{
	const struct mosaic *m = order->state;

	for (uint32_t i = 0; i < count; i++)
		out[i] = common->sample[mosaic_partition_at(&m->partition, rank, from + i)];
}

#define HELP(algorithm, shards)                                                                    \
	"MosaicML Streaming, shuffle_algo=" algorithm "; keys: seed(9176) " shards                 \
	" canonical_nodes block world(1) rank or ranks=0-3+6(all) nodes(1) "                       \
	"shuffle(1)" ORDER_HELP_COMMON

#define KIND(kind_name, algorithm, shards)                                                         \
	const struct order_kind kind_name = {                                                      \
		.help = HELP(#algorithm, shards),                                                  \
		.keys = mosaic_keys,                                                               \
		.numbers = ORDER_NUMBERS_RECORDS,                                                  \
		.records_of = "shards of MosaicML Streaming",                                      \
		.records_by = "clairfs index --records mds",                                       \
		.open = algorithm##_open,                                                          \
		.close = mosaic_close,                                                             \
		.common_fill = mosaic_common_fill,                                                 \
		.rank_length = mosaic_rank_length,                                                 \
		.rank_read = mosaic_rank_read,                                                     \
	}

KIND(order_kind_mosaic_naive, naive, "shards(one)");
KIND(order_kind_mosaic_py1s, py1s, "shards(those of the table of records)");
KIND(order_kind_mosaic_py2s, py2s, "shards(those of the table of records)");
KIND(order_kind_mosaic_py1br, py1br, "shards(those of the table of records)");
KIND(order_kind_mosaic_py1e, py1e, "shards(those of the table of records)");
