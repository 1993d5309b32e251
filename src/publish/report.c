/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report that a mount leaves behind (option report): what the job read and how, what that cost,
 * how long its ranks waited. One JSON file for each node; `clairfs report` puts a job's together.
 * src/report/FORMAT.md says what is in it. Made when everything has stopped. Pure, but for the
 * counters, which are read when it is made.
 */
#include <limits.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "publish_priv.h"

#define REPORT_VERSION 1

/* The least bytes that any cache of this size had to read from the source, where that can be said:
 * the node reads whole passes over the dataset. The first one reads what was not in the store, each
 * later one what had no room. */
static json_t *least_json(const struct published_report *r, uint64_t read_bytes)
{
	const struct published *p = r->last;
	uint64_t all = p->dataset.bytes;
	double room, first;

	if (all == 0 || p->drive.plan.length < p->dataset.samples)
		return json_null();
	room = (double)metrics_get(p->metrics, METRIC_ARENA_LIMIT_BYTES) +
	       (double)metrics_get(p->metrics, METRIC_STAGE_LIMIT_BYTES) + (double)r->store_bytes;
	first = (double)MIN(all, read_bytes) - (double)r->store_found_bytes;
	first = MAX(first, 0);
	if (read_bytes > all)
		first += (double)(read_bytes - all) * MAX(0, 1 - room / (double)all);
	return json_integer((json_int_t)first);
}

static json_t *data_json(const struct published_report *r)
{
	const struct metrics *m = r->last->metrics;
	uint64_t reads = 0, bytes = 0;

	for (int c = 0; c < READ_CLASSES; c++) {
		reads += metrics_get(m, METRIC_READS_STAGED + c);
		bytes += metrics_get(m, METRIC_READ_BYTES_STAGED + c);
	}
	return json_pack("{s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:o}", "control_reads",
			 (json_int_t)metrics_get(m, METRIC_CONTROL_READS), "control_seconds",
			 (double)metrics_get(m, METRIC_CONTROL_WAIT) / 1e9, "reads",
			 (json_int_t)reads, "read_bytes", (json_int_t)bytes, "missed_reads",
			 (json_int_t)metrics_get(m, METRIC_READS_MISS), "source_reads",
			 (json_int_t)metrics_get(m, METRIC_SOURCE_READS), "source_bytes",
			 (json_int_t)metrics_get(m, METRIC_SOURCE_BYTES), "least_source_bytes",
			 least_json(r, bytes));
}

/* --- GPU wait removed, as the accounting judged it --- */

/* An estimate of some of the passes is none of all. */
static json_t *estimate_json(const struct stall_numbers *n, uint64_t passes, uint64_t ns)
{
	return n->judged && passes == n->judged ? json_real((double)ns / 1e9) : json_null();
}

static json_t *removed_json(const struct stall_numbers *n)
{
	return json_pack("{s:f, s:f, s:f, s:f, s:o, s:o, s:I, s:I}", "judged_seconds",
			 (double)n->judged_ns / 1e9, "at_least_seconds", (double)n->lower_ns / 1e9,
			 "at_most_seconds", (double)n->upper_ns / 1e9, "page_cache_seconds",
			 (double)n->page_cache_ns / 1e9, "replay_seconds",
			 estimate_json(n, n->judged_replay, n->estimate_ns), "hook_seconds",
			 estimate_json(n, n->judged_hook, n->estimate_hook_ns), "passes_judged",
			 (json_int_t)n->judged, "passes_unjudged", (json_int_t)n->unjudged);
}

/* World of the order in force, 0 when it has none. */
static uint32_t order_world(const char *spec)
{
	const char *at = spec ? strstr(spec, ":world=") : NULL;

	return at ? (uint32_t)strtoul(at + strlen(":world="), NULL, 10) : 0;
}

/* The rank that the numbers are of: by its number if the order has a world; the only rank of the
 * node if the order knows no ranks; else NULL, they are the node's. */
static json_t *report_rank(json_t *ranks, uint32_t rank, uint32_t world)
{
	json_t *one;
	size_t i;

	if (!world)
		return json_array_size(ranks) == 1 ? json_array_get(ranks, 0) : NULL;
	json_array_foreach(ranks, i, one)
	{
		if (json_integer_value(json_object_get(one, "rank")) == (json_int_t)rank)
			return one;
	}
	one = json_pack("{s:I, s:I}", "rank", (json_int_t)rank, "world", (json_int_t)world);
	return json_array_append_new(ranks, one) < 0 ? NULL : one;
}

static void add_removed(struct published_report *r, json_t *root)
{
	json_t *ranks = json_object_get(root, "ranks"), *data = json_object_get(root, "data");
	uint32_t world = order_world(r->last->spec);
	const struct wait_view *v = &r->wait;

	for (uint32_t i = 0; i < v->n_ranks; i++) {
		json_t *place = report_rank(ranks, v->rank[i].rank, world);
		json_t *replay = r->replay ? r->replay[i] : NULL;

		if (v->rank[i].judged)
			json_object_set_new(place ? place : root, "removed",
					    removed_json(&v->rank[i]));
		if (replay)
			json_object_set(place ? place : root, "replay", replay);
	}
	json_object_set_new(data, "control_reads", json_integer((json_int_t)v->node.control_reads));
	json_object_set_new(data, "control_seconds",
			    json_real((double)v->node.control_cost_ns / 1e9));
}

static json_t *daemon_json(const struct published_report *r)
{
	return json_pack("{s:f, s:f, s:f, s:I}", "cpu_seconds", r->cpu_user_s + r->cpu_system_s,
			 "cpu_user_seconds", r->cpu_user_s, "cpu_system_seconds", r->cpu_system_s,
			 "max_memory_bytes", (json_int_t)r->max_memory_bytes);
}

static json_t *report_json(const struct published_report *r)
{
	const struct published_mount *m = &r->last->mount;
	double mounted = (double)(r->last->now_ns - m->start_ns) / 1e9;
	char source[PATH_MAX * 4];

	text_escape(m->source, strlen(m->source), source, sizeof(source));
	return json_pack("{s:s, s:i, s:s, s:s, s:i, s:I, s:I, s:f, s:s, s:o, s:o, s:O, s:o}",
			 "format", "clairfs-report", "version", REPORT_VERSION, "job", r->job, "host",
			 r->host, "pid", r->last->pid, "begun",
			 (json_int_t)(r->ended - (int64_t)mounted), "ended", (json_int_t)r->ended,
			 "mounted_seconds", mounted, "source", source, "data", data_json(r),
			 "daemon", daemon_json(r), "ranks", r->ranks, "stats",
			 publish_stats(r->last));
}

char *publish_report_text(struct published_report *r)
{
	json_t *root = report_json(r);
	char *text;

	if (!root)
		return NULL;
	add_removed(r, root);
	text = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	return text;
}
