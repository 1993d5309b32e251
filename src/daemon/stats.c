/* SPDX-License-Identifier: Apache-2.0 */
/* Text of the virtual files: stats.json, metrics, config. Runs on the reactor thread: no I/O, no
 * waiting. */
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "clairfs/base/text.h"
#include "daemon_priv.h"

/* A path as JSON text: names that are no UTF-8 are shown escaped. */
static json_t *json_path(const char *path)
{
	char escaped[4096 * 4];

	return json_string(text_escape(path, strlen(path), escaped, sizeof(escaped)));
}

static json_t *order_json(struct wire *w, const struct cache_status *st)
{
	AUTO_FREE char *text = orders_text(w->orders);
	const struct plan_status *p = &st->plan;
	json_t *epoch =
		json_pack("{s:I, s:I, s:I, s:I, s:i, s:I}", "number", (json_int_t)p->epoch,
			  "position", (json_int_t)p->position, "length", (json_int_t)p->length,
			  "lead", (json_int_t)p->lead, "match_percent", (int)p->match_percent,
			  "span", (json_int_t)p->span);
	json_t *other =
		json_pack("{s:I, s:I, s:i, s:I, s:I, s:I}", "outside", (json_int_t)p->outside,
			  "outside_now", (json_int_t)p->outside_run, "other_percent",
			  (int)p->other_percent, "lost", (json_int_t)p->lost, "lost_reads",
			  (json_int_t)p->lost_reads, "numberings_tried",
			  (json_int_t)orders_numberings_tried(w->orders));
	json_t *valid =
		json_pack("{s:I, s:I, s:I}", "expected", (json_int_t)p->valid_length, "read",
			  (json_int_t)p->valid_read, "foreseen", (json_int_t)p->valid_foreseen);
	json_t *spec = text ? json_path(text) : NULL;
	char doing[PLAN_TEXT];

	plan_status_text(p, doing);
	return json_pack("{s:o*, s:s, s:s, s:s, s:b, s:o, s:o, s:o, s:o}", "spec", spec, "state",
			 plan_state_names[p->state], "why", plan_status_why(p), "doing", doing,
			 "is_followed", p->state == PLAN_FOLLOWING || p->state == PLAN_SLOWED,
			 "epoch", epoch, "readers", other, "validation", valid, "search",
			 orders_search_json(w->orders));
}

static json_t *job_json(const struct orders_job *job)
{
	const struct cache_job *view = &job->at;
	struct plan_status st = view->plan;
	const struct plan_status *p = &st;
	uint64_t now = clock_now(clock_monotonic());
	char doing[PLAN_TEXT];

	st.is_found = job->is_found;
	plan_status_text(p, doing);
	return json_pack(
		"{s:I, s:o, s:o*, s:o*, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:i, s:I, s:f, s:b, s:b}",
		"id", (json_int_t)view->id, "spec", json_path(job->spec), "name",
		job->name ? json_path(job->name) : NULL, "pid",
		job->pid ? json_integer(job->pid) : NULL, "state",
		plan_state_names[p->state], "why", plan_status_why(p), "doing", doing, "epoch",
		(json_int_t)p->epoch, "position", (json_int_t)p->position, "length",
		(json_int_t)p->length, "lead", (json_int_t)p->lead, "match_percent",
		(int)p->match_percent, "reads", (json_int_t)p->placed, "quiet_seconds",
		view->read_ns ? (double)(now - MIN(view->read_ns, now)) / 1e9 : 0.0, "is_accounted",
		job->is_accounted, "is_found", job->is_found);
}

/* In the order they came: GPU wait is accounted for the first. */
static json_t *jobs_json(struct wire *w)
{
	struct orders_job jobs[PLAN_JOBS];
	uint32_t n = orders_get_jobs(w->orders, jobs);
	json_t *list = json_array();

	for (uint32_t i = 0; i < n; i++) {
		if (list)
			(void)json_array_append_new(list, job_json(&jobs[i]));
		free(jobs[i].spec);
		free(jobs[i].name);
	}
	return list;
}

static json_t *announced_json(struct wire *w)
{
	struct orders_told told;
	json_t *json;

	orders_get_told(w->orders, &told);
	json = json_pack("{s:I, s:I, s:o*, s:b}", "count", (json_int_t)told.n, "refused",
			 (json_int_t)told.n_refused, "answer",
			 told.answer ? json_path(told.answer) : NULL, "is_refused",
			 told.is_refused);
	free(told.answer);
	return json;
}

static json_t *reads_json(const struct metrics *m)
{
	json_t *reads = json_object();

	for (int c = 0; reads && c < READ_CLASSES; c++) {
		json_t *one =
			json_pack("{s:I, s:I}", "reads",
				  (json_int_t)metrics_get(m, METRIC_READS_STAGED + c), "bytes",
				  (json_int_t)metrics_get(m, METRIC_READ_BYTES_STAGED + c));

		if (json_object_set_new(reads, read_class_names[c], one) < 0)
			break;
	}
	return reads;
}

static json_t *dataset_json(const struct wire *w)
{
	struct dataset_stats st;

	dataset_get_stats(w->dataset, &st);
	return json_pack("{s:s, s:I, s:I, s:I, s:b, s:s, s:I, s:I, s:I, s:I}", "layout",
			 dataset_layout_names[dataset_layout(w->dataset)], "samples",
			 (json_int_t)dataset_n_samples(w->dataset), "entries",
			 (json_int_t)dataset_n_entries(w->dataset), "bytes",
			 (json_int_t)dataset_sample_bytes(w->dataset), "from_snapshot",
			 st.from_snapshot, "snapshot_why", st.snapshot_why, "dirs_scanned", (json_int_t)st.dirs_scanned,
			 "dirs_reused", (json_int_t)st.dirs_reused, "stats", (json_int_t)st.stats,
			 "skipped", (json_int_t)st.skipped);
}

static json_t *mount_json(struct wire *w, const struct fs_status *fs)
{
	double uptime = (double)(clock_now(clock_monotonic()) - w->start_ns) / 1e9;

	return json_pack("{s:o, s:o, s:f, s:b, s:b, s:i, s:s, s:I}", "source", json_path(w->source),
			 "mountpoint", json_path(w->mountpoint), "uptime_seconds", uptime,
			 "is_open_refused", fs->is_open_refused, "is_watch_complete",
			 fs->is_watch_complete, "watches", (int)fs->watches, "watch_why",
			 fs->watch_why, "inodes_known",
			 (json_int_t)fs->inodes_known);
}

static json_t *engines_json(const struct wire *w)
{
	return json_pack("{s:s, s:s, s:s}", "source", io_name(w->source_io), "source_why",
			 w->source_io_why ? w->source_io_why : "", "store",
			 w->store ? store_engine_name(w->store) : "none");
}

static json_t *store_json(const struct wire *w)
{
	struct store_status st = { .is_off = true,
				   .is_write_off = true,
				   .is_persistent = w->opts->store_keep,
				   .why = "its directory could not be opened; the mount began "
					  "without it" };

	if (!w->store && !w->is_store_lost)
		return json_null();
	if (w->store)
		store_get_status(w->store, &st);
	return json_pack("{s:b, s:b, s:b, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "is_persistent",
			 st.is_persistent, "is_full", st.is_full, "is_off", st.is_off,
			 "is_write_off", st.is_write_off, "why", st.why, "segments",
			 (json_int_t)st.segments, "segments_of_others", (json_int_t)st.foreign,
			 "records", (json_int_t)st.records, "record_bytes",
			 (json_int_t)st.record_bytes, "unverified", (json_int_t)st.unverified,
			 "index_bytes", (json_int_t)st.index_bytes);
}

/* Any thread: several may do it at once, the last one is right. */
static void update_gauges(struct wire *w)
{
	cache_update_gauges(w->cache);
	if (w->is_store_lost)
		metrics_gauge_set(w->metrics, METRIC_STORE_OFF, 1);
	process_update_metrics(w->metrics);
}

json_t *stats_json(struct wire *w)
{
	struct cache_status cache;
	struct fs_status fs;
	json_t *root;

	update_gauges(w);
	cache_get_status(w->cache, &cache);
	fs_get_status(w->fs, &fs);
	cache.plan.is_found = orders_is_found(w->orders);
	root = json_pack("{s:s, s:i, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
			 "version", CLAIRFS_VERSION, "pid", (int)getpid(), "is_degraded",
			 cache.is_degraded, "mount", mount_json(w, &fs), "dataset", dataset_json(w),
			 "order", order_json(w, &cache), "jobs", jobs_json(w), "engines",
			 engines_json(w), "store", store_json(w), "reads", reads_json(w->metrics),
			 "gpu_wait", wait_json(w->wait), "announced", announced_json(w),
			 "hook", hook_json(&w->hook), "memory", wire_memory_json(w));
	if (!root || metrics_to_json(w->metrics, root) < 0) {
		json_decref(root);
		return NULL;
	}
	return root;
}

int stats_render_json(void *ctx, struct buf_writer *out)
{
	json_t *root = stats_json(ctx);
	char *text;

	if (!root)
		return -ENOMEM;
	text = json_dumps(root, JSON_INDENT(2));
	json_decref(root);
	if (!text)
		return -ENOMEM;
	buf_put_bytes(out, text, strlen(text));
	buf_put_u8(out, '\n');
	free(text);
	return out->is_bad ? -ENOMEM : 0;
}

int stats_render_labelled(void *ctx, const char *label, struct buf_writer *out)
{
	struct wire *w = ctx;

	update_gauges(w);
	metrics_print_prometheus(w->metrics, label, out);
	return out->is_bad ? -ENOMEM : 0;
}

int stats_render_metrics(void *ctx, struct buf_writer *out)
{
	return stats_render_labelled(ctx, "", out);
}

int stats_render_config(void *ctx, struct buf_writer *out)
{
	struct wire *w = ctx;
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return -ENOMEM;
	conf_print(&mount_option_table, w->opts, f);
	if (fclose(f) == 0)
		buf_put_bytes(out, text, size);
	free(text);
	return out->is_bad ? -ENOMEM : 0;
}
