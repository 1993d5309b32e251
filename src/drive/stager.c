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
	struct stage_piece piece = { .file = push->file,
				     .piece = copy->piece,
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

static int stage_one(struct drive *d, struct cache_push *push, uint32_t piece, bool *has_looked_up)
{
	struct cache_copy copy;
	int rc;

	if (atomic_load(&d->is_stopping))
		return -ECANCELED;
	rc = cache_push_pin(d->cache, push, piece, &copy);
	if (rc != 0)
		return rc;
	rc = stage_piece(d, push, &copy, has_looked_up);
	cache_push_unpin(d->cache, push, &copy, rc == 0);
	return rc;
}

static int stage_pieces(struct drive *d, struct cache_push *push)
{
	uint32_t n = push->size ? piece_count(push->size) : 0, busy[STAGE_BUSY], n_busy = 0;
	bool has_looked_up = false;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		rc = stage_one(d, push, i, &has_looked_up);
		if (rc == -EAGAIN && n > 1 && n_busy < STAGE_BUSY) {
			busy[n_busy++] = i;
			rc = 0;
		}
	}
	for (uint32_t i = 0; rc == 0 && i < n_busy; i++)
		rc = stage_one(d, push, busy[i], &has_looked_up);
	return rc;
}

static int stage_sample(struct drive *d, struct entry_id entry)
{
	struct cache_push push;
	uint64_t begin_ns;
	int rc = cache_push_begin(d->cache, entry, &push);

	if (rc != 0)
		return rc;
	begin_ns = metrics_is_tracing(d->metrics) ? clock_now(d->clock) : 0;
	rc = cache_push_end(d->cache, &push, stage_pieces(d, &push));
	if (begin_ns)
		metrics_trace(d->metrics,
			      &(struct trace_event){ .kind = TRACE_STAGE,
						     .begin_ns = begin_ns,
						     .end_ns = clock_now(d->clock),
						     .file = entry.v,
						     .bytes = (uint32_t)MIN(push.size, UINT32_MAX),
						     .status = (int16_t)rc });
	if (rc == 0) {
		metrics_add(d->metrics, METRIC_STAGE_PUSHED, 1);
		metrics_add(d->metrics, METRIC_STAGE_PUSHED_BYTES, push.size);
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
				       stage_sample(d, job->entry));
		else
			cache_do_page_job(d->cache, job);
	}
	return NULL;
}
