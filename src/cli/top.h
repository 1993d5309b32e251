/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs top: what its parts share. The view makes lines of text out of a mount's stats.json and
 * knows no terminal; the screen shows lines and knows no JSON. */
#ifndef CLAIRFS_CLI_TOP_H
#define CLAIRFS_CLI_TOP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/err.h"

#define TOP_LINE 512 /* bytes of a line, in which every character is printable */

struct top_lines {
	char (*line)[TOP_LINE];
	uint32_t n, size;
	uint32_t width; /* columns; longer words are continued in the next line */
};
void top_add(struct top_lines *lines, const char *fmt, ...) PRINTF_LIKE(2, 3);
void top_lines_fini(struct top_lines *lines);

struct top_mount {
	char *path;
	json_t *now, *before;       /* stats.json and the one before; NULL */
	uint64_t now_ns, before_ns; /* when they were read */
	uint64_t not_before_ns;     /* one that failed is asked seldom: it may hang */
	char problem[sizeof(((struct err *)0)->msg)]; /* why there is nothing newer; "" */
};
struct top {
	struct top_mount *mount;
	uint32_t n;
	double interval_s;
};

/* Reads the mount's numbers once more. */
void top_ask(struct top_mount *mount);
/* Rates are of the time between the last two readings, else since the mount began. */
void top_view(const struct top_mount *mount, struct top_lines *lines);

/* Shows all of it until the user has seen enough; an exit code. */
int top_screen(struct top *top);

#endif
