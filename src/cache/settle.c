/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that make a change of a file known to the kernel. A push or an invalidation of pages waits
 * for pages locked by a READ that has not been answered, and whoever does those may be held up by a
 * READ. Hence other threads for what READs wait for: the attribute thread makes sizes known, which waits
 * for no page, and is what READs of a changed file wait for. A READ therefore never waits for a push.
 * Between the two stands the thread that drops pages behind READs at the beginning of a changed file:
 * those READs wait for it, and it waits for READs behind them only, which are refused. Names are
 * dropped by one more thread: it waits for a directory's lock, which whoever lists it may hold for
 * long, and nobody waits for it.
 *
 * No lock is held over an operation of the stage.
 */
#include "cache_priv.h"

/* Lets READs and looks go on; those that still have to wait come back. */
static void wake_waiters(struct cache *c, struct shard *s, struct entry_state *es)
{
	struct list waiters, *node;

	list_init(&waiters);
	mutex_lock(&s->mu);
	list_splice_tail(&waiters, &es->attr_waiters);
	mutex_unlock(&s->mu);
	while ((node = list_pop_head(&waiters))) {
		struct cache_read *r = container_of(node, struct cache_read, node);

		if (r->is_look)
			look_begin(c, r);
		else
			read_begin(c, r);
	}
}

/* The attributes of a changed file. The drop thread comes back to us when it is through. False when
 * nothing is left. */
static bool attr_step_locked(struct cache *c, struct shard *s, struct entry_state *es)
	REQUIRES(s->mu)
{
	uint32_t version = es->version;
	int rc;

	if (!es->is_unsettled ||
	    (es->is_drop_queued &&
	     es->drop_renewal == dataset_renewal(c->p.dataset, es->entry)))
		return false;
	mutex_unlock(&s->mu);
	rc = c->stage->settle(c->stage_ctx, es->entry);
	mutex_lock(&s->mu);
	if (es->version != version)
		return true;
	es->is_unsettled = false;
	if (rc < 0 && rc != -ENOTCONN)
		change_unsettled_locked(c, s, es);
	return true;
}

/* Again if the file changed meanwhile; then the READs go on. */
static void settle_entry(struct cache *c, struct entry_id entry)
{
	struct shard *s = shard_of(c, entry);
	struct entry_state *es;

	mutex_lock(&s->mu);
	es = entry_find_locked(c, s, entry);
	while (attr_step_locked(c, s, es))
		;
	es->is_attr_queued = false;
	mutex_unlock(&s->mu);
	/* Of a file whose pages are being dropped some are refused now: the drop thread waits for
	 * that. */
	wake_waiters(c, s, es);
	mutex_lock(&s->mu);
	entry_put_locked(c, s, es);
	mutex_unlock(&s->mu);
}

void *attr_main(void *cache)
{
	struct cache *c = cache;
	struct list *node;

	while ((node = queue_pop(&c->attr_jobs)))
		settle_entry(c, container_of(node, struct page_job, node)->entry);
	return NULL;
}

/* Old pages behind the READs that are about to get the new file. */
static void drop_behind(struct cache *c, struct entry_id entry)
{
	struct stage_file file = { .entry = entry };
	struct shard *s = shard_of(c, entry);
	struct entry_state *es;
	uint64_t from;

	mutex_lock(&s->mu);
	es = entry_find_locked(c, s, entry);
	from = ALIGN_UP(es->head_end, (uint64_t)4096);
	file.renewal = es->drop_renewal;
	mutex_unlock(&s->mu);
	c->stage->inval(c->stage_ctx, file, from, 0);
	mutex_lock(&s->mu);
	es->is_drop_queued = false;
	change_queue_attr_locked(c, s, es);
	entry_put_locked(c, s, es);
	mutex_unlock(&s->mu);
}

void *drop_main(void *cache)
{
	struct cache *c = cache;
	struct list *node;

	while ((node = queue_pop(&c->drop_jobs)))
		drop_behind(c, container_of(node, struct page_job, node)->entry);
	return NULL;
}

void *name_main(void *cache)
{
	struct cache *c = cache;
	struct list *node;

	while ((node = queue_pop(&c->name_jobs))) {
		struct entry_id entry = container_of(node, struct page_job, node)->entry;
		struct shard *s = shard_of(c, entry);
		struct entry_state *es;

		mutex_lock(&s->mu);
		es = entry_find_locked(c, s, entry);
		es->is_name_queued = false;
		mutex_unlock(&s->mu);
		c->stage->drop_name(c->stage_ctx, entry);
		mutex_lock(&s->mu);
		entry_put_locked(c, s, es);
		mutex_unlock(&s->mu);
	}
	return NULL;
}
