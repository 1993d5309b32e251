/* SPDX-License-Identifier: Apache-2.0 */
/* What a person is told of a mount: the words of `clairfs status`, of the numbers in stats.json. The
 * mount may be of another version: what is not there is left out, or zero. Pure. */
#include <string.h>

#include "clairfs/base/text.h"
#include "clairfs/order.h"
#include "clairfs/publish/stats_json.h"
#include "publish_priv.h"

static const char *status_bytes(double n, char text[32])
{
	return text_from_bytes((uint64_t)n, text, 32);
}

/* Of other jobs that told no order. */
static void print_searches(FILE *out, const json_t *search)
{
	const char *ended = json_string_value(json_object_get(search, "ended"));
	const json_t *others = json_object_get(search, "others"), *one;
	char shown[4200];
	size_t i;

	json_array_foreach(others, i, one)
		fprintf(out, "          another job: %s\n",
			json_string_value(json_object_get(one, "doing")));
	if (!ended)
		return;
	order_spec_show(ended, shown, sizeof(shown));
	fprintf(out, "          the last job that has ended read %s\n", shown);
}

/* Records that were found in large files, which nobody told. */
static void print_records(FILE *out, const json_t *order)
{
	const json_t *records = json_object_get(json_object_get(order, "search"), "records"), *one;
	size_t i;

	json_array_foreach(records, i, one)
	{
		const char *index = str(one, "tell", "index"), *spec = str(one, "tell", "order");
		const char *words = json_string_value(json_object_get(one, "order_words"));

		fprintf(out, "records   %s: %s\n", json_string_value(json_object_get(one, "path")),
			json_string_value(json_object_get(one, "read")));
		if (words && *words)
			fprintf(out, "          %s\n", words);
		if (*index)
			fprintf(out, "          a table of them: %s\n", index);
		if (*spec)
			fprintf(out, "          %s: order=%s\n",
				*index ? "with it the next mount can be told" : "it can be told", spec);
	}
}

static void status_order(FILE *out, const json_t *root)
{
	const json_t *order = json_object_get(root, "order");
	const char *spec = str(root, "order", "spec");
	const char *not_taken = str(root, "order", "not_taken");
	char shown[4200];

	order_spec_show(spec, shown, sizeof(shown));
	fprintf(out, "order     %s\n", *spec ? shown : *not_taken ? "none" : "none given");
	if (*not_taken)
		fprintf(out, "          that of the mount was not taken: %s\n", not_taken);
	fprintf(out, "          %s%s%s\n", str(root, "order", "state"),
		*str(root, "order", "why") ? ": " : "", str(root, "order", "why"));
	fprintf(out, "          the job %s\n", str(root, "order", "doing"));
	fprintf(out, "          %s\n", str(order, "search", "doing"));
	print_searches(out, json_object_get(order, "search"));
	print_records(out, order);
	if (*spec && strcmp(str(root, "order", "state"), "finished") != 0)
		fprintf(out, "          epoch %.0f, position %.0f of %.0f, lead %.0f, "
			"%.0f %% of the last reads as predicted\n",
			num(order, "epoch", "number"), num(order, "epoch", "position"),
			num(order, "epoch", "length"), num(order, "epoch", "lead"),
			num(order, "epoch", "match_percent"));
	if (json_is_true(json_object_get(json_object_get(root, "announced"), "is_refused")))
		fprintf(out, "          the last one announced was refused: %s\n",
			str(root, "announced", "answer"));
}

/* Where there are several, and of those the others. */
static void print_jobs(FILE *out, const json_t *root)
{
	const json_t *jobs = json_object_get(root, "jobs"), *job;
	size_t i;

	if (json_array_size(jobs) < 2)
		return;
	json_array_foreach(jobs, i, job)
	{
		const char *spec = json_string_value(json_object_get(job, "spec"));
		const char *doing = json_string_value(json_object_get(job, "doing"));
		const char *name = json_string_value(json_object_get(job, "name"));
		char shown[4200];
		double pid = json_number_value(json_object_get(job, "pid"));

		order_spec_show(spec ? spec : "", shown, sizeof(shown));
		fprintf(out, "job %zu     %s", i + 1, shown);
		if (name && spec && !strstr(spec, ":job="))
			fprintf(out, ", job %s", name);
		if (pid > 0)
			fprintf(out, ", %s process %.0f",
				json_is_true(json_object_get(job, "is_found")) ? "found; read by"
									      : "told by",
				pid);
		fprintf(out, "\n          %s; %.0f reads, %.0f %% of the last ones as predicted; lead "
			"%.0f%s\n",
			doing ? doing : "", json_number_value(json_object_get(job, "reads")),
			json_number_value(json_object_get(job, "match_percent")),
			json_number_value(json_object_get(job, "lead")),
			i ? "" : "; gpu wait is accounted for this job");
	}
}

static void print_reads(FILE *out, const json_t *root)
{
	const json_t *reads = json_object_get(root, "reads");
	double total = 0;
	char b[32];

	for (int c = 0; c < READ_CLASSES; c++)
		total += num(reads, read_class_names[c], "reads");
	fprintf(out, "reads     %.0f", total);
	for (int c = 0; c < READ_CLASSES; c++) {
		double n = num(reads, read_class_names[c], "reads");

		if (n > 0)
			fprintf(out, "\n          %-7s %10.0f  %5.1f %%  %s", read_class_names[c], n,
				100 * n / total, status_bytes(num(reads, read_class_names[c], "bytes"), b));
	}
	fprintf(out, "\n");
}

static void print_store(FILE *out, const json_t *root, const json_t *g)
{
	char a[32], b[32], c[32];
	const char *why = str(root, "store", "why");
	double kept = json_number_value(json_object_get(g, "store_bytes"));
	double written = num(root, "counters", "store_bytes_written");
	double read = num(root, "counters", "store_read_bytes");
	double reserved = num(root, "counters", "store_reserved_bytes");

	if (json_number_value(json_object_get(g, "store_limit_bytes")) <= 0) {
		if (*why)
			fprintf(out, "store     none: %s\n", why);
		return;
	}
	fprintf(out, "store     %s of %s, %.0f %% of it samples; %s expected%s%s\n", status_bytes(kept, a),
		status_bytes(json_number_value(json_object_get(g, "store_limit_bytes")), b),
		kept > 0 ? 100 * json_number_value(json_object_get(g, "store_payload_bytes")) / kept
			: 0,
		status_bytes(json_number_value(json_object_get(g, "store_expected_bytes")), c),
		*why ? "; " : "", why);
	fprintf(out, "          written %s, read %s", status_bytes(written, a), status_bytes(read, b));
	if (read > 0)
		fprintf(out, ": %.2g bytes written per byte read", written / read);
	if (reserved > 0)
		fprintf(out, "; finished segments were %.0f %% full",
			100 * num(root, "counters", "store_sealed_bytes") / reserved);
	fprintf(out, "\n");
}

/* Sums that add up: the daemon takes more than its arena. */
static void print_resident(FILE *out, const json_t *root)
{
	const json_t *r = json_object_get(json_object_get(root, "memory"), "resident");
	char text[7][32];
	static const char *const parts[7] = { "bytes", "peak",	 "arena", "samples_held",
					      "index", "tables", "other" };

	if (!r)
		return; /* a daemon of before */
	for (int i = 0; i < 7; i++)
		status_bytes(json_number_value(json_object_get(r, parts[i])), text[i]);
	fprintf(out, "          the daemon has %s (at most %s): arena %s, lists of what it holds %s, "
		"index %s, tables of cache and plan %s, other %s\n",
		text[0], text[1], text[2], text[3], text[4], text[5], text[6]);
}

static void print_memory(FILE *out, const json_t *root)
{
	char a[32], b[32], c[32];
	double ram = num(root, "memory", "ram"), now = num(root, "memory", "ram_now");
	double arena = num(root, "memory", "arena");
	double limit = num(root, "memory", "limit");

	if (ram <= 0)
		return; /* a daemon of before */
	fprintf(out, "memory    ram %s, stage %s: ", status_bytes(ram, a),
		status_bytes(num(root, "memory", "stage"), b));
	if (limit > 0)
		fprintf(out, "limit %s (%s)\n", status_bytes(limit, c), str(root, "memory", "from"));
	else
		fprintf(out, "%s\n", str(root, "memory", "from"));
	if (json_is_true(json_object_get(json_object_get(root, "memory"), "is_over")))
		fprintf(out, "          that is more than the limit allows\n");
	if (arena > 0 && arena < ram)
		fprintf(out, "          of ram %s are for samples, the rest is for index, tables and lists\n",
			status_bytes(arena, a));
	if (now < (arena > 0 ? arena : ram))
		fprintf(out, "          shrunk under memory pressure to %s, %.0f times in all\n",
			status_bytes(now, a), num(root, "memory", "shrunk"));
	print_resident(out, root);
}

static void print_changes(FILE *out, const json_t *root)
{
	double changed = num(root, "counters", "source_changed");
	double touched = num(root, "counters", "source_touched");

	if (changed <= 0)
		return;
	fprintf(out, "          %.0f files have changed there", changed);
	if (touched > 0)
		fprintf(out, ", of which %.0f in permissions, owner or links alone: they are read again "
			"as well",
			touched);
	fprintf(out, "\n");
}

static void print_rest(FILE *out, const json_t *root)
{
	char a[32], b[32];
	const json_t *g = json_object_get(root, "gauges");
	const json_t *h = json_object_get(json_object_get(root, "histograms"), "source_latency");
	double upcalls =
		num(root, "counters", "upcall_open") + num(root, "counters", "upcall_read");
	double opens = num(root, "counters", "sample_opens");

	fprintf(out, "prefetch  asked of the source %.0f, useful %.0f, late %.0f, wasted %.0f, "
		"failed %.0f; in flight %.0f of %.0f\n",
		num(root, "counters", "prefetch_issued"), num(root, "counters", "prefetch_useful"),
		num(root, "counters", "prefetch_late"), num(root, "counters", "prefetch_wasted"),
		num(root, "counters", "prefetch_failed"),
		json_number_value(json_object_get(g, "prefetch_inflight")),
		json_number_value(json_object_get(g, "prefetch_limit")));
	print_memory(out, root);
	fprintf(out, "arena     %s of %s\n",
		status_bytes(json_number_value(json_object_get(g, "arena_bytes")), a),
		status_bytes(json_number_value(json_object_get(g, "arena_limit_bytes")), b));
	fprintf(out, "stage     %s of %s pushed and not read yet; %.0f reads found pages dropped by the kernel\n",
		status_bytes(json_number_value(json_object_get(g, "stage_bytes")), a),
		status_bytes(json_number_value(json_object_get(g, "stage_limit_bytes")), b),
		num(root, "counters", "stage_evicted_reads"));
	print_store(out, root, g);
	fprintf(out, "source    %.0f reads, %s, %.0f errors; p50 %.2f ms, p99 %.2f ms; engine %s\n",
		num(root, "counters", "source_reads"),
		status_bytes(num(root, "counters", "source_bytes"), a),
		num(root, "counters", "source_errors"),
		1e3 * json_number_value(json_object_get(h, "p50_seconds")),
		1e3 * json_number_value(json_object_get(h, "p99_seconds")),
		str(root, "engines", "source"));
	print_changes(out, root);
	fprintf(out, "upcalls   open %.0f, read %.0f", num(root, "counters", "upcall_open"),
		num(root, "counters", "upcall_read"));
	if (opens > 0)
		fprintf(out, ": %.3f per open of a sample", upcalls / opens);
	fprintf(out, "; lookup %.0f, getattr %.0f, ioctl %.0f\n", num(root, "counters", "upcall_lookup"),
		num(root, "counters", "upcall_getattr"), num(root, "counters", "upcall_ioctl"));
	if (*str(root, "mount", "watch_why"))
		fprintf(out, "          every open is one: it cannot be watched, as %s\n",
			str(root, "mount", "watch_why"));
}

void publish_status(const json_t *root, FILE *out)
{
	char b[32];

	fprintf(out, "%s on %s, up %.0f s\n", str(root, "mount", "source"),
		str(root, "mount", "mountpoint"), num(root, "mount", "uptime_seconds"));
	fprintf(out, "dataset   %.0f samples, %s, layout %s\n", num(root, "dataset", "samples"),
		status_bytes(num(root, "dataset", "bytes"), b), str(root, "dataset", "layout"));
	if (*str(root, "dataset", "snapshot_why"))
		fprintf(out, "          scanned at every mount, no snapshot of it is kept: %s\n",
			str(root, "dataset", "snapshot_why"));
	status_order(out, root);
	print_jobs(out, root);
	print_reads(out, root);
	print_rest(out, root);
	fprintf(out, "gpu wait  %s\n", str(root, "gpu_wait", "words"));
	if (json_is_true(json_object_get(root, "is_degraded")))
		fprintf(out, "degraded: something failed that costs speed, see the log\n");
}
