/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs top: mounts at work, fed by nothing but their stats.json, so that watching costs a mount
 * one small read a second. Without a MOUNTPOINT it is all mounts of the user. A mount that does not
 * answer is asked seldom, as each time costs up to ten seconds, and must not hide the others. */
#include <errno.h>
#include <getopt.h>
#include <string.h>
#include <unistd.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/text.h"
#include "clairfs/client.h"
#include "cli.h"
#include "top.h"

#define COLUMNS 80
#define SELDOM_NS (30 * NS_PER_S)
#define MOUNTS_MAX 64

void top_ask(struct top_mount *m)
{
	struct err err = { 0 };
	AUTO_FREE char *text = NULL;
	json_t *root = NULL;
	json_error_t jerr;

	if (clock_now(clock_monotonic()) < m->not_before_ns)
		return;
	if (mounts_read_vfile(m->path, "stats.json", &text, &err) == 0) {
		root = json_loads(text, 0, &jerr);
		if (!root)
			(void)err_set(&err, -EIO, "its stats.json is damaged: %s", jerr.text);
	}
	if (!root) {
		snprintf(m->problem, sizeof(m->problem), "%s", err.msg);
		m->not_before_ns = clock_now(clock_monotonic()) + SELDOM_NS;
		return;
	}
	m->problem[0] = 0;
	json_decref(m->before);
	m->before = m->now;
	m->before_ns = m->now_ns;
	m->now = root;
	m->now_ns = clock_now(clock_monotonic());
}

static int top_once(struct top *top)
{
	struct top_lines lines = { .width = COLUMNS };
	int rc = EXIT_DONE;

	for (uint32_t i = 0; i < top->n; i++) {
		struct top_mount *m = &top->mount[i];

		top_ask(m);
		if (*m->problem) {
			fprintf(stderr, "clairfs: %s\n", m->problem);
			rc = EXIT_FAILED;
			continue;
		}
		if (lines.n)
			top_add(&lines, "%s", "");
		top_view(m, &lines);
	}
	for (uint32_t i = 0; i < lines.n; i++)
		puts(lines.line[i]);
	top_lines_fini(&lines);
	return cli_finish() == EXIT_DONE ? rc : EXIT_FAILED;
}

static int top_new(struct top *top, char **paths, uint32_t n)
{
	top->mount = calloc(MAX(n, 1), sizeof(*top->mount));
	if (!top->mount)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		top->mount[i].path = strdup(paths[i]);
		if (!top->mount[i].path)
			return -ENOMEM;
		top->n++;
	}
	return 0;
}

static void top_fini(struct top *top)
{
	for (uint32_t i = 0; i < top->n; i++) {
		free(top->mount[i].path);
		json_decref(top->mount[i].now);
		json_decref(top->mount[i].before);
	}
	free(top->mount);
}

/* Those named, as the kernel names them. */
static int top_named(struct top *top, char **names, int n)
{
	AUTO_FREE struct mount_info *info = calloc((size_t)n, sizeof(*info));
	char *paths[MOUNTS_MAX];
	struct err err = { 0 };

	if (n > MOUNTS_MAX)
		return cli_usage("top", "%d mounts are more than %d", n, MOUNTS_MAX);
	for (int i = 0; i < n && info; i++) {
		if (mounts_find(names[i], &info[i], &err) < 0)
			return cli_fail(&err);
		if (!info[i].is_ours) {
			fprintf(stderr, "clairfs: %s is not a clairfs mount\n", info[i].path);
			return EXIT_FAILED;
		}
		paths[i] = info[i].path;
	}
	if (!info || top_new(top, paths, (uint32_t)n) < 0)
		return cli_fail(&(struct err){ .code = -ENOMEM, .msg = "out of memory" });
	return EXIT_DONE;
}

static int top_all(struct top *top)
{
	char *paths[MOUNTS_MAX];
	struct err err = { 0 };
	uint32_t n = 0;
	int rc = mounts_list(getuid(), paths, MOUNTS_MAX, &n, &err);

	if (rc == 0 && !n) {
		fprintf(stderr, "clairfs: you have no clairfs mount on this machine\n");
		return EXIT_FAILED;
	}
	if (rc == 0 && top_new(top, paths, n) < 0)
		rc = err_set_errno(&err, -ENOMEM, "mounts");
	while (n)
		free(paths[--n]);
	return rc < 0 ? cli_fail(&err) : EXIT_DONE;
}

int cmd_top(int argc, char **argv)
{
	static const struct option longs[] = { { "once", no_argument, NULL, 'o' },
					       { "interval", required_argument, NULL, 'i' },
					       { "help", no_argument, NULL, 'h' },
					       { NULL, 0, NULL, 0 } };
	struct top top = { .interval_s = 1 };
	bool is_once = false;
	int c, rc;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'h')
			return cli_help("top");
		if (c == '?')
			return cli_bad_option("top", argv);
		if (c == 'i' && (text_to_real(optarg, &top.interval_s) < 0 ||
				 top.interval_s < 0.1 || top.interval_s > 3600))
			return cli_usage("top", "--interval: '%s' is not 0.1 to 3600 seconds",
					 optarg);
		is_once = is_once || c == 'o';
	}
	if (!is_once && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)))
		return cli_usage("top", "this is no terminal: --once prints text");
	rc = optind < argc ? top_named(&top, argv + optind, argc - optind) : top_all(&top);
	if (rc == EXIT_DONE)
		rc = is_once ? top_once(&top) : top_screen(&top);
	top_fini(&top);
	return rc;
}
