/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs recover: from the first samples a job read to the specs whose epoch starts with them. All
 * CPUs work for up to a few minutes, so a terminal sees how far it is; in a pipe only the specs
 * appear. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "clairfs/recover.h"
#include "cli.h"

enum { OPT_N = 256, OPT_WORLD, OPT_RANK, OPT_BATCH, OPT_WORKERS, OPT_QUICK, OPT_THREADS, OPT_HELP };

struct recover_args {
	struct recover_params params;
	uint32_t worlds[RECOVER_WORLDS_MAX];
	uint32_t seen[RECOVER_SEEN_MAX];
	bool has_n;
};

static int take_u32(const char *text, uint32_t *ret)
{
	uint64_t v;
	int rc = text_to_u64(text, &v);

	if (rc == 0 && v >= RECOVER_UNKNOWN)
		rc = -ERANGE;
	if (rc == 0)
		*ret = (uint32_t)v;
	return rc;
}

/* "8" or "1,2,4,8" */
static int take_world_list(char *text, struct recover_args *a)
{
	char *word;
	int rc = 0;

	a->params.worlds = a->worlds;
	a->params.n_worlds = 0;
	while (rc == 0 && (word = strsep(&text, ","))) {
		if (a->params.n_worlds == RECOVER_WORLDS_MAX)
			return -ERANGE;
		rc = take_u32(word, &a->worlds[a->params.n_worlds++]);
	}
	return rc;
}

static int recover_option(int c, char *value, struct recover_args *a)
{
	uint32_t threads = 0;
	int rc;

	switch (c) {
	case OPT_N:
		a->has_n = true;
		return text_to_u64(value, &a->params.n);
	case OPT_WORLD:
		return take_world_list(value, a);
	case OPT_RANK:
		return take_u32(value, &a->params.rank);
	case OPT_BATCH:
		return take_u32(value, &a->params.batch);
	case OPT_WORKERS:
		return take_u32(value, &a->params.workers);
	case OPT_QUICK:
		a->params.effort = RECOVER_QUICK;
		return 0;
	case OPT_THREADS:
		rc = take_u32(value, &threads);
		a->params.threads = threads;
		return rc == 0 && threads == 0 ? -EINVAL : rc;
	default:
		return -EINVAL;
	}
}

/* Where among what likely manual_seeds draw a seed stands that all seeds had to be tried for: by
 * chance, or because it was drawn there. */
static int print_places(const struct recover_args *a, const struct recover_found *found,
			struct err *err)
{
	struct recover_params params = a->params;
	struct recover_stream *streams AUTO_FREE = NULL;
	struct recover_place place[8];
	char spec[512];
	size_t n;
	int rc;

	if (recover_streams_new(RECOVER_LOOKUP, &streams, &params.n_streams) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	params.streams = streams;
	params.progress = NULL;
	rc = recover_find(&params, found->seed, place, ARRAY_LEN(place), &n, err);
	for (size_t i = 0; i < n; i++) {
		struct recover_found there = *found;

		there.is_chain = true;
		there.draw = place[i].draw;
		there.manual_seed = place[i].manual_seed;
		there.word = place[i].word;
		if (place[i].draw == RECOVER_TORCH &&
		    recover_spec(&there, a->params.n, 0, spec, sizeof(spec)))
			puts(spec);
	}
	return rc;
}

static void show_search(void *ctx, const struct recover_progress *p)
{
	bool *is_shown = ctx;

	if ((!p->is_full && !p->is_streams) || p->seeds_per_s <= 0)
		return;
	fprintf(stderr, "\rtrying %s seeds: %4.1f %%, %.0f million/s, at most %.0f s left   ",
		p->is_full ? "all" : "draws after likely",
		100.0 * (double)p->done / (double)p->total, p->seeds_per_s / 1e6,
		(double)(p->total - p->done) / p->seeds_per_s);
	fflush(stderr);
	*is_shown = true;
}

static int run_recover(struct recover_args *a)
{
	bool is_shown = false;
	struct recover_found found;
	struct err err = { 0 };
	char spec[512];
	int rc;

	if (isatty(STDERR_FILENO)) {
		a->params.progress = show_search;
		a->params.progress_ctx = &is_shown;
	}
	rc = recover_search(&a->params, &found, &err);
	if (is_shown)
		fprintf(stderr, "\r%*s\r", 79, "");
	if (rc < 0)
		return cli_fail(&err);
	for (unsigned i = 0; recover_spec(&found, a->params.n, i, spec, sizeof(spec)); i++)
		puts(spec);
	if (!found.is_chain && found.seed >= RECOVER_TYPED && found.world == 1 &&
	    a->params.effort == RECOVER_FULL && print_places(a, &found, &err) < 0)
		return cli_fail(&err);
	return cli_finish();
}

int cmd_recover(int argc, char **argv)
{
	static const struct option longs[] = { { "n", required_argument, NULL, OPT_N },
					       { "world", required_argument, NULL, OPT_WORLD },
					       { "rank", required_argument, NULL, OPT_RANK },
					       { "batch", required_argument, NULL, OPT_BATCH },
					       { "workers", required_argument, NULL, OPT_WORKERS },
					       { "quick", no_argument, NULL, OPT_QUICK },
					       { "threads", required_argument, NULL, OPT_THREADS },
					       { "help", no_argument, NULL, OPT_HELP },
					       { NULL, 0, NULL, 0 } };
	static const char *const needs = "the numbers of the first samples read are needed";
	struct recover_args args = { .has_n = false };
	int c, index = 0;

	recover_params_init(&args.params);
	args.params.seen = args.seen;
	while ((c = getopt_long(argc, argv, "", longs, &index)) != -1) {
		if (c == OPT_HELP)
			return cli_help("recover");
		if (c == '?')
			return cli_usage("recover", "wrong option");
		if (recover_option(c, optarg, &args) < 0)
			return cli_usage("recover", "--%s: bad value '%s'", longs[index].name,
					 optarg);
	}
	if (!args.has_n)
		return cli_usage("recover", "--n, the number of samples, is needed");
	if (optind == argc)
		return cli_usage("recover", "%s", needs);
	for (int i = optind; i < argc && args.params.n_seen < RECOVER_SEEN_MAX; i++)
		if (take_u32(argv[i], &args.seen[args.params.n_seen++]) < 0)
			return cli_usage("recover", "bad index '%s'", argv[i]);
	return run_recover(&args);
}
