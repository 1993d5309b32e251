/* SPDX-License-Identifier: Apache-2.0 */
/* Wires module orders: what it hears of the cache and of whoever tells orders through the mount, and
 * who accounts for what is in force.
 *
 * The watch functions run on the planner's thread and must not block. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "clairfs/base/cpus.h"
#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "clairfs/dataset/units.h"
#include "clairfs/order/records.h"
#include "daemon_priv.h"

#define CPUS_SHARE 8 /* of the CPUs that may be used, for a search */
#define UNIT_MEMORY 330u /* bytes, for each unit of a record */
#define RECORDS_SHARE 4  /* of the memory that is there, for all of them */
#define FOUND_SHARE 8  /* likewise, of those that may be found later */

static_assert(FS_LANES == ORDERS_LANES, "each lane of fs is one of orders");

static void tell_opened(void *ctx, const struct drive_open *open)
{
	const struct wire *w = ctx;

	orders_opened(w->orders, open);
}

static void tell_planned(void *ctx, enum plan_state state)
{
	const struct wire *w = ctx;

	orders_planned(w->orders, state);
	wait_finished(w->wait, state == PLAN_FINISHED);
}

/* Records that were found are not measured yet: the page cache of the accounting has no place for them. */
static void first_order(void *ctx, const struct order_info *info, bool of_records, uint32_t generation)
{
	const struct wire *w = ctx;
	bool is_told = of_records && dataset_unit_map(w->dataset)->of_records;
	bool is_measured = is_told ? w->are_records_measured : !of_records && w->are_files_measured;

	wait_set_order(w->wait, info, generation, is_measured);
}

static void told_order(void *ctx, bool is_told)
{
	struct wire *w = ctx;

	read_ahead_told(&w->read_ahead, is_told);
}

static void other_orders(void *ctx, uint32_t generation)
{
	const struct wire *w = ctx;

	wait_other_jobs(w->wait, generation);
}

static uint32_t last_reader(void *ctx)
{
	const struct wire *w = ctx;

	return wait_last_reader(w->wait);
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

/* For how many units of records there is memory, of a share of it. */
static uint64_t units_most(const struct wire *w, uint64_t share)
{
	uint64_t there = daemon_memory_available(); /* 0: not known */

	if (w->opts->ram && (!there || w->opts->ram < there))
		there = w->opts->ram;
	return there ? there / share / UNIT_MEMORY : UINT64_MAX;
}

/* Units stay as they are while it is mounted, so the order of the start decides: a job that streams
 * through files is better off with files. The store keeps pieces of files. */
static void cut_records(struct wire *w)
{
	const struct order *order = orders_first(w->orders);
	uint64_t n = dataset_n_records(w->dataset);
	const char *why = NULL;
	int rc = 0;

	if (!order || !order_n_records(order))
		return;
	if (w->opts->store_dir || w->opts->store_bytes)
		why = "the store keeps files";
	else if (order_records_are_near(order))
		why = "the job goes through their files";
	else
		rc = dataset_cut_records(w->dataset, (uint32_t)sysconf(_SC_PAGESIZE), units_most(w, RECORDS_SHARE));
	if (rc == -ENOTSUP)
		why = "they are too small, or several are read at once";
	else if (rc == -E2BIG)
		why = "there is too little memory for as many";
	else if (rc == -ENODATA)
		why = "their files are small";
	else if (rc < 0)
		why = strerror(-rc);
	if (why)
		log_info("%llu samples within files: the files are fetched ahead, not the samples: %s",
			 (unsigned long long)n, why);
	else
		log_info("%llu samples within files are fetched ahead one by one",
			 (unsigned long long)n);
}

/* Where nobody has told an order, one of records may be found in a file. */
static void reserve_units(struct wire *w)
{
	if (w->opts->recover == INFER_OFF || w->opts->store_dir || w->opts->store_bytes)
		return;
	dataset_reserve_units(w->dataset, (uint32_t)sysconf(_SC_PAGESIZE),
			      units_most(w, FOUND_SHARE));
}

int wire_make_orders(struct wire *w, struct err *err)
{
	const struct orders_params op = { .source = w->source,
					  .mountpoint = w->mountpoint,
					  .dataset = w->dataset,
					  .clock = clock_monotonic(),
					  .memory = daemon_memory_available };
	int rc = orders_new(&op, &w->orders, err);

	if (rc < 0)
		return rc;
	if (!w->spec) {
		reserve_units(w);
		return 0;
	}
	rc = orders_begin(w->orders, w->spec, err);
	if (rc < 0)
		err_prefix(err, "option order");
	else
		cut_records(w);
	return rc;
}

int wire_make_search(struct wire *w, struct err *err)
{
	const struct orders_search search = {
		.effort = (enum infer_effort)w->opts->recover,
		.threads = w->opts->recover_threads ? (unsigned)w->opts->recover_threads
						    : MAX(cpus_of(0) / CPUS_SHARE, 1),
		.world = world_told(),
		.ram = w->memory.ram,
		.around = read_ahead_around(&w->read_ahead),
		.metrics = w->metrics,
		.snapshot_dir = w->opts->snapshot_dir
	};

	w->watch = (struct drive_watch){ .opened = tell_opened, .planned = tell_planned, .ctx = w };
	return orders_search(w->orders, &search, err);
}

void wire_watch_orders(struct wire *w)
{
	orders_set_watch(w->orders, &(struct orders_watch){ .first = first_order,
							    .told = told_order,
							    .others = other_orders,
							    .last_reader = last_reader,
							    .ctx = w });
}

int wire_announce(void *ctx, const struct fs_told *told, struct buf_writer *answer)
{
	const struct wire *w = ctx;
	const struct orders_said said = { .uid = told->uid,
					  .tid = told->tid,
					  .is_lookup = told->is_lookup,
					  .lane = told->lane,
					  .is_gone = told->is_gone,
					  .text = told->text,
					  .job = told->job,
					  .list = told->list };

	return orders_announce(w->orders, &said, answer);
}
