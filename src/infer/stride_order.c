/* SPDX-License-Identifier: Apache-2.0 */
/* Records by their numbers, for the search for the order they are read in: the same as for files, which knows
 * numbers only (records.c). How many there are is part of a shuffle, and a file does not say it: there may be labels,
 * a table or a footer behind the last one. So a few numbers are asked about; a wrong one explains nothing. Pure. */
#include "stride_priv.h"

#define NEAR (STRIDE_PAGE + STRIDE_PAGE / 2)

static const uint16_t labels[] = { 0, 8, 4, 1, 2 }; /* bytes of something else for each record */

uint32_t stride_number(const struct stride *s, const struct stride_view *v, uint64_t start)
{
	uint64_t middle, number, off;

	if (v->kind != STRIDE_RECORDS || start >= s->size)
		return STRIDE_NONE;
	/* The record that begins next to the middle of this page. Record 0 may begin elsewhere in its own, so
	 * it is within a page of this one; also where the kernel had its first page, its neighbour's last. */
	middle = start - start % STRIDE_PAGE + STRIDE_PAGE / 2 + v->stride / 2;
	if (middle < v->origin)
		return STRIDE_NONE;
	number = (middle - v->origin) / v->stride;
	off = (middle - v->origin) % v->stride;
	if (off + NEAR < v->stride / 2 || off > v->stride / 2 + NEAR)
		return STRIDE_NONE;
	return number < v->n && number < STRIDE_NONE ? (uint32_t)number : STRIDE_NONE;
}

/* A thousand at most, so a table would be no faster. */
static bool is_there(const uint32_t *number, size_t n, uint32_t one)
{
	for (size_t i = 0; i < n; i++)
		if (number[i] == one)
			return true;
	return false;
}

size_t stride_numbers(const struct stride *s, const struct stride_view *v, uint32_t *ret, size_t max)
{
	size_t n = 0;

	for (uint32_t i = 0; i < s->n_starts && n < max; i++) {
		uint32_t number = stride_number(s, v, s->start[i].at);

		if (number != STRIDE_NONE && !is_there(ret, n, number))
			ret[n++] = number;
	}
	return n;
}

size_t stride_counts(const struct stride_view *v, uint64_t size, uint64_t ret[STRIDE_COUNTS])
{
	size_t n = 0;

	if (v->kind != STRIDE_RECORDS || size <= v->least)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(labels) && n < STRIDE_COUNTS; i++) {
		uint64_t count = (size - v->least) / (v->stride + labels[i]);
		bool is_new = count >= v->reach && count > 0;

		for (size_t k = 0; k < n; k++)
			is_new = is_new && ret[k] != count;
		if (is_new)
			ret[n++] = count;
	}
	return n;
}
