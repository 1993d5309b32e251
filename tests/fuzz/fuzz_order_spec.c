/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any text as a spec, and an epoch of what parses: of a dataset without a table of
 * records, with one in a directory, and with one in several. Besides not crashing: an error has one
 * line, the canonical text is a fixed point, and every position holds a sample, or a record. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "clairfs/base/ids.h"
#include "clairfs/order/records.h"

#define N 37

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Some keys are sizes, and a large one is allowed: too large for a test are numbers of more digits
 * than this in a spec that has one. */
static bool is_small(const char *text)
{
	static const char *const sizes[] = { "num_samples=", "documents=",  "document_epochs=",
					     "batch=",       "world=",      "nodes=",
					     "workers=",     "start_epoch=" };

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		const char *at = strstr(text, sizes[i]);

		if (at && strspn(at + strlen(sizes[i]), "0123456789") > 3)
			return false;
	}
	return true;
}

/* The table: files that come again, one that is no sample, one record, many. */
static const struct order_shard shards[] = {
	{ 3, 1, 0 }, { 7, 20, 0 }, { 3, 2, 0 },  { 36, 9, 1 }, { 36, 1, 1 }, { SAMPLE_NONE, 4, 1 },
	{ 0, 5, 1 }, { 12, 1, 2 }, { 9, 30, 2 },
};
#define N_RECORDS 73

static int list_shards(void *ctx, struct order_shard **ret, size_t *ret_n)
{
	*ret = malloc(sizeof(shards));
	assert(*ret);
	memcpy(*ret, shards, sizeof(shards));
	*ret_n = ARRAY_LEN(shards);
	return 0;
}

static int dir_path(void *ctx, uint32_t dir, char *out, size_t size)
{
	static const char *const paths[] = { "a/b", ".", "a/c" };

	assert(dir < ARRAY_LEN(paths));
	snprintf(out, size, "%s", paths[dir]);
	return 0;
}

/* Every second file, or those of the first two thirds. */
static int number(void *ctx, const char *sort, const char *under, uint32_t **ret_sample,
		  uint64_t *ret_n, struct err *err)
{
	if (sort && strlen(sort) > 6)
		return err_set(err, -EINVAL, "no such sort");
	if (under && strlen(under) > 6)
		return err_set(err, -ENOENT, "no such directory");
	*ret_sample = malloc(N * sizeof(**ret_sample));
	assert(*ret_sample);
	*ret_n = 0;
	for (uint32_t i = 0; i < N; i += under ? 2 : 1)
		if (under || i < N / 3 * 2)
			(*ret_sample)[(*ret_n)++] = i;
	return 0;
}

static bool resolve(void *ctx, const char *path, size_t len, uint32_t *ret_sample)
{
	*ret_sample = (uint32_t)(len % (N + 1));
	return len > 4;
}

/* What order_epoch_new of it says. */
static int check_files(const struct order *order, uint64_t epoch)
{
	struct err err = { 0 };
	struct order_epoch *e;
	int rc = order_epoch_new(order, epoch, &e, &err);

	assert(rc == 0 || (rc == -ENOENT && err.msg[0]));
	assert(rc < 0 || (e->n == N && order_info(order)->n == N));
	for (uint64_t pos = 0; rc == 0 && pos < e->length; pos++)
		assert(e->sample[pos] < N);
	order_epoch_free(e); /* NULL if there is no such epoch */
	return rc;
}

static void check_records(const struct order *order, uint64_t epoch, int wanted)
{
	const struct order_part all = { .epoch = epoch, .count = UINT64_MAX };
	uint32_t *record AUTO_FREE = NULL;
	struct order_epoch *e;
	struct err err = { 0 };
	uint64_t n;
	int rc = order_head(order, &all, &record, &n, &err);

	assert(rc == wanted && order_n_records(order) <= N_RECORDS);
	for (uint64_t i = 0; rc == 0 && i < n; i++)
		assert(record[i] < N_RECORDS);
	rc = order_records_epoch_new(order, epoch, &e, &err);
	assert(rc == wanted && (rc < 0 || (e->length == n && e->n == N_RECORDS)));
	for (uint64_t i = 0; rc == 0 && i < n; i++)
		assert(e->sample[i] == record[i] && e->first[record[i]] <= i);
	order_epoch_free(e);
}

static void compute(const struct order_spec *spec, const struct order_params *params)
{
	struct err err = { 0 };
	struct order *order;
	int rc = order_new(spec, params, &order, &err);

	assert(rc == 0 || (err.code == rc && err.msg[0] && !strchr(err.msg, '\n')));
	assert(rc < 0 || !order_lacks_records(spec, params));
	if (rc == 0 && is_small(order_spec_text(spec))) {
		uint64_t epoch = order_info(order)->start_epoch;

		rc = check_files(order, epoch);
		if (order_n_records(order) > 0)
			check_records(order, epoch, rc);
	}
	order_free(order);
}

static void compute_all(const struct order_spec *spec)
{
	struct order_params params = { .n = N };

	compute(spec, &params);
	params.number = number;
	params.resolve = resolve;
	params.n_records = N_RECORDS;
	params.shards = list_shards;
	compute(spec, &params);
	params.dir_path = dir_path;
	compute(spec, &params);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text AUTO_FREE = strndup((const char *)data, size);
	struct err err = { 0 };
	struct order_spec *spec, *again;
	int rc = order_spec_parse(text, &spec, &err);

	if (rc < 0) {
		assert(err.code == rc && err.msg[0] && !strchr(err.msg, '\n'));
		return 0;
	}
	rc = order_spec_parse(order_spec_text(spec), &again, &err);
	assert(rc == 0);
	assert(strcmp(order_spec_text(spec), order_spec_text(again)) == 0);
	if (!strstr(text, "path=")) /* never open a file somebody made up */
		compute_all(spec);
	order_spec_free(again);
	order_spec_free(spec);
	return 0;
}
