/* SPDX-License-Identifier: Apache-2.0 */
/* A log of what a program did to the files of one directory, and the directories that a crash at
 * any moment may have left of it. Killed processes leave everything up to the kill; a power cut
 * leaves of what was not synced any blocks of any writes, in no order, and of creations, renames
 * and removals any, too.
 *
 *	unsigned file = disk_log_create(log, "a");
 *	disk_log_write(log, file, 0, bytes, n);
 *	disk_log_rebuild(log, &(struct disk_cut){ .n_ops = 1 }, dir);
 */
#ifndef CLAIRFS_TESTS_DISK_LOG_H
#define CLAIRFS_TESTS_DISK_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct disk_log;

struct disk_log *disk_log_new(void);
void disk_log_free(struct disk_log *log);
/* Operations in the order they ended; one thread at a time. A file is a number: names come and go.
 */
unsigned disk_log_create(struct disk_log *log, const char *name);
void disk_log_write(struct disk_log *log, unsigned file, uint64_t at, const void *bytes, size_t n);
/* Sets the size; what is new is zeros. fallocate() beyond the end and ftruncate() are this. */
void disk_log_resize(struct disk_log *log, unsigned file, uint64_t size);
void disk_log_sync(struct disk_log *log, unsigned file);
void disk_log_sync_dir(struct disk_log *log);
void disk_log_rename(struct disk_log *log, const char *from, const char *to);
void disk_log_unlink(struct disk_log *log, const char *name);
size_t disk_log_count(const struct disk_log *log);
/* For a test that names what it does. */
const char *disk_log_describe(const struct disk_log *log, size_t op, char out[128]);

enum disk_lost {
	DISK_LOST_OLD,     /* a block that was not written has the bytes it had before */
	DISK_LOST_GARBAGE, /* random ones */
	DISK_LOST_STALE,   /* those of another block that was written at some time */
};

struct disk_cut {
	size_t n_ops;     /* of the log; the rest never happened */
	uint64_t *random; /* NULL: the process was killed, all n_ops happened; else a power cut */
	uint32_t block;   /* what is written as a whole or not at all: 512 or 4096 */
	unsigned lost_percent;
	enum disk_lost lost;
	/* Names are journalled: those operations that are lost are the last ones. */
	bool has_journal;
	/* Instead of random: bit i says whether the i-th block that is not synced was written, and
	 * names and sizes are as after n_ops. */
	bool has_mask;
	uint64_t mask;
	/* Killed within the last operation: of a write, this many bytes did not happen. */
	uint64_t missing_tail;
};

/* Blocks that are not synced after n_ops. */
size_t disk_log_loose_blocks(const struct disk_log *log, size_t n_ops, uint32_t block);
/* Makes dir, which must exist, hold what the cut left; whatever was in it is removed first. */
void disk_log_rebuild(const struct disk_log *log, const struct disk_cut *cut, const char *dir);

#endif
