/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs umount. */
#include <getopt.h>

#include "clairfs/daemon.h"
#include "cli.h"

int cmd_umount(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' },
					       { NULL, 0, NULL, 0 } };
	struct err err = { 0 };
	bool is_lazy = false;
	int c;

	while ((c = getopt_long(argc, argv, "l", longs, NULL)) != -1) {
		if (c == 'h')
			return cli_help("umount");
		if (c == '?')
			return cli_bad_option("umount", argv);
		is_lazy = true;
	}
	if (argc - optind != 1)
		return cli_usage("umount", "one MOUNTPOINT is needed");
	return mounts_umount(argv[optind], is_lazy, &err) < 0 ? cli_fail(&err) : EXIT_DONE;
}
