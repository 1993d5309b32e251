/* SPDX-License-Identifier: Apache-2.0 */
/* Where the records of a container are: bounded parsers of what containers say about themselves.
 * Pure: no I/O, no clock; the caller reads the ranges that a scan asks for and hands in the bytes.
 * Every byte is hostile: a length is checked before it is used, nothing is allocated by what a
 * file says, and a scan ends after as many steps as the file has bytes. A container that is
 * damaged, cut short or lies costs its own records only: it is one clear error. */
#ifndef CLAIRFS_FORMAT_H
#define CLAIRFS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clairfs/base/err.h"

enum format {
	FORMAT_NPY,      /* rows of an array in C order */
	FORMAT_MDS,      /* a shard of MosaicML Streaming, not compressed */
	FORMAT_LITDATA,  /* a chunk of litdata, not compressed */
	FORMAT_MEGATRON, /* sequences of NAME.bin by NAME.idx, of Megatron and of fairseq */
	FORMAT_TFRECORD, /* records with length and checksums, not compressed */
	FORMAT_TAR,      /* samples as webdataset groups the members */
	FORMAT_ZIP,      /* members */
	FORMAT_PARQUET,  /* row groups */
	FORMAT_ARROW,    /* record batches of an IPC file */
	FORMAT_NONE,
};
extern const char *const format_names[]; /* "npy" ... in this order, NULL */

struct format_range {
	uint64_t offset, length;
};
/* Record i: `length` bytes at offset + i * stride, i < count. stride >= length > 0. */
struct format_affine {
	uint64_t offset, stride, length, count;
};
/* Who takes the records, in the order of their numbers. What was given before a scan failed counts
 * for nothing. Both return 0 or a negative errno, which ends the scan. */
struct format_sink {
	void *ctx;
	/* At most once, and then nothing else. */
	int (*affine)(void *ctx, const struct format_affine *affine);
	/* rows: 1, or how many rows lie in these bytes. */
	int (*record)(void *ctx, const struct format_range *range, uint64_t rows);
};

#define FORMAT_WANT_MAX (128u << 10)
struct format_scan;
/* index_bytes: size of the file that is read; data_bytes: of the one with the records, which is
 * the same but for Megatron's. Nothing of either is read past these. *ret: one fixed allocation.
 * -EBADMSG, -ENOMEM. */
int format_scan_new(enum format format, uint64_t index_bytes, uint64_t data_bytes,
		    const struct format_sink *sink, struct format_scan **ret,
		    struct err *err) MUST_USE;
void format_scan_free(struct format_scan *s);
/* What is to be read next of the file, at most FORMAT_WANT_MAX bytes and within it; length 0: it
 * is done. Ranges mostly follow each other, with small gaps: whoever reads larger pieces than
 * asked saves requests. */
struct format_range format_scan_want(const struct format_scan *s);
/* The bytes of that range, all of them. -EBADMSG: damaged, cut short or of another format.
 * -ENOTSUP: of this format, but its records cannot be told apart: the file is one sample. Else
 * what the sink returned. The message does not name the file. After an error only
 * format_scan_free. */
int format_scan_feed(struct format_scan *s, const void *bytes, struct err *err) MUST_USE;

/* The format that the name of a file stands for, FORMAT_NONE: none. ".bin" is Megatron's or
 * litdata's, which its directory says, and neither here. */
enum format format_of_name(const char *name, size_t len);
/* Names of files that may describe others (index.json, *.idx, ...), which then are no samples. */
bool format_is_sidecar(const char *name, size_t len);
/* Of a format that no scan reads, as a person calls it or by the name of a file: what it is and what
 * makes a table of it, for a line of a message. NULL: not known. */
const char *format_advice_for_word(const char *word);
const char *format_advice_for_name(const char *name, size_t len);

/* index.json of MosaicML Streaming and of litdata: the files with samples, in their order.
 * The name ([len], no terminator) is relative to the directory of index.json. */
#define FORMAT_JSON_MAX (64u << 20)
struct format_shard {
	const char *name;
	size_t len;
	uint64_t samples;
};
/* *ret: which of the two it is; FORMAT_NONE: another kind of index.json, of which nothing was
 * told. -EBADMSG, -ENOTSUP (compressed shards), -E2BIG, -ENOMEM, or what `shard` returned. */
int format_json_index(const void *bytes, size_t size, enum format *ret,
		      int (*shard)(void *ctx, const struct format_shard *shard), void *ctx,
		      struct err *err) MUST_USE;

/* Lists that others made, whole in memory: which file, where in it. */
struct format_line {
	const char *path; /* [len], no terminator; NULL: the list does not say */
	size_t len;
	uint64_t offset, length;
	uint64_t number; /* of the line, from 1, or of the reference; for messages */
};
enum format_list {
	FORMAT_LIST_PATHS,    /* "path offset length" lines; blanks within paths are kept */
	FORMAT_LIST_OFFSETS,  /* tfrecord2idx: "offset length" lines, for one file */
	FORMAT_LIST_WDS,      /* wds2idx: "v1.2 N", then the components of a sample a line */
	FORMAT_LIST_KERCHUNK, /* JSON: chunk -> [path, offset, length] */
};
/* Which one it seems to be, by its first bytes. */
enum format_list format_list_of(const void *bytes, size_t size);
/* Tells the lines in their order, those of kerchunk by variable and chunk number. Comments (#) and
 * empty lines are passed over. Same errors as above, with "line N: " where there are lines. */
int format_list_read(enum format_list list, const void *bytes, size_t size,
		     int (*line)(void *ctx, const struct format_line *line), void *ctx,
		     struct err *err) MUST_USE;

#endif
