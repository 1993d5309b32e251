/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that talk to the kernel's cache, the only ones that may: a push or an invalidation of
 * pages waits for pages locked by a READ that has not been answered. Hence two kinds of threads
 * that never wait for each other's work: stagers push and invalidate pages and may be held up by a
 * READ; the attribute thread only drops attributes, which waits for no page, and is what READs of a
 * grown file wait for. A READ therefore never waits for a stager.
 *
 * A push is skipped while a READ of the file is in flight (its answer fills the same pages), and a
 * file that changed during a push is invalidated afterwards: its version is compared. No lock is
 * held over an operation of the stage.
 */
#include "cache_priv.h"

/* Pins the next piece to push: -EAGAIN while the file is read, -ESTALE when it is not what the job
 * began with. */
static int stage_pin(struct cache *c, struct entry_state *es, uint32_t version, uint32_t piece,
		     struct object **ret)
{
	struct shard *s = shard_of(c, es->entry);
	struct object *obj;
	int rc = 0;

	mutex_lock(&s->mu);
	obj = object_find_locked(c, s, es->entry, piece);
	if (es->version != version || es->hold != HOLD_HELD || !obj ||
	    obj->state != OBJECT_RESIDENT)
		rc = -ESTALE;
	else if (access_is_narrowed(c, es->entry))
		rc = -ENOENT; /* the kernel would give it to whoever has it open */
	else if (es->readers)
		rc = -EAGAIN;
	else
		obj->refs++;
	mutex_unlock(&s->mu);
	*ret = obj;
	return rc;
}

static int stage_piece(struct cache *c, struct object *obj, struct entry_id entry,
		       bool *has_looked_up)
{
	struct piece_key key = { entry, obj->piece };
	int rc = stage_push(c->stage, c->stage_ctx, key, obj->mem, obj->length, obj->identity.size);

	if (rc != -ENOENT)
		return rc;
	metrics_add(c->p.metrics, METRIC_STAGE_UNKNOWN_INODE, 1);
	if (*has_looked_up)
		return rc;
	*has_looked_up = true;
	rc = c->stage->lookup(c->stage_ctx, entry);
	if (rc != 0)
		return -ENOENT;
	return stage_push(c->stage, c->stage_ctx, key, obj->mem, obj->length, obj->identity.size);
}

/* All pieces; es is referenced. */
static int stage_pieces(struct cache *c, struct entry_state *es, uint32_t version, uint64_t size)
{
	bool has_looked_up = false;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && size && i < piece_count(size); i++) {
		struct object *obj;

		if (atomic_load(&c->is_stopping))
			return -ECANCELED;
		rc = stage_pin(c, es, version, i, &obj);
		if (rc != 0)
			return rc;
		rc = stage_piece(c, obj, es->entry, &has_looked_up);
		object_put(c, obj);
	}
	return rc;
}

/* True when the file is still the one that was pushed. Sets or clears "staged" so that no change
 * gets between. */
static bool stage_verify(struct cache *c, struct entry_state *es, uint32_t version, bool is_pushed)
{
	struct shard *s = shard_of(c, es->entry);
	bool is_same;

	mutex_lock(&s->mu);
	is_same = es->version == version;
	if (is_pushed && is_same) {
		bits_clear(c->staged_opened, es->entry.v);
		bits_set(c->staged, es->entry.v);
	}
	mutex_unlock(&s->mu);
	return is_same;
}

static int stage_sample(struct cache *c, struct entry_id entry)
{
	struct shard *s = shard_of(c, entry);
	struct file_identity id;
	struct entry_state *es;
	uint32_t version = 0;
	uint64_t begin_ns;
	int rc;

	mutex_lock(&s->mu);
	es = entry_find_locked(c, s, entry);
	if (es && es->hold != HOLD_HELD)
		es = NULL;
	if (es) {
		es->refs++;
		version = es->version;
		dataset_identity(c->p.dataset, entry, &id);
	}
	mutex_unlock(&s->mu);
	if (!es)
		return -ESTALE; /* the change of the file that took it away is on its way to the
				   plan */
	begin_ns = metrics_is_tracing(c->p.metrics) ? clock_now(c->p.clock) : 0;
	rc = stage_pieces(c, es, version, id.size);
	if (!stage_verify(c, es, version, rc == 0)) {
		c->stage->inval(c->stage_ctx, entry, 0, 0);
		rc = -ESTALE;
	}
	mutex_lock(&s->mu);
	entry_put_locked(c, s, es);
	mutex_unlock(&s->mu);
	if (begin_ns)
		metrics_trace(c->p.metrics,
			      &(struct trace_event){ .kind = TRACE_STAGE,
						     .begin_ns = begin_ns,
						     .end_ns = clock_now(c->p.clock),
						     .file = entry.v,
						     .bytes = (uint32_t)MIN(id.size, UINT32_MAX),
						     .status = (int16_t)rc });
	if (rc == 0) {
		metrics_add(c->p.metrics, METRIC_STAGE_PUSHED, 1);
		metrics_add(c->p.metrics, METRIC_STAGE_PUSHED_BYTES, id.size);
	}
	return rc;
}

/* The job is part of its entry_state and may be queued again from the moment is_inval_queued is
 * false. */
static void inval_pages(struct cache *c, struct entry_id entry)
{
	struct shard *s = shard_of(c, entry);
	struct entry_state *es;

	mutex_lock(&s->mu);
	es = entry_find_locked(c, s, entry);
	es->is_inval_queued = false;
	mutex_unlock(&s->mu);
	c->stage->inval(c->stage_ctx, entry, 0, 0);
	mutex_lock(&s->mu);
	entry_put_locked(c, s, es);
	mutex_unlock(&s->mu);
}

void *stager_main(void *cache)
{
	struct cache *c = cache;
	struct list *node;

	while ((node = queue_pop(&c->stage_jobs))) {
		struct stage_job *job = container_of(node, struct stage_job, completion.node);

		if (job->kind == JOB_INVAL) {
			inval_pages(c, job->entry);
			continue;
		}
		job->completion.event.kind = PLAN_EV_STAGED;
		job->completion.event.status =
			job->completion.generation == atomic_load(&c->generation)
				? stage_sample(c, job->entry)
				: -ECANCELED; /* of a plan that is gone */
		note_completion(c, &job->completion);
	}
	return NULL;
}

/* Drops the attributes, again if the file changed meanwhile, then lets the READs go on. */
static void inval_attributes(struct cache *c, struct entry_id entry)
{
	struct shard *s = shard_of(c, entry);
	struct entry_state *es;
	struct list waiters, *node;
	uint32_t version;

	list_init(&waiters);
	mutex_lock(&s->mu);
	es = entry_find_locked(c, s, entry);
	do {
		version = es->version;
		mutex_unlock(&s->mu);
		c->stage->inval_attr(c->stage_ctx, entry);
		mutex_lock(&s->mu);
	} while (es->version != version);
	es->is_attr_queued = false;
	list_splice_tail(&waiters, &es->attr_waiters);
	entry_put_locked(c, s, es);
	mutex_unlock(&s->mu);
	while ((node = list_pop_head(&waiters)))
		read_begin(c, container_of(node, struct cache_read, node));
}

void *attr_main(void *cache)
{
	struct cache *c = cache;
	struct list *node;

	while ((node = queue_pop(&c->attr_jobs)))
		inval_attributes(c, container_of(node, struct stage_job, completion.node)->entry);
	return NULL;
}
