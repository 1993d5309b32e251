/* SPDX-License-Identifier: Apache-2.0 */
/* Which cgroups a process is in, and what their files say. */
#ifndef CLAIRFS_BASE_CGROUP_H
#define CLAIRFS_BASE_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CGROUP_NONE UINT64_MAX /* no such number, or no limit */

/* Calls look() with the directory of the cgroup that the process (0: this one) is in, and of all
 * above that can be seen: those of the second version, and those of the first with this controller.
 */
void cgroup_each(pid_t pid, const char *controller, void (*look)(void *ctx, const char *dir),
		 void *ctx);

/* The number that is all of a file's first line; CGROUP_NONE: no such file, "max", or no number. */
uint64_t cgroup_number(const char *dir, const char *name);
/* The number behind a key, in a file with one of them a line (memory.stat, memory.events). */
uint64_t cgroup_stat(const char *dir, const char *name, const char *key);

/* --- what the texts say; pure, of any bytes --- */

struct cgroup_texts {
	const char *cgroup, *mounts; /* /proc/PID/cgroup and /proc/PID/mountinfo */
	size_t cgroup_len, mounts_len;
};
/* As cgroup_each, by these texts. */
void cgroup_each_in(const struct cgroup_texts *texts, const char *controller,
		    void (*look)(void *ctx, const char *dir), void *ctx);

/* /proc/PID/cgroup: the path in the hierarchy of the second version (controller NULL), or in the
 * one of the first with this controller. False: there is none, or it does not fit. */
bool cgroup_path(const char *text, size_t len, const char *controller, char path[PATH_MAX]);
/* /proc/PID/mountinfo: where that hierarchy is mounted, and which of its directories, of several
 * the one that shows most of `path`. False: nowhere. */
struct cgroup_mount {
	char at[PATH_MAX], root[PATH_MAX];
};
bool cgroup_find_mount(const char *text, size_t len, const char *controller, const char *path,
		       struct cgroup_mount *ret);
/* Where a path of the hierarchy is found below a mount of it: its directory. One that cannot be
 * seen from there, as in a container, is the mount itself. False: does not fit. */
bool cgroup_dir(const struct cgroup_mount *mount, const char *path, char dir[PATH_MAX]);
/* The value of `key VALUE`, or CGROUP_NONE. */
uint64_t cgroup_value(const char *text, size_t len, const char *key);
/* "some avg10=1.50 ... total=12345": 12345, microseconds; CGROUP_NONE: it does not say. */
uint64_t cgroup_stalled_us(const char *text, size_t len);
/* "some avg10=1.50 ...": 150, hundredths of a percent; 0: it does not say. */
uint32_t cgroup_stalled(const char *text, size_t len);

#endif
