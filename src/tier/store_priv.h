/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the store: record (the bytes, see FORMAT.md), index (what is where), file (space on the
 * device), read (the tier). Tests use the index and the system calls. */
#ifndef CLAIRFS_TIER_STORE_PRIV_H
#define CLAIRFS_TIER_STORE_PRIV_H

#include <stdatomic.h>
#include <sys/statvfs.h>

#include "clairfs/base/thr.h"
#include "clairfs/tier.h"

#define STORE_BLOCK 4096u
#define STORE_SEAL_BYTES 72u
/* The longest record: a full piece and the page its seal needs. */
#define STORE_RECORD_MAX (PIECE_BYTES + STORE_BLOCK)
#define STORE_SHARDS 64u
#define STORE_NO_BLOCK UINT32_MAX /* the block of an empty slot */

/* --- record --- */
struct store_record {
	struct piece_key key;
	struct file_identity identity;
	uint32_t length;
};

static inline uint32_t store_record_bytes(uint32_t length)
{
	return ALIGN_UP(length + STORE_SEAL_BYTES, STORE_BLOCK);
}
/* Writes the record of `data` to out, which has room for all of it. */
int store_record_make(const struct store_record *record, const void *data, uint8_t *out) MUST_USE;
/* Whether these are the bytes of exactly this record. */
bool store_record_is(const struct store_record *record, const uint8_t *bytes);

/* --- index: piece -> block and identity; any thread --- */
struct store_slot {
	uint32_t entry, piece;
	uint32_t block;          /* offset in the file / STORE_BLOCK, or STORE_NO_BLOCK */
	uint32_t tag_lo, tag_hi; /* of the identity */
};

struct store_shard {
	struct mutex mu;
	struct store_slot *slots; /* mu; 0 or a power of two of them */
	uint32_t n_slots, n_used; /* mu */
} CACHE_ALIGNED;

struct store_index {
	struct store_shard shards[STORE_SHARDS];
};

void store_index_init(struct store_index *index);
void store_index_fini(struct store_index *index);
/* 0 and the block; -ENOENT; -ESTALE when another identity is kept. */
int store_index_find(struct store_index *index, struct piece_key key,
		     const struct file_identity *identity, uint32_t *ret_block) MUST_USE;
/* Adds, or replaces what is kept of another identity. -ENOMEM. */
int store_index_set(struct store_index *index, struct piece_key key,
		    const struct file_identity *identity, uint32_t block) MUST_USE;
/* Removes the piece; only if it is kept at this block, unless that is STORE_NO_BLOCK. */
void store_index_remove(struct store_index *index, struct piece_key key, uint32_t block);
/* Bytes of the tables and pieces in them. */
void store_index_usage(struct store_index *index, uint64_t *ret_bytes, uint64_t *ret_pieces);

/* --- file --- */
/* The system calls that take space; tests put failing ones here. */
struct store_sys {
	ssize_t (*pwrite)(int fd, const void *bytes, size_t n, off_t offset);
	int (*fallocate)(int fd, int mode, off_t offset, off_t length);
	int (*fstatvfs)(int fd, struct statvfs *st);
};
extern const struct store_sys store_sys_real;

struct store_file {
	const struct store_sys *sys;
	int fd;
	bool is_direct;
	uint64_t limit, keep_free;
	uint64_t reserved;     /* bytes of the file that fallocate has got for us; the writer's */
	_Atomic uint64_t tail; /* end of the last record; the writer's, others look */
};

/* Opens an unlinked file in dir. */
int store_file_open(struct store_file *file, const struct store_params *params,
		    const struct store_sys *sys, struct err *err) MUST_USE;
/* An unlinked file made under a name, for filesystems without O_TMPFILE; flags as for open. */
int store_file_make_named(int dirfd, int flags);
/* Writes a record of n bytes (a multiple of STORE_BLOCK, aligned) behind the last one. -ENOSPC when
 * the budget, the filesystem or a quota is used up. */
int store_file_append(struct store_file *file, const void *bytes, uint32_t n,
		      uint32_t *ret_block) MUST_USE;
/* Keeps the page cache out of it where reads and writes go through it. */
void store_file_drop_cache(const struct store_file *file, uint64_t offset, uint64_t n);

/* --- the store --- */
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
	struct store_file file;
	struct store_index index;
	struct store_reader reader;
	struct io *io;
	const char *engine_why;
	struct metrics *metrics;
	uint8_t *write_buffer;  /* the writer's */
	_Atomic int put_status; /* 0, or what every put gives from now on */
};

int store_open_with(const struct store_params *params, const struct store_sys *sys,
		    struct store **ret, struct err *err) MUST_USE;
int store_reader_init(struct store_reader *reader, uint32_t max_inflight) MUST_USE;
/* Waits for reads to end. */
void store_reader_fini(struct store_reader *reader);

#endif
