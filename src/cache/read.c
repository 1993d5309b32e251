/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The read path. A READ touches one piece or two, or ranges of a large file; each is found, joined
 * or fetched, and whoever settles the last one answers. A part that a prefetch failed for, or whose
 * file turned out to have changed, sends the whole READ through again: pieces of two versions of a
 * file never meet in one answer.
 *
 * A READ of an inode that the file has no more (change.c), or of the middle of a file that is being
 * replaced, is refused with ESTALE: its reader may have pages of another version.
 *
 * A file that changes under every single attempt: after READ_TRIES of them there are no bytes of
 * one version to give and the answer is EIO. (The source itself would have given a mix of versions,
 * which nothing here may do.)
 *
 * Runs on the caller of cache_read, on I/O threads and on the attribute thread; it must never
 * block.
 */
#include "cache_priv.h"

#include <string.h>

struct read_plan { /* what has to be started once the lock is released */
	struct file_identity id;
	struct object *start[CACHE_READ_PARTS + 1];
	uint32_t n_start;
	bool has_prefetch;
	struct list dead;
};

/* obj: what there is of it, or a new one; NULL: there was no memory for one. */
static void read_part_locked(struct cache *c, struct shard *s, struct cache_read *r,
			     struct object *obj, struct read_plan *todo) REQUIRES(s->mu)
{
	struct cache_part *part = &r->part[r->n_parts++];

	*part = (struct cache_part){ .read = r, .part_class = READ_MISS };
	if (obj && obj->is_ahead)
		range_met(c, obj);
	if (obj && obj->state == OBJECT_RESIDENT) {
		obj->refs++;
		object_touch_locked(s, obj);
		part->object = obj;
		part->part_class = READ_ARENA;
		return;
	}
	if (!obj) {
		part->status = -ENOMEM;
		return;
	}
	if (obj->is_prefetch)
		part->part_class = READ_LATE;
	if (obj->state == OBJECT_QUEUED) {
		/* New, or a prefetch not started yet: urgent from now on. */
		obj->is_demand = true;
		fetch_claim_locked(s, obj);
		todo->start[todo->n_start++] = obj;
	}
	list_push_tail(&obj->waiters, &part->node);
	r->n_left++;
}

/* Of whole pieces: files of one piece, and control reads. */
static void read_pieces_locked(struct cache *c, struct shard *s, struct cache_read *r, uint64_t end,
			       struct read_plan *todo) REQUIRES(s->mu)
{
	uint32_t first = (uint32_t)(r->offset / PIECE_BYTES);
	uint32_t last = (uint32_t)((end - 1) / PIECE_BYTES);

	assert(last - first < 2);
	for (uint32_t piece = first; piece <= last; piece++) {
		struct object *obj = object_find_locked(c, s, r->entry, piece);

		if (!obj)
			obj = object_new_locked(c, s, r->state, &todo->id, piece);
		read_part_locked(c, s, r, obj, todo);
	}
}

/* A control read is read ahead as the kernel would: one piece, and not behind prefetches. */
static void read_held_out_locked(struct cache *c, struct shard *s, struct cache_read *r,
				 uint64_t end, struct read_plan *todo) REQUIRES(s->mu)
{
	uint32_t next = (uint32_t)((end - 1) / PIECE_BYTES) + 1;
	struct object *obj;

	read_pieces_locked(c, s, r, end, todo);
	if (next >= piece_count(todo->id.size) || object_find_locked(c, s, r->entry, next))
		return;
	obj = object_new_locked(c, s, r->state, &todo->id, next);
	if (!obj)
		return;
	obj->is_prefetch = true;
	fetch_claim_locked(s, obj);
	todo->start[todo->n_start++] = obj;
}

/* What is asked for of a record that is held back, as its reader would ask the source for it. */
static void read_record_held_out_locked(struct cache *c, struct shard *s, struct cache_read *r,
					uint64_t end, struct read_plan *todo) REQUIRES(s->mu)
{
	struct object *obj = range_new_locked(c, s, r->state, &todo->id, r->offset, end);

	if (obj) {
		range_once_locked(s, obj);
		obj->mark = r->traits.mark;
		obj->held_out = r->unit; /* where a file ends early it may be of another */
	}
	read_part_locked(c, s, r, obj, todo);
}

/* What of a large file is missing from `at` on: a piece, or what the READ asks for and no more. */
static struct object *read_missing_locked(struct cache *c, struct shard *s, struct cache_read *r,
					  uint64_t at, uint64_t end, const struct read_plan *todo)
	REQUIRES(s->mu)
{
	bool is_last = r->n_parts + 1 == CACHE_READ_PARTS;
	uint32_t piece = (uint32_t)(at / PIECE_BYTES);
	uint64_t piece_end = ((uint64_t)piece + 1) * PIECE_BYTES;
	bool is_possible = todo->id.size <= PIECES_BYTES_MAX && (!is_last || piece_end >= end) &&
			   !object_find_locked(c, s, r->entry, piece);
	bool is_kept = is_possible && !r->is_whole &&
		       store_keeps_piece(c, r->entry, &todo->id, piece);
	struct object *obj;

	if (is_kept || (is_possible && r->is_whole)) {
		obj = object_new_locked(c, s, r->state, &todo->id, piece);
	} else {
		obj = range_new_locked(c, s, r->state, &todo->id, at,
				       is_last ? end
					       : ranges_gap_locked(c, s, r->state, at, end));
		if (obj && r->is_again)
			hot_want_locked(s, obj);
		else if (obj)
			range_once_locked(s, obj);
	}
	if (obj && is_kept) /* the store asks nothing of the source, unless it has lost it */
		obj->is_owed = true;
	else if (obj)
		range_spent(c, obj);
	return obj;
}

/* A file of several pieces. */
static void read_large_locked(struct cache *c, struct shard *s, struct cache_read *r, uint64_t end,
			      struct read_plan *todo) REQUIRES(s->mu)
{
	struct ahead_advice advice = { 0 };
	uint64_t at = r->offset;

	if (list_is_empty(&r->in_entry)) {
		list_push_tail(&r->state->reads, &r->in_entry);
		r->state->n_listed++;
	}
	if (probed_mark(c, r->unit) && dataset_unit_is_record(c->p.dataset, r->unit)) {
		read_record_held_out_locked(c, s, r, end, todo);
		return;
	}
	if (probed_mark(c, r->unit) && todo->id.size <= PIECES_BYTES_MAX) {
		read_held_out_locked(c, s, r, end, todo);
		return;
	}
	if (r->n_tries == 0) {
		ranges_advise(c, r, &todo->id, end, &advice);
		r->is_whole = advice.is_whole;
		r->is_again = advice.is_again;
	}
	while (at < end) {
		struct object *obj = ranges_find_locked(c, s, r->state, at);

		if (obj && r->n_parts + 1 == CACHE_READ_PARTS && obj->start + obj->length < end)
			obj = NULL; /* all of the rest at once */
		if (!obj)
			obj = read_missing_locked(c, s, r, at, end, todo);
		read_part_locked(c, s, r, obj, todo);
		if (!obj)
			break;
		at = obj->start + obj->length;
	}
	todo->has_prefetch = ranges_ahead_locked(c, s, r->state, &todo->id, &advice, &todo->dead);
}

/* Pages behind the beginning are being dropped, and that waits for this READ. */
static bool must_make_way(const struct cache_read *r)
{
	const struct entry_state *es = r->state;

	return es->is_drop_queued && es->drop_renewal == r->renewal && r->offset > 0;
}

/* Finds, joins or creates the pieces. False when the READ has to wait until the kernel knows the
 * size. */
static bool read_look_locked(struct cache *c, struct shard *s, struct cache_read *r,
			     struct read_plan *todo) REQUIRES(s->mu)
{
	uint64_t end;

	r->n_parts = 0;
	r->n_left = 1; /* ours, until everything is started */
	r->look_version = r->state->version;
	if (r->renewal != dataset_renewal(c->p.dataset, r->entry) || must_make_way(r)) {
		r->refused = -ESTALE;
		return true;
	}
	if (r->state->is_unsettled) {
		list_push_tail(&r->state->attr_waiters, &r->node);
		return false;
	}
	/* The identity is read under the shard's lock, under which change_file replaces it. */
	dataset_identity(c->p.dataset, r->entry, &todo->id);
	end = MIN(r->offset + r->length, todo->id.size);
	if (r->offset >= end)
		return true;
	if (todo->id.size > PIECE_BYTES) /* no file of records is smaller, unless it shrinks */
		read_large_locked(c, s, r, end, todo);
	else
		read_pieces_locked(c, s, r, end, todo);
	return true;
}

/* What it is answered, when all its parts have come. */
static int read_status(const struct cache_read *r)
{
	int status = r->refused;

	for (uint32_t i = 0; i < r->n_parts && status == 0; i++)
		status = r->part[i].status;
	return status;
}

/* From here on the kernel may have these bytes, and a change that comes finds that out: nobody may
 * get old bytes and the next size. False when one has come already. */
static bool read_decide_locked(struct cache *c, struct shard *s, struct cache_read *r, int status)
	REQUIRES(s->mu)
{
	struct entry_state *es = r->state;

	assert(!r->is_decided);
	r->is_decided = status != 0 || es->version == r->look_version;
	if (!r->is_decided)
		return false;
	if (status == 0) /* no bytes at all make a page too, of zeros */
		bits_set(c->paged, r->entry.v);
	if (r->offset == 0) {
		assert(es->head_readers > 0);
		es->head_readers--;
	}
	if (!list_is_empty(&r->in_entry)) {
		list_remove(&r->in_entry);
		es->n_listed--;
	}
	return true;
}

/* Looks, and decides at once where nothing has to be waited for: what is there is of one version, as
 * long as the lock is held. False when the READ was put aside, and may be gone without the lock. */
static bool read_try_locked(struct cache *c, struct shard *s, struct cache_read *r,
			    struct read_plan *todo) REQUIRES(s->mu)
{
	r->is_decided = false;
	list_init(&todo->dead);
	if (!read_look_locked(c, s, r, todo))
		return false;
	if (r->n_left == 1)
		(void)read_decide_locked(c, s, r, read_status(r));
	return true;
}

/* Starts what the look has found to be missing. */
static void read_go(struct cache *c, struct cache_read *r, struct read_plan *todo, bool is_begun)
{
	if (!list_is_empty(&todo->dead))
		objects_free(c, &todo->dead);
	if (!is_begun)
		return;
	for (uint32_t i = 0; i < todo->n_start; i++)
		fetch_start(c, todo->start[i]);
	if (todo->has_prefetch)
		prefetch_pump(c);
	read_settle(c, r);
}

void read_begin(struct cache *c, struct cache_read *r)
{
	struct shard *s = shard_of(c, r->entry);
	struct read_plan todo = { .n_start = 0 };
	bool is_begun;

	mutex_lock(&s->mu);
	is_begun = read_try_locked(c, s, r, &todo);
	mutex_unlock(&s->mu);
	read_go(c, r, &todo, is_begun);
}

/* --- the answer --- */

static void read_unpin(struct cache *c, struct object *const *pinned, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (pinned[i])
			object_put(c, pinned[i]);
}

static int read_vectors(const struct cache_read *r, struct iovec *iov, uint64_t *ret_bytes)
{
	uint64_t at = r->offset;

	*ret_bytes = 0;
	for (uint32_t i = 0; i < r->n_parts; i++) {
		const struct object *obj = r->part[i].object;
		uint64_t end = MIN(obj->start + obj->length, r->offset + r->length);

		iov[i].iov_base = (char *)obj->mem + (at - obj->start);
		iov[i].iov_len = end - at;
		*ret_bytes += end - at;
		at = end;
	}
	return (int)r->n_parts;
}

static void read_count(struct cache *c, const struct cache_read *r, int status, uint64_t bytes)
{
	uint64_t now = clock_now(c->p.clock);

	metrics_observe(c->p.metrics, metrics_hist_of_class[r->read_class],
			now > r->arrived_ns ? now - r->arrived_ns : 0);
	if (metrics_is_tracing(c->p.metrics))
		metrics_trace(c->p.metrics,
			      &(struct trace_event){ .kind = TRACE_READ,
						     .begin_ns = MIN(r->arrived_ns, now),
						     .end_ns = now,
						     .file = r->entry.v,
						     .piece = (uint32_t)(r->offset / PIECE_BYTES),
						     .bytes = (uint32_t)bytes,
						     .status = (int16_t)status,
						     .how = (uint16_t)r->read_class });
	if (status != 0)
		metrics_add(c->p.metrics, METRIC_READ_ERRORS, 1);
	account_read_end(c, r, status, bytes);
}

static void read_answer(struct cache *c, struct cache_read *r, int status,
			struct object *const *pinned)
{
	struct shard *s = shard_of(c, r->entry);
	struct entry_state *es = r->state;
	uint32_t begin_version = r->begin_version, n_parts = r->n_parts;
	struct iovec iov[CACHE_READ_PARTS];
	bool is_read_on = r->is_read_on; /* its reader is yet to come: what is here stays */
	struct list dead;
	uint64_t bytes = 0;
	int n_iov = 0;

	r->rights.is_narrowed = false;
	if (r->refused) /* who may not read it any more is told that instead */
		access_rights(c, r->entry, &r->rights);
	else if (status == 0 && n_parts)
		r->rights = r->part[0].object->rights;
	if (status == 0)
		n_iov = read_vectors(r, iov, &bytes);
	read_count(c, r, status, bytes);
	r->done(r, status, status == 0 ? iov : NULL, n_iov); /* r may be gone now */
	list_init(&dead);
	mutex_lock(&s->mu);
	for (int i = 0; i < n_iov && !is_read_on && pinned[0]->identity.size > PIECE_BYTES; i++)
		range_used_locked(c, s, pinned[i], &iov[i], &dead);
	for (uint32_t i = 0; i < n_parts; i++)
		if (pinned[i])
			object_put_locked(c, s, pinned[i], &dead);
	assert(es->readers > 0);
	es->readers--;
	change_read_ended_locked(c, s, es, begin_version);
	entry_put_locked(c, s, es);
	busy_leave_locked(c, s, &dead);
}

static bool read_decide(struct cache *c, struct cache_read *r, int status)
{
	struct shard *s = shard_of(c, r->entry);
	bool is_decided;

	if (r->is_decided)
		return true;
	mutex_lock(&s->mu);
	is_decided = read_decide_locked(c, s, r, status);
	mutex_unlock(&s->mu);
	return is_decided;
}

static void read_finish(struct cache *c, struct cache_read *r)
{
	struct object *pinned[CACHE_READ_PARTS] = { NULL };
	int status = read_status(r);
	bool is_restart = false;

	r->read_class = r->n_parts ? READ_STAGED : READ_ARENA;
	for (uint32_t i = 0; i < r->n_parts; i++) {
		pinned[i] = r->part[i].object;
		is_restart |= r->part[i].is_restart;
		r->read_class = MAX(r->read_class, r->part[i].part_class);
	}
	/* All were found at once, and change_file leaves one version there. */
	for (uint32_t i = 1; i < r->n_parts; i++)
		assert(!pinned[0] || !pinned[i] ||
		       file_identity_eq(&pinned[0]->identity, &pinned[i]->identity));
	is_restart &= status == 0;
	if (!is_restart && read_decide(c, r, status)) {
		read_answer(c, r, status, pinned);
		return;
	}
	if (++r->n_tries < READ_TRIES) {
		read_unpin(c, pinned, r->n_parts);
		read_begin(c, r);
		return;
	}
	log_limited(LOG_LEVEL_WARN, "entry %u changes all the time: no consistent bytes of it",
		    r->entry.v);
	(void)read_decide(c, r, -EIO);
	read_answer(c, r, -EIO, pinned);
}

void read_settle(struct cache *c, struct cache_read *r)
{
	if (atomic_fetch_sub(&r->n_left, 1) == 1)
		read_finish(c, r);
}

/* The kernel has dropped what was pushed, or the reader goes past it: then it is pushed no more. True: nobody
 * would hear otherwise that a reader has come to the unit. */
static bool note_staged(struct cache *c, const struct cache_read *r)
{
	bool is_silent = bits_get(c->untraced, r->unit.v) && !bits_get(c->staged_opened, r->unit.v);
	bool was_staged = account_lacks_push(c, r);

	direct_read(c, r->entry, r->is_direct, was_staged);
	if (was_staged && !r->is_direct)
		metrics_add(c->p.metrics, METRIC_STAGE_EVICTED_READS, 1);
	if (was_staged)
		note_unit(c, NEWS_UNSTAGED, r->unit);
	if (was_staged)
		tracer_lost(c, r->unit);
	return was_staged && is_silent;
}

/* Of a file of several units: whoever looks for records in it hears where it is read. */
static void read_note_place(struct cache *c, const struct cache_read *r)
{
	if (!c->p.reads || unit_eq(r->unit, UNIT_NONE) || !unit_is_traced(c, r->unit) ||
	    dataset_is_in_records(c->p.dataset, r->entry))
		return;
	reads_note(c->p.reads, &(struct read_note){ .entry = r->entry,
						    .length = r->length,
						    .offset = r->offset,
						    .at_ns = r->arrived_ns,
						    .reader = r->reader });
}

/* A READ of some of a record that is held back, or of more than that, is no measure: the kernel had the rest,
 * or read on. */
static uint8_t mark_of(struct cache *c, const struct cache_read *r)
{
	uint8_t mark = probed_mark(c, r->unit);

	if (mark && dataset_unit_is_record(c->p.dataset, r->unit) && !reached_is_alone(c, r, r->unit))
		return 0;
	return mark;
}

void cache_read(struct cache *c, struct cache_read *r)
{
	struct shard *s = shard_of(c, r->entry);
	struct read_plan todo = { .n_start = 0 };
	struct entry_state *es;
	bool is_begun = false, is_silent;

	assert(r->length >= 1 && r->length <= PIECE_BYTES);
	r->cache = c;
	r->n_tries = 0;
	r->n_parts = 0;
	r->refused = 0;
	r->is_look = false;
	r->is_whole = r->is_again = false;
	r->is_read_on = false;
	list_init(&r->in_entry);
	r->unit = reached_unit_of(c, r);
	r->traits = (struct read_traits){ .mark = mark_of(c, r) };
	is_silent = !unit_eq(r->unit, UNIT_NONE) && note_staged(c, r);
	if (dataset_unit_map(c->p.dataset)->first &&
	    r->renewal == dataset_renewal(c->p.dataset, r->entry)) {
		reached_note(c, r, is_silent);
		read_note_place(c, r);
	}
	r->is_accounted = account_read_begin(c, r);
	mutex_lock(&s->mu);
	es = entry_get_locked(c, s, r->entry);
	if (es) {
		es->readers++;
		entry_touch(c, r->entry); /* a change that untouches it sees the reader, or comes before */
		if (r->offset == 0) {
			uint64_t end = r->is_direct ? 0 : r->length;

			es->head_end = es->head_readers ? MAX(es->head_end, end) : end;
			es->head_readers++;
		}
		s->busy++;
		r->state = es;
		r->begin_version = es->version;
		is_begun = read_try_locked(c, s, r, &todo);
	}
	mutex_unlock(&s->mu);
	if (!es) {
		cache_degrade(c, "out of memory");
		r->read_class = READ_MISS;
		account_read_end(c, r, -ENOMEM, 0);
		r->done(r, -ENOMEM, NULL, 0);
		return;
	}
	read_go(c, r, &todo, is_begun);
}
