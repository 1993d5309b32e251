/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that take samples, or whole batches of them, in turn: the common sequence is dealt out a
 * batch to each rank, again and again. */
#ifndef CLAIRFS_ORDER_TURNS_H
#define CLAIRFS_ORDER_TURNS_H

#include "order_priv.h"

enum turns_tail {
	TURNS_TAIL_UNEVEN, /* ranks read what there is */
	TURNS_TAIL_PAD,    /* the sequence starts over until all ranks have a full batch */
	TURNS_TAIL_DROP,   /* the last round is left out if it is not full */
};

struct turns {
	uint64_t batch, world; /* batch: samples a rank reads per turn, 1..TURNS_BATCH_MAX */
	enum turns_tail tail;
};

#define TURNS_BATCH_MAX ((uint64_t)1 << 24)

/* Takes batch and world from the spec. The batch is needed if there are several ranks; one rank
 * without batch has batches of 1. */
int turns_init(struct turns *t, const struct order_spec *spec, enum turns_tail tail,
	       struct err *err) MUST_USE;

/* Members of struct order_kind, for kinds whose state begins with a struct turns. */
uint64_t turns_rank_length(const struct order *order, uint64_t epoch, uint64_t length,
			   uint64_t rank);
void turns_rank_read(const struct order *order, const struct order_span *common, uint64_t rank,
		     uint64_t from, uint32_t count, uint32_t *out);
uint64_t turns_head_reach(const struct order *order, uint64_t length, uint64_t rows);

#endif
