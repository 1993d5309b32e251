/* SPDX-License-Identifier: Apache-2.0 */
/* Who may read, as mode bits: what is shown of a source that other users see through the mount
 * (allow_other). The kernel checks owner, group and mode of every directory and file of the mount;
 * whatever else keeps users out at the source - access lists, directories that only a symlink leads
 * through, directories above the source - has to be in these bits. They never let anybody in whom
 * the source keeps out; they may keep out somebody whom the source lets in. */
#ifndef CLAIRFS_DATASET_RIGHTS_H
#define CLAIRFS_DATASET_RIGHTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "clairfs/base/cleanup.h"

struct rights {
	uint32_t uid, gid;
	uint16_t mode; /* with the type, which stays */
};

/* Takes from `shown` what those may not have who may not search `dir`, through which one has to
 * come. is_member: shown->uid is known to be in dir->gid. Pure. */
void rights_fold(struct rights *shown, const struct rights *dir, bool is_member);

/* The mode with what an access list takes from group and others; of the owner nothing. Malformed:
 * closed to both. Pure. acl.c */
uint16_t acl_narrow_posix(const void *bytes, size_t size, uint16_t mode);
/* The same for the list of an NFSv4 server: closed to both when it names anybody. */
uint16_t acl_narrow_nfs4(const void *bytes, size_t size, uint16_t mode);
/* Asks for the lists of what a descriptor of any kind is of; closed to both when they cannot be
 * had, which takes /proc. */
uint16_t acl_narrow_fd(int fd, uint16_t mode);
/* The same for a name, no symlink, in the directory `fd`. */
uint16_t acl_narrow_at(int fd, const char *name, uint16_t mode);

/* stat of a path below source_fd that never leaves it, with the mode (and group) to be shown.
 * -EXDEV: it leaves. Asks the source; any thread. */
int rights_look(int source_fd, const char *path, struct stat *ret) MUST_USE;
/* The same for the source itself, with the directories above it. */
int rights_look_root(int source_fd, struct stat *ret) MUST_USE;

#endif
