/* SPDX-License-Identifier: Apache-2.0 */
/* Records inside large files, and the order they are read in, when nobody told either: from READs as the kernel
 * sends them (stride.h) to numbers of records, and from these to an order as from opened files (infer.h). A few
 * files at a time. What is known is said; who asks may do something about it.
 *
 * How it decides: "Records in one file" in src/infer/README.md. */
#ifndef CLAIRFS_INFER_RECORDS_H
#define CLAIRFS_INFER_RECORDS_H

#include "clairfs/infer.h"
#include "clairfs/infer/stride.h"

#define INFER_RECORD_FILES 8 /* that are looked at */
#define INFER_NAME_MAX 512
#define INFER_READ_MOST (1u << 20) /* bytes of a READ */

struct infer_records_params {
	enum infer_effort effort; /* INFER_OFF: no order is looked for, records are. INFER_FULL is as INFER_QUICK */
	uint64_t memory;          /* bytes that all searches may use beside their threads', 0: any */
	unsigned threads;         /* of a search; 0: an eighth of the CPUs */
	uint32_t world;           /* ranks of the job as its launcher says, 0: unknown */
	uint64_t around;          /* bytes that the kernel reads before and behind what is missing of a mapped file */
	struct clock *clock;      /* borrowed */
	struct metrics *metrics;  /* borrowed */
	/* What the file is called in the log. On the owner's thread; a microsecond. */
	void (*name)(void *ctx, uint32_t file, char out[INFER_NAME_MAX]);
	/* There is more to get than before. On a search's thread; must not wait for anything. NULL: nobody asks. */
	void (*news)(void *ctx);
	void *ctx;
};

struct infer_records;
/* -ENOMEM. Starts no thread. */
int infer_records_new(const struct infer_records_params *params, struct infer_records **ret) MUST_USE;
/* Nothing is looked for any more: cancels what is under way, a judgement too, and waits for nothing. Any thread. */
void infer_records_quit(struct infer_records *r);
/* Cancels searches and waits for them, as infer_stop. NULL is fine. */
void infer_records_free(struct infer_records *r);

/* A READ of some bytes of a file. */
struct infer_record_read {
	uint32_t file;   /* any number that names it */
	uint32_t reader; /* the thread, 0: not known */
	uint64_t size, offset, length; /* bytes; size: of the file */
	uint64_t at_ns;  /* when it came, by the clock of the params; of several threads one may come late */
};

/* --- One thread, the owner; the next two are its. Takes note: a microsecond, a file that is new some ten. At the end
 * of an epoch in an order that was found the next one is computed, up to two seconds for 2 * 10^7 records. */
void infer_records_read(struct infer_records *r, const struct infer_record_read *read);
/* Looks at one file of which enough was read since its last look, if that may be spent now. Half a second of CPU time
 * at most; 0.0002 s where there is nothing to look at. Starts searches, which have threads of their own. */
void infer_records_step(struct infer_records *r, uint64_t now_ns);

/* What is known of a file. */
struct infer_record_file {
	uint32_t file;
	uint64_t size;           /* bytes */
	bool is_over;            /* it was not read for so long that its job is over */
	struct stride_view view; /* STRIDE_NOTHING: nothing that would not be chance */
	bool is_sought;          /* an order of the records is looked for, or was found */
	bool is_searching;
	uint64_t searches;
	char spec[INFER_SPEC_MAX]; /* the order that was found, "": none */
	uint64_t n, origin; /* records that the order numbers; where record 0 begins: also what view.origin cannot tell,
			     * as a file that is mapped is read from before each record on */
	uint64_t low, high; /* origin is between these, if what was read says so */
	uint64_t around;    /* it is mapped: READs begin so many bytes before their records; 0: it is not */
	uint64_t found_after;      /* records that were read by then */
	enum infer_plan plan;      /* INFER_PLAN_LOST: the last reads do not follow it any more */
	double match;              /* part of the last reads that it predicted; below 0: not known */
};
/* Copies, of the files with something to say; returns how many. Any thread, never waits for a search. */
size_t infer_records_get(struct infer_records *r, struct infer_record_file ret[INFER_RECORD_FILES]);

#endif
