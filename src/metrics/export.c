/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics as text for Prometheus and as JSON.
 *
 * Prometheus: exposition format 0.0.4. HELP and TYPE stand once in front of the rows of a name; the
 * list in the header keeps those rows together. Seconds are printed from integers, not through
 * floating point: no rounding, and no decimal comma when a library has changed the locale. A
 * histogram has 27 printed buckets, powers of two from 1024 ns to 68.7 s; they are sums of the
 * finer buckets inside, so they are exact.
 *
 * JSON: the same table with the keys of stats.json. Gauges are printed as signed numbers: one
 * that several threads move may be below zero for a moment. Any thread; must never be called on
 * the data path. */
#include "metrics_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "clairfs/base/text.h"

#define SECONDS_SIZE 40

/* 1500000000 -> "1.5"; always at least one digit on both sides of the point. */
static const char *seconds_text(uint64_t ns, char *out)
{
	size_t n = (size_t)snprintf(out, SECONDS_SIZE, "%" PRIu64 ".%09" PRIu64, ns / 1000000000,
				    ns % 1000000000);

	while (out[n - 1] == '0' && out[n - 2] != '.')
		out[--n] = '\0';
	return out;
}

/* A row's name with its labels: those of the table, `label`, and for buckets the edge. */
static void print_name(struct buf_writer *out, const char *name, const char *suffix,
		       const char *const labels[3])
{
	char sep = '{';

	buf_printf(out, "clairfs_%s%s", name, suffix);
	for (int i = 0; i < 3; i++) {
		if (!labels[i] || !labels[i][0])
			continue;
		buf_printf(out, "%c%s", sep, labels[i]);
		sep = ',';
	}
	buf_printf(out, "%s ", sep == ',' ? "}" : "");
}

/* labels: of the row, as print_name takes them. */
static void print_value(struct buf_writer *out, const struct metric_info *info, uint64_t value,
			const char *const labels[3])
{
	char text[SECONDS_SIZE];

	print_name(out, info->name, "", labels);
	if (info->kind == METRIC_COUNTER_NS || info->kind == METRIC_GAUGE_NS)
		buf_printf(out, "%s\n", seconds_text(value, text));
	else if (info->kind == METRIC_GAUGE)
		buf_printf(out, "%" PRId64 "\n", (int64_t)value);
	else
		buf_printf(out, "%" PRIu64 "\n", value);
}

static void print_head(const char *name, const char *help, const char *type, struct buf_writer *out)
{
	buf_printf(out, "# HELP clairfs_%s %s\n# TYPE clairfs_%s %s\n", name, help, name, type);
}

static void print_hist(const struct metrics *m, enum metric_hist id, const char *label,
		       struct buf_writer *out)
{
	const struct metrics_hist_info *info = &metrics_hist_infos[id];
	struct hist_snapshot s;
	char text[SECONDS_SIZE], le[SECONDS_SIZE + 8] = "le=\"+Inf\"";
	const char *const labels[3] = { info->labels, label, NULL };
	const char *const bucket[3] = { info->labels, label, le };
	uint64_t upto[HIST_LE_BITS];

	hist_snapshot(m ? &m->hists[id] : NULL, &s);
	hist_counts_upto(&s, upto);
	for (unsigned i = 0; i < HIST_LE_BITS; i++) {
		snprintf(le, sizeof(le), "le=\"%s\"",
			 seconds_text(1ull << (HIST_LE_FIRST_BIT + i), text));
		print_name(out, info->name, "_bucket", bucket);
		buf_printf(out, "%" PRIu64 "\n", upto[i]);
	}
	snprintf(le, sizeof(le), "le=\"+Inf\"");
	print_name(out, info->name, "_bucket", bucket);
	buf_printf(out, "%" PRIu64 "\n", s.count);
	print_name(out, info->name, "_sum", labels);
	buf_printf(out, "%s\n", seconds_text(s.sum_ns, text));
	print_name(out, info->name, "_count", labels);
	buf_printf(out, "%" PRIu64 "\n", s.count);
}

/* KEY="VALUE" for any bytes: what is no UTF-8 or is a control character is escaped for people, then
 * quotes and backslashes for the format. */
static void put_label(struct buf_writer *out, const char *key, const char *value)
{
	char clean[4 * 4096];

	value = value ? value : "";
	text_escape(value, strlen(value), clean, sizeof(clean));
	buf_printf(out, "%s%s=\"", out->size ? "," : "", key);
	for (const char *at = clean; *at; at++) {
		if (*at == '\\' || *at == '"')
			buf_put_u8(out, '\\');
		buf_put_u8(out, (uint8_t)*at);
	}
	buf_put_u8(out, '"');
}

int metrics_set_mount(struct metrics *m, const struct metrics_mount *mount)
{
	struct buf_writer labels;

	buf_writer_init(&labels);
	put_label(&labels, "job", mount->job);
	put_label(&labels, "user", mount->user);
	put_label(&labels, "src", mount->source);
	put_label(&labels, "mountpoint", mount->mountpoint);
	put_label(&labels, "version", mount->version);
	buf_put_u8(&labels, 0);
	if (labels.is_bad) {
		buf_writer_fini(&labels);
		return -ENOMEM;
	}
	free(m->mount_labels);
	m->mount_labels = (char *)labels.data;
	return 0;
}

static void print_info(const struct metrics *m, const char *label, struct buf_writer *out)
{
	if (!m || !m->mount_labels)
		return;
	print_head("mount_info", "Always 1; what is mounted, for whom and by which version.",
		   "gauge", out);
	print_name(out, "mount_info", "", (const char *[]){ m->mount_labels, label, NULL });
	buf_printf(out, "1\n");
}

static void export_ranks(const struct metrics *m, const char *label, struct buf_writer *out)
{
	const char *last = "";

	if (!m || !atomic_load(&m->ranks[0].rank_plus_1))
		return;
	for (unsigned i = 0; i < METRIC_RANKS; i++) {
		const struct metric_info *info = &metric_rank_infos[i];

		if (strcmp(info->name, last) != 0)
			print_head(info->name, info->help,
				   metric_is_counter(info->kind) ? "counter" : "gauge", out);
		last = info->name;
		for (unsigned k = 0; k < METRICS_RANKS_MAX; k++) {
			uint64_t rank = atomic_load(&m->ranks[k].rank_plus_1);
			char text[32];

			if (rank == 0)
				break;
			snprintf(text, sizeof(text), "rank=\"%" PRIu64 "\"", rank - 1);
			print_value(out, info, atomic_load(&m->ranks[k].cells[i]),
				    (const char *[]){ info->labels, text, label });
		}
	}
}

static void print_table(const struct metrics *m, const char *label, struct buf_writer *out)
{
	const char *last = "";

	for (unsigned i = 0; i < METRICS_COUNT; i++) {
		const struct metric_info *info = &metric_infos[i];

		if (strcmp(info->name, last) != 0)
			print_head(info->name, info->help,
				   metric_is_counter(info->kind) ? "counter" : "gauge", out);
		last = info->name;
		print_value(out, info, metrics_get(m, (enum metric)i),
			    (const char *[]){ info->labels, label, NULL });
	}
}

void metrics_print_prometheus(const struct metrics *m, const char *label, struct buf_writer *out)
{
	const char *last = "";

	print_info(m, label, out);
	print_table(m, label, out);
	export_ranks(m, label, out);
	for (unsigned i = 0; i < METRIC_HISTS; i++) {
		const struct metrics_hist_info *info = &metrics_hist_infos[i];

		if (strcmp(info->name, last) != 0)
			print_head(info->name, info->help, "histogram", out);
		last = info->name;
		print_hist(m, (enum metric_hist)i, label, out);
	}
}

static int set_number(json_t *object, const char *key, uint64_t value)
{
	return json_object_set_new(object, key, json_integer((json_int_t)value));
}

static int set_seconds(json_t *object, const char *key, uint64_t ns)
{
	return json_object_set_new(object, key, json_real((double)ns / 1e9));
}

static json_t *hist_to_json(const struct metrics *m, enum metric_hist id)
{
	struct metrics_hist_view v;
	json_t *object = json_object();
	int bad = 0;

	metrics_hist_get(m, id, &v);
	bad |= set_number(object, "count", v.count);
	bad |= set_seconds(object, "sum_seconds", v.sum_ns);
	bad |= set_seconds(object, "p50_seconds", v.p50_ns);
	bad |= set_seconds(object, "p90_seconds", v.p90_ns);
	bad |= set_seconds(object, "p99_seconds", v.p99_ns);
	bad |= set_seconds(object, "max_seconds", v.max_ns);
	if (bad == 0)
		return object;
	json_decref(object);
	return NULL;
}

int metrics_to_json(const struct metrics *m, void *json)
{
	json_t *counters = json_object(), *gauges = json_object(), *hists = json_object();
	int bad = 0;
	unsigned i;

	/* jansson takes a NULL object or value as an error of the call it is given to, so one
	 * check at the end is enough. */
	for (i = 0; i < METRICS_COUNT; i++) {
		const struct metric_info *info = &metric_infos[i];
		bool is_ns = info->kind == METRIC_COUNTER_NS || info->kind == METRIC_GAUGE_NS;

		bad |= (is_ns ? set_seconds : set_number)(metric_is_counter(info->kind) ? counters
											: gauges,
							  info->id, metrics_get(m, (enum metric)i));
	}
	for (i = 0; i < METRIC_HISTS; i++)
		bad |= json_object_set_new(hists, metrics_hist_infos[i].id,
					   hist_to_json(m, (enum metric_hist)i));
	bad |= json_object_set_new(json, "counters", counters);
	bad |= json_object_set_new(json, "gauges", gauges);
	bad |= json_object_set_new(json, "histograms", hists);
	return bad ? -ENOMEM : 0;
}
