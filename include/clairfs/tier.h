/* SPDX-License-Identifier: Apache-2.0 */
/* Tiers: places that bytes of the dataset can be read from or kept in. A piece is an aligned 1 MiB
 * part of a file (the last one shorter); files up to 1 MiB are one piece. What can be read from
 * (source, null, the store, see tier/store.h) is a struct tier, and tier/chain.h says which is asked
 * when; the arena hands out memory; the stage pushes pages into the kernel through operations that
 * fs provides. */
#ifndef CLAIRFS_TIER_H
#define CLAIRFS_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/err.h"
#include "clairfs/base/identity.h"
#include "clairfs/base/ids.h"
#include "clairfs/base/queue.h"
#include "clairfs/io.h"
#include "clairfs/metrics.h"
#include "clairfs/tier/arena.h"
#include "clairfs/tier/stage.h"

#define PIECE_BYTES (1u << 20)
/* Pieces have numbers of 32 bits. A file that has more of them is no file of pieces: see ranges.c. */
#define PIECES_BYTES_MAX ((uint64_t)PIECE_BYTES * UINT32_MAX)

struct piece_key {
	struct entry_id entry;
	uint32_t piece;
};

static inline uint32_t piece_count(uint64_t size)
{
	return size >= PIECES_BYTES_MAX ? UINT32_MAX
	       : size                   ? (uint32_t)((size + PIECE_BYTES - 1) / PIECE_BYTES)
					: 1;
}
static inline uint32_t piece_length(uint64_t size, uint32_t piece)
{
	uint64_t start = (uint64_t)piece * PIECE_BYTES;

	return size <= start                ? 0
	       : size - start < PIECE_BYTES ? (uint32_t)(size - start)
					    : PIECE_BYTES;
}

/* What is asked of a tier. Owned by the caller, who keeps path and buf alive until done(). */
struct tier_request {
	struct piece_key key;
	/* Of tiers that verify only: bytes from the beginning of the piece; then the request may end
	 * behind it. */
	uint64_t skip;
	const char *path; /* relative to the source directory */
	/* The version that is wanted: of a tier that verifies what the reader believes the file to
	 * be, of others what they keep that as. */
	struct file_identity expect;
	void *buf;       /* room for `length` bytes, 4096-aligned, rounded up to 4096 */
	uint32_t length; /* bytes of the piece according to expect.size, or after skip */
	bool is_urgent;
	bool is_cold; /* source: as if this machine had not read the file before */
};

/* What it says. */
struct tier_answer {
	/* 0; else errno of the tier; -ESTALE with is_changed: the file is (or became while being
	 * read) another one. Some filesystems have an ESTALE of their own. */
	int status;
	bool is_changed;
	uint32_t got;   /* bytes read; 0 unless status is 0 */
	struct stat st; /* of tiers that verify, when has_st: what the file is now */
	bool has_st;
	/* 0, or the file had changed so shortly before the read that it may change again without
	 * another change time; at this time (ns since 1970) a read is beyond that. */
	int64_t young_until_ns;
	uint64_t latency_ns;
};

/* What the tier that is asked keeps meanwhile; nobody else looks at it. */
struct tier_own {
	struct list node; /* while queued */
	struct io_job job;
	void *tier_priv;
	bool is_retried;
	bool is_whole;
	uint32_t place;
	uint32_t round;
	int64_t asked_ns;
};

/* One read of one tier. Owned by the caller until done(). */
struct tier_read {
	struct tier_request ask;   /* no tier changes it */
	struct tier_answer answer; /* valid in done() */
	/* Called once, on a thread of the tier's engine or within tier_read(), no lock held. */
	void (*done)(struct tier_read *read);
	void *ctx;
	struct tier_own own;
};

struct tier;

/* A piece to be kept. */
struct tier_piece {
	struct piece_key key;
	const struct file_identity *identity; /* borrowed, as is data */
	const void *data;
	uint32_t length;
	int status; /* result */
};

struct tier_kept_status {
	bool is_lasting; /* what it keeps outlives the mount */
	bool is_off;     /* it keeps or gives nothing for now */
	uint64_t bytes;
	uint64_t records, record_bytes; /* pieces, and the bytes in them */
};

/* Of a tier that keeps what it is given. Any thread, several at once; an identity is what names a
 * version for good (dataset_kept_identity). */
struct tier_keep_ops {
	/* Keeps pieces; may block for as long as it likes. Each has its status: 0; -EEXIST: it is
	 * kept already; -ENOSPC: there is no room; -EAGAIN: not now; -ECANCELED after stop; else
	 * errno. What is kept is never harmed. */
	void (*put)(struct tier *tier, struct tier_piece *pieces, size_t n);
	/* Whether a put would not be refused for what was found before. */
	bool (*takes_more)(struct tier *tier);
	/* Pieces [first, end) of a version are of no use to anybody any more. Like the next one this
	 * is work for what is kept, and not for what the file has: that may be 2^32 pieces. */
	void (*forget)(struct tier *tier, const struct file_identity *identity, uint32_t first,
		       uint32_t end);
	/* Takes back what has() said to it: that this mount wants these pieces. */
	void (*unwant)(struct tier *tier, const struct file_identity *identity, uint32_t first,
		       uint32_t end);
	/* Changes when there may be pieces that nobody here has put. */
	uint32_t (*n_found)(struct tier *tier);
	void (*get_status)(struct tier *tier, struct tier_kept_status *ret);
	/* Puts that wait, and later ones, return. */
	void (*stop)(struct tier *tier);
};

/* A tier is a table of functions and what its owner keeps behind it: one file for each, and a row
 * in the array that the cache is given. The order in which they are asked is chain.h's. */
struct tier_ops {
	const char *name;
	/* What a reader is told it was served by. */
	enum read_class read_class;
	/* An answer with status 0 says that the file behind the path is `expect` now, and any other
	 * answer is that of the file itself. Who does not verify has copies: they are of that version,
	 * but the file may be another one since. */
	bool verifies_identity;
	/* Whether it may be asked for the piece of that version; it may still fail. Never blocks, as
	 * it is asked before each read. NULL: for all. */
	bool (*has)(struct tier *tier, struct piece_key key, const struct file_identity *identity);
	/* About how long a read of so many bytes takes, in ns: whoever takes less is asked first. */
	uint64_t (*cost)(const struct tier *tier, uint32_t length);
	/* Starts a read; never blocks; done() may run before it returns. status 0 promises that all
	 * `length` bytes come from one version of the file that has the identity `expect`. */
	void (*read)(struct tier *tier, struct tier_read *read);
	/* Waits for reads in flight, then frees. */
	void (*free)(struct tier *tier);
	const struct tier_keep_ops *keep; /* NULL: it keeps nothing that it is given */
};
struct tier {
	const struct tier_ops *ops;
};

static inline void tier_read(struct tier *tier, struct tier_read *read)
{
	tier->ops->read(tier, read);
}
static inline bool tier_has(struct tier *tier, struct piece_key key,
			    const struct file_identity *identity)
{
	return !tier->ops->has || tier->ops->has(tier, key, identity);
}
void tier_free(struct tier *tier); /* NULL allowed */

/* As tier_keep_ops. NULL is a tier that keeps nothing: it has no room, and there is nothing in it. */
void tier_put(struct tier *tier, struct tier_piece *pieces, size_t n);
bool tier_takes_more(struct tier *tier);
void tier_forget(struct tier *tier, const struct file_identity *identity, uint32_t first,
		 uint32_t end);
void tier_unwant(struct tier *tier, const struct file_identity *identity, uint32_t first,
		 uint32_t end);
uint32_t tier_n_found(struct tier *tier);
void tier_get_kept(struct tier *tier, struct tier_kept_status *ret);
void tier_stop(struct tier *tier);

/* --- source: the directory of the parallel filesystem, read-only --- */
struct source_params {
	int dirfd;     /* borrowed */
	struct io *io; /* borrowed; freed by the owner after the tier */
	bool is_beneath; /* a path that leads out of dirfd is not followed: -EACCES */
	struct metrics *metrics;
	/* Descriptors kept for files of more than one piece, 0 = none; those in use come on top. */
	uint32_t open_files;
	/* A kept descriptor of this age is opened anew, beside the reads that go on through it; of
	 * twice this age it is not trusted to be the file behind the path. */
	uint64_t reopen_ns;
	struct clock *clock; /* for that; NULL: the monotonic one */
	/* How long two changes may bear the same time; see source_grain_ns(). */
	uint64_t grain_ns;
};
/* For the filesystem of a directory: what its clock ticks in, and for those with a server of their
 * own what its clock may differ from ours. Never fails. */
uint64_t source_grain_ns(int dirfd);
/* What the kernel reads ahead of the filesystem of a directory, bytes. 0: it is a local one, or not known. */
uint64_t source_read_ahead(int dirfd);
/* Reads a piece with the identity checked before and after (fstat on the open file, no extra path
 * lookup). When the identity is not `expect`, status is -ESTALE with is_changed and st says what
 * the file is now (which may be no file: look at st_mode). A file that has not changed and has
 * fewer bytes than its size says is -EIO. A length of 0 only compares the identity. Whatever fails
 * on a kept descriptor, and an ESTALE of the filesystem, is tried again through the path, once.
 * Counts reads that succeeded, and errors other
 * than is_changed: that is an answer. */
int source_new(const struct source_params *params, struct tier **ret, struct err *err) MUST_USE;

/* --- null: every read succeeds at once with zeros; for ceilings --- */
int tier_null_new(struct tier **ret, struct err *err) MUST_USE;

#endif
