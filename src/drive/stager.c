/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that push pages into the kernel's cache, and invalidate those of files that changed. Both
 * wait for pages locked by a READ that has not been answered, so nobody waits for these threads
 * (cache/settle.c).
 *
 * A push is skipped while a READ of the same piece is in flight; the other pieces of a large file are
 * pushed meanwhile, and that one is tried once more after them.
 */
#include "drive_priv.h"

enum { STAGE_BUSY = 16 };

static int stage_piece(struct drive *d, const struct cache_push *push,
		       const struct cache_copy *copy, bool *has_looked_up)
{
	uint32_t skip = copy->piece == push->first ? push->tracer_bytes : 0;
	struct stage_piece piece = { .file = push->file,
				     .piece = copy->piece,
				     .skip = skip,
				     .length = copy->length,
				     .data = copy->data,
				     .size = push->size };
	int rc = stage_push(d->stage, d->stage_ctx, &piece);

	if (rc != -ENOENT)
		return rc;
	metrics_add(d->metrics, METRIC_STAGE_UNKNOWN_INODE, 1);
	if (*has_looked_up)
		return rc;
	*has_looked_up = true;
	rc = d->stage->lookup(d->stage_ctx, push->file.entry);
	if (rc != 0)
		return rc == -ENOBUFS ? PLAN_NO_INODES : -ENOENT;
	return stage_push(d->stage, d->stage_ctx, &piece);
}

/* The kernel may have its page from the last pass: then nobody would hear of this one. */
static int drop_tracer(struct drive *d, const struct cache_push *push, const struct cache_copy *copy)
{
	int rc;

	if (!push->tracer_bytes || copy->piece != push->first)
		return 0;
	rc = d->stage->inval(d->stage_ctx, push->file, (uint64_t)copy->piece * PIECE_BYTES,
			     push->tracer_bytes);
	return rc == -ENOENT ? 0 : rc; /* it knows nothing of the file */
}

static int stage_one(struct drive *d, struct cache_push *push, uint32_t piece, bool *has_looked_up)
{
	struct cache_copy copy;
	int rc;

	assert(push->first <= piece && piece < push->end);
	if (atomic_load(&d->is_stopping))
		return -ECANCELED;
	rc = cache_push_pin(d->cache, push, piece, &copy);
	if (rc != 0)
		return rc;
	rc = drop_tracer(d, push, &copy);
	if (rc == 0)
		rc = stage_piece(d, push, &copy, has_looked_up);
	cache_push_unpin(d->cache, push, &copy, rc == 0);
	return rc;
}

static int stage_pieces(struct drive *d, struct cache_push *push)
{
	uint32_t busy[STAGE_BUSY], n_busy = 0;
	bool has_looked_up = false;
	int rc = 0;

	for (uint32_t i = push->first; rc == 0 && i < push->end; i++) {
		rc = stage_one(d, push, i, &has_looked_up);
		if (rc == -EAGAIN && push->end - push->first > 1 && n_busy < STAGE_BUSY) {
			busy[n_busy++] = i;
			rc = 0;
		}
	}
	for (uint32_t i = 0; rc == 0 && i < n_busy; i++)
		rc = stage_one(d, push, busy[i], &has_looked_up);
	return rc;
}

static int stage_unit(struct drive *d, struct unit_id unit)
{
	struct cache_push push;
	uint64_t begin_ns, bytes;
	int rc = cache_push_begin(d->cache, unit, &push);

	if (rc != 0)
		return rc;
	begin_ns = metrics_is_tracing(d->metrics) ? clock_now(d->clock) : 0;
	bytes = dataset_unit_extent(d->dataset, unit).length;
	rc = cache_push_end(d->cache, &push, stage_pieces(d, &push));
	if (begin_ns)
		metrics_trace(d->metrics,
			      &(struct trace_event){ .kind = TRACE_STAGE,
						     .begin_ns = begin_ns,
						     .end_ns = clock_now(d->clock),
						     .file = push.file.entry.v,
						     .piece = push.first,
						     .bytes = (uint32_t)bytes,
						     .status = (int16_t)rc });
	if (rc == 0) {
		metrics_add(d->metrics, METRIC_STAGE_PUSHED, 1);
		metrics_add(d->metrics, METRIC_STAGE_PUSHED_BYTES, bytes - MIN(push.tracer_bytes, bytes));
	}
	return rc;
}

void *stager_main(void *drive)
{
	struct drive *d = drive;
	struct list *node;

	while ((node = queue_pop(&d->page_jobs))) {
		struct page_job *job = container_of(node, struct page_job, node);
		struct push_job *push = container_of(job, struct push_job, job);

		if (job->is_push)
			drive_complete(d, &push->completion, PLAN_EV_STAGED,
				       stage_unit(d, push->completion.event.unit));
		else
			cache_do_page_job(d->cache, job);
	}
	return NULL;
}
