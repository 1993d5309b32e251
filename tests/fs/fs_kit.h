/* SPDX-License-Identifier: Apache-2.0 */
/* Real mounts for tests of fs. The test process itself never touches its own mount: a bug would
 * hang it for good, and a hung thread keeps the FUSE device open. Whatever goes through the mount
 * is done by a child, this program run again as `PROGRAM --child OPERATION ARGS`; a child that
 * takes longer than a minute has its mount taken away by force and fails the test. */
#ifndef CLAIRFS_TESTS_FS_KIT_H
#define CLAIRFS_TESTS_FS_KIT_H

#include "check.h"
#include "clairfs/fs.h"

/* Always static: threads use it, also after a failing test was left. */
struct kit {
	char *source, *mountpoint;
	struct dataset *dataset;
	struct metrics *metrics;
	struct cache *cache; /* the fake one or the real one, as the program is linked */
	struct fs *fs;
	void *rest; /* of whoever made the cache */
};

struct kit_options {
	const struct fs_vfile *vfiles;
	int (*announce)(void *ctx, const struct fs_told *told, struct buf_writer *answer);
	void *announce_ctx;
	int (*steps)(void *ctx, uint32_t uid, const struct clairfs_steps *steps);
	void *steps_ctx;
	bool force_open_answered;
	uint64_t inodes_ahead;
	uint32_t lookups_ahead;
	const char *shown_source; /* NULL = the source directory */
};

/* main of a test program. */
int kit_main(int argc, char **argv, const struct check_test *tests, size_t n_tests);
#define KIT_MAIN(tests)                                                                            \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		return kit_main(argc, argv, tests, ARRAY_LEN(tests));                              \
	}

/* An empty source directory and mountpoint below the private directory. */
void kit_init(struct kit *k);
/* A file of the source (its directories too) with bytes that depend on its name. */
void kit_add_file(struct kit *k, const char *path, size_t size);
/* DIRS directories d0.. with N files each named s0.. . */
void kit_add_samples(struct kit *k, unsigned dirs, unsigned n, size_t size);
/* Opens the dataset, mounts and starts. */
void kit_mount(struct kit *k, const struct kit_options *options);
/* Unmounts, answers held reads, frees everything. */
void kit_fini(struct kit *k);
uint64_t kit_counter(struct kit *k, enum metric id);
struct entry_id kit_entry(struct kit *k, const char *path);
/* "<mountpoint>/<path>", heap. */
char *kit_path(struct kit *k, const char *path);

/* Runs a child to its end; returns its exit status (the operations give an errno, 0 = fine). */
int kit_child(struct kit *k, const char *operation, const char *a, const char *b);
/* The same in two steps. */
struct kit_child {
	pid_t pid;
	int out; /* its standard output */
};
void kit_child_start(struct kit_child *child, const char *operation, const char *a, const char *b);
/* What it prints up to the next newline, without it; waits. */
void kit_child_line(struct kit *k, struct kit_child *child, char *line, size_t size);
int kit_child_wait(struct kit *k, struct kit_child *child);

/* fs_child.c: the operations. */
int kit_child_main(int argc, char **argv);

/* The cache of a kit: fs_kit_fake.c or fs_kit_real.c. Made before the mount, started after it,
 * stopped after the unmount, freed after fs. */
void kit_cache_new(struct kit *k);
void kit_cache_start(struct kit *k);
void kit_cache_stop(struct kit *k);
void kit_cache_free(struct kit *k);

#endif
