/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units that are held for whoever plans (cache/held.h). It thinks in units, the table in pieces: a
 * cache_fetch counts the pieces of one unit and is answered once, when the last one has ended,
 * whatever goes wrong. Runs on the thread that plans, for the end of a piece on I/O threads, and for
 * copies on writers. It must never wait for I/O.
 */
#include "cache_priv.h"

/* --- what is held, by unit --- */

int holds_init(struct cache *c)
{
	size_t words = dataset_n_units(c->p.dataset) / 64 + 1;

	for (int i = 0; i < 2; i++) {
		c->held[i] = calloc(words, sizeof(*c->held[i]));
		if (!c->held[i])
			return -ENOMEM;
	}
	return 0;
}

void holds_fini(struct cache *c)
{
	free(c->held[0]);
	free(c->held[1]);
}

enum hold hold_of(struct cache *c, struct unit_id unit)
{
	if (bits_get(c->held[1], unit.v))
		return HOLD_HELD;
	return bits_get(c->held[0], unit.v) ? HOLD_FETCHING : HOLD_NONE;
}

static void hold_move_locked(struct cache *c, struct shard *s, struct unit_id unit, enum hold from,
			     enum hold to) REQUIRES(s->mu)
{
	assert(hold_of(c, unit) == from);
	(void)s;
	(void)from;
	for (int i = 0; i < 2; i++)
		if (to >> i & 1)
			bits_set(c->held[i], unit.v);
		else
			bits_clear(c->held[i], unit.v);
}

void hold_lost_locked(struct cache *c, struct shard *s, struct entry_state *es, struct unit_id unit)
{
	hold_move_locked(c, s, unit, HOLD_HELD, HOLD_NONE);
	entry_put_locked(c, s, es);
}

struct piece_span cache_unit_pieces(const struct cache *c, struct unit_id unit, uint64_t size)
{
	struct dataset_extent extent = dataset_unit_extent(c->p.dataset, unit);
	uint64_t from = extent.offset;
	uint64_t most = unit_is_traced(c, unit) ? UNIT_BYTES : UNIT_WHOLE_BYTES;
	uint64_t to = MAX(from, MIN(from + most, size));

	if (dataset_unit_is_record(c->p.dataset, unit))
		return records_parts(c, unit, size);
	return (struct piece_span){ (uint32_t)(from / PIECE_BYTES),
				    (uint32_t)DIV_ROUND_UP(to, (uint64_t)PIECE_BYTES) };
}

/* --- letting go --- */

static bool is_held_here(const struct object *obj)
{
	return obj && obj->is_planned && obj->state == OBJECT_RESIDENT;
}

/* What is_left: it serves whoever reads it, until its room is wanted. */
static void let_go_locked(struct cache *c, struct shard *s, struct entry_state *es,
			  struct unit_id unit, bool is_left, struct list *dead) REQUIRES(s->mu)
{
	/* Of another version of the file nothing is here. */
	struct piece_span span =
		cache_unit_pieces(c, unit, dataset_size(c->p.dataset, es->entry));

	for (uint32_t i = span.first; i < span.end; i++) {
		struct object *obj = object_find_locked(c, s, es->entry, records_key(c, unit, i));

		if (!is_held_here(obj))
			continue;
		if (is_left) {
			object_make_plain_locked(c, s, obj);
			continue;
		}
		object_drop_locked(c, s, obj, dead);
		metrics_add(c->p.metrics, METRIC_EVICTIONS, 1);
	}
}

/* --- fetching --- */

/* All pieces have ended: the unit is held, or nothing of it is. */
static void unit_fetch_end_locked(struct cache *c, struct shard *s, struct entry_state *es,
				  struct cache_fetch *job, struct list *dead) REQUIRES(s->mu)
{
	list_remove(&job->node);
	if (job->status == 0) { /* keeps the reference of FETCHING */
		hold_move_locked(c, s, job->unit, HOLD_FETCHING, HOLD_HELD);
	} else { /* what an adoption found is a reader's, who is not through with it */
		let_go_locked(c, s, es, job->unit, job->is_adopting, dead);
		hold_move_locked(c, s, job->unit, HOLD_FETCHING, HOLD_NONE);
		entry_put_locked(c, s, es);
	}
	news_answer(c->p.news, job->answer_to);
}

static void unit_fetch_release_locked(struct cache *c, struct shard *s, struct entry_state *es,
				      struct cache_fetch *job, struct list *dead) REQUIRES(s->mu)
{
	assert(job->n_left > 0);
	if (--job->n_left == 0)
		unit_fetch_end_locked(c, s, es, job, dead);
}

void unit_fetches_hold_locked(struct shard *s, struct entry_state *es)
{
	(void)s;
	for (struct list *node = es->fetches.next; node != &es->fetches; node = node->next)
		container_of(node, struct cache_fetch, node)->n_left++;
}

void unit_fetches_release_locked(struct cache *c, struct shard *s, struct entry_state *es,
				 struct list *dead)
{
	struct list *node = es->fetches.next, *next;

	for (; node != &es->fetches; node = next) {
		next = node->next; /* the end of one takes only itself out of the list */
		unit_fetch_release_locked(c, s, es, container_of(node, struct cache_fetch, node),
					  dead);
	}
}

void unit_fetch_piece_locked(struct cache *c, struct shard *s, struct object *obj,
			     const struct fetch_result *result, struct list *dead)
{
	struct cache_fetch *job = obj->job;

	obj->job = NULL;
	job->bytes += result->bytes;
	job->latency_ns = MAX(job->latency_ns, result->latency_ns);
	if (job->status == 0)
		job->status = result->status;
	unit_fetch_release_locked(c, s, obj->state_of, job, dead);
}

static void fetch_piece_locked(struct cache *c, struct shard *s, struct entry_state *es,
			       struct cache_fetch *job, const struct file_identity *id,
			       uint32_t piece) REQUIRES(s->mu)
{
	struct object *obj = object_find_locked(c, s, es->entry, records_key(c, job->unit, piece));

	if (obj && obj->state == OBJECT_RESIDENT) {
		object_make_planned_locked(c, s, obj);
		return;
	}
	if (!obj && job->is_adopting) {
		job->status = -EAGAIN;
		return;
	}
	if (!obj) {
		obj = dataset_unit_is_record(c->p.dataset, job->unit)
			      ? records_new_locked(c, s, es, id, job->unit, piece)
			      : object_new_locked(c, s, es, id, piece);
		if (!obj) {
			job->status = -ENOMEM;
			return;
		}
		obj->is_prefetch = true;
		obj->refs++; /* the queue's */
		prefetch_push(c, obj);
	}
	obj->is_planned = true;
	obj->job = job;
	job->n_left++;
}

/* The store may have lost it between two looks of who plans. */
static void tell_if_not_kept(struct cache *c, struct unit_id unit, const struct file_identity *id)
{
	struct piece_span span = cache_unit_pieces(c, unit, id->size);
	struct entry_id entry = dataset_unit_entry(c->p.dataset, unit);

	if (span.first < span.end && !store_keeps_piece(c, entry, id, span.first))
		note_unit(c, NEWS_UNPINNED, unit);
}

static void unit_fetch_begin_locked(struct cache *c, struct shard *s, struct entry_state *es,
				    struct cache_fetch *job, const struct file_identity *id,
				    struct list *dead) REQUIRES(s->mu)
{
	struct piece_span span = cache_unit_pieces(c, job->unit, id->size);

	tracer_drop_locked(c, s, es, job->unit, dead);
	news_fetched_anew(c->p.news, job->unit);
	hold_move_locked(c, s, job->unit, HOLD_NONE, HOLD_FETCHING);
	list_push_tail(&es->fetches, &job->node);
	job->status = 0;
	job->bytes = job->latency_ns = 0;
	job->n_left = 1; /* ours, until all are asked for */
	for (uint32_t i = span.first; i < span.end; i++)
		fetch_piece_locked(c, s, es, job, id, i);
	unit_fetch_release_locked(c, s, es, job, dead);
}

int cache_hold(struct cache *c, struct unit_id unit, struct cache_fetch *job)
{
	struct entry_id entry = dataset_unit_entry(c->p.dataset, unit);
	struct shard *s = shard_of(c, entry);
	bool is_kept = job->is_kept; /* the job may be gone without the lock */
	struct entry_state *es;
	struct file_identity id;
	struct list dead;

	assert(c->p.news);
	list_init(&dead);
	mutex_lock(&s->mu);
	es = entry_get_locked(c, s, entry);
	if (!es) {
		mutex_unlock(&s->mu);
		return -ENOMEM;
	}
	job->unit = unit;
	dataset_identity(c->p.dataset, entry, &id);
	unit_fetch_begin_locked(c, s, es, job, &id, &dead);
	mutex_unlock(&s->mu);
	objects_free(c, &dead);
	entry_touch(c, entry);
	if (is_kept)
		tell_if_not_kept(c, unit, &id);
	prefetch_pump(c);
	return 0;
}

void cache_release(struct cache *c, struct unit_id unit, bool is_left)
{
	struct entry_id entry = dataset_unit_entry(c->p.dataset, unit);
	bool is_awaited = !is_left && tracer_is_awaited(c, unit);
	void *page = is_awaited ? tracer_page(c) : NULL;
	struct page_job *last = is_awaited && !page ? push_page_new(c, unit) : NULL;
	struct shard *s = shard_of(c, entry);
	struct entry_state *es;
	struct list dead;

	list_init(&dead);
	mutex_lock(&s->mu);
	if (hold_of(c, unit) == HOLD_HELD) { /* else it is lost already, and that is on its way */
		es = entry_find_locked(c, s, entry);
		tracer_keep_locked(c, s, es, unit, &page);
		tracer_push_locked(c, s, es, unit, &last);
		let_go_locked(c, s, es, unit, is_left, &dead);
		hold_lost_locked(c, s, es, unit);
	}
	mutex_unlock(&s->mu);
	objects_free(c, &dead);
	if (page)
		arena_release(c->p.arena, page, c->tracer_bytes);
	push_free_part(c, last);
}

/* --- copies that are written --- */

int cache_copy_get(struct cache *c, struct entry_id entry, uint32_t piece,
		   const struct file_identity *version, struct cache_copy *ret)
{
	struct shard *s = shard_of(c, entry);
	struct object *obj;

	mutex_lock(&s->mu);
	obj = object_find_locked(c, s, entry, piece);
	if (obj && (obj->state != OBJECT_RESIDENT || !file_identity_eq(&obj->identity, version)))
		obj = NULL;
	if (obj)
		obj->refs++;
	mutex_unlock(&s->mu);
	if (!obj)
		return -ESTALE;
	*ret = (struct cache_copy){ .object = obj,
				    .data = obj->mem,
				    .start = obj->start,
				    .piece = piece,
				    .length = obj->length,
				    .young_until_ns = obj->young_until_ns };
	return 0;
}

void cache_copy_put(struct cache *c, const struct cache_copy *copy)
{
	object_put(c, copy->object);
}

/* --- the tier that keeps --- */

struct tier *cache_keeper(struct cache *c)
{
	return c->keeper;
}

bool cache_keeps_any(struct cache *c)
{
	struct tier_kept_status status;

	tier_get_kept(c->keeper, &status);
	return status.bytes > 0;
}

bool cache_keeps(struct cache *c, struct unit_id unit)
{
	struct entry_id entry = dataset_unit_entry(c->p.dataset, unit);
	struct file_identity id;
	struct piece_span span;

	dataset_identity(c->p.dataset, entry, &id);
	span = cache_unit_pieces(c, unit, id.size);
	return span.first < span.end && store_keeps(c, entry, &id, &span);
}

bool cache_is_abroad(struct cache *c, struct entry_id entry)
{
	return bits_get(c->abroad, entry.v);
}
