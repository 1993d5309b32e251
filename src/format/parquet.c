/* SPDX-License-Identifier: Apache-2.0 */
/* Parquet: row groups, by the footer.
 *
 *   "PAR1" | pages | footer | u32 length of it | "PAR1"
 *
 * The footer is a struct in thrift's compact protocol:
 *
 *   FileMetaData { 4: list<RowGroup> }
 *   RowGroup { 1: list<ColumnChunk>, 3: rows }
 *   ColumnChunk { 1: another file, 3: ColumnMetaData }
 *   ColumnMetaData { 7: bytes, 9: first page of data, 11: page of the dictionary }
 *
 * It may be megabytes, so it is taken byte by byte, in portions, by a machine with a stack of the
 * structs and lists that are open; all that is not on this path is passed over. A row group reaches
 * from the first byte of its columns to the last. Pure, any thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "format_priv.h"

#define TAIL_BYTES 8u
#define PORTION (64u << 10)

enum mode { FIELD, FIELD_ID, NUMBER, BINARY_LENGTH, LIST, LIST_LENGTH };
enum type { STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LISTS, SET, MAP, STRUCT, UUID };

static int parquet_damaged(struct err *err)
{
	return err_set(err, -EBADMSG, "the footer of the Parquet file is damaged");
}

static struct thrift_frame *top(struct parquet_state *p)
{
	return &p->frame[p->depth - 1];
}

/* Whether the open structs are those of a row group. */
static bool is_group(const struct parquet_state *p)
{
	return p->depth == 3 && p->frame[0].field == 4 && p->frame[1].is_list && !p->frame[2].is_list;
}

static bool is_in_group(const struct parquet_state *p)
{
	return p->depth >= 5 && p->frame[0].field == 4 && p->frame[1].is_list &&
	       !p->frame[2].is_list && p->frame[2].field == 1 && p->frame[3].is_list &&
	       !p->frame[4].is_list;
}

/* Whether they are those of a column's metadata. */
static bool is_column(const struct parquet_state *p)
{
	return p->depth == 6 && is_in_group(p) && p->frame[4].field == 3 && !p->frame[5].is_list;
}

static void begin_number(struct parquet_state *p, enum mode mode)
{
	p->mode = (uint8_t)mode;
	p->number = 0;
	p->shift = 0;
}

static int push(struct parquet_state *p, const struct thrift_frame *frame, struct err *err)
{
	if (p->depth == THRIFT_DEPTH_MAX)
		return parquet_damaged(err);
	p->frame[p->depth++] = *frame;
	if (is_group(p)) {
		p->start = UINT64_MAX;
		p->stop = p->rows = 0;
	} else if (is_column(p)) {
		p->bytes = p->page = p->dictionary = 0;
	}
	return 0;
}

/* A value of this type begins; *ret_is_over: it has no bytes. */
static int begin_value(struct parquet_state *p, uint8_t type, bool *ret_is_over, struct err *err)
{
	static const uint8_t widths[] = { [BYTE] = 1, [DOUBLE] = 8, [UUID] = 16 };

	*ret_is_over = false;
	switch (type) {
	case TRUE:
	case FALSE:
		p->skip = top(p)->is_list ? 1 : 0; /* of a struct the type is the value */
		*ret_is_over = true;
		return 0;
	case BYTE:
	case DOUBLE:
	case UUID:
		p->skip = widths[type];
		*ret_is_over = true;
		return 0;
	case I16:
	case I32:
	case I64:
		begin_number(p, NUMBER);
		return 0;
	case BINARY:
		begin_number(p, BINARY_LENGTH);
		return 0;
	case LISTS:
	case SET:
		p->mode = LIST;
		return 0;
	case STRUCT:
		p->mode = FIELD;
		return push(p, &(struct thrift_frame){ .is_list = false }, err);
	default: /* a map, which no Parquet file has, or no type */
		return parquet_damaged(err);
	}
}

static int end_column(struct parquet_state *p, struct err *err)
{
	/* Some writers say 0 for no dictionary. */
	bool has_dictionary = p->dictionary > 0 && p->dictionary < p->page;
	uint64_t start = has_dictionary ? p->dictionary : p->page, stop;

	if (__builtin_add_overflow(start, p->bytes, &stop))
		return parquet_damaged(err);
	p->start = MIN(p->start, start);
	p->stop = MAX(p->stop, stop);
	return 0;
}

static int end_group(struct format_scan *s, struct err *err)
{
	struct parquet_state *p = &s->parquet;

	if (p->rows == 0) /* a group of no rows is none */
		return 0;
	if (p->start >= p->stop || p->rows > INT64_MAX)
		return parquet_damaged(err);
	return format_put(s, p->start, p->stop - p->start, p->rows, err);
}

/* A value is complete: what stands behind it is the next field, or the next element of a list, which
 * may be complete with it. */
static int end_value(struct format_scan *s, struct err *err)
{
	struct parquet_state *p = &s->parquet;
	bool is_over = true;
	int rc = 0;

	while (rc == 0 && is_over) {
		if (p->depth == 0) {
			p->is_over = true;
			return 0;
		}
		if (!top(p)->is_list) {
			p->mode = FIELD;
			return 0;
		}
		if (top(p)->left == 0) {
			p->depth--;
			continue;
		}
		top(p)->left--;
		rc = begin_value(p, top(p)->type, &is_over, err);
		if (p->skip > 0)
			return rc; /* then the next one */
	}
	return rc;
}

static int end_struct(struct format_scan *s, struct err *err)
{
	struct parquet_state *p = &s->parquet;
	int rc = 0;

	if (is_column(p))
		rc = end_column(p, err);
	else if (is_group(p))
		rc = end_group(s, err);
	p->depth--;
	return rc < 0 ? rc : end_value(s, err);
}

static int take_field(struct format_scan *s, uint8_t c, struct err *err)
{
	struct parquet_state *p = &s->parquet;
	bool is_over;
	int rc;

	p->type = c & 15;
	if (p->type == STOP)
		return end_struct(s, err);
	if (c >> 4 == 0) {
		begin_number(p, FIELD_ID);
		return 0;
	}
	top(p)->field += c >> 4;
	rc = begin_value(p, p->type, &is_over, err);
	return rc == 0 && is_over && p->skip == 0 ? end_value(s, err) : rc;
}

static int take_list(struct format_scan *s, uint8_t c, struct err *err)
{
	struct parquet_state *p = &s->parquet;
	struct thrift_frame frame = { .is_list = true, .type = c & 15, .left = c >> 4 };
	int rc;

	if (c >> 4 == 15) {
		p->type = c & 15;
		begin_number(p, LIST_LENGTH);
		return 0;
	}
	rc = push(p, &frame, err);
	return rc < 0 ? rc : end_value(s, err);
}

/* The value of a number that is on the path. */
static void take_value(struct parquet_state *p, uint64_t value)
{
	int64_t field = top(p)->field;

	if (is_group(p) && field == 3)
		p->rows = value;
	if (!is_column(p))
		return;
	if (field == 7)
		p->bytes = value;
	if (field == 9)
		p->page = value;
	if (field == 11)
		p->dictionary = value;
}

static int end_number(struct format_scan *s, struct err *err)
{
	struct parquet_state *p = &s->parquet;
	uint64_t plain = p->number >> 1 ^ -(p->number & 1); /* zigzag; negative ones are huge */
	struct thrift_frame list = { .is_list = true, .type = p->type, .left = p->number };
	bool is_over;
	int rc;

	switch (p->mode) {
	case FIELD_ID:
		if (plain > INT16_MAX) /* thrift has no more */
			return parquet_damaged(err);
		top(p)->field = (int64_t)plain;
		rc = begin_value(p, p->type, &is_over, err);
		return rc == 0 && is_over && p->skip == 0 ? end_value(s, err) : rc;
	case BINARY_LENGTH:
		if (p->number > 0 && p->depth == 5 && is_in_group(p) && top(p)->field == 1)
			return err_set(err, -ENOTSUP, "its columns are in other files");
		p->skip = p->number;
		return p->skip == 0 ? end_value(s, err) : 0;
	case LIST_LENGTH:
		rc = push(p, &list, err);
		return rc < 0 ? rc : end_value(s, err);
	default:
		take_value(p, plain);
		return end_value(s, err);
	}
}

static int take_byte(struct format_scan *s, uint8_t c, struct err *err)
{
	struct parquet_state *p = &s->parquet;

	if (p->mode == FIELD)
		return take_field(s, c, err);
	if (p->mode == LIST)
		return take_list(s, c, err);
	if (p->shift > 63 || (p->shift == 63 && c > 1))
		return parquet_damaged(err);
	p->number |= (uint64_t)(c & 0x7f) << p->shift;
	p->shift = (uint8_t)(p->shift + 7);
	return c & 0x80 ? 0 : end_number(s, err);
}

static int want_portion(struct format_scan *s, struct err *err)
{
	struct parquet_state *p = &s->parquet;

	if (p->at == p->end)
		return p->is_over ? format_done(s) : parquet_damaged(err);
	return format_want(s, p->at, MIN(p->end - p->at, PORTION), "the footer", err);
}

static int step_footer(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct parquet_state *p = &s->parquet;
	int rc = 0;

	p->at += r->size;
	while (rc == 0 && r->at < r->size && !p->is_over) {
		uint64_t skip = MIN(p->skip, r->size - r->at);

		if (skip == 0) {
			rc = take_byte(s, buf_get_u8(r), err);
			continue;
		}
		(void)buf_get_bytes(r, skip);
		p->skip -= skip;
		if (p->skip == 0)
			rc = end_value(s, err);
	}
	if (rc < 0)
		return rc;
	return p->is_over ? format_done(s) : want_portion(s, err);
}

static int step_tail(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct parquet_state *p = &s->parquet;
	uint32_t length = buf_get_u32(r);

	p->end = s->index_bytes - TAIL_BYTES;
	if (memcmp(buf_get_bytes(r, 4), "PAR1", 4) != 0)
		return err_set(err, -EBADMSG, "no footer: cut short, encrypted, or no Parquet file");
	if (length > p->end)
		return parquet_damaged(err);
	p->at = p->end - length;
	p->mode = FIELD;
	p->depth = 1; /* the struct that all of it is */
	s->step = step_footer;
	return want_portion(s, err);
}

int parquet_begin(struct format_scan *s, struct err *err)
{
	if (s->index_bytes < 4 + TAIL_BYTES)
		return err_set(err, -EBADMSG, "too short for a Parquet file");
	s->step = step_tail;
	return format_want(s, s->index_bytes - TAIL_BYTES, TAIL_BYTES, "the end", err);
}
