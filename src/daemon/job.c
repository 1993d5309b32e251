/* SPDX-License-Identifier: Apache-2.0 */
/* What the cache tells of a job: untold.c hears of opens and of how the order is doing, and what it finds
 * becomes an order in force unless somebody has told one meanwhile. Orders told and orders found are
 * put in force under one lock (change_mu), so that the told one always comes last.
 *
 * The watch functions run on the planner's thread and must not block. */
#include <errno.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "clairfs/base/cpus.h"
#include "daemon_priv.h"

#define CPUS_SHARE 8 /* of the CPUs that may be used, for a search */

static void opened(void *ctx, const struct cache_open *open)
{
	const struct wire *w = ctx;

	untold_opened(w->untold, open);
}

static void planned(void *ctx, enum plan_state state)
{
	const struct wire *w = ctx;

	untold_planned(w->untold, state);
	wait_finished(w->wait, state == PLAN_FINISHED);
}

/* The first files of a dataset in their order, a few classes, look like all of them. */
bool infer_is_unshuffled(const char *text)
{
	return strncmp(text, "sequential", strlen("sequential")) == 0 || strstr(text, ":shuffle=0");
}

/* Ranks of the job, 0: not told or nonsense. */
static uint32_t world_told(void)
{
	struct job_place job;
	uint64_t world = 0;

	daemon_job_place(&job);
	if (!job.place.world || text_to_u64(job.place.world, &world) < 0 || world > UINT32_MAX)
		return 0;
	return (uint32_t)world;
}

int wire_make_job(struct wire *w, struct err *err)
{
	struct infer_params jp = { .n = dataset_n_samples(w->dataset),
				 .effort = (enum infer_effort)w->opts->recover,
				 .threads = w->opts->recover_threads
						    ? (unsigned)w->opts->recover_threads
						    : MAX(cpus_of(0) / CPUS_SHARE, 1),
				 .world = world_told(),
				 .memory = w->memory.ram / 4,
				 .told = w->spec ? order_spec_text(w->spec) : NULL,
				 .clock = clock_monotonic(),
				 .metrics = w->metrics };

	w->watch = (struct cache_watch){ .opened = opened,
					 .planned = planned,
					 .ctx = w };
	return untold_new(w, &jp, &w->untold, err);
}
