/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs umount. */
#include <getopt.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/text.h"
#include "clairfs/client.h"
#include "cli.h"

#define TIMEOUT_MAX 86400

static void say_umount(const char *line)
{
	fprintf(stderr, "clairfs: %s\n", line);
}

static int take_timeout(const char *text, struct umount_params *p)
{
	uint64_t seconds;

	if (text_to_u64(text, &seconds) < 0 || seconds > TIMEOUT_MAX)
		return cli_usage("umount", "--timeout: seconds up to %d are wanted, not '%s'",
				 TIMEOUT_MAX, text);
	p->has_timeout = true;
	p->timeout_ns = seconds * NS_PER_S;
	return EXIT_DONE;
}

int cmd_umount(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' },
					       { "timeout", required_argument, NULL, 't' },
					       { NULL, 0, NULL, 0 } };
	struct umount_params params = { .say = say_umount };
	struct err err = { 0 };
	int c, rc = EXIT_DONE;

	while (rc == EXIT_DONE && (c = getopt_long(argc, argv, "l", longs, NULL)) != -1) {
		if (c == 'h')
			return cli_help("umount");
		if (c == '?')
			return cli_bad_option("umount", argv);
		if (c == 't')
			rc = take_timeout(optarg, &params);
		else
			params.is_lazy = true;
	}
	if (rc != EXIT_DONE)
		return rc;
	if (argc - optind != 1)
		return cli_usage("umount", "one MOUNTPOINT is needed");
	params.mountpoint = argv[optind];
	return mounts_umount(&params, &err) < 0 ? cli_fail(&err) : EXIT_DONE;
}
