/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of the kernel that are pushed, and dropped (cache/held.h). A push is skipped while a READ of
 * the same piece is in flight (its answer fills the same pages). A file that changed during a push is
 * invalidated afterwards: its version is compared. Both wait for pages locked by READs that have not
 * been answered, so they run on threads that nobody waits for. No lock is held over an operation of
 * the stage.
 */
#include "cache_priv.h"

#include <stdlib.h>
#include <string.h>

enum { GIVEN_BACK_PER_ROUND = 256, WORDS_PER_ROUND = 4096 };

/* A READ that is not listed may be anywhere in the file. */
static bool is_being_read(struct entry_state *es, uint64_t from, uint64_t end)
{
	if (es->readers > es->n_listed)
		return true;
	for (struct list *node = es->reads.next; node != &es->reads; node = node->next) {
		const struct cache_read *r = container_of(node, struct cache_read, in_entry);

		if (r->offset < end && from < r->offset + r->length)
			return true;
	}
	return false;
}

static void set_tracer(struct cache *c, struct cache_push *push)
{
	struct dataset_extent own = dataset_unit_own(c->p.dataset, push->unit);

	push->tracer_at = own.offset;
	if (unit_is_traced(c, push->unit))
		push->tracer_bytes = (uint32_t)MIN(own.length, (uint64_t)c->tracer_bytes);
}

int cache_push_begin(struct cache *c, struct unit_id unit, struct cache_push *ret)
{
	struct entry_id entry = dataset_unit_entry(c->p.dataset, unit);
	struct shard *s = shard_of(c, entry);
	struct entry_state *es = NULL;

	*ret = (struct cache_push){ .unit = unit, .file = { .entry = entry } };
	mutex_lock(&s->mu);
	if (hold_of(c, unit) == HOLD_HELD) {
		struct file_identity id;
		struct piece_span span;

		es = entry_find_locked(c, s, entry);
		es->refs++;
		ret->version = es->version;
		ret->file.renewal = dataset_renewal(c->p.dataset, entry);
		dataset_identity(c->p.dataset, entry, &id);
		span = cache_unit_pieces(c, unit, id.size);
		ret->size = id.size;
		ret->first = span.first;
		ret->end = span.end;
		if (span.first < span.end)
			set_tracer(c, ret);
		/* Who comes from now on comes to this push. Where it has a tracer page, the push before
		 * is used up if a reader came to it: that page is dropped, and says nothing of it. */
		if (bits_clear(c->staged_opened, unit.v) && unit_is_traced(c, unit))
			bits_clear(c->staged, unit.v);
	}
	mutex_unlock(&s->mu);
	ret->state = es;
	return es ? 0 : -ESTALE; /* the change that took it away is on its way to who plans */
}

bool cache_push_whole(struct cache *c, struct cache_push *push)
{
	if (!push->tracer_bytes || !dataset_unit_is_record(c->p.dataset, push->unit))
		return false;
	push->tracer_bytes = 0;
	push->is_whole = true;
	return true;
}

int cache_push_pin(struct cache *c, struct cache_push *push, uint32_t piece, struct cache_copy *ret)
{
	struct entry_state *es = push->state;
	struct shard *s = shard_of(c, es->entry);
	struct object *obj;
	int rc = 0;

	assert(push->first <= piece && piece < push->end);
	mutex_lock(&s->mu);
	obj = object_find_locked(c, s, es->entry, records_key(c, push->unit, piece));
	if (es->version != push->version || hold_of(c, push->unit) != HOLD_HELD || !obj ||
	    obj->state != OBJECT_RESIDENT)
		rc = -ESTALE;
	else if (access_is_narrowed(c, es->entry))
		rc = -ENOENT; /* the kernel would give it to whoever has it open */
	else if (is_being_read(es, obj->start, obj->start + obj->length))
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
					    .start = obj->start,
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
		bits_set(c->pushed, push->unit.v);
	mutex_lock(&s->mu);
	es->pushers--;
	mutex_unlock(&s->mu);
	object_put(c, copy->object);
}

/* True when the file is still the one that was pushed. Sets or clears "staged" so that no change
 * gets between. */
static bool verify(struct cache *c, const struct cache_push *push, bool is_pushed)
{
	const struct entry_state *es = push->state;
	struct shard *s = shard_of(c, es->entry);
	bool is_same;

	mutex_lock(&s->mu);
	is_same = es->version == push->version;
	if (is_pushed && is_same) {
		direct_pushed(c, es->entry);
		if (push->is_whole)
			bits_set(c->untraced, push->unit.v);
		else
			bits_clear(c->untraced, push->unit.v);
		bits_set(c->staged, push->unit.v);
	}
	mutex_unlock(&s->mu);
	return is_same;
}

int cache_push_end(struct cache *c, struct cache_push *push, int rc)
{
	struct entry_id entry = push->file.entry;
	struct shard *s = shard_of(c, entry);

	if (!verify(c, push, rc == 0)) {
		account_unpushed(c, push->unit);
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

/* Pages of one unit, of a file that has others: a job of its own. */
struct part_job {
	struct page_job job;
	struct stage_file file;
	uint64_t offset, length;
	/* Of a page that is pushed, else NULL: referenced, and what is pushed of which version. */
	struct entry_state *state;
	struct unit_id unit;
	uint32_t version;
	uint64_t size;
	char data[];
};

static void queue_part(struct cache *c, const struct dataset_extent *extent)
{
	struct part_job *part = extent->length ? calloc(1, sizeof(*part)) : NULL;

	if (!extent->length)
		return;
	if (!part) {
		cache_degrade(c, "out of memory");
		return;
	}
	part->job.entry = extent->entry;
	part->job.is_part = true;
	part->file = (struct stage_file){ extent->entry,
					  dataset_renewal(c->p.dataset, extent->entry) };
	part->offset = extent->offset;
	part->length = extent->length;
	queue_push(c->p.pages, &part->job.node);
}

void push_drop_part(struct cache *c, struct unit_id unit)
{
	/* Pages that it shares are others' as well. */
	struct dataset_extent extent = dataset_unit_own(c->p.dataset, unit);

	queue_part(c, &extent);
}

void push_drop_tracer(struct cache *c, struct unit_id unit)
{
	struct dataset_extent extent = dataset_unit_own(c->p.dataset, unit);

	extent.length = MIN(extent.length, (uint64_t)c->tracer_bytes);
	if (c->stage)
		queue_part(c, &extent);
}

struct page_job *push_page_new(struct cache *c, struct unit_id unit)
{
	struct part_job *part = c->stage ? calloc(1, sizeof(*part) + c->tracer_bytes) : NULL;

	if (!part)
		return NULL;
	part->job.is_part = true;
	part->job.entry = dataset_unit_entry(c->p.dataset, unit);
	part->unit = unit;
	return &part->job;
}

void push_page_locked(struct cache *c, struct shard *s, struct entry_state *es, const struct object *piece,
		      uint64_t at, struct page_job *take_job)
{
	struct part_job *part = container_of(take_job, struct part_job, job);

	(void)s;
	part->file = (struct stage_file){ es->entry, dataset_renewal(c->p.dataset, es->entry) };
	part->offset = at;
	part->length = MIN(piece->start + piece->length - at, (uint64_t)c->tracer_bytes);
	part->size = piece->identity.size;
	part->version = es->version;
	part->state = es;
	es->refs++;
	memcpy(part->data, (const char *)piece->mem + (at - piece->start), part->length);
	queue_push(c->p.pages, &part->job.node);
}

void push_free_part(struct cache *c, struct page_job *job)
{
	struct part_job *part;
	struct shard *s;

	if (!job)
		return;
	part = container_of(job, struct part_job, job);
	s = shard_of(c, job->entry);
	mutex_lock(&s->mu);
	if (part->state)
		entry_put_locked(c, s, part->state);
	mutex_unlock(&s->mu);
	free(part);
}

/* As cache_push_pin, and only while the page is wanted. */
static bool may_push_page(struct cache *c, const struct part_job *part)
{
	struct entry_state *es = part->state;
	struct shard *s = shard_of(c, es->entry);
	bool may;

	mutex_lock(&s->mu);
	may = es->version == part->version && hold_of(c, part->unit) == HOLD_NONE &&
	      tracer_is_awaited(c, part->unit) && !access_is_narrowed(c, es->entry) &&
	      !is_being_read(es, part->offset, part->offset + part->length);
	if (may) {
		es->pushers++;
		bits_set(c->paged, es->entry.v);
	}
	mutex_unlock(&s->mu);
	return may;
}

static void push_page(struct cache *c, const struct part_job *part)
{
	const struct stage_piece piece = { .file = part->file,
					   .offset = part->offset,
					   .length = (uint32_t)part->length,
					   .data = part->data,
					   .size = part->size };
	struct shard *s = shard_of(c, part->job.entry);
	bool is_same;

	if (!may_push_page(c, part))
		return;
	if (stage_push(c->stage, c->stage_ctx, &piece) == 0) /* else its READ is one of the source */
		metrics_add(c->p.metrics, METRIC_STAGE_PUSHED_BYTES, piece.length);
	mutex_lock(&s->mu);
	part->state->pushers--;
	is_same = part->state->version == part->version;
	mutex_unlock(&s->mu);
	if (!is_same && part->file.renewal == dataset_renewal(c->p.dataset, part->job.entry))
		c->stage->inval(c->stage_ctx, part->file, 0, 0);
}

static void do_part_job(struct cache *c, struct page_job *job)
{
	const struct part_job *part = container_of(job, struct part_job, job);

	if (part->state)
		push_page(c, part);
	else
		c->stage->inval(c->stage_ctx, part->file, part->offset, part->length);
	push_free_part(c, job);
}

/* The job is part of its entry_state and may be queued again from the moment is_inval_queued is
 * false. */
void cache_do_page_job(struct cache *c, struct page_job *job)
{
	struct entry_id entry = job->entry;
	struct stage_file file = { .entry = entry };
	struct shard *s = shard_of(c, entry);
	struct entry_state *es;

	if (job->is_part) {
		do_part_job(c, job);
		return;
	}
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
	uint32_t words = dataset_n_units(c->p.dataset) / 64 + 1;

	for (uint32_t i = at; i < words; i++)
		atomic_store(&c->staged[i], 0);
}

bool cache_give_back(struct cache *c, uint32_t *at)
{
	uint32_t words = dataset_n_units(c->p.dataset) / 64 + 1, left = GIVEN_BACK_PER_ROUND;
	uint32_t end;

	if (*at >= words)
		return false;
	end = *at + MIN(words - *at, (uint32_t)WORDS_PER_ROUND);
	for (; *at < end && left; *at += left != 0) {
		uint32_t i = *at;
		uint64_t bits = atomic_load(&c->staged[i]);

		for (; bits && left; bits &= bits - 1, left--) {
			struct unit_id unit = { i * 64 + (uint32_t)__builtin_ctzll(bits) };

			if (bits_clear(c->staged, unit.v) && !bits_get(c->staged_opened, unit.v))
				change_drop_pages(c, unit);
		}
	}
	return *at < words;
}
