/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of shard sizes. They are typed or pasted from an index file, and a repetition makes a short
 * text ask for a lot: the sum is checked against the dataset while reading, before anything is
 * allocated, so "1x99999999999" is an error and never an allocation. No size may be 0 (the
 * frameworks never write an empty shard, and a shard that does not exist would shift the shuffle),
 * hence there are at most as many shards as samples.
 *
 * It must never guess a size that is missing: a list that does not add up is the list of another
 * dataset. Set-up code, any thread. */
#include "sizes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "order_priv.h"

#define SHOWN 40 /* bytes of a foreign item in a message */

/* "57" or "100x20". Changes the text. */
static int item_parse(char *item, const char *key, uint64_t *ret_size, uint64_t *ret_count,
		      struct err *err)
{
	char shown[SHOWN];
	char *count = item;
	const char *size;
	int rc;

	text_escape(item, strlen(item), shown, sizeof(shown));
	size = strsep(&count, "x");
	*ret_count = 1;
	rc = text_to_u64(size, ret_size);
	if (rc == 0 && count)
		rc = text_to_u64(count, ret_count);
	if (rc == -ERANGE)
		return err_set(err, -EINVAL, "key \"%s\": \"%s\" is too large", key, shown);
	if (rc < 0)
		return err_set(
			err, -EINVAL,
			"key \"%s\": \"%s\" is no size, expected sizes and repeated sizes, "
			"for example 100x20+57 for twenty shards of 100 samples and one of 57",
			key, shown);
	if (*ret_size == 0 || *ret_count == 0)
		return err_set(err, -EINVAL, "key \"%s\": \"%s\" is an empty shard", key, shown);
	return 0;
}

/* Sums up the sizes; with `size`, writes them there. */
static int items_read(const char *text, const char *key, uint64_t n_samples, uint32_t *size,
		      uint64_t *ret_n, struct err *err)
{
	char *copy AUTO_FREE = strdup(text);
	char *rest = copy;
	uint64_t sum = 0;

	if (!copy)
		return err_set(err, -ENOMEM, "out of memory");
	*ret_n = 0;
	while (rest) {
		uint64_t each, count, more;
		int rc = item_parse(strsep(&rest, "+"), key, &each, &count, err);

		if (rc < 0)
			return rc;
		if (__builtin_mul_overflow(each, count, &more) || more > n_samples - sum)
			return err_set(err, -EINVAL,
				       "key \"%s\": the sizes add up to more than the dataset's "
				       "%" PRIu64 " samples",
				       key, n_samples);
		sum += more;
		for (uint64_t i = 0; size && i < count; i++)
			size[*ret_n + i] = (uint32_t)each;
		*ret_n += count;
	}
	if (sum != n_samples)
		return err_set(err, -EINVAL,
			       "key \"%s\": the sizes add up to %" PRIu64
			       ", but the dataset has %" PRIu64 " samples",
			       key, sum, n_samples);
	return 0;
}

int order_sizes_parse(const char *text, const char *key, uint64_t n_samples,
		      struct order_sizes *ret, struct err *err)
{
	uint32_t *size AUTO_FREE = NULL;
	uint64_t n = n_samples > 0;
	int rc = 0;

	if (text)
		rc = items_read(text, key, n_samples, NULL, &n, err);
	if (rc < 0)
		return rc;
	size = order_alloc_u32(n);
	if (!size)
		return err_set(err, -ENOMEM, "out of memory for %" PRIu64 " shards", n);
	if (text)
		rc = items_read(text, key, n_samples, size, &n, err);
	else
		size[0] = (uint32_t)n_samples;
	if (rc < 0)
		return rc;
	*ret = (struct order_sizes){ .size = TAKE(size), .n = (uint32_t)n };
	return 0;
}

int order_sizes_of_shards(const char *text, struct order *order, struct order_sizes *ret,
			  struct err *err)
{
	uint64_t sum = 0;

	if (text)
		return order_sizes_parse(text, "shards", order->info.n, ret, err);
	if (!order->sizes.size)
		return err_set(err, -EINVAL,
			       "key \"shards\" is missing: the samples of each shard, which a table of "
			       "records says as well (clairfs index --records)");
	for (uint32_t i = 0; i < order->sizes.n; i++)
		sum += order->sizes.size[i];
	if (sum != order->info.n)
		return err_set(err, -EINVAL,
			       "key \"shards\" is missing: only some of the samples of the table are "
			       "numbered");
	*ret = order->sizes;
	order->sizes = (struct order_sizes){ 0 };
	return 0;
}
