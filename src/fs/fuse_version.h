/* SPDX-License-Identifier: Apache-2.0 */
/* The one place that says which libfuse API is used. Everybody in this module includes libfuse
 * through here: two versions in one program would disagree about structs. */
#ifndef CLAIRFS_FS_FUSE_VERSION_H
#define CLAIRFS_FS_FUSE_VERSION_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#endif
