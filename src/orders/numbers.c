/* SPDX-License-Identifier: Apache-2.0 */
/* What an order asks about the files of a dataset: the sample behind a path of a list file, and the
 * numbers the job gives to the samples (keys sort= and under=). Orders know no dataset and a
 * dataset knows no orders, so they meet here; the command line uses the same functions, that what
 * it prints is what a mount would do. Must only read what is immutable in an open dataset: any
 * thread. */
#include <errno.h>

#include "orders_priv.h"

static bool resolve_path(void *ctx, const char *path, size_t len, uint32_t *ret_sample)
{
	const struct dataset *ds = ctx;
	struct entry_id e = dataset_resolve(ds, path, len);

	if (!dataset_is_sample(ds, e))
		return false;
	*ret_sample = e.v;
	return true;
}

static int number_samples(void *ctx, const char *sort, const char *under, uint32_t **ret_sample,
			  uint64_t *ret_n, struct err *err)
{
	enum dataset_sort how = DATASET_SORT_INDEX;
	uint32_t n = 0;
	int rc = sort ? dataset_sort_parse(sort, &how, err) : 0;

	if (rc == 0)
		rc = dataset_numbering(ctx, how, under, ret_sample, &n, err);
	*ret_n = n;
	return rc;
}

void orders_dataset_params(struct dataset *dataset, struct order_params *ret)
{
	*ret = (struct order_params){ .n = dataset_n_samples(dataset),
				      .resolve = resolve_path,
				      .resolve_ctx = dataset,
				      .number = number_samples,
				      .number_ctx = dataset };
}
