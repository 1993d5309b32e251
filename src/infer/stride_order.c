/* SPDX-License-Identifier: Apache-2.0 */
/* Records by their numbers, and the search for the order they are read in: the same as for files, which knows
 * numbers only. How many there are is part of a shuffle, and a file does not say it: there may be labels, a table or a
 * footer behind the last one. So a few numbers are asked about; a wrong one explains nothing.
 *
 * Pure but for the searches, which start threads. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "stride_priv.h"

static const uint16_t labels[] = { 0, 8, 4, 1, 2 }; /* bytes of something else for each record */

uint32_t stride_number(const struct stride *s, const struct stride_view *v, uint64_t start)
{
	uint64_t last = start - start % STRIDE_PAGE + STRIDE_PAGE - 1, number;

	/* A record begins in this page; or in the one before, which the kernel had: its neighbour's end. */
	if (v->kind != STRIDE_RECORDS || start >= s->size || last < v->origin ||
	    (last - v->origin) % v->stride >= 2 * (uint64_t)STRIDE_PAGE)
		return STRIDE_NONE;
	number = (last - v->origin) / v->stride;
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
	/* Where in its page record 0 begins may not be known. */
	uint64_t origin = v->origin - v->origin % STRIDE_PAGE;

	if (v->kind != STRIDE_RECORDS || size <= origin)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(labels) && n < STRIDE_COUNTS; i++) {
		uint64_t count = (size - origin) / (v->stride + labels[i]);
		bool is_new = count >= v->reach && count > 0;

		for (size_t k = 0; k < n; k++)
			is_new = is_new && ret[k] != count;
		if (is_new)
			ret[n++] = count;
	}
	return n;
}

int stride_ask(const struct stride *s, const struct stride_view *v, const struct infer_question *q,
	       struct infer_answer *ret)
{
	AUTO_FREE uint32_t *number = malloc(STRIDE_STARTS_MAX * sizeof(*number));
	uint64_t count[STRIDE_COUNTS];
	size_t n_counts = stride_counts(v, s->size, count);
	struct infer_question of = *q;
	int rc = -ENOENT;

	if (!number)
		return -ENOMEM;
	of.numbers = NULL;
	of.seen = number;
	of.n_seen = stride_numbers(s, v, number, STRIDE_STARTS_MAX);
	for (size_t i = 0; i < n_counts && rc == -ENOENT; i++) {
		if (count[i] < INFER_SAMPLES_MIN || count[i] >= STRIDE_NONE - 1)
			continue;
		of.n = count[i];
		rc = infer_searches_real.quick(&of, ret);
		if (rc == 0 && ret->margin < log2((double)n_counts))
			rc = -ENOENT;
	}
	return rc;
}
