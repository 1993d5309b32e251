/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for uring.c and uring_caps.c in a build without liburing, so that nobody else needs
 * a conditional: asking for the ring is refused with a line that says why. */
#include "io_priv.h"

#include <errno.h>
#include <string.h>

#define WHY_NOT "this build has no io_uring (liburing was missing or switched off)"

int io_uring_new(const struct io_params *params, struct io **ret, struct err *err)
{
	return err_set(err, -ENOSYS, WHY_NOT);
}

void io_probe_caps(struct io_caps *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->uring_why_not = WHY_NOT;
}
