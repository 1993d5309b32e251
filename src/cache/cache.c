/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, starting, stopping and describing a cache.
 *
 * The order of stopping is the order in which work can beget work: first nobody may decide anything
 * new (planner, revalidation), then prefetches that wait are dropped and what is in flight is
 * waited for - READs may still need the attribute thread - and the threads that work off queues end
 * last. Their answers stay with the notes and are freed there.
 */
#include "cache_priv.h"

#include <string.h>

#define ENTRY_BITMAPS 5u  /* touched, paged, confirmed, abroad, narrowed */
#define SAMPLE_BITMAPS 7u /* staged, staged_opened, marked (two), direct, indirect, pushed */
#define MALLOC_HEAD 16u   /* what malloc adds, about */
static_assert(sizeof(struct object) + sizeof(struct entry_state) + 2 * MALLOC_HEAD <=
		      CACHE_HELD_BYTES,
	      "budgets count on it");

static int cache_init(struct cache *c)
{
	uint64_t words = dataset_n_entries(c->p.dataset) / 64 + 1;
	int rc;

	rc = ranges_init(c);
	if (objects_init(c) != 0)
		rc = -ENOMEM;
	if (rc == 0)
		rc = account_new(c);
	if (rc == 0)
		rc = access_init(c);
	c->touched = calloc(words, sizeof(*c->touched));
	c->paged = calloc(words, sizeof(*c->paged));
	c->confirmed = calloc(words, sizeof(*c->confirmed));
	c->abroad = calloc(words, sizeof(*c->abroad));
	words = dataset_n_samples(c->p.dataset) / 64 + 1;
	c->staged = calloc(words, sizeof(*c->staged));
	c->staged_opened = calloc(words, sizeof(*c->staged_opened));
	c->direct = calloc(words, sizeof(*c->direct));
	c->indirect = calloc(words, sizeof(*c->indirect));
	c->pushed = calloc(words, sizeof(*c->pushed));
	if (rc == 0)
		rc = probed_init(c);
	if (!c->touched || !c->paged || !c->confirmed || !c->abroad || !c->staged ||
	    !c->staged_opened || !c->direct || !c->indirect || !c->pushed)
		return -ENOMEM;
	return rc == 0 ? 0 : -ENOMEM;
}

static void keeper_init(struct cache *c)
{
	struct tier_kept_status status;
	struct stat st;

	c->keeper = chain_keeper(&c->chain);
	if (!c->keeper)
		return;
	tier_get_kept(c->keeper, &status);
	c->is_store_lasting = status.is_lasting;
	if (fstat(dataset_source_fd(c->p.dataset), &st) == 0) /* else nothing is at home */
		c->home_dev = st.st_dev;
}

bool cache_keeps_any(struct cache *c)
{
	struct tier_kept_status status;

	tier_get_kept(c->keeper, &status);
	return status.bytes > 0;
}

int cache_new(const struct cache_params *params, struct cache **ret, struct err *err)
{
	struct cache *c = aligned_alloc(64, ALIGN_UP(sizeof(*c), 64u));
	int rc;

	if (!c)
		return err_set_errno(err, -ENOMEM, "cache");
	memset(c, 0, sizeof(*c));
	c->p = *params;
	rc = chain_init(&c->chain, params->tiers, params->n_tiers, err);
	if (rc != 0) {
		free(c);
		return rc;
	}
	c->p.tiers = NULL; /* borrowed for this call */
	keeper_init(c);
	c->p.stagers = MIN(MAX(c->p.stagers, 1u), (uint32_t)STAGERS_MAX);
	atomic_init(&c->notes.arena_bytes, c->p.arena_bytes);
	atomic_init(&c->notes.stage_bytes, c->p.stage_bytes);
	c->notes.planned_arena_bytes = c->p.arena_bytes;
	c->notes.planned_stage_bytes = c->p.stage_bytes;
	atomic_init(&c->may_refuse_open, !c->p.order);
	atomic_init(&c->has_order, c->p.order != NULL);
	c->kept_at = c->give_back_at = UINT32_MAX;
	rc = notes_init(c);
	mutex_init(&c->status_mu);
	mutex_init(&c->order_mu);
	mutex_init(&c->reval_mu);
	cond_init(&c->reval_cv);
	queue_init(&c->stage_jobs);
	queue_init(&c->attr_jobs);
	queue_init(&c->drop_jobs);
	queue_init(&c->name_jobs);
	queue_init(&c->pin_jobs);
	queue_init(&c->epoch_jobs);
	prefetch_init(c);
	if (cache_init(c) != 0)
		rc = -ENOMEM;
	if (rc != 0)
		err_set_errno(err, rc, "cache");
	/* The mount is there before cache_start, and READs of changed files wait for these. */
	if (rc == 0)
		rc = thr_start(&c->attr_thread, "cl-attr", attr_main, c, err);
	if (rc == 0)
		rc = thr_start(&c->drop_thread, "cl-drop", drop_main, c, err);
	if (rc == 0)
		rc = thr_start(&c->name_thread, "cl-names", name_main, c, err);
	if (rc != 0) {
		cache_free(c);
		return rc;
	}
	*ret = c;
	return 0;
}

void cache_set_stage(struct cache *c, const struct stage_ops *ops, void *ctx)
{
	c->stage = ops;
	c->stage_ctx = ctx;
}

/* --- start --- */

static int make_plan(struct cache *c, struct err *err)
{
	struct order_ref *order = NULL;
	int rc;

	if (c->p.order) {
		order = order_ref_new(c->p.order, false);
		if (!order)
			return err_set_errno(err, -ENOMEM, "plan");
	}
	rc = plan_make(c, order, &c->plan);
	if (rc != 0) {
		order_ref_put(order);
		return err_set_errno(err, rc, "plan");
	}
	planned_start(c, order, clock_now(c->p.clock));
	if (cache_keeps_any(c))
		c->kept_at = 0;                    /* what jobs before have left */
	planned_publish(c, clock_now(c->p.clock)); /* the mount is asked for it already */
	return 0;
}

/* The planner comes last, and from then on takes orders. */
static int start_planner(struct cache *c, struct err *err)
{
	int rc;

	mutex_lock(&c->notes.mu);
	c->notes.is_planning = true;
	mutex_unlock(&c->notes.mu);
	rc = thr_start(&c->planner, "cl-planner", planner_main, c, err);
	if (rc != 0) {
		mutex_lock(&c->notes.mu);
		c->notes.is_planning = false;
		mutex_unlock(&c->notes.mu);
	}
	return rc;
}

static int start_threads(struct cache *c, struct err *err)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < c->p.stagers; i++)
		rc = thr_start(&c->stagers[i], "cl-stager", stager_main, c, err);
	for (uint32_t i = 0; rc == 0 && c->keeper && i < WRITERS; i++)
		rc = thr_start(&c->writers[i], "cl-writer", writer_main, c, err);
	if (rc == 0)
		rc = thr_start(&c->epochs, "cl-epochs", epochs_main, c, err);
	if (rc == 0 && c->p.revalidate_ns)
		rc = thr_start(&c->revalidator, "cl-revalidate", revalidate_main, c, err);
	if (rc == 0)
		rc = start_planner(c, err);
	return rc;
}

int cache_start(struct cache *c, struct err *err)
{
	int rc = make_plan(c, err);

	if (rc == 0) {
		c->is_started = true;
		rc = start_threads(c, err);
	}
	if (rc != 0)
		cache_stop(c);
	return rc;
}

/* --- stop --- */

static void wait_pass(struct cache *c)
{
	for (int i = 0; i < SHARDS; i++) {
		struct shard *s = &c->shards[i];

		mutex_lock(&s->mu);
		while (s->busy)
			cond_wait(&s->idle, &s->mu);
		mutex_unlock(&s->mu);
	}
}

/* Waits for reads and fetches. A fetch that ends may start a queued prefetch of another shard, so
 * one pass over the shards proves nothing until the queue is seen empty with nothing in flight;
 * only the pass after that does. */
static void wait_idle(struct cache *c)
{
	bool is_quiet;

	probed_end(c);
	do {
		prefetch_close(c);
		wait_pass(c);
		mutex_lock(&c->prefetch.mu);
		is_quiet = c->prefetch.inflight == 0 && list_is_empty(&c->prefetch.queue);
		mutex_unlock(&c->prefetch.mu);
	} while (!is_quiet);
	wait_pass(c);
}

static void stop_deciders(struct cache *c)
{
	mutex_lock(&c->notes.mu);
	c->notes.is_stopping = true;
	cond_broadcast(&c->notes.cv);
	mutex_unlock(&c->notes.mu);
	mutex_lock(&c->reval_mu);
	c->reval_stop = true;
	cond_broadcast(&c->reval_cv);
	mutex_unlock(&c->reval_mu);
	thr_join(&c->planner);
	thr_join(&c->revalidator);
}

/* No READ is left that could wait for them. */
static void stop_settling(struct cache *c)
{
	queue_close(&c->drop_jobs);
	thr_join(&c->drop_thread); /* it leaves jobs to the attribute thread */
	queue_close(&c->attr_jobs);
	thr_join(&c->attr_thread);
	queue_close(&c->name_jobs);
	thr_join(&c->name_thread);
}

void cache_stop(struct cache *c)
{
	atomic_store(&c->is_stopping, true);
	stop_deciders(c);
	wait_idle(c);
	stop_settling(c);
	if (!c->is_started)
		return;
	tier_stop(c->keeper);
	queue_close(&c->stage_jobs);
	queue_close(&c->pin_jobs);
	queue_close(&c->epoch_jobs);
	for (uint32_t i = 0; i < c->p.stagers; i++)
		thr_join(&c->stagers[i]);
	for (uint32_t i = 0; i < WRITERS; i++)
		thr_join(&c->writers[i]);
	thr_join(&c->epochs);
	account_sweep(c, clock_now(c->p.clock), true);
	c->is_started = false;
}

/* Jobs that no thread took up, because the cache was never started. */
static void drop_jobs(struct cache *c)
{
	struct list *node;

	while ((node = queue_try_pop(&c->stage_jobs))) {
		struct stage_job *job = container_of(node, struct stage_job, node);
		struct shard *s = shard_of(c, job->entry);

		mutex_lock(&s->mu);
		entry_put_locked(c, s, entry_find_locked(c, s, job->entry));
		mutex_unlock(&s->mu);
	}
}

void cache_free(struct cache *c)
{
	if (!c)
		return;
	stop_settling(c);
	if (c->buckets)
		drop_jobs(c);
	objects_fini(c);
	account_free(c);
	notes_fini(c);
	plan_free(c->plan);
	planned_free(c);
	queue_fini(&c->stage_jobs);
	queue_fini(&c->attr_jobs);
	queue_fini(&c->drop_jobs);
	queue_fini(&c->name_jobs);
	queue_fini(&c->pin_jobs);
	queue_fini(&c->epoch_jobs);
	mutex_fini(&c->prefetch.mu);
	cond_fini(&c->reval_cv);
	mutex_fini(&c->reval_mu);
	mutex_fini(&c->order_mu);
	mutex_fini(&c->status_mu);
	free(c->touched);
	free(c->paged);
	free(c->confirmed);
	free(c->abroad);
	free(c->narrowed);
	free(c->staged);
	free(c->staged_opened);
	free(c->direct);
	free(c->indirect);
	free(c->pushed);
	probed_fini(c);
	ranges_fini(c);
	free(c);
}

void cache_set_memory(struct cache *c, uint64_t ram_bytes, uint64_t stage_bytes)
{
	uint64_t all = ram_bytes + cache_spare_bytes(ram_bytes);

	atomic_store(&c->notes.arena_bytes, MIN(ram_bytes, c->p.arena_bytes));
	atomic_store(&c->notes.stage_bytes, MIN(stage_bytes, c->p.stage_bytes));
	while (arena_used(c->p.arena) > all && evict_one(c))
		;
	arena_set_limit(c->p.arena, all);
	mutex_lock(&c->notes.mu);
	notes_wake_locked(&c->notes);
	mutex_unlock(&c->notes.mu);
}

/* --- description --- */

uint32_t cache_generation(struct cache *c)
{
	return atomic_load(&c->orders);
}

bool cache_may_refuse_open(struct cache *c)
{
	return atomic_load_explicit(&c->may_refuse_open, memory_order_relaxed);
}

/* Bits per file, and what the planner is told in bits when its buffer is full. */
static uint64_t table_bytes(struct cache *c)
{
	uint64_t entries = dataset_n_entries(c->p.dataset),
		 samples = dataset_n_samples(c->p.dataset);

	return ENTRY_BITMAPS * entries / 8 + SAMPLE_BITMAPS * samples / 8 +
	       2 * SHARDS * (uint64_t)c->buckets * sizeof(void *) + ranges_table_bytes(c) +
	       atomic_load(&c->plan_bytes);
}

void cache_get_status(struct cache *c, struct cache_status *ret)
{
	memset(ret, 0, sizeof(*ret));
	mutex_lock(&c->status_mu);
	ret->plan = c->status;
	ret->n_jobs = c->n_shown;
	mutex_unlock(&c->status_mu);
	ret->objects = atomic_load(&c->n_objects);
	ret->files = atomic_load(&c->n_files);
	ret->held_bytes = ret->objects * (sizeof(struct object) + MALLOC_HEAD) +
			  ret->files * (sizeof(struct entry_state) + MALLOC_HEAD);
	ret->table_bytes = table_bytes(c);
	ret->is_degraded = atomic_load(&c->is_degraded);
}

uint32_t cache_get_jobs(struct cache *c, struct cache_job ret[PLAN_JOBS])
{
	uint32_t n;

	mutex_lock(&c->status_mu);
	n = c->n_shown;
	memcpy(ret, c->shown, n * sizeof(*ret));
	mutex_unlock(&c->status_mu);
	return n;
}

void cache_update_gauges(struct cache *c)
{
	struct metrics *m = c->p.metrics;
	struct tier_kept_status kept;
	struct cache_status st;

	cache_get_status(c, &st);
	metrics_gauge_set(m, METRIC_PREFETCH_LIMIT, st.plan.inflight_limit);
	metrics_gauge_set(m, METRIC_ARENA_BYTES, arena_used(c->p.arena));
	metrics_gauge_set(m, METRIC_ARENA_LIMIT_BYTES, atomic_load(&c->notes.arena_bytes));
	metrics_gauge_set(m, METRIC_STAGE_BYTES, st.plan.stage_bytes);
	metrics_gauge_set(m, METRIC_STAGE_LIMIT_BYTES, st.plan.stage_limit_bytes);
	tier_get_kept(c->keeper, &kept);
	metrics_gauge_set(m, METRIC_STORE_BYTES, kept.bytes);
	metrics_gauge_set(m, METRIC_STORE_RECORDS, kept.records);
	metrics_gauge_set(m, METRIC_STORE_PAYLOAD_BYTES, kept.record_bytes);
	metrics_gauge_set(m, METRIC_STORE_OFF, kept.is_off);
	metrics_gauge_set(m, METRIC_STORE_LIMIT_BYTES, c->keeper ? c->p.store_bytes : 0);
	metrics_gauge_set(m, METRIC_DATASET_SAMPLES, dataset_n_samples(c->p.dataset));
	metrics_gauge_set(m, METRIC_DATASET_BYTES, dataset_sample_bytes(c->p.dataset));
	metrics_gauge_set(m, METRIC_EPOCH, st.plan.epoch);
	metrics_gauge_set(m, METRIC_POSITION, st.plan.position);
	metrics_gauge_set(m, METRIC_LEAD, st.plan.lead);
	metrics_gauge_set(m, METRIC_DEGRADED, st.is_degraded);
	metrics_gauge_set(m, METRIC_ORDER_FOLLOWED,
			  atomic_load(&c->has_order) &&
				  (st.plan.state == PLAN_FOLLOWING ||
				   st.plan.state == PLAN_SLOWED || st.plan.state == PLAN_CHECKING));
}
