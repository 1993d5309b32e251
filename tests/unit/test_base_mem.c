/* SPDX-License-Identifier: Apache-2.0 */
/* Large arrays, and the functions that sort plain numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/compare.h"
#include "clairfs/base/mem.h"

#define LARGE_PAGE ((size_t)2 << 20)

static void small_arrays_are_not_rounded(void)
{
	AUTO_FREE uint8_t *p = mem_alloc(1000, 1);

	CHECK(p != NULL);
	memset(p, 1, 1000);
}

static void large_arrays_begin_at_a_large_page(void)
{
	AUTO_FREE uint8_t *p = mem_alloc(3, LARGE_PAGE / 2), *q = mem_alloc(LARGE_PAGE * 5 + 1, 1);

	CHECK(p && q);
	CHECK_U64((uintptr_t)p % LARGE_PAGE, 0);
	CHECK_U64((uintptr_t)q % LARGE_PAGE, 0);
	memset(q, 1, LARGE_PAGE * 5 + 1);
}

static void nothing_is_something(void)
{
	AUTO_FREE void *p = mem_alloc(0, 8), *q = mem_alloc_zero(8, 0);

	CHECK(p && q); /* not taken for a lack of memory */
}

static void more_than_can_be_addressed(void)
{
	CHECK(mem_alloc(UINT64_MAX, 8) == NULL);
	CHECK(mem_alloc(UINT64_MAX / 8 + 1, 8) == NULL); /* that is 0 in 64 bits */
	CHECK(mem_alloc(UINT64_MAX / 2, 1) == NULL);
	CHECK(mem_alloc_zero(UINT64_MAX, 4) == NULL);
}

static void cleared_to_the_end(void)
{
	static const size_t sizes[] = { 1, 4096, 3 * LARGE_PAGE / 2, 3 * LARGE_PAGE + 5 };

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		uint8_t *dirty = mem_alloc(sizes[i], 1), *p;
		size_t sum = 0;

		CHECK(dirty != NULL);
		memset(dirty, 0xa5, sizes[i]);
		free(dirty); /* most often the next one is of the same bytes */
		p = mem_alloc_zero(sizes[i], 1);
		CHECK(p != NULL);
		for (size_t k = 0; k < sizes[i]; k++)
			sum += p[k];
		CHECK_U64(sum, 0);
		free(p);
	}
}

/* --- sorting --- */

static void numbers_that_a_difference_gets_wrong(void)
{
	uint32_t a[] = { 3000000000, 0, UINT32_MAX, 1, 2147483648 };
	uint64_t b[] = { UINT64_MAX, 5, 1, UINT64_C(1) << 63, 4294967296, 0 };
	double c[] = { 0.25, -1e300, 1e300, -0.5, 0 };

	qsort(a, ARRAY_LEN(a), sizeof(a[0]), compare_u32);
	for (size_t i = 1; i < ARRAY_LEN(a); i++)
		CHECK(a[i - 1] < a[i]);
	qsort(b, ARRAY_LEN(b), sizeof(b[0]), compare_u64);
	for (size_t i = 1; i < ARRAY_LEN(b); i++)
		CHECK(b[i - 1] < b[i]);
	qsort(c, ARRAY_LEN(c), sizeof(c[0]), compare_double);
	for (size_t i = 1; i < ARRAY_LEN(c); i++)
		CHECK(c[i - 1] < c[i]);
}

static void equals_are_equal(void)
{
	uint32_t a[] = { 4, 4 };
	uint64_t b[] = { 4, 4 };
	double c[] = { 0.5, 0.5, (double)NAN };

	CHECK_INT(compare_u32(&a[0], &a[1]), 0);
	CHECK_INT(compare_u64(&b[0], &b[1]), 0);
	CHECK_INT(compare_double(&c[0], &c[1]), 0);
	CHECK_INT(compare_double(&c[0], &c[2]), 0);
}

static void what_was_sorted_is_found(void)
{
	uint64_t seed = check_seed(), n[500];

	for (size_t i = 0; i < ARRAY_LEN(n); i++)
		n[i] = check_rand_u64(&seed) | 1;
	qsort(n, ARRAY_LEN(n), sizeof(n[0]), compare_u64);
	for (size_t i = 0; i < ARRAY_LEN(n); i++) {
		uint64_t other = n[i] & ~UINT64_C(1);

		CHECK(bsearch(&n[i], n, ARRAY_LEN(n), sizeof(n[0]), compare_u64) != NULL);
		CHECK(bsearch(&other, n, ARRAY_LEN(n), sizeof(n[0]), compare_u64) == NULL);
	}
}

static const struct check_test tests[] = {
	{ "small_arrays_are_not_rounded", small_arrays_are_not_rounded },
	{ "large_arrays_begin_at_a_large_page", large_arrays_begin_at_a_large_page },
	{ "nothing_is_something", nothing_is_something },
	{ "more_than_can_be_addressed", more_than_can_be_addressed },
	{ "cleared_to_the_end", cleared_to_the_end },
	{ "numbers_that_a_difference_gets_wrong", numbers_that_a_difference_gets_wrong },
	{ "equals_are_equal", equals_are_equal },
	{ "what_was_sorted_is_found", what_was_sorted_is_found },
};

CHECK_MAIN(tests)
