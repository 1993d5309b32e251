/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a list file, as text and as raw numbers (the name decides, so the first
 * byte chooses it), of samples and of records. What is accepted must hold samples only, or records,
 * in every epoch that exists. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "clairfs/base/ids.h"
#include "clairfs/order.h"

#define N 10

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool resolve(void *ctx, const char *path, size_t len, uint32_t *ret_sample)
{
	assert(len > 0 && !memchr(path, '\0', len) && !memchr(path, '\n', len));
	*ret_sample = (uint32_t)(len % (N + 1));
	return path[0] != 'x';
}

static void check_order(const struct order *order)
{
	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		struct err err = { 0 };
		struct order_epoch *e;
		int rc = order_epoch_new(order, epoch, &e, &err);

		assert(rc == 0 || rc == -ENOENT);
		for (uint64_t pos = 0; rc == 0 && pos < e->length; pos++)
			assert(e->sample[pos] < N);
		if (rc == 0)
			order_epoch_free(e);
	}
}

/* Four files have the records, each three times; the last one is no sample. */
#define N_RECORDS 16

static int list_shards(void *ctx, struct order_shard **ret, size_t *ret_n)
{
	*ret_n = N_RECORDS;
	*ret = calloc(N_RECORDS, sizeof(**ret));
	assert(*ret);
	for (uint32_t i = 0; i < N_RECORDS; i++)
		(*ret)[i] = (struct order_shard){ i % 4 < 3 ? i % 4 * 3 : SAMPLE_NONE, 1, 0 };
	return 0;
}

static void check_records(const struct order *order)
{
	assert(order_n_records(order) == N_RECORDS);
	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		const struct order_part all = { .epoch = epoch, .count = UINT64_MAX };
		uint32_t *record AUTO_FREE = NULL;
		struct err err = { 0 };
		uint64_t n;
		int rc = order_head(order, &all, &record, &n, &err);

		assert(rc == 0 || rc == -ENOENT);
		for (uint64_t i = 0; rc == 0 && i < n; i++)
			assert(record[i] < N_RECORDS);
	}
}

/* The list as an order of samples, or of records. */
static void try_list(const char *path, bool is_of_records)
{
	struct order_params params = { .n = N, .resolve = resolve };
	struct order_spec *spec;
	struct err err = { 0 };
	struct order *order;
	char text[96];
	int rc;

	if (is_of_records) {
		params.n_records = N_RECORDS;
		params.shards = list_shards;
	}
	snprintf(text, sizeof(text), "list:path=%s%s", path, is_of_records ? ":records=1" : "");
	rc = order_spec_parse(text, &spec, &err);
	assert(rc == 0);
	rc = order_new(spec, &params, &order, &err);
	assert(rc == 0 || (err.msg[0] && !strchr(err.msg, '\n')));
	if (rc == 0)
		check_order(order);
	if (rc == 0 && is_of_records)
		check_records(order);
	order_free(order);
	order_spec_free(spec);
}

static char dir[] = "/tmp/fuzz_order_XXXXXX"; /* of this process; empty between inputs */

static void remove_dir(void)
{
	rmdir(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[] = { "u32", "u64", "txt" };
	static bool has_dir;
	char path[64];
	FILE *file;

	if (size == 0)
		return 0;
	if (!has_dir) {
		has_dir = mkdtemp(dir) && atexit(remove_dir) == 0;
		assert(has_dir);
	}
	snprintf(path, sizeof(path), "%s/list.%s", dir, names[data[0] % ARRAY_LEN(names)]);
	file = fopen(path, "we");
	assert(file);
	fwrite(data + 1, 1, size - 1, file);
	fclose(file);
	try_list(path, false);
	try_list(path, true);
	unlink(path);
	return 0;
}
