/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs order: prints what a spec stands for, so that it can be compared with what a job reads.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "clairfs/daemon.h"
#include "clairfs/dataset/records.h"
#include "clairfs/order.h"
#include "clairfs/orders.h"
#include "cli.h"

enum {
	OPT_N = 256,
	OPT_EPOCH,
	OPT_RANK,
	OPT_HEAD,
	OPT_BINARY,
	OPT_LIST,
	OPT_SOURCE,
	OPT_PLACES,
	OPT_SNAPSHOT_DIR,
	OPT_ALLOW_OTHER,
	OPT_HELP
};

#define SCAN_THREADS 8

struct order_args {
	const char *spec, *source, *snapshot_dir;
	uint64_t n, epoch, rank, head;
	bool has_n, has_epoch, has_rank, has_places, is_shared;
	int width; /* 0 text, 4, 8 */
};

static int list_kinds(void)
{
	for (const char *const *k = order_kinds(); *k; k++)
		printf("%-20s %s\n", *k, order_kind_help(*k));
	return cli_finish();
}

static int order_cmd_option(int c, const char *value, struct order_args *a)
{
	switch (c) {
	case OPT_N:
		a->has_n = true;
		return text_to_u64(value, &a->n);
	case OPT_EPOCH:
		a->has_epoch = true;
		return text_to_u64(value, &a->epoch);
	case OPT_RANK:
		a->has_rank = true;
		return text_to_u64(value, &a->rank);
	case OPT_HEAD:
		return text_to_u64(value, &a->head);
	case OPT_SOURCE:
		a->source = value;
		return 0;
	case OPT_PLACES:
		a->has_places = true;
		return 0;
	case OPT_SNAPSHOT_DIR:
		a->snapshot_dir = value;
		return 0;
	case OPT_ALLOW_OTHER:
		a->is_shared = true;
		return 0;
	case OPT_BINARY:
		a->width = strcmp(value, "u32") == 0 ? 4 : strcmp(value, "u64") == 0 ? 8 : -1;
		return a->width < 0 ? -EINVAL : 0;
	default:
		return -EINVAL;
	}
}

static void print_sample(uint32_t sample, int width)
{
	uint64_t wide = sample; /* little-endian machines only, as FUSE on x86 and ARM */

	if (width)
		fwrite(width == 4 ? (const void *)&sample : (const void *)&wide, (size_t)width, 1,
		       stdout);
	else
		printf("%u\n", sample);
}

/* "number path offset length", as clairfs index prints records. */
static void put_place(const struct dataset *ds, const struct order *order, uint32_t number)
{
	static char path[PATH_MAX * 4], escaped[PATH_MAX * 16];
	struct dataset_extent x = { .entry = { number } };

	if (order_n_records(order) > 0)
		x = dataset_locate(ds, (struct record_no){ number });
	else
		x.length = dataset_size(ds, x.entry);
	if (dataset_path(ds, x.entry, path, sizeof(path)) < 0)
		return;
	printf("%" PRIu32 "\t%s\t%" PRIu64 "\t%" PRIu64 "\n", number,
	       text_escape(path, strlen(path), escaped, sizeof(escaped)), x.offset, x.length);
}

/* An epoch that does not fit would have this process, or another one, killed. */
static int check_room(const struct order *order, const struct order_part *part, struct err *err)
{
	uint64_t needed = order_head_bytes(order, part), there = daemon_memory_available();

	if (there == 0 || needed < there)
		return 0;
	return err_set(err, -ENOMEM,
		       "this epoch takes %llu MiB of memory and %llu MiB are available",
		       (unsigned long long)(needed >> 20), (unsigned long long)(there >> 20));
}

static int print_positions(const struct order *order, const struct dataset *ds, const struct order_args *a,
			   struct err *err)
{
	struct order_part part = { .epoch = a->has_epoch ? a->epoch : order_info(order)->start_epoch,
				   .count = a->head,
				   .has_rank = a->has_rank,
				   .rank = a->rank };
	AUTO_FREE uint32_t *sample = NULL;
	uint64_t length = 0;
	int rc = check_room(order, &part, err);

	if (rc == 0)
		rc = order_head(order, &part, &sample, &length, err);
	if (rc < 0)
		return cli_fail(err);
	for (uint64_t i = 0; i < length && !ferror(stdout); i++) {
		if (a->has_places)
			put_place(ds, order, sample[i]);
		else
			print_sample(sample[i], a->width);
	}
	return cli_finish();
}

static int run_order(const struct order_args *a)
{
	AUTO_FREE char *dir = dataset_snapshot_place(a->snapshot_dir);
	struct dataset_params dp = { .source = a->source,
				     .snapshot_dir = dir, /* which has the table of records */
				     .is_shared = a->is_shared,
				     .scan_threads = SCAN_THREADS };
	struct order_params params = { .n = a->n };
	struct dataset *dataset = NULL;
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };
	int rc = order_spec_parse(a->spec, &spec, &err);

	if (rc == 0 && a->source)
		rc = dataset_open(&dp, &dataset, &err);
	if (rc == 0 && dataset)
		orders_dataset_params(dataset, &params);
	if (rc == 0)
		rc = order_new(spec, &params, &order, &err);
	if (rc == 0 && order_note(order))
		fprintf(stderr, "clairfs: note: %s\n", order_note(order));
	rc = rc < 0 ? cli_fail(&err) : print_positions(order, dataset, a, &err);
	if (order)
		order_free(order);
	if (spec)
		order_spec_free(spec);
	if (dataset)
		dataset_free(dataset);
	return rc;
}

int cmd_order(int argc, char **argv)
{
	static const struct option longs[] = { { "n", required_argument, NULL, OPT_N },
					       { "epoch", required_argument, NULL, OPT_EPOCH },
					       { "rank", required_argument, NULL, OPT_RANK },
					       { "head", required_argument, NULL, OPT_HEAD },
					       { "binary", required_argument, NULL, OPT_BINARY },
					       { "source", required_argument, NULL, OPT_SOURCE },
					       { "places", no_argument, NULL, OPT_PLACES },
					       { "snapshot-dir", required_argument, NULL,
						 OPT_SNAPSHOT_DIR },
					       { "allow-other", no_argument, NULL, OPT_ALLOW_OTHER },
					       { "list", no_argument, NULL, OPT_LIST },
					       { "help", no_argument, NULL, OPT_HELP },
					       { NULL, 0, NULL, 0 } };
	struct order_args args = { .head = UINT64_MAX };
	int c, index = 0;

	while ((c = getopt_long(argc, argv, "", longs, &index)) != -1) {
		if (c == OPT_HELP)
			return cli_help("order");
		if (c == OPT_LIST)
			return list_kinds();
		if (c == '?')
			return cli_bad_option("order", argv);
		if (order_cmd_option(c, optarg, &args) < 0)
			return cli_usage("order", "--%s: bad value '%s'", longs[index].name,
					 optarg);
	}
	if (argc - optind != 1)
		return cli_usage("order", "one SPEC is needed");
	if (args.has_n == (args.source != NULL))
		return cli_usage("order",
				 "either --n, the number of samples, or --source is needed");
	if (args.has_n && (args.has_places || args.snapshot_dir || args.is_shared))
		return cli_usage("order", "--places, --snapshot-dir and --allow-other go with --source");
	if (args.has_places && args.width)
		return cli_usage("order", "--places or --binary, not both");
	if (args.has_n && args.n == 0)
		return cli_usage("order", "--n 0: an order needs samples");
	args.spec = argv[optind];
	return run_order(&args);
}
