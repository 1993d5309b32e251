/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a container; the first one says as which, the second how long the file
 * with the records is where that is another one. Whatever is asked for must be within the file, and
 * what is found within the one with the records; a scan must come to an end. */
#include <assert.h>
#include <string.h>

#include "clairfs/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct limits {
	uint64_t data_bytes;
	bool has_affine;
};

static int take_affine(void *ctx, const struct format_affine *a)
{
	struct limits *l = ctx;
	uint64_t end;

	assert(!l->has_affine && a->length > 0 && a->stride >= a->length && a->count > 0);
	l->has_affine = true;
	assert(!__builtin_mul_overflow(a->count - 1, a->stride, &end));
	assert(!__builtin_add_overflow(end, a->offset, &end));
	assert(end <= l->data_bytes && a->length <= l->data_bytes - end);
	return 0;
}

static int take_record(void *ctx, const struct format_range *range, uint64_t rows)
{
	struct limits *l = ctx;

	assert(!l->has_affine && rows > 0);
	assert(range->offset <= l->data_bytes && range->length <= l->data_bytes - range->offset);
	return 0;
}

static void scan(enum format format, const uint8_t *bytes, uint64_t size, uint64_t data_size)
{
	struct limits limits = { .data_bytes = data_size };
	struct format_sink sink = { .ctx = &limits, .affine = take_affine, .record = take_record };
	struct err err = { 0 };
	struct format_scan *s = NULL;
	uint64_t steps = 0;
	int rc = format_scan_new(format, size, data_size, &sink, &s, &err);

	while (rc == 0 && format_scan_want(s).length > 0) {
		struct format_range want = format_scan_want(s);
		uint8_t *copy;

		assert(want.length <= FORMAT_WANT_MAX && want.offset <= size &&
		       want.length <= size - want.offset && steps++ <= 2 * size + 16);
		copy = malloc(want.length); /* so that a sanitizer sees a step behind it */
		assert(copy);
		memcpy(copy, bytes + want.offset, want.length);
		rc = format_scan_feed(s, copy, &err);
		free(copy);
	}
	format_scan_free(s);
	assert(rc == 0 || (err.msg[0] && !strchr(err.msg, '\n')));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum format format;

	if (size < 2)
		return 0;
	format = (enum format)(data[0] % FORMAT_NONE);
	scan(format, data + 2, size - 2,
	     format == FORMAT_MEGATRON ? (uint64_t)data[1] << (data[1] % 56) : size - 2);
	return 0;
}
