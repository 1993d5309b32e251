/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs mount, also called by mount(8) as mount.clairfs SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS].
 */
#include <errno.h>
#include <getopt.h>
#include <string.h>

#include "clairfs/client.h"
#include "clairfs/daemon.h"
#include "cli.h"

enum { OPT_HELP = 256, OPT_PRINT_CONFIG };

struct mount_args {
	bool is_foreground, print_config, is_helper;
};

static int mount_option(int c, const char *value, struct mount_args *args, struct mount_opts *opts,
			struct err *err)
{
	/* A site's file has what its batch system is told as well. */
	static const char *const others[] = { "hook", NULL };

	switch (c) {
	case 'c':
		return conf_load_beside(&mount_option_table, opts, value, others, err);
	case 'o':
		return mount_opts_set_list(opts, value, args->is_helper, err);
	case 'f': /* mount(8) means "fake" by -f: handled before */
		args->is_foreground = true;
		return 0;
	case OPT_PRINT_CONFIG:
		args->print_config = true;
		return 0;
	default: /* -s, -n, -v, -t TYPE, -N NAMESPACE of mount(8) */
		return 0;
	}
}

static int run_mount(int argc, char **argv, struct mount_args *args, struct mount_opts *opts)
{
	static const struct option longs[] = { { "help", no_argument, NULL, OPT_HELP },
					       { "print-config", no_argument, NULL,
						 OPT_PRINT_CONFIG },
					       { NULL, 0, NULL, 0 } };
	struct daemon_params params = { .opts = opts, .make_free = mounts_make_free };
	struct err err = { 0 };
	int c;

	while ((c = getopt_long(argc, argv, args->is_helper ? "fnsvt:N:c:o:" : "fc:o:", longs,
				NULL)) != -1) {
		if (c == OPT_HELP)
			return cli_help("mount");
		if (c == '?')
			return cli_bad_option("mount", argv);
		if (c == 'f' && args->is_helper)
			return EXIT_DONE;
		if (mount_option(c, optarg, args, opts, &err) < 0)
			return cli_fail(&err);
	}
	if (args->print_config) {
		conf_print(&mount_option_table, opts, stdout);
		return cli_finish();
	}
	if (argc - optind != 2)
		return cli_usage("mount", "SOURCE and MOUNTPOINT are needed");
	params.source = argv[optind];
	params.mountpoint = argv[optind + 1];
	params.is_foreground = args->is_foreground;
	params.show_progress = isatty(STDERR_FILENO);
	return daemon_run(&params, &err) < 0 ? cli_fail(&err) : EXIT_DONE;
}

int cmd_mount(int argc, char **argv)
{
	struct mount_args args = { .is_helper = strcmp(argv[0], "mount") != 0 };
	struct mount_opts opts;
	struct err err = { 0 };
	int rc;

	if (conf_init(&mount_option_table, &opts, &err) < 0)
		return cli_fail(&err);
	/* The weakest of all: file and -o come after it. */
	if (!args.is_helper && getenv("CLAIRFS_ORDER") &&
	    conf_set(&mount_option_table, &opts, "order", getenv("CLAIRFS_ORDER"), &err) < 0)
		return cli_fail(&err);
	rc = run_mount(argc, argv, &args, &opts);
	conf_fini(&mount_option_table, &opts);
	return rc;
}
