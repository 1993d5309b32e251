/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of the kernel that are pushed, and dropped (cache/held.h). A push is skipped while a READ of
 * the same piece is in flight (its answer fills the same pages). A file that changed during a push is
 * invalidated afterwards: its version is compared. Both wait for pages locked by READs that have not
 * been answered, so they run on threads that nobody waits for. No lock is held over an operation of
 * the stage.
 */
#include "cache_priv.h"

enum { GIVEN_BACK_PER_ROUND = 256, WORDS_PER_ROUND = 4096 };

/* A READ that is not listed may be anywhere in the file. */
static bool is_being_read(struct entry_state *es, const struct object *obj)
{
	if (es->readers > es->n_listed)
		return true;
	for (struct list *node = es->reads.next; node != &es->reads; node = node->next) {
		const struct cache_read *r = container_of(node, struct cache_read, in_entry);

		if (r->offset < obj->start + obj->length && obj->start < r->offset + r->length)
			return true;
	}
	return false;
}

int cache_push_begin(struct cache *c, struct entry_id entry, struct cache_push *ret)
{
	struct shard *s = shard_of(c, entry);
	struct file_identity id = { 0 };
	struct entry_state *es;

	*ret = (struct cache_push){ .file = { .entry = entry } };
	mutex_lock(&s->mu);
	es = entry_find_locked(c, s, entry);
	if (es && es->hold != HOLD_HELD)
		es = NULL;
	if (es) {
		es->refs++;
		ret->version = es->version;
		ret->file.renewal = dataset_renewal(c->p.dataset, entry);
		dataset_identity(c->p.dataset, entry, &id);
	}
	mutex_unlock(&s->mu);
	ret->state = es;
	ret->size = id.size;
	return es ? 0 : -ESTALE; /* the change that took it away is on its way to who plans */
}

int cache_push_pin(struct cache *c, struct cache_push *push, uint32_t piece, struct cache_copy *ret)
{
	struct entry_state *es = push->state;
	struct shard *s = shard_of(c, es->entry);
	struct object *obj;
	int rc = 0;

	mutex_lock(&s->mu);
	obj = object_find_locked(c, s, es->entry, piece);
	if (es->version != push->version || es->hold != HOLD_HELD || !obj ||
	    obj->state != OBJECT_RESIDENT)
		rc = -ESTALE;
	else if (access_is_narrowed(c, es->entry))
		rc = -ENOENT; /* the kernel would give it to whoever has it open */
	else if (is_being_read(es, obj))
		rc = -EAGAIN;
	if (rc == 0) {
		obj->refs++;
		es->pushers++;
		bits_set(c->paged, es->entry.v);
	}
	mutex_unlock(&s->mu);
	if (rc == 0)
		*ret = (struct cache_copy){ .object = obj,
					    .data = obj->mem,
					    .piece = piece,
					    .length = obj->length };
	return rc;
}

void cache_push_unpin(struct cache *c, struct cache_push *push, const struct cache_copy *copy,
		      bool is_pushed)
{
	struct entry_state *es = push->state;
	struct shard *s = shard_of(c, es->entry);

	if (is_pushed && copy->object->identity.size > PIECE_BYTES)
		bits_set(c->pushed, es->entry.v);
	mutex_lock(&s->mu);
	es->pushers--;
	mutex_unlock(&s->mu);
	object_put(c, copy->object);
}

/* True when the file is still the one that was pushed. Sets or clears "staged" so that no change
 * gets between. */
static bool verify(struct cache *c, struct entry_state *es, uint32_t version, bool is_pushed)
{
	struct shard *s = shard_of(c, es->entry);
	bool is_same;

	mutex_lock(&s->mu);
	is_same = es->version == version;
	if (is_pushed && is_same) {
		bits_clear(c->staged_opened, es->entry.v);
		direct_pushed(c, es->entry);
		bits_set(c->staged, es->entry.v);
	}
	mutex_unlock(&s->mu);
	return is_same;
}

int cache_push_end(struct cache *c, struct cache_push *push, int rc)
{
	struct entry_id entry = push->file.entry;
	struct shard *s = shard_of(c, entry);

	if (!verify(c, push->state, push->version, rc == 0)) {
		account_unpushed(c, entry);
		/* Else it is in the inode of that version. */
		if (push->file.renewal == dataset_renewal(c->p.dataset, entry))
			c->stage->inval(c->stage_ctx, push->file, 0, 0);
		rc = -ESTALE;
	}
	mutex_lock(&s->mu);
	entry_put_locked(c, s, push->state);
	mutex_unlock(&s->mu);
	return rc;
}

/* The job is part of its entry_state and may be queued again from the moment is_inval_queued is
 * false. */
void cache_do_page_job(struct cache *c, struct page_job *job)
{
	struct entry_id entry = job->entry;
	struct stage_file file = { .entry = entry };
	struct shard *s = shard_of(c, entry);
	struct entry_state *es;

	mutex_lock(&s->mu);
	es = entry_find_locked(c, s, entry);
	es->is_inval_queued = false;
	file.renewal = es->inval_renewal;
	mutex_unlock(&s->mu);
	c->stage->inval(c->stage_ctx, file, 0, 0);
	if (access_is_narrowed(c, entry) && file.renewal > 0) { /* of those who may not any more */
		file.renewal--;
		c->stage->inval(c->stage_ctx, file, 0, 0);
	}
	mutex_lock(&s->mu);
	entry_put_locked(c, s, es);
	mutex_unlock(&s->mu);
}

/* --- pages that nobody wants any more --- */

void cache_forget_pushed(struct cache *c, uint32_t at)
{
	uint32_t words = dataset_n_samples(c->p.dataset) / 64 + 1;

	for (uint32_t i = at; i < words; i++)
		atomic_store(&c->staged[i], 0);
}

bool cache_give_back(struct cache *c, uint32_t *at)
{
	uint32_t words = dataset_n_samples(c->p.dataset) / 64 + 1, left = GIVEN_BACK_PER_ROUND;
	uint32_t end;

	if (*at >= words)
		return false;
	end = *at + MIN(words - *at, (uint32_t)WORDS_PER_ROUND);
	for (; *at < end && left; *at += left != 0) {
		uint32_t i = *at;
		uint64_t bits = atomic_load(&c->staged[i]);

		for (; bits && left; bits &= bits - 1, left--) {
			uint32_t sample = i * 64 + (uint32_t)__builtin_ctzll(bits);

			if (bits_clear(c->staged, sample) && !bits_get(c->staged_opened, sample))
				change_drop_pages(c, (struct entry_id){ sample });
		}
	}
	return *at < words;
}
