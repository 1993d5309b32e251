/* SPDX-License-Identifier: Apache-2.0 */
/* Shards of MosaicML Streaming (MDS) and chunks of litdata begin alike:
 *
 *   u32 n | u32 offset[n + 1] | ... | sample 0 | sample 1 | ...
 *
 * where offsets count from the start of the file and the last one is its end. They are taken in
 * portions. Neither has a magic number, so the table must be right to the byte: it never falls,
 * begins behind itself and ends with the file. Newer versions of litdata may have all samples in one
 * Arrow table behind an empty one of these, which its last bytes say: that is one sample. Pure, any
 * thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "format_priv.h"

#define PORTION 4096u /* offsets */

#define ROWS_MAGIC "LDARW01" /* 8 bytes */

/* The table does not end with the file. */
static int refuse(const struct format_scan *s, struct err *err)
{
	return err_set(err, -EBADMSG,
		       "the last sample ends at %" PRIu32 ", the file at %" PRIu64
		       ": cut short, or not a shard?",
		       s->offsets.last, s->data_bytes);
}

static int step_end(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	if (memcmp(buf_get_bytes(r, 8), ROWS_MAGIC, 8) != 0)
		return refuse(s, err);
	return err_set(err, -ENOTSUP, "its samples are rows of one Arrow table");
}

static int want_portion(struct format_scan *s, struct err *err)
{
	struct offsets_state *o = &s->offsets;

	if (o->next > o->n) {
		if (o->last == s->data_bytes && o->n > 0 && o->last == 4 + 4 * (o->n + 1))
			return err_set(err, -EBADMSG, "%" PRIu64 " samples without a byte", o->n);
		if (o->last == s->data_bytes)
			return format_done(s);
		if (!o->is_litdata || s->data_bytes < 8)
			return refuse(s, err);
		s->step = step_end;
		return format_want(s, s->data_bytes - 8, 8, "the end", err);
	}
	return format_want(s, 4 + 4 * o->next, 4 * MIN(o->n + 1 - o->next, PORTION),
			   "the table of offsets", err);
}

static int step_offsets(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct offsets_state *o = &s->offsets;

	while (r->at < r->size) {
		uint32_t offset = buf_get_u32(r);
		int rc;

		if (offset < (o->next == 0 ? 4 + 4 * (o->n + 1) : o->last))
			return err_set(err, -EBADMSG,
				       "sample %" PRIu64 " begins at %" PRIu32
				       ", within what is before it",
				       o->next, offset);
		rc = o->next == 0 ? 0 : format_put(s, o->last, offset - o->last, 1, err);
		if (rc < 0)
			return rc;
		o->last = offset;
		o->next++;
	}
	return want_portion(s, err);
}

static int step_count(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	s->offsets.n = buf_get_u32(r);
	s->step = step_offsets;
	return want_portion(s, err);
}

int litdata_begin(struct format_scan *s, struct err *err)
{
	s->offsets.is_litdata = true;
	return mds_begin(s, err);
}

int mds_begin(struct format_scan *s, struct err *err)
{
	s->step = step_count;
	return format_want(s, 0, 4, "the number of samples", err);
}
