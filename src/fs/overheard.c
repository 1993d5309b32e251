/* SPDX-License-Identifier: Apache-2.0 */
/* What fusermount3 says. libfuse starts it for users who are not root, with our standard error, and
 * tells nothing of it: without this its reason would be a line of its own, or be lost where nobody
 * looks at a daemon's stderr. While the mount is made, stderr is a pipe; what others have written
 * meanwhile goes where it was meant to. fusermount3 writes a line or two, far less than a pipe
 * holds, and what does not fit is lost, never waited for.
 *
 * Runs in the thread that mounts. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clairfs/base/text.h"

#include "overheard.h"

#define SPEAKER "fusermount"

void overheard_begin(struct overheard *o)
{
	int fds[2];

	*o = (struct overheard){ .pipe = -1, .saved = -1 };
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return;
	o->saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (o->saved < 0 || dup2(fds[1], STDERR_FILENO) < 0) {
		if (o->saved >= 0)
			close(o->saved);
		o->saved = -1;
		close(fds[0]);
	} else {
		o->pipe = fds[0];
	}
	close(fds[1]);
}

/* A line of fusermount3 is the reason (the first one is), others were meant for stderr. */
static void take_fuse_line(char *line, struct err *said)
{
	char shown[256];

	if (strncmp(line, SPEAKER, strlen(SPEAKER)) == 0) {
		text_escape(line, strlen(line), shown, sizeof(shown));
		if (!said->msg[0])
			err_set(said, -EPERM, "%s", shown);
	} else if (*line) {
		dprintf(STDERR_FILENO, "%s\n", line);
	}
}

void overheard_end(struct overheard *o, struct err *said)
{
	char text[4096 + 1];
	char *line, *next;
	ssize_t n;

	if (o->pipe < 0)
		return;
	dup2(o->saved, STDERR_FILENO);
	close(o->saved);
	n = read(o->pipe, text, sizeof(text) - 1);
	close(o->pipe);
	text[MAX(n, 0)] = 0;
	for (line = text; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		take_fuse_line(line, said);
	}
}
