/* SPDX-License-Identifier: Apache-2.0 */
/* numpy's .npy: the rows of an array in C order are records of one size.
 *
 *   \x93 N U M P Y | major minor | u16 length (major 1) or u32 (2, 3) | header | data
 *   header: {'descr': '<f4', 'fortran_order': False, 'shape': (1000, 3, 224, 224), }
 *
 * The header is a Python literal, of which only this shape is understood: three keys, each once.
 * descr may be a list of fields, within each other. The data must be exactly as long as all that
 * says. An array without rows, in Fortran order, or of pickled objects is one sample (-ENOTSUP).
 * Pure, any thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "clairfs/base/literal.h"
#include "format_priv.h"

#define NPY_HEADER_MAX FORMAT_WANT_MAX
#define NPY_DIMENSIONS_MAX 64
#define NPY_DEPTH_MAX 16 /* of fields within fields */

struct npy_header {
	bool is_fortran, has_objects;
	unsigned dimensions;
	uint64_t rows, per_row; /* elements of a row */
	uint64_t width;         /* of an element */
};

static int bad_header(struct err *err)
{
	return err_set(err, -EBADMSG, "the header is not one that numpy writes");
}

/* A Python string in either quotes; its text without them, escapes as they are. */
static bool take_string(struct buf_reader *r, const char **ret, size_t *ret_len)
{
	uint8_t quote, c;
	size_t from;

	quote = literal_next(r);
	(void)buf_get_u8(r);
	from = r->at;
	if (quote != '\'' && quote != '"')
		return false;
	for (c = buf_get_u8(r); c != quote; c = buf_get_u8(r)) {
		if (c == '\\')
			(void)buf_get_u8(r);
		if (r->is_bad)
			return false;
	}
	*ret = (const char *)r->data + from;
	*ret_len = r->at - 1 - from;
	return true;
}

/* "<f4", "|S10", "<U5", "<M8[ns]": bytes of an element. */
static bool take_simple(struct buf_reader *r, struct npy_header *h, uint64_t *ret_width)
{
	struct buf_reader text;
	const char *type;
	uint8_t kind;
	size_t len;

	if (!take_string(r, &type, &len))
		return false;
	buf_reader_init(&text, type, len);
	kind = buf_get_u8(&text);
	if (kind == '<' || kind == '>' || kind == '|' || kind == '=')
		kind = buf_get_u8(&text);
	h->has_objects |= kind == 'O';
	if (kind == 'O')
		*ret_width = 8;
	else if (text.is_bad || !literal_take_number(&text, ret_width))
		return false;
	return kind != 'U' || !__builtin_mul_overflow(*ret_width, 4, ret_width);
}

/* "(3, 4)", the number of elements. */
static bool take_product(struct buf_reader *r, uint64_t *ret)
{
	uint64_t size;

	*ret = 1;
	if (!literal_take(r, "("))
		return false;
	while (!literal_take(r, ")"))
		if (!literal_take_number(r, &size) || __builtin_mul_overflow(*ret, size, ret) ||
		    !literal_take_comma(r, ')'))
			return false;
	return true;
}

static bool take_type(struct buf_reader *r, struct npy_header *h, unsigned depth, uint64_t *ret_width);

/* ('name', type), (('title', 'name'), type) or ('name', type, shape) */
static bool take_field(struct buf_reader *r, struct npy_header *h, unsigned depth, uint64_t *ret_width)
{
	uint64_t items = 1;
	const char *name;
	size_t len;

	if (!literal_take(r, "("))
		return false;
	if (literal_take(r, "(")) {
		if (!take_string(r, &name, &len) || !literal_take(r, ",") ||
		    !take_string(r, &name, &len) || !literal_take(r, ")"))
			return false;
	} else if (!take_string(r, &name, &len)) {
		return false;
	}
	if (!literal_take(r, ",") || !take_type(r, h, depth + 1, ret_width))
		return false;
	if (literal_take(r, ",") && !take_product(r, &items))
		return false;
	return literal_take(r, ")") && !__builtin_mul_overflow(*ret_width, items, ret_width);
}

/* A string, or a list of fields, which may be lists again. */
static bool take_type(struct buf_reader *r, struct npy_header *h, unsigned depth, uint64_t *ret_width)
{
	uint64_t width;

	if (!literal_take(r, "["))
		return take_simple(r, h, ret_width);
	*ret_width = 0;
	if (depth >= NPY_DEPTH_MAX)
		return false;
	while (!literal_take(r, "]"))
		if (!take_field(r, h, depth, &width) ||
		    __builtin_add_overflow(*ret_width, width, ret_width) ||
		    !literal_take_comma(r, ']'))
			return false;
	return true;
}

static bool take_shape(struct buf_reader *r, struct npy_header *h)
{
	uint64_t size;

	if (!literal_take(r, "("))
		return false;
	h->per_row = 1;
	while (!literal_take(r, ")")) {
		if (!literal_take_number(r, &size) || ++h->dimensions > NPY_DIMENSIONS_MAX)
			return false;
		if (h->dimensions == 1)
			h->rows = size;
		else if (__builtin_mul_overflow(h->per_row, size, &h->per_row))
			return false;
		if (!literal_take_comma(r, ')'))
			return false;
	}
	return true;
}

static bool take_entry(struct buf_reader *r, struct npy_header *h, unsigned *seen)
{
	static const char *const keys[] = { "'descr'", "'fortran_order'", "'shape'" };
	unsigned key = 0;

	while (key < ARRAY_LEN(keys) && !literal_take(r, keys[key]))
		key++;
	if (key == ARRAY_LEN(keys) || *seen & 1U << key || !literal_take(r, ":"))
		return false;
	*seen |= 1U << key;
	if (key == 0)
		return take_type(r, h, 0, &h->width);
	if (key == 2)
		return take_shape(r, h);
	h->is_fortran = literal_take(r, "True");
	return h->is_fortran || literal_take(r, "False");
}

static bool take_header(struct buf_reader *r, struct npy_header *h)
{
	unsigned seen = 0;

	if (!literal_take(r, "{"))
		return false;
	while (!literal_take(r, "}"))
		if (!take_entry(r, h, &seen) || !literal_take_comma(r, '}'))
			return false;
	return seen == 7 && literal_is_over(r);
}

static int give(struct format_scan *s, const struct npy_header *h, struct err *err)
{
	uint64_t at = s->want.offset + s->want.length, bytes = s->data_bytes - at, row, all;
	struct format_affine affine;

	if (h->is_fortran || h->has_objects || h->dimensions == 0)
		return err_set(err, -ENOTSUP, "an array %s has no records",
			       h->is_fortran	? "in Fortran order" :
			       h->has_objects	? "of objects" :
						  "without dimensions");
	if (__builtin_mul_overflow(h->per_row, h->width, &row) ||
	    __builtin_mul_overflow(h->rows, row, &all))
		return bad_header(err);
	if (bytes != all)
		return err_set(err, -EBADMSG,
			       "%" PRIu64 " bytes, but %" PRIu64 " rows of %" PRIu64
			       " bytes: cut short?",
			       bytes, h->rows, row);
	if (all == 0)
		return err_set(err, -ENOTSUP, "an array without elements has no records");
	affine = (struct format_affine){ at, row, row, h->rows };
	format_done(s);
	return s->sink.affine(s->sink.ctx, &affine);
}

static int step_header(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct npy_header h = { 0 };

	if (!take_header(r, &h))
		return bad_header(err);
	return give(s, &h, err);
}

static int step_start(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	const void *magic = buf_get_bytes(r, 6);
	unsigned major = buf_get_u8(r);
	uint64_t length, at;

	(void)buf_get_u8(r);
	if (!magic || memcmp(magic, "\x93NUMPY", 6) != 0)
		return err_set(err, -EBADMSG, "not a .npy file");
	if (major < 1 || major > 3)
		return err_set(err, -EBADMSG, "version %u of the format is unknown", major);
	length = major == 1 ? buf_get_u16(r) : buf_get_u32(r);
	at = major == 1 ? 10 : 12;
	if (length == 0 || length > NPY_HEADER_MAX)
		return err_set(err, -EBADMSG, "a header of %" PRIu64 " bytes: allowed are 1 to %u",
			       length, NPY_HEADER_MAX);
	s->step = step_header;
	return format_want(s, at, length, "the header", err);
}

int npy_begin(struct format_scan *s, struct err *err)
{
	s->step = step_start;
	return format_want(s, 0, 12, "the start", err);
}
