/* SPDX-License-Identifier: Apache-2.0 */
/* The keys sort= and under=: a job that lists a part of the tree, or sorts it in another way than
 * the index, uses other numbers for the same files. The caller, who knows the files, gives an array
 * from the job's numbers to ours; the kind computes with the job's n and never hears of it, and
 * what it computes is translated once, before positions are indexed. Paths in a list file are
 * translated the other way, so that a list means the same with and without these keys.
 *
 * Must never change what an order without the two keys is. Set-up code of one thread, but for
 * order_renumber, which any thread may call. */
#include <errno.h>
#include <string.h>

#include "order_priv.h"

int order_number_new(const struct order_spec *spec, const struct order_params *params,
		     struct order_numbering *num, struct err *err)
{
	const char *sort = order_spec_path(spec, "sort"), *under = order_spec_path(spec, "under");
	int rc;

	num->params = params;
	num->inner = *params;
	if (!sort && !under)
		return 0;
	if (!params->number)
		return err_set(err, -EINVAL, "key \"%s\" needs the files of a dataset",
			       sort ? "sort" : "under");
	rc = params->number(params->number_ctx, sort, under, &num->map, &num->inner.n, err);
	if (rc < 0)
		err_prefix(err, "key \"%s\"", rc == -EINVAL ? "sort" : under ? "under" : "sort");
	if (rc < 0 || !params->resolve)
		return rc;
	num->inner.resolve = order_number_resolve;
	num->inner.resolve_ctx = num;
	return 0;
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
