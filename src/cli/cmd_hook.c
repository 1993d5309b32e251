/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs hook: what a batch system's prolog, epilog and task prolog call. clairfs check: whether a
 * node is fit for it. */
#include <getopt.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "clairfs/slurm.h"
#include "cli.h"

enum { OPT_HELP = 256, OPT_PRINT_CONFIG };

static int print_hook_config(void)
{
	struct slurm_site site;
	struct err err = { 0 };

	if (conf_init(&slurm_site_table, &site, &err) < 0)
		return cli_fail(&err);
	conf_print(&slurm_site_table, &site, stdout);
	conf_fini(&slurm_site_table, &site);
	return cli_finish();
}

static int hook_serve(const struct slurm_call *call, const char *word)
{
	uint64_t job;

	if (!word || text_to_u64(word, &job) < 0 || job == 0 || job >= UINT32_MAX)
		return cli_usage("hook", "serve needs the number of a job");
	return slurm_serve(call, (uint32_t)job);
}

static int hook_run(const struct slurm_call *call, int n, char **words)
{
	static const struct {
		const char *name;
		int (*run)(const struct slurm_call *call);
	} hooks[] = { { "prolog", slurm_prolog },
		      { "epilog", slurm_epilog },
		      { "task-prolog", slurm_task_prolog },
		      { "reap", slurm_reap } };

	if (n == 2 && strcmp(words[0], "serve") == 0)
		return hook_serve(call, words[1]);
	for (size_t i = 0; n == 1 && i < ARRAY_LEN(hooks); i++)
		if (strcmp(words[0], hooks[i].name) == 0)
			return hooks[i].run(call);
	return cli_usage("hook", "one of prolog, epilog, task-prolog and reap is needed");
}

/* Takes -c and the like; below 0: go on. */
static int take_options(int argc, char **argv, const char *command, struct slurm_call *call)
{
	static const struct option longs[] = { { "help", no_argument, NULL, OPT_HELP },
					       { "print-config", no_argument, NULL,
						 OPT_PRINT_CONFIG },
					       { NULL, 0, NULL, 0 } };
	int c;

	*call = (struct slurm_call){ .environment = environ, .out = stdout, .log = stderr };
	while ((c = getopt_long(argc, argv, "c:", longs, NULL)) != -1) {
		if (c == OPT_HELP)
			return cli_help(command);
		if (c == OPT_PRINT_CONFIG && strcmp(command, "hook") == 0)
			return print_hook_config();
		if (c != 'c')
			return cli_bad_option(command, argv);
		call->conf = optarg;
	}
	return -1;
}

int cmd_hook(int argc, char **argv)
{
	struct slurm_call call;
	int rc = take_options(argc, argv, "hook", &call);

	return rc >= 0 ? rc : hook_run(&call, argc - optind, argv + optind);
}

int cmd_check(int argc, char **argv)
{
	struct slurm_call call;
	int rc = take_options(argc, argv, "check", &call);

	if (rc >= 0)
		return rc;
	if (argc != optind)
		return cli_usage("check", "no arguments are taken");
	rc = slurm_check(&call);
	return cli_finish() == EXIT_DONE ? rc : EXIT_FAILED;
}
