/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for the next segment: the budget, what the filesystem has left, and segments that may be
 * given up for it.
 *
 * The budget counts the files of all daemons in the directory as they lie on the drive, whoever
 * wrote them. Only whole segments are given up, because a hole per record costs as much as half a
 * write, and only when room is needed, in the budget or on a drive that is full before: first those
 * of which neither this mount nor another living one wants anything (they hold a shared lock),
 * least recently used first; then those of which less than a quarter is wanted, because the rest is
 * of other versions of files or in other segments, too. What was wanted of them is read from the
 * source again and written when it comes by; there is no room for copying it, that is why it goes.
 * A budget that was lowered is kept even if that costs wanted ones.
 *
 * A segment that is mostly copies may be held by several daemons, each for the little that is only
 * there. So when the budget is used up each of them lets go of such segments by itself, one every
 * few seconds, whether it needs room or not; whoever needs it then finds them unlocked.
 *
 * Runs on whoever makes a segment, with the directory's lock, once when the dataset was looked
 * through, and on the background thread. Must never give up a segment that is being written, nor
 * touch one of another version.
 */
#include <assert.h>
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
#define LIVE_PARTS 4u                    /* of a segment that is kept a quarter or more is wanted */
#define FRAME_BYTES (3ull * STORE_BLOCK) /* what a segment of one record has besides it */
#define ROOM_LEAST (2ull << 20)

/* What is still to be made: into the budget `bytes` more are to fit, and the filesystem is to get
 * `missing` back. What was given up counts as back at once: whoever has it open still lets it go
 * within a round, and until then giving up more would be too much. */
struct room {
	uint64_t bytes, missing, used;
};

struct candidate {
	uint64_t id, bytes;
	int64_t used_ns; /* written, or wanted by a mount that began or ended then */
};

struct survey {
	struct store *s;
	bool want_any; /* wanted ones are candidates, too */
	uint64_t bytes;
	bool is_sum_only;
	struct candidate *candidates;
	uint32_t n, room;
};

void store_space_lock(struct store *s)
{
	mutex_lock(&s->space_mu);
	store_dir_lock(&s->dir);
}

void store_space_unlock(struct store *s)
{
	store_dir_unlock(&s->dir);
	mutex_unlock(&s->space_mu);
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

static int add_candidate(struct survey *v, const struct candidate *candidate)
{
	if (v->n == v->room) {
		uint32_t room = v->room ? v->room * 2 : 64;
		struct candidate *more = realloc(v->candidates, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		v->candidates = more;
		v->room = room;
	}
	assert(v->n < v->room);
	v->candidates[v->n++] = *candidate;
	return 0;
}

static int compare_age(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

static int survey_one(void *ctx, uint64_t id)
{
	struct survey *v = ctx;
	char name[STORE_NAME_SIZE];
	struct candidate found;
	struct stat st;

	store_segment_name(id, name);
	if (fstatat(v->s->dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return 0;
	/* A sparse file counts as what it may grow to. */
	found = (struct candidate){ id, MAX((uint64_t)st.st_size, (uint64_t)st.st_blocks * 512),
				    MAX(file_time_ns(st.st_mtim.tv_sec, st.st_mtim.tv_nsec),
					file_time_ns(st.st_atim.tv_sec, st.st_atim.tv_nsec)) };
	v->bytes += found.bytes;
	return v->is_sum_only || is_needed(v, id) ? 0 : add_candidate(v, &found);
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
static bool give_up_segment(struct store *s, uint64_t id, bool want_any)
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

static bool is_short(const struct store *s, const struct room *room)
{
	return room->used + room->bytes > s->p.limit_bytes || room->missing > 0;
}

static void gave_up(struct room *room, uint64_t bytes)
{
	room->used -= MIN(room->used, bytes);
	room->missing -= MIN(room->missing, bytes);
}

/* Gives up what nobody wants, or with want_any anything that is sealed; says what is used. */
static int give_up_oldest(struct store *s, struct room *room, bool may_give_up, bool want_any)
{
	struct survey v = { .s = s, .want_any = want_any, .is_sum_only = !may_give_up };
	int rc = store_dir_each(&s->dir, survey_one, &v);

	room->used = v.bytes;
	if (rc == 0 && v.n && is_short(s, room))
		qsort(v.candidates, v.n, sizeof(*v.candidates), compare_age);
	for (uint32_t i = 0; rc == 0 && i < v.n && is_short(s, room); i++)
		if (give_up_segment(s, v.candidates[i].id, want_any))
			gave_up(room, v.candidates[i].bytes);
	free(v.candidates);
	return rc;
}

/* --- segments of which little is wanted --- */

static bool is_little(const struct store_segment *segment, uint64_t part_bytes)
{
	uint64_t bytes = atomic_load(&segment->bytes);

	return part_bytes < (bytes - MIN(bytes, FRAME_BYTES)) / LIVE_PARTS;
}

/* Nearly all that it holds is found elsewhere, or wrong: true for every daemon that looks. */
static bool is_mostly_copies(const struct store_segment *segment)
{
	return is_little(segment, atomic_load(&segment->kept_bytes));
}

/* The segment in this slot with a reference if it is sealed and little of it is wanted. */
static struct store_segment *get_little(struct store *s, uint32_t slot, uint32_t *ret_n)
{
	struct store_segment *segment;

	mutex_lock(&s->mu);
	*ret_n = s->slots_top;
	segment = slot < s->slots_top ? s->segments[slot] : NULL;
	if (segment && (!atomic_load(&segment->is_sealed) || atomic_load(&segment->is_retired) ||
			!is_little(segment, atomic_load(&segment->wanted_bytes)) ||
			!store_segment_try_get(segment)))
		segment = NULL;
	mutex_unlock(&s->mu);
	return segment;
}

/* Bytes that the drive has back. Where others hold it as well only our lock goes, and only if they
 * can do without it, too. */
static uint64_t let_go(struct store *s, struct store_segment *segment) REQUIRES(s->space_mu)
{
	uint64_t bytes = atomic_load(&segment->bytes);

	if (!s->dir.is_persistent) {
		store_segment_retire(s, segment);
		metrics_add(s->metrics, METRIC_STORE_RECLAIMED, 1);
		return bytes;
	}
	if (give_up_segment(s, segment->header.segment, true))
		return bytes;
	if (is_mostly_copies(segment)) {
		store_pass_over(s, segment->header.segment);
		store_segment_retire(s, segment);
	}
	return 0;
}

static void give_up_little(struct store *s, struct room *room) REQUIRES(s->space_mu)
{
	uint32_t n = 1;

	for (uint32_t i = 0; i < n && is_short(s, room); i++) {
		struct store_segment *segment = get_little(s, i, &n);

		if (!segment)
			continue;
		gave_up(room, let_go(s, segment));
		store_segment_put(s, segment);
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

/* Makes that room, as far as it goes. */
static int space_make_room(struct store *s, struct room *room) REQUIRES(s->space_mu)
{
	bool may_give_up;
	int rc = 0;

	mutex_lock(&s->mu);
	may_give_up = s->is_claimed || !s->dir.is_persistent;
	mutex_unlock(&s->mu);
	if (s->dir.is_persistent)
		rc = give_up_oldest(s, room, may_give_up, false);
	else
		room->used = private_used(s);
	if (rc == 0 && may_give_up)
		give_up_little(s, room);
	return rc;
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
	struct survey v = { .s = s, .is_sum_only = true };
	struct statvfs st;

	if (s->dir.is_persistent && store_dir_each(&s->dir, survey_one, &v) < 0)
		v.bytes = 0;
	if (s->dir.sys->fstatvfs(s->dir.fd, &st) < 0)
		return v.bytes;
	return (v.bytes + (uint64_t)st.f_bavail * st.f_frsize) / 2;
}

/* What the filesystem has for us and others, and what of it `bytes` more are short of. */
static int free_bytes(const struct store *s, uint64_t bytes, uint64_t *ret, uint64_t *ret_missing)
{
	struct statvfs st;
	uint64_t n, keep = s->p.keep_free_bytes;

	if (s->dir.sys->fstatvfs(s->dir.fd, &st) < 0)
		return errno == ENOSPC ? -EAGAIN : -errno; /* -ENOSPC is the budget's */
	n = (uint64_t)st.f_bavail * st.f_frsize;
	*ret = n > keep ? n - keep : 0;
	*ret_missing = *ret >= bytes ? 0 : bytes + (keep > n ? keep - n : 0) - *ret;
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
	uint64_t want = MAX(segment_bytes(s), least), available = 0, missing = 0;
	struct room room = { .bytes = MIN(want, s->p.limit_bytes) };
	int rc = free_bytes(s, room.bytes, &available, &room.missing);

	if (rc == 0)
		rc = space_make_room(s, &room);
	if (rc == 0)
		rc = free_bytes(s, least, &available, &missing);
	if (rc < 0)
		return rc;
	if (room.used + least > s->p.limit_bytes)
		return has_leftover(s) ? -EAGAIN : -ENOSPC;
	if (missing)
		return -EAGAIN;
	assert(room.used < s->p.limit_bytes);
	*ret = ALIGN_DOWN(MIN(want, MIN(s->p.limit_bytes - room.used, available)),
			  (uint64_t)STORE_BLOCK);
	return 0;
}

bool store_space_refused(struct store *s, uint64_t bytes)
{
	struct room room = { .missing = bytes };

	return space_make_room(s, &room) == 0 && room.missing < bytes;
}

void store_shrink(struct store *s)
{
	struct room room = { 0 };

	if (!s->dir.is_persistent)
		return;
	store_space_lock(s);
	if (space_make_room(s, &room) == 0 && room.used > s->p.limit_bytes)
		(void)give_up_oldest(s, &room, true, true);
	store_space_unlock(s);
}

void store_touch_wanted(struct store *s)
{
	static const struct timespec times[2] = { { .tv_nsec = UTIME_NOW },
						  { .tv_nsec = UTIME_OMIT } };
	uint32_t n = s->dir.is_persistent ? 1 : 0;

	for (uint32_t i = 0; i < n; i++) {
		struct store_segment *segment;

		mutex_lock(&s->mu);
		n = s->slots_top;
		segment = s->segments[i];
		if (segment &&
		    (!atomic_load(&segment->is_sealed) || !atomic_load(&segment->n_wanted) ||
		     !store_segment_try_get(segment)))
			segment = NULL;
		mutex_unlock(&s->mu);
		if (!segment)
			continue;
		(void)futimens(segment->fd, times);
		store_segment_put(s, segment);
	}
}

/* One of those that no daemon needs, so that whoever is to give it up finds it unlocked. */
static void let_go_of_copies(struct store *s) REQUIRES(s->space_mu)
{
	uint32_t n = 1;
	bool is_done = false;

	for (uint32_t i = 0; i < n && !is_done; i++) {
		struct store_segment *segment = get_little(s, i, &n);

		if (!segment)
			continue;
		is_done = is_mostly_copies(segment);
		if (is_done)
			(void)let_go(s, segment);
		store_segment_put(s, segment);
	}
}

/* The budget's end, or the filesystem's: then copies are let go. */
static bool is_used_up(const struct store *s, const struct room *room)
{
	uint64_t available, missing;

	return room->used + room->bytes > s->p.limit_bytes ||
	       (free_bytes(s, room->bytes, &available, &missing) == 0 && missing > 0);
}

void store_tend_space(struct store *s)
{
	uint64_t bytes = MIN(segment_bytes(s), s->p.limit_bytes);
	bool is_full = atomic_load(&s->is_full), is_claimed;
	struct room room = { .bytes = bytes };
	int rc;

	mutex_lock(&s->mu);
	is_claimed = s->is_claimed;
	mutex_unlock(&s->mu);
	store_space_lock(s);
	if (is_full)
		rc = space_make_room(s, &room);
	else
		rc = s->dir.is_persistent ? give_up_oldest(s, &room, false, false) : 0;
	if (rc == 0 && s->dir.is_persistent && is_claimed && is_used_up(s, &room))
		let_go_of_copies(s);
	store_space_unlock(s);
	/* Not for a few records: each time makes a segment. */
	bytes = MAX(MIN(bytes, ROOM_LEAST), bytes / 8);
	if (rc == 0 && is_full && room.used + bytes <= s->p.limit_bytes &&
	    store_segment_free_slots(s) > 0) {
		atomic_store(&s->is_full, false);
		log_info("store: there is room again");
	}
}
