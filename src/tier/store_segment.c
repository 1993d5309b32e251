/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments: the table of them, making and sealing them.
 *
 * Space is reserved for a whole segment before it is written, so records lie together on the drive
 * and running out of space is noticed between segments. Whoever finds no room turns: it makes the
 * next segment while the others wait. The old one is sealed by whoever writes its last record.
 *
 * Any thread: those that put, and the background thread for segments that are left. Must never
 * write over a record, and never wait for a reader: references keep files open, not locks.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>

#include "clairfs/base/log.h"
#include "store_priv.h"

#define MAKE_TRIES 8

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

/* --- sealing --- */

static int compare_entries(const void *a, const void *b)
{
	const struct store_entry *x = a, *y = b;

	return (x->block > y->block) - (x->block < y->block);
}

static int write_footer(struct store *s, struct store_segment *segment, uint8_t *block,
			uint32_t n_blocks)
{
	struct store_trailer trailer = { .n_records = segment->n_entries,
					 .footer_block = segment->tail,
					 .footer_blocks = n_blocks - 1,
					 .segment = segment->header.segment,
					 .fsid = segment->header.fsid };
	size_t size = (size_t)n_blocks * STORE_BLOCK;
	struct iovec iov = { block, size };
	uint64_t end = ((uint64_t)segment->tail + n_blocks) * STORE_BLOCK;
	int rc;

	memset(block, 0, size);
	qsort(segment->entries, segment->n_entries, sizeof(*segment->entries), compare_entries);
	for (uint32_t i = 0; i < segment->n_entries; i++)
		store_entry_encode(&segment->entries[i], block + (size_t)i * STORE_ENTRY_BYTES);
	trailer.entries_sum = store_entries_sum(block, segment->n_entries, segment->header.segment);
	store_trailer_encode(&trailer, block + size - STORE_BLOCK);
	rc = store_write_all(&s->dir, segment->fd, &iov, 1, (uint64_t)segment->tail * STORE_BLOCK);
	if (rc < 0)
		return rc;
	if (s->dir.sys->ftruncate(segment->fd, (off_t)end) < 0)
		return -errno;
	metrics_add(s->metrics, METRIC_STORE_BYTES_WRITTEN, size);
	metrics_add(s->metrics, METRIC_STORE_SEALED_BYTES, end);
	metrics_add(s->metrics, METRIC_STORE_RESERVED_BYTES,
		    (uint64_t)segment->header.n_blocks * STORE_BLOCK);
	atomic_fetch_add(&s->bytes, end - atomic_exchange(&segment->bytes, end));
	return 0;
}

int store_segment_seal(struct store *s, struct store_segment *segment)
{
	uint32_t n_blocks = store_footer_blocks(segment->n_entries) + 1;
	void *block = NULL;
	int rc = 0;

	assert(!atomic_load(&segment->is_sealed));
	if (segment->is_entries_lost ||
	    posix_memalign(&block, STORE_BLOCK, (size_t)n_blocks * STORE_BLOCK) != 0)
		return -ENOMEM;
	rc = write_footer(s, segment, block, n_blocks);
	free(block);
	if (rc < 0)
		return rc;
	free(segment->entries);
	segment->entries = NULL;
	segment->entries_room = 0;
	mutex_lock(&segment->lock_mu);
	atomic_store(&segment->is_shared,
		     s->dir.is_persistent && flock(segment->fd, LOCK_SH | LOCK_NB) == 0);
	atomic_store(&segment->is_sealed, true);
	mutex_unlock(&segment->lock_mu);
	return 0;
}

static void remove_segment_file(struct store *s, uint64_t id)
{
	char name[STORE_NAME_SIZE];

	store_segment_name(id, name);
	if (s->dir.is_persistent)
		(void)s->dir.sys->unlinkat(s->dir.fd, name, 0);
}

void store_writer_put(struct store *s, struct store_segment *segment)
{
	bool is_last, is_empty;
	int rc;

	mutex_lock(&s->mu);
	assert(segment->n_writers > 0);
	is_last = --segment->n_writers == 0;
	is_empty = segment->n_entries == 0 && !segment->is_entries_lost;
	mutex_unlock(&s->mu);
	if (!is_last)
		return;
	if (is_empty) {
		remove_segment_file(s, segment->header.segment);
		store_segment_retire(s, segment);
		store_segment_put(s, segment);
		return;
	}
	rc = store_segment_seal(s, segment);
	mutex_lock(&s->mu);
	segment->has_failed = rc < 0;
	mutex_unlock(&s->mu);
	if (rc < 0)
		(void)store_fail(s, store_without_room(rc), "sealing a segment");
	store_segment_put(s, segment);
}

void store_seal_leftovers(struct store *s)
{
	uint32_t n = 1;

	for (uint32_t i = 0; i < n; i++) {
		struct store_segment *segment;

		mutex_lock(&s->mu);
		n = s->slots_top;
		segment = s->segments[i];
		if (segment && (!store_segment_is_leftover(segment) || segment->is_entries_lost ||
				!store_segment_try_get(segment)))
			segment = NULL;
		mutex_unlock(&s->mu);
		if (!segment)
			continue;
		if (store_segment_seal(s, segment) < 0)
			n = 0; /* the others would fare no better */
		store_segment_put(s, segment);
	}
}

void store_close_open(struct store *s)
{
	struct store_segment *segment;

	mutex_lock(&s->mu);
	segment = s->open;
	s->open = NULL;
	mutex_unlock(&s->mu);
	if (segment)
		store_writer_put(s, segment);
}

/* --- the next segment --- */

/* Reserves; halves where the filesystem has less room than it said. */
static int reserve_blocks(struct store *s, int fd, uint64_t *bytes, uint64_t least)
{
	for (;;) {
		int rc;

		do
			rc = s->dir.sys->fallocate(fd, 0, 0, (off_t)*bytes);
		while (rc < 0 && errno == EINTR);
		/* Without fallocate() space is taken as it is written. */
		if (rc == 0 || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL)
			return 0;
		if (errno != ENOSPC && errno != EDQUOT && errno != EFBIG)
			return -errno;
		if (*bytes / 2 < least)
			return -EAGAIN;
		*bytes = ALIGN_DOWN(*bytes / 2, (uint64_t)STORE_BLOCK);
	}
}

static int write_header(struct store *s, struct store_segment *segment)
{
	void *block = NULL;
	struct iovec iov;
	int rc;

	if (posix_memalign(&block, STORE_BLOCK, STORE_BLOCK) != 0)
		return -ENOMEM;
	store_header_encode(&segment->header, block);
	iov = (struct iovec){ block, STORE_BLOCK };
	rc = store_write_all(&s->dir, segment->fd, &iov, 1, 0);
	free(block);
	if (rc == 0)
		metrics_add(s->metrics, METRIC_STORE_BYTES_WRITTEN, STORE_BLOCK);
	return store_without_room(rc);
}

static int make_segment_file(struct store *s, uint64_t *ret_id)
{
	int fd = -EAGAIN;

	for (int i = 0; i < MAKE_TRIES && (fd == -EAGAIN || fd == -EEXIST); i++) {
		if (getrandom(ret_id, sizeof(*ret_id), 0) != (ssize_t)sizeof(*ret_id))
			return -EIO;
		fd = store_dir_make(&s->dir, *ret_id);
	}
	return fd == -EAGAIN || fd == -EEXIST ? -EIO : store_without_room(fd);
}

static int fill_new(struct store *s, struct store_segment *segment, uint64_t bytes, uint32_t n)
{
	struct timespec now;
	int rc = reserve_blocks(s, segment->fd, &bytes, ((uint64_t)n + 3) * STORE_BLOCK);

	if (rc < 0)
		return rc;
	clock_gettime(CLOCK_REALTIME, &now);
	segment->header.n_blocks = (uint32_t)(bytes / STORE_BLOCK);
	segment->header.fsid = s->p.fsid;
	segment->header.made_ns = (uint64_t)file_time_ns(now.tv_sec, now.tv_nsec);
	segment->tail = 1;
	segment->n_writers = 1; /* being open */
	segment->is_ours = true;
	atomic_init(&segment->bytes, STORE_BLOCK);
	return write_header(s, segment);
}

static int make_new(struct store *s, uint32_t n, uint64_t bytes, struct store_segment **ret)
{
	struct store_segment *segment = store_segment_new();
	int rc;

	if (!segment)
		return -ENOMEM;
	segment->fd = make_segment_file(s, &segment->header.segment);
	rc = segment->fd < 0 ? segment->fd : fill_new(s, segment, bytes, n);
	if (rc == 0)
		rc = store_segment_enter(s, segment);
	if (rc == 0) {
		store_segment_get(segment); /* the writers' */
		*ret = segment;
		return 0;
	}
	if (segment->fd >= 0)
		remove_segment_file(s, segment->header.segment);
	store_segment_free(segment);
	return rc;
}

static int make_locked_out(struct store *s, uint32_t n, struct store_segment **ret)
	REQUIRES(s->space_mu)
{
	uint64_t bytes;
	int rc = store_space(s, n, &bytes);

	if (rc < 0)
		return rc;
	rc = make_new(s, n, bytes, ret);
	if (rc == -EAGAIN && store_space_refused(s, bytes))
		rc = make_new(s, n, bytes, ret);
	return rc;
}

static int make_segment(struct store *s, uint32_t n, struct store_segment **ret)
{
	int rc;

	mutex_lock(&s->space_mu);
	/* What others have sealed meanwhile need not be written once more. */
	if (store_load(s, false) < 0)
		log_limited(LOG_LEVEL_WARN, "store: its directory cannot be looked through");
	store_dir_lock(&s->dir);
	rc = make_locked_out(s, n, ret);
	store_dir_unlock(&s->dir);
	mutex_unlock(&s->space_mu);
	return rc;
}

int store_segment_turn_locked(struct store *s, uint32_t n)
{
	struct store_segment *old = s->open, *next = NULL;
	int rc;

	assert(!s->is_turning);
	s->is_turning = true;
	s->open = NULL;
	mutex_unlock(&s->mu);
	if (old)
		store_writer_put(s, old);
	rc = make_segment(s, n, &next);
	mutex_lock(&s->mu);
	assert(s->is_turning && !s->open); /* whoever else finds no room waits for us */
	s->open = next;
	s->is_turning = false;
	cond_broadcast(&s->turned);
	return rc;
}
