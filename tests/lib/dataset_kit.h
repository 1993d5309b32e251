/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the dataset module: small trees made from a list of paths, a clock that says
 * that everything was made long ago, and the log as text. Any failure fails the test. */
#ifndef CLAIRFS_TESTS_DATASET_KIT_H
#define CLAIRFS_TESTS_DATASET_KIT_H

#include "check.h"
#include "clairfs/dataset.h"

/* "<dir>/<name>", heap. */
char *kit_path(const char *dir, const char *name);
/* Makes a file of `size` bytes and the directories above it; only those when name ends with '/'. */
void kit_file(const char *root, const char *name, size_t size);
/* A new directory below the test's own with these files, heap. paths ends with NULL. */
char *kit_tree(const char *name, const char *const *paths);
void kit_link(const char *root, const char *name, const char *target);
void kit_remove(const char *root, const char *name);

struct kit_open {
	const char *snapshot_dir;
	enum dataset_layout layout;
	unsigned threads;
	bool is_shared;
	bool is_fresh; /* the real clock; else everything the test made counts as old */
};
/* Directories made by the test count as old: nothing is scanned again for being fresh. */
uint64_t kit_an_hour_ahead(struct clock *clock);
struct dataset *kit_open(const char *source, struct kit_open how);
struct dataset_stats kit_stats(const struct dataset *ds);
/* The samples' paths, each followed by a line feed, heap. */
char *kit_samples(const struct dataset *ds);
struct entry_id kit_find(const struct dataset *ds, const char *path);
bool kit_has(const struct dataset *ds, const char *path);

/* stderr goes into a file until kit_log_end, which returns what was written, heap. */
int kit_log_begin(void);
char *kit_log_end(int saved);

#endif
