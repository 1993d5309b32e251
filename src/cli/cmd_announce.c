/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs announce: tells a mount the order that the next job, or the one that runs, reads in. The
 * spec is checked here first, because the rank and world that stand in for missing keys are those
 * of this process's environment, not the daemon's. */
#include <errno.h>
#include <getopt.h>
#include <string.h>

#include "clairfs/client.h"
#include "clairfs/daemon.h"
#include "clairfs/order.h"
#include "cli.h"

static int announce_order(const char *mountpoint, const char *text, struct err *err)
{
	AUTO_FREE char *line = NULL;
	struct order_spec *spec = NULL;
	struct job_place job;
	struct mount_info info;
	int rc = mounts_find(mountpoint, &info, err);

	if (rc < 0)
		return rc;
	if (!info.is_ours)
		return err_set(err, -ENOENT, "%s is not a clairfs mount", info.path);
	daemon_job_place(&job);
	if (strcmp(text, "none") != 0 && strncmp(text, "none:", strlen("none:")) != 0 &&
	    text[0] != '?')
		rc = order_spec_parse_placed(text, &job.place, &spec, err);
	if (rc == 0)
		rc = mounts_announce(info.path, spec ? order_spec_text(spec) : text, &line, err);
	order_spec_free(spec);
	if (rc == 0)
		puts(line);
	return rc;
}

int cmd_announce(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' },
					       { NULL, 0, NULL, 0 } };
	struct err err = { 0 };
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'h')
			return cli_help("announce");
		return cli_usage("announce", "wrong option");
	}
	if (argc - optind != 2)
		return cli_usage("announce", "MOUNTPOINT and SPEC are needed");
	return announce_order(argv[optind], argv[optind + 1], &err) < 0 ? cli_fail(&err) : cli_finish();
}
