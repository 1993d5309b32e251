/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded cursor. Numbers are put together byte by byte, so neither alignment nor the byte order of
 * the machine matters (compilers make one load of it). Every length is compared with what is left,
 * never added to a position that came from the bytes: an addition could wrap. Both sides are sticky
 * after the first failure.
 */
#include "clairfs/base/buf.h"

#include <stdarg.h>
#include <string.h>

void buf_reader_init(struct buf_reader *r, const void *data, size_t size)
{
	*r = (struct buf_reader){ .data = data, .size = size };
}

const void *buf_get_bytes(struct buf_reader *r, size_t n)
{
	const uint8_t *p;

	if (r->is_bad || n > r->size - r->at) {
		r->is_bad = true;
		return NULL;
	}
	if (n == 0)
		return ""; /* not NULL, even if the reader has no bytes at all */
	p = r->data + r->at;
	r->at += n;
	return p;
}

static uint64_t buf_get_le(struct buf_reader *r, size_t n)
{
	const uint8_t *p = buf_get_bytes(r, n);
	uint64_t v = 0;

	if (!p)
		return 0;
	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

uint8_t buf_get_u8(struct buf_reader *r)
{
	return (uint8_t)buf_get_le(r, 1);
}

uint16_t buf_get_u16(struct buf_reader *r)
{
	return (uint16_t)buf_get_le(r, 2);
}

uint32_t buf_get_u32(struct buf_reader *r)
{
	return (uint32_t)buf_get_le(r, 4);
}

uint64_t buf_get_u64(struct buf_reader *r)
{
	return buf_get_le(r, 8);
}

void buf_writer_init(struct buf_writer *w)
{
	*w = (struct buf_writer){ 0 };
}

void buf_writer_fini(struct buf_writer *w)
{
	free(w->data);
	*w = (struct buf_writer){ 0 };
}

/* Makes room for n more bytes and returns where they go, or NULL with is_bad set. */
static uint8_t *buf_reserve(struct buf_writer *w, size_t n)
{
	size_t capacity = MAX(w->capacity, 64);
	uint8_t *data;

	if (w->is_bad)
		return NULL;
	if (w->data && n <= w->capacity - w->size)
		return w->data + w->size;
	while (capacity - w->size < n && capacity <= SIZE_MAX / 2)
		capacity *= 2;
	data = capacity - w->size < n ? NULL : realloc(w->data, capacity);
	if (!data) {
		w->is_bad = true;
		return NULL;
	}
	w->data = data;
	w->capacity = capacity;
	return data + w->size;
}

static void buf_put_le(struct buf_writer *w, uint64_t v, size_t n)
{
	uint8_t *p = buf_reserve(w, n);

	if (!p)
		return;
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * i));
	w->size += n;
}

void buf_put_u8(struct buf_writer *w, uint8_t v)
{
	buf_put_le(w, v, 1);
}

void buf_put_u16(struct buf_writer *w, uint16_t v)
{
	buf_put_le(w, v, 2);
}

void buf_put_u32(struct buf_writer *w, uint32_t v)
{
	buf_put_le(w, v, 4);
}

void buf_put_u64(struct buf_writer *w, uint64_t v)
{
	buf_put_le(w, v, 8);
}

void buf_put_bytes(struct buf_writer *w, const void *bytes, size_t n)
{
	uint8_t *p;

	if (n == 0)
		return; /* bytes may be NULL */
	p = buf_reserve(w, n);
	if (!p)
		return;
	memcpy(p, bytes, n);
	w->size += n;
}

void buf_printf(struct buf_writer *w, const char *fmt, ...)
{
	va_list ap;
	uint8_t *p;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	/* Room for the terminator, which is written but not counted. */
	p = n < 0 ? NULL : buf_reserve(w, (size_t)n + 1);
	if (!p) {
		w->is_bad = true;
		return;
	}
	va_start(ap, fmt);
	vsnprintf((char *)p, (size_t)n + 1, fmt, ap);
	va_end(ap);
	w->size += (size_t)n;
}
