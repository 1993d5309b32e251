/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the kernel's texts (/proc, cgroups), taken as bytes that anybody may have written: cut at
 * their length, with no end of their own. Nothing here allocates. Pure. */
#ifndef CLAIRFS_BASE_SPAN_H
#define CLAIRFS_BASE_SPAN_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct span {
	const char *at; /* the caller's */
	size_t len;
};

/* The next part of *rest, without the `end` behind it; false: there is no more. */
bool span_take(struct span *rest, char end, struct span *ret);
bool span_is(struct span s, const char *word);
/* Whether a list has the word: "rw,memory". */
bool span_has(struct span list, const char *word);
/* Decimal, all of it. */
bool span_number(struct span s, uint64_t *ret);
/* False: it does not fit, or has a zero. */
bool span_path(struct span s, char out[PATH_MAX]);

/* "36 35 98:0 /root /at rw,noatime master:1 - type source rw,user_id=0". */
struct mountinfo {
	struct span id, device, root, at, type, options; /* options: the filesystem's; may be empty */
};
bool mountinfo_parse(struct span line, struct mountinfo *ret);
/* As span_path, of a path as mountinfo writes it: a blank is \040. */
bool mountinfo_path(struct span s, char out[PATH_MAX]);

#endif
