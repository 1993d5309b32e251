/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics outside of the mount: a file that a node exporter collects. It may never keep a mount
 * from starting, serving or ending. */
#ifndef CLAIRFS_DAEMON_PUBLISH_H
#define CLAIRFS_DAEMON_PUBLISH_H

#include <limits.h>

#include "clairfs/base/buf.h"
#include "clairfs/base/err.h"
#include "clairfs/metrics.h"

/* What is published; must not wait for anything. label: as metrics_print_prometheus takes it. */
struct publish_source {
	int (*render)(void *ctx, const char *label, struct buf_writer *out);
	void *ctx;
	struct metrics *metrics;
};

/* A mountpoint as a word for file names and labels: "mnt-imagenet-1a2b3c4d". The same mountpoint
 * always has the same. */
#define PUBLISH_ID 96
void publish_id(const char *mountpoint, char out[PUBLISH_ID]);

/* --- textfile.c --- */
struct textfile;
/* The file that option metrics_textfile stands for, absolute, heap. -EINVAL: it can be none. */
int textfile_path(const char *option, const char *id, char **ret, struct err *err) MUST_USE;
/* Writes the file now and every interval_ns, on a thread of its own. What goes wrong with the file
 * is counted and logged, and is no error. path and source are copied; what the source points to
 * must live until textfile_stop. */
int textfile_start(const char *path, const char *id, uint64_t interval_ns,
		   const struct publish_source *source, struct textfile **ret,
		   struct err *err) MUST_USE;
/* Removes the file. Gives up after five seconds when its filesystem hangs; afterwards the source is
 * not used any more in any case. NULL is fine. */
void textfile_stop(struct textfile *take_file);

/* --- leftover.c: the files of daemons that were killed --- */
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
