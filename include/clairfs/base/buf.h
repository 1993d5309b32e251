/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded little-endian cursor: the only way foreign bytes are parsed. A failed read sets is_bad,
 * returns 0 and every later read fails too, so a parser checks once at its end. */
#ifndef CLAIRFS_BASE_BUF_H
#define CLAIRFS_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clairfs/base/cleanup.h"

struct buf_reader {
	const uint8_t *data;
	size_t size, at;
	bool is_bad;
};

void buf_reader_init(struct buf_reader *r, const void *data, size_t size);
uint8_t buf_get_u8(struct buf_reader *r);
uint16_t buf_get_u16(struct buf_reader *r);
uint32_t buf_get_u32(struct buf_reader *r);
uint64_t buf_get_u64(struct buf_reader *r);
/* Pointer to the next n bytes (borrowed), or NULL. */
const void *buf_get_bytes(struct buf_reader *r, size_t n);

/* Growing writer; is_bad after out of memory. */
struct buf_writer {
	uint8_t *data;
	size_t size, capacity;
	bool is_bad;
};

void buf_writer_init(struct buf_writer *w);
void buf_writer_fini(struct buf_writer *w);
void buf_put_u8(struct buf_writer *w, uint8_t v);
void buf_put_u16(struct buf_writer *w, uint16_t v);
void buf_put_u32(struct buf_writer *w, uint32_t v);
void buf_put_u64(struct buf_writer *w, uint64_t v);
void buf_put_bytes(struct buf_writer *w, const void *bytes, size_t n);
void buf_printf(struct buf_writer *w, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
