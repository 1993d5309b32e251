/* SPDX-License-Identifier: Apache-2.0 */
/* What is known about a job when it is over: the steps that its processes told, and the reports of
 * its nodes put together. Pure: no I/O, no clock, no threads; an object is used by one thread at a
 * time. src/report/FORMAT.md has the files. */
#ifndef CLAIRFS_REPORT_H
#define CLAIRFS_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clairfs/base/buf.h"
#include "clairfs/base/err.h"

/* --- steps of one rank --- */

#define STEP_LOG_ENTRIES (1u << 18)
#define STEP_UNKNOWN UINT32_MAX
#define STEP_MAX (1ull << 48) /* steps are numbered below it */

/* Entry i stands for the steps [i * every, (i + 1) * every): their sums in microseconds, or
 * STEP_UNKNOWN when none of them is known. Sums that do not fit stay at the largest that does. When
 * there are more than STEP_LOG_ENTRIES, `every` is doubled, so memory is bounded (2 MiB) and only
 * long jobs are seen coarsely. */
struct step_log {
	uint32_t *wait_us; /* the loop waited for data */
	uint32_t *span_us; /* wait and compute; 0 of a step within another one */
	uint64_t n, capacity;
	uint64_t every; /* power of two; 0 while there is no entry */
	uint32_t limit; /* entries; 0 = STEP_LOG_ENTRIES; at least 2 */
};

/* 0, -EINVAL (step number), -ENOMEM (the log stays as it was). */
int step_log_add(struct step_log *log, uint64_t step, uint64_t wait_ns, uint64_t span_ns) MUST_USE;
/* Until an entry stands for so many steps (a power of two). */
void step_log_coarsen(struct step_log *log, uint64_t every);
void step_log_fini(struct step_log *log);

/* Exact sums, whatever the log keeps. */
struct step_totals {
	uint64_t steps, outer;  /* outer: not within another one */
	uint64_t wait_ns;       /* of all */
	uint64_t first_wait_ns; /* of it, of the first batches of iterators */
	uint64_t span_ns;       /* wait and compute of outer steps: they do not overlap */
	uint64_t max_wait_ns;
};

struct clairfs_step_record; /* hint.h */
struct clairfs_steps;

/* What is right about a record whatever the job: times in order, known flags, rank below world. */
bool step_is_plausible(const struct clairfs_step_record *step, uint32_t world);
void step_totals_add(struct step_totals *totals, const struct clairfs_step_record *step);
/* Accelerator utilisation: the share of the loop's time in which it did not wait, percent. */
double step_au_percent(const struct step_totals *totals);
/* A name that may stand in a report and in a file's name: its letters, digits, '.', '_' and '-', at
 * most size - 1 of them. Anything after another character is cut. */
void job_name_clean(const char *text, size_t length, char *out, size_t size);

#endif
