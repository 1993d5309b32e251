/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of ranks: "0-3+6" to an ascending array and back. '+' because ',' separates mount options
 * and a spec must be one word there. The limits of the world bound the array, so "0-4000000000" is
 * an error and not an allocation. Ranges that overlap are an error too: a rank counted twice would
 * double this node's reads without a sign of it. Set-up code, any thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "clairfs/base/buf.h"
#include "clairfs/base/compare.h"
#include "clairfs/base/text.h"
#include "order_priv.h"

/* "3" or "0-3". */
static int range_parse(char *text, uint64_t *ret_from, uint64_t *ret_to, struct err *err)
{
	char *to = text;
	const char *from = strsep(&to, "-");
	char shown[40];

	if (text_to_u64(from, ret_from) < 0 || (to && text_to_u64(to, ret_to) < 0))
		return err_set(err, -EINVAL,
			       "expected ranks and ranges of ranks, for example 0-3+6");
	if (!to)
		*ret_to = *ret_from;
	if (*ret_to < *ret_from)
		return err_set(err, -EINVAL, "range %" PRIu64 "-%" PRIu64 " runs backwards",
			       *ret_from, *ret_to);
	if (*ret_to >= ORDER_WORLD_MAX)
		return err_set(err, -EINVAL, "rank %s is out of range, allowed: 0-%" PRIu64,
			       text_escape(to ? to : from, strlen(to ? to : from), shown,
					   sizeof(shown)),
			       ORDER_WORLD_MAX - 1);
	return 0;
}

int order_ranks_parse(char *text, uint32_t **ret_ranks, uint32_t *ret_n, struct err *err)
{
	uint32_t *ranks AUTO_FREE = NULL;
	uint32_t n = 0;

	while (text) {
		uint64_t from, to;
		uint32_t *more;
		int rc = range_parse(strsep(&text, "+"), &from, &to, err);

		if (rc < 0)
			return rc;
		if (n + (to - from + 1) > ORDER_WORLD_MAX)
			return err_set(err, -EINVAL, "more than %" PRIu64 " ranks",
				       ORDER_WORLD_MAX);
		more = realloc(ranks, (n + (to - from + 1)) * sizeof(*ranks));
		if (!more)
			return err_set(err, -ENOMEM, "out of memory");
		ranks = more;
		for (uint64_t rank = from; rank <= to; rank++)
			ranks[n++] = (uint32_t)rank;
	}
	qsort(ranks, n, sizeof(*ranks), compare_u32);
	for (uint32_t i = 1; i < n; i++)
		if (ranks[i] == ranks[i - 1])
			return err_set(err, -EINVAL, "rank %u is given twice", ranks[i]);
	*ret_ranks = TAKE(ranks);
	*ret_n = n;
	return 0;
}

char *order_ranks_text(const uint32_t *ranks, uint32_t n_ranks)
{
	struct buf_writer w;
	uint32_t end;

	buf_writer_init(&w);
	for (uint32_t i = 0; i < n_ranks; i = end) {
		for (end = i + 1; end < n_ranks && ranks[end] == ranks[end - 1] + 1;)
			end++;
		buf_printf(&w, "%s%u", i ? "+" : "", ranks[i]);
		if (end - i > 1)
			buf_printf(&w, "-%u", ranks[end - 1]);
	}
	buf_put_u8(&w, '\0');
	if (w.is_bad) {
		buf_writer_fini(&w);
		return NULL;
	}
	return (char *)w.data;
}
