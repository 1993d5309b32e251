/* SPDX-License-Identifier: Apache-2.0 */
/* Torch permutations that depend on nothing but a seed and the epoch, dealt out in turns: what
 * DistributedSampler, accelerate and others have in common. */
#ifndef CLAIRFS_ORDER_SEEDED_H
#define CLAIRFS_ORDER_SEEDED_H

#include "turns.h"

/* State of a kind, or its first member. */
struct seeded {
	struct turns turns;
	uint64_t seed; /* of epoch 0, and of all epochs unless adds_epoch */
	bool is_shuffled, has_large, adds_epoch;
};

/* Makes the zeroed state of `size` bytes, the first of them a struct seeded, for a job that
 * shuffles anew in each epoch. -ENOMEM. */
int seeded_new(struct order *order, size_t size, struct seeded **ret, struct err *err) MUST_USE;
/* Reads the keys "shuffle" and "large" (both in the kind's table). */
void seeded_read_keys(struct order *order, const struct order_spec *spec);

/* Members of struct order_kind. */
int seeded_fill(const struct order *order, uint64_t epoch, uint64_t length, uint32_t *out,
		struct err *err);
int seeded_head(const struct order *order, const struct order_span *common, uint64_t count,
		uint32_t *out, struct err *err);

#endif
