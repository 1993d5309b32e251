/* SPDX-License-Identifier: Apache-2.0 */
/* Children of the fs tests that mount something themselves. */
#ifndef CLAIRFS_TESTS_FS_CHILD_MOUNT_H
#define CLAIRFS_TESTS_FS_CHILD_MOUNT_H

/* Mounts, says "mounted" and serves until it is killed. */
int child_serve(const char *mountpoint);
/* A test of its own, in a user namespace with few watches. */
void child_few_watches(void);

/* Becomes root of a user namespace whose users may have `watches` inotify watches; 0 or an errno. */
int child_enter_namespace(const char *watches);

#endif
