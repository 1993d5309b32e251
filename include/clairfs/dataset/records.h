/* SPDX-License-Identifier: Apache-2.0 */
/* Samples inside of larger files. A dataset may have a table that says where the records of its
 * containers are (clairfs index --records, --import); then these are its samples, numbered in the
 * order of the table, and what is no record of it is an entry only. Without a table each sample of
 * the index is one record. The table is kept in the snapshot with the identities that the files
 * had; when one of them is another file at the next scan, the table is dropped. */
#ifndef CLAIRFS_DATASET_RECORDS_H
#define CLAIRFS_DATASET_RECORDS_H

#include <stddef.h>

#include "clairfs/dataset.h"
#include "clairfs/format.h"

struct record_no {
	uint32_t v;
};
#define RECORD_NONE ((struct record_no){ UINT32_MAX })

enum records_kind {
	RECORDS_WHOLE,  /* whole files */
	RECORDS_AFFINE, /* of one size and distance: cost nothing each */
	RECORDS_TABLE,  /* each its own offset: 4 or 8 bytes each */
	RECORDS_ROWS,   /* several in one extent, which is what is read for any of them */
	RECORDS_KINDS,
};
extern const char *const records_kind_names[]; /* "whole" "affine" "table" "rows", NULL */

struct dataset_extent {
	struct entry_id entry;
	uint64_t offset, length;
};

bool dataset_has_records(const struct dataset *ds);
/* Without a table: dataset_n_samples. */
uint32_t dataset_n_records(const struct dataset *ds);
/* Of one record, which must be there; of a whole file as long as it is now. O(log files), any
 * thread. Today every record is one extent. */
struct dataset_extent dataset_locate(const struct dataset *ds, struct record_no record);
/* The record that has this byte of a file, the first one of its extent; RECORD_NONE: no record
 * has. O(log files + log records of the file), any thread. */
struct record_no dataset_record_at(const struct dataset *ds, struct entry_id e, uint64_t offset);
/* What the file was when its records were found: the table holds for this version only. False: it
 * has none, or is a record as a whole. */
bool dataset_record_identity(const struct dataset *ds, struct entry_id e,
			     struct file_identity *ret);

/* Records of one file that follow each other in number. */
struct dataset_run {
	struct entry_id entry;
	uint64_t count;
};
/* All of them, in the order of their numbers: *ret heap, [*ret_n], a whole file is one. There is a
 * table. -ENOMEM */
int dataset_runs(const struct dataset *ds, struct dataset_run **ret, size_t *ret_n) MUST_USE;

struct dataset_records_stats {
	uint64_t records[RECORDS_KINDS];
	uint64_t files[RECORDS_KINDS]; /* parts of files count, where a list goes to and fro */
	uint64_t bytes;                /* memory and snapshot */
};
void dataset_records_stats(const struct dataset *ds, struct dataset_records_stats *ret);

/* Where records are looked for. */
struct dataset_find {
	bool is_auto;       /* by the names of files, and what lies beside them */
	enum format format; /* else: this one only */
	const char *under;  /* directory, NULL: everywhere */
	unsigned threads;   /* 1..64 */
	uint64_t n_plain;   /* out: files without records that are samples no more */
	uint64_t n_failed;  /* out, is_auto: containers that are one sample now, each was logged */
};
/* Reads the containers of the source and gives the dataset a new table. A format that was said must
 * be right for every file that it is taken for (names of that format, or all files if there is no
 * such name); with is_auto a file that is wrong is a warning and one sample. -ENODATA: no file has
 * records; -ENOENT: no directory `under`; -EBADMSG: a file is damaged, its name is in the message;
 * errors of reading; -EOVERFLOW: 2^32 records; -ENOMEM. The old table stays then. */
int dataset_find_records(struct dataset *ds, struct dataset_find *find, struct err *err) MUST_USE;

/* The same from a list that somebody made (format.h), whole in memory. Its paths are relative to
 * the source, or lead into it; a list without paths is for the file `name` (the list's own name:
 * its file has that name but for the extension). Records may be of files in any sequence but must
 * not overlap. May be called again, which adds records. -EBADMSG, -ENOENT, -ENOMEM, ... */
struct dataset_import;
int dataset_import_new(const struct dataset *ds, const char *source, struct dataset_import **ret,
		       struct err *err) MUST_USE;
int dataset_import_add(struct dataset_import *import, const char *name, const void *bytes,
		       size_t size, struct err *err) MUST_USE;
/* Gives the table to the dataset. -ENODATA, -EOVERFLOW, -ENOMEM, -EBADMSG (overlaps). */
int dataset_import_finish(struct dataset_import *import, struct dataset *ds,
			  struct err *err) MUST_USE;
void dataset_import_free(struct dataset_import *import);

/* Writes the dataset's table, or that it has none, into the snapshot that dataset_open of `params`
 * made or found. -ENOENT: there is no snapshot; -ESTALE: it is of another state of the source;
 * errors of writing. */
int dataset_keep_records(const struct dataset *ds, const struct dataset_params *params,
			 struct err *err) MUST_USE;
void dataset_drop_records(struct dataset *ds);

#endif
