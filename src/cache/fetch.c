/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetching one piece, or a range: memory, a walk along the tiers (tier/chain.h), waking whoever
 * waits. Single flight: the object is in the table while it is fetched, so later readers join it. A
 * failed prefetch wakes its readers, who then fetch for themselves: advice must not become an error.
 *
 * Runs on whoever asks (never blocks there) and on I/O threads. It must never allocate, submit or
 * wake with a lock held.
 */
#include "cache_priv.h"

#include <string.h>

#include "clairfs/base/cleanup.h"

enum { EVICT_TRIES = 64 }; /* for a reader; a prefetch has time */

void fetch_claim_locked(struct shard *s, struct object *obj)
{
	object_move_locked(obj, OBJECT_FETCHING);
	obj->refs++;
	s->busy++;
}

/* Memory for a piece: the arena, if need be after dropping what nobody holds, else (only
 * when somebody waits) the heap for as long as this fetch's readers need it. */
static int fetch_memory(struct cache *c, struct object *obj)
{
	for (int i = 0; !obj->is_demand || i < EVICT_TRIES; i++) {
		obj->mem = arena_alloc(c->p.arena, obj->length);
		if (obj->mem)
			return 0;
		if (!evict_one(c))
			break;
	}
	if (!obj->is_demand)
		return -ENOMEM;
	obj->is_heap = true;
	metrics_add(c->p.metrics, METRIC_BYPASS_ARENA_FULL, 1);
	obj->mem = aligned_alloc(4096, ALIGN_UP(obj->length, 4096u));
	return obj->mem ? 0 : -ENOMEM;
}

/* The file is another one: whoever waited has to ask again. */
static struct fetch_result stale_result(struct fetch_result result)
{
	result.status = -ESTALE;
	result.is_stale = true;
	return result;
}

/* Under the lock: the object's next state, and what each reader that waited is told. Moves the
 * readers to `woken`. */
static void fetch_settle_locked(struct cache *c, struct shard *s, struct object *obj,
				struct fetch_result result, struct list *woken, struct list *dead)
	REQUIRES(s->mu);
static void fetch_settle_locked(struct cache *c, struct shard *s, struct object *obj,
				struct fetch_result result, struct list *woken, struct list *dead)
{
	bool is_known = !list_is_empty(&obj->in_entry);

	list_splice_tail(woken, &obj->waiters);
	if (!is_known) /* the source was asked about a version that is no more */
		bits_clear(c->confirmed, obj->state_of->entry.v);
	if (obj->is_charged || obj->is_owed)
		range_fetched(c, obj, result.is_stale ? 0 : result.status);
	if (result.status == 0 && !is_known)
		result = stale_result(result); /* these bytes are of the old version */
	for (struct list *node = woken->next; node != woken; node = node->next) {
		struct cache_part *part = container_of(node, struct cache_part, node);

		if (result.status == 0) {
			obj->refs++;
			part->object = obj;
			if (part->part_class != READ_LATE)
				part->part_class = obj->read_class;
			read_traits_add(&part->read->traits, &obj->traits);
		} else if (result.is_stale || !obj->is_demand) {
			part->is_restart = true;
		} else {
			part->status = result.status;
		}
	}
	if (result.status == 0) {
		if (!obj->is_demand)
			obj->ready_ns = clock_now(c->p.clock);
		object_move_locked(obj, OBJECT_RESIDENT);
		entry_touch(c, obj->state_of->entry); /* before a change that untouches it, or after */
		if (obj->is_heap || obj->is_once)
			object_drop_locked(c, s, obj, dead);
		else if (obj->is_hot)
			hot_keep_locked(c, s, obj, dead);
		else if (!obj->is_planned)
			object_make_plain_locked(c, s, obj);
		if (!obj->is_heap)
			hot_replace_locked(c, s, obj, dead);
	} else {
		if (is_known)
			object_drop_locked(c, s, obj, dead);
		object_move_locked(obj, OBJECT_GONE);
	}
	if (result.status == 0 && obj->is_heap)
		result.status = -EAGAIN; /* what is held would go with its readers: it has to be asked
					    for again */
	if (obj->job)
		unit_fetch_piece_locked(c, s, obj, &result, dead);
}

/* The last thing a fetch does: from here on cache_stop may go on without it. */
static void fetch_leave(struct cache *c, struct shard *s, struct object *obj)
{
	struct list dead;

	list_init(&dead);
	mutex_lock(&s->mu);
	object_put_locked(c, s, obj, &dead);
	busy_leave_locked(c, s, &dead);
}

static void fetch_end(struct cache *c, struct object *obj, struct fetch_result result)
{
	struct shard *s = shard_of(c, obj->state_of->entry);
	bool has_slot = obj->has_slot;
	struct list woken, dead;
	struct list *node;

	list_init(&woken);
	list_init(&dead);
	mutex_lock(&s->mu);
	fetch_settle_locked(c, s, obj, result, &woken, &dead);
	mutex_unlock(&s->mu);
	objects_free(c, &dead);
	while ((node = list_pop_head(&woken)))
		read_settle(c, container_of(node, struct cache_part, node)->read);
	if (has_slot)
		prefetch_ended(c);
	fetch_leave(c, s, obj);
}

/* A file on another filesystem than the source directory is none for a persistent store. */
static void fetch_place(struct cache *c, struct entry_id entry, const struct tier_answer *answer)
{
	if (!c->is_store_lasting || !answer->has_st)
		return;
	if (answer->st.st_dev == c->home_dev)
		bits_clear(c->abroad, entry.v);
	else if (bits_set(c->abroad, entry.v))
		note_units(c, NEWS_UNPINNED, entry);
}

/* Whether the tier that keeps has pieces [first, end) of this version, and may be asked. */
static bool keeper_has(struct cache *c, struct entry_id entry, const struct file_identity *id,
		       uint32_t first, uint32_t end)
{
	struct file_identity kept;

	if (!c->keeper || bits_get(c->abroad, entry.v) ||
	    dataset_kept_identity(c->p.dataset, entry, id, &kept) != 0)
		return false;
	for (uint32_t i = first; i < end; i++)
		if (!tier_has(c->keeper, (struct piece_key){ entry, i }, &kept))
			return false;
	return true;
}

bool store_keeps(struct cache *c, struct entry_id entry, const struct file_identity *id,
		 const struct piece_span *span)
{
	return keeper_has(c, entry, id, span->first, span->end);
}

bool store_keeps_piece(struct cache *c, struct entry_id entry, const struct file_identity *id,
		       uint32_t piece)
{
	return keeper_has(c, entry, id, piece, piece + 1);
}

/* What the walk has to know of the piece. Copies are of no use to what measures, and of ranges and parts of
 * records there are none. Of a file in records a mark is of one of these, and no piece is. */
static void fetch_look(struct fetch *f)
{
	struct cache *c = f->cache;
	const struct object *obj = f->object;
	struct entry_id entry = obj->state_of->entry;
	bool is_part = obj->is_range || obj->is_record;
	bool has_own = is_part || dataset_is_in_records(c->p.dataset, entry);
	uint8_t mark = has_own ? obj->mark : probed_mark(c, unit_of_object(c, obj));

	f->request.mark = mark;
	f->walk.want.is_cold = mark != 0;
	f->walk.may_copy = !mark && !is_part && !bits_get(c->abroad, entry.v);
}

static enum metric inflight_metric(const struct fetch *f)
{
	return f->object->is_demand ? METRIC_DEMAND_INFLIGHT : METRIC_PREFETCH_INFLIGHT;
}

/* Sends what the walk asks for next. */
static void fetch_send(struct fetch *f)
{
	struct cache *c = f->cache;

	if (f->walk.state == WALK_COPY) {
		tier_read(walk_tier(&f->walk), &f->walk.read);
		return;
	}
	metrics_gauge_add(c->p.metrics, inflight_metric(f), 1);
	probed_send(c, f);
}

/* What an answer of the source means for the rest of the cache, and for those who wait for it. */
static struct fetch_result fetch_learn(struct fetch *f, struct fetch_result result)
{
	const struct tier_read *read = &f->walk.read;
	struct cache *c = f->cache;
	struct object *obj = f->object;
	struct entry_id entry = obj->state_of->entry;
	int rc;

	metrics_gauge_add(c->p.metrics, inflight_metric(f), -1);
	probed_answered(c, f);
	fetch_place(c, entry, &read->answer);
	rc = access_learn(c, entry, read);
	if (rc == -ESTALE)
		return stale_result(result);
	if (rc != 0) {
		result.status = rc;
		return result;
	}
	if (result.status == 0)
		bits_set(c->confirmed, entry.v);
	if (result.status == 0 && obj->is_demand && f->walk.state == WALK_SOURCE) {
		note_news(c, &(struct news_item){ .kind = NEWS_DEMAND,
						  .unit = unit_of_object(c, obj),
						  .bytes = result.bytes,
						  .latency_ns = result.latency_ns });
	} else if (read->answer.is_changed && !S_ISREG(read->answer.st.st_mode)) {
		change_file(c, entry, NULL, NULL); /* no file any more */
		result.status = S_ISDIR(read->answer.st.st_mode) ? -EISDIR : -EIO;
	} else if (read->answer.is_changed) {
		change_file(c, entry, &read->ask.expect, &read->answer.st);
		result = stale_result(result);
	} else if (result.status == -ENOENT || result.status == -ENOTDIR) {
		change_file(c, entry, NULL, NULL);
	}
	return result;
}

static void trace_event(const struct fetch *f, enum trace_kind kind, uint64_t begin_ns,
			uint64_t end_ns)
{
	metrics_trace(f->cache->p.metrics,
		      &(struct trace_event){ .kind = kind,
					     .begin_ns = MAX(begin_ns, f->begin_ns),
					     .end_ns = end_ns,
					     .file = f->object->state_of->entry.v,
					     .piece = f->object->piece,
					     .bytes = f->walk.read.answer.got,
					     .group = f->trace_group,
					     .status = (int16_t)f->walk.read.answer.status });
}

/* One tier has answered. */
static void trace_tier(const struct fetch *f)
{
	static const enum trace_kind kinds[WALK_STATES] = { [WALK_CHECK] = TRACE_SOURCE_CHECK,
							    [WALK_COPY] = TRACE_STORE_READ,
							    [WALK_SOURCE] = TRACE_SOURCE_READ };
	uint64_t now;

	if (!f->begin_ns)
		return;
	now = clock_now(f->cache->p.clock);
	trace_event(f, kinds[f->walk.state], now - MIN(f->walk.read.answer.latency_ns, now), now);
}

static void trace_fetch(const struct fetch *f)
{
	if (f->begin_ns)
		trace_event(f, f->object->is_demand ? TRACE_FETCH : TRACE_PREFETCH, f->begin_ns,
			    clock_now(f->cache->p.clock));
}

/* What the way to the source and back took within this mount: threads that wait for a CPU, mostly.
 * A job that reads the source itself has no such way. */
static void note_own_time(struct fetch *f)
{
	uint64_t took = f->asked_ns ? clock_now(f->cache->p.clock) - f->asked_ns : 0;
	struct read_traits own = { .held_ns = took - MIN(f->walk.read.answer.latency_ns, took) };

	read_traits_add(&f->request.traits, &own);
}

static struct fetch_result source_answered(struct fetch *f, struct fetch_result result)
{
	bool is_read = f->walk.state == WALK_SOURCE;

	if (f->walk.read.answer.status == 0 && result.status != 0)
		result = stale_result(result); /* not the bytes that were asked for */
	if (is_read)
		note_own_time(f);
	if (is_read && result.status == 0 && f->object->identity.size > PIECE_BYTES)
		range_answered(f->cache, &f->walk.read);
	return fetch_learn(f, result);
}

static void copy_answered(const struct fetch *f, const struct fetch_result *result)
{
	struct cache *c = f->cache;

	if (result->status == 0 || walk_tier(&f->walk) != c->keeper)
		return;
	metrics_add(c->p.metrics, METRIC_BYPASS_STORE_ERROR, 1);
	note_unit(c, NEWS_UNPINNED, unit_of_object(c, f->object));
}

/* The walk is over. */
static void fetch_over(struct fetch *f, struct fetch_result result)
{
	struct cache *c = f->cache;
	struct object *obj = f->object;

	if (result.status == 0)
		probed_done(c, obj, &f->walk.read);
	if (result.status == 0 && !obj->is_demand)
		metrics_add(c->p.metrics, METRIC_PREFETCH_BYTES, result.bytes);
	obj->traits = f->request.traits;
	obj->read_class = walk_tier(&f->walk)->ops->read_class;
	obj->young_until_ns = f->walk.read.answer.young_until_ns;
	trace_fetch(f);
	free(f);
	fetch_end(c, obj, result);
}

static void fetch_done(struct tier_read *read)
{
	struct fetch *f = read->ctx;
	struct fetch_result result = { .status = walk_status(&f->walk),
				       .bytes = read->answer.got,
				       .latency_ns = read->answer.latency_ns };

	trace_tier(f);
	if (f->walk.state == WALK_COPY)
		copy_answered(f, &result);
	else
		result = source_answered(f, result);
	fetch_look(f);
	if (walk_answered(&f->walk, result.status))
		fetch_send(f);
	else
		fetch_over(f, result);
}

/* As the source is to be asked for it, and as whom the others know it. */
static void fetch_want(struct fetch *f)
{
	const struct object *obj = f->object;
	struct entry_id entry = obj->state_of->entry;
	int rc = 0;

	f->walk.want = (struct tier_request){ .key = { entry, obj->piece },
					      .skip = obj->start - (uint64_t)obj->piece * PIECE_BYTES,
					      .path = f->path,
					      .expect = obj->identity,
					      .buf = obj->mem,
					      .length = obj->length,
					      .is_urgent = obj->is_demand };
	/* However new the index is, the file may have changed since, and copies are as old: before the
	 * first use of one in this mount, and again after nobody has looked at the file for a while
	 * (entry_untouch), the source is asked whether it is still that one. */
	f->walk.is_verified = bits_get(f->cache->confirmed, entry.v);
	if (f->cache->chain.n > 1)
		rc = dataset_kept_identity(f->cache->p.dataset, entry, &obj->identity,
					   &f->walk.kept);
	assert(rc == 0); /* the path fitted before */
	f->walk.read.done = fetch_done;
	f->walk.read.ctx = f;
	f->request.piece = obj->mark ? 0 : obj->piece; /* a record is all of one */
	f->request.is_demand = obj->is_demand;
}

/* Path and memory of a fetch. */
static int fetch_prepare(struct cache *c, struct object *obj, struct fetch **ret)
{
	char path[4096];
	struct fetch *f;
	size_t size;
	int rc;

	rc = dataset_path(c->p.dataset, obj->state_of->entry, path, sizeof(path));
	if (rc != 0)
		return rc;
	rc = fetch_memory(c, obj);
	if (rc != 0)
		return rc;
	size = strlen(path) + 1;
	f = calloc(1, sizeof(*f) + size);
	if (!f)
		return -ENOMEM;
	memcpy(f->path, path, size);
	f->cache = c;
	f->object = obj;
	f->asked_ns = obj->is_demand ? clock_now(c->p.clock) : 0;
	if (metrics_is_tracing(c->p.metrics)) {
		f->begin_ns = clock_now(c->p.clock);
		f->trace_group = metrics_trace_group(c->p.metrics);
	}
	fetch_want(f);
	*ret = f;
	return 0;
}

void fetch_start(struct cache *c, struct object *obj)
{
	struct fetch_result result = { 0 };
	struct fetch *f;

	result.status = fetch_prepare(c, obj, &f);
	if (result.status != 0) {
		fetch_end(c, obj, result);
		return;
	}
	fetch_look(f);
	walk_begin(&f->walk, &c->chain);
	fetch_send(f);
}
