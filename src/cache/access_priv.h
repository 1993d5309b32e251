/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may read, when others than the daemon's user see the mount (dataset_is_shared): access.c.
 * Everything here is nothing at all when it is not.
 */
#ifndef CLAIRFS_CACHE_ACCESS_PRIV_H
#define CLAIRFS_CACHE_ACCESS_PRIV_H

#include "clairfs/cache.h"

#include "bits_priv.h"

struct tier_read;

int access_init(struct cache *c) MUST_USE;
/* What the source has behind the entry now: 0 with what to show of a file, -ENOENT when there is
 * none, else an errno that says nothing about it. A file that leaves the source or cannot be come
 * to is one that is closed to all, and else unchanged. Asks the source. */
int access_look(struct cache *c, struct entry_id entry, struct stat *ret);
/* Whether owner, group or permissions are other ones than the index has. */
bool access_differs(const struct cache *c, struct entry_id entry, const struct stat *st);
/* Before the attributes of a file are replaced by st: remembers whether READs of it have to be
 * looked at one by one. True: nobody who has it open may go on by that. */
bool access_note(struct cache *c, struct entry_id entry, const struct stat *st);
bool access_is_narrowed(const struct cache *c, struct entry_id entry);
/* What goes with bytes of the version that the index has. */
void access_rights(const struct cache *c, struct entry_id entry, struct cache_rights *ret);
/* Asks the source, and changes the index if it says another thing: 0: nothing new; -ESTALE: changed;
 * -ENOENT: there is no file; else an errno that says nothing. */
int access_look_again(struct cache *c, struct entry_id entry);
/* The source has answered a read, or a question for the identity. 0: as the index says; -ESTALE:
 * the index was changed, ask again; else the errno that is the answer. Asks the source. */
int access_learn(struct cache *c, struct entry_id entry, const struct tier_read *read);
/* A directory, of the revalidation. Asks the source. */
void access_check_dir(struct cache *c, struct entry_id dir);

#endif
