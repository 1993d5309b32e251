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
/* 64 bits of nanoseconds are 584 years. Counted from the end of 1901 they reach to July 2486, which
 * is what XFS has and more than ext4; as an int64_t since 1970 what is beyond 2262 wraps around. Other
 * times, as any 64 bits may come from a filesystem, become the nearest second of these: the time of
 * change, which nobody can set, still tells versions apart. */
#define FILE_TIME_FIRST_SEC (-2147483648LL)
#define FILE_TIME_LAST_SEC 16299260424LL
static inline int64_t file_time_ns(int64_t sec, int64_t nsec)
{
	sec = sec < FILE_TIME_FIRST_SEC ? FILE_TIME_FIRST_SEC : sec;
	sec = sec > FILE_TIME_LAST_SEC ? FILE_TIME_LAST_SEC : sec;
	return (int64_t)((uint64_t)sec * 1000000000u + (uint64_t)nsec);
}
static inline struct timespec file_time_of(int64_t ns)
{
	uint64_t since_first = (uint64_t)ns - (uint64_t)FILE_TIME_FIRST_SEC * 1000000000u;

	return (struct timespec){ .tv_sec = (int64_t)(since_first / 1000000000u) + FILE_TIME_FIRST_SEC,
				  .tv_nsec = (long)(since_first % 1000000000u) };
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
