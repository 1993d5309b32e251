/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments, made and sealed.
 *
 * Space is reserved for a whole segment before it is written, so records lie together on the drive
 * and running out of space is noticed between segments. Whoever finds no room turns: it makes the
 * next segment while the others wait. The old one is sealed by whoever writes its last record.
 *
 * Any thread: those that put, and the background thread for segments that are left. Must never
 * write over a record.
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
