/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel reads ahead of a mounted filesystem, by /sys/class/bdi. Any thread. */
#ifndef CLAIRFS_BASE_BDI_H
#define CLAIRFS_BASE_BDI_H

#include <stdint.h>
#include <sys/types.h>

#include "clairfs/base/cleanup.h"

/* A descriptor for the functions below, or a negative errno. dev: st_dev of the filesystem; flags: O_RDONLY or O_RDWR,
 * which takes root. Filesystems without a number there (Ceph, Lustre, btrfs) give -ENOENT. Once the filesystem is gone
 * the descriptor leads nowhere, whoever gets its number next. */
int bdi_open(dev_t dev, int flags) MUST_USE;
/* Bytes. 0 or a negative errno. */
int bdi_read_ahead(int fd, uint64_t *ret) MUST_USE;
/* bytes: a multiple of a page. For files that are opened from now on; those that are open keep theirs. 0 or a negative
 * errno. */
int bdi_set_read_ahead(int fd, uint64_t bytes) MUST_USE;

#endif
