/* SPDX-License-Identifier: Apache-2.0 */
/* The text of stats.json. Pure, but for the counters, which are read when it is made. */
#include <errno.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "publish_priv.h"

/* Any bytes as JSON text: what is no UTF-8 is shown escaped. */
static json_t *escaped_string(const char *text)
{
	char shown[4096 * 4];

	return json_string(text_escape(text, strlen(text), shown, sizeof(shown)));
}

static json_t *order_json(const struct published *all)
{
	const struct plan_status *p = &all->drive.plan;
	json_t *epoch =
		json_pack("{s:I, s:I, s:I, s:I, s:i, s:I}", "number", (json_int_t)p->epoch,
			  "position", (json_int_t)p->position, "length", (json_int_t)p->length,
			  "lead", (json_int_t)p->lead, "match_percent", (int)p->match_percent,
			  "span", (json_int_t)p->span);
	json_t *other = json_pack("{s:I, s:I, s:i, s:I, s:I, s:I}", "outside",
				  (json_int_t)p->outside, "outside_now", (json_int_t)p->outside_run,
				  "other_percent", (int)p->other_percent, "lost",
				  (json_int_t)p->lost, "lost_reads", (json_int_t)p->lost_reads,
				  "numberings_tried", (json_int_t)all->numberings_tried);
	json_t *valid =
		json_pack("{s:I, s:I, s:I}", "expected", (json_int_t)p->valid_length, "read",
			  (json_int_t)p->valid_read, "foreseen", (json_int_t)p->valid_foreseen);
	json_t *spec = all->spec ? escaped_string(all->spec) : NULL;
	json_t *not_taken = all->spec || !all->not_taken ? NULL : escaped_string(all->not_taken);
	char doing[PLAN_TEXT];

	plan_status_text(p, doing);
	return json_pack("{s:o*, s:o*, s:s, s:s, s:s, s:b, s:o, s:o, s:o, s:O}", "spec", spec, "not_taken",
			 not_taken, "state",
			 plan_state_names[p->state], "why", plan_status_why(p), "doing", doing,
			 "is_followed", p->state == PLAN_FOLLOWING || p->state == PLAN_SLOWED,
			 "epoch", epoch, "readers", other, "validation", valid, "search",
			 all->search);
}

static json_t *job_json(const struct orders_job *job, uint64_t now_ns)
{
	struct plan_status st = job->at.plan;
	const struct plan_status *p = &st;
	uint64_t read_ns = job->at.read_ns;
	char doing[PLAN_TEXT];

	st.is_found = job->is_found;
	plan_status_text(p, doing);
	return json_pack(
		"{s:I, s:o, s:o*, s:o*, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:i, s:I, s:f, s:b, s:b}",
		"id", (json_int_t)job->at.id, "spec", escaped_string(job->spec), "name",
		job->name ? escaped_string(job->name) : NULL, "pid",
		job->pid ? json_integer(job->pid) : NULL, "state", plan_state_names[p->state], "why",
		plan_status_why(p), "doing", doing, "epoch", (json_int_t)p->epoch, "position",
		(json_int_t)p->position, "length", (json_int_t)p->length, "lead",
		(json_int_t)p->lead, "match_percent", (int)p->match_percent, "reads",
		(json_int_t)p->placed, "quiet_seconds",
		read_ns ? (double)(now_ns - MIN(read_ns, now_ns)) / 1e9 : 0.0, "is_accounted",
		job->is_accounted, "is_found", job->is_found);
}

static json_t *jobs_json(const struct published *p)
{
	json_t *list = json_array();

	for (uint32_t i = 0; list && i < p->n_jobs; i++)
		(void)json_array_append_new(list, job_json(&p->job[i], p->now_ns));
	return list;
}

static json_t *announced_json(const struct orders_told *told)
{
	return json_pack("{s:I, s:I, s:o*, s:b}", "count", (json_int_t)told->n, "refused",
			 (json_int_t)told->n_refused, "answer",
			 told->answer ? escaped_string(told->answer) : NULL, "is_refused",
			 told->is_refused);
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

static json_t *dataset_json(const struct published_dataset *ds)
{
	const struct dataset_stats *st = &ds->stats;

	return json_pack("{s:s, s:I, s:I, s:I, s:b, s:s, s:I, s:I, s:I, s:I}", "layout",
			 dataset_layout_names[ds->layout], "samples", (json_int_t)ds->samples,
			 "entries", (json_int_t)ds->entries, "bytes", (json_int_t)ds->bytes,
			 "from_snapshot", st->from_snapshot, "snapshot_why", st->snapshot_why,
			 "dirs_scanned", (json_int_t)st->dirs_scanned, "dirs_reused",
			 (json_int_t)st->dirs_reused, "stats", (json_int_t)st->stats, "skipped",
			 (json_int_t)st->skipped);
}

static json_t *mount_json(const struct published *p)
{
	const struct published_mount *m = &p->mount;
	double uptime = (double)(p->now_ns - m->start_ns) / 1e9;

	return json_pack("{s:o, s:o, s:f, s:b, s:b, s:i, s:s, s:I}", "source", escaped_string(m->source),
			 "mountpoint", escaped_string(m->mountpoint), "uptime_seconds", uptime,
			 "is_open_refused", m->is_open_refused, "is_watch_complete",
			 m->is_watch_complete, "watches", (int)m->watches, "watch_why",
			 m->watch_why, "inodes_known", (json_int_t)m->inodes_known);
}

static json_t *engines_json(const struct published *p)
{
	return json_pack("{s:s, s:s, s:s}", "source", p->source_engine, "source_why",
			 p->source_why ? p->source_why : "", "store", p->store_engine);
}

static json_t *store_json(const struct published *p)
{
	const struct store_status *st = &p->store;

	if (!p->has_store)
		return json_null();
	return json_pack("{s:b, s:b, s:b, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "is_persistent",
			 st->is_persistent, "is_full", st->is_full, "is_off", st->is_off,
			 "is_write_off", st->is_write_off, "why", st->why, "segments",
			 (json_int_t)st->segments, "segments_of_others", (json_int_t)st->foreign,
			 "records", (json_int_t)st->records, "record_bytes",
			 (json_int_t)st->record_bytes, "unverified", (json_int_t)st->unverified,
			 "index_bytes", (json_int_t)st->index_bytes);
}

/* The parts are counted, not measured; "other" is what is left: code, stacks and buffers of threads,
 * the estimate of GPU wait, what malloc holds. */
static json_t *resident_json(const struct published_memory *m)
{
	uint64_t known = m->arena_used + m->samples_held + m->index + m->tables;

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "bytes", (json_int_t)m->resident,
			 "peak", (json_int_t)m->peak, "arena", (json_int_t)m->arena_used,
			 "samples_held", (json_int_t)m->samples_held, "index", (json_int_t)m->index,
			 "tables", (json_int_t)m->tables, "other",
			 (json_int_t)(m->resident > known ? m->resident - known : 0));
}

static json_t *memory_json(const struct published_memory *m)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:b, s:I, s:I, s:I, s:s, s:o}", "ram",
			 (json_int_t)m->ram, "arena", (json_int_t)m->arena, "stage",
			 (json_int_t)m->stage, "source_max_inflight", (json_int_t)m->inflight,
			 "inodes_ahead", (json_int_t)m->inodes_ahead, "limit",
			 (json_int_t)m->limit, "from", m->from, "is_over", m->is_over, "ram_now",
			 (json_int_t)m->ram_now, "stage_now", (json_int_t)m->stage_now, "shrunk",
			 (json_int_t)m->shrunk, "pressure", m->by, "resident", resident_json(m));
}

json_t *publish_stats(const struct published *p)
{
	json_t *root = json_pack(
		"{s:s, s:i, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:O, s:o, s:O, s:o}", "version",
		p->version, "pid", p->pid, "is_degraded", p->cache.is_degraded, "mount",
		mount_json(p), "dataset", dataset_json(&p->dataset), "order", order_json(p), "jobs",
		jobs_json(p), "engines", engines_json(p), "store", store_json(p), "reads",
		reads_json(p->metrics), "gpu_wait", p->gpu_wait, "announced",
		announced_json(&p->told), "hook", p->hook, "memory", memory_json(&p->memory));

	if (!root || metrics_to_json(p->metrics, root) < 0) {
		json_decref(root);
		return NULL;
	}
	return root;
}

int publish_stats_text(const struct published *p, struct buf_writer *out)
{
	json_t *root = publish_stats(p);
	char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;

	json_decref(root);
	if (!text)
		return -ENOMEM;
	buf_put_bytes(out, text, strlen(text));
	buf_put_u8(out, '\n');
	free(text);
	return out->is_bad ? -ENOMEM : 0;
}
