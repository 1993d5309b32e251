/* SPDX-License-Identifier: Apache-2.0 */
/* numpy's .npy files, as far as index files need them:
 *
 *   \x93 N U M P Y | major minor | u16 length (major 1) or u32 (2, 3) | header | data
 *   header: {'descr': '<u4', 'fortran_order': False, 'shape': (1000,), }   padded with blanks
 *
 * The header is a Python literal, of which only this shape is understood: three keys, each once,
 * in any sequence. A file may come from a broken or still running job, so its size must be exactly
 * what the header promises, before anything is allocated. Foreign bytes are read through a
 * buf_reader only. Set-up code of one thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "clairfs/base/buf.h"
#include "clairfs/base/literal.h"
#include "npy.h"
#include "order_priv.h"

#define HEADER_MAX 4096 /* bytes; numpy pads to 128 */
#define WINDOW (64 << 10)

static int parse_type(struct buf_reader *r, struct npy *npy, struct err *err)
{
	static const struct {
		const char *text;
		unsigned width;
		bool is_signed;
	} types[] = {
		{ "'<u4'", 4, false },
		{ "'<i4'", 4, true },
		{ "'<u8'", 8, false },
		{ "'<i8'", 8, true },
	};

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		if (!literal_take(r, types[i].text))
			continue;
		npy->width = types[i].width;
		npy->is_signed = types[i].is_signed;
		return 0;
	}
	return err_set(err, -EINVAL,
		       "elements must be little-endian numbers of 32 or 64 bits (<i4 <u4 <i8 <u8)");
}

static int parse_shape(struct buf_reader *r, struct npy *npy, struct err *err)
{
	if (!literal_take(r, "(") || !literal_take_number(r, &npy->rows) || !literal_take(r, ","))
		return err_set(err, -EINVAL, "the array must have one or two dimensions");
	npy->columns = 1;
	npy->dimensions = 1;
	if (literal_take(r, ")"))
		return 0;
	npy->dimensions = 2;
	if (!literal_take_number(r, &npy->columns))
		return err_set(err, -EINVAL, "the array must have one or two dimensions");
	(void)literal_take(r, ",");
	if (!literal_take(r, ")"))
		return err_set(err, -EINVAL, "the array must have one or two dimensions");
	return 0;
}

/* One "key: value". `seen` has a bit for each key that was there. */
static int parse_entry(struct buf_reader *r, struct npy *npy, unsigned *seen, struct err *err)
{
	static const char *const keys[] = { "'descr'", "'fortran_order'", "'shape'" };
	unsigned key = 0;

	while (key < ARRAY_LEN(keys) && !literal_take(r, keys[key]))
		key++;
	if (key == ARRAY_LEN(keys) || *seen & 1U << key || !literal_take(r, ":"))
		return err_set(err, -EINVAL, "the header is not one that numpy writes");
	*seen |= 1U << key;
	if (key == 0)
		return parse_type(r, npy, err);
	if (key == 2)
		return parse_shape(r, npy, err);
	if (!literal_take(r, "False"))
		return err_set(err, -EINVAL, "the array is in Fortran order");
	return 0;
}

static int parse_header(struct buf_reader *r, struct npy *npy, struct err *err)
{
	unsigned seen = 0;

	if (!literal_take(r, "{"))
		return err_set(err, -EINVAL, "the header is not one that numpy writes");
	while (!literal_take(r, "}")) {
		int rc = parse_entry(r, npy, &seen, err);

		if (rc < 0)
			return rc;
		if (!literal_take_comma(r, '}'))
			return err_set(err, -EINVAL, "the header is not one that numpy writes");
	}
	if (seen != 7 || !literal_is_over(r))
		return err_set(err, -EINVAL, "the header is not one that numpy writes");
	return 0;
}

/* The bytes before the header, then the header itself. Leaves the file at the data. */
static int read_header(struct npy *npy, uint64_t *ret_data_at, struct err *err)
{
	uint8_t start[12], text[HEADER_MAX];
	struct buf_reader r;
	const void *magic;
	unsigned major;
	size_t got, length;
	int rc = order_file_read(npy->fd, start, 10, &got, err);

	if (rc < 0)
		return rc;
	buf_reader_init(&r, start, sizeof(start));
	magic = buf_get_bytes(&r, 6);
	if (got < 10 || memcmp(magic, "\x93NUMPY", 6) != 0)
		return err_set(err, -EINVAL, "not a .npy file");
	major = buf_get_u8(&r);
	(void)buf_get_u8(&r);
	if (major < 1 || major > 3)
		return err_set(err, -EINVAL, "version %u of the format is unknown", major);
	if (major > 1) {
		rc = order_file_read(npy->fd, start + 10, 2, &got, err);
		if (rc < 0)
			return rc;
		if (got < 2)
			return err_set(err, -EINVAL, "not a .npy file");
	}
	length = major == 1 ? buf_get_u16(&r) : buf_get_u32(&r);
	if (length > sizeof(text))
		return err_set(err, -EINVAL, "the header is longer than %d bytes", HEADER_MAX);
	rc = order_file_read(npy->fd, text, length, &got, err);
	if (rc < 0)
		return rc;
	if (got < length)
		return err_set(err, -EINVAL, "the file ends within its header");
	*ret_data_at = r.at + length;
	buf_reader_init(&r, text, length);
	return parse_header(&r, npy, err);
}

int npy_open(const struct order_params *params, const char *path, struct npy *ret, struct err *err)
{
	struct npy npy = { .fd = -1 };
	uint64_t size, at, bytes;
	int rc;

	*ret = npy;
	rc = order_file_open(params, path, &npy.fd, &size, err);
	if (rc < 0)
		return rc;
	rc = read_header(&npy, &at, err);
	if (rc == 0 &&
	    (__builtin_mul_overflow(npy.rows, npy.columns, &bytes) ||
	     __builtin_mul_overflow(bytes, npy.width, &bytes) || size < at || bytes != size - at))
		rc = err_set(err, -EINVAL,
			     "%" PRIu64 " bytes, but the header says %" PRIu64 " x %" PRIu64
			     " numbers of %u bytes: cut short?",
			     size, npy.rows, npy.columns, npy.width);
	if (rc < 0) {
		npy_close(&npy);
		return rc;
	}
	*ret = npy;
	return 0;
}

void npy_close(struct npy *npy)
{
	if (npy->fd >= 0)
		close(npy->fd);
	npy->fd = -1;
}

int npy_read(struct npy *npy, uint64_t limit, uint32_t *out, struct err *err)
{
	uint8_t *window AUTO_FREE = malloc(WINDOW);
	uint64_t all = npy->rows * npy->columns, at = 0; /* as many as the file has */
	struct buf_reader r;

	if (!window)
		return err_set(err, -ENOMEM, "out of memory");
	while (at < all) {
		size_t want = (size_t)MIN((all - at) * npy->width, WINDOW), got;
		int rc = order_file_read(npy->fd, window, want, &got, err);

		if (rc < 0)
			return rc;
		if (got < want)
			return err_set(err, -EINVAL, "the file became shorter");
		buf_reader_init(&r, window, got);
		for (; r.at < got; at++) {
			/* Negative numbers are large ones here. */
			uint64_t v = npy->width == 8 ? buf_get_u64(&r) : buf_get_u32(&r);

			if (v >= limit || (npy->is_signed && npy->width == 4 && v > INT32_MAX))
				return err_set(err, -EINVAL,
					       "entry %" PRIu64
					       " is out of range, allowed: 0-%" PRIu64,
					       at, limit - 1);
			out[at] = (uint32_t)v;
		}
	}
	return 0;
}
