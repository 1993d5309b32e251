/* SPDX-License-Identifier: Apache-2.0 */
/* The store: pieces kept on a local NVMe drive, in preallocated segments of records that name the
 * file they are of and carry sums (src/tier/FORMAT.md). Written once; whole segments are given up,
 * never single records. Private to a mount, or persistent in a directory of one user: then jobs
 * that follow find it warm, and several daemons use it at once. */
#ifndef CLAIRFS_TIER_STORE_H
#define CLAIRFS_TIER_STORE_H

#include "clairfs/tier.h"

/* When a record's sums are compared. A record that another mount has written, or one before a
 * restart, is verified at its first read in any case: nothing else tells what a power cut left. */
enum store_verify {
	STORE_VERIFY_FIRST, /* the first read of every record, those written by this mount too */
	STORE_VERIFY_ALWAYS,
	STORE_VERIFY_OFF, /* not those written by this mount */
};
extern const char *const store_verify_names[]; /* "first" "always" "off", NULL */

struct store_params {
	/* Private: a directory of the caller that nobody else may write to, or a sticky one such as
	 * /tmp; nothing is left behind in it. Persistent: see store_open. */
	const char *dir;
	bool is_persistent;
	uint64_t fsid;        /* of the source, see store_fsid(): part of every identity */
	uint64_t limit_bytes; /* 0: half of what is free and what the store has already */
	/* Of the filesystem; looked at whenever a segment is reserved. */
	uint64_t keep_free_bytes;
	/* 0: a 64th of the limit, 512 MiB to 1 GiB; where that is more than the limit, or an eighth
	 * of it for a persistent one, 128 MiB at most. Rounded to 4096, 64 KiB to 1 GiB. */
	uint64_t segment_bytes;
	uint64_t write_bytes_per_s; /* cap of store_put, 0 = none */
	/* A store that was switched off is tried again this often; directories of other daemons are
	 * looked through at this pace, too. 0: 10 s. */
	uint64_t retry_ns;
	enum store_verify verify;
	enum io_engine engine;
	uint32_t max_inflight;
	/* Each holds a descriptor; what the directory has beyond is passed over. 0: 16383. */
	uint32_t max_segments;
	struct metrics *metrics;
};

struct store;
/* Private: unlinked files. Persistent: `dir` (its last component no symbolic link) must be the
 * caller's, writable by nobody else, and empty or a store already; it is 0700 afterwards. What it
 * holds is known when this returns: sealed segments by their footers, those of killed daemons by
 * their records (and sealed). Several daemons of a user may have it open: each writes segments of
 * its own and reads everybody's sealed ones. A drive that is full, read-only or fails is no error:
 * what can be read of it is, one warning says why nothing is written, and that is tried again like
 * everything that was switched off. -EPERM, -ENOTEMPTY (something else's directory),
 * -EPROTONOSUPPORT (of another version), errno. */
int store_open(const struct store_params *params, struct store **ret, struct err *err) MUST_USE;
/* Whether an error of a store's directory is the drive's, or what the administrator made of it, and
 * no sign that it is the wrong one: a job goes on without the store then. */
bool store_is_drive_error(int status);
/* After its tier's reads have ended; seals what is open. NULL allowed. */
void store_close(struct store *store);

/* An identity here is what names a version of a file for good, and it holds no path and no device:
 * two files of one source with the same one would get each other's bytes. The caller sees to it
 * that there are none (dataset_kept_identity()).
 *
 * Writes a piece; blocks, also for the cap. Any thread, several at once. 0; -EEXIST when it is kept
 * already; -EINVAL when length is not piece_length() of the identity; -ENOSPC when the budget is
 * used up and no segment may be given up; -EAGAIN when the store is switched off or its filesystem
 * or quota full. All of that is tried again every retry_ns; -EIO etc. of the write
 * that switched it off, logged and counted once; -ECANCELED after store_stop(); -ENOMEM. What is
 * kept is never harmed. Memory that is aligned to 4096 is written from without a copy. entry of the
 * key is for people who read the records. SIGXFSZ must be ignored or blocked. */
int store_put(struct store *store, struct piece_key key, const struct file_identity *identity,
	      const void *data, uint32_t length) MUST_USE;
/* store_put() of several pieces: records go to the drive together, which costs a fraction of the
 * time that small ones take one by one. Any n; each status is what
 * store_put() would have returned. */
void store_put_many(struct store *store, struct tier_piece *pieces, size_t n);
/* Whether the piece is kept for this identity and can be asked for now. Its segment then counts as
 * wanted by this mount. Any thread. */
bool store_has(struct store *store, struct piece_key key, const struct file_identity *identity);
/* The opposite, for what a job that is told later than its dataset will not read: as long as nobody
 * asks for pieces [first, end) again, they are no reason to keep their segments. Takes as long as
 * the largest file that is kept has pieces, and no longer. Any thread. */
void store_unwant(struct store *store, const struct file_identity *identity, uint32_t first,
		  uint32_t end);
/* The dataset was looked through with store_has(): from now on segments of which nothing is wanted
 * by this or another living daemon may be given up, least recently used first, to stay within the
 * budget and what the drive has, and after them those of which this mount wants less than a
 * quarter. Until then nothing is. Used is a segment when it is written and when a mount begins or
 * ends that wants something of it.
 */
void store_claimed(struct store *store);
/* Segments of other daemons that were found since: another number than before means that what is
 * wanted of them is to be asked for with store_has(). Until it was, nothing of them is wanted by
 * this mount but what it reads. Any thread. */
uint32_t store_n_found(const struct store *store);
/* Forgets pieces [first, end) of a version of a file; takes as long as store_unwant(). Any thread. */
void store_forget(struct store *store, const struct file_identity *identity, uint32_t first,
		  uint32_t end);
/* Puts that wait for the cap, and later ones, return. */
void store_stop(struct store *store);
/* The budget is used up: puts give -ENOSPC until there is room again. */
bool store_is_full(const struct store *store);
/* Bytes on the drive that the records of a file of this size take. */
uint64_t store_cost(uint64_t size);
/* Whether a put would not be refused for what was found before. */
bool store_takes_more(const struct store *store);
/* Bytes of segments that this mount knows, other daemons' included, as they are on the drive; the
 * open one up to its last record. */
uint64_t store_bytes(const struct store *store);
const char *store_engine_name(const struct store *store);

struct store_status {
	bool is_persistent, is_full;
	bool is_off;       /* reads failed: asks and puts find nothing until it is back */
	bool is_write_off; /* a write failed, or the filesystem is full: puts give -EAGAIN */
	const char *why;   /* static words: why it is off or does not grow; "" */
	uint64_t bytes, limit_bytes;
	uint64_t records, record_bytes; /* kept, all daemons' that are known here */
	uint64_t unverified;            /* of these not read yet */
	uint64_t segments, foreign;     /* foreign: sealed by other mounts */
	uint64_t index_bytes;           /* memory of the index */
};
void store_get_status(struct store *store, struct store_status *ret);

/* Reads through the tier interface: -ENOENT when not kept, -EIO when the record is wrong or can't
 * be read (it is forgotten: never tried again), -ENOMEM; those but -EIO come before tier_read()
 * returns. Bytes of buf behind `length`, up to the end of the page, may be overwritten. Borrowed
 * from the store: tier_free() only waits for reads in flight. NULL of NULL. */
struct tier *store_tier(struct store *store);

/* A number for the source that is the same after a restart: of its filesystem's type and id, what
 * that is mounted from ("server:/export"), and the real path of the source directory. Never fails;
 * 0 is a number like others. It says nothing about filesystems mounted below the source. */
uint64_t store_fsid(int dirfd);

/* --- looking into a store --- */
enum store_segment_state {
	STORE_SEGMENT_SEALED,
	STORE_SEGMENT_WRITTEN,  /* a daemon writes it right now */
	STORE_SEGMENT_UNSEALED, /* left so by a daemon that was killed: the next mount reads it */
	STORE_SEGMENT_DAMAGED,  /* no header that is right: the next mount removes it */
	STORE_SEGMENT_VERSION,  /* of another version of the program */
	STORE_SEGMENT_REFUSED,  /* no file of this user's own, or one open to others: never used */
};
extern const char *const store_segment_state_names[]; /* one word each, NULL */

struct store_segment_info {
	char name[32];
	enum store_segment_state state;
	bool is_in_use; /* a daemon holds a lock on it */
	uint64_t bytes; /* of the file system */
	/* Of sealed ones, else 0. */
	uint64_t records, record_bytes;
	uint64_t fsid, made_ns; /* what the header says, if it is right */
};

/* The directory of a persistent store as it is on the drive, for people: nothing is written, and
 * nothing of it is served. One thread. */
struct store_look;
/* -ENOENT when it is no store; -EPERM when it is not the caller's own. */
int store_look_open(const char *dir, struct store_look **ret, struct err *err) MUST_USE;
void store_look_close(struct store_look *look); /* NULL allowed */
/* Segments by name, as they were when it was opened. */
size_t store_look_count(const struct store_look *look);
const struct store_segment_info *store_look_segment(const struct store_look *look, size_t i);

struct store_look_check {
	uint64_t bytes_per_s; /* 0 = as fast as it goes */
	/* After every record, and once before the first one; NULL allowed. */
	void (*progress)(void *ctx, const struct store_look_check *check);
	void *ctx;
	/* results, added to */
	uint64_t records, bad, bytes;
};
/* Reads and compares all records of a sealed or unsealed segment; -EAGAIN: it is being written;
 * -ENOENT: gone meanwhile; -EBADMSG: damaged or of another version; -EIO etc.: it can't be read
 * (single records that can't be read are bad ones). */
int store_look_verify(struct store_look *look, size_t i, struct store_look_check *check) MUST_USE;
/* Removes the segment: -EBUSY when a daemon uses it; -EPERM when it is a refused one; 0 also when
 * it is gone already. */
int store_look_remove(struct store_look *look, size_t i) MUST_USE;

#endif
