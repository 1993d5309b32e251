/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs bench: a training job's loader with real reads, against a directory, a mount, or a
 * directory in three ways side by side (--compare). Here: what was asked for, and whether that can
 * be. */
#include <errno.h>
#include <getopt.h>
#include <string.h>
#include <sys/stat.h>

#include "clairfs/base/text.h"
#include "clairfs/bench.h"
#include "clairfs/client.h"
#include "cli.h"

enum {
	OPT_ORDER = 256,
	OPT_WORKLOAD,
	OPT_COMPARE,
	OPT_EPOCHS,
	OPT_RANKS,
	OPT_WORKERS,
	OPT_PREFETCH,
	OPT_BATCH,
	OPT_COMPUTE,
	OPT_DECODE,
	OPT_JSON,
	OPT_HTML,
	OPT_TRACE,
	OPT_SWITCHBACK,
	OPT_ACCESS,
	OPT_RECORD_BYTES,
	OPT_UNTOLD,
	OPT_HELP
};

static const struct option longs[] = { { "order", required_argument, NULL, OPT_ORDER },
				       { "workload", required_argument, NULL, OPT_WORKLOAD },
				       { "compare", required_argument, NULL, OPT_COMPARE },
				       { "epochs", required_argument, NULL, OPT_EPOCHS },
				       { "ranks", required_argument, NULL, OPT_RANKS },
				       { "workers", required_argument, NULL, OPT_WORKERS },
				       { "prefetch", required_argument, NULL, OPT_PREFETCH },
				       { "batch", required_argument, NULL, OPT_BATCH },
				       { "compute", required_argument, NULL, OPT_COMPUTE },
				       { "decode", required_argument, NULL, OPT_DECODE },
				       { "json", no_argument, NULL, OPT_JSON },
				       { "html", required_argument, NULL, OPT_HTML },
				       { "trace", required_argument, NULL, OPT_TRACE },
				       { "switchback", optional_argument, NULL, OPT_SWITCHBACK },
				       { "access", required_argument, NULL, OPT_ACCESS },
				       { "record-bytes", required_argument, NULL,
					 OPT_RECORD_BYTES },
				       { "untold", no_argument, NULL, OPT_UNTOLD },
				       { "help", no_argument, NULL, OPT_HELP },
				       { NULL, 0, NULL, 0 } };

/* "source,pagecache,clairfs" or some of them, none twice. */
static int take_sides(struct bench_args *a, const char *list)
{
	a->is_comparing = true;
	for (;;) {
		size_t len = strcspn(list, ",");
		uint32_t side = SIDE_SOURCE;

		while (side < SIDES && (strlen(bench_side_names[side]) != len ||
					memcmp(bench_side_names[side], list, len) != 0))
			side++;
		for (uint32_t i = 0; i < a->n_sides; i++)
			if (a->side[i] == (enum bench_side)side)
				return -EINVAL;
		if (side == SIDES)
			return -EINVAL;
		a->side[a->n_sides++] = (enum bench_side)side;
		if (!list[len])
			return 0;
		list += len + 1;
	}
}

static int take_count(const char *text, uint64_t least, uint64_t *ret, bool *ret_has)
{
	*ret_has = true;
	return text_to_u64(text, ret) < 0 || *ret < least || *ret > UINT32_MAX ? -EINVAL : 0;
}

static int take_ms(const char *text, double *ret)
{
	return text_to_real(text, ret) < 0 || *ret > 1e9 ? -EINVAL : 0;
}

/* "MS", "MS:spin" or "MS:sleep". */
static int take_decode(const char *text, struct bench_args *a)
{
	const char *colon = strchr(text, ':');
	AUTO_FREE char *ms = strndup(text, colon ? (size_t)(colon - text) : strlen(text));

	a->is_decode_asleep = colon && strcmp(colon, ":sleep") == 0;
	if (!ms || (colon && !a->is_decode_asleep && strcmp(colon, ":spin") != 0))
		return -EINVAL;
	return take_ms(ms, &a->decode_ms);
}

static int take_access(const char *text, struct bench_args *a)
{
	for (int i = 0; bench_access_names[i]; i++)
		if (strcmp(bench_access_names[i], text) == 0) {
			a->access = (enum bench_access)i;
			return 0;
		}
	return -EINVAL;
}

static int bench_option(int c, struct bench_args *a)
{
	switch (c) {
	case OPT_ACCESS:
		return take_access(optarg, a);
	case OPT_RECORD_BYTES:
		return text_to_bytes(optarg, &a->record_bytes) < 0 || !a->record_bytes ? -EINVAL
										       : 0;
	case OPT_UNTOLD:
		a->is_untold = true;
		return 0;
	case OPT_ORDER:
		a->spec = optarg;
		return 0;
	case OPT_WORKLOAD:
		a->workload = optarg;
		return 0;
	case OPT_COMPARE:
		return a->n_sides ? -EINVAL : take_sides(a, optarg);
	case OPT_EPOCHS:
		return take_count(optarg, 1, &a->epochs, &a->has_epochs);
	case OPT_RANKS:
		return take_count(optarg, 1, &a->ranks, &a->has_ranks);
	case OPT_WORKERS:
		return take_count(optarg, 0, &a->workers, &a->has_workers);
	case OPT_PREFETCH:
		return take_count(optarg, 1, &a->prefetch, &a->has_prefetch);
	case OPT_BATCH:
		return take_count(optarg, 1, &a->batch, &a->has_batch);
	case OPT_COMPUTE:
		return take_ms(optarg, &a->compute_ms);
	case OPT_DECODE:
		return take_decode(optarg, a);
	case OPT_JSON:
		a->is_json = true;
		return 0;
	case OPT_HTML:
		a->html = optarg;
		return 0;
	case OPT_TRACE:
		a->trace = optarg;
		return 0;
	case OPT_SWITCHBACK:
		a->switchback = optarg ? optarg : "10";
		return bench_switchback_is_share(a->switchback) ? 0 : -EINVAL;
	default:
		a->mount_options = optarg;
		return 0;
	}
}

/* What is there decides what is measured, unless sides are named. -1: go on, else the exit code. */
static int look_at_target(struct bench_args *a)
{
	struct mount_info info;
	struct err err = { 0 };
	bool has_clairfs = false;

	if (mounts_find(a->target, &info, &err) < 0)
		return cli_fail(&err);
	if (a->switchback && info.is_ours)
		return cli_usage("bench",
				 "--switchback mounts by itself and needs the source; a mount "
				 "has option switchback");
	if (a->switchback && !a->is_comparing) {
		a->is_comparing = true;
		a->side[a->n_sides++] = SIDE_CLAIRFS;
	}
	for (uint32_t i = 0; i < a->n_sides; i++)
		has_clairfs = has_clairfs || a->side[i] == SIDE_CLAIRFS;
	if (info.is_ours && a->is_comparing)
		return cli_usage("bench",
				 "--compare mounts by itself and needs the source; %s is "
				 "a clairfs mount",
				 info.path);
	if (a->mount_options && !has_clairfs)
		return cli_usage("bench", "-o is for the mount of --compare clairfs");
	if (a->switchback && a->is_comparing && !has_clairfs)
		return cli_usage("bench", "--switchback is of side clairfs");
	if (a->is_untold && !has_clairfs)
		return cli_usage("bench", "--untold is for the mount of --compare clairfs");
	if (a->record_bytes && a->access == BENCH_WHOLE)
		return cli_usage("bench", "--record-bytes is for --access stream or random");
	if (!a->is_comparing)
		a->side[a->n_sides++] = info.is_ours ? SIDE_MOUNT : SIDE_DIRECTORY;
	return -1;
}

static int tell_bench(const struct bench_report *r, const struct bench_args *a)
{
	struct err err = { 0 };

	if (a->html && bench_html_write(r, a->html, &err) < 0)
		return cli_fail(&err);
	if (a->is_json)
		bench_print_json(r);
	else
		bench_print_text(r);
	return cli_finish();
}

static int run_bench(const struct bench_args *a)
{
	struct bench_report *report = NULL;
	struct bench_setup *setup = NULL;
	struct err err = { 0 };
	int rc = bench_setup_new(a, &setup, &err);

	if (rc < 0)
		return cli_fail(&err);
	if (bench_run(setup, &report, &err) < 0) {
		err.code = -EIO; /* whatever it was, the caller was not wrong */
		rc = cli_fail(&err);
	} else {
		rc = tell_bench(report, a);
	}
	bench_report_free(report);
	bench_setup_free(setup);
	return rc;
}

int cmd_bench(int argc, char **argv)
{
	struct bench_args args = { .compute_ms = -1, .decode_ms = -1 };
	struct err err = { 0 };
	int c, index = 0, rc;

	while ((c = getopt_long(argc, argv, "o:", longs, &index)) != -1) {
		if (c == OPT_HELP)
			return cli_help("bench");
		if (c == '?')
			return cli_bad_option("bench", argv);
		if (bench_option(c, &args) < 0)
			return cli_usage("bench", "--%s: '%s' cannot be", longs[index].name,
					 optarg);
	}
	if (argc - optind != 1)
		return cli_usage("bench", "one SOURCE or MOUNTPOINT is needed");
	args.target = argv[optind];
	if (args.html && bench_html_check(args.html, &err) < 0)
		return cli_fail(&err);
	rc = look_at_target(&args);
	return rc >= 0 ? rc : run_bench(&args);
}
