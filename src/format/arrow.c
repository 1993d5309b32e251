/* SPDX-License-Identifier: Apache-2.0 */
/* Arrow IPC files: record batches, by the footer.
 *
 *   "ARROW1\0\0" | schema | batch 0 | batch 1 | ... | footer | i32 length of it | "ARROW1"
 *
 * The footer is a flatbuffer: a root table whose fields are found by a vtable of 16-bit offsets. Its
 * fourth field is the vector of blocks {i64 offset, i32 metadata, 4 bytes, i64 body}, taken in
 * portions. How many rows a batch has stands in its metadata, a flatbuffer again, so that is read
 * for each batch: Message {version, header_type, header, ...}, RecordBatch {i64 rows, ...}. All
 * positions are compared with the bytes that were read. Pure, any thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "format_priv.h"

#define TAIL_BYTES 10u
#define BLOCK_BYTES 24u
#define VTABLE_BYTES 12u /* up to the fourth field */
#define HEADER_RECORD_BATCH 3u

static int arrow_damaged(const char *what, struct err *err)
{
	return err_set(err, -EBADMSG, "%s of the Arrow file is damaged", what);
}

/* Numbers at any place of a flatbuffer; *is_bad when they are not within it. */
static uint64_t arrow_number_at(const struct buf_reader *r, uint64_t at, size_t width, bool *is_bad)
{
	struct buf_reader look;

	if (*is_bad || !range_is_within(at, width, r->size)) {
		*is_bad = true;
		return 0;
	}
	buf_reader_init(&look, r->data + at, width);
	return width == 2 ? buf_get_u16(&look) : width == 4 ? buf_get_u32(&look) :
	       width == 1 ? buf_get_u8(&look) : buf_get_u64(&look);
}

/* Where a field of a table is, 0: it has its default. */
static uint64_t field_at(const struct buf_reader *r, uint64_t table, unsigned field, bool *is_bad)
{
	/* A vtable lies at a signed distance before its table. */
	uint64_t vtable = table - (uint64_t)(int64_t)(int32_t)arrow_number_at(r, table, 4, is_bad);
	uint64_t bytes = arrow_number_at(r, vtable, 2, is_bad), offset;

	if (*is_bad || 4 + 2 * (uint64_t)field + 2 > bytes)
		return 0;
	offset = arrow_number_at(r, vtable + 4 + 2 * (uint64_t)field, 2, is_bad);
	return offset ? table + offset : 0;
}

/* What a field that is an offset points to, 0: nothing. */
static uint64_t target_of(const struct buf_reader *r, uint64_t table, unsigned field, bool *is_bad)
{
	uint64_t at = field_at(r, table, field, is_bad);

	return at ? at + arrow_number_at(r, at, 4, is_bad) : 0;
}

static int step_block(struct format_scan *s, struct buf_reader *r, struct err *err);

static int want_block(struct format_scan *s, struct err *err)
{
	struct footer_state *f = &s->footer;

	s->step = step_block;
	if (f->n == 0)
		return format_done(s);
	f->n--;
	f->at += BLOCK_BYTES;
	return format_want(s, f->at - BLOCK_BYTES, BLOCK_BYTES, "a block", err);
}

/* The head of a batch: its rows, at the end of two tables. */
static int step_batch(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct footer_state *f = &s->footer;
	bool is_bad = false;
	uint32_t first = buf_get_u32(r);
	struct buf_reader body = *r;
	uint64_t message, batch, at, rows;
	int rc;

	if (first == UINT32_MAX) /* since 0.15 the length has this in front */
		(void)buf_get_u32(&body);
	body = (struct buf_reader){ .data = r->data + body.at, .size = r->size - body.at };
	message = arrow_number_at(&body, 0, 4, &is_bad);
	at = field_at(&body, message, 1, &is_bad);
	if (is_bad || !at || arrow_number_at(&body, at, 1, &is_bad) != HEADER_RECORD_BATCH)
		return arrow_damaged("a batch", err);
	batch = target_of(&body, message, 2, &is_bad);
	at = batch ? field_at(&body, batch, 0, &is_bad) : 0;
	rows = at ? arrow_number_at(&body, at, 8, &is_bad) : 0;
	if (is_bad || rows > INT64_MAX)
		return arrow_damaged("a batch", err);
	if (f->body > UINT64_MAX - f->head)
		return arrow_damaged("a block", err);
	/* A batch of no rows is none. */
	rc = rows == 0 ? 0 : format_put(s, f->offset, f->head + f->body, rows, err);
	return rc < 0 ? rc : want_block(s, err);
}

static int step_block(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct footer_state *f = &s->footer;

	f->offset = buf_get_u64(r);
	f->head = buf_get_u32(r);
	(void)buf_get_u32(r);
	f->body = buf_get_u64(r);
	if (f->head < 8)
		return arrow_damaged("a block", err);
	s->step = step_batch;
	return format_want(s, f->offset, f->head, "the head of a batch", err);
}

/* The footer may be large, so that it is looked at in places, not read. `at` of the file must be in
 * it. */
static int want_place(struct format_scan *s, uint64_t at, uint64_t length, struct err *err)
{
	const struct footer_state *f = &s->footer;

	if (at < f->start || at > f->end || length > f->end - at)
		return arrow_damaged("the footer", err);
	return format_want(s, at, length, "the footer", err);
}

static int step_count(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct footer_state *f = &s->footer;

	f->n = buf_get_u32(r);
	f->at = s->want.offset + 4;
	if (f->n > (f->end - f->at) / BLOCK_BYTES)
		return arrow_damaged("the footer", err);
	return want_block(s, err);
}

static int step_vector(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	s->step = step_count;
	return want_place(s, s->want.offset + buf_get_u32(r), 4, err);
}

/* Field 3 of the footer: the record batches. */
static int step_vtable(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	unsigned bytes = buf_get_u16(r), offset;

	(void)buf_get_bytes(r, 8);
	offset = buf_get_u16(r);
	if (bytes < VTABLE_BYTES || offset == 0)
		return format_done(s); /* there are none */
	s->step = step_vector;
	return want_place(s, s->footer.at + offset, 4, err);
}

static int step_table(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	/* A vtable lies at a signed distance before its table. */
	uint64_t vtable = s->footer.at - (uint64_t)(int64_t)(int32_t)buf_get_u32(r);

	s->step = step_vtable;
	return want_place(s, vtable, VTABLE_BYTES, err);
}

static int step_root(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	s->footer.at = s->footer.start + buf_get_u32(r);
	s->step = step_table;
	return want_place(s, s->footer.at, 4, err);
}

static int step_tail(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct footer_state *f = &s->footer;
	uint32_t length = buf_get_u32(r);

	f->end = s->index_bytes - TAIL_BYTES;
	if (memcmp(buf_get_bytes(r, 6), "ARROW1", 6) != 0)
		return err_set(err, -EBADMSG, "no footer: cut short, or a stream of Arrow's");
	if (length > f->end)
		return arrow_damaged("the footer", err);
	f->start = f->end - length;
	s->step = step_root;
	return want_place(s, f->start, 4, err);
}

int arrow_begin(struct format_scan *s, struct err *err)
{
	if (s->index_bytes < 8 + TAIL_BYTES)
		return err_set(err, -EBADMSG, "too short for an Arrow file");
	s->step = step_tail;
	return format_want(s, s->index_bytes - TAIL_BYTES, TAIL_BYTES, "the end", err);
}
