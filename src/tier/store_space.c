/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for the next segment: the budget, what the filesystem has left, and segments that may be
 * given up for it.
 *
 * The budget counts the files of all daemons in the directory as they lie on the drive, whoever
 * wrote them. Only whole segments are given up, because a hole per record costs as much as half a
 * write: those of which neither this mount nor another living one wants anything (they hold a
 * shared lock), least recently used first. A budget that was lowered is kept even if that costs
 * wanted ones.
 *
 * Runs on whoever makes a segment, with the directory's lock, and once when the dataset was looked
 * through. Must never give up a segment that is being written, nor touch one of another version.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "clairfs/base/log.h"
#include "store_priv.h"

#define SEGMENT_USUAL (512ull << 20)
#define SEGMENT_SMALL (128ull << 20)
#define SEGMENT_MAX ((uint64_t)STORE_SEGMENT_BLOCKS * STORE_BLOCK)
#define SEGMENT_LEAST (64ull << 10)

struct survey {
	struct store *s;
	bool want_any; /* wanted ones are candidates, too */
	uint64_t bytes;
	uint64_t oldest_id;
	struct timespec oldest;
	bool has_oldest;
	const uint64_t *tried; /* candidates that somebody holds */
	uint32_t n_tried;
};

static bool was_tried(const struct survey *v, uint64_t id)
{
	for (uint32_t i = 0; i < v->n_tried; i++)
		if (v->tried[i] == id)
			return true;
	return false;
}

/* What we know of it forbids giving it up. */
static bool is_needed(const struct survey *v, uint64_t id)
{
	struct store_segment *segment = store_segment_by_id(v->s, id);
	bool is;

	if (!segment)
		return false;
	is = !atomic_load(&segment->is_sealed) ||
	     (atomic_load(&segment->n_wanted) > 0 && !v->want_any);
	store_segment_put(v->s, segment);
	return is;
}

static int survey_one(void *ctx, uint64_t id)
{
	struct survey *v = ctx;
	char name[STORE_NAME_SIZE];
	struct stat st;

	store_segment_name(id, name);
	if (fstatat(v->s->dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return 0;
	/* A sparse file counts as what it may grow to. */
	v->bytes += MAX((uint64_t)st.st_size, (uint64_t)st.st_blocks * 512);
	if (was_tried(v, id) || is_needed(v, id) ||
	    (v->has_oldest &&
	     (st.st_mtim.tv_sec > v->oldest.tv_sec ||
	      (st.st_mtim.tv_sec == v->oldest.tv_sec && st.st_mtim.tv_nsec >= v->oldest.tv_nsec))))
		return 0;
	v->oldest = st.st_mtim;
	v->oldest_id = id;
	v->has_oldest = true;
	return 0;
}

/* Whether the file is a segment of this version; what is of another one is left to people. */
static bool is_of_ours(const struct store *s, int fd)
{
	struct store_header header;
	void *block = NULL;
	bool is;

	if (posix_memalign(&block, STORE_BLOCK, STORE_BLOCK) != 0)
		return false;
	is = store_read_all(&s->dir, fd, block, STORE_BLOCK, 0) == 0 &&
	     store_header_decode(block, &header) == 0;
	free(block);
	return is;
}

static bool give_up_unknown(struct store *s, uint64_t id)
{
	AUTO_FD int fd = store_dir_open_segment(&s->dir, id, O_RDONLY);
	char name[STORE_NAME_SIZE];

	store_segment_name(id, name);
	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && is_of_ours(s, fd) &&
	       s->dir.sys->unlinkat(s->dir.fd, name, 0) == 0;
}

/* False when somebody holds it. */
static bool give_up(struct store *s, uint64_t id, bool want_any)
{
	struct store_segment *segment = store_segment_by_id(s, id);
	bool is_done =
		segment ? store_segment_unlink(s, segment, want_any) : give_up_unknown(s, id);

	if (segment && is_done) {
		log_debug("store: gave up a segment of %llu records",
			  (unsigned long long)atomic_load(&segment->n_records));
		store_segment_retire(s, segment);
	}
	if (is_done)
		metrics_add(s->metrics, METRIC_STORE_RECLAIMED, 1);
	if (segment)
		store_segment_put(s, segment);
	return is_done;
}

/* Makes room until `bytes` more fit into the budget, as far as that goes; what is used then. */
static int make_room(struct store *s, uint64_t bytes, bool may_give_up, bool want_any,
		     uint64_t *ret_used)
{
	uint64_t tried[64];
	struct survey v;
	uint32_t n_tried = 0;

	for (;;) {
		int rc;

		v = (struct survey){
			.s = s, .want_any = want_any, .tried = tried, .n_tried = n_tried
		};
		rc = store_dir_each(&s->dir, survey_one, &v);
		if (rc < 0)
			return rc;
		*ret_used = v.bytes;
		if (v.bytes + bytes <= s->p.limit_bytes || !may_give_up || !v.has_oldest ||
		    n_tried == ARRAY_LEN(tried))
			return 0;
		if (!give_up(s, v.oldest_id, want_any))
			tried[n_tried++] = v.oldest_id;
	}
}

/* Segments of ours; one that is not sealed counts with all it has reserved. */
static uint64_t private_used(struct store *s)
{
	uint64_t n = 0;

	mutex_lock(&s->mu);
	for (uint32_t i = 0; i < s->slots_top; i++) {
		const struct store_segment *segment = s->segments[i];

		if (segment && atomic_load(&segment->is_sealed))
			n += atomic_load(&segment->bytes);
		else if (segment)
			n += (uint64_t)segment->header.n_blocks * STORE_BLOCK;
	}
	mutex_unlock(&s->mu);
	return n;
}

/* Whether a segment of ours could not be sealed: what it has reserved comes back when it can. */
static bool has_leftover(struct store *s)
{
	bool has = false;

	mutex_lock(&s->mu);
	for (uint32_t i = 0; i < s->slots_top; i++)
		has |= s->segments[i] && store_segment_is_leftover(s->segments[i]);
	mutex_unlock(&s->mu);
	return has;
}

uint64_t store_default_limit(struct store *s)
{
	struct survey v = { .s = s };
	struct statvfs st;

	if (s->dir.is_persistent && store_dir_each(&s->dir, survey_one, &v) < 0)
		v.bytes = 0;
	if (s->dir.sys->fstatvfs(s->dir.fd, &st) < 0)
		return v.bytes;
	return (v.bytes + (uint64_t)st.f_bavail * st.f_frsize) / 2;
}

/* Bytes that may still be taken from the filesystem. */
static int free_bytes(const struct store *s, uint64_t *ret)
{
	struct statvfs st;
	uint64_t n;

	if (s->dir.sys->fstatvfs(s->dir.fd, &st) < 0)
		return errno == ENOSPC ? -EAGAIN : -errno; /* -ENOSPC is the budget's */
	n = (uint64_t)st.f_bavail * st.f_frsize;
	*ret = n > s->p.keep_free_bytes ? n - s->p.keep_free_bytes : 0;
	return 0;
}

/* ext4 describes a reservation by pieces of 128 MiB, and up to four of them without a block of
 * their own. A file that goes to and fro between four and five, as one of 256 MiB does, has such a
 * block made and freed at every write (and discarded where the mount says so): small records then
 * take two to five times as long. So it is many pieces, or one. */
static uint64_t segment_bytes(const struct store *s)
{
	uint64_t most = s->p.limit_bytes, want;

	if (s->p.segment_bytes)
		return MAX(SEGMENT_LEAST,
			   MIN(SEGMENT_MAX, ALIGN_DOWN(s->p.segment_bytes, (uint64_t)STORE_BLOCK)));
	/* Several daemons share a budget: one segment must not be all of it. */
	if (s->dir.is_persistent)
		most = MAX(SEGMENT_LEAST, ALIGN_DOWN(most / 8, (uint64_t)STORE_BLOCK));
	want = MIN(SEGMENT_MAX, ALIGN_DOWN(s->p.limit_bytes / 64, (uint64_t)STORE_BLOCK));
	return most >= SEGMENT_USUAL ? MAX(want, SEGMENT_USUAL) : MIN(most, SEGMENT_SMALL);
}

int store_space(struct store *s, uint32_t n_blocks, uint64_t *ret)
{
	uint64_t least = ((uint64_t)n_blocks + 3) * STORE_BLOCK;
	uint64_t want = MAX(segment_bytes(s), least), used = 0, available = 0;
	bool may_give_up;
	int rc = 0;

	mutex_lock(&s->mu);
	may_give_up = s->is_claimed;
	mutex_unlock(&s->mu);
	if (s->dir.is_persistent)
		rc = make_room(s, MIN(want, s->p.limit_bytes), may_give_up, false, &used);
	else
		used = private_used(s);
	if (rc == 0)
		rc = free_bytes(s, &available);
	if (rc < 0)
		return rc;
	if (used + least > s->p.limit_bytes)
		return has_leftover(s) ? -EAGAIN : -ENOSPC;
	if (available < least)
		return -EAGAIN;
	*ret = ALIGN_DOWN(MIN(want, MIN(s->p.limit_bytes - used, available)),
			  (uint64_t)STORE_BLOCK);
	return 0;
}

void store_shrink(struct store *s)
{
	uint64_t used;

	if (!s->dir.is_persistent)
		return;
	store_dir_lock(&s->dir);
	if (make_room(s, 0, true, false, &used) == 0 && used > s->p.limit_bytes)
		(void)make_room(s, 0, true, true, &used);
	store_dir_unlock(&s->dir);
}
