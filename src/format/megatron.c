/* SPDX-License-Identifier: Apache-2.0 */
/* NAME.idx, which says where the sequences (documents) of NAME.bin are. Two versions:
 *
 *   Megatron   "MMIDIDX\0\0" | u64 1 | u8 type | u64 n | u64 documents
 *              | i32 length[n], tokens | i64 start[n], bytes | i64 document[] | perhaps i8 mode[n]
 *   fairseq    "TNTIDX\0\0" | u64 1 | u64 type | u64 width | u64 n | u64 sizes | perhaps u64
 *              documents | i64 dim[n + 1] | i64 start[n + 1], tokens | i64 size[sizes] | ...
 *
 * In both the arrays are taken in portions. Of the old one the sum of the arrays says whether the
 * number of documents is there. Sequences need not follow each other. Pure, any thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "format_priv.h"

#define MAGIC_BYTES 9u
#define HEAD_BYTES 34u     /* Megatron */
#define OLD_HEAD_BYTES 48u /* its magic has 8 bytes */

static int bad_count(struct err *err)
{
	return err_set(err, -EBADMSG, "the index is too short for its own number of sequences");
}

/* Bytes of a token. */
static uint64_t width_of(uint64_t type)
{
	static const uint8_t widths[] = { 0, 1, 1, 2, 4, 8, 8, 4, 2 };

	return type < ARRAY_LEN(widths) ? widths[type] : 0;
}

static int want_lengths(struct format_scan *s, struct err *err)
{
	struct megatron_state *m = &s->megatron;

	if (m->next == m->n)
		return format_done(s);
	m->portion = (uint32_t)MIN(m->n - m->next, MEGATRON_PORTION);
	return format_want(s, m->lengths_at + 4 * m->next, 4ull * m->portion,
			   "lengths of sequences", err);
}

static int step_starts(struct format_scan *s, struct buf_reader *r, struct err *err);

static int step_lengths(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct megatron_state *m = &s->megatron;

	for (uint32_t i = 0; i < m->portion; i++) {
		m->length[i] = buf_get_u32(r);
		if (m->length[i] > INT32_MAX)
			return err_set(err, -EBADMSG, "sequence %" PRIu64 " has a negative length",
				       m->next + i);
	}
	s->step = step_starts;
	return format_want(s, m->starts_at + 8 * m->next, 8ull * m->portion, "starts of sequences",
			   err);
}

static int step_starts(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct megatron_state *m = &s->megatron;

	for (uint32_t i = 0; i < m->portion; i++) {
		int rc = format_put(s, buf_get_u64(r), m->length[i] * m->width, 1, err);

		if (rc < 0)
			return rc;
	}
	m->next += m->portion;
	s->step = step_lengths;
	return want_lengths(s, err);
}

static int step_head(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct megatron_state *m = &s->megatron;
	uint64_t version, documents, tail;

	(void)buf_get_bytes(r, MAGIC_BYTES);
	version = buf_get_u64(r);
	m->width = width_of(buf_get_u8(r));
	m->n = buf_get_u64(r);
	documents = buf_get_u64(r);
	if (version != 1 || m->width == 0)
		return err_set(err, -EBADMSG, "version %" PRIu64 " or its type of tokens is unknown",
			       version);
	m->lengths_at = HEAD_BYTES;
	if (m->n > s->index_bytes / 12 || documents > s->index_bytes / 8)
		return bad_count(err);
	m->starts_at = m->lengths_at + 4 * m->n;
	tail = m->starts_at + 8 * m->n + 8 * documents;
	if (s->index_bytes != tail && s->index_bytes != tail + m->n)
		return bad_count(err);
	s->step = step_lengths;
	return want_lengths(s, err);
}

static int want_old(struct format_scan *s, struct err *err)
{
	struct megatron_state *m = &s->megatron;

	if (m->next > m->n)
		return format_done(s);
	m->portion = (uint32_t)MIN(m->n + 1 - m->next, MEGATRON_PORTION);
	return format_want(s, m->starts_at + 8 * m->next, 8ull * m->portion, "starts of sequences",
			   err);
}

static int step_old(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct megatron_state *m = &s->megatron;

	for (uint32_t i = 0; i < m->portion; i++, m->next++) {
		uint64_t start = buf_get_u64(r);
		int rc;

		if (__builtin_mul_overflow(start, m->width, &start) ||
		    (m->next > 0 && start < m->last))
			return err_set(err, -EBADMSG, "sequence %" PRIu64 " ends before it begins",
				       m->next);
		rc = m->next == 0 ? 0 : format_put(s, m->last, start - m->last, 1, err);
		if (rc < 0)
			return rc;
		m->last = start;
	}
	return want_old(s, err);
}

static int step_old_head(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct megatron_state *m = &s->megatron;
	uint64_t version, sizes, arrays;

	(void)buf_get_bytes(r, 8);
	version = buf_get_u64(r);
	(void)buf_get_u64(r); /* numpy's name of the type; the width says enough */
	m->width = buf_get_u64(r);
	m->n = buf_get_u64(r);
	sizes = buf_get_u64(r);
	if (version != 1 || (m->width != 1 && m->width != 2 && m->width != 4 && m->width != 8))
		return err_set(err, -EBADMSG,
			       "version %" PRIu64 " or tokens of %" PRIu64 " bytes are unknown",
			       version, m->width);
	if (m->n > s->index_bytes / 16 || sizes > s->index_bytes / 8)
		return bad_count(err);
	arrays = 16 * (m->n + 1) + 8 * sizes;
	/* With a number of documents in front there are also documents behind. */
	m->starts_at = OLD_HEAD_BYTES + 8 * (m->n + 1);
	if (s->index_bytes > OLD_HEAD_BYTES + arrays)
		m->starts_at += 8;
	else if (s->index_bytes != OLD_HEAD_BYTES + arrays)
		return bad_count(err);
	s->step = step_old;
	return want_old(s, err);
}

static int step_magic(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	const void *magic = buf_get_bytes(r, MAGIC_BYTES);

	if (magic && memcmp(magic, "MMIDIDX\0", MAGIC_BYTES) == 0) {
		s->step = step_head;
		return format_want(s, 0, HEAD_BYTES, "the head of the index", err);
	}
	if (magic && memcmp(magic, "TNTIDX\0", 8) == 0) {
		s->step = step_old_head;
		return format_want(s, 0, OLD_HEAD_BYTES, "the head of the index", err);
	}
	return err_set(err, -EBADMSG, "not an index of Megatron's or fairseq's");
}

int megatron_begin(struct format_scan *s, struct err *err)
{
	s->step = step_magic;
	return format_want(s, 0, MAGIC_BYTES, "the magic number", err);
}
