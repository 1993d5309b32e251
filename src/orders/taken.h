/* SPDX-License-Identifier: Apache-2.0 */
/* What became of the records that were found in files: which order of theirs was put in force, which was refused, and
 * whether one is to be tried now. Pure; one thread, the caller locks where others read. */
#ifndef CLAIRFS_ORDERS_TAKEN_H
#define CLAIRFS_ORDERS_TAKEN_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/clock.h"
#include "clairfs/infer/records.h"

#define TAKEN_COME_AGAIN 64u /* records of an order that was over, before it is put in force once more */
#define TAKEN_RETRY_NS (2 * NS_PER_S)
#define TAKEN_NO_JOB UINT32_MAX

struct taken_order {
	uint32_t n; /* records */
	char spec[INFER_SPEC_MAX];
};

struct taken {
	uint32_t file;
	uint32_t id;     /* of the job, or TAKEN_NO_JOB */
	uint64_t around; /* READs of it begin so many bytes before their records */
	struct taken_order followed; /* the last one that was put in force; n 0: none was */
	struct taken_order tried;    /* that was tried last, it or another one; n 0: this is nobody's */
	uint64_t retry_ns;           /* not before: what it was refused for may be over then */
	bool is_refused;             /* for good */
	uint64_t come;               /* records that were come to since none is in force */
	const char *why_not;
};

struct taken_list {
	struct taken one[INFER_RECORD_FILES];
};

/* NULL: nothing was tried with it. */
struct taken *taken_of(struct taken_list *list, uint32_t file);
bool taken_is_same(const struct taken_order *order, const struct infer_record_file *f);

/* Whether the order of `f` is to be put in force now: the entry of its file, or one that nobody needs. NULL: no,
 * or there is none. is_followed: the job of its entry is at work. is_free: [INFER_RECORD_FILES]: the entry may be
 * another file's. */
struct taken *taken_to_try(struct taken_list *list, const struct infer_record_file *f, bool is_followed,
			   const bool *is_free, uint64_t now_ns);

/* How it went. */
struct taken_outcome {
	uint32_t id;         /* of the job that there is now, also where this order was refused; or TAKEN_NO_JOB */
	int rc;              /* 0, or why it is not in force */
	const char *why_not; /* the same in words; static */
	uint64_t now_ns;
};

void taken_note(struct taken *t, const struct infer_record_file *f, const struct taken_outcome *outcome);
/* What it was refused for may be over soon. */
bool taken_is_passing(int rc);

#endif
