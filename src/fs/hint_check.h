/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the bytes of an ioctl are what hint.h says: all that is trusted of them afterwards. Pure:
 * no mount, no session, so that any bytes can be tried. */
#ifndef CLAIRFS_FS_HINT_CHECK_H
#define CLAIRFS_FS_HINT_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "clairfs/base/cleanup.h"
#include "clairfs/hint.h"

/* Each copies what it accepts. -ENOTTY: too small for the struct (in, or out for the answer);
 * -EPROTO: another version, unknown flags, a count that does not fit, a text without an end. A list's job
 * is "" where the sender has no name for it. */
int hint_check(const void *in, size_t in_size, size_t out_size, struct clairfs_hint *ret) MUST_USE;
/* What an accepted one says, as long as it is there: of version 1 the text is longer, and there is no name. */
const char *hint_text(const struct clairfs_hint *hint);
const char *hint_job(const struct clairfs_hint *hint);
int hint_check_list(const void *in, size_t in_size, size_t out_size,
		    struct clairfs_list *ret) MUST_USE;
int hint_check_steps(const void *in, size_t in_size, struct clairfs_steps *ret) MUST_USE;

#endif
