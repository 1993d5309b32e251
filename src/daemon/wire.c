/* SPDX-License-Identifier: Apache-2.0 */
/* Builds and tears down a mount: the only file that knows every module. Each step leaves the wire
 * in a state that wire_down can undo, so an error anywhere leaves nothing behind. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "clairfs/base/log.h"
#include "clairfs/dataset/units.h"
#include "clairfs/tape.h"
#include "daemon_priv.h"

/* Descriptors kept for files of several pieces, and how long one is trusted to be the file behind
 * its path. */
#define SOURCE_OPEN_FILES 64
#define SOURCE_REOPEN_NS NS_PER_S

static bool is_inside(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return strcmp(dir, "/") == 0 ||
	       (strncmp(path, dir, len) == 0 && (path[len] == 0 || path[len] == '/'));
}

static int check_apart(const struct wire *w, struct err *err)
{
	if (is_inside(w->source, w->mountpoint))
		return err_set(err, -EINVAL, "source %s is inside the mountpoint %s", w->source,
			       w->mountpoint);
	if (is_inside(w->mountpoint, w->source))
		return err_set(err, -EINVAL, "mountpoint %s is inside the source %s", w->mountpoint,
			       w->source);
	return 0;
}

static int check_paths(struct wire *w, const struct daemon_params *params, struct err *err)
{
	char path[PATH_MAX];
	struct stat st;
	int rc;

	w->source = realpath(params->source, NULL);
	if (!w->source)
		return err_set_errno(err, -errno, "source %s", params->source);
	if (stat(w->source, &st) < 0)
		return err_set_errno(err, -errno, "source %s", w->source);
	if (!S_ISDIR(st.st_mode))
		return err_set(err, -ENOTDIR, "source %s: not a directory", w->source);
	if (params->fuse_fd) { /* of root, and who touches it may wait for us */
		w->mountpoint = strdup(params->mountpoint);
		return w->mountpoint ? check_apart(w, err) : err_set_errno(err, -ENOMEM, "mount");
	}
	rc = params->make_free(params->mountpoint, path, err);
	if (rc < 0)
		return rc;
	if (stat(path, &st) < 0)
		return err_set_errno(err, -errno, "mountpoint %s", path);
	if (!S_ISDIR(st.st_mode))
		return err_set(err, -ENOTDIR, "mountpoint %s: not a directory", path);
	w->mountpoint = realpath(params->mountpoint, NULL);
	if (!w->mountpoint)
		return err_set_errno(err, -errno, "mountpoint %s", params->mountpoint);
	return check_apart(w, err);
}

static int check_is_empty(const struct wire *w, struct err *err)
{
	DIR *dir = opendir(w->mountpoint);
	const struct dirent *entry;
	int n = 0;

	if (!dir)
		return err_set_errno(err, -errno, "mountpoint %s", w->mountpoint);
	while ((entry = readdir(dir)))
		n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
	closedir(dir);
	if (n > 0)
		return err_set(err, -ENOTEMPTY, "mountpoint %s: not empty", w->mountpoint);
	return 0;
}

/* What is cheap to find out before a scan that may take minutes; fs_new and store_open look again.
 */
static int check_mount_dirs(const struct wire *w, struct err *err)
{
	struct stat st;

	if (w->opts->store_dir && stat(w->opts->store_dir, &st) < 0 &&
	    !store_is_drive_error(-errno))
		return err_set_errno(err, -errno, "option store_dir: %s", w->opts->store_dir);
	return 0;
}

/* The last check, as it leaves a file behind. */
static int open_tape(struct wire *w, struct err *err)
{
	int rc = w->opts->plan_tape ? tape_open(w->opts->plan_tape, &w->tape, err) : 0;

	if (rc < 0)
		err_prefix(err, "debug=plan_tape");
	return rc;
}

static int parse_wait(struct wire *w, struct err *err)
{
	struct wait_options o = { .control_reads = w->opts->control_reads,
				  .ghost_bytes = w->opts->ghost_bytes,
				  .switchback = w->opts->switchback,
				  .cpu_pressure = w->opts->cpu_pressure,
				  .available_bytes = daemon_memory_available() };

	return wait_parse(&o, &w->wait_params, err);
}

int wire_check(struct wire *w, const struct daemon_params *params, struct err *err)
{
	struct job_place job;
	int rc = 0;

	hook_init(&w->hook, clock_monotonic());
	read_ahead_init(&w->read_ahead);
	w->opts = params->opts;
	w->fuse_fd = params->fuse_fd;
	w->report.fd = params->report_fd;
	w->start_ns = clock_now(clock_monotonic());
	log_set_level((enum log_level)w->opts->log_level);
	daemon_job_place(&job);
	if (w->opts->order)
		rc = order_spec_parse_placed(w->opts->order, &job.place, &w->spec, err);
	if (rc < 0) {
		err_prefix(err, "option order");
		return rc;
	}
	if (w->opts->allow_other && w->opts->revalidate == 0)
		return err_set(err, -EINVAL,
			       "option allow_other needs revalidate above 0: else nobody would see "
			       "that a file was closed to others");
	rc = parse_wait(w, err);
	if (rc == 0)
		rc = check_paths(w, params, err);
	if (rc == 0)
		rc = report_place_find(&w->report, w->opts->report, w->mountpoint, err);
	if (rc == 0)
		rc = wire_check_textfile(w, err);
	if (rc == 0 && !w->fuse_fd)
		rc = check_is_empty(w, err);
	if (rc == 0)
		rc = check_mount_dirs(w, err);
	return rc == 0 ? open_tape(w, err) : rc;
}

static void show_scan(void *ctx, uint64_t entries)
{
	fprintf(stderr, "\rscanning %s: %llu entries", (const char *)ctx,
		(unsigned long long)entries);
}

static int wire_dataset(struct wire *w, const struct daemon_params *params, struct err *err)
{
	AUTO_FREE char *dir = dataset_snapshot_place(w->opts->snapshot_dir);
	struct dataset_params dp = { .source = w->source,
				     .snapshot_dir = dir,
				     .tidies_snapshots = true,
				     .layout = (enum dataset_layout)w->opts->layout,
				     .scan_threads = (unsigned)w->opts->scan_threads,
				     .is_shared = w->opts->allow_other,
				     .progress = params->show_progress ? show_scan : NULL,
				     .progress_ctx = w->source };
	int rc = dataset_open(&dp, &w->dataset, err);

	if (params->show_progress)
		fprintf(stderr, "\r\033[K");
	if (rc < 0)
		return rc;
	return 0;
}

void wire_log(const struct wire *w)
{
	struct dataset_stats st;

	dataset_get_stats(w->dataset, &st);
	log_info("%s: %u samples, layout %s, %s in %.2f s", w->source,
		 dataset_n_samples(w->dataset), dataset_layout_names[dataset_layout(w->dataset)],
		 st.from_snapshot ? "index loaded" : "scanned", (double)st.seconds_ns / 1e9);
	log_info("%s is mounted on %s", w->source, w->mountpoint);
}

static int make_tiers(struct wire *w, struct err *err)
{
	struct io_params ip = { .name = "source", .max_inflight = (unsigned)w->memory.inflight };
	struct source_params sp = { .dirfd = dataset_source_fd(w->dataset),
				    .is_beneath = dataset_is_shared(w->dataset),
				    .metrics = w->metrics,
				    .open_files = SOURCE_OPEN_FILES,
				    .reopen_ns = SOURCE_REOPEN_NS,
				    .grain_ns = source_grain_ns(dataset_source_fd(w->dataset)) };
	int rc = io_new((enum io_engine)w->opts->source_engine, sp.dirfd, &ip, &w->source_io,
			&w->source_io_why, err);

	if (rc < 0) {
		err_prefix(err, "debug=source_engine");
		return rc;
	}
	sp.io = w->source_io;
	rc = source_new(&sp, &w->source_tier, err);
	if (rc < 0)
		return rc;
	rc = arena_new(w->memory.arena + cache_spare_bytes(w->memory.arena), &w->arena, err);
	if (rc < 0)
		return rc;
	return mount_store_open(w->opts, w->dataset, w->metrics, &w->store, err);
}

static int make_wait(struct wire *w, struct err *err)
{
	uint32_t n_samples = dataset_n_samples(w->dataset), n_units = dataset_n_file_units(w->dataset);
	int rc;

	/* As order_is_cut, of all samples: what an order leaves out is not known yet. */
	w->are_files_measured = n_units - n_samples <= n_samples / 64;
	w->are_records_measured = dataset_records_are_small(w->dataset);
	rc = wait_new(&w->wait_params, n_units, w->metrics, &w->wait, err);

	if (rc == 0)
		wire_watch_orders(w);
	return rc;
}

static int make_drive(struct wire *w, struct err *err)
{
	const struct mount_opts *o = w->opts;
	uint64_t arena = w->memory.arena;
	/* A quarter of the requests is left to demand reads, which then never queue behind
	 * prefetches. */
	uint64_t inflight = w->memory.inflight - w->memory.inflight / 4;
	struct tier *tiers[] = { store_tier(w->store.store), w->source_tier };
	struct cache_params cp = { .dataset = w->dataset,
				   .tiers = tiers,
				   .n_tiers = ARRAY_LEN(tiers),
				   .arena = w->arena,
				   .metrics = w->metrics,
				   .clock = clock_monotonic(),
				   .probe = wait_probe(w->wait),
				   .reads = orders_reads(w->orders),
				   .arena_bytes = arena,
				   .revalidate_ns = o->revalidate * NS_PER_S };
	struct drive_params dp = { .cache = cp,
				   .order = orders_first(w->orders),
				   .watch = &w->watch,
				   .probe = wait_drive_probe(w->wait),
				   .stage_bytes = w->memory.stage,
				   .store_bytes = w->store.bytes,
				   .pin_rule = (enum plan_pin_rule)o->store_pins,
				   .inflight_min = (uint32_t)MIN(4, inflight),
				   .inflight_max = (uint32_t)inflight,
				   .source_bytes_per_s = o->source_max_mbps * 1000000,
				   .stagers = (uint32_t)o->stagers,
				   .tape = w->tape };

	int rc = drive_new(&dp, &w->drive, err);

	if (rc == 0)
		orders_set_drive(w->orders, w->drive);
	return rc;
}

/* What watches how much memory there is; with the drive. */
static int make_pressure(struct wire *w, struct err *err)
{
	struct pressure_params params = { .drive = w->drive,
					  .metrics = w->metrics,
					  .ram = w->memory.arena,
					  .stage = w->memory.stage };

	return pressure_new(&params, &w->pressure, err);
}

/* All that is done again and again beside what has a thread of its own: src/README.md. */
static int start_duties(struct wire *w, struct err *err)
{
	struct duty duty[DUTIES_MAX] = {
		{ .name = "memory",
		  .first_ns = PRESSURE_PERIOD_NS,
		  .period_ns = PRESSURE_PERIOD_NS,
		  .run = pressure_run,
		  .listen = pressure_listen,
		  .ctx = w->pressure },
	};
	uint32_t n = 1;

	wire_make_textfile(w);
	if (w->textfile)
		duty[n++] = (struct duty){ .name = "metrics-file",
					   .period_ns = w->opts->metrics_interval * NS_PER_S,
					   .run = textfile_write,
					   .ctx = w->textfile };
	return duties_start(duty, n, &w->duties, err);
}

int wire_mount(struct wire *w, struct err *err)
{
	struct fs_params fp = { .dataset = w->dataset,
				.cache = drive_cache(w->drive),
				.metrics = w->metrics,
				.clock = clock_monotonic(),
				.mountpoint = w->mountpoint,
				.source = w->source,
				.allow_other = w->opts->allow_other,
				.inodes_ahead = w->memory.inodes_ahead,
				.vfiles = w->vfiles,
				.announce = wire_announce,
				.announce_ctx = w,
				.steps = wire_steps,
				.steps_ctx = w,
				.force_open_answered = w->opts->open == 1,
				.fuse_fd = w->fuse_fd };
	int rc = orders_listen(w->orders, err);

	if (rc < 0)
		return rc;
	w->vfiles[0] = (struct fs_vfile){ "stats.json", wire_render_stats, w };
	w->vfiles[1] = (struct fs_vfile){ "metrics", wire_render_metrics, w };
	w->vfiles[2] = (struct fs_vfile){ "config", wire_render_config, w };
	w->vfiles[3] = (struct fs_vfile){ "control", orders_render_text, w->orders };
	w->vfiles[4] = (struct fs_vfile){ "answer", orders_render_answer, w->orders };
	w->vfiles[5] = (struct fs_vfile){ NULL, NULL, NULL };
	rc = fs_new(&fp, &w->fs, err);
	if (rc < 0)
		return rc;
	drive_set_stage(w->drive, fs_stage_ops(), w->fs); /* others may read from now on */
	rc = fs_start(w->fs, err);
	if (rc < 0)
		return rc;
	read_ahead_begin(&w->read_ahead, fs_device(w->fs));
	wait_ask_source(w->wait, w->dataset);
	rc = wait_start(w->wait, err);
	if (rc == 0)
		rc = drive_start(w->drive, err);
	if (rc == 0)
		rc = orders_start(w->orders, err);
	if (rc == 0)
		rc = start_duties(w, err);
	w->is_mounted = rc == 0;
	return rc;
}

/* Source threads hold one descriptor each, kept files and watches some more: the usual soft limit
 * of 1024 is near. */
static void raise_fd_limit(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
		lim.rlim_cur = MIN(lim.rlim_max, (rlim_t)65536);
		if (setrlimit(RLIMIT_NOFILE, &lim) < 0)
			log_warn("the limit of open files stays as it is: %s", strerror(errno));
	}
}

/* Bytes of files of which a READ does not bring all. */
static uint64_t large_bytes(const struct dataset *ds)
{
	uint32_t n = dataset_n_samples(ds);
	uint64_t sum = 0;

	for (struct entry_id e = { 0 }; e.v < n; e.v++) {
		uint64_t size = dataset_size(ds, e);

		sum += piece_count(size) > 1 ? size : 0;
	}
	return sum;
}

static void plan_read_ahead(struct wire *w)
{
	uint64_t there = daemon_memory_available();
	uint64_t source = source_read_ahead(dataset_source_fd(w->dataset));
	const struct read_ahead_facts facts = {
		.source = source,
		.large = source ? large_bytes(w->dataset) : 0,
		.there = there - MIN(there, w->memory.ram),
	};

	read_ahead_plan(&w->read_ahead, &facts, dataset_source_fd(w->dataset));
}

int wire_prepare(struct wire *w, const struct daemon_params *params, struct err *err)
{
	int rc;

	memlimit_prepare();
	raise_fd_limit();
	w->metrics = metrics_new();
	if (!w->metrics)
		return err_set(err, -ENOMEM, "out of memory");
	rc = process_describe_mount(w, err);
	if (rc == 0)
		rc = wire_dataset(w, params, err);
	if (rc == 0)
		rc = wire_make_orders(w, err);
	if (rc == 0)
		budget_derive(w->opts, w->dataset, &w->memory);
	if (rc == 0)
		rc = make_tiers(w, err);
	if (rc == 0)
		plan_read_ahead(w);
	if (rc == 0)
		rc = wire_make_search(w, err);
	if (rc == 0)
		rc = make_wait(w, err);
	if (rc == 0)
		rc = make_drive(w, err);
	if (rc == 0)
		rc = make_pressure(w, err);
	return rc;
}

void wire_down(struct wire *w)
{
	duties_stop(w->duties);
	textfile_stop(w->textfile);
	orders_quit(w->orders); /* or unmounting would wait for its file */
	read_ahead_end(&w->read_ahead);
	if (w->fs)
		fs_unmount(w->fs);
	orders_stop(w->orders);
	if (w->drive)
		drive_stop(w->drive);
	wait_stop(w->wait);
	if (w->is_mounted)
		wire_write_report(w);
	if (w->fs)
		fs_free(w->fs);
	pressure_free(w->pressure);
	drive_free(w->drive);
	tape_close(w->tape);
	wait_free(w->wait);
	store_close(w->store.store);
	if (w->arena)
		arena_free(w->arena);
	tier_free(w->source_tier);
	io_free(w->source_io);
	if (orders_free(w->orders) && w->dataset) /* else it goes with the process */
		dataset_free(w->dataset);
	if (w->spec)
		order_spec_free(w->spec);
	if (w->metrics)
		metrics_free(w->metrics);
	report_place_fini(&w->report);
	free(w->textfile_path);
	hook_fini(&w->hook);
	read_ahead_fini(&w->read_ahead);
	free(w->source);
	free(w->mountpoint);
}
