/* SPDX-License-Identifier: Apache-2.0 */
/* Whose the file is that a mount keeps its metrics in, outside of itself, and what becomes of it
 * when the daemon was killed. Any thread; blocks as file systems do. */
#ifndef CLAIRFS_METRICS_LEFTOVER_H
#define CLAIRFS_METRICS_LEFTOVER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "clairfs/base/cleanup.h"

/* A mountpoint as a word for file names and labels: "mnt-imagenet-1a2b3c4d". The same mountpoint
 * always has the same. */
#define MOUNT_WORD 96
void mount_word(const char *mountpoint, char out[MOUNT_WORD]);

/* "DIR/.NAME.tmp" of "/DIR/NAME", heap, NULL when out of memory: not *.prom, so no collector takes
 * it. */
char *leftover_temp(const char *path);
/* The file that the bytes of a record name; false: none that a record could. Pure; the bytes may be
 * anything. */
bool leftover_parse(const char *bytes, size_t n, char out[PATH_MAX]);
/* Takes the record of this mount, which says who removes which file: *ret_fd is locked while the
 * daemon lives, or -1 when there is no place for records. What a daemon that was killed has left is
 * removed. path NULL: nothing is recorded, only cleared. -EBUSY: the daemon of the same mountpoint
 * is still alive. */
int leftover_take(const char *id, const char *path, int *ret_fd) MUST_USE;
/* The end of a record: path is removed, then the record. */
void leftover_release(const char *id, const char *path, int take_fd);
/* For a mountpoint whose daemon has ended, however it did. */
void leftover_clear(const char *mountpoint);

#endif
