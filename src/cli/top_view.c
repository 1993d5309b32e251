/* SPDX-License-Identifier: Apache-2.0 */
/* One mount in a dozen lines of text: what the job is doing, where reads were served from, what the
 * source and the store had to give, and how full the tiers are. Rates are differences of counters
 * of two readings of stats.json, so nobody keeps anything for them. What a daemon does not report
 * (an older one) is left out or zero. Whatever the mount says is escaped before it is shown. */
#include <stdarg.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "clairfs/metrics.h"
#include "clairfs/publish/stats_json.h"
#include "top.h"

#define BAR 20
#define LABEL 10

void top_add(struct top_lines *lines, const char *fmt, ...)
{
	char text[TOP_LINE];
	va_list args;

	if (lines->n == lines->size) {
		uint32_t size = lines->size * 2 + 32;
		void *bigger = realloc(lines->line, size * sizeof(*lines->line));

		if (!bigger)
			return; /* a line less */
		lines->line = bigger;
		lines->size = size;
	}
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	text_escape(text, strlen(text), lines->line[lines->n++], TOP_LINE);
}

void top_lines_fini(struct top_lines *lines)
{
	free(lines->line);
	*lines = (struct top_lines){ .width = lines->width };
}

/* Words after a label, continued beneath themselves. */
static void add_words(struct top_lines *lines, const char *label, const char *words)
{
	size_t room = lines->width > 2 * LABEL ? lines->width - LABEL : LABEL;

	while (*words) {
		size_t len = strlen(words), cut = len;

		if (len > room) {
			for (cut = room; cut && words[cut] != ' ';)
				cut--;
			cut = cut ? cut : room;
		}
		top_add(lines, "%-*s%.*s", LABEL, label, (int)cut, words);
		words += cut;
		while (*words == ' ')
			words++;
		label = "";
	}
}

static const char *top_bytes(double n, char out[32])
{
	return text_from_bytes(n > 0 ? (uint64_t)n : 0, out, 32);
}

/* Seconds that rates are over. */
static double view_seconds(const struct top_mount *m)
{
	double s = m->before ? (double)(m->now_ns - m->before_ns) / 1e9
			     : num(m->now, "mount", "uptime_seconds");

	return s > 0 ? s : 1;
}

static double top_grown(const struct top_mount *m, const char *a, const char *b)
{
	double by = num(m->now, a, b) - num(m->before, a, b);

	return by > 0 ? by : 0; /* another daemon counts from 0 */
}

static double top_rate(const struct top_mount *m, const char *counter)
{
	return top_grown(m, "counters", counter) / view_seconds(m);
}

/* Mean of what came in since the last reading, milliseconds. */
static double mean_ms(const struct top_mount *m, const char *histogram)
{
	const json_t *now = json_object_get(m->now, "histograms");
	const json_t *before = json_object_get(m->before, "histograms");
	double n = num(now, histogram, "count") - num(before, histogram, "count");
	double s = num(now, histogram, "sum_seconds") - num(before, histogram, "sum_seconds");

	return n > 0 && s > 0 ? 1e3 * s / n : 0;
}

static double p99_ms(const struct top_mount *m, const char *histogram)
{
	return 1e3 * num(json_object_get(m->now, "histograms"), histogram, "p99_seconds");
}

static void view_order(const struct top_mount *m, struct top_lines *lines)
{
	const json_t *order = json_object_get(m->now, "order");
	const char *why = str(m->now, "order", "why"), *spec = str(m->now, "order", "spec");
	double length = num(order, "epoch", "length"), position = num(order, "epoch", "position");
	char text[TOP_LINE];

	snprintf(text, sizeof(text), "%s%s%s", str(m->now, "order", "state"), *why ? ": " : "",
		 why);
	add_words(lines, "order", text);
	snprintf(text, sizeof(text), "the job %s", str(m->now, "order", "doing"));
	add_words(lines, "", text);
	if (json_is_true(json_object_get(json_object_get(order, "search"), "is_searching")))
		add_words(lines, "", str(order, "search", "doing"));
	if (*spec && length > 0)
		top_add(lines,
			"%-*sepoch %.0f, position %.0f of %.0f (%.0f %%), lead %.0f, %.0f %% as "
			"predicted",
			LABEL, "", num(order, "epoch", "number"), position, length,
			100 * position / length, num(order, "epoch", "lead"),
			num(order, "epoch", "match_percent"));
}

/* The others, where several jobs read: a line each. */
static void view_jobs(const struct top_mount *m, struct top_lines *lines)
{
	const json_t *jobs = json_object_get(m->now, "jobs"), *job;
	size_t i;

	json_array_foreach(jobs, i, job)
	{
		const char *state = json_string_value(json_object_get(job, "state"));
		const char *spec = json_string_value(json_object_get(job, "spec"));
		double length = json_number_value(json_object_get(job, "length"));
		double position = json_number_value(json_object_get(job, "position"));

		if (i == 0 || !state || !spec)
			continue;
		top_add(lines, "%-*s%s, epoch %.0f, %.0f %%, %.0f %% as predicted: %.30s", LABEL,
			i == 1 ? "others" : "", state,
			json_number_value(json_object_get(job, "epoch")),
			length > 0 ? 100 * position / length : 0,
			json_number_value(json_object_get(job, "match_percent")), spec);
	}
}

static void view_reads(const struct top_mount *m, struct top_lines *lines)
{
	const json_t *now = json_object_get(m->now, "reads"),
		     *before = json_object_get(m->before, "reads");
	double n[READ_CLASSES], all = 0, size = 0;
	char text[TOP_LINE] = "", b[32];
	size_t len = 0;

	for (int c = 0; c < READ_CLASSES; c++) {
		const char *name = read_class_names[c];

		n[c] = num(now, name, "reads") - num(before, name, "reads");
		n[c] = n[c] > 0 ? n[c] : 0;
		all += n[c];
		size += num(now, name, "bytes") - num(before, name, "bytes");
	}
	for (int c = 0; c < READ_CLASSES; c++)
		if (num(now, read_class_names[c], "reads") > 0)
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s %.1f %%",
						len ? ", " : "", read_class_names[c],
						all > 0 ? 100 * n[c] / all : 0);
	top_add(lines, "%-*s%.1f/s, %s/s", LABEL, "reads", all / view_seconds(m),
		top_bytes(size / view_seconds(m), b));
	add_words(lines, "", text);
}

static void view_tiers(const struct top_mount *m, struct top_lines *lines)
{
	bool has_store = num(m->now, "gauges", "store_limit_bytes") > 0;
	char a[32], b[32];

	top_add(lines, "%-*s%.1f reads/s, %s/s; mean %.2f ms, p99 %.2f ms", LABEL, "source",
		top_rate(m, "source_reads"), top_bytes(top_rate(m, "source_bytes"), a),
		mean_ms(m, "source_latency"), p99_ms(m, "source_latency"));
	top_add(lines,
		"%-*s%.0f + %.0f in flight for readers and ahead, ahead at most %.0f; %.0f errors",
		LABEL, "", num(m->now, "gauges", "demand_inflight"),
		num(m->now, "gauges", "prefetch_inflight"), num(m->now, "gauges", "prefetch_limit"),
		num(m->now, "counters", "source_errors"));
	if (has_store)
		top_add(lines, "%-*s%.1f reads/s, %s/s, written %s/s; mean %.2f ms, p99 %.2f ms",
			LABEL, "store", top_rate(m, "store_reads"),
			top_bytes(top_rate(m, "store_read_bytes"), a),
			top_bytes(top_rate(m, "store_bytes_written"), b), mean_ms(m, "store_latency"),
			p99_ms(m, "store_latency"));
	add_words(lines, has_store ? "" : "store", str(m->now, "store", "why"));
}

static void view_bar(const struct top_mount *m, struct top_lines *lines, const char *label,
		     const char *used, const char *limit)
{
	double has = num(m->now, "gauges", used), most = num(m->now, "gauges", limit);
	char bar[BAR + 1], a[32], b[32];
	int full;

	if (most <= 0)
		return;
	full = (int)(MIN(has / most, 1) * BAR + 0.5);
	memset(bar, ' ', BAR);
	memset(bar, '#', (size_t)full);
	bar[BAR] = 0;
	top_add(lines, "%-*s[%s] %3.0f %%  %s of %s", LABEL, label, bar, 100 * has / most,
		top_bytes(has, a), top_bytes(most, b));
}

void top_view(const struct top_mount *m, struct top_lines *lines)
{
	const char *wait;
	char b[32];

	if (!m->now) {
		top_add(lines, "%s", m->path);
		add_words(lines, "", m->problem);
		return;
	}
	top_add(lines, "%s on %s, up %.0f s", str(m->now, "mount", "source"), m->path,
		num(m->now, "mount", "uptime_seconds"));
	add_words(lines, "old", m->problem);
	view_order(m, lines);
	view_jobs(m, lines);
	view_reads(m, lines);
	top_add(lines, "%-*s%.1f/s, useful %.1f, late %.1f, wasted %.1f, failed %.1f", LABEL,
		"ahead", top_rate(m, "prefetch_issued"), top_rate(m, "prefetch_useful"),
		top_rate(m, "prefetch_late"), top_rate(m, "prefetch_wasted"), top_rate(m, "prefetch_failed"));
	view_tiers(m, lines);
	wait = str(m->now, "gpu_wait", "words");
	add_words(lines, "gpu wait", *wait ? wait : "not measured by this daemon");
	view_bar(m, lines, "arena", "arena_bytes", "arena_limit_bytes");
	view_bar(m, lines, "stage", "stage_bytes", "stage_limit_bytes");
	view_bar(m, lines, "store", "store_bytes", "store_limit_bytes");
	top_add(lines, "%-*s%.1f %% of a CPU, %s of memory%s", LABEL, "daemon",
		100 * top_rate(m, "process_cpu"), top_bytes(num(m->now, "gauges", "process_rss"), b),
		json_is_true(json_object_get(m->now, "is_degraded"))
			? "; degraded: something failed that costs speed, see the log"
			: "");
}
