/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a list file, as text and as raw numbers (the name decides, so the first
 * byte chooses it). What is accepted must hold samples only, in every epoch that exists. */
#include <assert.h>
#include <errno.h>
#include <string.h>

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

static char dir[] = "/tmp/fuzz_order_XXXXXX"; /* of this process; empty between inputs */

static void remove_dir(void)
{
	rmdir(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct order_params params = { .n = N, .resolve = resolve };
	struct err err = { 0 };
	struct order_spec *spec;
	struct order *order;
	static const char *const names[] = { "u32", "u64", "txt" };
	static bool has_dir;
	char path[64], text[96];
	FILE *file;
	int rc;

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
	snprintf(text, sizeof(text), "list:path=%s", path);
	rc = order_spec_parse(text, &spec, &err);
	assert(rc == 0);
	rc = order_new(spec, &params, &order, &err);
	if (rc == 0)
		check_order(order);
	else
		assert(err.msg[0] && !strchr(err.msg, '\n'));
	order_free(order);
	order_spec_free(spec);
	unlink(path);
	return 0;
}
