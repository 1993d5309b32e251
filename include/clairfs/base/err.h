/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of set-up paths: one line for a person, with a negative errno. The data path uses plain
 * int instead. */
#ifndef CLAIRFS_BASE_ERR_H
#define CLAIRFS_BASE_ERR_H

#include "clairfs/base/cleanup.h"

struct err {
	int code; /* negative errno, 0 when nothing went wrong */
	char msg[1024];
};

/* Sets the message and returns `code` (which must be negative), so that one statement does both:
 * `return err_set(err, -EINVAL, ...)`. err may be NULL. A message that does not fit is cut. */
int err_set(struct err *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* The same with ": " and strerror(-code) behind the message. */
int err_set_errno(struct err *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Puts context and ": " in front of the message. */
void err_prefix(struct err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
