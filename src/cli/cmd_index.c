/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs index: one line per sample, so that a user can see which number a file has; and the table
 * of samples within larger files (index_records.c). */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "clairfs/dataset.h"
#include "cli.h"
#include "index.h"

#define SCAN_THREADS 8

static int choose_layout(const char *name, struct dataset_params *params)
{
	for (int i = 0; dataset_layout_names[i]; i++)
		if (strcmp(dataset_layout_names[i], name) == 0) {
			params->layout = (enum dataset_layout)i;
			return 0;
		}
	return -EINVAL;
}

static int print_index(const struct dataset *ds, const uint32_t *sample, uint32_t n)
{
	static char path[PATH_MAX * 4], escaped[PATH_MAX * 16];

	for (uint32_t i = 0; i < n && !ferror(stdout); i++) {
		struct entry_id e = { sample ? sample[i] : i };

		if (dataset_path(ds, e, path, sizeof(path)) < 0)
			continue;
		printf("%u\t%s\t0\t%llu\n", i,
		       text_escape(path, strlen(path), escaped, sizeof(escaped)),
		       (unsigned long long)dataset_size(ds, e));
	}
	return cli_finish();
}

/* In the numbers of the index, or of a job that lists the files in its own way. */
static int run_index(const struct index_args *a)
{
	AUTO_FREE uint32_t *sample = NULL;
	struct dataset *ds = NULL;
	struct err err = { 0 };
	uint32_t n;
	int rc = dataset_open(&a->params, &ds, &err);

	if (rc < 0)
		return cli_fail(&err);
	n = dataset_n_samples(ds);
	if (a->under || a->sort != DATASET_SORT_INDEX)
		rc = dataset_numbering(ds, a->sort, a->under, &sample, &n, &err);
	rc = rc < 0 ? cli_fail(&err) : print_index(ds, sample, n);
	dataset_free(ds);
	return rc;
}

static int index_option(int c, const char *value, struct index_args *a, struct err *err)
{
	switch (c) {
	case 'L':
		if (choose_layout(value, &a->params) == 0)
			return 0;
		return err_set(err, -EINVAL, "no layout '%s' (auto, imagefolder, files)", value);
	case 's':
		return dataset_sort_parse(value, &a->sort, err);
	case 'r':
		a->records = value;
		return index_records_parse(a, err);
	case 'i':
		a->imports[a->n_imports++] = value;
		return 0;
	case 'd':
		a->snapshot_dir = value;
		return 0;
	case 'o':
		a->params.is_shared = true;
		return 0;
	default:
		a->under = value;
		return 0;
	}
}

/* What does not go together; NULL: all is well. */
static const char *index_misfit(const struct index_args *a)
{
	bool has_table = a->records || a->n_imports > 0;

	if (a->records && a->n_imports > 0)
		return "--records or --import, not both";
	if (has_table && a->sort != DATASET_SORT_INDEX)
		return "--sort does not go with a table of records: they are numbered as they stand";
	if (a->under && (a->n_imports > 0 || (a->records && !a->is_auto && a->format == FORMAT_NONE)))
		return "--under goes with formats only";
	if (!has_table && (a->snapshot_dir || a->params.is_shared))
		return "--snapshot-dir and --allow-other go with --records or --import";
	return NULL;
}

int cmd_index(int argc, char **argv)
{
	static const struct option longs[] = { { "layout", required_argument, NULL, 'L' },
					       { "sort", required_argument, NULL, 's' },
					       { "under", required_argument, NULL, 'u' },
					       { "records", required_argument, NULL, 'r' },
					       { "import", required_argument, NULL, 'i' },
					       { "snapshot-dir", required_argument, NULL, 'd' },
					       { "allow-other", no_argument, NULL, 'o' },
					       { "help", no_argument, NULL, 'h' },
					       { NULL, 0, NULL, 0 } };
	AUTO_FREE const char **imports = calloc((size_t)argc + 1, sizeof(*imports));
	struct index_args args = { .params = { .scan_threads = SCAN_THREADS }, .imports = imports };
	const char *wrong;
	struct err err = { 0 };
	int c, index = 0;

	if (!imports)
		return EXIT_FAILED;
	while ((c = getopt_long(argc, argv, "", longs, &index)) != -1) {
		if (c == 'h')
			return cli_help("index");
		if (c == '?')
			return cli_bad_option("index", argv);
		if (index_option(c, optarg, &args, &err) < 0)
			return cli_usage("index", "--%s: %s", longs[index].name, err.msg);
	}
	if (argc - optind != 1)
		return cli_usage("index", "one SOURCE is needed");
	wrong = index_misfit(&args);
	if (wrong)
		return cli_usage("index", "%s", wrong);
	args.params.source = argv[optind];
	return args.records || args.n_imports > 0 ? index_records_run(&args) : run_index(&args);
}
