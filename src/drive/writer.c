/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's writers: put the pieces of samples that the plan wants to keep for good. The arena
 * copies are pinned while they are written, so a DROP or a change of the file meanwhile does no
 * harm. A file that changed during the writing is forgotten again: nobody would ask for the old
 * version, but it would take up room. What was read in the very moment in which the file had been
 * changed is not kept for those who come later: another change may have followed that nobody can
 * see. It is fetched once more when that moment is over.
 *
 * A writer takes its share of the samples that wait and puts their pieces together, because the
 * store writes many small ones in the time of one. Threads of their own, because a write may take
 * as long as it likes and nobody waits for it; a few, because a drive wants several writes at once.
 * They must never hold a lock while writing.
 */
#include "drive_priv.h"

#include <time.h>

#include "clairfs/base/bitmap.h"

#define PINS 16   /* samples at once */
#define PIECES 32 /* put at once, and held in the arena until then */
#define PIECES_BYTES (2u << 20)

struct pin {
	struct pin_job *job;
	struct unit_id unit;
	struct entry_id entry;
	struct piece_span pieces;
	struct file_identity id, kept;
	struct bitmap is_put; /* by piece, from the first one on */
	bool is_begun;
	int rc;
};

struct batch {
	struct drive *d;
	struct tier_piece pieces[PIECES];
	struct cache_copy copies[PIECES];
	struct pin *pins[PIECES];
	uint32_t n, bytes;
};

/* --- pieces --- */

/* They are written together, so all of them take as long. */
static void batch_trace(const struct batch *b, uint64_t begin_ns)
{
	uint64_t end_ns = clock_now(b->d->clock);

	for (uint32_t i = 0; i < b->n; i++)
		metrics_trace(b->d->metrics,
			      &(struct trace_event){ .kind = TRACE_STORE_WRITE,
						     .begin_ns = begin_ns,
						     .end_ns = end_ns,
						     .file = b->pins[i]->entry.v,
						     .piece = b->pieces[i].key.piece,
						     .bytes = b->pieces[i].length,
						     .status = (int16_t)b->pieces[i].status });
}

static void batch_put(struct batch *b)
{
	uint64_t begin_ns = metrics_is_tracing(b->d->metrics) ? clock_now(b->d->clock) : 0;

	if (b->n > 0)
		tier_put(b->d->keeper, b->pieces, b->n);
	if (begin_ns)
		batch_trace(b, begin_ns);
	for (uint32_t i = 0; i < b->n; i++) {
		const struct tier_piece *piece = &b->pieces[i];
		struct pin *pin = b->pins[i];

		assert(pin->pieces.first <= piece->key.piece && piece->key.piece < pin->pieces.end);

		cache_copy_put(b->d->cache, &b->copies[i]);
		if (piece->status == 0)
			bitmap_set(&pin->is_put, piece->key.piece - pin->pieces.first);
		else if (piece->status != -EEXIST && pin->rc == 0)
			pin->rc = piece->status;
	}
	b->n = b->bytes = 0;
}

static bool is_over(int64_t time_ns)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return file_time_ns(now.tv_sec, now.tv_nsec) >= time_ns;
}

/* Whether the piece was read too soon after a change. */
static bool refuse_young(struct drive *d, struct unit_id unit, const struct cache_copy *copy)
{
	if (!copy->young_until_ns)
		return false;
	metrics_add(d->metrics, METRIC_STORE_YOUNG, 1);
	if (is_over(copy->young_until_ns) && tier_takes_more(d->keeper))
		cache_fetch_again(d->cache, unit);
	return true;
}

static void batch_add(struct batch *b, struct pin *pin, uint32_t piece)
{
	struct cache *c = b->d->cache;
	struct cache_copy copy;

	if (b->n == PIECES || b->bytes >= PIECES_BYTES)
		batch_put(b);
	if (pin->rc != 0)
		return;
	pin->rc = cache_copy_get(c, pin->entry, piece, &pin->id, &copy);
	if (pin->rc != 0)
		return;
	if (refuse_young(b->d, pin->unit, &copy)) {
		cache_copy_put(c, &copy);
		pin->rc = -EAGAIN;
		return;
	}
	assert(b->n < PIECES);
	b->pieces[b->n] = (struct tier_piece){
		{ pin->entry, piece }, &pin->kept, copy.data, copy.length, 0,
	};
	b->copies[b->n] = copy;
	b->bytes += copy.length;
	b->pins[b->n++] = pin;
}

/* --- samples --- */

static int pin_begin(struct drive *d, struct pin *pin)
{
	int rc;

	if (!d->keeper)
		return -ENOSPC;
	/* Every piece here came with an answer of the source. */
	if (cache_is_abroad(d->cache, pin->entry))
		return -ESTALE;
	dataset_identity(d->dataset, pin->entry, &pin->id);
	rc = dataset_kept_identity(d->dataset, pin->entry, &pin->id, &pin->kept);
	if (rc != 0)
		return -ESTALE; /* no such path: it cannot have been fetched */
	pin->pieces = cache_unit_pieces(d->cache, pin->unit, pin->id.size);
	rc = bitmap_init(&pin->is_put, MAX(pin->pieces.end - pin->pieces.first, 1u));
	pin->is_begun = rc == 0;
	return rc;
}

static void pin_pieces(struct batch *b, struct pin *pin)
{
	for (uint32_t i = pin->pieces.first; pin->rc == 0 && i < pin->pieces.end; i++) {
		if (atomic_load(&b->d->is_stopping))
			pin->rc = -ECANCELED;
		else
			batch_add(b, pin, i);
	}
}

/* Forgets what pin_pieces() has put, or all that there is of a version that is no more. What was
 * there before is whole, and others may be using it. */
static void unpin(struct drive *d, const struct pin *pin, bool is_old)
{
	const struct piece_span *pieces = &pin->pieces;

	if (is_old)
		tier_forget(d->keeper, &pin->kept, 0, piece_count(pin->kept.size));
	for (uint32_t i = pieces->first; !is_old && i < pieces->end; i++)
		if (bitmap_get(&pin->is_put, i - pieces->first))
			tier_forget(d->keeper, &pin->kept, i, i + 1);
}

static void pin_end(struct drive *d, struct pin *pin)
{
	struct file_identity now;
	bool is_old;

	if (pin->is_begun) {
		dataset_identity(d->dataset, pin->entry, &now);
		is_old = !file_identity_eq(&pin->id, &now);
		if (is_old)
			pin->rc = -ESTALE;
		if (pin->rc != 0) /* half a sample is of no use */
			unpin(d, pin, is_old);
		bitmap_fini(&pin->is_put);
	}
	if (pin->rc == -ENOSPC)
		log_limited(LOG_LEVEL_INFO, "store: full, nothing more is kept");
	else if (pin->rc != 0 && pin->rc != -ESTALE && pin->rc != -ECANCELED && pin->rc != -EAGAIN)
		cache_degrade(d->cache, "the store cannot be written");
	drive_complete(d, &pin->job->completion, PLAN_EV_PINNED, pin->rc);
}

/* Waits for a sample, and takes a writer's share of those that wait with it. */
static uint32_t take_pins(struct drive *d, struct pin *pins)
{
	struct list *node = queue_pop(&d->pin_jobs);
	size_t most = MIN(1 + queue_length(&d->pin_jobs) / WRITERS, (size_t)PINS);
	uint32_t n = 0;

	while (node) {
		struct pin_job *job = container_of(node, struct pin_job, node);

		assert(n < PINS);
		pins[n] = (struct pin){ .job = job, .unit = job->completion.event.unit };
		pins[n].entry = dataset_unit_entry(d->dataset, pins[n].unit);
		n++;
		node = n < most ? queue_try_pop(&d->pin_jobs) : NULL;
	}
	return n;
}

void *writer_main(void *drive)
{
	struct batch batch = { .d = drive };
	struct pin pins[PINS];
	uint32_t n;

	while ((n = take_pins(drive, pins)) > 0) {
		for (uint32_t i = 0; i < n; i++) {
			pins[i].rc = pin_begin(drive, &pins[i]);
			if (pins[i].rc == 0)
				pin_pieces(&batch, &pins[i]);
		}
		batch_put(&batch);
		for (uint32_t i = 0; i < n; i++)
			pin_end(drive, &pins[i]);
	}
	return NULL;
}
