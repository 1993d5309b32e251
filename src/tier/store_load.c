/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a persistent store holds: taken in when it is opened and, as far as it is new, every few
 * seconds after that.
 *
 * A sealed segment is read by its footer. One without a right footer is either being written by
 * somebody, who has it locked, or was left by a daemon that was killed: whoever gets the lock reads
 * it through for seals, and seals it, so that it is read through only once. Segments of the dataset
 * of another filesystem are sealed likewise, but not kept open: only their numbers are noted.
 *
 * A record that two segments have is used in the segment that was made last, so that all daemons
 * let the same segment go. Nothing that is found here is believed before it was read and compared.
 * Runs on whoever opens the store or makes a segment, and on the background thread. Must never
 * change a segment without its lock, nor fail for what a single file holds.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "clairfs/base/compare.h"
#include "clairfs/base/log.h"
#include "store_priv.h"

#define SCAN_BLOCKS 1024u

struct loading {
	struct store *s;
	struct store_segment *segment;
	void *block; /* one, aligned */
	uint64_t n_blocks;
	struct store_trailer trailer;
	bool is_new;     /* scanned: entries are gathered for a footer */
	bool has_failed; /* a read has: what it holds is not known */
	bool was_sealed; /* its trailer is right */
	bool may_scan;
};

/* --- the records --- */

static int gather_sealed(struct store_segment *segment, const struct store_entry *e)
{
	if (segment->n_entries == segment->entries_room) {
		uint32_t room = segment->entries_room ? segment->entries_room * 2 : 256;
		struct store_entry *more = realloc(segment->entries, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		segment->entries = more;
		segment->entries_room = room;
	}
	segment->entries[segment->n_entries++] = *e;
	return 0;
}

static int scan_entry(void *ctx, const struct store_entry *e)
{
	return gather_sealed(((struct loading *)ctx)->segment, e);
}

static bool read_trailer(struct loading *l)
{
	if (l->n_blocks < 2 || l->n_blocks > STORE_SEGMENT_BLOCKS)
		return false;
	if (store_read_all(&l->s->dir, l->segment->fd, l->block, STORE_BLOCK,
			   (l->n_blocks - 1) * STORE_BLOCK) < 0) {
		l->has_failed = true;
		return false;
	}
	l->was_sealed =
		store_trailer_decode(l->block, &l->segment->header, l->n_blocks, &l->trailer);
	return l->was_sealed;
}

/* Calls each() with what the footer lists. */
static int load_footer(struct loading *l, int (*each)(void *ctx, const struct store_entry *e))
{
	size_t size = (size_t)l->trailer.footer_blocks * STORE_BLOCK;
	void *bytes = NULL;
	int rc;

	if (size == 0)
		return 0;
	if (posix_memalign(&bytes, STORE_BLOCK, size) != 0)
		return -ENOMEM;
	rc = store_read_all(&l->s->dir, l->segment->fd, bytes, size,
			    (uint64_t)l->trailer.footer_block * STORE_BLOCK);
	if (rc == 0)
		rc = store_footer_decode(bytes, &l->trailer, each, l);
	free(bytes);
	return rc;
}

/* Looks for seals from the first block to the end of the file. */
static int load_scan(struct loading *l)
{
	uint64_t n = MIN(l->n_blocks, (uint64_t)STORE_SEGMENT_BLOCKS);
	uint32_t free_block = 1;
	void *bytes = NULL;
	int rc = 0;

	if (posix_memalign(&bytes, STORE_BLOCK, (size_t)SCAN_BLOCKS * STORE_BLOCK) != 0)
		return -ENOMEM;
	l->segment->n_entries = 0;
	for (uint32_t at = 1; rc == 0 && at < n; at += SCAN_BLOCKS) {
		uint32_t part = (uint32_t)MIN(n - at, SCAN_BLOCKS);

		if (store_is_stopping(l->s)) {
			rc = -ECANCELED;
			break;
		}
		/* What can't be read has no records; it must not cost the others. */
		if (store_read_all(&l->s->dir, l->segment->fd, bytes, (size_t)part * STORE_BLOCK,
				   (uint64_t)at * STORE_BLOCK) < 0)
			l->has_failed = true;
		else
			rc = store_scan(bytes, at, part, &l->segment->header, &free_block,
					scan_entry, l);
	}
	free(bytes);
	store_drop_cache(&l->s->dir, l->segment->fd, 0, n * STORE_BLOCK);
	l->segment->tail = free_block;
	return rc;
}

/* --- segments of other filesystems --- */

static bool is_foreign(const struct store *s, uint64_t id)
{
	return s->n_foreign && bsearch(&id, s->foreign, s->n_foreign, sizeof(id), compare_u64);
}

/* Without memory it is looked at again in the next round. */
static void note_foreign(struct store *s, uint64_t id)
{
	if (s->n_foreign_met == s->foreign_room) {
		uint32_t room = s->foreign_room ? s->foreign_room * 2 : 64;
		uint64_t *more = realloc(s->foreign_met, room * sizeof(*more));

		if (!more)
			return;
		s->foreign_met = more;
		s->foreign_room = room;
	}
	s->foreign_met[s->n_foreign_met++] = id;
}

/* A round has ended: what was not met any more is forgotten. */
static void turn_foreign(struct store *s)
{
	free(s->foreign);
	s->foreign = s->foreign_met;
	s->n_foreign = s->n_foreign_met;
	s->foreign_met = NULL;
	s->n_foreign_met = s->foreign_room = 0;
	if (s->n_foreign)
		qsort(s->foreign, s->n_foreign, sizeof(*s->foreign), compare_u64);
}

void store_pass_over(struct store *s, uint64_t id)
{
	uint64_t *more = realloc(s->foreign, (s->n_foreign + 1ull) * sizeof(*more));

	if (!more)
		return; /* then it is taken in again, and let go again */
	s->foreign = more;
	s->foreign[s->n_foreign++] = id;
	qsort(s->foreign, s->n_foreign, sizeof(*s->foreign), compare_u64);
}

/* --- one segment --- */

static int load_measure(struct loading *l)
{
	struct stat st;

	if (fstat(l->segment->fd, &st) < 0 || st.st_nlink == 0)
		return -ENOENT;
	l->n_blocks = (uint64_t)st.st_size / STORE_BLOCK;
	return 0;
}

static int load_header(struct loading *l, uint64_t id)
{
	int rc = l->n_blocks == 0
			 ? -EBADMSG
			 : store_read_all(&l->s->dir, l->segment->fd, l->block, STORE_BLOCK, 0);

	if (rc == 0)
		rc = store_header_decode(l->block, &l->segment->header);
	return rc == 0 && l->segment->header.segment != id ? -EBADMSG : rc;
}

/* Of the file, whose lock we have; only if it is still that file. */
static void remove_ruin(struct loading *l, uint64_t id)
{
	char name[STORE_NAME_SIZE];
	struct stat by_name, st;

	store_segment_name(id, name);
	if (fstat(l->segment->fd, &st) == 0 &&
	    fstatat(l->s->dir.fd, name, &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_ino == by_name.st_ino && st.st_dev == by_name.st_dev &&
	    l->s->dir.sys->unlinkat(l->s->dir.fd, name, 0) == 0)
		log_info("store: removed segment %s, of which nothing is left", name);
}

/* Left without a footer. With the lock: reads it through. 1 when there is something in it. */
static int load_recover(struct loading *l, uint64_t id)
{
	int rc = flock(l->segment->fd, LOCK_EX | LOCK_NB);

	if (rc < 0)
		return 0; /* being written, or read through by somebody else */
	l->has_failed = l->was_sealed = false;
	l->segment->n_entries = 0;
	rc = load_measure(l);
	if (rc == 0)
		rc = load_header(l, id);
	if (rc == -EBADMSG)
		remove_ruin(l, id);
	if (rc < 0)
		return rc == -ENOMEM ? rc : 0;
	if (read_trailer(l) && load_footer(l, scan_entry) == 0)
		return 1; /* sealed just now */
	rc = load_scan(l);
	if (rc < 0)
		return rc == -ENOMEM || rc == -ECANCELED ? rc : 0;
	if (l->segment->n_entries == 0) {
		if (l->has_failed) /* not again in this mount: it is a GiB of failing reads */
			note_foreign(l->s, id);
		else
			remove_ruin(l, id);
		return 0;
	}
	log_info("store: found %u records in a segment that was not finished",
		 l->segment->n_entries);
	/* A footer written where a record was that could not be read, or that somebody has found
	 * in its time, would change what others have verified. */
	l->is_new = !l->has_failed && !l->was_sealed;
	return 1;
}

static int take_entries(struct loading *l, struct store_segment *segment)
{
	int rc = 0;

	for (uint32_t i = 0; i < segment->n_entries && rc == 0; i++) {
		rc = store_segment_keep(l->s, segment, &segment->entries[i], 0);
		if (rc == -EEXIST) {
			rc = 0;
			if (l->is_new || atomic_load(&segment->is_shared))
				store_segment_prefer(l->s, segment, &segment->entries[i]);
		}
	}
	if (rc == 0 && l->is_new && store_segment_seal(l->s, segment) < 0)
		log_info("store: a segment that was not finished could not be sealed");
	free(segment->entries);
	segment->entries = NULL;
	segment->n_entries = segment->entries_room = 0;
	atomic_store(&segment->is_sealed, true);
	return rc;
}

static int load_enter(struct loading *l)
{
	struct store *s = l->s;
	struct store_segment *segment = l->segment;
	bool is_claimed;
	int rc;

	atomic_store(&segment->bytes, l->n_blocks * STORE_BLOCK);
	mutex_lock(&segment->lock_mu);
	if (!l->is_new)
		atomic_store(&segment->is_shared, flock(segment->fd, LOCK_SH | LOCK_NB) == 0);
	mutex_unlock(&segment->lock_mu);
	rc = store_segment_enter(s, segment);
	if (rc < 0)
		return 0; /* more than we have slots for */
	l->segment = NULL;
	store_segment_get(segment); /* once it is sealed others may give it up */
	rc = take_entries(l, segment);
	mutex_lock(&s->mu);
	is_claimed = s->is_claimed;
	mutex_unlock(&s->mu);
	/* Too late to be looked for when the mount began: store_n_found() has it looked for again.
	 */
	if (rc == 0 && is_claimed) {
		store_segment_unshare(segment);
		atomic_fetch_add(&s->n_found, 1);
	}
	if (rc < 0)
		store_segment_retire(s, segment);
	store_segment_put(s, segment);
	return rc;
}

static void leave_foreign(struct loading *l)
{
	if (l->is_new && store_segment_seal(l->s, l->segment) < 0)
		log_info("store: a segment that was not finished could not be sealed");
	note_foreign(l->s, l->segment->header.segment);
}

/* 1: the segment is to be entered. */
static int look_at_segment(struct loading *l, uint64_t id)
{
	int rc = load_measure(l);

	if (rc == 0)
		rc = load_header(l, id);
	if (rc == -EPROTONOSUPPORT || rc == -ENOENT)
		return 0;
	if (rc == 0 && read_trailer(l)) {
		rc = load_footer(l, scan_entry);
		if (rc == 0)
			return 1;
		if (rc == -ENOMEM)
			return rc;
	}
	return l->may_scan ? load_recover(l, id) : 0;
}

struct load {
	struct store *s;
	bool may_scan;
};

static int load_one(void *ctx, uint64_t id)
{
	const struct load *load = ctx;
	struct store *s = load->s;
	struct loading l = { .s = s, .may_scan = load->may_scan };
	struct store_segment *known;
	int rc;

	if (load->may_scan && store_is_stopping(s))
		return -ECANCELED;
	known = store_segment_by_id(s, id);
	if (known) {
		store_segment_put(s, known);
		return 0;
	}
	if (is_foreign(s, id)) {
		note_foreign(s, id);
		return 0;
	}
	if (store_segment_free_slots(s) <= s->p.max_segments / 4) { /* for what we write */
		log_limited(LOG_LEVEL_WARN,
			    "store: more segments than descriptors are set aside for: some are "
			    "passed over (limit of open files)");
		return 0;
	}
	l.segment = store_segment_new();
	if (!l.segment)
		return -ENOMEM;
	if (posix_memalign(&l.block, STORE_BLOCK, STORE_BLOCK) != 0) {
		store_segment_free(l.segment);
		return -ENOMEM;
	}
	l.segment->fd = store_dir_open_segment(&s->dir, id, O_RDWR);
	if (l.segment->fd == -EROFS || l.segment->fd == -EACCES)
		l.segment->fd = store_dir_open_segment(&s->dir, id, O_RDONLY);
	rc = l.segment->fd < 0 ? 0 : look_at_segment(&l, id);
	if (rc == 1 && l.segment->header.fsid != s->p.fsid) {
		leave_foreign(&l);
		rc = 0;
	}
	if (rc == 1)
		rc = load_enter(&l);
	if (l.segment)
		store_segment_free(l.segment);
	free(l.block);
	return rc;
}

int store_load(struct store *s, bool may_scan)
{
	struct load load = { s, may_scan };
	int rc = s->dir.is_persistent ? store_dir_each(&s->dir, load_one, &load) : 0;

	if (rc == 0)
		turn_foreign(s);
	else
		s->n_foreign_met = 0;
	return rc;
}

void store_retire_removed(struct store *s)
{
	uint32_t n = 1;

	for (uint32_t i = 0; i < n; i++) {
		struct store_segment *segment;
		struct stat st;

		mutex_lock(&s->mu);
		n = s->slots_top;
		segment = s->segments[i];
		if (segment &&
		    (!atomic_load(&segment->is_sealed) || !store_segment_try_get(segment)))
			segment = NULL;
		mutex_unlock(&s->mu);
		if (!segment)
			continue;
		if (fstat(segment->fd, &st) == 0 && st.st_nlink == 0)
			store_segment_retire(s, segment);
		store_segment_put(s, segment);
	}
}
