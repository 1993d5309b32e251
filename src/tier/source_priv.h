/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that the source keeps open for files of more than one piece. Each file is in the
 * table (then others may take it) or detached (then the last one that uses it makes it dead). Dead
 * files are handed to the caller, who closes them when nobody waits any more: close() may be a
 * round trip. */
#ifndef CLAIRFS_TIER_SOURCE_PRIV_H
#define CLAIRFS_TIER_SOURCE_PRIV_H

#include "clairfs/tier.h"

struct kept_file {
	struct list bucket; /* mu; of the table */
	struct list use;    /* mu; in kept_files.by_use, or in a list of dead files */
	struct entry_id entry;
	struct file_identity identity;
	int fd;
	uint64_t opened_ns;
	uint32_t users;   /* mu */
	bool is_detached; /* mu */
};

struct kept_files {
	struct mutex mu;
	struct list *buckets; /* mu; n_buckets of them, a power of two */
	uint32_t n_buckets;
	struct list by_use; /* mu; of the table, used longest ago first */
	uint32_t n_files;   /* mu; in the table */
	uint32_t limit;
	uint64_t max_age_ns;
	struct clock *clock;
};

/* KEPT_DUE: it is of max_age_ns, and should be opened anew; of twice that it is gone. */
enum kept_state { KEPT_NONE, KEPT_DUE, KEPT_GOOD };

int kept_files_init(struct kept_files *files, const struct source_params *params) MUST_USE;
/* Nobody uses a file any more. */
void kept_files_fini(struct kept_files *files);
/* The open file, to be given back with kept_file_put, or NULL. One that is too old or of another
 * identity is detached. */
struct kept_file *kept_file_get(struct kept_files *files, struct entry_id entry,
				const struct file_identity *identity, struct list *dead);
/* is_bad: nobody shall get it again. */
void kept_file_put(struct kept_files *files, struct kept_file *file, bool is_bad,
		   struct list *dead);
/* Whether kept_file_get would have one, of whatever identity. */
enum kept_state kept_file_state(struct kept_files *files, struct entry_id entry);
/* Keeps a descriptor that was just opened, or closes it. */
void kept_file_add(struct kept_files *files, struct entry_id entry,
		   const struct file_identity *identity, int take_descriptor, struct list *dead);
/* Nobody gets the one of this file again. */
void kept_file_forget(struct kept_files *files, struct entry_id entry, struct list *dead);
/* Closes and frees. */
void kept_files_reap(struct list *dead);

#endif
