/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics outside of the mount: a file that a node exporter collects. It may never keep a mount
 * from starting, serving or ending. */
#ifndef CLAIRFS_PUBLISH_TEXTFILE_H
#define CLAIRFS_PUBLISH_TEXTFILE_H

#include "clairfs/base/buf.h"
#include "clairfs/base/err.h"
#include "clairfs/metrics.h"
#include "clairfs/metrics/leftover.h"

/* What is published; must not wait for anything. label: as metrics_print_prometheus takes it. */
struct publish_source {
	int (*render)(void *ctx, const char *label, struct buf_writer *out);
	void *ctx;
	struct metrics *metrics;
};

struct textfile;
/* The file that option metrics_textfile stands for, absolute, heap. -EINVAL: it can be none, or is
 * within the mount. */
int textfile_path(const char *option, const char *id, const char *mountpoint, char **ret,
		  struct err *err) MUST_USE;
/* What goes wrong with the file is counted and logged, and is no error. path and source are copied;
 * what the source points to must live until textfile_stop. interval_ns: how often it is going to be
 * written, for the words. */
int textfile_new(const char *path, const char *id, uint64_t interval_ns,
		 const struct publish_source *source, struct textfile **ret,
		 struct err *err) MUST_USE;
/* The duty: has the file written by a thread that is there as long as that takes, or does nothing
 * while the last one is not back. Never waits. Returns 0. */
uint64_t textfile_write(void *textfile, short revents);
/* Removes the file. Gives up after five seconds when its filesystem hangs; afterwards the source is
 * not used any more in any case. Not beside textfile_write. NULL is fine. */
void textfile_stop(struct textfile *take_file);

#endif
