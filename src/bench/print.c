/* SPDX-License-Identifier: Apache-2.0 */
/* How a bench is told: two tables for people, and JSON for programs (its keys are a contract). What
 * was not measured is "-" in the tables and null in JSON, never a zero. Nothing here computes a
 * figure but percentages and rates of those of numbers.c. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "bench_priv.h"
#include "clairfs/base/text.h"

/* A number, or "-". */
static const char *num(double value, int digits, char out[32])
{
	if (isfinite(value))
		snprintf(out, 32, "%.*f", digits, value);
	else
		snprintf(out, 32, "-");
	return out;
}

static const char *side_name(const struct bench_result *res, char out[32])
{
	snprintf(out, 32, "%s%s", bench_side_names[res->side],
		 res->is_warm && res->side != SIDE_PAGECACHE ? " (warm)" : "");
	return out;
}

static void print_facts(const struct bench_report *r)
{
	const struct bench_setup *s = r->setup;
	char path[1024], bytes[32];

	printf("dataset   %u samples, %s, below %s\n", dataset_n_samples(s->ds),
	       text_from_bytes(dataset_sample_bytes(s->ds), bytes, sizeof(bytes)),
	       text_escape(s->path, strlen(s->path), path, sizeof(path)));
	printf("access    %s", bench_access_names[s->args->access]);
	if (s->args->access == BENCH_RANDOM)
		printf(", %u records%s", s->n_units, s->first ? "" : " of the table");
	printf("%s\n", s->args->access == BENCH_WHOLE || r->n_sides < 2
			       ? ""
			       : "; all sides have read the same bytes");
	printf("order     %s%s\n", order_spec_text(s->spec),
	       s->mount_spec ? "" : " (a mount is not told)");
	if (*r->order_note)
		printf("          %s\n", r->order_note);
	printf("job       %u rank%s, batch %u, %u workers, prefetch factor %u; computes %g ms a "
	       "batch, decodes %g ms a sample\n",
	       s->ranks, s->ranks == 1 ? "" : "s", s->batch, s->workers, s->prefetch,
	       (double)s->compute_ns / 1e6, (double)s->decode_ns / 1e6);
	printf("machine   load average %.2f before, %.2f after\n\n", r->load[0], r->load[1]);
}

static void print_row(const struct bench_result *res)
{
	char a[32], b[32];

	printf("%-17s %5llu %9.2f %6s %9.1f %9.1f %9.2f %9.2f %9.2f %9.2f\n", side_name(res, a),
	       (unsigned long long)res->epoch, res->seconds, num(res->au_percent, 1, b),
	       (double)res->samples / res->seconds, res->bytes / 1e6 / res->seconds,
	       res->stall_seconds, 1e3 * res->stall_p50, 1e3 * res->stall_p99, 1e3 * res->read_p99);
}

static double class_percent(const struct bench_counts *c, int class)
{
	double sum = 0;

	for (int i = 0; i < READ_CLASSES; i++)
		sum += c->reads[i];
	return sum > 0 ? 100 * c->reads[class] / sum : NAN;
}

static void print_mount_row(const struct bench_report *r, const struct bench_result *res)
{
	static const int classes[] = { READ_STAGED, READ_ARENA, READ_LATE, READ_STORE, READ_MISS };
	const struct bench_counts *c = &res->counts;
	char t[8][32];

	printf("%5llu", (unsigned long long)res->epoch);
	for (size_t i = 0; i < ARRAY_LEN(classes); i++)
		printf(" %6s", num(class_percent(c, classes[i]), 1, t[0]));
	printf(" %8s %9s %9s %7s %8s %8s %8s %9s\n", num(c->source_reads, 0, t[0]),
	       num(c->source_bytes / 1e6, 1, t[1]), num(res->bound_bytes / 1e6, 1, t[2]),
	       num(c->cpu_seconds, 2, t[3]), num(c->removed_lower, 2, t[4]),
	       num(c->removed_estimate, 2, t[5]), num(c->removed_upper, 2, t[6]),
	       num(bench_removed(r, res->epoch), 2, t[7]));
}

/* Why there are no numbers, of the epochs that have none. */
static void print_unjudged(const struct bench_report *r)
{
	for (uint32_t i = 0; i < r->n_results; i++)
		if (r->result[i].counts.is_known && r->result[i].why[0])
			printf("epoch %llu was not judged: %s\n",
			       (unsigned long long)r->result[i].epoch, r->result[i].why);
}

static void print_mount(const struct bench_report *r)
{
	bool has_head = false;
	char t[4][32];

	for (uint32_t i = 0; i < r->n_results; i++) {
		if (!r->result[i].counts.is_known)
			continue;
		if (!has_head)
			printf("\nclairfs: reads by class in %%, the source, and seconds of stall "
			       "removed (its own three numbers, and measured)\n"
			       "%5s %6s %6s %6s %6s %6s %8s %9s %9s %7s %8s %8s %8s %9s\n",
			       "epoch", "staged", "arena", "late", "store", "miss", "src", "src MB",
			       "bound MB", "cpu s", "lower", "estim.", "upper", "measured");
		has_head = true;
		print_mount_row(r, &r->result[i]);
	}
	if (has_head && r->setup->epochs > 1)
		printf("%5s%72s %8s %8s %8s %9s\n", "all", "", num(r->total.removed_lower, 2, t[0]),
		       num(r->total.removed_estimate, 2, t[1]),
		       num(r->total.removed_upper, 2, t[2]), num(bench_removed_total(r), 2, t[3]));
	print_unjudged(r);
}

static void print_notes(const struct bench_report *r)
{
	char words[BENCH_ERROR], account[BENCH_ACCOUNT];
	bool agrees = bench_account(r, account);

	if (*account)
		printf("\n%s\n", account);
	if (*r->words && agrees)
		printf("%sthe mount says: %s\n", *account ? "" : "\n",
		       text_escape(r->words, strlen(r->words), words, sizeof(words)));
	bench_switchback_print(r->switchback);
	for (uint32_t k = 0; k < r->n_sides; k++)
		for (uint32_t i = r->n_results; i-- > 0;)
			if (r->result[i].side == r->side[k]) {
				printf("%s%-9s %s\n", k ? "" : "\n", bench_side_names[r->side[k]],
				       *r->result[i].note ? r->result[i].note
							  : "caches as they were");
				break;
			}
}

void bench_print_text(const struct bench_report *r)
{
	print_facts(r);
	printf("%-17s %5s %9s %6s %9s %9s %9s %9s %9s %9s\n", "", "", "", "", "", "", "stall",
	       "wait p50", "wait p99", "read p99");
	printf("%-17s %5s %9s %6s %9s %9s %9s %9s %9s %9s\n", "side", "epoch", "seconds", "AU %",
	       "samples/s", "MB/s", "s", "ms", "ms", "ms");
	for (uint32_t k = 0; k < r->n_sides; k++)
		for (uint32_t i = 0; i < r->n_results; i++)
			if (r->result[i].side == r->side[k])
				print_row(&r->result[i]);
	print_mount(r);
	print_notes(r);
}

/* --- JSON --- */

static json_t *real_or_null(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

static void add(json_t *root, const char *key, double value)
{
	json_object_set_new(root, key, real_or_null(value));
}

static json_t *foreign(const char *text)
{
	char escaped[4096];

	return json_string(text_escape(text, strlen(text), escaped, sizeof(escaped)));
}

static json_t *json_of_setup(const struct bench_report *r)
{
	const struct bench_setup *s = r->setup;

	return json_pack("{s:o, s:s, s:o, s:I, s:f, s:I, s:I, s:i, s:i, s:i, s:i, s:f, s:f, s:s, s:s, s:o, "
			 "s:o, s:b}",
			 "path", foreign(s->path), "order", order_spec_text(s->spec), "note",
			 *r->order_note ? json_string(r->order_note) : json_null(), "samples",
			 (json_int_t)dataset_n_samples(s->ds), "bytes",
			 (double)dataset_sample_bytes(s->ds), "epochs", (json_int_t)s->epochs,
			 "first_epoch", (json_int_t)s->first_epoch, "ranks", (int)s->ranks, "batch",
			 (int)s->batch, "workers", (int)s->workers, "prefetch_factor",
			 (int)s->prefetch, "compute_ms", (double)s->compute_ns / 1e6, "decode_ms",
			 (double)s->decode_ns / 1e6, "decode",
			 s->args->is_decode_asleep ? "sleep" : "spin", "access",
			 bench_access_names[s->args->access], "record_bytes",
			 s->args->record_bytes ? json_integer((json_int_t)s->args->record_bytes)
					       : json_null(),
			 "records",
			 s->args->access == BENCH_RANDOM ? json_integer(s->n_units) : json_null(),
			 "is_told", s->mount_spec != NULL);
}

static json_t *json_of_machine(const struct bench_report *r)
{
	return json_pack("{s:o, s:s, s:s, s:i, s:f, s:f, s:s}", "host", foreign(r->host), "kernel",
			 r->kernel, "time", r->time, "cores", (int)sysconf(_SC_NPROCESSORS_ONLN),
			 "load_before", r->load[0], "load_after", r->load[1], "version",
			 CLAIRFS_VERSION);
}

static json_t *json_of_removed(const struct bench_counts *c, double measured, const char *why)
{
	json_t *removed = json_object();

	add(removed, "lower", c->removed_lower);
	add(removed, "estimate", c->removed_estimate);
	add(removed, "upper", c->removed_upper);
	add(removed, "measured", measured);
	json_object_set_new(removed, "why", why && *why ? json_string(why) : json_null());
	return removed;
}

static json_t *json_of_counts(const struct bench_report *r, const struct bench_result *res)
{
	const struct bench_counts *c = &res->counts;
	json_t *root, *reads;

	if (!c->is_known)
		return json_null();
	root = json_object();
	reads = json_object();
	for (int i = 0; i < READ_CLASSES; i++)
		add(reads, read_class_names[i], c->reads[i]);
	json_object_set_new(root, "reads", reads);
	add(root, "source_reads", c->source_reads);
	add(root, "source_bytes", c->source_bytes);
	add(root, "source_bytes_per_byte", res->bytes > 0 ? c->source_bytes / res->bytes : NAN);
	add(root, "bound_bytes", res->bound_bytes);
	add(root, "cpu_seconds", c->cpu_seconds);
	json_object_set_new(root, "stall_removed_seconds",
			    json_of_removed(c, bench_removed(r, res->epoch), res->why));
	return root;
}

static json_t *json_of_result(const struct bench_report *r, const struct bench_result *res)
{
	json_t *root = json_object(), *ranks = json_array();

	json_object_set_new(root, "side", json_string(bench_side_names[res->side]));
	json_object_set_new(root, "epoch", json_integer((json_int_t)res->epoch));
	json_object_set_new(root, "is_warm", json_boolean(res->is_warm));
	json_object_set_new(root, "note", json_string(res->note));
	json_object_set_new(root, "samples", json_integer((json_int_t)res->samples));
	json_object_set_new(root, "steps", json_integer((json_int_t)res->steps));
	add(root, "bytes", res->bytes);
	json_object_set_new(root, "checksum",
			    r->setup->args->access == BENCH_WHOLE
				    ? json_null()
				    : json_sprintf("%016llx", (unsigned long long)res->sum));
	add(root, "seconds", res->seconds);
	add(root, "au_percent", res->au_percent);
	add(root, "samples_per_s", (double)res->samples / res->seconds);
	add(root, "mb_per_s", res->bytes / 1e6 / res->seconds);
	add(root, "compute_seconds", res->compute_seconds);
	add(root, "sync_seconds", res->sync_seconds);
	add(root, "stall_seconds", res->stall_seconds);
	add(root, "stall_p50_seconds", res->stall_p50);
	add(root, "stall_p99_seconds", res->stall_p99);
	add(root, "stall_max_seconds", res->stall_max);
	add(root, "first_wait_seconds", res->first_wait);
	add(root, "read_seconds", res->read_seconds);
	add(root, "read_p50_seconds", res->read_p50);
	add(root, "read_p99_seconds", res->read_p99);
	for (uint32_t i = 0; i < r->setup->ranks; i++)
		json_array_append_new(ranks, json_real(res->rank_stall[i]));
	json_object_set_new(root, "rank_stall_seconds", ranks);
	json_object_set_new(root, "mount", json_of_counts(r, res));
	return root;
}

void bench_print_json(const struct bench_report *r)
{
	json_t *runs = json_array(), *root;
	char account[BENCH_ACCOUNT];
	bool agrees;

	for (uint32_t i = 0; i < r->n_results; i++)
		json_array_append_new(runs, json_of_result(r, &r->result[i]));
	agrees = bench_account(r, account);
	root = json_pack("{s:o, s:s, s:b, s:o, s:o, s:o, s:o}", "accounting",
			 *r->words ? foreign(r->words) : json_null(), "account", account,
			 "account_agrees", agrees, "stall_removed_seconds",
			 r->total.is_known
				 ? json_of_removed(&r->total, bench_removed_total(r), NULL)
				 : json_null(),
			 "setup", json_of_setup(r), "machine", json_of_machine(r), "runs", runs);
	if (root)
		json_object_set_new(root, "switchback",
				    r->switchback ? json_incref(r->switchback) : json_null());
	if (!root || json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) < 0)
		fprintf(stderr, "clairfs: out of memory\n");
	json_decref(root);
	putchar('\n');
}
