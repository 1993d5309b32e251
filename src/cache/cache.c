/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, starting, stopping and describing a cache.
 *
 * Whoever plans stops first, so that nobody decides anything new; then prefetches that wait are dropped
 * and what is in flight is waited for - READs may still need the attribute thread - and the threads
 * that settle changes end last.
 */
#include "cache_priv.h"

#include <string.h>
#include <unistd.h>

#define ENTRY_BITMAPS 5u  /* touched, paged, confirmed, abroad, narrowed */
#define SAMPLE_BITMAPS 2u /* direct, indirect */
#define UNIT_BITMAPS 8u   /* staged, staged_opened, untraced, marked (two), held (two), pushed */
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
	c->direct = calloc(words, sizeof(*c->direct));
	c->indirect = calloc(words, sizeof(*c->indirect));
	words = dataset_n_units(c->p.dataset) / 64 + 1;
	c->staged = calloc(words, sizeof(*c->staged));
	c->staged_opened = calloc(words, sizeof(*c->staged_opened));
	c->untraced = calloc(words, sizeof(*c->untraced));
	c->pushed = calloc(words, sizeof(*c->pushed));
	if (rc == 0)
		rc = holds_init(c);
	if (rc == 0)
		rc = probed_init(c);
	if (!c->touched || !c->paged || !c->confirmed || !c->abroad || !c->staged ||
	    !c->staged_opened || !c->untraced || !c->direct || !c->indirect || !c->pushed)
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
	c->tracer_bytes = MIN((uint32_t)MAX(sysconf(_SC_PAGESIZE), CACHE_PAGE), PIECE_BYTES);
	atomic_init(&c->arena_bytes, c->p.arena_bytes);
	atomic_init(&c->may_refuse_open, true);
	mutex_init(&c->reval_mu);
	cond_init(&c->reval_cv);
	queue_init(&c->attr_jobs);
	queue_init(&c->drop_jobs);
	queue_init(&c->name_jobs);
	prefetch_init(c);
	rc = cache_init(c);
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
	assert(c->p.pages || !ops);
	c->stage = ops;
	c->stage_ctx = ctx;
}

int cache_start(struct cache *c, struct err *err)
{
	int rc = 0;

	c->is_started = true;
	if (c->p.revalidate_ns)
		rc = thr_start(&c->revalidator, "cl-revalidate", revalidate_main, c, err);
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

static void stop_revalidating(struct cache *c)
{
	mutex_lock(&c->reval_mu);
	c->reval_stop = true;
	cond_broadcast(&c->reval_cv);
	mutex_unlock(&c->reval_mu);
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
	stop_revalidating(c);
	wait_idle(c);
	stop_settling(c);
}

void cache_finish(struct cache *c)
{
	if (c->is_started)
		account_sweep(c, clock_now(c->p.clock), true);
	c->is_started = false;
}

/* Jobs that no thread took up, because the cache was never started. */
static void drop_jobs(struct cache *c)
{
	struct list *node;

	while (c->p.pages && (node = queue_try_pop(c->p.pages))) {
		struct page_job *job = container_of(node, struct page_job, node);
		struct shard *s = shard_of(c, job->entry);

		if (job->is_part) {
			push_free_part(c, job);
			continue;
		}
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
	queue_fini(&c->attr_jobs);
	queue_fini(&c->drop_jobs);
	queue_fini(&c->name_jobs);
	mutex_fini(&c->prefetch.mu);
	cond_fini(&c->reval_cv);
	mutex_fini(&c->reval_mu);
	free(c->touched);
	free(c->paged);
	free(c->confirmed);
	free(c->abroad);
	free(c->narrowed);
	free(c->staged);
	free(c->staged_opened);
	free(c->untraced);
	free(c->direct);
	free(c->indirect);
	free(c->pushed);
	probed_fini(c);
	holds_fini(c);
	ranges_fini(c);
	free(c);
}

void cache_set_memory(struct cache *c, uint64_t ram_bytes)
{
	uint64_t all = ram_bytes + cache_spare_bytes(ram_bytes);

	atomic_store(&c->arena_bytes, MIN(ram_bytes, c->p.arena_bytes));
	while (arena_used(c->p.arena) > all && evict_one(c))
		;
	arena_set_limit(c->p.arena, all);
}

void cache_set_may_refuse_open(struct cache *c, bool may_refuse)
{
	atomic_store(&c->may_refuse_open, may_refuse);
}

void cache_set_ordered(struct cache *c, bool is_ordered)
{
	atomic_store(&c->is_ordered, is_ordered);
}

void cache_degrade(struct cache *c, const char *why)
{
	atomic_store(&c->is_degraded, true);
	log_limited(LOG_LEVEL_WARN, "cache: %s", why);
}

void cache_tick(struct cache *c, uint64_t now_ns)
{
	account_sweep(c, now_ns, false);
	probed_tick(c, now_ns);
}

/* --- description --- */

bool cache_may_refuse_open(struct cache *c)
{
	return atomic_load_explicit(&c->may_refuse_open, memory_order_relaxed);
}

/* Bits per file. */
static uint64_t table_bytes(struct cache *c)
{
	uint64_t entries = dataset_n_entries(c->p.dataset),
		 samples = dataset_n_samples(c->p.dataset), units = dataset_n_units(c->p.dataset);

	return (ENTRY_BITMAPS * entries + SAMPLE_BITMAPS * samples + UNIT_BITMAPS * units) / 8 +
	       2 * SHARDS * (uint64_t)c->buckets * sizeof(void *) + ranges_table_bytes(c);
}

void cache_get_status(struct cache *c, struct cache_status *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->objects = atomic_load(&c->n_objects);
	ret->files = atomic_load(&c->n_files);
	ret->held_bytes = ret->objects * (sizeof(struct object) + MALLOC_HEAD) +
			  ret->files * (sizeof(struct entry_state) + MALLOC_HEAD);
	ret->table_bytes = table_bytes(c);
	ret->is_degraded = atomic_load(&c->is_degraded);
}

void cache_update_gauges(struct cache *c)
{
	struct metrics *m = c->p.metrics;
	struct tier_kept_status kept;
	struct cache_status st;

	cache_get_status(c, &st);
	metrics_gauge_set(m, METRIC_ARENA_BYTES, arena_used(c->p.arena));
	metrics_gauge_set(m, METRIC_ARENA_LIMIT_BYTES, atomic_load(&c->arena_bytes));
	tier_get_kept(c->keeper, &kept);
	metrics_gauge_set(m, METRIC_STORE_BYTES, kept.bytes);
	metrics_gauge_set(m, METRIC_STORE_RECORDS, kept.records);
	metrics_gauge_set(m, METRIC_STORE_PAYLOAD_BYTES, kept.record_bytes);
	metrics_gauge_set(m, METRIC_STORE_OFF, kept.is_off);
	metrics_gauge_set(m, METRIC_DATASET_SAMPLES, dataset_n_samples(c->p.dataset));
	metrics_gauge_set(m, METRIC_DATASET_BYTES, dataset_sample_bytes(c->p.dataset));
	metrics_gauge_set(m, METRIC_DEGRADED, st.is_degraded);
}
