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
#include "cache_priv.h"

#include <time.h>

#include "clairfs/base/bitmap.h"

#define PINS 16   /* samples at once */
#define PIECES 32 /* put at once, and held in the arena until then */
#define PIECES_BYTES (2u << 20)

struct pin {
	struct completion *job;
	struct entry_id entry;
	struct file_identity id, kept;
	struct bitmap is_put; /* by piece */
	bool is_begun;
	int rc;
};

struct batch {
	struct cache *c;
	struct tier_piece pieces[PIECES];
	struct object *objects[PIECES]; /* a reference each */
	struct pin *pins[PIECES];
	uint32_t n, bytes;
};

/* --- pieces --- */

/* They are written together, so all of them take as long. */
static void batch_trace(const struct batch *b, uint64_t begin_ns)
{
	uint64_t end_ns = clock_now(b->c->p.clock);

	for (uint32_t i = 0; i < b->n; i++)
		metrics_trace(b->c->p.metrics,
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
	uint64_t begin_ns = metrics_is_tracing(b->c->p.metrics) ? clock_now(b->c->p.clock) : 0;

	if (b->n > 0)
		tier_put(b->c->keeper, b->pieces, b->n);
	if (begin_ns)
		batch_trace(b, begin_ns);
	for (uint32_t i = 0; i < b->n; i++) {
		const struct tier_piece *piece = &b->pieces[i];
		struct pin *pin = b->pins[i];

		object_put(b->c, b->objects[i]);
		if (piece->status == 0)
			bitmap_set(&pin->is_put, piece->key.piece);
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
static bool refuse_young(struct cache *c, struct entry_id entry, const struct object *obj)
{
	if (!obj->young_until_ns)
		return false;
	metrics_add(c->p.metrics, METRIC_STORE_YOUNG, 1);
	if (is_over(obj->young_until_ns) && tier_takes_more(c->keeper))
		change_fetch_again(c, entry);
	return true;
}

static void batch_add(struct batch *b, struct pin *pin, uint32_t piece)
{
	struct shard *s = shard_of(b->c, pin->entry);
	struct object *obj;

	if (b->n == PIECES || b->bytes >= PIECES_BYTES)
		batch_put(b);
	if (pin->rc != 0)
		return;
	mutex_lock(&s->mu);
	obj = object_find_locked(b->c, s, pin->entry, piece);
	if (obj && (obj->state != OBJECT_RESIDENT || !file_identity_eq(&obj->identity, &pin->id)))
		obj = NULL;
	if (obj)
		obj->refs++;
	mutex_unlock(&s->mu);
	if (!obj) {
		pin->rc = -ESTALE;
		return;
	}
	if (refuse_young(b->c, pin->entry, obj)) {
		object_put(b->c, obj);
		pin->rc = -EAGAIN;
		return;
	}
	b->pieces[b->n] = (struct tier_piece){
		{ pin->entry, piece }, &pin->kept, obj->mem, obj->length, 0,
	};
	b->objects[b->n] = obj;
	b->bytes += obj->length;
	b->pins[b->n++] = pin;
}

/* --- samples --- */

static int pin_begin(struct cache *c, struct pin *pin)
{
	int rc;

	if (!c->keeper)
		return -ENOSPC;
	if (bits_get(c->abroad,
		     pin->entry.v)) /* every piece here came with an answer of the source */
		return -ESTALE;
	dataset_identity(c->p.dataset, pin->entry, &pin->id);
	rc = dataset_kept_identity(c->p.dataset, pin->entry, &pin->id, &pin->kept);
	if (rc != 0)
		return -ESTALE; /* no such path: it cannot have been fetched */
	rc = bitmap_init(&pin->is_put, MAX(piece_count(pin->id.size), 1u));
	pin->is_begun = rc == 0;
	return rc;
}

static void pin_pieces(struct batch *b, struct pin *pin)
{
	uint32_t n = pin->id.size ? piece_count(pin->id.size) : 0;

	for (uint32_t i = 0; pin->rc == 0 && i < n; i++) {
		if (atomic_load(&b->c->is_stopping))
			pin->rc = -ECANCELED;
		else
			batch_add(b, pin, i);
	}
}

/* Forgets what pin_pieces() has put, or all that there is of a version that is no more. What was
 * there before is whole, and others may be using it. */
static void unpin(struct cache *c, const struct pin *pin, bool is_old)
{
	uint32_t n = piece_count(pin->kept.size);

	if (is_old)
		tier_forget(c->keeper, &pin->kept, 0, n);
	for (uint32_t i = 0; !is_old && i < n; i++)
		if (bitmap_get(&pin->is_put, i))
			tier_forget(c->keeper, &pin->kept, i, i + 1);
}

static void pin_end(struct cache *c, struct pin *pin)
{
	struct file_identity now;
	bool is_old;

	if (pin->is_begun) {
		dataset_identity(c->p.dataset, pin->entry, &now);
		is_old = !file_identity_eq(&pin->id, &now);
		if (is_old)
			pin->rc = -ESTALE;
		if (pin->rc != 0) /* half a sample is of no use */
			unpin(c, pin, is_old);
		bitmap_fini(&pin->is_put);
	}
	if (pin->rc == -ENOSPC)
		log_limited(LOG_LEVEL_INFO, "store: full, nothing more is kept");
	else if (pin->rc != 0 && pin->rc != -ESTALE && pin->rc != -ECANCELED && pin->rc != -EAGAIN)
		cache_degrade(c, "the store cannot be written");
	pin->job->event.kind = PLAN_EV_PINNED;
	pin->job->event.status = pin->rc;
	note_completion(c, pin->job);
}

/* Waits for a sample, and takes a writer's share of those that wait with it. */
static uint32_t take_pins(struct cache *c, struct pin *pins)
{
	struct list *node = queue_pop(&c->pin_jobs);
	size_t most = MIN(1 + queue_length(&c->pin_jobs) / WRITERS, (size_t)PINS);
	uint32_t n = 0;

	while (node) {
		struct completion *job = container_of(node, struct completion, node);

		pins[n++] = (struct pin){ .job = job, .entry = { job->event.sample } };
		node = n < most ? queue_try_pop(&c->pin_jobs) : NULL;
	}
	return n;
}

void *writer_main(void *cache)
{
	struct batch batch = { .c = cache };
	struct pin pins[PINS];
	uint32_t n;

	while ((n = take_pins(cache, pins)) > 0) {
		for (uint32_t i = 0; i < n; i++) {
			pins[i].rc = pin_begin(cache, &pins[i]);
			if (pins[i].rc == 0)
				pin_pieces(&batch, &pins[i]);
		}
		batch_put(&batch);
		for (uint32_t i = 0; i < n; i++)
			pin_end(cache, &pins[i]);
	}
	return NULL;
}
