/* SPDX-License-Identifier: Apache-2.0 */
/* What training loops tell of their steps (hint.h): judged, counted and kept for each rank. */
#ifndef CLAIRFS_PUBLISH_HOOK_H
#define CLAIRFS_PUBLISH_HOOK_H

#include <jansson.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/thr.h"
#include "clairfs/hint.h"
#include "clairfs/report.h"

#define HOOK_MAX_RANKS 256 /* of one node, of each user that may tell steps */

/* What a rank's training loop has told. */
struct hook_rank {
	uint32_t rank, world;
	uint32_t uid;              /* who told it first */
	uint64_t run;              /* of its process */
	uint64_t n_runs;           /* processes before that one */
	uint64_t last_ns;          /* end of its last step that is not within another */
	struct step_totals totals; /* of all processes */
	struct step_log log;       /* of the last one */
};

struct hook {
	struct clock *clock;
	uint64_t start_ns;
	struct mutex mu;         /* a leaf */
	struct hook_rank *ranks; /* mu, like all below */
	uint32_t n_ranks;
	char job[CLAIRFS_JOB_NAME];
};
void hook_init(struct hook *h, struct clock *clock);
void hook_fini(struct hook *h);
/* Counts what is right of the steps, and leaves out the rest. Returns how many were counted, which
 * are copied to taken. Any thread; never blocks. */
uint32_t hook_take(struct hook *h, uint32_t uid, const struct clairfs_steps *steps,
		   struct clairfs_step_record taken[CLAIRFS_STEPS]);
/* The job's name as its loops have it, or "". Any thread. */
void hook_job(struct hook *h, char out[CLAIRFS_JOB_NAME]);
/* What was told, for stats.json; NULL when out of memory. Any thread. */
json_t *hook_json(struct hook *h);
/* The ranks of a report, with their steps; NULL when out of memory. Coarsens the steps. */
json_t *hook_report_json(struct hook *h);

#endif
