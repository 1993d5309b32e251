/* SPDX-License-Identifier: Apache-2.0 */
/* Built without ncurses: the live view says so; --once works. */
#include <stdio.h>

#include "cli.h"
#include "top.h"

int top_screen(struct top *top)
{
	(void)top;
	fprintf(stderr,
		"clairfs: top: this clairfs was built without ncurses: --once prints text\n");
	return EXIT_FAILED;
}
