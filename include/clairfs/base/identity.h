/* SPDX-License-Identifier: Apache-2.0 */
/* File identity: how a changed file is told from an unchanged one. */
#ifndef CLAIRFS_BASE_IDENTITY_H
#define CLAIRFS_BASE_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* What makes a file the same file with the same bytes. */
struct file_identity {
	uint64_t ino, size;
	int64_t mtime_ns, ctime_ns;
};

static inline bool file_identity_eq(const struct file_identity *a, const struct file_identity *b)
{
	return a->ino == b->ino && a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}
/* Wraps around beyond the year 2262 instead of overflowing: any 64 bits may come from a filesystem.
 */
static inline int64_t file_time_ns(int64_t sec, int64_t nsec)
{
	return (int64_t)((uint64_t)sec * 1000000000u + (uint64_t)nsec);
}
static inline struct file_identity file_identity_of(const struct stat *st)
{
	return (struct file_identity){
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.mtime_ns = file_time_ns(st->st_mtim.tv_sec, st->st_mtim.tv_nsec),
		.ctime_ns = file_time_ns(st->st_ctim.tv_sec, st->st_ctim.tv_nsec)
	};
}

#endif
