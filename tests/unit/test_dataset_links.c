/* SPDX-License-Identifier: Apache-2.0 */
/* Symlinked directories that multiply: the scan ends, finds the same in each run whatever its
 * threads do, and says that something was left out; what datasets really have is not touched. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dataset_kit.h"

#define PATHS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static char *samples_with(const char *root, unsigned threads, struct dataset_stats *ret)
{
	struct dataset *ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES,
							       .threads = threads });
	char *samples = kit_samples(ds);

	*ret = kit_stats(ds);
	dataset_free(ds);
	return samples;
}

/* n directories with a file and `width` links to the next one each. */
static char *ladder(const char *name, unsigned n, unsigned width, unsigned files)
{
	char *root = kit_tree(name, PATHS("d00/file"));

	for (unsigned i = 0; i < n; i++) {
		char path[64], target[32];

		for (unsigned k = 0; k < files; k++) {
			snprintf(path, sizeof(path), "d%02u/%u", i, k);
			kit_file(root, path, 1);
		}
		snprintf(path, sizeof(path), "d%02u/file", i);
		kit_file(root, path, 1);
		snprintf(target, sizeof(target), "../d%02u", i + 1);
		for (unsigned k = 0; k < width && i + 1 < n; k++) {
			snprintf(path, sizeof(path), "d%02u/link%u", i, k);
			kit_link(root, path, target);
		}
	}
	return root;
}

static size_t count_lines(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* 2^24 paths without a bound. */
static void directories_that_multiply_end(void)
{
	AUTO_FREE char *root = ladder("doubling", 24, 2, 0);
	struct dataset_stats stats, again;
	AUTO_FREE char *one = samples_with(root, 1, &stats);
	AUTO_FREE char *many = samples_with(root, 8, &again);
	/* From each of 24 directories, eight links deep: 1 + 2 + ... + 256, fewer from the last. */
	size_t want = 0;

	for (unsigned i = 0; i < 24; i++)
		for (unsigned deep = 0; deep <= 8 && i + deep < 24; deep++)
			want += 1u << deep;
	CHECK_U64(count_lines(one), want);
	CHECK_STR(many, one);
	CHECK(stats.skipped > 0);
	CHECK_U64(stats.skipped, again.skipped);
	CHECK(strstr(one, "d00/link0/link1/link0/file\n"));
}

/* Each of ten links to all others: 10^8 paths eight links deep. */
static void a_scan_that_finds_too_much_follows_fewer(void)
{
	AUTO_FREE char *root = ladder("tenfold", 24, 10, 20), *log = NULL;
	struct dataset_stats stats, again;
	int saved = kit_log_begin();
	AUTO_FREE char *one = samples_with(root, 2, &stats);
	AUTO_FREE char *many = samples_with(root, 8, &again);

	log = kit_log_end(saved);
	CHECK_CONTAINS(log, "followed 4 deep, not 8");
	CHECK_STR(many, one);
	CHECK(stats.skipped > 0 && stats.skipped == again.skipped);
	CHECK(strstr(one, "d00/link9/19\n"));
}

/* A split made of linked classes, in a linked directory, with linked files as in a hub's cache. */
static void what_datasets_have_is_all_there(void)
{
	AUTO_FREE char *root = kit_tree("hub", PATHS("all/cat/1", "all/dog/2", "blobs/abc", "train/"));
	struct dataset_stats stats;
	AUTO_FREE char *samples = NULL;

	kit_link(root, "train/cat", "../all/cat");
	kit_link(root, "train/dog", "../all/dog");
	kit_link(root, "also", "train");
	kit_file(root, "snapshots/1/x", 1);
	kit_link(root, "snapshots/1/data", "../../blobs/abc");
	kit_link(root, "latest", "snapshots/1");
	samples = samples_with(root, 4, &stats);
	CHECK_U64(stats.skipped, 0);
	CHECK_STR(samples, "all/cat/1\nall/dog/2\nalso/cat/1\nalso/dog/2\nblobs/abc\nlatest/data\n"
			   "latest/x\nsnapshots/1/data\nsnapshots/1/x\ntrain/cat/1\ntrain/dog/2\n");
}

static const struct check_test tests[] = {
	{ "directories_that_multiply_end", directories_that_multiply_end },
	{ "a_scan_that_finds_too_much_follows_fewer", a_scan_that_finds_too_much_follows_fewer },
	{ "what_datasets_have_is_all_there", what_datasets_have_is_all_there },
};
CHECK_MAIN(tests)
