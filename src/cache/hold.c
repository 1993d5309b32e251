/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples that are held for whoever plans (cache/held.h). It thinks in samples, the table in pieces: a
 * cache_fetch counts the pieces of one sample and is answered once, when the last one has ended,
 * whatever goes wrong. Runs on the thread that plans, for the end of a piece on I/O threads, and for
 * copies on writers. It must never wait for I/O.
 */
#include "cache_priv.h"

static void drop_planned_locked(struct cache *c, struct shard *s, struct entry_state *es,
				struct list *dead) REQUIRES(s->mu)
{
	struct list *node = es->objects.next, *next;

	for (; node != &es->objects; node = next) {
		struct object *obj = container_of(node, struct object, in_entry);

		next = node->next;
		if (obj->is_planned && obj->state == OBJECT_RESIDENT) {
			object_drop_locked(c, s, obj, dead);
			metrics_add(c->p.metrics, METRIC_EVICTIONS, 1);
		}
	}
}

/* Nobody wants it held any more: it serves whoever reads it, until its room is wanted. */
static void leave_planned_locked(struct cache *c, struct shard *s, struct entry_state *es)
	REQUIRES(s->mu)
{
	struct list *node = es->objects.next, *next;

	for (; node != &es->objects; node = next) {
		struct object *obj = container_of(node, struct object, in_entry);

		next = node->next;
		if (obj->is_planned && obj->state == OBJECT_RESIDENT)
			object_make_plain_locked(c, s, obj);
	}
}

/* All pieces have ended: the sample is held, or nothing of it is. */
static void sample_fetch_end_locked(struct cache *c, struct shard *s, struct entry_state *es,
				    struct cache_fetch *job, struct list *dead) REQUIRES(s->mu)
{
	assert(es->hold == HOLD_FETCHING && es->job == job);
	es->job = NULL;
	if (job->status == 0) {
		es->hold = HOLD_HELD; /* keeps the reference of FETCHING */
	} else {
		drop_planned_locked(c, s, es, dead);
		es->hold = HOLD_NONE;
		entry_put_locked(c, s, es);
	}
	news_answer(c->p.news, job->answer_to);
}

void sample_fetch_hold_locked(struct shard *s, struct cache_fetch *job)
{
	(void)s;
	job->n_left++;
}

void sample_fetch_release_locked(struct cache *c, struct shard *s, struct entry_state *es,
				 struct cache_fetch *job, struct list *dead)
{
	assert(job->n_left > 0);
	if (--job->n_left)
		return;
	sample_fetch_end_locked(c, s, es, job, dead);
}

void sample_fetch_piece_locked(struct cache *c, struct shard *s, struct object *obj,
			       const struct fetch_result *result, struct list *dead)
{
	struct cache_fetch *job = obj->job;

	obj->job = NULL;
	job->bytes += result->bytes;
	job->latency_ns = MAX(job->latency_ns, result->latency_ns);
	if (job->status == 0)
		job->status = result->status;
	sample_fetch_release_locked(c, s, obj->state_of, job, dead);
}

static void fetch_piece_locked(struct cache *c, struct shard *s, struct entry_state *es,
			       struct cache_fetch *job, const struct file_identity *id,
			       uint32_t piece) REQUIRES(s->mu)
{
	struct object *obj = object_find_locked(c, s, es->entry, piece);

	if (obj && obj->state == OBJECT_RESIDENT) {
		object_make_planned_locked(c, s, obj);
		return;
	}
	if (!obj && job->is_adopting) {
		job->status = -EAGAIN;
		return;
	}
	if (!obj) {
		obj = object_new_locked(c, s, es, id, piece);
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
static void tell_if_not_kept(struct cache *c, struct entry_id entry, const struct file_identity *id)
{
	if (id->size && !store_keeps(c, entry, id, 1))
		note_sample(c, NEWS_UNPINNED, entry, 0);
}

int cache_hold(struct cache *c, struct entry_id entry, struct cache_fetch *job)
{
	struct shard *s = shard_of(c, entry);
	bool is_kept = job->is_kept; /* the job may be gone without the lock */
	struct entry_state *es;
	struct file_identity id;
	struct list dead;

	list_init(&dead);
	mutex_lock(&s->mu);
	es = entry_get_locked(c, s, entry);
	if (!es) {
		mutex_unlock(&s->mu);
		return -ENOMEM;
	}
	assert(es->hold == HOLD_NONE && c->p.news);
	news_fetched_anew(c->p.news, entry.v);
	es->hold = HOLD_FETCHING;
	es->job = job;
	job->status = 0;
	job->n_left = 0;
	job->bytes = job->latency_ns = 0;
	sample_fetch_hold_locked(s, job);
	dataset_identity(c->p.dataset, entry, &id);
	for (uint32_t i = 0; id.size && i < piece_count(id.size); i++)
		fetch_piece_locked(c, s, es, job, &id, i);
	sample_fetch_release_locked(c, s, es, job, &dead);
	mutex_unlock(&s->mu);
	objects_free(c, &dead);
	entry_touch(c, entry);
	if (is_kept)
		tell_if_not_kept(c, entry, &id);
	prefetch_pump(c);
	return 0;
}

void cache_release(struct cache *c, struct entry_id entry, bool is_left)
{
	struct shard *s = shard_of(c, entry);
	struct entry_state *es;
	struct list dead;

	list_init(&dead);
	mutex_lock(&s->mu);
	es = entry_find_locked(c, s, entry);
	if (es && es->hold == HOLD_HELD) { /* else it is lost already, and that is on its way */
		if (is_left)
			leave_planned_locked(c, s, es);
		else
			drop_planned_locked(c, s, es, &dead);
		es->hold = HOLD_NONE;
		entry_put_locked(c, s, es);
	}
	mutex_unlock(&s->mu);
	objects_free(c, &dead);
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

bool cache_keeps(struct cache *c, struct entry_id entry)
{
	struct file_identity id;

	dataset_identity(c->p.dataset, entry, &id);
	return id.size && store_keeps(c, entry, &id, piece_count(id.size));
}

bool cache_is_abroad(struct cache *c, struct entry_id entry)
{
	return bits_get(c->abroad, entry.v);
}
