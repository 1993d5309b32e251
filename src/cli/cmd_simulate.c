/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs simulate: what a cache of some size would do for a job, before the job runs. Every row of
 * the simulator's option table is a long option of its own name; a workload file sets the same
 * rows, and what stands on the command line goes before what it says, in whatever order they come.
 */
#include <errno.h>
#include <getopt.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "clairfs/dataset.h"
#include "clairfs/orders.h"
#include "clairfs/simulate.h"
#include "cli.h"

enum {
	OPT_HELP = 1000,
	OPT_POLICY,
	OPT_JSON,
	OPT_WORKLOAD,
	OPT_PRINT_CONFIG,
	OPT_DATASET,
	OPT_PLOT,
	OPT_ADVISE,
	OPT_TARGET,
	OPT_MEMORY
};

#define LONGS_MAX 96

/* The command's own options, then one for each row: "sample_bytes" is --sample-bytes. */
struct longs {
	struct option option[LONGS_MAX];
	char name[LONGS_MAX][32];
	int n_own;
};

static void longs_init(struct longs *l)
{
	static const struct option own[] = {
		{ "help", no_argument, NULL, OPT_HELP },
		{ "policy", required_argument, NULL, OPT_POLICY },
		{ "json", no_argument, NULL, OPT_JSON },
		{ "workload", required_argument, NULL, OPT_WORKLOAD },
		{ "print-config", no_argument, NULL, OPT_PRINT_CONFIG },
		{ "dataset", required_argument, NULL, OPT_DATASET },
		{ "plot", required_argument, NULL, OPT_PLOT },
		{ "advise", no_argument, NULL, OPT_ADVISE },
		{ "target-stall", required_argument, NULL, OPT_TARGET },
		{ "memory", required_argument, NULL, OPT_MEMORY }
	};
	const struct conf_option *row = sim_option_table.options;
	int n = ARRAY_LEN(own);

	memcpy(l->option, own, sizeof(own));
	l->n_own = n;
	for (; row->name && n < LONGS_MAX - 1; row++, n++) {
		snprintf(l->name[n], sizeof(l->name[n]), "%s", row->name);
		for (char *c = l->name[n]; *c; c++)
			if (*c == '_')
				*c = '-';
		l->option[n] = (struct option){ l->name[n], required_argument, NULL, n };
	}
	l->option[n] = (struct option){ .name = NULL };
}

/* "a,b" or "all". */
static int take_policies(struct simulate_args *a, const char *list)
{
	const char *const *known = sim_policies();
	uint32_t n = 0;

	if (strcmp(list, "all") == 0) {
		for (; known[n] && n < POLICIES_MAX; n++)
			a->policies[n] = known[n];
		a->policies[n] = NULL;
		return 0;
	}
	for (;;) {
		size_t len = strcspn(list, ","), i = 0;

		while (known[i] && (strlen(known[i]) != len || memcmp(known[i], list, len) != 0))
			i++;
		if (!known[i] || n == POLICIES_MAX)
			return -EINVAL;
		a->policies[n++] = known[i];
		a->policies[n] = NULL;
		if (!list[len])
			return 0;
		list += len + 1;
	}
}

static int bad_policy(const char *list)
{
	char all[256] = "";

	for (const char *const *name = sim_policies(); *name; name++)
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", *all ? ", " : "",
			 *name);
	return cli_usage("simulate", "--policy: '%s' is not all or some of %s", list, all);
}

static int run_policies(struct simulate_args *a)
{
	struct sim_result results[POLICIES_MAX] = { { .epoch = NULL } };
	struct sim_setup *setup = NULL;
	struct err err = { 0 };
	uint32_t n = 0;
	int rc = sim_setup_new(&a->params, TAKE(a->size), &setup, &err);

	for (; rc == 0 && a->policies[n]; n++)
		rc = sim_run(setup, a->policies[n], simulate_progress(), &results[n], &err);
	simulate_progress_end();
	if (rc < 0) {
		rc = cli_fail(&err);
	} else {
		(a->is_json ? simulate_print_json : simulate_print_text)(setup, results, n);
		rc = cli_finish();
	}
	for (uint32_t i = 0; i < POLICIES_MAX; i++)
		sim_result_fini(&results[i]);
	sim_setup_free(setup);
	return rc;
}

static int print_workload_config(const struct simulate_args *a)
{
	conf_print(&sim_option_table, &a->params, stdout);
	return cli_finish();
}

/* -1: go on. The rows are set by the second pass. */
static int take_own(struct simulate_args *a, int c, bool *is_printing, struct err *err)
{
	switch (c) {
	case OPT_HELP:
		return cli_help("simulate");
	case OPT_JSON:
		a->is_json = true;
		return -1;
	case OPT_PRINT_CONFIG:
		*is_printing = true;
		return -1;
	case OPT_POLICY:
		return take_policies(a, optarg) < 0 ? bad_policy(optarg) : -1;
	case OPT_WORKLOAD:
		return simulate_workload(optarg, &a->params, err) < 0 ? cli_fail(err) : -1;
	case OPT_DATASET:
		a->dataset = optarg;
		return -1;
	case OPT_PLOT:
		a->plot = optarg;
		return -1;
	case OPT_ADVISE:
		a->is_advice = true;
		return -1;
	case OPT_TARGET:
		return text_to_real(optarg, &a->target_stall) < 0
			       ? cli_usage("simulate", "--target-stall: '%s' is no percentage",
					   optarg)
			       : -1;
	case OPT_MEMORY:
		return text_to_bytes(optarg, &a->memory_bytes) < 0 || !a->memory_bytes
			       ? cli_usage("simulate", "--memory: '%s' is not a size like 64G",
					   optarg)
			       : -1;
	default:
		return -1;
	}
}

/* One of the rows. */
static int take_row(struct simulate_args *a, const char *name, struct err *err)
{
	a->has_latency = a->has_latency || strcmp(name, "source_latency_ms") == 0;
	a->has_mbps = a->has_mbps || strcmp(name, "source_mbps") == 0;
	if (a->dataset && strncmp(name, "sample", 6) == 0)
		return err_set(err, -EINVAL, "--dataset knows the samples: leave out --%s",
			       strcmp(name, "samples") ? "sample-bytes..." : name);
	return conf_set(&sim_option_table, &a->params, name, optarg, err);
}

static int simulate_act(struct simulate_args *a)
{
	struct err err = { 0 };
	int rc;

	if (a->plot && a->is_advice)
		return cli_usage("simulate", "--plot or --advise, not both");
	if (a->dataset && simulate_measure(a, &err) < 0)
		return cli_fail(&err);
	if (a->ds) {
		orders_dataset_params(a->ds, &a->files);
		a->params.files = &a->files;
	}
	if (!a->is_advice && !a->plot)
		return run_policies(a);
	rc = a->is_advice ? simulate_advise(a, &err) : simulate_plot(a, &err);
	return rc < 0 ? cli_fail(&err) : cli_finish();
}

static int simulate_parse(int argc, char **argv, struct simulate_args *a)
{
	struct err err = { 0 };
	bool is_printing = false;
	struct longs l;
	int c, rc;

	longs_init(&l);
	while ((c = getopt_long(argc, argv, "", l.option, NULL)) != -1) {
		if (c == '?')
			return cli_bad_option("simulate", argv);
		rc = take_own(a, c, &is_printing, &err);
		if (rc >= 0)
			return rc;
	}
	if (optind != argc)
		return cli_usage("simulate", "'%s' is no option", argv[optind]);
	optind = 0; /* getopt starts anew */
	while ((c = getopt_long(argc, argv, "", l.option, NULL)) != -1) {
		if (c < l.n_own || c >= OPT_HELP)
			continue;
		if (take_row(a, sim_option_table.options[c - l.n_own].name, &err) < 0)
			return cli_fail(&err);
	}
	return is_printing ? print_workload_config(a) : simulate_act(a);
}

int cmd_simulate(int argc, char **argv)
{
	struct simulate_args args = { .policies = { "clairfs", "lru", "bound" },
				      .target_stall = 5 };
	struct err err = { 0 };
	int rc;

	if (conf_init(&sim_option_table, &args.params, &err) < 0)
		return cli_fail(&err);
	rc = simulate_parse(argc, argv, &args);
	free(args.size);
	if (args.ds)
		dataset_free(args.ds);
	conf_fini(&sim_option_table, &args.params);
	return rc;
}
