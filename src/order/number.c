/* SPDX-License-Identifier: Apache-2.0 */
/* The keys sort= and under=: a job that lists a part of the tree, or sorts it in another way than
 * the index, uses other numbers for the same files. The caller, who knows the files, gives an array
 * from the job's numbers to ours. Of these a job may use some only, and number them anew: the keys
 * first= (torch's Subset of the first ones) and split= (random_split). The kind computes with the
 * job's n and never hears of it, and what it computes is translated once, before positions are
 * indexed. Paths in a list file are translated the other way, so that a list means the same with
 * and without these keys.
 *
 * Must never change what an order without these keys is. Set-up code of one thread, but for
 * order_renumber, which any thread may call. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "order_priv.h"
#include "perm.h"

/* torch's random_split: the samples are shuffled, and the first so many are the first part. */
static int shuffle_map(struct order_numbering *num, uint64_t seed, uint64_t count)
{
	uint32_t *head AUTO_FREE = order_alloc_u32(count);
	struct mt19937 rng;

	if (!head)
		return -ENOMEM;
	mt19937_seed(&rng, (uint32_t)seed);
	if (perm_torch_head(head, (uint32_t)count, (uint32_t)num->inner.n, true, &rng) < 0)
		return -ENOMEM;
	for (uint64_t i = 0; i < count; i++)
		head[i] = num->map[head[i]];
	free(num->map);
	num->map = TAKE(head);
	return 0;
}

/* Some of the samples that the map has so far. */
static int cut_map(struct order_numbering *num, uint64_t first, uint64_t split, struct err *err)
{
	uint64_t n = num->inner.n, count = first ? first : n;
	bool has_records = num->records.n > 0;

	if (first > n)
		return err_set(err, -EINVAL,
			       "key \"first\": there are %" PRIu64 " samples, not %" PRIu64, n, first);
	if (has_records && order_check_room(num->params, n * sizeof(*num->map), err) < 0)
		return err->code;
	if (!num->map) {
		num->map = order_alloc_u32(n);
		if (num->map)
			perm_identity(num->map, (uint32_t)n);
	}
	if (!num->map || (split != ORDER_NO_SPLIT && shuffle_map(num, split, count) < 0))
		return err_set(err, -ENOMEM, "out of memory");
	num->inner.n = count;
	return 0;
}

static int list_part(struct order_numbering *num, const char *sort, const char *under,
		     bool is_of_all, struct err *err)
{
	const struct order_params *params = num->params;
	order_number_fn *number = params->number;
	int rc;

	if (is_of_all && params->number_all)
		number = params->number_all;
	if (!number)
		return err_set(err, -EINVAL, "key \"%s\" needs the files of a dataset",
			       sort ? "sort" : "under");
	rc = number(params->number_ctx, sort, under, &num->map, &num->inner.n, err);
	if (rc < 0)
		err_prefix(err, "key \"%s\"", rc == -EINVAL ? "sort" : under ? "under" : "sort");
	return rc;
}

static int list_files(const struct order_spec *spec, struct order_numbering *num, struct err *err)
{
	const char *sort = order_spec_path(spec, "sort"), *under = order_spec_path(spec, "under");
	bool is_listed = sort || under, is_of_all = order_spec_u64(spec, "records") == 0;
	bool is_list = spec->kind == &order_kind_list;
	int rc = 0;

	/* Where records are samples, what only describes them is none, unless the spec says that each
	 * file is one. The numbers of a list are those of the index, whatever is a sample. */
	if (is_listed || (num->params->n_records > 0 && num->params->number && !is_of_all && !is_list))
		rc = list_part(num, sort, under, is_of_all, err);
	if (rc < 0 || is_listed || num->inner.n != num->params->n)
		return rc;
	free(num->map); /* of all samples, as they are numbered anyway */
	num->map = NULL;
	return 0;
}

int order_number_new(const struct order_spec *spec, const struct order_params *params,
		     struct order_numbering *num, struct err *err)
{
	uint64_t first = order_spec_u64(spec, "first"), split = order_spec_u64(spec, "split");
	bool has_records;
	int rc;

	num->params = params;
	num->inner = *params;
	rc = order_records_choose(spec, params, &has_records, err);
	if (rc == 0)
		rc = has_records ? order_records_number(spec, num, err) : list_files(spec, num, err);
	if (rc == 0 && (first || split != ORDER_NO_SPLIT))
		rc = cut_map(num, first, split, err);
	if (rc < 0 || !num->map || !num->inner.resolve)
		return rc;
	num->inner.resolve = order_number_resolve;
	num->inner.resolve_ctx = num;
	return 0;
}

void order_number_fini(struct order_numbering *num)
{
	free(num->map);
	free(num->inverse);
	free(num->sizes.size);
	order_records_fini(&num->records);
}

static bool make_inverse(struct order_numbering *num)
{
	num->inverse = order_alloc_u32(num->params->n);
	if (!num->inverse)
		return false;
	memset(num->inverse, 0xff, num->params->n * sizeof(*num->inverse)); /* SAMPLE_NONE */
	for (uint64_t i = 0; i < num->inner.n; i++)
		num->inverse[num->map[i]] = (uint32_t)i;
	return true;
}

bool order_number_resolve(void *ctx, const char *path, size_t len, uint32_t *ret_sample)
{
	struct order_numbering *num = ctx;
	uint32_t sample;

	if (!num->params->resolve(num->params->resolve_ctx, path, len, &sample) ||
	    sample >= num->params->n)
		return false;
	if (!num->inverse && !make_inverse(num))
		return false;
	*ret_sample = num->inverse[sample];
	return *ret_sample != SAMPLE_NONE;
}

int order_number_outside(const struct order_numbering *num, uint64_t **ret)
{
	uint64_t n = num->params->n;
	uint64_t *outside;

	*ret = NULL;
	if (num->records.n > 0)
		return order_records_outside(num, ret);
	if (!num->map || num->inner.n == n)
		return 0;
	outside = malloc(DIV_ROUND_UP(n, 64) * sizeof(*outside));
	if (!outside)
		return -ENOMEM;
	memset(outside, 0xff, DIV_ROUND_UP(n, 64) * sizeof(*outside));
	for (uint64_t i = 0; i < num->inner.n; i++)
		outside[num->map[i] / 64] &= ~(1ull << num->map[i] % 64);
	*ret = outside;
	return 0;
}

void order_renumber(const struct order *order, uint32_t *sample, uint64_t length)
{
	if (!order->map)
		return;
	for (uint64_t i = 0; i < length; i++) {
		if (i + 32 < length)
			__builtin_prefetch(&order->map[sample[i + 32]]);
		sample[i] = order->map[sample[i]];
	}
}
