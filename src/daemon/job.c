/* SPDX-License-Identifier: Apache-2.0 */
/* The job module in a daemon: it hears of opens and of how the order is doing from the planner, and
 * what it finds becomes the order in force unless somebody has told one meanwhile. Orders told and
 * orders found are put in force under one lock (change_mu), so that the told one always comes last.
 *
 * The watch also serves the accounting of GPU wait.
 *
 * The watch functions run on the planner's thread and must not block; wire_found runs on the job's
 * and waits for the planner. */
#include <errno.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "accounting_priv.h"
#include "daemon_priv.h"

#define CPUS_SHARE 8 /* of the CPUs that may be used, for a search */

static void opened(void *ctx, uint32_t sample)
{
	const struct wire *w = ctx;

	job_note_open(w->job, sample);
}

static void planned(void *ctx, enum plan_state state)
{
	static const enum job_plan plans[] = {
		[PLAN_NO_ORDER] = JOB_PLAN_NONE,      [PLAN_WAITING] = JOB_PLAN_BUSY,
		[PLAN_CHECKING] = JOB_PLAN_BUSY,      [PLAN_SLOWED] = JOB_PLAN_BUSY,
		[PLAN_FOLLOWING] = JOB_PLAN_FOLLOWED, [PLAN_LOST] = JOB_PLAN_LOST,
		[PLAN_FINISHED] = JOB_PLAN_ENDED,
	};
	const struct wire *w = ctx;

	job_note_plan(w->job, plans[state]);
	accounting_finished(w->accounting, state == PLAN_FINISHED);
}

static void was_read(void *ctx, const struct cache_read_note *notes, uint32_t n)
{
	struct wire *w = ctx;

	for (uint32_t i = 0; i < n; i++)
		if (notes[i].reader)
			atomic_store_explicit(&w->last_reader, notes[i].reader,
					      memory_order_relaxed);
	accounting_reads(w->accounting, notes, n);
}

static void settled(void *ctx, uint64_t before_ns)
{
	const struct wire *w = ctx;

	accounting_settled(w->accounting, before_ns);
}

static bool wants_control(void *ctx, uint64_t bytes)
{
	const struct wire *w = ctx;

	return accounting_wants_control(w->accounting, bytes);
}

static uint32_t readers(void *ctx)
{
	const struct wire *w = ctx;

	return accounting_readers(w->accounting);
}

static void load(void *ctx, const struct cache_load *load)
{
	const struct wire *w = ctx;

	accounting_load(w->accounting, load);
}

/* The first files of a dataset in their order, a few classes, look like all of them. */
bool job_is_unshuffled(const char *text)
{
	return strncmp(text, "sequential", strlen("sequential")) == 0 || strstr(text, ":shuffle=0");
}

static int found(void *ctx, const char *text, uint64_t stamp)
{
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct wire *w = ctx;
	struct err err = { 0 };
	int rc = order_spec_parse(text, &spec, &err);

	if (rc == 0)
		rc = wire_make_order(w, spec, &order, &err);
	if (rc == 0 && job_is_unshuffled(text))
		order_may_be_left(order);
	mutex_lock(&w->change_mu);
	if (rc == 0)
		rc = job_is_current(w->job, stamp) ? told_jobs_put_first(w, spec, TAKE(order), true, &err)
						   : -ECANCELED;
	mutex_unlock(&w->change_mu);
	order_free(order);
	order_spec_free(spec);
	if (rc < 0 && rc != -ECANCELED)
		log_warn("%s: the order %s cannot be followed: %s", w->mountpoint, text, err.msg);
	return rc;
}

static bool is_crowded(void *ctx)
{
	struct wire *w = ctx;

	return crowd_look(&w->crowd, (pid_t)atomic_load_explicit(&w->last_reader,
								 memory_order_relaxed));
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
	struct job_params jp = { .n = dataset_n_samples(w->dataset),
				 .effort = (enum job_effort)w->opts->recover,
				 .threads = w->opts->recover_threads
						    ? (unsigned)w->opts->recover_threads
						    : MAX(cpus_of(0) / CPUS_SHARE, 1),
				 .world = world_told(),
				 .memory = w->memory.ram / 4,
				 .told = w->spec ? order_spec_text(w->spec) : NULL,
				 .clock = clock_monotonic(),
				 .metrics = w->metrics,
				 .found = found,
				 .is_crowded = is_crowded,
				 .ctx = w };
	int rc = job_parts_new(w->dataset, &w->parts, err);

	if (rc < 0)
		return rc;
	jp.numbers = job_parts_numbers(w->parts);
	w->watch = (struct cache_watch){ .opened = opened,
					 .planned = planned,
					 .read = was_read,
					 .settled = settled,
					 .wants_control = wants_control,
					 .readers = readers,
					 .load = load,
					 .ctx = w };
	return job_new(&jp, &w->job, err);
}

json_t *wire_job_json(struct wire *w)
{
	struct job_status st;

	job_get_status(w->job, &st);
	return json_pack("{s:s, s:s, s:b, s:b, s:b, s:f, s:f, s:f, s:I, s:I, s:I}", "doing", st.words,
			 "found", st.found, "is_searching", st.is_searching, "is_full", st.is_full,
			 "is_waiting", st.is_held,
			 "progress", st.progress, "seconds_left", st.left_s, "cpu_seconds",
			 st.cpu_s, "searches", (json_int_t)st.searches, "orders_found",
			 (json_int_t)st.orders_found, "found_after_opens",
			 (json_int_t)st.found_after);
}
