/* SPDX-License-Identifier: Apache-2.0 */
/* Between uring.c and uring_caps.c. */
#ifndef CLAIRFS_URING_PRIV_H
#define CLAIRFS_URING_PRIV_H

#include <liburing.h>

#include "io_priv.h"

/* Makes a ring with the best flags the kernel takes, for use by the calling thread alone.
 * *ret_flags: those taken. Negative errno. */
int uring_setup(unsigned entries, struct io_uring *ring, unsigned *ret_flags) MUST_USE;
/* Static words for a refusal of uring_setup. */
const char *uring_refusal(int code);

#endif
