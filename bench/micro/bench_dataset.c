/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What opening a dataset costs: the first scan, opening it again with the snapshot, memory per
 * entry. The files are empty and lie on whatever TMPDIR is, so the stat calls are the cheapest
 *there are: on a network filesystem count the calls and multiply by its latency. One JSON line per
 *result.
 *
 *	bench_dataset [FILES [DIRECTORIES [THREADS]]]
 */
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "clairfs/base/text.h"
#include "clairfs/dataset.h"

struct bench {
	char root[256], source[300], snapshots[300];
	uint64_t files, dirs, threads;
};

static void fail(const char *what)
{
	fprintf(stderr, "bench_dataset: %s\n", what);
	exit(1);
}

static void make_tree(struct bench *b)
{
	const char *tmp = getenv("TMPDIR");
	char path[600];

	snprintf(b->root, sizeof(b->root), "%.200s/clairfs-bench-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(b->root))
		fail("cannot make a temporary directory");
	snprintf(b->source, sizeof(b->source), "%s/source", b->root);
	snprintf(b->snapshots, sizeof(b->snapshots), "%s/snapshots", b->root);
	if (mkdir(b->source, 0755) < 0)
		fail("cannot make the source");
	for (uint64_t d = 0; d < b->dirs; d++) {
		snprintf(path, sizeof(path), "%s/n%08llu", b->source, (unsigned long long)d);
		if (mkdir(path, 0755) < 0)
			fail("cannot make a directory");
	}
	for (uint64_t i = 0; i < b->files; i++) {
		int fd;

		/* Names as long as ImageNet's: n01440764_10026.JPEG */
		snprintf(path, sizeof(path), "%s/n%08llu/n%08llu_%05llu.JPEG", b->source,
			 (unsigned long long)(i % b->dirs), (unsigned long long)(i % b->dirs),
			 (unsigned long long)(i / b->dirs));
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0)
			fail("cannot make a file");
		close(fd);
	}
}

static void remove_tree(const struct bench *b)
{
	char command[400];

	snprintf(command, sizeof(command), "rm -rf '%s'", b->root);
	if (system(command) != 0)
		fail("cannot remove the files made");
}

/* The directories were made just now, but this is about those of last week. */
static uint64_t an_hour_ahead(struct clock *clock)
{
	return ((uint64_t)time(NULL) + 3600) * NS_PER_S;
}

static void report(const struct bench *b, const char *name, const char *unit, double value)
{
	printf("{\"bench\": \"dataset\", \"name\": \"%s\", \"unit\": \"%s\", \"value\": %.6g, "
	       "\"files\": %llu, \"directories\": %llu, \"threads\": %llu}\n",
	       name, unit, value, (unsigned long long)b->files, (unsigned long long)b->dirs,
	       (unsigned long long)b->threads);
	fflush(stdout);
}

static void measure(const struct bench *b, const char *name)
{
	struct clock ahead = { .now_ns = an_hour_ahead };
	struct dataset_params params = { .source = b->source,
					 .snapshot_dir = b->snapshots,
					 .scan_threads = (unsigned)b->threads,
					 .wall_clock = &ahead };
	struct mallinfo2 before = mallinfo2(), after;
	struct dataset *ds = NULL;
	struct dataset_stats stats;
	struct err err = { 0 };
	char label[64];

	if (dataset_open(&params, &ds, &err) < 0)
		fail(err.msg);
	after = mallinfo2();
	dataset_get_stats(ds, &stats);
	if (dataset_n_samples(ds) != b->files)
		fail("not all files were found");
	snprintf(label, sizeof(label), "%s_open", name);
	report(b, label, "s", (double)stats.seconds_ns / 1e9);
	snprintf(label, sizeof(label), "%s_open_stats", name);
	report(b, label, "calls", (double)stats.stats);
	snprintf(label, sizeof(label), "%s_open_memory", name);
	report(b, label, "bytes/entry",
	       (double)((after.uordblks + after.hblkhd) - (before.uordblks + before.hblkhd)) /
		       dataset_n_entries(ds));
	dataset_free(ds);
}

int main(int argc, char **argv)
{
	struct bench b = { .files = 100000, .dirs = 100, .threads = 4 };

	if ((argc > 1 && text_to_u64(argv[1], &b.files) < 0) ||
	    (argc > 2 && text_to_u64(argv[2], &b.dirs) < 0) ||
	    (argc > 3 && text_to_u64(argv[3], &b.threads) < 0) || b.dirs == 0) {
		fprintf(stderr, "usage: bench_dataset [FILES [DIRECTORIES [THREADS]]]\n");
		return 2;
	}
	make_tree(&b);
	measure(&b, "first");
	measure(&b, "second");
	remove_tree(&b);
	return 0;
}
