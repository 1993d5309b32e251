/* SPDX-License-Identifier: Apache-2.0 */
/* A process that ends the connection of a daemon that was killed. */
#ifndef CLAIRFS_DAEMON_GUARD_H
#define CLAIRFS_DAEMON_GUARD_H

#include <sys/types.h>

/* pid: 0 when there is none. */
struct guard {
	pid_t pid;
	int fd; /* to the guard */
};

/* Forks; to be called by the main thread, before there are others and before there is much memory.
 * Without a guard (no process, no pipe) a mount is as good, but for what guard.c says. */
void guard_start(struct guard *g);
/* The mount answers. Main thread. */
void guard_watch(struct guard *g, const char *mountpoint);
/* The mount has ended in order, or there was none. Main thread. */
void guard_stop(struct guard *g);

#endif
