/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scans of bytes in memory: format_kit.h.
 */
#include "format_kit.h"

#include <errno.h>
#include <string.h>

static int add(struct kit_found *found, uint64_t offset, uint64_t length, uint64_t rows)
{
	CHECK(offset <= found->limit && length <= found->limit - offset);
	if (found->n == KIT_RECORDS_MAX)
		return -E2BIG;
	found->range[found->n] = (struct format_range){ offset, length };
	found->rows[found->n++] = rows;
	return 0;
}

static int take_affine(void *ctx, const struct format_affine *a)
{
	struct kit_found *found = ctx;
	uint64_t last;

	CHECK(found->n == 0 && a->length > 0 && a->stride >= a->length);
	CHECK(!__builtin_mul_overflow(a->count, a->stride, &last));
	for (uint64_t i = 0; i < a->count; i++) {
		int rc = add(found, a->offset + i * a->stride, a->length, 1);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int take_record(void *ctx, const struct format_range *range, uint64_t rows)
{
	return add(ctx, range->offset, range->length, rows);
}

int kit_scan(enum format format, const void *bytes, size_t size, uint64_t data_bytes,
	     struct kit_found *ret)
{
	struct format_sink sink = { .ctx = ret, .affine = take_affine, .record = take_record };
	struct format_scan *s = NULL;
	uint64_t steps = 0;
	int rc;

	ret->err = (struct err){ 0 };
	ret->n = 0;
	ret->limit = data_bytes;
	rc = format_scan_new(format, size, data_bytes, &sink, &s, &ret->err);
	while (rc == 0 && format_scan_want(s).length > 0) {
		struct format_range want = format_scan_want(s);
		uint8_t *copy = malloc(want.length); /* of its size: a sanitizer sees a step behind it */

		CHECK(want.offset <= size && want.length <= size - want.offset);
		CHECK(want.length <= FORMAT_WANT_MAX && steps++ <= 2 * size + 16);
		memcpy(copy, (const uint8_t *)bytes + want.offset, want.length);
		rc = format_scan_feed(s, copy, &ret->err);
		free(copy);
	}
	format_scan_free(s);
	CHECK(rc == 0 || rc == -E2BIG || (ret->err.msg[0] && !strchr(ret->err.msg, '\n')));
	return rc;
}
