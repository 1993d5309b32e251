/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a dataset, in this order: the snapshot if there is a good one; one stat per directory of
 * it; a scan of what changed (everything, without a snapshot), which takes the rest from the
 * snapshot; a new snapshot if anything is new. When nothing changed the arrays of the snapshot are
 * the index, as they were read. Must never let the state of the snapshot decide more than how long
 * this takes. Runs in the thread that calls dataset_open; the getters of this file in any thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "scan_priv.h"

const char *const dataset_layout_names[] = { "auto", "imagefolder", "files", NULL };

/* What dataset_open has in its hands. */
struct opening {
	const struct dataset_params *params;
	struct scan_options options;
	struct clock *wall_clock;
	int source_fd, snapshot_dir_fd;
	struct snapshot_key key;
	struct snapshot snap;
	struct dataset_stats stats;
	atomic_uint_fast64_t
		*n_found; /* what the progress callback reports, NULL before the scan */
	bool is_new;      /* snap differs from the file */
};

static uint64_t wall_now(struct clock *clock)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void tick(void *ctx)
{
	struct opening *o = ctx;

	if (o->params->progress && o->n_found)
		o->params->progress(o->params->progress_ctx, atomic_load(o->n_found));
}

static int open_source(struct opening *o, struct err *err)
{
	const char *source = o->params->source;
	AUTO_FD int fd = -1;
	struct stat st;

	o->source_fd = open(source, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (o->source_fd < 0)
		return err_set_errno(err, -errno, "source %s", source);
	/* Search permission is not enough to list it; a snapshot must not hide that. */
	fd = openat(o->source_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	o->stats.stats++;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set_errno(err, -errno, "source %s", source);
	snapshot_key_of(source, fd, st.st_ino, &o->key);
	o->key.is_shared = o->params->is_shared;
	return 0;
}

/* True when o->snap has the snapshot. */
static bool load(struct opening *o)
{
	int error;

	if (!o->params->snapshot_dir)
		return false;
	o->snapshot_dir_fd = snapshot_dir_open(o->params->snapshot_dir, o->stats.snapshot_why);
	if (o->snapshot_dir_fd < 0) {
		log_warn("no snapshot of the dataset is kept: %s", o->stats.snapshot_why);
		return false;
	}
	error = snapshot_load(o->snapshot_dir_fd, &o->key, &o->snap);
	if (error < 0 && error != -ENOENT)
		log_warn("the snapshot of %s is not used, the source is scanned: %s",
			 o->params->source,
			 error == -EBADMSG ? "damaged or of another version" : strerror(-error));
	return error == 0;
}

static void opening_save(struct opening *o)
{
	char shown[DATASET_WHY / 2];
	int error;

	if (!o->is_new || o->snapshot_dir_fd < 0)
		return;
	error = snapshot_save(o->snapshot_dir_fd, &o->key, &o->snap);
	if (error == 0)
		return;
	text_escape(o->params->snapshot_dir, strlen(o->params->snapshot_dir), shown, sizeof(shown));
	snprintf(o->stats.snapshot_why, DATASET_WHY, "%s: %s", shown, strerror(-error));
	log_warn("the snapshot of %s could not be written, the next start scans again: %s",
		 o->params->source, o->stats.snapshot_why);
}

/* A scan that follows symlinked directories as deep as it can. */
static int scan_once(struct opening *o, const struct recheck *recheck, struct scan *s)
{
	unsigned links_max = SCAN_LINKS_DEEP;

	for (;;) {
		int error;

		scan_init(s, o->source_fd, o->wall_clock);
		s->is_shared = o->params->is_shared;
		s->links_max = links_max;
		s->recheck = recheck;
		s->old = recheck ? recheck->t : NULL;
		o->n_found = &s->n_found;
		error = scan_run(s, &o->options);
		if (error != -EMLINK)
			return error;
		links_max = scan_links_fewer(links_max);
		o->stats.stats += s->n_stats;
		o->n_found = NULL;
		scan_fini(s);
	}
}

/* What the files of a table of records are in the new index. */
struct carry {
	const struct table *old, *fresh;
};

static uint32_t slot_in_fresh(void *ctx, uint32_t slot, const struct file_identity *identity)
{
	const struct carry *c = ctx;
	char path[DATASET_PATH_MAX + 1];
	uint32_t found;

	if (table_path(c->old, slot, path, sizeof(path)) < 0)
		return UINT32_MAX;
	found = table_resolve(c->fresh, path, strlen(path));
	if (found == UINT32_MAX || table_is_dir(c->fresh, found))
		return UINT32_MAX;
	return !identity || table_has_identity(c->fresh, found, identity) ? found : UINT32_MAX;
}

/* Records are of files as they were; a file that is another one now leaves no number right. */
static void carry_records(struct opening *o, struct snapshot *fresh)
{
	struct carry c = { .old = &o->snap.t, .fresh = &fresh->t };
	int error;

	if (!o->snap.records.blob)
		return;
	error = records_renumber(&o->snap.records, slot_in_fresh, &c, &fresh->records);
	if (error == 0)
		return;
	log_warn("the table of records of %s is dropped, clairfs index --records makes it again: %s",
		 o->params->source,
		 error == -ESTALE ? "a file of it was changed or is gone" : strerror(-error));
}

/* Scans what recheck says (NULL: everything) and puts the result into o->snap. */
static int scan(struct opening *o, const struct recheck *recheck, struct err *err)
{
	struct snapshot fresh = { 0 };
	struct scan s;
	int error = scan_once(o, recheck, &s);

	if (error < 0)
		err_set_errno(err, error, "source %s", o->params->source);
	else
		error = build_table(&s, o->params->layout, &fresh, err);
	o->stats.stats += s.n_stats;
	o->stats.dirs_scanned = s.n_scanned;
	o->stats.dirs_reused = s.n_reused;
	tick(o);
	o->n_found = NULL;
	scan_fini(&s);
	if (error < 0)
		return error;
	carry_records(o, &fresh);
	snapshot_fini(&o->snap);
	o->snap = fresh;
	o->is_new = true;
	return 0;
}

static int check_and_scan(struct opening *o, struct err *err)
{
	enum dataset_layout want = o->params->layout;
	struct recheck r;
	int error = recheck_init(&r, &o->snap.t, o->source_fd, o->params->is_shared);

	if (error < 0)
		return err_set_errno(err, error, "source %s", o->params->source);
	recheck_run(&r, &o->options);
	o->stats.stats += r.n_stats;
	o->is_new = r.has_new_attr;
	if (want == LAYOUT_AUTO)
		want = o->snap.auto_layout;
	/* Another layout only numbers anew: all directories are taken from the snapshot. */
	if (r.n_changed > 0 || o->snap.layout != want)
		error = scan(o, &r, err);
	else
		o->stats.dirs_reused = (uint64_t)o->snap.t.n_dirs + 1;
	recheck_fini(&r);
	return error;
}

static void count_subdirs(struct dataset *ds)
{
	for (uint32_t i = 0; i < ds->t.n_dirs; i++)
		ds->n_subdirs[table_dir_no(&ds->t, ds->t.parent[table_dir_slot(&ds->t, i)])]++;
}

int dataset_of_snapshot(struct snapshot *snap, int source_fd, struct dataset **ret)
{
	struct dataset *ds = calloc(1, sizeof(*ds));
	struct dataset_shard *shards = aligned_alloc(64, DATASET_SHARDS * sizeof(*shards));
	uint32_t *n_subdirs = calloc((size_t)snap->t.n_dirs + 1, sizeof(*n_subdirs));
	_Atomic uint16_t *renewals = calloc((size_t)snap->t.n_entries + 1, sizeof(*renewals));

	if (ds)
		ds->t = snap->t;
	if (!ds || !shards || !n_subdirs || !renewals || units_init(ds) != 0) {
		free(ds);
		free(shards);
		free(n_subdirs);
		free((void *)renewals);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < DATASET_SHARDS; i++) {
		mutex_init(&shards[i].mu);
		atomic_init(&shards[i].turn, 0);
	}
	ds->shards = shards;
	ds->n_subdirs = n_subdirs;
	ds->renewals = renewals;
	ds->records = snap->records;
	ds->layout = snap->layout;
	ds->source_fd = source_fd;
	snap->t = (struct table){ 0 };
	snap->records = (struct records){ 0 };
	count_subdirs(ds);
	for (uint32_t i = 0; i < ds->t.n_samples; i++)
		ds->sample_bytes += ds->t.size[i];
	for (uint32_t i = 0; i <= ds->t.n_dirs; i++)
		ds->stats.skipped += ds->t.dir_skipped[i];
	*ret = ds;
	return 0;
}

/* What keeps others out above the source is no part of a snapshot. */
static void look_above(struct dataset *ds, const struct dataset_params *params)
{
	struct stat st;
	int error;

	ds->is_shared = params->is_shared;
	if (!ds->is_shared)
		return;
	error = dataset_look(ds, ENTRY_ROOT, &st);
	if (error < 0) {
		log_warn("source %s is closed to others: who may come to it cannot be found out: "
			 "%s",
			 params->source, strerror(-error));
		st = (struct stat){ .st_uid = (uid_t)-1, .st_gid = (gid_t)-1 };
	}
	dataset_update_rights(ds, ENTRY_ROOT, &st);
}

static int open_dataset(struct opening *o, struct dataset **ret, struct err *err)
{
	uint64_t start_ns = clock_now(clock_monotonic());
	struct dataset *ds;
	int error = open_source(o, err);

	if (error < 0)
		return error;
	o->stats.from_snapshot = load(o);
	error = o->stats.from_snapshot ? check_and_scan(o, err) : scan(o, NULL, err);
	if (error < 0)
		return error;
	opening_save(o);
	if (o->params->tidies_snapshots && o->snapshot_dir_fd >= 0)
		snapshot_tidy_start(o->snapshot_dir_fd, &o->key);
	error = dataset_of_snapshot(&o->snap, o->source_fd, &ds);
	if (error < 0)
		return err_set_errno(err, error, "source %s", o->params->source);
	o->source_fd = -1;
	look_above(ds, o->params);
	o->stats.skipped = ds->stats.skipped;
	o->stats.seconds_ns = clock_now(clock_monotonic()) - start_ns;
	ds->stats = o->stats;
	/* The scan's memory is in the allocator's pools of threads that are gone: give it back to
	 * the system. */
	if (o->is_new)
		malloc_trim(0);
	*ret = ds;
	return 0;
}

int dataset_open(const struct dataset_params *params, struct dataset **ret, struct err *err)
{
	struct clock wall = { .now_ns = wall_now };
	struct opening o = { .params = params, .source_fd = -1, .snapshot_dir_fd = -1 };
	int error;

	if (params->scan_threads < 1 || params->scan_threads > 64)
		return err_set(err, -EINVAL, "the source is scanned by 1 to 64 threads, not %u",
			       params->scan_threads);
	o.options = (struct scan_options){ .threads = params->scan_threads,
					   .tick = tick,
					   .tick_ctx = &o };
	o.wall_clock = params->wall_clock ? params->wall_clock : &wall;
	error = open_dataset(&o, ret, err);
	snapshot_fini(&o.snap);
	if (o.source_fd >= 0)
		close(o.source_fd);
	if (o.snapshot_dir_fd >= 0)
		close(o.snapshot_dir_fd);
	return error;
}

void dataset_free(struct dataset *ds)
{
	if (!ds)
		return;
	for (unsigned i = 0; i < DATASET_SHARDS; i++)
		mutex_fini(&ds->shards[i].mu);
	free(ds->shards);
	free(ds->n_subdirs);
	free((void *)ds->renewals);
	records_fini(&ds->records);
	units_fini(ds);
	table_fini(&ds->t);
	if (ds->source_fd >= 0)
		close(ds->source_fd);
	free(ds);
}

uint64_t dataset_memory_bytes(const struct dataset *ds)
{
	return table_blob_bytes(&ds->t) + ds->records.blob_bytes + units_records_bytes(ds) +
	       ((uint64_t)ds->t.n_dirs + 1) * sizeof(*ds->n_subdirs) +
	       (ds->unit_first ? ((uint64_t)ds->t.n_samples + 1) * sizeof(*ds->unit_first) : 0) +
	       ((uint64_t)ds->t.n_entries + 1) * sizeof(*ds->renewals);
}

void dataset_get_stats(const struct dataset *ds, struct dataset_stats *ret)
{
	*ret = ds->stats;
}

uint32_t dataset_n_samples(const struct dataset *ds)
{
	return ds->t.n_samples;
}

uint32_t dataset_n_entries(const struct dataset *ds)
{
	return ds->t.n_entries;
}

uint64_t dataset_sample_bytes(const struct dataset *ds)
{
	return ds->sample_bytes;
}

enum dataset_layout dataset_layout(const struct dataset *ds)
{
	return ds->layout;
}

int dataset_source_fd(const struct dataset *ds)
{
	return ds->source_fd;
}
