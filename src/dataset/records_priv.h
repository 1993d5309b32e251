/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the dataset module: the table of records, as it is in memory and in the snapshot
 * (FORMAT.md). Pure but for the allocations. */
#ifndef CLAIRFS_DATASET_RECORDS_PRIV_H
#define CLAIRFS_DATASET_RECORDS_PRIV_H

#include "clairfs/dataset/records.h"

/* A run of records of one file, in rising order of offsets; or a run of whole files, whose slots
 * follow each other. */
struct run {
	uint64_t first;  /* number of its first record */
	uint64_t count;  /* records */
	uint64_t units;  /* extents; == count but for RECORDS_ROWS */
	uint64_t offset; /* of its first byte */
	uint64_t end;    /* behind its last byte */
	uint64_t stride, length; /* RECORDS_AFFINE */
	uint64_t data_at;        /* in the data: RECORDS_TABLE, RECORDS_ROWS */
	struct file_identity identity; /* of the file, not of whole ones */
	uint32_t slot;
	uint8_t kind, width, has_gaps, zero;
};

/* The data of a run, numbers of `width` bytes (4 or 8), from `offset` on:
 *
 *   without gaps: units + 1 starts, where one ends the next one begins
 *   with gaps:    units starts, units lengths
 *   rows:         then units + 1 numbers of rows before, 4 bytes each
 *
 * each padded to 8 bytes. */
struct records {
	void *memory; /* what to free, NULL: part of another allocation */
	uint8_t *blob; /* all of it, as in the snapshot; NULL: no table */
	uint64_t blob_bytes;
	uint32_t n_runs;
	struct run *run;
	uint32_t *by_file; /* n_runs: their numbers, sorted by slot and offset */
	uint8_t *data;
	uint64_t data_bytes;
};
#define RECORDS_MAX 0xfffffff0ull /* as entries */

/* records.c */
/* Points into a blob whose header is right; false: it cannot be one of this size. */
bool records_place(struct records *r, void *blob, uint64_t bytes);
struct table;
/* True when all of it is in range and ordered: nothing below need check again. */
bool records_is_valid(const struct records *r, const struct table *t);
void records_fini(struct records *r);
uint64_t records_count(const struct records *r);
/* `record` is there. length UINT64_MAX: the whole file. */
void records_locate(const struct records *r, uint32_t record, uint32_t *ret_slot,
		    struct format_range *ret);
/* UINT32_MAX: none. */
uint32_t records_at(const struct records *r, uint32_t slot, uint64_t offset);
/* The first run of the file in by_file, or that has it as a whole one; NULL: none. */
const struct run *records_of_file(const struct records *r, uint32_t slot);

/* Bytes of data that a run has. */
uint64_t records_run_data(const struct run *s);
/* Whether b, behind a in the list by file, has nothing that a has. */
bool records_are_apart(const struct run *a, const struct run *b);

/* records_sidecar.c: whether the file is no record and only describes a container that has some. */
bool records_is_sidecar(const struct records *r, const struct table *t, uint32_t slot);

/* records_build.c: a part is what is known of one file, or of a list. */
struct records_part {
	struct run *run;
	uint32_t n_runs, capacity;
	uint8_t *data;
	uint64_t data_bytes, data_capacity;
	/* the run that is open */
	struct run open;
	uint64_t *start, *length, *rows; /* length, rows: NULL while they follow from the others */
	uint64_t n, n_capacity, lengths_capacity, rows_capacity;
	bool is_uniform;
	uint32_t runs_max; /* 0: RECORDS_RUNS_MAX, which is meant for a file */
};
/* Where records go to and fro each turn begins a run, and telling overlaps takes a sort of all: more
 * of either is refused, a file or a list must not take all memory. */
#define RECORDS_RUNS_MAX (1u << 22)    /* of 104 bytes */
#define RECORDS_TANGLED_MAX (1u << 24) /* records of a part, of 25 bytes */
/* From here on records are of this file. -ENOMEM */
int records_part_file(struct records_part *p, uint32_t slot,
		      const struct file_identity *identity) MUST_USE;
/* -ENOMEM, -E2BIG (too many runs), -EOVERFLOW: no room for its end in 64 bits; -EBADMSG: no rows. */
int records_part_add(struct records_part *p, const struct format_range *range,
		     uint64_t rows) MUST_USE;
int records_part_affine(struct records_part *p, const struct format_affine *a) MUST_USE;
/* Whole files. */
int records_part_whole(struct records_part *p, uint32_t slot) MUST_USE;
uint64_t records_part_count(const struct records_part *p);
/* After the last record: runs that reach into each other are made anew. -EEXIST: records overlap;
 * -E2BIG, -ENOMEM. The part is empty then. */
int records_part_settle(struct records_part *p, uint32_t *ret_slot) MUST_USE;
/* Forgets what was added. */
void records_part_clear(struct records_part *p);
void records_part_fini(struct records_part *p);
/* One table of all parts, in their order; empties them. Parts of one file each, settled, can only be
 * too many records. *ret_slot: of whom a complaint is. -ENODATA, -ENOMEM, -E2BIG, -EOVERFLOW,
 * -EEXIST: records overlap. */
int records_join(struct records_part *parts, size_t n, struct records *ret,
		 uint32_t *ret_slot) MUST_USE;
/* records_sort.c: the records of a table whose runs reach into each other, in runs that do not;
 * by_file need not be right. -EEXIST: records overlap; -E2BIG, -ENOMEM. */
int records_untangle(const struct records *r, struct records_part *ret,
		     uint32_t *ret_slot) MUST_USE;
/* The end of a message for -E2BIG. */
extern const char records_too_tangled[];
/* records_find.c: the same two with a message. -ENODATA, -ENOMEM, -EOVERFLOW, -E2BIG, -EBADMSG. */
int records_settle_for(const struct table *t, struct records_part *part,
		       struct err *err) MUST_USE;
int records_join_for(const struct table *t, struct records_part *parts, size_t n,
		     struct records *ret, struct err *err) MUST_USE;
/* The table for other numbers of the same files. map returns UINT32_MAX for a file that is not the
 * same any more: -ESTALE. */
int records_renumber(const struct records *old,
		     uint32_t (*map)(void *ctx, uint32_t slot, const struct file_identity *identity),
		     void *ctx, struct records *ret) MUST_USE;

struct dataset;
/* records_read.c: what is to be read of one container. */
struct records_task {
	uint32_t slot;       /* of the file with the records */
	uint32_t index_slot; /* of the one that says where they are; mostly the same */
	enum format format;  /* FORMAT_NONE: one sample as a whole */
	uint64_t samples;    /* that it must have, UINT64_MAX: any number */
};
/* Reads it into the part, which is empty. The message names the file. -EBADMSG, -ENOTSUP (see
 * format.h), -ENOMEM, errors of reading. */
int records_read(const struct dataset *ds, const struct records_task *task,
		 struct records_part *part, struct err *err) MUST_USE;
/* All of a small file, heap. -E2BIG: more than max. */
int records_read_all(const struct dataset *ds, const char *path, uint64_t max, uint8_t **ret,
		     size_t *ret_size, struct err *err) MUST_USE;

#endif
