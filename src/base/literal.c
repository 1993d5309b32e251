/* SPDX-License-Identifier: Apache-2.0 */
/* Words of a Python literal: what the parsers of numpy's headers share. Bytes are hostile: a word is
 * compared within the reader's end, a number that does not fit is none. Pure, any thread. */
#include "clairfs/base/literal.h"

#include <string.h>

static uint8_t literal_peek(const struct buf_reader *r)
{
	return r->at < r->size ? r->data[r->at] : 0;
}

static void literal_skip_blanks(struct buf_reader *r)
{
	while (literal_peek(r) == ' ' || literal_peek(r) == '\n')
		(void)buf_get_u8(r);
}

uint8_t literal_next(struct buf_reader *r)
{
	literal_skip_blanks(r);
	return literal_peek(r);
}

bool literal_take(struct buf_reader *r, const char *word)
{
	struct buf_reader look;
	const void *bytes;

	literal_skip_blanks(r);
	look = *r;
	bytes = buf_get_bytes(&look, strlen(word));
	if (!bytes || memcmp(bytes, word, strlen(word)) != 0)
		return false;
	*r = look;
	return true;
}

bool literal_take_number(struct buf_reader *r, uint64_t *ret)
{
	bool has_digits = false;

	*ret = 0;
	literal_skip_blanks(r);
	for (; literal_peek(r) >= '0' && literal_peek(r) <= '9'; has_digits = true)
		if (__builtin_mul_overflow(*ret, 10, ret) ||
		    __builtin_add_overflow(*ret, (uint64_t)(buf_get_u8(r) - '0'), ret))
			return false;
	return has_digits;
}

bool literal_take_comma(struct buf_reader *r, char end)
{
	return literal_take(r, ",") || literal_next(r) == (uint8_t)end;
}

bool literal_is_over(struct buf_reader *r)
{
	literal_skip_blanks(r);
	return r->at == r->size;
}
