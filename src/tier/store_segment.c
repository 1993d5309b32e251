/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments: the table of them, what is kept in each, and their locks. store_turn.c makes and seals
 * them.
 *
 * Any thread. Must never wait for a reader: references keep files open, not locks.
 */
#include <assert.h>
#include <errno.h>
#include <sys/file.h>

#include "store_priv.h"

/* --- the table --- */

int store_segment_enter(struct store *s, struct store_segment *segment)
{
	int rc = -ENOBUFS;

	mutex_lock(&s->mu);
	for (uint32_t i = 0; i < s->p.max_segments && rc < 0; i++) {
		if (s->segments[i])
			continue;
		segment->slot = i;
		atomic_store_explicit(&segment->refs, 1, memory_order_relaxed);
		s->segments[i] = segment;
		s->slots_top = MAX(s->slots_top, i + 1);
		atomic_fetch_add(&s->bytes, atomic_load(&segment->bytes));
		rc = 0;
	}
	mutex_unlock(&s->mu);
	return rc;
}

uint32_t store_segment_free_slots(struct store *s)
{
	uint32_t n;

	mutex_lock(&s->mu);
	n = s->p.max_segments - s->slots_top;
	for (uint32_t i = 0; i < s->slots_top; i++)
		n += !s->segments[i];
	mutex_unlock(&s->mu);
	return n;
}

struct store_segment *store_segment_new(void)
{
	struct store_segment *segment = calloc(1, sizeof(*segment));

	if (!segment)
		return NULL;
	segment->fd = -1;
	mutex_init(&segment->lock_mu);
	return segment;
}

void store_segment_free(struct store_segment *segment)
{
	if (segment->fd >= 0)
		close(segment->fd);
	mutex_fini(&segment->lock_mu);
	free(segment->entries);
	free(segment);
}

void store_segment_get(struct store_segment *segment)
{
	uint32_t refs = atomic_fetch_add_explicit(&segment->refs, 1, memory_order_relaxed);

	assert(refs > 0); /* the last one has freed it */
}

bool store_segment_try_get(struct store_segment *segment)
{
	uint32_t refs = atomic_load(&segment->refs);

	while (refs > 0 && !atomic_compare_exchange_weak(&segment->refs, &refs, refs + 1))
		;
	return refs > 0;
}

void store_segment_put(struct store *s, struct store_segment *segment)
{
	uint32_t refs = atomic_fetch_sub_explicit(&segment->refs, 1, memory_order_acq_rel);

	assert(refs > 0);
	if (refs != 1)
		return;
	mutex_lock(&s->mu);
	assert(s->segments[segment->slot] == segment && s->open != segment);
	s->segments[segment->slot] = NULL;
	mutex_unlock(&s->mu);
	atomic_fetch_sub(&s->bytes, atomic_load(&segment->bytes));
	store_segment_free(segment);
}

void store_segment_retire(struct store *s, struct store_segment *segment)
{
	if (atomic_exchange(&segment->is_retired, true))
		return;
	store_index_sweep(&s->index, segment->slot);
	store_segment_put(s, segment);
}

struct store_segment *store_segment_by_id(struct store *s, uint64_t id)
{
	struct store_segment *found = NULL;

	mutex_lock(&s->mu);
	for (uint32_t i = 0; i < s->slots_top && !found; i++) {
		struct store_segment *segment = s->segments[i];

		if (segment && segment->header.segment == id && store_segment_try_get(segment))
			found = segment;
	}
	mutex_unlock(&s->mu);
	return found;
}

static void segment_gain(struct store_segment *segment, uint32_t flags, uint32_t length)
{
	atomic_fetch_add(&segment->n_records, 1);
	atomic_fetch_add(&segment->record_bytes, length);
	atomic_fetch_add(&segment->kept_bytes, store_record_bytes(length));
	if (!(flags & STORE_VERIFIED))
		atomic_fetch_add(&segment->n_unverified, 1);
	if (flags & STORE_WANTED) {
		atomic_fetch_add(&segment->wanted_bytes, store_record_bytes(length));
		atomic_fetch_add(&segment->n_wanted, 1);
	}
}

static void segment_unwant(struct store_segment *segment, uint32_t length)
{
	atomic_fetch_sub(&segment->n_wanted, 1);
	atomic_fetch_sub(&segment->wanted_bytes, store_record_bytes(length));
}

/* Never lowered: what was given up is seldom the only large file. */
static void raise_pieces_end(struct store *s, uint32_t end)
{
	uint32_t old = atomic_load(&s->pieces_end);

	while (old < end && !atomic_compare_exchange_weak(&s->pieces_end, &old, end))
		;
}

int store_segment_keep(struct store *s, struct store_segment *segment,
		       const struct store_entry *what, uint32_t flags)
{
	struct store_tag tag =
		store_tag_of(&s->index, segment->header.fsid, &what->identity, what->piece);
	int rc;

	raise_pieces_end(s, what->piece + 1);
	/* Counted first: once it is in the index somebody else may count it off. */
	segment_gain(segment, flags, what->length);
	rc = store_index_add(&s->index, &tag, store_place(segment->slot, what->block), flags);
	if (rc < 0) {
		struct store_found found = { .flags = flags };

		store_segment_lost(segment, &found, what->length);
	}
	return rc;
}

void store_segment_verified(struct store *s, struct store_segment *segment,
			    const struct store_tag *tag, uint32_t place, uint32_t round)
{
	/* Counted first: who sees that none is verified has nothing to doubt. */
	atomic_fetch_sub(&segment->n_unverified, 1);
	if (!store_index_verify(&s->index, tag, place, &s->n_shared, round))
		atomic_fetch_add(&segment->n_unverified, 1);
}

void store_segment_lost(struct store_segment *segment, const struct store_found *found,
			uint32_t length)
{
	uint64_t n = atomic_fetch_sub(&segment->n_records, 1);
	uint64_t bytes = atomic_fetch_sub(&segment->record_bytes, length);

	assert(n > 0 && bytes >= length); /* counted before anybody could come upon it */
	atomic_fetch_sub(&segment->kept_bytes, store_record_bytes(length));
	if (!(found->flags & STORE_VERIFIED))
		atomic_fetch_sub(&segment->n_unverified, 1);
	if (found->flags & STORE_WANTED)
		segment_unwant(segment, length);
}

/* The order must be the same for all daemons: else each would want another one of two records, and
 * neither segment would ever go. A record that was written once more because the first one was
 * damaged is the right one. */
static bool is_newer(const struct store_segment *a, const struct store_segment *b)
{
	const struct store_header *x = &a->header, *y = &b->header;

	return x->made_ns > y->made_ns || (x->made_ns == y->made_ns && x->segment > y->segment);
}

void store_segment_prefer(struct store *s, struct store_segment *segment,
			  const struct store_entry *what)
{
	static const struct store_found wanted = { .flags = STORE_WANTED };
	struct store_tag tag =
		store_tag_of(&s->index, segment->header.fsid, &what->identity, what->piece);
	uint32_t place = store_place(segment->slot, what->block);
	struct store_found old;

	if (!store_index_find(&s->index, &tag, s->segments, &old))
		return;
	if (is_newer(segment, old.segment)) {
		segment_gain(segment, STORE_WANTED, what->length); /* for the time being */
		if (!store_index_move(&s->index, &tag, place, &old)) {
			store_segment_lost(segment, &wanted, what->length);
		} else {
			if (!(old.flags & STORE_WANTED))
				segment_unwant(segment, what->length);
			store_segment_lost(old.segment, &old, what->length);
		}
	}
	store_segment_put(s, old.segment);
}

void store_segment_want(struct store *s, const struct store_tag *tag,
			const struct store_found *found, uint32_t length)
{
	struct store_segment *segment = found->segment;

	bool is_new = !(found->flags & STORE_WANTED) &&
		      store_index_mark(&s->index, tag, found->place, STORE_WANTED);

	if (is_new) {
		atomic_fetch_add(&segment->wanted_bytes, store_record_bytes(length));
		atomic_fetch_add(&segment->n_wanted, 1);
	}
	/* A lock that was refused, or lost, is tried again at the next read. */
	if (is_new || store_segment_is_loose(s, segment))
		store_segment_share(s, segment);
}

void store_segment_unwant(struct store *s, const struct store_tag *tag,
			  const struct store_found *found, uint32_t length)
{
	if (store_index_unmark(&s->index, tag, found->place, STORE_WANTED))
		segment_unwant(found->segment, length);
}

/* --- the lock of a segment --- */

static void share_locked(struct store *s, struct store_segment *segment) REQUIRES(segment->lock_mu)
{
	uint32_t n;

	/* Refused: somebody is giving it up this moment, and what we have open goes on. */
	if (!store_segment_is_loose(s, segment) || flock(segment->fd, LOCK_SH | LOCK_NB) < 0)
		return;
	/* A reader that has found a record before the doubt sees one of the two, and what reads
	 * have found right that began before this says nothing. */
	atomic_fetch_add(&s->n_shared, 1);
	n = atomic_load(&segment->n_unverified) < atomic_load(&segment->n_records)
		    ? store_index_doubt(&s->index, segment->slot)
		    : 0;
	atomic_fetch_add(&segment->n_unverified, n);
	atomic_store(&segment->is_shared, true);
}

void store_segment_share(struct store *s, struct store_segment *segment)
{
	mutex_lock(&segment->lock_mu);
	share_locked(s, segment);
	mutex_unlock(&segment->lock_mu);
}

void store_segment_unshare(struct store_segment *segment)
{
	mutex_lock(&segment->lock_mu);
	if (!atomic_load(&segment->n_wanted) && atomic_load(&segment->is_sealed) &&
	    atomic_exchange(&segment->is_shared, false))
		(void)flock(segment->fd, LOCK_UN);
	mutex_unlock(&segment->lock_mu);
}

void store_unshare_all(struct store *s)
{
	uint32_t n = 1;

	for (uint32_t i = 0; i < n; i++) {
		struct store_segment *segment;

		mutex_lock(&s->mu);
		n = s->is_claimed ? s->slots_top : 0;
		segment = n ? s->segments[i] : NULL;
		if (segment && (!atomic_load(&segment->is_shared) ||
				atomic_load(&segment->n_wanted) || !store_segment_try_get(segment)))
			segment = NULL;
		mutex_unlock(&s->mu);
		if (!segment)
			continue;
		store_segment_unshare(segment);
		store_segment_put(s, segment);
	}
}

bool store_segment_unlink(struct store *s, struct store_segment *segment, bool even_wanted)
{
	char name[STORE_NAME_SIZE];
	bool was_shared, is_done = false;

	store_segment_name(segment->header.segment, name);
	mutex_lock(&segment->lock_mu);
	if (atomic_load(&segment->is_sealed) && (even_wanted || !atomic_load(&segment->n_wanted))) {
		was_shared = atomic_exchange(&segment->is_shared, false);
		/* Whether it is granted or not, the shared lock is gone. */
		is_done = flock(segment->fd, LOCK_EX | LOCK_NB) == 0 &&
			  s->dir.sys->unlinkat(s->dir.fd, name, 0) == 0;
		if (!is_done)
			(void)flock(segment->fd, LOCK_UN);
		if (!is_done && was_shared)
			share_locked(s, segment);
	}
	mutex_unlock(&segment->lock_mu);
	return is_done;
}
