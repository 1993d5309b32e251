/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of this module. */
#ifndef CLAIRFS_PUBLISH_PRIV_H
#define CLAIRFS_PUBLISH_PRIV_H

#include "clairfs/publish.h"

/* Writes all of it: 0 or a negative errno. */
int publish_write_all(int fd, const void *data, size_t size) MUST_USE;

#endif
