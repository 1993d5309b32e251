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

#define LE_FIRST_BIT 10 /* 1024 ns */
#define LE_LAST_BIT 36  /* 68.7 s */
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

static void print_row(const struct metrics *m, enum metric id, struct buf_writer *out)
{
	const struct metric_info *info = &metric_infos[id];
	uint64_t value = metrics_get(m, id);

	buf_printf(out, "clairfs_%s", info->name);
	if (info->labels[0])
		buf_printf(out, "{%s}", info->labels);
	if (info->kind == METRIC_GAUGE)
		buf_printf(out, " %" PRId64 "\n", (int64_t)value);
	else
		buf_printf(out, " %" PRIu64 "\n", value);
}

static void print_head(const char *name, const char *help, const char *type, struct buf_writer *out)
{
	buf_printf(out, "# HELP clairfs_%s %s\n# TYPE clairfs_%s %s\n", name, help, name, type);
}

static void print_hist(const struct metrics *m, enum metric_hist id, struct buf_writer *out)
{
	const struct metrics_hist_info *info = &metrics_hist_infos[id];
	struct hist_snapshot s;
	char text[SECONDS_SIZE];
	unsigned bit;

	hist_snapshot(m ? &m->hists[id] : NULL, &s);
	print_head(info->name, info->help, "histogram", out);
	for (bit = LE_FIRST_BIT; bit <= LE_LAST_BIT; bit++)
		buf_printf(out, "clairfs_%s_bucket{le=\"%s\"} %" PRIu64 "\n", info->name,
			   seconds_text(1ull << bit, text), hist_count_upto(&s, 1ull << bit));
	buf_printf(out, "clairfs_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", info->name, s.count);
	buf_printf(out, "clairfs_%s_sum %s\n", info->name, seconds_text(s.sum_ns, text));
	buf_printf(out, "clairfs_%s_count %" PRIu64 "\n", info->name, s.count);
}

void metrics_print_prometheus(const struct metrics *m, struct buf_writer *out)
{
	unsigned i;

	for (i = 0; i < METRICS_COUNT; i++) {
		const struct metric_info *info = &metric_infos[i];

		if (i == 0 || strcmp(info->name, metric_infos[i - 1].name) != 0)
			print_head(info->name, info->help,
				   info->kind == METRIC_COUNTER ? "counter" : "gauge", out);
		print_row(m, (enum metric)i, out);
	}
	metrics_print_ranks(m, out);
	for (i = 0; i < METRIC_HISTS; i++)
		print_hist(m, (enum metric_hist)i, out);
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
	for (i = 0; i < METRICS_COUNT; i++)
		bad |= set_number(metric_infos[i].kind == METRIC_COUNTER ? counters : gauges,
				  metric_infos[i].id, metrics_get(m, (enum metric)i));
	for (i = 0; i < METRIC_HISTS; i++)
		bad |= json_object_set_new(hists, metrics_hist_infos[i].id,
					   hist_to_json(m, (enum metric_hist)i));
	bad |= json_object_set_new(json, "counters", counters);
	bad |= json_object_set_new(json, "gauges", gauges);
	bad |= json_object_set_new(json, "histograms", hists);
	return bad ? -ENOMEM : 0;
}
