/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs index: one line per sample, so that a user can see which number a file has. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "clairfs/dataset.h"
#include "cli.h"

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

static int print(const struct dataset *ds)
{
	static char path[PATH_MAX * 4], escaped[PATH_MAX * 16];

	for (uint32_t i = 0; i < dataset_n_samples(ds) && !ferror(stdout); i++) {
		struct entry_id e = { i };

		if (dataset_path(ds, e, path, sizeof(path)) < 0)
			continue;
		printf("%u\t%s\t0\t%llu\n", i,
		       text_escape(path, strlen(path), escaped, sizeof(escaped)),
		       (unsigned long long)dataset_size(ds, e));
	}
	return cli_finish();
}

int cmd_index(int argc, char **argv)
{
	static const struct option longs[] = { { "layout", required_argument, NULL, 'L' },
					       { "help", no_argument, NULL, 'h' },
					       { NULL, 0, NULL, 0 } };
	struct dataset_params params = { .scan_threads = SCAN_THREADS };
	struct dataset *ds = NULL;
	struct err err = { 0 };
	int c, rc;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'h')
			return cli_help("index");
		if (c == '?')
			return cli_bad_option("index", argv);
		if (choose_layout(optarg, &params) < 0)
			return cli_usage("index",
					 "--layout: no layout '%s' (auto, imagefolder, files)",
					 optarg);
	}
	if (argc - optind != 1)
		return cli_usage("index", "one SOURCE is needed");
	params.source = argv[optind];
	if (dataset_open(&params, &ds, &err) < 0)
		return cli_fail(&err);
	rc = print(ds);
	dataset_free(ds);
	return rc;
}
