/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the format module: a scan over bytes in memory, and what it found. Any step out
 * of line fails the test: a range outside of the file, a record outside of the data, an error
 * without a message, more steps than the file has bytes. */
#ifndef CLAIRFS_TESTS_FORMAT_KIT_H
#define CLAIRFS_TESTS_FORMAT_KIT_H

#include "check.h"
#include "clairfs/format.h"

#define KIT_RECORDS_MAX 4096

struct kit_found {
	struct format_range range[KIT_RECORDS_MAX];
	uint64_t rows[KIT_RECORDS_MAX];
	uint64_t n, limit; /* limit: bytes of the file with the records */
	struct err err;
};

/* What format_scan_* returned in the end. -E2BIG: more records than there is room for. */
int kit_scan(enum format format, const void *bytes, size_t size, uint64_t data_bytes,
	     struct kit_found *ret);

#endif
