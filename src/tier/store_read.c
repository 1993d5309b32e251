/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading from the store. A record goes straight into the reader's buffer, seal included, whenever
 * it has no more pages than the buffer (FORMAT.md says when); else its last page, in which is
 * nothing but the seal, goes to a page of ours. Those are few and made when first needed; reads
 * that find none wait in line, urgent ones first.
 *
 * A record is verified in done(), on the engine's thread, the first time it is read or each time;
 * once it is known to be right its payload is read without the seal, so that no piece needs a
 * buffer of ours. A record that is wrong, or that could not be read, is forgotten, so that it fails
 * once and not in every epoch. Reads that fail in a row switch the store off: the source is faster
 * than a drive that has gone.
 *
 * tier_read() runs on any thread, and calls done() itself only for pieces that are not there. Must
 * never report success for bytes of a record that was not verified.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "store_priv.h"

#define MAX_BUFFERS 256u
#define READ_ERRORS_MAX 8u

static void reader_wait_idle(struct store_reader *reader)
{
	mutex_lock(&reader->mu);
	while (reader->n_reads > 0)
		cond_wait(&reader->is_idle, &reader->mu);
	mutex_unlock(&reader->mu);
}

void store_reader_fini(struct store_reader *reader)
{
	reader_wait_idle(reader);
	for (uint32_t i = 0; i < reader->n_free; i++)
		free(reader->buffers[i]);
	free(reader->buffers);
	cond_fini(&reader->is_idle);
	mutex_fini(&reader->mu);
}

static bool fits_into_caller(const struct tier_read *read)
{
	return !read->own.is_whole ||
	       store_record_bytes(read->ask.length) <= ALIGN_UP(read->ask.length, STORE_BLOCK);
}

static void record_read_done(struct io_job *job);

/* tail: for the page that the reader's buffer has no room for, or NULL. */
static void read_submit(struct store *store, struct tier_read *read, void *tail)
{
	const struct store_segment *segment = read->own.tier_priv;
	struct io_job *job = &read->own.job;

	memset(job, 0, sizeof(*job));
	job->kind = IO_READ_FD;
	job->fd = segment->fd;
	job->buf = read->ask.buf;
	job->head = ALIGN_UP(read->ask.length, STORE_BLOCK);
	job->tail = tail;
	job->offset = (uint64_t)store_place_block(read->own.place) * STORE_BLOCK;
	job->length = read->own.is_whole ? store_record_bytes(read->ask.length)
				     : ALIGN_UP(read->ask.length, STORE_BLOCK);
	/* Not a byte goes beyond the pages of the reader. */
	assert(job->length <= job->head + (tail ? STORE_BLOCK : 0));
	job->is_urgent = read->ask.is_urgent;
	job->done = record_read_done;
	job->ctx = store;
	io_submit(store->io, job);
}

/* Ends the read; the caller has done with it. */
static void read_end(struct store *store, struct tier_read *read, int status)
{
	struct store_reader *reader = &store->reader;
	struct store_segment *segment = read->own.tier_priv;

	read->answer.status = status;
	read->answer.got = status == 0 ? read->ask.length : 0;
	if (segment)
		store_segment_put(store, segment);
	read->done(read);
	mutex_lock(&reader->mu);
	assert(reader->n_reads > 0);
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
	    posix_memalign(&buffer, STORE_BLOCK, STORE_BLOCK) != 0)
		return NULL;
	reader->n_buffers++;
	assert(reader->n_buffers <= reader->max_buffers);
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
		list_push_tail(read->ask.is_urgent ? &reader->urgent : &reader->waiting,
			       &read->own.node);
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
	assert(reader->n_free < reader->n_buffers); /* this one was in use */
	if (!node)
		reader->buffers[reader->n_free++] = buffer;
	mutex_unlock(&reader->mu);
	return node ? container_of(node, struct tier_read, own.node) : NULL;
}

static bool is_record_right(const struct tier_read *read)
{
	const struct store_segment *segment = read->own.tier_priv;
	const struct store_seal want = {
		.what = { store_place_block(read->own.place), read->ask.key.piece, read->ask.length,
			  read->ask.key.entry.v, read->ask.expect },
		.segment = segment->header.segment,
		.fsid = segment->header.fsid,
	};

	const uint8_t *end = read->own.job.tail ? (const uint8_t *)read->own.job.tail + STORE_BLOCK
					    : (const uint8_t *)read->ask.buf + read->own.job.length;

	return store_payload_is(read->ask.buf, end - STORE_SEAL_BYTES, &want);
}

static int read_verify(struct tier_read *read)
{
	const struct io_job *job = &read->own.job;

	if (job->status < 0 || job->got != job->length)
		return -EIO;
	if (read->own.is_whole && !is_record_right(read))
		return -EBADMSG;
	return 0;
}

static void store_read_answered(struct store *s)
{
	atomic_store_explicit(&s->n_read_errors, 0, memory_order_relaxed);
}

/* The drive did not answer a read, or it did. Too many in a row that it did not switch off. */
static void store_read_error(struct store *s)
{
	if (atomic_fetch_add(&s->n_read_errors, 1) + 1 < READ_ERRORS_MAX ||
	    atomic_exchange(&s->is_read_off, true))
		return;
	metrics_add(s->metrics, METRIC_STORE_OFF_TIMES, 1);
	log_warn("store: switched off for now: reading it failed %u times in a row",
		 READ_ERRORS_MAX);
}

static void read_succeeded(struct store *store, const struct tier_read *read,
			   const struct store_tag *tag)
{
	struct store_segment *segment = read->own.tier_priv;

	store_read_answered(store);
	if (read->own.is_whole)
		store_segment_verified(store, segment, tag, read->own.place, read->own.round);
	metrics_add(store->metrics, METRIC_STORE_READS, 1);
	metrics_add(store->metrics, METRIC_STORE_READ_BYTES, read->ask.length);
	metrics_observe(store->metrics, METRIC_HIST_STORE_LATENCY, read->answer.latency_ns);
}

static void read_failed(struct store *store, const struct tier_read *read,
			const struct store_tag *tag, int status)
{
	metrics_add(store->metrics, METRIC_STORE_ERRORS, 1);
	store_drop_record(store, tag, read->own.place, read->ask.length);
	if (status == -EBADMSG) /* the drive answers, so it is there */
		return;
	store_read_error(store);
}

static void record_read_done(struct io_job *job)
{
	struct tier_read *read = container_of(job, struct tier_read, own.job);
	struct store *store = job->ctx;
	void *tail = job->tail;
	struct store_tag tag =
		store_tag_of(&store->index, store->p.fsid, &read->ask.expect, read->ask.key.piece);
	int status = read_verify(read);

	assert(read->own.tier_priv);
	store_drop_cache(&store->dir, job->fd, job->offset, job->length);
	read->answer.latency_ns = job->done_ns - job->started_ns;
	if (status == 0)
		read_succeeded(store, read, &tag);
	else
		read_failed(store, read, &tag, status);
	if (tail) {
		struct tier_read *next = pass_buffer(&store->reader, tail);

		if (next)
			read_submit(store, next, tail);
	}
	read_end(store, read, status == 0 ? 0 : -EIO);
}

/* Finds the record and takes a reference of its segment. */
static int read_find(struct store *store, struct tier_read *read)
{
	struct store_tag tag =
		store_tag_of(&store->index, store->p.fsid, &read->ask.expect, read->ask.key.piece);
	uint32_t n_shared = atomic_load(&store->n_shared);
	struct store_found found;

	if (read->ask.key.piece >= piece_count(read->ask.expect.size) ||
	    read->ask.length != piece_length(read->ask.expect.size, read->ask.key.piece))
		return -EINVAL;
	if (atomic_load_explicit(&store->is_read_off, memory_order_relaxed) ||
	    !store_index_find(&store->index, &tag, store->segments, &found))
		return -ENOENT;
	store_segment_want(store, &tag, &found, read->ask.length);
	read->own.tier_priv = found.segment;
	read->own.place = found.place;
	read->own.round = atomic_load(&store->n_shared);
	/* What was verified without the lock, or before it was lost, is not any more. */
	read->own.is_whole = !(found.flags & STORE_VERIFIED) ||
			 store_segment_is_loose(store, found.segment) ||
			 atomic_load(&store->n_shared) != n_shared ||
			 store->p.verify == STORE_VERIFY_ALWAYS || read->ask.length == 0;
	return 0;
}

void store_tier_read(struct tier *tier, struct tier_read *read)
{
	struct store *store = container_of(tier, struct store, reader.tier);
	bool is_queued;
	void *buffer;
	int rc;

	read->answer.has_st = false;
	read->answer.is_changed = false;
	read->answer.latency_ns = 0;
	read->own.tier_priv = NULL;
	mutex_lock(&store->reader.mu);
	store->reader.n_reads++;
	mutex_unlock(&store->reader.mu);
	rc = read_find(store, read);
	if (rc < 0) {
		read_end(store, read, rc);
		return;
	}
	if (fits_into_caller(read)) {
		read_submit(store, read, NULL);
		return;
	}
	buffer = take_buffer(&store->reader, read, &is_queued);
	if (buffer)
		read_submit(store, read, buffer);
	else if (!is_queued)
		read_end(store, read, -ENOMEM);
}

/* Borrowed from the store: only waits. */
void store_tier_free(struct tier *tier)
{
	reader_wait_idle(container_of(tier, struct store_reader, tier));
}

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
