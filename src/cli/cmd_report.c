/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs report: reads what the mounts of a job have left behind, one file for each node, and
 * prints the job. What does not belong together is refused in one line; src/report does the
 * judging, this file the reading. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <sys/stat.h>

#include "clairfs/report.h"
#include "cli.h"

static int read_node(const char *path, struct report_node *ret, struct err *err)
{
	/* Not waiting for whoever may write into a pipe one day. */
	AUTO_FD int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	AUTO_FILE FILE *file = NULL;
	AUTO_FREE char *bytes = NULL;
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set_errno(err, -errno, "%s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -ENOENT, "%s: not a file", path);
	if ((uint64_t)st.st_size > REPORT_TEXT_MAX)
		return err_set(err, -EFBIG, "%s: larger than a report can be", path);
	bytes = malloc((size_t)st.st_size + 1);
	file = bytes ? fdopen(fd, "r") : NULL;
	if (!file)
		return err_set(err, -ENOMEM, "%s: out of memory", path);
	(void)take_fd(&fd); /* it is the file's */
	if (fread(bytes, 1, (size_t)st.st_size, file) != (size_t)st.st_size)
		return err_set(err, -EIO, "%s: cannot be read", path);
	rc = report_node_parse(bytes, (size_t)st.st_size, ret, err);
	if (rc < 0)
		err_prefix(err, "%s", path);
	return rc;
}

static int show_report(struct report_node *nodes, size_t n, bool is_json, struct err *err)
{
	struct report_job job;
	AUTO_FREE char *text = NULL;
	int rc = report_merge(nodes, n, &job, err);

	if (rc < 0)
		return rc;
	if (!is_json) {
		report_print(nodes, n, &job, stdout);
		return 0;
	}
	text = report_to_json(nodes, n, &job);
	if (!text)
		return err_set(err, -ENOMEM, "out of memory");
	fputs(text, stdout);
	return 0;
}

static int report_files(char **paths, size_t n, bool is_json, struct err *err)
{
	struct report_node *nodes = calloc(n, sizeof(*nodes));
	int rc = nodes ? 0 : err_set(err, -ENOMEM, "out of memory");

	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = read_node(paths[i], &nodes[i], err);
	if (rc == 0)
		rc = show_report(nodes, n, is_json, err);
	for (size_t i = 0; nodes && i < n; i++)
		report_node_fini(&nodes[i]);
	free(nodes);
	return rc;
}

int cmd_report(int argc, char **argv)
{
	static const struct option longs[] = { { "json", no_argument, NULL, 'j' },
					       { "help", no_argument, NULL, 'h' },
					       { NULL, 0, NULL, 0 } };
	struct err err = { 0 };
	bool is_json = false;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'h')
			return cli_help("report");
		if (c == '?')
			return cli_bad_option("report", argv);
		is_json = true;
	}
	if (argc == optind)
		return cli_usage("report", "a FILE for each node is needed");
	if (report_files(argv + optind, (size_t)(argc - optind), is_json, &err) < 0) {
		fprintf(stderr, "clairfs: %s\n",
			err.msg); /* files are no arguments: never EXIT_USAGE */
		return EXIT_FAILED;
	}
	return cli_finish();
}
