/* SPDX-License-Identifier: Apache-2.0 */
/* For qsort and bsearch of plain numbers, ascending. */
#ifndef CLAIRFS_BASE_COMPARE_H
#define CLAIRFS_BASE_COMPARE_H

#include <stdint.h>

static inline int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static inline int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Of numbers: what is none (NAN) is equal to all. */
static inline int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

#endif
