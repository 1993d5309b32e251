/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a dataset and prints everything it says, for test_dataset_oracle.py, which compares it with
 * what Python finds. On the way it checks what needs no oracle: that a lookup, a path and a listing
 * lead back to the same entry.
 *
 *	dump_dataset SOURCE LAYOUT SNAPSHOT_DIR|- fresh|settled THREADS [SORT UNDER]
 *
 * "settled" puts the clock ahead, so that directories made a moment ago count as old. Output:
 * records that end with NUL. First the layout and the statistics; then two per entry: its
 * attributes and its path. With SORT: only the paths of the samples below UNDER, as the job numbers
 * them.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <time.h>

#include "clairfs/base/text.h"
#include "clairfs/dataset.h"

static uint64_t an_hour_ahead(struct clock *clock)
{
	return ((uint64_t)time(NULL) + 3600) * NS_PER_S;
}

static int parse_args(char **argv, struct dataset_params *params)
{
	uint64_t threads;

	params->source = argv[1];
	for (int i = 0; dataset_layout_names[i]; i++)
		if (strcmp(argv[2], dataset_layout_names[i]) == 0)
			params->layout = (enum dataset_layout)i;
	params->snapshot_dir = strcmp(argv[3], "-") == 0 ? NULL : argv[3];
	if (text_to_u64(argv[5], &threads) < 0)
		return -1;
	params->scan_threads = (unsigned)threads;
	return 0;
}

/* True if every way to the entry leads to it. */
static bool is_consistent(const struct dataset *ds, struct entry_id e, const char *path)
{
	struct entry_id parent = dataset_parent(ds, e);
	uint32_t n = dataset_n_children(ds, parent), seen = 0;
	struct file_identity id;
	struct stat st;
	size_t len;
	const char *name = dataset_name(ds, e, &len);

	for (uint32_t i = 0; i < n; i++)
		seen += entry_eq(dataset_child(ds, parent, i), e);
	dataset_stat(ds, e, &st);
	dataset_identity(ds, e, &id);
	return seen == 1 && entry_eq(dataset_lookup(ds, parent, name, len), e) &&
	       entry_eq(dataset_resolve(ds, path, strlen(path)), e) &&
	       dataset_size(ds, e) == id.size && id.size == (uint64_t)st.st_size;
}

static bool print_entry(const struct dataset *ds, struct entry_id e)
{
	bool is_dir = dataset_kind(ds, e) == ENTRY_KIND_DIR;
	char path[PATH_MAX];
	struct file_identity id;
	struct stat st;

	if (dataset_path(ds, e, path, sizeof(path)) < 0)
		return false;
	dataset_stat(ds, e, &st);
	dataset_identity(ds, e, &id);
	printf("%c %u %llu %lld %lld %llu %u %u %u%c%s%c",
	       dataset_is_sample(ds, e) ? 'S'
	       : is_dir                 ? 'D'
					: 'F',
	       (unsigned)st.st_mode, (unsigned long long)id.size, (long long)id.mtime_ns,
	       (long long)id.ctime_ns, (unsigned long long)id.ino, st.st_uid, st.st_gid,
	       (unsigned)st.st_nlink, 0, path, 0);
	return entry_eq(e, ENTRY_ROOT) || is_consistent(ds, e, path);
}

static int dump(const struct dataset *ds)
{
	struct dataset_stats stats;
	uint32_t n = dataset_n_entries(ds);

	dataset_get_stats(ds, &stats);
	printf("%s %d %llu %llu %llu %llu%c", dataset_layout_names[dataset_layout(ds)],
	       stats.from_snapshot, (unsigned long long)stats.dirs_scanned,
	       (unsigned long long)stats.dirs_reused, (unsigned long long)stats.stats,
	       (unsigned long long)stats.skipped, 0);
	for (uint32_t i = 0; i < n; i++) {
		if (!print_entry(ds, (struct entry_id){ i })) {
			fprintf(stderr, "entry %u cannot be found by its name or path\n", i);
			return 1;
		}
	}
	return print_entry(ds, ENTRY_ROOT) ? 0 : 1;
}

static int dump_numbering(const struct dataset *ds, const char *sort, const char *under)
{
	AUTO_FREE uint32_t *sample = NULL;
	enum dataset_sort how;
	char path[PATH_MAX];
	struct err err = { 0 };
	uint32_t n;
	int rc = dataset_sort_parse(sort, &how, &err);

	if (rc == 0)
		rc = dataset_numbering(ds, how, *under ? under : NULL, &sample, &n, &err);
	if (rc == -ENOENT) /* no samples there */
		return 0;
	if (rc < 0) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (dataset_path(ds, (struct entry_id){ sample[i] }, path, sizeof(path)) < 0)
			return 1;
		printf("%s%c", path, 0);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct clock ahead = { .now_ns = an_hour_ahead };
	struct dataset_params params = { 0 };
	struct dataset *ds = NULL;
	struct err err = { 0 };
	int rc;

	if ((argc != 6 && argc != 8) || parse_args(argv, &params) < 0) {
		fprintf(stderr, "usage: dump_dataset SOURCE LAYOUT SNAPSHOT_DIR|- fresh|settled "
				"THREADS [SORT UNDER]\n");
		return 2;
	}
	params.wall_clock = strcmp(argv[4], "settled") == 0 ? &ahead : NULL;
	if (dataset_open(&params, &ds, &err) < 0) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	rc = argc == 8 ? dump_numbering(ds, argv[6], argv[7]) : dump(ds);
	dataset_free(ds);
	return rc;
}
