/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as one of Megatron's index files, beside two that are right for a run of
 * three samples; the first byte chooses which. What is accepted must hold samples only, or, of a
 * dataset with a table of records, records. */
#include <assert.h>
#include <string.h>

#include "clairfs/order.h"

#define N 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = { "shuffle_index", "sample_index", "document_index" };
static const char *const headers[] = {
	"{'descr': '<u4', 'fortran_order': False, 'shape': (3,), }",
	"{'descr': '<i4', 'fortran_order': False, 'shape': (4, 2), }",
	"{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }",
};
static const size_t sizes[] = { 12, 32, 4 };

static char dir[] = "/tmp/fuzz_order_XXXXXX"; /* of this process */

/* The file that the order reads, and the right one that is kept beside it. */
static char *index_path(unsigned i, bool is_right)
{
	char *path;
	int len = asprintf(&path, "%s/%s-%s.npy", dir, is_right ? "right" : "x", names[i]);

	assert(len > 0);
	return path;
}

static void write_right_one(unsigned i)
{
	static const uint8_t zeros[32] = { 0 };
	char *path AUTO_FREE = index_path(i, true), *used AUTO_FREE = index_path(i, false);
	uint16_t length = (uint16_t)strlen(headers[i]);
	FILE *file = fopen(path, "we");
	int rc;

	assert(file);
	fwrite("\x93NUMPY\1\0", 1, 8, file);
	fwrite(&length, 2, 1, file);
	fwrite(headers[i], 1, length, file);
	fwrite(zeros, 1, sizes[i], file);
	fclose(file);
	rc = link(path, used);
	assert(rc == 0);
}

/* Replaces the file that the order reads: by these bytes or, NULL, by the right one. It is never
 * written in place, which some filesystems take as a reason to write it back at once. */
static void replace(unsigned i, const uint8_t *data, size_t size)
{
	char *path AUTO_FREE = index_path(i, true), *used AUTO_FREE = index_path(i, false);
	FILE *file;
	int rc = unlink(used);

	assert(rc == 0);
	if (!data) {
		rc = link(path, used);
		assert(rc == 0);
		return;
	}
	file = fopen(used, "we");
	assert(file);
	fwrite(data, 1, size, file);
	fclose(file);
}

static void remove_dir(void)
{
	for (unsigned i = 0; i < 2 * ARRAY_LEN(names); i++) {
		char *path AUTO_FREE = index_path(i / 2, i % 2);

		unlink(path);
	}
	rmdir(dir);
}

#define N_RECORDS 5

static int list_shards(void *ctx, struct order_shard **ret, size_t *ret_n)
{
	*ret_n = 1;
	*ret = malloc(sizeof(**ret));
	assert(*ret);
	**ret = (struct order_shard){ N - 1, N_RECORDS, 0 };
	return 0;
}

static void check_records(const struct order *order)
{
	const struct order_part all = { .count = UINT64_MAX };
	uint32_t *record AUTO_FREE = NULL;
	struct err err = { 0 };
	uint64_t n;
	int rc = order_head(order, &all, &record, &n, &err);

	assert(rc == 0);
	for (uint64_t i = 0; i < n; i++)
		assert(record[i] < N_RECORDS);
}

static void check_files(const struct order *order)
{
	struct err err = { 0 };
	struct order_epoch *e;
	int rc = order_epoch_new(order, 0, &e, &err);

	assert(rc == 0);
	for (uint64_t pos = 0; pos < e->length; pos++)
		assert(e->sample[pos] < N);
	order_epoch_free(e);
}

/* The run as an order of samples, or of records. */
static void try_run(bool is_of_records)
{
	struct order_params params = { .n = N };
	struct err err = { 0 };
	struct order_spec *spec;
	struct order *order;
	char text[80];
	int rc;

	if (is_of_records) {
		params.n_records = N_RECORDS;
		params.shards = list_shards;
	}
	snprintf(text, sizeof(text), "megatron:path=%s/x", dir);
	rc = order_spec_parse(text, &spec, &err);
	assert(rc == 0);
	rc = order_new(spec, &params, &order, &err);
	assert(rc == 0 || (err.msg[0] && !strchr(err.msg, '\n')));
	if (rc == 0)
		check_files(order);
	if (rc == 0 && is_of_records)
		check_records(order);
	order_free(order);
	order_spec_free(spec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool has_dir;

	if (size == 0)
		return 0;
	if (!has_dir) {
		has_dir = mkdtemp(dir) && atexit(remove_dir) == 0;
		assert(has_dir);
		for (unsigned i = 0; i < ARRAY_LEN(names); i++)
			write_right_one(i);
	}
	replace(data[0] % ARRAY_LEN(names), data + 1, size - 1);

	try_run(false);
	try_run(true);
	replace(data[0] % ARRAY_LEN(names), NULL, 0);
	return 0;
}
