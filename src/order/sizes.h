/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of shards, as the value of a key: "100x20+57" is twenty shards of 100 samples and one of
 * 57. */
#ifndef CLAIRFS_ORDER_SIZES_H
#define CLAIRFS_ORDER_SIZES_H

#include <stdint.h>

#include "clairfs/base/err.h"

struct order_sizes {
	uint32_t *size; /* [n] samples of each shard, all > 0; owned */
	uint32_t n;
};

/* The sizes must add up to n_samples < 2^32. `key` is for messages; text NULL (the key is not
 * given) is one shard with all samples. */
int order_sizes_parse(const char *text, const char *key, uint64_t n_samples,
		      struct order_sizes *ret, struct err *err) MUST_USE;

struct order;
/* The same of key "shards" of a kind that needs it; text NULL: the files of the dataset's table of
 * records. */
int order_sizes_of_shards(const char *text, struct order *order, struct order_sizes *ret,
			  struct err *err) MUST_USE;

#endif
