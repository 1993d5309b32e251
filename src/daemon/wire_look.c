/* SPDX-License-Identifier: Apache-2.0 */
/* What a mount shows of itself, taken from all modules at a moment (struct published); the words are
 * made elsewhere. For virtual files this runs on the reactor thread: no I/O but in /proc, no waiting.
 */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "clairfs/base/log.h"
#include "clairfs/report.h"
#include "daemon_priv.h"

/* --- the parts --- */

static void look_at_mount(struct wire *w, const struct fs_status *fs, struct published_mount *ret)
{
	*ret = (struct published_mount){ .source = w->source,
					 .mountpoint = w->mountpoint,
					 .start_ns = w->start_ns,
					 .is_open_refused = fs->is_open_refused,
					 .is_watch_complete = fs->is_watch_complete,
					 .watches = fs->watches,
					 .inodes_known = fs->inodes_known };
	snprintf(ret->watch_why, sizeof(ret->watch_why), "%s", fs->watch_why);
}

static void look_at_dataset(struct wire *w, struct published_dataset *ret)
{
	*ret = (struct published_dataset){ .layout = dataset_layout(w->dataset),
					   .samples = dataset_n_samples(w->dataset),
					   .entries = dataset_n_entries(w->dataset),
					   .bytes = dataset_sample_bytes(w->dataset) };
	dataset_get_stats(w->dataset, &ret->stats);
}

/* tables: bytes of them, but of the arena's. */
static void look_at_memory(struct wire *w, uint64_t held_bytes, uint64_t table_bytes,
			   struct published_memory *ret)
{
	const struct memlimit_budget *b = &w->memory;
	uint64_t peak = memlimit_peak();
	struct pressure_view view;

	pressure_look(w->pressure, &view);
	*ret = (struct published_memory){
		.ram = b->ram,
		.arena = b->arena,
		.stage = b->stage,
		.inflight = b->inflight,
		.inodes_ahead = b->inodes_ahead,
		.limit = b->limit == MEMLIMIT_NONE ? 0 : b->limit,
		.from = b->from,
		.is_over = b->is_over,
		.ram_now = view.ram,
		.stage_now = view.stage,
		.shrunk = view.shrunk,
		.by = view.by,
		.resident = metrics_get(w->metrics, METRIC_PROCESS_RSS),
		.peak = peak == MEMLIMIT_NONE ? 0 : peak,
		.arena_used = arena_used(w->arena),
		.samples_held = held_bytes,
		.index = dataset_memory_bytes(w->dataset),
		.tables = table_bytes + arena_table_bytes(w->arena),
	};
}

/* Any thread: several may do it at once, the last one is right. */
static void update_gauges(struct wire *w)
{
	drive_update_gauges(w->drive);
	if (w->store.is_lost)
		metrics_gauge_set(w->metrics, METRIC_STORE_OFF, 1);
	process_update_metrics(w->metrics);
}

/* published_fini. */
static void look_at_all(struct wire *w, struct published *ret)
{
	struct fs_status fs;

	update_gauges(w);
	*ret = (struct published){ .version = CLAIRFS_VERSION,
				   .pid = (int)getpid(),
				   .now_ns = clock_now(clock_monotonic()),
				   .spec = orders_text(w->orders),
				   .not_taken = orders_not_taken(w->orders),
				   .numberings_tried = orders_numberings_tried(w->orders),
				   .source_engine = io_name(w->source_io),
				   .source_why = w->source_io_why,
				   .store_engine = w->store.store
							   ? store_engine_name(w->store.store)
							   : "none",
				   .search = orders_search_json(w->orders),
				   .gpu_wait = wait_json(w->wait),
				   .hook = hook_json(&w->hook),
				   .metrics = w->metrics };
	cache_get_status(drive_cache(w->drive), &ret->cache);
	drive_get_status(w->drive, &ret->drive);
	ret->drive.plan.is_found = orders_is_found(w->orders);
	fs_get_status(w->fs, &fs);
	look_at_mount(w, &fs, &ret->mount);
	look_at_dataset(w, &ret->dataset);
	ret->n_jobs = orders_get_jobs(w->orders, ret->job);
	orders_get_told(w->orders, &ret->told);
	ret->has_store = mount_store_look(&w->store, w->opts->store_keep, &ret->store);
	look_at_memory(w, ret->cache.held_bytes,
		       ret->cache.table_bytes + ret->drive.table_bytes + fs.table_bytes,
		       &ret->memory);
}

/* --- virtual files --- */

int wire_render_stats(void *ctx, struct buf_writer *out)
{
	struct published p;
	int rc;

	look_at_all(ctx, &p);
	rc = publish_stats_text(&p, out);
	published_fini(&p);
	return rc;
}

/* With a label in every row. */
static int render_labelled(void *ctx, const char *label, struct buf_writer *out)
{
	struct wire *w = ctx;

	update_gauges(w);
	metrics_print_prometheus(w->metrics, label, out);
	return out->is_bad ? -ENOMEM : 0;
}

int wire_render_metrics(void *ctx, struct buf_writer *out)
{
	return render_labelled(ctx, "", out);
}

int wire_render_config(void *ctx, struct buf_writer *out)
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

/* --- metrics outside of the mount --- */

int wire_check_textfile(struct wire *w, struct err *err)
{
	mount_word(w->mountpoint, w->word);
	return w->opts->metrics_textfile ? textfile_path(w->opts->metrics_textfile, w->word,
							 w->mountpoint, &w->textfile_path, err)
					 : 0;
}

void wire_make_textfile(struct wire *w)
{
	struct publish_source source = { render_labelled, w, w->metrics };
	struct err err = { 0 };

	if (!w->textfile_path)
		leftover_clear(w->mountpoint);
	else if (textfile_new(w->textfile_path, w->word, w->opts->metrics_interval * NS_PER_S,
			      &source, &w->textfile, &err) < 0)
		log_warn("%s: the metrics are not written", err.msg);
}

/* --- the report --- */

/* The hook's word for the job, else its batch system's. */
static void report_job_name(struct wire *w, char out[64])
{
	static const char *const names[] = { "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID" };

	memset(out, 0, 64);
	hook_job(&w->hook, out);
	for (size_t i = 0; !out[0] && i < ARRAY_LEN(names); i++) {
		const char *value = getenv(names[i]);

		if (value)
			job_name_clean(value, strlen(value), out, 64);
	}
}

static void report_host_name(char out[256])
{
	char name[256] = "";

	gethostname(name, sizeof(name) - 1);
	job_name_clean(name, sizeof(name), out, 256);
}

static double timeval_seconds(struct timeval tv)
{
	return (double)tv.tv_sec + (double)tv.tv_usec / 1e6;
}

static void look_back(struct wire *w, const struct published *last, struct published_report *ret)
{
	struct rusage use = { 0 };
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now); /* dates to show; nothing is decided by them */
	getrusage(RUSAGE_SELF, &use);
	*ret = (struct published_report){ .last = last,
					  .ended = now.tv_sec,
					  .cpu_user_s = timeval_seconds(use.ru_utime),
					  .cpu_system_s = timeval_seconds(use.ru_stime),
					  .max_memory_bytes = (uint64_t)use.ru_maxrss * 1024,
					  .store_bytes = w->store.bytes,
					  .store_found_bytes = w->store.found_bytes,
					  .ranks = hook_report_json(&w->hook) };
	report_job_name(w, ret->job);
	report_host_name(ret->host);
	wait_look(w->wait, &ret->wait);
	ret->replay = calloc(MAX(ret->wait.n_ranks, 1), sizeof(*ret->replay));
	for (uint32_t i = 0; ret->replay && i < ret->wait.n_ranks; i++)
		ret->replay[i] = wait_replay_json(w->wait, ret->wait.rank[i].rank);
}

void wire_write_report(struct wire *w)
{
	AUTO_FREE char *text = NULL;
	struct published_report report;
	struct published last;

	if (report_place_is_none(&w->report))
		return;
	look_at_all(w, &last);
	look_back(w, &last, &report);
	text = publish_report_text(&report);
	report_place_write(&w->report, &report, text);
	published_report_fini(&report);
	published_fini(&last);
}

/* --- steps of training loops --- */

int wire_steps(void *ctx, uint32_t uid, const struct clairfs_steps *steps)
{
	struct clairfs_step_record taken[CLAIRFS_STEPS];
	struct wire *w = ctx;
	uint32_t n;

	if (uid != 0 && uid != geteuid())
		return -EPERM;
	n = hook_take(&w->hook, uid, steps, taken);
	wait_steps(w->wait, taken, n);
	metrics_add(w->metrics, METRIC_HOOK_STEPS, n);
	metrics_add(w->metrics, METRIC_HOOK_REFUSED, steps->count - n);
	metrics_add(w->metrics, METRIC_HOOK_LOST, MIN(steps->lost, UINT32_MAX));
	return 0;
}
