/* SPDX-License-Identifier: Apache-2.0 */
/* access.c: who may read a file that was closed to somebody. */
#ifndef CLAIRFS_FS_ACCESS_PRIV_H
#define CLAIRFS_FS_ACCESS_PRIV_H

#include <stdio.h>

#include "fs_priv.h"

#define FS_GROUPS_MAX 65536 /* what Linux allows */

/* Whether the one who made the request may read these bytes of the file, and come to it by the
 * directories as dataset_stat has them now; reads /proc. Any thread. */
bool fs_access_may_read(const struct fs *fs, fuse_req_t req, struct entry_id entry,
			const struct cache_rights *rights);
/* Whether a text as of /proc/PID/status has a capability that reads everything. */
bool fs_access_text_may_read(FILE *status);

#endif
