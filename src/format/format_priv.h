/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the format module: a scan is a small state machine. Each format has a begin function,
 * which says what is wanted first, and a step, which is handed exactly the bytes that were wanted
 * and says what is next. */
#ifndef CLAIRFS_FORMAT_PRIV_H
#define CLAIRFS_FORMAT_PRIV_H

#include <jansson.h>

#include "clairfs/base/buf.h"
#include "clairfs/format.h"

#define MEGATRON_PORTION 2048u

struct offsets_state { /* mds, litdata */
	uint64_t n, next;
	uint32_t last;
	bool is_litdata;
};
struct megatron_state {
	uint64_t n, next;              /* sequences */
	uint64_t lengths_at, starts_at; /* where the arrays are */
	uint64_t width;                /* bytes of a token */
	uint64_t last;                          /* old: the start before */
	uint32_t portion, length[MEGATRON_PORTION]; /* what was read of the lengths */
};
struct tar_state {
	uint64_t at;     /* header */
	uint64_t member; /* where the member begins, with the headers that extend it */
	uint64_t size, data; /* bytes behind the header, and where they begin */
	uint64_t key;        /* of the member */
	uint64_t sample_key, start, end;      /* of the sample that is being put together */
	uint64_t long_size, long_key;         /* what an extended header says of the next member */
	bool has_sample, has_long_size, has_long_name;
	bool is_sample, long_is_sample; /* by the name */
};
struct zip_state {
	uint64_t directory_at, at, end, n; /* the central directory: next, behind it, entries left */
	uint64_t packed, start;            /* the entry that is being read */
	uint32_t name_len, extra_len, comment_len;
	bool is_unpacked_large;
	uint64_t last_start, last_end;  /* the member before; the least end that it has */
	bool has_last, last_is_file;
};

struct footer_state { /* arrow */
	uint64_t start, end; /* of the footer */
	uint64_t at, n;      /* block or table that is next, blocks left */
	uint64_t offset, head, body; /* of the batch */
};
#define THRIFT_DEPTH_MAX 16
struct thrift_frame {
	bool is_list;
	uint8_t type;   /* of the elements of a list */
	uint64_t left;  /* elements */
	int64_t field;  /* of a struct, the one that is being read */
};
struct parquet_state {
	uint64_t at, end; /* of the footer */
	struct thrift_frame frame[THRIFT_DEPTH_MAX];
	unsigned depth;
	uint8_t mode, type, shift;
	uint64_t number, skip;
	bool is_over;
	uint64_t bytes, page, dictionary; /* of the column */
	uint64_t start, stop, rows;       /* of the row group */
};

struct format_scan {
	struct format_range want;
	uint64_t index_bytes, data_bytes;
	struct format_sink sink;
	int (*step)(struct format_scan *s, struct buf_reader *r, struct err *err);
	union {
		struct offsets_state offsets;
		struct megatron_state megatron;
		struct tar_state tar;
		struct zip_state zip;
		struct footer_state footer;
		struct parquet_state parquet;
	};
};

int npy_begin(struct format_scan *s, struct err *err) MUST_USE;
int mds_begin(struct format_scan *s, struct err *err) MUST_USE;
int litdata_begin(struct format_scan *s, struct err *err) MUST_USE;
int megatron_begin(struct format_scan *s, struct err *err) MUST_USE;
int tfrecord_begin(struct format_scan *s, struct err *err) MUST_USE;
int tar_begin(struct format_scan *s, struct err *err) MUST_USE;
int zip_begin(struct format_scan *s, struct err *err) MUST_USE;
int parquet_begin(struct format_scan *s, struct err *err) MUST_USE;
int arrow_begin(struct format_scan *s, struct err *err) MUST_USE;

/* json.c: the caller's. Same errors as format_json_index. */
int format_json_load(const void *bytes, size_t size, json_t **ret, struct err *err) MUST_USE;
/* kerchunk.c: format_list_read of these. */
int kerchunk_read(const void *bytes, size_t size,
		  int (*line)(void *ctx, const struct format_line *line), void *ctx,
		  struct err *err) MUST_USE;

/* Asks for a range of the file next. -EBADMSG when the file ends before; `what` is its name in the
 * message. length > 0. */
int format_want(struct format_scan *s, uint64_t offset, uint64_t length, const char *what,
		struct err *err) MUST_USE;
/* Gives a record to the sink, if the file has these bytes. */
int format_put(struct format_scan *s, uint64_t offset, uint64_t length, uint64_t rows,
	       struct err *err) MUST_USE;
static inline int format_done(struct format_scan *s)
{
	s->want = (struct format_range){ 0 };
	return 0;
}
static inline bool range_is_within(uint64_t offset, uint64_t length, uint64_t bytes)
{
	return offset <= bytes && length <= bytes - offset;
}

#endif
