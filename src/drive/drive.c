/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, starting, stopping and describing a drive, and the cache in it.
 *
 * The order of stopping is the order in which work can beget work: first nobody may decide anything
 * new (planner), then the cache ends what is under way - for which it may need stagers - and the
 * threads that work off queues end last. Their answers stay with the news and are freed there.
 */
#include "drive_priv.h"

#include <stdlib.h>
#include <string.h>

#include "clairfs/tape.h"

/* The deciding half asks nobody where nobody would answer. */
static void hands_init(struct drive *d)
{
	const struct drive_probe *probe = d->p.probe;

	d->hands = drive_hands;
	d->hands.ctx = d;
	if (!probe || !probe->hold_back)
		d->hands.hold_back = NULL;
	if (!d->hands.hold_back || !probe->opened)
		d->hands.used = NULL;
}

static int make_cache(struct drive *d, struct err *err)
{
	struct cache_params *p = &d->p.cache;
	int rc = news_new(dataset_n_units(d->dataset), &d->news);

	if (rc != 0)
		return err_set_errno(err, rc, "cache");
	p->news = d->news;
	p->pages = &d->page_jobs;
	p->prefetch_max = d->p.inflight_max;
	p->sets_aside = d->hands.hold_back != NULL;
	rc = cache_new(p, &d->cache, err);
	p->tiers = NULL; /* borrowed for this call */
	if (rc != 0)
		return rc;
	d->keeper = cache_keeper(d->cache);
	cache_set_may_refuse_open(d->cache, !d->p.order);
	cache_set_ordered(d->cache, d->p.order != NULL);
	return 0;
}

int drive_new(const struct drive_params *params, struct drive **ret, struct err *err)
{
	struct drive *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return err_set_errno(err, -ENOMEM, "cache");
	d->p = *params;
	d->p.stagers = MIN(MAX(d->p.stagers, 1u), (uint32_t)STAGERS_MAX);
	d->dataset = params->cache.dataset;
	d->metrics = params->cache.metrics;
	d->clock = params->cache.clock;
	atomic_init(&d->arena_bytes, params->cache.arena_bytes);
	atomic_init(&d->stage_bytes, params->stage_bytes);
	atomic_init(&d->has_order, params->order != NULL);
	mutex_init(&d->order_mu);
	mutex_init(&d->ask_mu);
	mutex_init(&d->status_mu);
	cond_init(&d->answer_cv);
	queue_init(&d->page_jobs);
	queue_init(&d->pin_jobs);
	queue_init(&d->epoch_jobs);
	hands_init(d);
	rc = make_cache(d, err);
	if (rc != 0) {
		drive_free(d);
		return rc;
	}
	*ret = d;
	return 0;
}

struct cache *drive_cache(struct drive *d)
{
	return d->cache;
}

void drive_set_stage(struct drive *d, const struct stage_ops *ops, void *ctx)
{
	d->stage = ops;
	d->stage_ctx = ctx;
	cache_set_stage(d->cache, ops, ctx);
}

/* --- start --- */

/* O(n), up to seconds. */
static int plan_make(struct drive *d, const struct order_ref *order, struct plan **ret)
{
	uint32_t n = dataset_n_units(d->dataset);
	uint64_t arena = d->p.cache.arena_bytes;
	AUTO_FREE uint64_t *size = calloc((size_t)n + 1, sizeof(*size));
	struct plan_params params = {
		.n = n,
		.size = size,
		.order = order ? &order->info : NULL,
		.arena_bytes = arena,
		.spare_bytes = plan_spare_bytes(arena),
		.stage_bytes = d->stage ? d->p.stage_bytes : 0,
		.store_bytes = d->keeper ? d->p.store_bytes : 0,
		.pin_rule = d->p.pin_rule,
		.inflight_min = d->p.inflight_min,
		.inflight_max = d->p.inflight_max,
		.source_bytes_per_s = d->p.source_bytes_per_s,
	};
	int rc;

	if (!size)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		size[i] = i < dataset_n_file_units(d->dataset)
				  ? dataset_unit_extent(d->dataset, (struct unit_id){ i }).length
				  : PLAN_NO_SIZE;
	rc = plan_new(&params, ret);
	if (rc < 0 || !d->p.tape)
		return rc;
	rc = tape_record(d->p.tape, *ret, &params);
	if (rc < 0)
		plan_free(TAKE(*ret));
	return rc;
}

static int make_step(struct drive *d, struct err *err)
{
	struct step_params params = { .hands = &d->hands,
				      .n = dataset_n_units(d->dataset),
				      .arena_bytes = d->p.cache.arena_bytes,
				      .stage_bytes = d->p.stage_bytes };
	int rc;

	if (d->p.order) {
		params.order = order_ref_new(d->p.order, dataset_unit_map(d->dataset), false);
		if (!params.order)
			return err_set_errno(err, -ENOMEM, "plan");
	}
	rc = plan_make(d, params.order, &params.plan);
	if (rc < 0)
		order_ref_put(params.order);
	else
		rc = step_init(&d->step, &params, clock_now(d->clock));
	if (rc < 0)
		return err_set_errno(err, rc, "plan");
	planner_publish(d); /* the mount is asked for it already */
	return 0;
}

/* The planner comes last, and from then on takes orders. */
static int start_planner(struct drive *d, struct err *err)
{
	int rc;

	mutex_lock(&d->ask_mu);
	d->is_planning = true;
	mutex_unlock(&d->ask_mu);
	rc = thr_start(&d->planner, "cl-planner", planner_main, d, err);
	if (rc != 0) {
		mutex_lock(&d->ask_mu);
		d->is_planning = false;
		mutex_unlock(&d->ask_mu);
	}
	return rc;
}

static int start_threads(struct drive *d, struct err *err)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < d->p.stagers; i++)
		rc = thr_start(&d->stagers[i], "cl-stager", stager_main, d, err);
	for (uint32_t i = 0; rc == 0 && d->keeper && i < WRITERS; i++)
		rc = thr_start(&d->writers[i], "cl-writer", writer_main, d, err);
	if (rc == 0)
		rc = thr_start(&d->epochs, "cl-epochs", epochs_main, d, err);
	if (rc == 0)
		rc = cache_start(d->cache, err);
	if (rc == 0)
		rc = start_planner(d, err);
	return rc;
}

int drive_start(struct drive *d, struct err *err)
{
	int rc = make_step(d, err);

	if (rc == 0) {
		d->is_started = true;
		rc = start_threads(d, err);
	}
	if (rc != 0)
		drive_stop(d);
	return rc;
}

/* --- stop --- */

void drive_stop(struct drive *d)
{
	atomic_store(&d->is_stopping, true);
	news_stop(d->news);
	thr_join(&d->planner);
	cache_stop(d->cache);
	if (!d->is_started)
		return;
	tier_stop(d->keeper);
	queue_close(&d->page_jobs);
	queue_close(&d->pin_jobs);
	queue_close(&d->epoch_jobs);
	for (uint32_t i = 0; i < d->p.stagers; i++)
		thr_join(&d->stagers[i]);
	for (uint32_t i = 0; i < WRITERS; i++)
		thr_join(&d->writers[i]);
	thr_join(&d->epochs);
	cache_finish(d->cache);
	d->is_started = false;
}

void drive_free(struct drive *d)
{
	if (!d)
		return;
	if (d->cache)
		cache_free(d->cache);
	if (d->news)
		planner_drop_answers(d);
	news_free(d->news);
	step_fini(&d->step);
	queue_fini(&d->page_jobs);
	queue_fini(&d->pin_jobs);
	queue_fini(&d->epoch_jobs);
	cond_fini(&d->answer_cv);
	mutex_fini(&d->status_mu);
	mutex_fini(&d->ask_mu);
	mutex_fini(&d->order_mu);
	free(d);
}

/* --- while it runs --- */

void drive_set_memory(struct drive *d, uint64_t ram_bytes, uint64_t stage_bytes)
{
	uint64_t arena_bytes = MIN(ram_bytes, d->p.cache.arena_bytes);
	bool is_more = arena_bytes > atomic_load(&d->arena_bytes);

	/* The planner is never told of more than the arena has. */
	if (is_more)
		cache_set_memory(d->cache, ram_bytes);
	atomic_store(&d->arena_bytes, arena_bytes);
	atomic_store(&d->stage_bytes, MIN(stage_bytes, d->p.stage_bytes));
	if (!is_more)
		cache_set_memory(d->cache, ram_bytes);
	news_wake(d->news);
}

void drive_get_status(struct drive *d, struct drive_status *ret)
{
	*ret = (struct drive_status){ .table_bytes = atomic_load(&d->plan_bytes) };
	mutex_lock(&d->status_mu);
	ret->plan = d->status;
	ret->n_jobs = d->n_shown;
	mutex_unlock(&d->status_mu);
}

void drive_update_gauges(struct drive *d)
{
	struct metrics *m = d->metrics;
	struct drive_status st;
	const struct plan_status *plan = &st.plan;

	cache_update_gauges(d->cache);
	drive_get_status(d, &st);
	metrics_gauge_set(m, METRIC_PREFETCH_LIMIT, plan->inflight_limit);
	metrics_gauge_set(m, METRIC_STAGE_BYTES, plan->stage_bytes);
	metrics_gauge_set(m, METRIC_STAGE_LIMIT_BYTES, plan->stage_limit_bytes);
	metrics_gauge_set(m, METRIC_STORE_LIMIT_BYTES, d->keeper ? d->p.store_bytes : 0);
	metrics_gauge_set(m, METRIC_EPOCH, plan->epoch);
	metrics_gauge_set(m, METRIC_POSITION, plan->position);
	metrics_gauge_set(m, METRIC_LEAD, plan->lead);
	metrics_gauge_set(m, METRIC_ORDER_FOLLOWED,
			  atomic_load(&d->has_order) &&
				  (plan->state == PLAN_FOLLOWING || plan->state == PLAN_SLOWED ||
				   plan->state == PLAN_CHECKING));
}
