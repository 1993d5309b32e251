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
	/* Rounded off so far: goes into the next step, so that sums do not drift. */
	uint32_t wait_rest_ns, span_rest_ns;
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

/* --- GPU wait removed, in words --- */

/* Of a rank, a node or a job. */
struct removed_numbers {
	double lower_s, upper_s; /* upper negative: not known */
	double page_cache_s;     /* of upper_s, what the page cache would have saved, about */
	double estimate_s;
	const char *source; /* what the estimate is from; NULL: there is none */
	double judged_s;    /* wall time of the passes judged */
	/* Passes judged, never to be judged, and still open; of several ranks, all of theirs. */
	uint64_t passes, unjudged, open;
	const char *why, *unjudged_why; /* why none is judged; why those are not; NULL: not known */
	uint64_t reads, unplaced;       /* all; those whose place in the order is not known */
};
#define REMOVED_BY_HOOK "by the job's own times"
#define REMOVED_BY_REPLAY "loader replayed"
#define REMOVED_BY_STEPS "the rank with most, replayed"
/* One line, cut where it does not fit. */
void removed_words(const struct removed_numbers *r, char *out, size_t size);

/* --- reports of nodes, and of the job that they are of --- */

#define REPORT_TEXT_MAX (1ull << 30) /* bytes of a report */
#define REPORT_STEPS (1u << 19)      /* entries of all step logs in one report */
#define REPORT_RANKS_MAX 65536u      /* of a job */

struct report_rank {
	uint32_t rank, world; /* world 0: not known */
	bool has_steps;       /* its loop told them: totals; log is of its last process */
	uint64_t restarts;
	struct step_totals totals;
	struct step_log log;
	/* GPU wait that the mount removed; negative: not known. */
	double at_least_s, at_most_s, replay_s, hook_s;
	double page_cache_s; /* of at_most_s */
	double judged_s;           /* wall time of the passes that these are of */
	uint64_t passes, unjudged; /* judged, and left out */
	/* The waits for each batch, replayed as they were (wait_us) and without the mount
	 * (span_us); counted from the rank's first batch in the mount. */
	struct step_log replay;
	uint64_t run, last_ns; /* while records are read: of its last process */
};

/* What one mount, or one file of step records, says. Numbers are 0 where nothing is known. */
struct report_node {
	bool is_mount; /* else records only, and the numbers below are not known */
	char job[64], host[256];
	char *source;        /* heap */
	uint64_t pid, begun; /* of its daemon; seconds since 1970 */
	double mounted_s, cpu_s, control_s;
	uint64_t reads, read_bytes, source_reads, source_bytes, least_source_bytes;
	uint64_t control_reads;
	bool has_least;
	/* GPU wait removed that is of no rank, because the order knows none; negative: not known */
	double at_least_s, at_most_s, judged_s, page_cache_s;
	uint64_t passes, unjudged;
	char why[160], unjudged_why[160]; /* why the last pass was not judged; "": not known */
	uint64_t accounted, unplaced; /* reads that it knows; those without a place in the order */
	struct report_rank *ranks;    /* [n_ranks], by rank */
	uint32_t n_ranks;
};
/* A report, or a file of records (hint.h), from its bytes. -EINVAL with one line: what is wrong. */
int report_node_parse(const void *bytes, size_t size, struct report_node *ret,
		      struct err *err) MUST_USE;
void report_node_fini(struct report_node *node);

/* The job. In a synchronous job a step takes as long as on its slowest rank, so its wait is the sum
 * over steps of the longest wait of any rank; a sum over ranks or nodes would count one wait many
 * times. It is too small by nothing when all ranks told all steps; where steps are known in groups
 * only (every > 1) or ranks are missing it is a lower bound.
 *
 * Removed wait, per rank, holds for a rank alone. At least: without the mount the job would have
 * taken at least as much longer as any one rank is known to, so the largest one holds for the job.
 * At most: ranks may have been slow in different steps, so only the sum of all ranks' upper bounds
 * bounds the job, and only when all of them are known. About: of the rank
 * that the mount saved most in the steps that are known of all ranks, each replayed alone. */
struct report_job {
	const char *job;                      /* borrowed from a node; "" */
	uint32_t world, n_ranks;              /* world 0: not known */
	uint64_t steps;                       /* seen on any rank, in groups of `every` */
	uint64_t every, n_groups, incomplete; /* groups that not all ranks know */
	bool has_steps, has_restarts;
	double wait_s, span_s, au_percent;
	double slowest_rank_wait_s;            /* of the rank that waited most */
	double at_least_s, at_most_s, about_s; /* negative: not known */
	uint64_t about_groups,
		about_missing; /* of about_s; left out, as some rank does not know them */
	uint64_t about_every;  /* steps of a group */
};
/* Puts nodes together; they are borrowed, and coarsened alike. -EINVAL with one line: different
 * jobs or worlds, a rank that two of them have, a file given twice. */
int report_merge(struct report_node *nodes, size_t n, struct report_job *ret,
		 struct err *err) MUST_USE;
/* For people, and for programs (heap, ends with a newline; NULL when out of memory). */
void report_print(const struct report_node *nodes, size_t n, const struct report_job *job,
		  FILE *out);
char *report_to_json(const struct report_node *nodes, size_t n, const struct report_job *job);

/* The object "log" of a rank's steps in a report (json_t *), or "replay", at most so many entries;
 * NULL when out of memory. The log is coarsened to them. */
extern const char *const step_log_names[2], *const replay_log_names[2];
void *step_log_to_json(struct step_log *log, const char *const names[2], uint64_t entries);

#endif
