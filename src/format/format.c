/* SPDX-License-Identifier: Apache-2.0 */
/* What all scans share: which format is whose, what is asked for next, what is given away. Ranges
 * are compared with the size of the file here and nowhere else, so no parser can ask for, or give
 * away, what the file does not have. Pure, any thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "format_priv.h"

const char *const format_names[] = { "npy", "mds", "litdata", "megatron", "tfrecord",
				     "tar", "zip", "parquet", "arrow",    NULL };

static int (*const begins[])(struct format_scan *s, struct err *err) = {
	npy_begin, mds_begin, litdata_begin, megatron_begin, tfrecord_begin, tar_begin, zip_begin,
	parquet_begin, arrow_begin,
};

int format_want(struct format_scan *s, uint64_t offset, uint64_t length, const char *what,
		struct err *err)
{
	if (length > FORMAT_WANT_MAX && range_is_within(offset, length, s->index_bytes))
		return err_set(err, -EBADMSG, "%s has %" PRIu64 " bytes, more than %u", what, length,
			       FORMAT_WANT_MAX);
	if (!range_is_within(offset, length, s->index_bytes))
		return err_set(err, -EBADMSG,
			       "%s should be %" PRIu64 " bytes at %" PRIu64
			       ", but the file has %" PRIu64 ": cut short?",
			       what, length, offset, s->index_bytes);
	s->want = (struct format_range){ .offset = offset, .length = length };
	return 0;
}

int format_put(struct format_scan *s, uint64_t offset, uint64_t length, uint64_t rows,
	       struct err *err)
{
	struct format_range range = { .offset = offset, .length = length };

	if (rows == 0)
		return err_set(err, -EBADMSG, "a group without rows at %" PRIu64, offset);
	if (!range_is_within(offset, length, s->data_bytes))
		return err_set(err, -EBADMSG,
			       "a record should be %" PRIu64 " bytes at %" PRIu64
			       ", but the file has %" PRIu64 ": cut short?",
			       length, offset, s->data_bytes);
	return s->sink.record(s->sink.ctx, &range, rows);
}

int format_scan_new(enum format format, uint64_t index_bytes, uint64_t data_bytes,
		    const struct format_sink *sink, struct format_scan **ret, struct err *err)
{
	AUTO_FREE struct format_scan *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return err_set(err, -ENOMEM, "out of memory");
	s->index_bytes = index_bytes;
	s->data_bytes = data_bytes;
	s->sink = *sink;
	rc = begins[format](s, err);
	if (rc < 0)
		return rc;
	*ret = TAKE(s);
	return 0;
}

void format_scan_free(struct format_scan *s)
{
	free(s);
}

struct format_range format_scan_want(const struct format_scan *s)
{
	return s->want;
}

int format_scan_feed(struct format_scan *s, const void *bytes, struct err *err)
{
	struct buf_reader r;

	buf_reader_init(&r, bytes, s->want.length);
	return s->step(s, &r, err);
}

static bool ends_with(const char *name, size_t len, const char *end)
{
	size_t n = strlen(end);

	return len >= n && strncasecmp(name + len - n, end, n) == 0;
}

static bool has_part(const char *name, size_t len, const char *part)
{
	size_t n = strlen(part);

	for (size_t i = 0; i + n <= len; i++)
		if (strncasecmp(name + i, part, n) == 0)
			return true;
	return false;
}

enum format format_of_name(const char *name, size_t len)
{
	static const struct {
		const char *end;
		enum format format;
	} ends[] = {
		{ ".npy", FORMAT_NPY },	    { ".mds", FORMAT_MDS },
		{ ".tar", FORMAT_TAR },	    { ".tfrecord", FORMAT_TFRECORD },
		{ ".tfrecords", FORMAT_TFRECORD }, { ".zip", FORMAT_ZIP },
		{ ".parquet", FORMAT_PARQUET },	   { ".arrow", FORMAT_ARROW },
		{ ".feather", FORMAT_ARROW },
	};

	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		if (ends_with(name, len, ends[i].end))
			return ends[i].format;
	/* train.tfrecord-00000-of-00008, as TensorFlow Datasets names them */
	return has_part(name, len, ".tfrecord-") && !format_is_sidecar(name, len) ? FORMAT_TFRECORD
										  : FORMAT_NONE;
}

bool format_is_sidecar(const char *name, size_t len)
{
	static const char *const ends[] = { ".idx", ".info", ".index", ".crc", ".json", ".jsonl.idx" };
	static const char *const names[] = { "_SUCCESS", "_metadata", "_common_metadata",
					     ".DS_Store" };

	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		if (ends_with(name, len, ends[i]))
			return true;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (len == strlen(names[i]) && memcmp(name, names[i], len) == 0)
			return true;
	return false;
}
