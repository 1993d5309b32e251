/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the store: format (bytes), index (what is where), dir (files and locks), segment
 * (the table, locks), turn (making, sealing), write (records), load (what is there already), space
 * (budget, giving up), read (the tier), care (the background thread). Tests use the index, the format
 * and the system calls.
 *
 * Locks: store->mu and reader.mu are leaves, as are those of the index's shards; none is held over
 * I/O. space_mu is outside of all others and held over I/O. A segment's lock_mu is outside the
 * shards', and held over flock() and unlink() only. */
#ifndef CLAIRFS_TIER_STORE_PRIV_H
#define CLAIRFS_TIER_STORE_PRIV_H

#include <errno.h>
#include <stdatomic.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

#include "clairfs/base/thr.h"
#include "clairfs/tier/store.h"
#include "store_format.h"
#include "store_index.h"

#define STORE_SEGMENTS_MAX 16383u /* slots of segments; one less than a place has room for */

/* --- dir --- */
/* The system calls of files of the store; tests put failing ones here. */
struct store_sys {
	int (*openat)(int dirfd, const char *name, int flags, mode_t mode);
	ssize_t (*pread)(int fd, void *bytes, size_t n, off_t offset);
	ssize_t (*pwritev)(int fd, const struct iovec *iov, int n, off_t offset);
	int (*fallocate)(int fd, int mode, off_t offset, off_t length);
	int (*ftruncate)(int fd, off_t length);
	int (*fstatvfs)(int fd, struct statvfs *st);
	int (*unlinkat)(int dirfd, const char *name, int flags);
};
extern const struct store_sys store_sys_real;

#define STORE_NAME_SIZE 32

struct store_dir {
	const struct store_sys *sys;
	int fd;
	int marker_fd; /* persistent only, else -1 */
	bool is_persistent;
	bool is_direct; /* reads and writes go around the page cache */
	int status;     /* not 0: why nothing could be written when it was opened */
};

/* Checks, and makes what is missing, as far as the drive lets us: dir->status. */
int store_dir_open(struct store_dir *dir, const char *path, bool is_persistent,
		   const struct store_sys *sys, struct err *err) MUST_USE;
void store_dir_close(struct store_dir *dir);
/* Tries what opening it could not do; 0 when all is well. With space_mu, for its lock. */
int store_dir_again(struct store_dir *dir) MUST_USE;
void store_segment_name(uint64_t id, char name[STORE_NAME_SIZE]);
/* A new file, unlinked or named and locked. The descriptor. */
int store_dir_make(const struct store_dir *dir, uint64_t id) MUST_USE;
/* Writes and reads back a block in a file without a name. */
int store_dir_try(const struct store_dir *dir) MUST_USE;
/* An unlinked file made under a name, for filesystems without O_TMPFILE; flags as for open. */
int store_file_make_named(const struct store_dir *dir, int flags);
/* Opens a segment that is there, for reading, with the checks of FORMAT.md. */
int store_dir_open_segment(const struct store_dir *dir, uint64_t id, int access) MUST_USE;
/* Only one daemon reserves space at a time; without it, when another one sleeps on it, after a
 * while: the budget may then be passed by a segment. Threads of this one need a mutex besides. */
void store_dir_lock(const struct store_dir *dir);
void store_dir_unlock(const struct store_dir *dir);
/* Calls each() with the number of every segment, until that is not 0. */
int store_dir_each(const struct store_dir *dir, int (*each)(void *ctx, uint64_t id),
		   void *ctx) MUST_USE;
/* All n bytes at `at`; -EIO when the file ends before. Buffer, n and `at` are multiples of 4096. */
int store_read_all(const struct store_dir *dir, int fd, void *bytes, size_t n,
		   uint64_t at) MUST_USE;
/* iov is used up. */
int store_write_all(const struct store_dir *dir, int fd, struct iovec *iov, int n_iov,
		    uint64_t at) MUST_USE;
/* Keeps the page cache out of it where reads and writes go through it. */
void store_drop_cache(const struct store_dir *dir, int fd, uint64_t at, uint64_t n);

/* --- segments --- */
struct store_segment {
	int fd;
	uint32_t slot;
	struct store_header header;
	_Atomic uint32_t refs;                              /* the table's, and reads under way */
	_Atomic uint32_t n_records, n_wanted, n_unverified; /* of what the index has */
	_Atomic uint64_t record_bytes;                      /* payload, likewise */
	_Atomic uint64_t kept_bytes, wanted_bytes;          /* on the drive, likewise */
	_Atomic uint64_t bytes; /* on the drive, up to the last record while it is written */
	bool is_ours;
	_Atomic bool is_sealed;
	struct mutex lock_mu; /* over flock(), is_shared, and n_wanted where one means the other */
	_Atomic bool is_shared; /* LOCK_SH is held; lock_mu to change */
	_Atomic bool is_retired;
	/* store->mu; of the writer */
	uint32_t tail, n_writers, n_entries, n_promised, entries_room;
	bool is_entries_lost; /* out of memory: not sealed */
	bool has_failed;      /* sealing it has */
	struct store_entry *entries;
};

struct store_reader {
	struct tier tier;
	struct mutex mu;
	struct cond is_idle;
	uint64_t n_reads;                        /* mu; begun and not ended */
	struct list urgent, waiting;             /* mu; reads that need a buffer */
	void **buffers;                          /* mu; n_free of them are there to be taken */
	uint32_t n_free, n_buffers, max_buffers; /* mu */
};

struct store {
	struct store_params p;
	struct store_dir dir;
	struct store_index index;
	struct store_reader reader;
	struct io *io;
	const char *engine_why;
	struct metrics *metrics;
	struct store_segment *segments[STORE_SEGMENTS_MAX]; /* mu to change */
	uint32_t slots_top; /* mu; slots from here on were never used */

	/* One thread makes room, with the directory's lock, or looks through the directory. */
	struct mutex space_mu;

	struct mutex mu;
	struct cond turned;         /* mu */
	struct store_segment *open; /* mu; being written, or NULL */
	bool is_turning;            /* mu; a thread makes the next segment */
	bool is_claimed;            /* mu; store_claimed() was called */
	uint64_t next_write_ns;     /* mu; of the cap */
	uint64_t last_write_ns;     /* mu */

	_Atomic bool is_full;     /* every put gives -ENOSPC from now on */
	_Atomic int write_status; /* not 0: why puts give -EAGAIN for the time being */
	_Atomic bool is_read_off;
	_Atomic uint32_t n_read_errors; /* in a row */
	_Atomic uint64_t bytes;         /* of all segments in the table */
	_Atomic uint32_t n_shared;      /* times that a lock was taken (again) */
	_Atomic uint32_t n_found;       /* segments taken in after is_claimed */
	/* All numbers of pieces that are or were kept are below. */
	_Atomic uint32_t pieces_end;

	/* space_mu: numbers of segments that are passed over, sorted, and those met in this round:
	 * of other filesystems, those that were let go, and those that cannot be read. */
	uint64_t *foreign, *foreign_met;
	uint32_t n_foreign, n_foreign_met, foreign_room;

	struct thr care;
	struct mutex care_mu;
	struct cond care_cv;
	bool is_stopping; /* care_mu */
};

/* Takes the segment into the table with one reference; -ENOBUFS when that is full. */
int store_segment_enter(struct store *s, struct store_segment *segment) MUST_USE;
/* How many more may be entered, now. */
uint32_t store_segment_free_slots(struct store *s);
void store_segment_get(struct store_segment *segment);
/* False for one whose last reference is just going; with store->mu. */
bool store_segment_try_get(struct store_segment *segment);
/* The last reference closes it. */
void store_segment_put(struct store *s, struct store_segment *segment);
/* Out of index and table, once; reads under way go on. With a reference besides the table's. */
void store_segment_retire(struct store *s, struct store_segment *segment);
/* The segment with this number, with a reference; or NULL. */
struct store_segment *store_segment_by_id(struct store *s, uint64_t id);
/* Enters a record that was written or found. -EEXIST, -ENOMEM. */
int store_segment_keep(struct store *s, struct store_segment *segment,
		       const struct store_entry *what, uint32_t flags) MUST_USE;
/* A read that began in this round of n_shared has found the record right. */
void store_segment_verified(struct store *s, struct store_segment *segment,
			    const struct store_tag *tag, uint32_t place, uint32_t round);
/* The index has lost the record that was found so. */
void store_segment_lost(struct store_segment *segment, const struct store_found *found,
			uint32_t length);
/* A new one, of nothing; or NULL. */
struct store_segment *store_segment_new(void);
void store_segment_free(struct store_segment *segment);
/* Enters a record that another segment has as well, if this one was made after that one: daemons
 * that see both use the same one. With a lock on the segment. */
void store_segment_prefer(struct store *s, struct store_segment *segment,
			  const struct store_entry *what);
/* Marks the record as wanted, and keeps others from giving its segment up. */
void store_segment_want(struct store *s, const struct store_tag *tag,
			const struct store_found *found, uint32_t length);
void store_segment_unwant(struct store *s, const struct store_tag *tag,
			  const struct store_found *found, uint32_t length);
/* Takes the shared lock; what happened before it is not known, so all records are to be verified
 * again. */
void store_segment_share(struct store *s, struct store_segment *segment);
/* Others may give it up unless something of it is wanted. */
void store_segment_unshare(struct store_segment *segment);
/* The same for all that are known, once it is known what is wanted. */
void store_unshare_all(struct store *s);
/* Unlinks its file unless somebody holds it, or it is wanted here and that matters. */
bool store_segment_unlink(struct store *s, struct store_segment *segment, bool even_wanted);
/* Whether others might have changed it: sealed, and not locked. */
static inline bool store_segment_is_loose(const struct store *s,
					  const struct store_segment *segment)
{
	return s->dir.is_persistent && atomic_load(&segment->is_sealed) &&
	       !atomic_load(&segment->is_shared);
}

/* Ours, and sealing it has failed; with store->mu. */
static inline bool store_segment_is_leftover(const struct store_segment *segment)
{
	return segment->has_failed && !segment->is_entries_lost &&
	       !atomic_load(&segment->is_sealed);
}
/* The filesystem or a quota is full, which is not the budget's end. */
static inline int store_without_room(int rc)
{
	return rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG ? -EAGAIN : rc;
}
/* Gives the open segment up for one that has room for a record of n blocks. */
int store_segment_turn_locked(struct store *s, uint32_t n) REQUIRES(s->mu) MUST_USE;
/* One writer less; the last one seals. A segment that could not be sealed is found by its records;
 * one without any, whose first write has failed, goes. */
void store_writer_put(struct store *s, struct store_segment *segment);
/* Footer and trailer; gives back what is left of the reservation. */
int store_segment_seal(struct store *s, struct store_segment *segment) MUST_USE;
/* No more records go to the open segment; it is sealed when the last write has ended. */
void store_close_open(struct store *s);
/* Tries again to seal what could not be. The background thread. */
void store_seal_leftovers(struct store *s);
/* Something failed; what a put is to return. */
int store_fail(struct store *s, int status, const char *what);

/* --- write --- */
/* Records that are put together, at most. */
#define STORE_BATCH_MAX 32u
#define STORE_BATCH_BYTES (2u << 20)

struct store_record {
	struct store_entry what; /* block: where it was put */
	const void *data;
	int status;
};
/* Writes n records, 1 to STORE_BATCH_MAX: space, bytes, footer entries, index. Each status: 0,
 * -EEXIST, or an error for store_fail(). */
void store_append(struct store *s, struct store_record *records, uint32_t n);

/* --- load --- */
/* Takes in what the directory holds that is not in the table yet; with may_scan what killed daemons
 * have left is read through, which takes seconds; -ECANCELED when the store stops meanwhile. */
int store_load(struct store *s, bool may_scan) REQUIRES(s->space_mu) MUST_USE;
/* Passes the segment over from now on, for the life of this mount. */
void store_pass_over(struct store *s, uint64_t id) REQUIRES(s->space_mu);
/* Lets go of sealed segments whose file was removed: open they cost space that nobody counts. */
void store_retire_removed(struct store *s);

/* --- space --- */
/* Room is made and reserved by one at a time: a thread of this daemon, one of all daemons. */
void store_space_lock(struct store *s) ACQUIRE(s->space_mu);
void store_space_unlock(struct store *s) RELEASE(s->space_mu);
/* Bytes that a new segment for a record of n blocks may have: 0 and *ret; -ENOSPC: the budget is
 * used up; -EAGAIN: the filesystem is; errno. Gives up segments that nobody wants. */
int store_space(struct store *s, uint32_t n_blocks, uint64_t *ret) REQUIRES(s->space_mu) MUST_USE;
/* The filesystem has refused `bytes` that it seemed to have (a quota): gives up as much. Whether
 * anything went. */
bool store_space_refused(struct store *s, uint64_t bytes) REQUIRES(s->space_mu) MUST_USE;
/* Half of what is free and what is in the directory already. */
uint64_t store_default_limit(struct store *s);
/* Segments of which something is wanted have been used now. */
void store_touch_wanted(struct store *s);
/* Gives up segments until the budget is kept. */
void store_shrink(struct store *s);
/* Now and then: lets go of segments of copies that others have as well when the budget is used up;
 * takes writes again when there is room. The background thread. */
void store_tend_space(struct store *s);

/* --- care --- */
int store_care_start(struct store *s, struct err *err) MUST_USE;
void store_care_stop(struct store *s);

/* --- the store --- */
int store_open_with(const struct store_params *params, const struct store_sys *sys,
		    struct store **ret, struct err *err) MUST_USE;
/* store_tier.c: as tier_ops. */
extern const struct tier_ops store_tier_ops;
void store_tier_read(struct tier *tier, struct tier_read *read);
void store_tier_free(struct tier *tier);
int store_reader_init(struct store_reader *reader, uint32_t max_inflight) MUST_USE;
/* Waits for reads to end. */
void store_reader_fini(struct store_reader *reader);
/* Whether store_stop() was called. Takes care_mu, a leaf. */
bool store_is_stopping(struct store *store);
/* Whether it is kept: then it is wanted. */
bool store_want_kept(struct store *s, const struct store_tag *tag, uint32_t length);
/* Forgets a record that turned out wrong. */
void store_drop_record(struct store *s, const struct store_tag *tag, uint32_t place,
		       uint32_t length);

#endif
