/* SPDX-License-Identifier: Apache-2.0 */
/* What fusermount3 says while a mount is made. */
#ifndef CLAIRFS_FS_OVERHEARD_H
#define CLAIRFS_FS_OVERHEARD_H

#include "clairfs/base/err.h"

struct overheard {
	int pipe, saved; /* -1: nothing is overheard */
};
/* Takes standard error away. */
void overheard_begin(struct overheard *o);
/* Gives it back. *said (zeroed) stays empty if fusermount3 has said nothing. */
void overheard_end(struct overheard *o, struct err *said);

#endif
