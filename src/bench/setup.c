/* SPDX-License-Identifier: Apache-2.0 */
/* From arguments to a job that can run: the dataset is scanned as a mount would scan it, so sample
 * numbers are the same; the order is made; what the command line, the order and the workload say
 * about the loader is brought together. The command line goes before the workload; an order that
 * says something else than the command line is refused, since the mount would be told that order.
 * Runs in the main process before anything else is started; changes nothing on the machine. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include <jansson.h>

#include "bench_priv.h"
#include "clairfs/base/text.h"
#include "clairfs/client.h"
#include "clairfs/daemon.h"
#include "clairfs/orders.h"
#include "clairfs/simulate.h"

#define DEFAULT_SPEC "torch-distributed:seed=1"

const char *const bench_side_names[] = { "directory", "mount",   "source",
					 "pagecache", "clairfs", NULL };

static int take_workload(const struct bench_args *a, struct sim_params *p, struct err *err)
{
	int rc = conf_init(&sim_option_table, p, err);

	if (rc == 0 && a->workload)
		rc = simulate_workload(a->workload, p, err);
	if (rc < 0)
		return rc;
	p->epochs = a->has_epochs ? a->epochs : p->epochs;
	p->ranks = a->has_ranks ? a->ranks : p->ranks;
	p->workers = a->has_workers ? a->workers : p->workers;
	p->prefetch_factor = a->has_prefetch ? a->prefetch : p->prefetch_factor;
	p->batch = a->has_batch ? a->batch : p->batch;
	p->compute_ms = a->compute_ms >= 0 ? a->compute_ms : p->compute_ms;
	p->decode_ms = a->decode_ms >= 0 ? a->decode_ms : p->decode_ms;
	return 0;
}

static int open_dataset(struct bench_setup *s, struct err *err)
{
	struct dataset_params dp = { .source = s->path };
	AUTO_FREE char *dir = NULL;
	struct mount_opts opts;
	int rc = conf_init(&mount_option_table, &opts, err);

	if (rc < 0)
		return rc;
	if (s->args->mount_options)
		rc = mount_opts_set_list(&opts, s->args->mount_options, false, err);
	dp.layout = (enum dataset_layout)opts.layout;
	dp.scan_threads = (unsigned)opts.scan_threads;
	/* The mount has the index of that place then, and with it the table of records. */
	if (rc == 0 && s->args->access == BENCH_RANDOM && opts.snapshot_dir)
		dp.snapshot_dir = dir = dataset_snapshot_place(opts.snapshot_dir);
	conf_fini(&mount_option_table, &opts);
	if (rc < 0) {
		err_prefix(err, "-o");
		return rc;
	}
	rc = dataset_open(&dp, &s->ds, err);
	if (rc == 0 && dataset_n_samples(s->ds) == 0)
		rc = err_set(err, -ENODATA, "%.512s: no samples there", s->path);
	if (rc < 0)
		return rc == -EINVAL ? err->code = -ENODATA : rc;
	return bench_units_make(s, err);
}

/* The order that a mount is following, heap; NULL: none. */
static char *spec_of_mount(const char *path)
{
	AUTO_FREE char *text = NULL;
	struct err ignored = { 0 };
	char *spec = NULL;
	json_t *root;

	if (mounts_read_vfile(path, "stats.json", &text, &ignored) < 0)
		return NULL;
	root = json_loads(text, 0, NULL);
	if (json_is_string(json_object_get(json_object_get(root, "order"), "spec")))
		spec = strdup(
			json_string_value(json_object_get(json_object_get(root, "order"), "spec")));
	json_decref(root);
	return spec;
}

static int make_order(struct bench_setup *s, uint64_t ranks, struct err *err)
{
	AUTO_FREE char *found = NULL;
	struct order_params params;
	char rank[48], world[24];
	struct order_place place = {
		.rank = rank, .world = world, .rank_name = "--ranks", .world_name = "--ranks"
	};
	const char *text = s->args->spec;
	int rc;

	snprintf(rank, sizeof(rank), ranks > 1 ? "0-%" PRIu64 : "0", ranks - 1);
	snprintf(world, sizeof(world), "%" PRIu64, ranks);
	if (!text && s->args->side[0] == SIDE_MOUNT)
		text = found = spec_of_mount(s->path);
	if (s->args->access == BENCH_RANDOM) /* numbers are all that is known of records */
		params = (struct order_params){ .n = s->n_units };
	else
		orders_dataset_params(s->ds, &params);
	rc = order_spec_parse_placed(text ? text : DEFAULT_SPEC, &place, &s->spec, err);
	if (rc == 0)
		rc = order_new(s->spec, &params, &s->order, err);
	if (rc < 0) {
		err_prefix(err, "--order");
		return rc;
	}
	s->info = order_info(s->order);
	s->ranks = s->info->n_ranks;
	if (s->ranks != ranks && s->args->has_ranks)
		return err_set(err, -EINVAL, "--ranks %" PRIu64 ", but the order is of %u", ranks,
			       s->ranks);
	if (s->ranks > BENCH_RANKS_MAX)
		return err_set(err, -EINVAL, "%u ranks, at most %d can run here", s->ranks,
			       BENCH_RANKS_MAX);
	return 0;
}

/* What the order says, unless the command line says something else. */
static int agree(const char *option, bool is_said, uint64_t value, uint64_t ordered, uint32_t *ret,
		 struct err *err)
{
	if (is_said && ordered && ordered != value)
		return err_set(err, -EINVAL,
			       "--%s %" PRIu64 ", but the order says %" PRIu64
			       ": leave one of them out",
			       option, value, ordered);
	value = ordered ? ordered : value;
	if (value > UINT32_MAX / 4)
		return err_set(err, -EINVAL, "--%s %" PRIu64 ": too many", option, value);
	*ret = (uint32_t)value;
	return 0;
}

static int settle_loader(struct bench_setup *s, const struct sim_params *p, struct err *err)
{
	const struct bench_args *a = s->args;
	const struct order_info *info = s->info;
	uint64_t smallest = s->n_units / MAX(info->world, 1);
	int rc = agree("workers", a->has_workers, p->workers, info->workers, &s->workers, err);

	if (rc == 0)
		rc = agree("prefetch", a->has_prefetch, p->prefetch_factor, info->prefetch_factor,
			   &s->prefetch, err);
	if (rc == 0)
		rc = agree("batch", a->has_batch, p->batch, info->batch, &s->batch, err);
	if (rc < 0)
		return rc;
	/* Nobody asked for eight workers; whoever does gets an error. */
	if (!a->has_workers && !info->workers && !a->workload)
		s->workers = (uint32_t)MIN(s->workers, MAX(smallest, 1));
	if (s->workers > BENCH_WORKERS_MAX)
		return err_set(err, -EINVAL, "--workers %u: at most %d", s->workers,
			       BENCH_WORKERS_MAX);
	if (info->epochs && a->has_epochs && p->epochs > info->epochs)
		return err_set(err, -EINVAL,
			       "--epochs %" PRIu64 ", but the order ends after %" PRIu64, p->epochs,
			       info->epochs);
	s->epochs = info->epochs ? MIN(info->epochs, p->epochs) : p->epochs;
	s->first_epoch = info->start_epoch;
	s->compute_ns = (uint64_t)(p->compute_ms * 1e6);
	s->decode_ns = (uint64_t)(p->decode_ms * 1e6);
	return 0;
}

/* The mount is told what the loader is like, in the order's own keys. */
static int make_mount_spec(struct bench_setup *s, struct err *err)
{
	const struct order_info *info = s->info;
	bool has_table = s->args->access == BENCH_RANDOM && !s->first;
	char more[160];
	size_t used = 0;

	/* Records that are in no table have no number there. */
	if (s->args->is_untold || s->first)
		return 0;
	*more = 0;
#define KEY(name, given, value)                                                                    \
	if (!(given) && (value))                                                                   \
		used += (size_t)snprintf(more + used, sizeof(more) - used, ":" name "=%" PRIu64,   \
					 (uint64_t)(value));
	KEY("epochs", info->epochs, s->epochs)
	KEY("batch", info->batch, s->batch)
	KEY("workers", info->workers, s->workers)
	KEY("prefetch_factor", info->prefetch_factor, s->workers ? s->prefetch : 0)
#undef KEY
	if (asprintf(&s->mount_spec, "%s%s%s", order_spec_text(s->spec), more,
		     has_table ? ":records=1" : "") < 0) {
		s->mount_spec = NULL;
		return err_set_errno(err, -ENOMEM, "order");
	}
	return 0;
}

/* Epochs that cannot be computed or read are said before anything runs: the first and the last. */
static int check_epochs(const struct bench_setup *s, struct err *err)
{
	for (int is_last = 0; is_last < 2; is_last++) {
		struct bench_block *b = NULL;
		int rc =
			bench_block_new(s, s->first_epoch + (is_last ? s->epochs - 1 : 0), &b, err);

		bench_block_free(b);
		if (rc < 0) {
			err_prefix(err, "--order");
			return rc;
		}
	}
	return 0;
}

static int setup_fill(struct bench_setup *s, struct err *err)
{
	struct sim_params p;
	int rc = take_workload(s->args, &p, err);

	if (rc == 0) {
		s->path = realpath(s->args->target, NULL);
		if (!s->path)
			rc = err_set_errno(err, -errno, "%.512s", s->args->target);
	}
	if (rc == 0)
		rc = open_dataset(s, err);
	if (rc == 0)
		rc = make_order(s, p.ranks, err);
	if (rc == 0)
		rc = settle_loader(s, &p, err);
	if (rc == 0)
		rc = make_mount_spec(s, err);
	if (rc == 0)
		rc = check_epochs(s, err);
	conf_fini(&sim_option_table, &p);
	return rc;
}

int bench_setup_new(const struct bench_args *args, struct bench_setup **ret, struct err *err)
{
	struct bench_setup *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return err_set_errno(err, -ENOMEM, "bench");
	s->args = args;
	rc = setup_fill(s, err);
	if (rc < 0)
		bench_setup_free(s);
	else
		*ret = s;
	return rc;
}

void bench_setup_free(struct bench_setup *s)
{
	if (!s)
		return;
	if (s->order)
		order_free(s->order);
	if (s->spec)
		order_spec_free(s->spec);
	if (s->ds)
		dataset_free(s->ds);
	free(s->mount_spec);
	free(s->first);
	free(s->path);
	free(s);
}
