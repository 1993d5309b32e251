/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading from the store. A record goes straight into the reader's buffer, seal included, whenever
 * it has no more pages than the buffer (FORMAT.md says when); else through a buffer of ours. Those
 * are few and made when first needed; reads that find none wait in line, urgent ones first.
 *
 * Every record is verified each time, in done(), on the engine's thread: the device may lie at any
 * moment, and the sum of a sample costs a tenth of reading it. A record that is wrong, or that
 * could not be read, is forgotten, so that it fails once and not in every epoch.
 *
 * tier_read() runs on any thread, and calls done() itself only for pieces that are not there. Must
 * never report success for bytes that were not verified.
 */
#include <errno.h>
#include <string.h>

#include "store_priv.h"

#define MAX_BUFFERS 16u

static void wait_idle(struct store_reader *reader)
{
	mutex_lock(&reader->mu);
	while (reader->n_reads > 0)
		cond_wait(&reader->is_idle, &reader->mu);
	mutex_unlock(&reader->mu);
}

void store_reader_fini(struct store_reader *reader)
{
	wait_idle(reader);
	for (uint32_t i = 0; i < reader->n_free; i++)
		free(reader->buffers[i]);
	free(reader->buffers);
	cond_fini(&reader->is_idle);
	mutex_fini(&reader->mu);
}

static bool fits_into_caller(uint32_t length)
{
	return store_record_bytes(length) <= ALIGN_UP(length, STORE_BLOCK);
}

static void read_done(struct io_job *job);

static void read_submit(struct store *store, struct tier_read *read, void *buf)
{
	struct io_job *job = &read->job;
	uint64_t offset = (uint64_t)(uintptr_t)read->tier_priv * STORE_BLOCK;

	memset(job, 0, sizeof(*job));
	job->kind = IO_READ_FD;
	job->fd = store->file.fd;
	job->buf = buf;
	job->offset = offset;
	job->length = store_record_bytes(read->length);
	job->is_urgent = read->is_urgent;
	job->done = read_done;
	job->ctx = store;
	io_submit(store->io, job);
}

/* Ends the read; the caller has done with it. */
static void read_end(struct store *store, struct tier_read *read, int status)
{
	struct store_reader *reader = &store->reader;

	read->status = status;
	read->got = status == 0 ? read->length : 0;
	read->done(read);
	mutex_lock(&reader->mu);
	reader->n_reads--;
	if (reader->n_reads == 0)
		cond_broadcast(&reader->is_idle);
	mutex_unlock(&reader->mu);
}

/* A new buffer if there may be one more and there is memory for it. The lock is held over the
 * allocation: it happens MAX_BUFFERS times in the life of a mount, and whoever finds no buffer may
 * then rely on one that is in use coming back. */
static void *make_buffer_locked(struct store_reader *reader) REQUIRES(reader->mu)
{
	void *buffer = NULL;

	if (reader->n_buffers == reader->max_buffers ||
	    posix_memalign(&buffer, STORE_BLOCK, STORE_RECORD_MAX) != 0)
		return NULL;
	reader->n_buffers++;
	return buffer;
}

/* A buffer; or NULL, with *ret_is_queued telling whether the read waits for one now. */
static void *take_buffer(struct store_reader *reader, struct tier_read *read, bool *ret_is_queued)
{
	void *buffer;

	mutex_lock(&reader->mu);
	if (reader->n_free > 0)
		buffer = reader->buffers[--reader->n_free];
	else
		buffer = make_buffer_locked(reader);
	*ret_is_queued = !buffer && reader->n_buffers > 0;
	if (*ret_is_queued)
		list_push_tail(read->is_urgent ? &reader->urgent : &reader->waiting, &read->node);
	mutex_unlock(&reader->mu);
	return buffer;
}

/* Hands the buffer on to the next read in line; NULL and the buffer is put back if there is none.
 */
static struct tier_read *pass_buffer(struct store_reader *reader, void *buffer)
{
	struct list *node;

	mutex_lock(&reader->mu);
	node = list_pop_head(&reader->urgent);
	if (!node)
		node = list_pop_head(&reader->waiting);
	if (!node)
		reader->buffers[reader->n_free++] = buffer;
	mutex_unlock(&reader->mu);
	return node ? container_of(node, struct tier_read, node) : NULL;
}

static int read_verify(struct tier_read *read)
{
	const struct io_job *job = &read->job;
	const struct store_record record = { read->key, read->expect, read->length };

	if (job->status < 0)
		return -EIO;
	if (job->got != job->length || !store_record_is(&record, job->buf))
		return -EIO;
	if (job->buf != read->buf && read->length)
		memcpy(read->buf, job->buf, read->length);
	return 0;
}

static void read_done(struct io_job *job)
{
	struct tier_read *read = container_of(job, struct tier_read, job);
	struct store *store = job->ctx;
	void *buffer = job->buf != read->buf ? job->buf : NULL;
	int status = read_verify(read);

	store_file_drop_cache(&store->file, job->offset, job->length);
	read->latency_ns = job->done_ns - job->started_ns;
	if (status == 0) {
		metrics_add(store->metrics, METRIC_STORE_READS, 1);
		metrics_add(store->metrics, METRIC_STORE_READ_BYTES, read->length);
		metrics_observe(store->metrics, METRIC_HIST_STORE_LATENCY, read->latency_ns);
	} else {
		metrics_add(store->metrics, METRIC_STORE_ERRORS, 1);
		store_index_remove(&store->index, read->key, (uint32_t)(job->offset / STORE_BLOCK));
	}
	if (buffer) {
		struct tier_read *next = pass_buffer(&store->reader, buffer);

		if (next)
			read_submit(store, next, buffer);
	}
	read_end(store, read, status);
}

static void store_tier_read(struct tier *tier, struct tier_read *read)
{
	struct store *store = container_of(tier, struct store, reader.tier);
	bool is_queued;
	uint32_t block;
	void *buffer;
	int rc;

	read->has_st = false;
	read->latency_ns = 0;
	mutex_lock(&store->reader.mu);
	store->reader.n_reads++;
	mutex_unlock(&store->reader.mu);
	rc = store_index_find(&store->index, read->key, &read->expect, &block);
	if (rc == 0 && read->length != piece_length(read->expect.size, read->key.piece))
		rc = -EINVAL;
	if (rc < 0) {
		read_end(store, read, rc);
		return;
	}
	read->tier_priv = (void *)(uintptr_t)block;
	if (fits_into_caller(read->length)) {
		read_submit(store, read, read->buf);
		return;
	}
	buffer = take_buffer(&store->reader, read, &is_queued);
	if (buffer)
		read_submit(store, read, buffer);
	else if (!is_queued)
		read_end(store, read, -ENOMEM);
}

/* Borrowed from the store: only waits. */
static void store_tier_free(struct tier *tier)
{
	wait_idle(container_of(tier, struct store_reader, tier));
}

static const struct tier_ops store_tier_ops = {
	.name = "store",
	.read = store_tier_read,
	.free = store_tier_free,
};

int store_reader_init(struct store_reader *reader, uint32_t max_inflight)
{
	reader->max_buffers = MAX(1, MIN(max_inflight, MAX_BUFFERS));
	reader->buffers = calloc(reader->max_buffers, sizeof(reader->buffers[0]));
	if (!reader->buffers)
		return -ENOMEM;
	reader->n_free = reader->n_buffers = 0;
	reader->n_reads = 0;
	reader->tier.ops = &store_tier_ops;
	list_init(&reader->urgent);
	list_init(&reader->waiting);
	mutex_init(&reader->mu);
	cond_init(&reader->is_idle);
	return 0;
}

struct tier *store_tier(struct store *store)
{
	return &store->reader.tier;
}
