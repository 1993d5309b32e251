/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that talk to the kernel's cache, the only ones that may: a push or an invalidation of
 * pages waits for pages locked by a READ that has not been answered. Hence two kinds of threads
 * that never wait for each other's work: stagers push and invalidate pages and may be held up by a
 * READ; the attribute thread makes sizes known, which waits for no page, and is what READs of a
 * changed file wait for. A READ therefore never waits for a stager. Between the two stands the thread
 * that drops pages behind READs at the beginning of a changed file: those READs wait for it, and it
 * waits for READs behind them only, which are refused. Names are dropped by one more thread: it waits
 * for a directory's lock, which whoever lists it may hold for long, and nobody waits for it.
 *
 * A push is skipped while a READ of the same piece is in flight (its answer fills the same pages); the
 * other pieces of a large file are pushed meanwhile, and that one is tried once more after them. A
 * file that changed during a push is invalidated afterwards: its version is compared. No lock is
 * held over an operation of the stage.
 */
#include "cache_priv.h"

enum { STAGE_BUSY = 16 };

/* A READ that is not listed may be anywhere in the file. */
static bool is_being_read(struct entry_state *es, const struct object *obj)
{
	if (es->readers > es->n_listed)
		return true;
	for (struct list *node = es->reads.next; node != &es->reads; node = node->next) {
		const struct cache_read *r = container_of(node, struct cache_read, in_entry);

		if (r->offset < obj->start + obj->length && obj->start < r->offset + r->length)
			return true;
	}
	return false;
}

/* Pins the next piece to push: -EAGAIN while it is read, -ESTALE when it is not what the job
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
	else if (is_being_read(es, obj))
		rc = -EAGAIN;
	if (rc == 0) {
		obj->refs++;
		es->pushers++;
		bits_set(c->paged, es->entry.v);
	}
	mutex_unlock(&s->mu);
	*ret = obj;
	return rc;
}

static void stage_unpin(struct cache *c, struct entry_state *es, struct object *obj)
{
	struct shard *s = shard_of(c, es->entry);

	mutex_lock(&s->mu);
	es->pushers--;
	mutex_unlock(&s->mu);
	object_put(c, obj);
}

static int stage_piece(struct cache *c, struct object *obj, struct stage_file file,
		       bool *has_looked_up)
{
	struct stage_piece piece = { .file = file,
				     .piece = obj->piece,
				     .length = obj->length,
				     .data = obj->mem,
				     .size = obj->identity.size };
	int rc = stage_push(c->stage, c->stage_ctx, &piece);

	if (rc != -ENOENT)
		return rc;
	metrics_add(c->p.metrics, METRIC_STAGE_UNKNOWN_INODE, 1);
	if (*has_looked_up)
		return rc;
	*has_looked_up = true;
	rc = c->stage->lookup(c->stage_ctx, file.entry);
	if (rc != 0)
		return rc == -ENOBUFS ? PLAN_NO_INODES : -ENOENT;
	return stage_push(c->stage, c->stage_ctx, &piece);
}

static int stage_one(struct cache *c, struct entry_state *es, uint32_t version,
		     const struct stage_file *file, uint32_t piece, bool *has_looked_up)
{
	struct object *obj;
	int rc;

	if (atomic_load(&c->is_stopping))
		return -ECANCELED;
	rc = stage_pin(c, es, version, piece, &obj);
	if (rc != 0)
		return rc;
	rc = stage_piece(c, obj, *file, has_looked_up);
	if (rc == 0 && obj->identity.size > PIECE_BYTES)
		bits_set(c->pushed, es->entry.v);
	stage_unpin(c, es, obj);
	return rc;
}

/* All pieces; es is referenced. */
static int stage_pieces(struct cache *c, struct entry_state *es, uint32_t version,
			const struct stage_file *file, uint64_t size)
{
	uint32_t n = size ? piece_count(size) : 0, busy[STAGE_BUSY], n_busy = 0;
	bool has_looked_up = false;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		rc = stage_one(c, es, version, file, i, &has_looked_up);
		if (rc == -EAGAIN && n > 1 && n_busy < STAGE_BUSY) {
			busy[n_busy++] = i;
			rc = 0;
		}
	}
	for (uint32_t i = 0; rc == 0 && i < n_busy; i++)
		rc = stage_one(c, es, version, file, busy[i], &has_looked_up);
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
		direct_pushed(c, es->entry);
		bits_set(c->staged, es->entry.v);
	}
	mutex_unlock(&s->mu);
	return is_same;
}

static int stage_sample(struct cache *c, struct entry_id entry)
{
	struct shard *s = shard_of(c, entry);
	struct stage_file file = { .entry = entry };
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
		file.renewal = dataset_renewal(c->p.dataset, entry);
		dataset_identity(c->p.dataset, entry, &id);
	}
	mutex_unlock(&s->mu);
	if (!es)
		return -ESTALE; /* the change of the file that took it away is on its way to the
				   plan */
	begin_ns = metrics_is_tracing(c->p.metrics) ? clock_now(c->p.clock) : 0;
	rc = stage_pieces(c, es, version, &file, id.size);
	if (!stage_verify(c, es, version, rc == 0)) {
		account_unpushed(c, entry);
		/* Else it is in the inode of that version. */
		if (file.renewal == dataset_renewal(c->p.dataset, entry))
			c->stage->inval(c->stage_ctx, file, 0, 0);
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
	struct stage_file file = { .entry = entry };
	struct shard *s = shard_of(c, entry);
	struct entry_state *es;

	mutex_lock(&s->mu);
	es = entry_find_locked(c, s, entry);
	es->is_inval_queued = false;
	file.renewal = es->inval_renewal;
	mutex_unlock(&s->mu);
	c->stage->inval(c->stage_ctx, file, 0, 0);
	if (access_is_narrowed(c, entry) && file.renewal > 0) { /* of those who may not any more */
		file.renewal--;
		c->stage->inval(c->stage_ctx, file, 0, 0);
	}
	mutex_lock(&s->mu);
	entry_put_locked(c, s, es);
	mutex_unlock(&s->mu);
}

void *stager_main(void *cache)
{
	struct cache *c = cache;
	struct list *node;

	while ((node = queue_pop(&c->stage_jobs))) {
		struct stage_job *job = container_of(node, struct stage_job, node);
		struct stage_push *push;

		if (job->kind == JOB_INVAL) {
			inval_pages(c, job->entry);
			continue;
		}
		push = container_of(job, struct stage_push, job);
		push->completion.event.kind = PLAN_EV_STAGED;
		push->completion.event.status = stage_sample(c, job->entry);
		note_completion(c, &push->completion);
	}
	return NULL;
}

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
		settle_entry(c, container_of(node, struct stage_job, node)->entry);
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
		drop_behind(c, container_of(node, struct stage_job, node)->entry);
	return NULL;
}

void *name_main(void *cache)
{
	struct cache *c = cache;
	struct list *node;

	while ((node = queue_pop(&c->name_jobs))) {
		struct entry_id entry = container_of(node, struct stage_job, node)->entry;
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
