/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs status: reads the mount's stats.json and prints it for people, or as it is. */
#include <getopt.h>
#include <jansson.h>

#include "clairfs/client.h"
#include "clairfs/publish.h"
#include "cli.h"

static int print_status(const char *text)
{
	json_error_t jerr;
	json_t *root = json_loads(text, 0, &jerr);

	if (!root) {
		fprintf(stderr, "clairfs: stats.json of the mount is damaged: %s\n", jerr.text);
		return EXIT_FAILED;
	}
	publish_status(root, stdout);
	json_decref(root);
	return cli_finish();
}

int cmd_status(int argc, char **argv)
{
	static const struct option longs[] = { { "json", no_argument, NULL, 'j' },
					       { "help", no_argument, NULL, 'h' },
					       { NULL, 0, NULL, 0 } };
	AUTO_FREE char *text = NULL;
	struct mount_info info;
	struct err err = { 0 };
	bool is_json = false;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'h')
			return cli_help("status");
		if (c == '?')
			return cli_bad_option("status", argv);
		is_json = true;
	}
	if (argc - optind != 1)
		return cli_usage("status", "one MOUNTPOINT is needed");
	if (mounts_find(argv[optind], &info, &err) < 0)
		return cli_fail(&err);
	if (!info.is_ours) {
		fprintf(stderr, "clairfs: %s is not a clairfs mount\n", info.path);
		return EXIT_FAILED;
	}
	if (mounts_read_vfile(info.path, "stats.json", &text, &err) < 0)
		return cli_fail(&err);
	if (!is_json)
		return print_status(text);
	fputs(text, stdout);
	return cli_finish();
}
