/* SPDX-License-Identifier: Apache-2.0 */
/* The two halves of MosaicML Streaming: which sample stands at which place of an epoch
 * (mosaic_shuffle.c) and which places a rank reads (mosaic_partition.c). mosaic.c puts them
 * together. */
#ifndef CLAIRFS_ORDER_MOSAIC_H
#define CLAIRFS_ORDER_MOSAIC_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/err.h"
#include "sizes.h"

enum mosaic_algorithm {
	MOSAIC_NAIVE,
	MOSAIC_PY1S,
	MOSAIC_PY2S,
	MOSAIC_PY1BR,
	MOSAIC_PY1E,
};

struct mosaic_shuffle {
	enum mosaic_algorithm algorithm;
	uint64_t seed, block;
	uint32_t n, canonical; /* samples; canonical nodes */
	struct order_sizes shards;
};

/* Writes the n sample numbers of an epoch. -ENOMEM only. */
int mosaic_shuffle_fill(const struct mosaic_shuffle *shuffle, uint64_t epoch, uint32_t *out,
			struct err *err) MUST_USE;

struct mosaic_partition {
	uint64_t n, canonical, nodes, ranks_per_node;
	/* A canonical node's row: the samples it really has, at most, and with what is repeated so
	 * that nodes can share it evenly. */
	uint64_t row, padded_row;
	uint64_t per_node; /* places a physical node reads */
};

/* -EINVAL: the nodes cannot share the samples (Streaming refuses as well). n may be 0. */
int mosaic_partition_init(struct mosaic_partition *partition, uint64_t n, uint64_t canonical,
			  uint64_t nodes, uint64_t ranks_per_node, struct err *err) MUST_USE;
/* How many places each rank reads, and the i-th of them, a number < n. */
uint64_t mosaic_partition_length(const struct mosaic_partition *partition);
uint64_t mosaic_partition_at(const struct mosaic_partition *partition, uint64_t rank, uint64_t i);

#endif
