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

/* Bytes [from, to) of the copy, in the file. */
static int stage_part(struct drive *d, const struct cache_push *push, const struct cache_copy *copy,
		      uint64_t from, uint64_t to, bool *has_looked_up)
{
	struct stage_piece piece = { .file = push->file,
				     .offset = from,
				     .length = (uint32_t)(to - from),
				     .data = (const char *)copy->data + (from - copy->start),
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

static bool has_tracer(const struct cache_push *push, const struct cache_copy *copy)
{
	return push->tracer_bytes && copy->start <= push->tracer_at &&
	       push->tracer_at < copy->start + copy->length;
}

/* All of it but the tracer page. */
static int stage_piece(struct drive *d, const struct cache_push *push,
		       const struct cache_copy *copy, bool *has_looked_up)
{
	uint64_t from = copy->start, to = copy->start + copy->length;
	int rc = 0;

	if (has_tracer(push, copy)) {
		if (push->tracer_at > from)
			rc = stage_part(d, push, copy, from, push->tracer_at, has_looked_up);
		from = push->tracer_at + push->tracer_bytes;
		if (from >= to)
			return rc;
	}
	return rc == 0 ? stage_part(d, push, copy, from, to, has_looked_up) : rc;
}

/* The kernel may have its page from the last pass: then nobody would hear of this one. */
static int drop_tracer(struct drive *d, const struct cache_push *push, const struct cache_copy *copy)
{
	int rc;

	if (!has_tracer(push, copy))
		return 0;
	rc = d->stage->inval(d->stage_ctx, push->file, push->tracer_at, push->tracer_bytes);
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

/* 0, PLAN_STAGED_WHOLE, or an errno. */
static int stage_unit(struct drive *d, struct unit_id unit, bool may_be_whole)
{
	struct dataset_extent extent;
	struct cache_push push;
	uint64_t begin_ns, bytes;
	bool is_whole;
	int rc = cache_push_begin(d->cache, unit, &push);

	if (rc != 0)
		return rc;
	is_whole = may_be_whole && cache_push_whole(d->cache, &push);
	begin_ns = metrics_is_tracing(d->metrics) ? clock_now(d->clock) : 0;
	extent = dataset_unit_extent(d->dataset, unit);
	bytes = extent.length;
	rc = cache_push_end(d->cache, &push, stage_pieces(d, &push));
	if (begin_ns)
		metrics_trace(d->metrics,
			      &(struct trace_event){ .kind = TRACE_STAGE,
						     .begin_ns = begin_ns,
						     .end_ns = clock_now(d->clock),
						     .file = push.file.entry.v,
						     .piece = (uint32_t)(extent.offset / PIECE_BYTES),
						     .bytes = (uint32_t)bytes,
						     .status = (int16_t)rc });
	if (rc == 0) {
		metrics_add(d->metrics, METRIC_STAGE_PUSHED, 1);
		metrics_add(d->metrics, METRIC_STAGE_PUSHED_BYTES, bytes - MIN(push.tracer_bytes, bytes));
	}
	return rc == 0 && is_whole ? PLAN_STAGED_WHOLE : rc;
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
				       stage_unit(d, push->completion.event.unit, push->may_be_whole));
		else
			cache_do_page_job(d->cache, job);
	}
	return NULL;
}
