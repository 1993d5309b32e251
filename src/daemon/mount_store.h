/* SPDX-License-Identifier: Apache-2.0 */
/* The store that a mount has, as the options say. */
#ifndef CLAIRFS_DAEMON_MOUNT_STORE_H
#define CLAIRFS_DAEMON_MOUNT_STORE_H

#include "clairfs/base/err.h"
#include "clairfs/daemon.h"
#include "clairfs/dataset.h"
#include "clairfs/metrics.h"
#include "clairfs/tier/store.h"

struct mount_store {
	struct store *store; /* NULL: none */
	uint64_t bytes;      /* its budget */
	uint64_t found_bytes; /* in it when the mount began */
	bool is_lost;        /* there was to be one, and its drive could not even be opened */
};
/* 0 also when there is to be none, or when its drive fails: that is logged and counted. What is
 * wrong with the options or the directory is an error. The store is store_close's. */
int mount_store_open(const struct mount_opts *opts, const struct dataset *ds,
		     struct metrics *metrics, struct mount_store *ret, struct err *err) MUST_USE;
/* What it is like now; false: there was to be none. Any thread. */
bool mount_store_look(const struct mount_store *s, bool is_kept, struct store_status *ret);

#endif
