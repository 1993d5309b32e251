/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's writers: put the pieces of a sample that the plan wants to keep for good. The
 * arena copy is pinned while it is written, so a DROP or a change of the file meanwhile does no
 * harm. A file that changed during the writing is forgotten again: nobody would ask for the old
 * version, but it would take up room. What was read in the very moment in which the file had been
 * changed is not kept for those who come later: another change may have followed that nobody can
 * see. It is fetched once more when that moment is over. Threads of their own, because a write may
 * take as long as it likes and nobody waits for it; a few, because a drive wants several writes at
 * once. They must never hold a lock while writing.
 */
#include "cache_priv.h"

#include <time.h>

#include "clairfs/base/bitmap.h"

static bool is_over(int64_t time_ns)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return file_time_ns(now.tv_sec, now.tv_nsec) >= time_ns;
}

static int put_young(struct cache *c, struct entry_id entry, int64_t young_until_ns)
{
	metrics_add(c->p.metrics, METRIC_STORE_YOUNG, 1);
	if (is_over(young_until_ns) && store_takes_more(c->p.store))
		change_fetch_again(c, entry);
	return -EAGAIN;
}

static int put_piece(struct cache *c, struct entry_id entry, uint32_t piece,
		     const struct file_identity *id, const struct file_identity *kept)
{
	struct shard *s = shard_of(c, entry);
	struct piece_key key = { entry, piece };
	struct object *obj;
	int rc;

	mutex_lock(&s->mu);
	obj = object_find_locked(c, s, entry, piece);
	if (obj && (obj->state != OBJECT_RESIDENT || !file_identity_eq(&obj->identity, id)))
		obj = NULL;
	if (obj)
		obj->refs++;
	mutex_unlock(&s->mu);
	if (!obj)
		return -ESTALE;
	if (obj->young_until_ns)
		rc = put_young(c, entry, obj->young_until_ns);
	else
		rc = store_put(c->p.store, key, kept, obj->mem, obj->length);
	object_put(c, obj);
	return rc;
}

/* Forgets what pin_pieces() has put, or all that there is of a version that is no more. What was
 * there before is whole, and others may be using it. */
static void unpin(struct cache *c, const struct file_identity *kept, const struct bitmap *is_put,
		  bool is_old)
{
	uint32_t n = piece_count(kept->size);

	for (uint32_t i = 0; i < n; i++)
		if (is_old || bitmap_get(is_put, i))
			store_forget_piece(c->p.store, kept, i);
}

static int pin_pieces(struct cache *c, struct entry_id entry, const struct file_identity *id,
		      const struct file_identity *kept, struct bitmap *is_put)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && id->size && i < piece_count(id->size); i++) {
		rc = atomic_load(&c->is_stopping) ? -ECANCELED : put_piece(c, entry, i, id, kept);
		if (rc == 0)
			bitmap_set(is_put, i);
		else if (rc == -EEXIST)
			rc = 0;
	}
	return rc;
}

static int pin_version(struct cache *c, struct entry_id entry, const struct file_identity *id)
{
	struct file_identity kept, now;
	struct bitmap is_put;
	bool is_old;
	int rc = dataset_kept_identity(c->p.dataset, entry, id, &kept);

	if (rc != 0)
		return -ESTALE; /* no such path: it cannot have been fetched */
	rc = bitmap_init(&is_put, MAX(piece_count(id->size), 1u));
	if (rc != 0)
		return rc;
	rc = pin_pieces(c, entry, id, &kept, &is_put);
	dataset_identity(c->p.dataset, entry, &now);
	is_old = !file_identity_eq(id, &now);
	if (is_old)
		rc = -ESTALE;
	if (rc != 0) /* half a sample is of no use */
		unpin(c, &kept, &is_put, is_old);
	bitmap_fini(&is_put);
	return rc;
}

static int pin_sample(struct cache *c, struct entry_id entry)
{
	struct file_identity id;
	int rc;

	if (!c->p.store)
		return -ENOSPC;
	if (bits_get(c->abroad, entry.v)) /* every piece here came with an answer of the source */
		return -ESTALE;
	dataset_identity(c->p.dataset, entry, &id);
	rc = pin_version(c, entry, &id);
	if (rc == -ENOSPC)
		log_limited(LOG_LEVEL_INFO, "store: full, nothing more is kept");
	else if (rc != 0 && rc != -ESTALE && rc != -ECANCELED && rc != -EAGAIN)
		cache_degrade(c, "the store cannot be written");
	return rc;
}

void *writer_main(void *cache)
{
	struct cache *c = cache;
	struct list *node;

	while ((node = queue_pop(&c->pin_jobs))) {
		struct completion *job = container_of(node, struct completion, node);

		job->event.kind = PLAN_EV_PINNED;
		job->event.status = job->generation == atomic_load(&c->generation)
					    ? pin_sample(c, (struct entry_id){ job->event.sample })
					    : -ECANCELED; /* of a plan that is gone */
		note_completion(c, job);
	}
	return NULL;
}
