/* SPDX-License-Identifier: Apache-2.0 */
/* How a simulation is told: a table for people, JSON for programs (its keys are a contract), and a
 * line of progress on a terminal. Figures of the first, cold epoch are kept apart from those of the
 * steady ones: who trains for two epochs and who trains for ninety read different columns. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "clairfs/base/text.h"
#include "clairfs/simulate.h"

static const char *bytes(uint64_t n, char out[32])
{
	return text_from_bytes(n, out, 32);
}

static void print_facts(const struct sim_facts *f)
{
	char a[32], b[32], c[32];

	printf("dataset   %" PRIu64 " samples, %s\n", f->samples, bytes(f->dataset_bytes, a));
	printf("cache     %s (%.1f %%)", bytes(f->cache_bytes, a),
	       100 * (double)f->cache_bytes / (double)f->dataset_bytes);
	if (f->store_bytes)
		printf(", store %s (%.1f %%)", bytes(f->store_bytes, b),
		       100 * (double)f->store_bytes / (double)f->dataset_bytes);
	printf("; clairfs stages %s beside it\n", bytes(f->stage_bytes, c));
	printf("order     %s\n", f->order);
	printf("job       %" PRIu64 " of %" PRIu64 " ranks on this node, %" PRIu64
	       " samples an epoch",
	       f->ranks, f->world, f->reads);
	if (f->valid_reads)
		printf(" and %" PRIu64 " of the validation set after every %" PRIu64,
		       f->valid_reads, f->valid_every);
	if (f->jobs > 1)
		printf(", %" PRIu64 " jobs", f->jobs);
	if (isfinite(f->need_bytes_per_s))
		printf("; without stall it reads %.0f MB/s, the source gives %.0f MB/s\n",
		       f->need_bytes_per_s / 1e6, f->bytes_per_s / 1e6);
	else
		printf("; it does not compute\n");
}

static void print_row(const struct sim_result *r, bool has_validation)
{
	uint64_t from = r->n_epochs > 1, reads = 0, writes = 0, n = r->n_epochs - from;
	double seconds = 0;

	for (uint64_t e = from; e < r->n_epochs; e++) {
		reads += r->epoch[e].source_reads;
		seconds += r->epoch[e].seconds;
	}
	for (uint64_t e = 0; e < r->n_epochs; e++)
		writes += r->epoch[e].store_writes;
	printf("%-12s %6.3f %12.0f %12" PRIu64 " %12.2f %8.2f %8.2f %12.2f", r->policy,
	       sim_hit_ratio(r, from), (double)reads / (double)n, writes, seconds / (double)n,
	       sim_stall_pct(r, from), sim_bound_stall_pct(r, from), r->epoch[0].seconds);
	if (has_validation && strcmp(r->policy, "bound") != 0)
		printf(" %12.2f", sim_valid_stall_pct(r, from));
	putchar('\n');
}

void simulate_print_text(const struct sim_setup *setup, const struct sim_result *results,
			 uint32_t n)
{
	struct sim_facts facts;

	sim_setup_facts(setup, &facts);
	print_facts(&facts);
	printf("\n%-12s %6s %12s %12s %12s %8s %8s %12s%s\n", "", "", "source", "store", "",
	       "stall", "bound", "first", facts.valid_reads ? "   validation" : "");
	printf("%-12s %6s %12s %12s %12s %8s %8s %12s%s\n", "policy", "hit", "reads/epoch",
	       "writes", "epoch s", "%", "%", "epoch s", facts.valid_reads ? "      stall %" : "");
	for (uint32_t i = 0; i < n; i++)
		print_row(&results[i], facts.valid_reads > 0);
	if (facts.epochs > 1)
		printf("\nhit, source reads, epoch and stall: means of the epochs after the first\n");
}

static json_t *json_of_facts(const struct sim_setup *setup)
{
	struct sim_facts f;

	sim_setup_facts(setup, &f);
	return json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:o}", "samples",
		(json_int_t)f.samples, "dataset_bytes", (json_int_t)f.dataset_bytes, "cache_bytes",
		(json_int_t)f.cache_bytes, "store_bytes", (json_int_t)f.store_bytes, "stage_bytes",
		(json_int_t)f.stage_bytes, "order", f.order, "ranks", (json_int_t)f.ranks, "jobs",
		(json_int_t)f.jobs, "world", (json_int_t)f.world, "reads_per_epoch",
		(json_int_t)f.reads, "reads_per_validation", (json_int_t)f.valid_reads,
		"valid_every", (json_int_t)f.valid_every, "source_bytes_per_s", f.bytes_per_s,
		"need_bytes_per_s",
		isfinite(f.need_bytes_per_s) ? json_real(f.need_bytes_per_s) : json_null());
}

static double epoch_hit_ratio(const struct sim_epoch *e)
{
	return e->reads > e->source_reads ? 1 - (double)e->source_reads / (double)e->reads : 0;
}

static void json_add(json_t *root, const char *key, json_t *value)
{
	json_t *list = json_object_get(root, key);

	if (!list) {
		list = json_array();
		json_object_set_new(root, key, list);
	}
	json_array_append_new(list, value);
}

static json_t *json_of_result(const struct sim_result *r)
{
	json_t *root = json_pack("{s:s}", "policy", r->policy), *classes = json_object();

	for (uint64_t i = 0; i < r->n_epochs; i++) {
		const struct sim_epoch *e = &r->epoch[i];

		json_add(root, "hit_ratio", json_real(epoch_hit_ratio(e)));
		json_add(root, "reads", json_integer((json_int_t)e->reads));
		json_add(root, "source_reads", json_integer((json_int_t)e->source_reads));
		json_add(root, "source_bytes", json_integer((json_int_t)e->source_bytes));
		json_add(root, "store_writes", json_integer((json_int_t)e->store_writes));
		json_add(root, "store_write_bytes", json_integer((json_int_t)e->store_write_bytes));
		json_add(root, "epoch_seconds", json_real(e->seconds));
		json_add(root, "stall_seconds", json_real(e->stall_seconds));
		json_add(root, "compute_seconds", json_real(e->compute_seconds));
		json_add(root, "bound_seconds", json_real(e->bound_seconds));
		json_add(root, "valid_reads", json_integer((json_int_t)e->valid_reads));
		json_add(root, "valid_seconds", json_real(e->valid_seconds));
		json_add(root, "valid_stall_seconds", json_real(e->valid_stall_seconds));
		for (int c = 0; c < SIM_CLASSES; c++)
			json_add(classes, sim_class_names[c],
				 json_integer((json_int_t)e->read_class[c]));
	}
	json_object_set_new(root, "read_classes", classes);
	return root;
}

/* Whole run and the epochs after the first. A stall without any compute time has no percentage. */
static json_t *json_of_sums(const struct sim_result *r, uint64_t from)
{
	double stall = sim_stall_pct(r, from), bound = sim_bound_stall_pct(r, from);
	double valid = sim_valid_stall_pct(r, from);

	return json_pack("{s:f, s:o, s:o, s:o}", "hit_ratio", sim_hit_ratio(r, from),
			 "stall_percent", isfinite(stall) ? json_real(stall) : json_null(),
			 "bound_stall_percent", isfinite(bound) ? json_real(bound) : json_null(),
			 "valid_stall_percent", isfinite(valid) ? json_real(valid) : json_null());
}

void simulate_print_json(const struct sim_setup *setup, const struct sim_result *results, uint32_t n)
{
	json_t *runs = json_array(), *root;

	for (uint32_t i = 0; i < n; i++) {
		json_t *run = json_of_result(&results[i]);

		json_object_set_new(run, "total", json_of_sums(&results[i], 0));
		json_object_set_new(run, "steady",
				    json_of_sums(&results[i], results[i].n_epochs > 1));
		json_array_append_new(runs, run);
	}
	root = n == 1 ? json_incref(json_array_get(runs, 0)) : json_pack("{s:O}", "runs", runs);
	if (root)
		json_object_set_new(root, "setup", json_of_facts(setup));
	if (!root || json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) < 0)
		fprintf(stderr, "clairfs: out of memory\n");
	json_decref(runs);
	json_decref(root);
	putchar('\n');
}

static void show(void *ctx, const char *policy, uint64_t epoch, uint64_t epochs)
{
	(void)ctx;
	fprintf(stderr, "\r\033[Ksimulating %s: epoch %" PRIu64 " of %" PRIu64, policy, epoch,
		epochs);
}

const struct sim_progress *simulate_progress(void)
{
	static const struct sim_progress on_terminal = { .fn = show };

	return isatty(STDERR_FILENO) ? &on_terminal : NULL;
}

void simulate_progress_end(void)
{
	if (isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
}
