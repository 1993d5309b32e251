/* SPDX-License-Identifier: Apache-2.0 */
/* MosaicML Streaming's get_partitions, one place at a time. Streaming lays the places of an epoch
 * out as a matrix with a row for each canonical node and reads it by columns; nodes take the
 * columns' places in turn, and the ranks of a node take the node's places in turn:
 *
 *   row 0:  0 1 2 3      by columns: 0 4 1 5 2 6 3 7      node 0 of 2: 0 1 2 3
 *   row 1:  4 5 6 7                                       node 1 of 2: 4 5 6 7
 *
 * Rows that come out short repeat their last sample, and what does not divide by nodes or ranks is
 * filled by repeating samples from before the end. Batches and workers change nothing here: a
 * rank's batch b goes to its worker b % workers and comes back in that sequence, and the places
 * that only fill up a batch (-1) are never read.
 *
 * Closed formulas, because a matrix is what they replace. Pure; any thread. */
#include <errno.h>
#include <inttypes.h>

#include "mosaic.h"
#include "order_priv.h"

/* Samples repeated at the end of every row come from this column on; may be negative, and then
 * there are fewer than the padding wants. */
static int64_t padding_source(const struct mosaic_partition *p)
{
	int64_t padding = (int64_t)(p->padded_row - p->row);

	return (int64_t)p->row - padding - (int64_t)(p->nodes / p->canonical) + 1;
}

/* Streaming's other way, for fewer samples than rows: the samples over and over. */
static bool is_tiled(const struct mosaic_partition *p)
{
	return p->n < p->canonical || (p->n == p->canonical && p->canonical < p->nodes);
}

int mosaic_partition_init(struct mosaic_partition *p, uint64_t n, uint64_t canonical,
			  uint64_t nodes, uint64_t ranks_per_node, struct err *err)
{
	uint64_t ratio = nodes / canonical;

	if (canonical < nodes ? nodes % canonical : canonical % nodes)
		return err_set(err, -EINVAL,
			       "%" PRIu64 " canonical nodes and %" PRIu64
			       " nodes: one must be a multiple of the other (keys "
			       "\"canonical_nodes\", \"nodes\")",
			       canonical, nodes);
	*p = (struct mosaic_partition){
		.n = n, .canonical = canonical, .nodes = nodes, .ranks_per_node = ranks_per_node
	};
	p->row = DIV_ROUND_UP(n, canonical);
	p->padded_row = canonical < nodes ? DIV_ROUND_UP(p->row, ratio) * ratio : p->row;
	p->per_node = p->padded_row * canonical / nodes;
	if (n > 0 && !is_tiled(p) && p->padded_row > p->row) {
		int64_t wide = (int64_t)(p->padded_row - p->row) + MIN(padding_source(p), 0);

		/* One column is repeated as often as needed, any other number must fit. */
		if (wide != 1 && padding_source(p) < 0)
			return err_set(err, -EINVAL,
				       "%" PRIu64 " samples are too few for %" PRIu64
				       " nodes, Streaming cannot share them out",
				       n, nodes);
	}
	return 0;
}

/* The sample in a cell of the matrix. */
static uint64_t cell(const struct mosaic_partition *p, uint64_t row, uint64_t column)
{
	uint64_t start = row * p->n / p->canonical, stop = (row + 1) * p->n / p->canonical;

	if (is_tiled(p))
		return (row * p->padded_row + column) % p->n;
	if (column >= p->row) {
		int64_t source = padding_source(p);

		column = source >= 0 ? (uint64_t)source + column - p->row : 0;
	}
	if (column + 1 == p->row && stop - start < p->row)
		column--;
	return start + column;
}

uint64_t mosaic_partition_length(const struct mosaic_partition *p)
{
	return DIV_ROUND_UP(p->per_node, p->ranks_per_node);
}

uint64_t mosaic_partition_at(const struct mosaic_partition *p, uint64_t rank, uint64_t i)
{
	uint64_t k = i * p->ranks_per_node + rank % p->ranks_per_node; /* place of the node */
	uint64_t flat;

	if (k >= p->per_node) {
		uint64_t missing = p->ranks_per_node - p->per_node % p->ranks_per_node;

		k -= p->per_node;
		if (p->ranks_per_node + missing - 1 <= p->per_node)
			k += p->per_node - p->ranks_per_node - missing + 1;
		else
			k %= p->per_node;
	}
	flat = k * p->nodes + rank / p->ranks_per_node;
	return cell(p, flat % p->canonical, flat / p->canonical);
}
