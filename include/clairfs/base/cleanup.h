/* SPDX-License-Identifier: Apache-2.0 */
/* Scope cleanup, must-use results and lock annotations: the one unwinding style of this project. */
#ifndef CLAIRFS_BASE_CLEANUP_H
#define CLAIRFS_BASE_CLEANUP_H

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MUST_USE __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define CACHE_ALIGNED __attribute__((aligned(64)))

/* clang's -Wthread-safety checks functions that say which lock they need (struct members cannot be
 * checked in C). */
#ifdef __clang__
#define CAPABILITY(name) __attribute__((capability(name)))
#define REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#define ACQUIRE(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define RELEASE(...) __attribute__((release_capability(__VA_ARGS__)))
#define EXCLUDES(...) __attribute__((locks_excluded(__VA_ARGS__)))
#define NO_THREAD_SAFETY __attribute__((no_thread_safety_analysis))
#else
#define CAPABILITY(name)
#define REQUIRES(...)
#define ACQUIRE(...)
#define RELEASE(...)
#define EXCLUDES(...)
#define NO_THREAD_SAFETY
#endif

static inline void cleanup_free_(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_fd_(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_file_(FILE *const *f)
{
	if (*f)
		fclose(*f);
}

#define AUTO_FREE __attribute__((cleanup(cleanup_free_)))
#define AUTO_FD __attribute__((cleanup(cleanup_fd_)))
#define AUTO_FILE __attribute__((cleanup(cleanup_file_)))

/* Hands a pointer on: the variable is NULL afterwards, so its cleanup does nothing. */
#define TAKE(p)                           \
	({                                \
		__typeof__(p) taken_ = (p); \
		(p) = NULL;               \
		taken_;                   \
	})
/* The same for a descriptor. */
static inline int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define ALIGN_UP(x, a) (((x) + ((a) - 1)) & ~((__typeof__(x))(a) - 1))
#define ALIGN_DOWN(x, a) ((x) & ~((__typeof__(x))(a) - 1))
#define DIV_ROUND_UP(x, d) (((x) + (d) - 1) / (d))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#endif
