/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of files of several pieces that are no piece: what READs that nothing foresaw ask for, and
 * the beginning of what is fetched ahead of a stream. A range is an object in the list of its file
 * and not in the table. What a READ asks for by itself goes with it (the kernel has the pages then);
 * what was fetched ahead stays until it was read, or until its memory is wanted.
 *
 * A file of more than PIECES_BYTES_MAX has nothing else: no piece of it is ever asked for, so the
 * numbers of its pieces, which wrap around, are never looked at.
 *
 * ahead.c decides what is fetched; here are the bytes in memory that it must know of, and its lock.
 * Files of one piece never come here.
 *
 * Any thread; never blocks.
 */
#include "cache_priv.h"

#include <string.h>

int ranges_init(struct cache *c)
{
	mutex_init(&c->ahead_mu);
	c->ahead = calloc(1, sizeof(*c->ahead)); /* pages that nobody writes to take no memory */
	return c->ahead ? 0 : -ENOMEM;
}

void ranges_fini(struct cache *c)
{
	free(c->ahead);
	mutex_fini(&c->ahead_mu);
}

uint64_t ranges_table_bytes(struct cache *c)
{
	uint64_t n;

	mutex_lock(&c->ahead_mu);
	n = MIN(c->ahead->tick, (uint64_t)AHEAD_SETS * AHEAD_WAYS);
	mutex_unlock(&c->ahead_mu);
	return n * sizeof(struct ahead_file);
}

/* Memory for what is not held: it is left some where all is, as prefetches of
 * readers that nobody foresaw must not fail one and all. */
static uint64_t room_of(struct cache *c)
{
	uint64_t all = atomic_load(&c->arena_bytes), plain = atomic_load(&c->plain_bytes);
	uint64_t used = arena_used(c->p.arena), others = used - MIN(plain, used);

	return MAX(all - MIN(others, all), cache_spare_bytes(all) / 4);
}

void ranges_advise(struct cache *c, const struct cache_read *r, const struct file_identity *id,
		   uint64_t end, struct ahead_advice *ret)
{
	struct ahead_read read = {
		.file = r->entry.v,
		.reader = r->reader,
		.length = (uint32_t)(end - r->offset),
		.offset = r->offset,
		.size = id->size,
		.now_ns = r->arrived_ns,
		.room = room_of(c),
		.unused = atomic_load(&c->ahead_bytes),
		.is_sample = atomic_load(&c->is_ordered) && dataset_is_sample(c->p.dataset, r->entry) &&
			     !dataset_is_in_records(c->p.dataset, r->entry),
	};

	mutex_lock(&c->ahead_mu);
	ahead_read(c->ahead, &read, ret);
	mutex_unlock(&c->ahead_mu);
}

static uint64_t end_of(const struct object *obj)
{
	return obj->start + obj->length;
}

static bool has_byte(const struct object *obj, uint64_t at)
{
	return obj->start <= at && at < end_of(obj);
}

/* The piece with that byte; NULL also where pieces have no number. */
static struct object *piece_find_locked(struct cache *c, struct shard *s, struct entry_state *es,
					uint64_t at) REQUIRES(s->mu)
{
	struct object *obj = at < PIECES_BYTES_MAX
				     ? object_find_locked(c, s, es->entry, at / PIECE_BYTES)
				     : NULL;

	return obj && has_byte(obj, at) ? obj : NULL;
}

/* Whether it is looked for: not what goes with its READ, nor by what is fetched ahead what is hot. */
static bool is_looked_for(const struct object *range, bool is_ahead)
{
	return !range->is_once && !(is_ahead && range->is_hot);
}

static struct object *find_locked(struct cache *c, struct shard *s, struct entry_state *es,
				  uint64_t at, bool is_ahead) REQUIRES(s->mu)
{
	struct object *obj = piece_find_locked(c, s, es, at);
	struct list *node = es->objects.next;

	if (!obj)
		obj = records_find_locked(c, s, es, at);
	for (uint32_t i = 0; !obj && i < es->n_ranges; i++, node = node->next) {
		struct object *range = container_of(node, struct object, in_entry);

		if (has_byte(range, at) && is_looked_for(range, is_ahead))
			obj = range;
	}
	return obj;
}

struct object *ranges_find_locked(struct cache *c, struct shard *s, struct entry_state *es,
				  uint64_t at)
{
	return find_locked(c, s, es, at, false);
}

static uint64_t gap_locked(struct cache *c, struct shard *s, struct entry_state *es, uint64_t at,
			   uint64_t end, bool is_ahead) REQUIRES(s->mu)
{
	struct list *node = es->objects.next;
	uint64_t next = (at / PIECE_BYTES + 1) * PIECE_BYTES; /* a READ ends in the next piece */

	if (next < end && piece_find_locked(c, s, es, next))
		end = next;
	end = records_gap_locked(c, s, es, at, end);
	for (uint32_t i = 0; i < es->n_ranges; i++, node = node->next) {
		const struct object *range = container_of(node, struct object, in_entry);

		if (range->start > at && range->start < end && is_looked_for(range, is_ahead))
			end = range->start;
	}
	return end;
}

uint64_t ranges_gap_locked(struct cache *c, struct shard *s, struct entry_state *es, uint64_t at,
			   uint64_t end)
{
	return gap_locked(c, s, es, at, end, false);
}

struct object *range_new_locked(struct cache *c, struct shard *s, struct entry_state *es,
				const struct file_identity *id, uint64_t from, uint64_t to)
{
	struct object *obj = object_alloc(id->size);

	if (!obj)
		return NULL;
	assert(from < to && to <= id->size && to - from <= PIECE_BYTES);
	list_init(&obj->in_lru);
	list_init(&obj->in_queue);
	list_init(&obj->waiters);
	obj->state_of = es;
	es->refs++;
	es->n_ranges++;
	list_push_head(&es->objects, &obj->in_entry);
	obj->identity = *id;
	access_rights(c, es->entry, &obj->rights);
	obj->piece = (uint32_t)(from / PIECE_BYTES);
	obj->start = from;
	obj->length = (uint32_t)(to - from);
	obj->is_range = true;
	obj->refs = 1;
	object_move_locked(obj, OBJECT_QUEUED);
	atomic_fetch_add(&c->n_objects, 1);
	(void)s;
	return obj;
}

void range_once_locked(struct shard *s, struct object *obj)
{
	(void)s;
	obj->is_once = true;
	obj->state_of->n_once++;
}

void range_left_locked(struct cache *c, struct shard *s, struct object *obj)
{
	(void)s;
	obj->state_of->n_ranges--;
	if (obj->is_once)
		obj->state_of->n_once--;
	if (obj->is_hot)
		obj->state_of->n_hot--;
	if (obj->is_tracer)
		obj->state_of->n_tracers--;
	if (obj->is_tracer)
		atomic_fetch_sub(&c->n_tracers, 1);
}

static bool has_room(const struct entry_state *es)
{
	return es->n_ranges - es->n_once - es->n_tracers - es->n_hot < RANGES_MAX;
}

/* The oldest one that nobody came for: what was too much stays until memory is short, and must not
 * be in the way of what comes. */
static void range_make_room_locked(struct cache *c, struct shard *s, struct entry_state *es,
				   struct list *dead) REQUIRES(s->mu)
{
	struct list *node = es->objects.next;
	struct object *oldest = NULL;

	for (uint32_t i = 0; !has_room(es) && i < es->n_ranges; i++, node = node->next) {
		struct object *range = container_of(node, struct object, in_entry);

		if (range->state == OBJECT_RESIDENT && range->refs == 1 && !range->is_tracer &&
		    !range->is_hot)
			oldest = range;
	}
	if (oldest)
		object_drop_locked(c, s, oldest, dead);
}

/* What begins at `at`: a piece if all of it is wanted, or the store has it. */
static struct object *ahead_new_locked(struct cache *c, struct shard *s, struct entry_state *es,
				       const struct file_identity *id, uint64_t at, uint64_t to,
				       struct list *dead) REQUIRES(s->mu)
{
	uint64_t start = at - at % PIECE_BYTES, end = MIN(start + PIECE_BYTES, id->size);
	uint32_t piece = (uint32_t)(at / PIECE_BYTES);

	if (id->size <= PIECES_BYTES_MAX &&
	    ((at == start && to >= end) || store_keeps_piece(c, es->entry, id, piece)))
		return object_new_locked(c, s, es, id, piece);
	range_make_room_locked(c, s, es, dead);
	return has_room(es) ? range_new_locked(c, s, es, id, at, MIN(to, end)) : NULL;
}

static void ranges_lost(struct cache *c, struct entry_id entry, uint64_t at)
{
	mutex_lock(&c->ahead_mu);
	ahead_lost(c->ahead, entry.v, at);
	mutex_unlock(&c->ahead_mu);
}

bool ranges_ahead_locked(struct cache *c, struct shard *s, struct entry_state *es,
			 const struct file_identity *id, const struct ahead_advice *advice,
			 struct list *dead)
{
	uint64_t at = advice->from;
	bool has_pushed = false;

	while (at < advice->to) {
		struct object *obj = find_locked(c, s, es, at, true);

		if (!obj) {
			obj = ahead_new_locked(c, s, es, id, at,
					       gap_locked(c, s, es, at, advice->to, true), dead);
			if (!obj) {
				ranges_lost(c, es->entry, at);
				break;
			}
			obj->is_prefetch = true;
			obj->is_ahead = true;
			atomic_fetch_add(&c->ahead_bytes, obj->length);
			range_spent(c, obj);
			obj->refs++; /* the queue's */
			prefetch_push(c, obj);
			has_pushed = true;
		}
		at = end_of(obj);
	}
	return has_pushed;
}

void range_met(struct cache *c, struct object *obj)
{
	if (obj->is_ahead)
		atomic_fetch_sub(&c->ahead_bytes, obj->length);
	obj->is_ahead = false;
}

/* True when readers have had all of it with this; then it begins anew, for the next ones. */
static bool range_cover(struct object *obj, const struct iovec *got)
{
	size_t first = (size_t)((char *)got->iov_base - (char *)obj->mem), n = 0;

	for (size_t i = first / CACHE_PAGE; i <= (first + got->iov_len - 1) / CACHE_PAGE; i++)
		obj->used[i / 64] |= 1ull << i % 64;
	for (size_t i = 0; i < OBJECT_USED_WORDS; i++)
		n += (size_t)__builtin_popcountll(obj->used[i]);
	if (n * CACHE_PAGE < obj->length)
		return false;
	memset(obj->used, 0, OBJECT_USED_WORDS * sizeof(obj->used[0]));
	return true;
}

void range_used_locked(struct cache *c, struct shard *s, struct object *obj, const struct iovec *got,
		       struct list *dead)
{
	bool is_there = obj->state == OBJECT_RESIDENT &&
			(!list_is_empty(&obj->in_lru) || obj->is_tracer);

	if (!range_cover(obj, got) || !is_there || obj->is_hot)
		return;
	if (obj->is_range || obj->is_tracer) {
		object_drop_locked(c, s, obj, dead);
	} else { /* what is older was not read yet, or is kept for the next time */
		list_remove(&obj->in_lru);
		list_push_head(&s->lru, &obj->in_lru);
	}
}

void range_spent(struct cache *c, struct object *obj)
{
	mutex_lock(&c->ahead_mu);
	obj->is_charged_whole = ahead_spend(c->ahead, obj->state_of->entry.v, obj->length);
	mutex_unlock(&c->ahead_mu);
	obj->is_charged = true;
}

void range_unspent(struct cache *c, struct object *obj)
{
	mutex_lock(&c->ahead_mu);
	ahead_refund(c->ahead, obj->state_of->entry.v, obj->length, obj->is_charged_whole);
	mutex_unlock(&c->ahead_mu);
	obj->is_charged = false;
}

/* What the source did not give is not paid for: else an hour of errors, or of an arena that is
 * full of what is held, would leave nothing for any stream. */
void range_fetched(struct cache *c, struct object *obj, int status)
{
	bool is_sent = status == 0 && obj->read_class == READ_MISS;

	if (obj->is_owed && is_sent)
		range_spent(c, obj);
	else if (obj->is_charged && !is_sent)
		range_unspent(c, obj);
	if (status != 0 && !obj->is_demand)
		ranges_lost(c, obj->state_of->entry, obj->start);
	obj->is_charged = obj->is_owed = false;
}

void range_answered(struct cache *c, const struct tier_read *read)
{
	uint64_t now = clock_now(c->p.clock);

	mutex_lock(&c->ahead_mu);
	ahead_answered(c->ahead, now, read->answer.got, read->answer.latency_ns);
	mutex_unlock(&c->ahead_mu);
}
