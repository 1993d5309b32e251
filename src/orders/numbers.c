/* SPDX-License-Identifier: Apache-2.0 */
/* What an order asks about the files of a dataset: the sample behind a path of a list file, the
 * numbers the job gives to the samples (keys sort= and under=), and which files have the records of
 * its table. Orders know no dataset and a
 * dataset knows no orders, so they meet here; the command line uses the same functions, that what
 * it prints is what a mount would do. Must only read what is immutable in an open dataset: any
 * thread. */
#include <errno.h>

#include "clairfs/dataset/records.h"
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

/* With what only describes files. */
static int number_all(void *ctx, const char *sort, const char *under, uint32_t **ret_sample,
		      uint64_t *ret_n, struct err *err)
{
	enum dataset_sort how = DATASET_SORT_INDEX;
	uint32_t n = 0;
	int rc = sort ? dataset_sort_parse(sort, &how, err) : 0;

	if (rc == 0)
		rc = dataset_number_all(ctx, how, under, ret_sample, &n, err);
	*ret_n = n;
	return rc;
}

static int list_shards(void *ctx, struct order_shard **ret, size_t *ret_n)
{
	const struct dataset *ds = ctx;
	AUTO_FREE struct dataset_run *shard = NULL;
	int rc = dataset_runs(ds, &shard, ret_n);

	if (rc < 0)
		return rc;
	*ret = reallocarray(NULL, MAX(*ret_n, 1), sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	for (size_t i = 0; i < *ret_n; i++)
		(*ret)[i] = (struct order_shard){ dataset_is_sample(ds, shard[i].entry)
							  ? shard[i].entry.v
							  : SAMPLE_NONE,
						  shard[i].count,
						  dataset_parent(ds, shard[i].entry).v };
	return 0;
}

static int dir_path(void *ctx, uint32_t dir, char *out, size_t size)
{
	return dataset_path(ctx, (struct entry_id){ dir }, out, size);
}

void orders_dataset_params(struct dataset *dataset, struct order_params *ret)
{
	*ret = (struct order_params){ .n = dataset_n_samples(dataset),
				      .resolve = resolve_path,
				      .resolve_ctx = dataset,
				      .number = number_samples,
				      .number_all = number_all,
				      .number_ctx = dataset };
	if (!dataset_has_records(dataset))
		return;
	ret->n_records = dataset_n_records(dataset);
	ret->shards = list_shards;
	ret->dir_path = dir_path;
	ret->shards_ctx = dataset;
}
