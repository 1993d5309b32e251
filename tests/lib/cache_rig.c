/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See cache_rig.h. Files are replaced by rename, so the source never shows half a version; each new
 * version gets its own modification time, because two of them may be made within one tick of the
 * filesystem's clock. Runs on test threads; the stage's operations on the cache's threads.
 */
#include "cache_rig.h"
#include "clairfs/dataset/units.h"

#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	printf("Bail out! rig: %s: %s\n", what, strerror(errno));
	exit(1);
}

uint64_t manual_now(struct clock *clock)
{
	return atomic_load(&container_of(clock, struct manual_clock, clock)->now_ns);
}

/* --- files --- */

/* Eight bytes at a time. */
static uint64_t word_of(uint32_t file, uint32_t version, uint64_t word)
{
	uint64_t x =
		(word + 1) * 0x9e3779b97f4a7c15ull ^ (uint64_t)file << 40 ^ (uint64_t)version << 20;

	return (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
}

uint8_t rig_byte(uint32_t file, uint32_t version, uint64_t offset)
{
	return (uint8_t)(word_of(file, version, offset / 8) >> offset % 8 * 8);
}

/* A word at a time: of gigabytes the sanitizers look at each store. */
void rig_fill(uint8_t *out, uint32_t file, uint32_t version, uint64_t offset, uint64_t length)
{
	for (uint64_t i = 0, n; i < length; i += n) {
		uint64_t at = offset + i, skip = at % 8;
		uint64_t word = htole64(word_of(file, version, at / 8));

		n = MIN(8 - skip, length - i);
		if (n == 8)
			memcpy(out + i, &word, 8);
		else
			memcpy(out + i, (const uint8_t *)&word + skip, n);
	}
}

char *rig_path(struct rig *rig, uint32_t file)
{
	char *path = NULL;

	if (file < rig->options.n)
		must(asprintf(&path, "%s/class/%06u.jpg", rig->dir, file) > 0, "path");
	else
		must(asprintf(&path, "%s/labels.txt", rig->dir) > 0, "path");
	return path;
}

static void write_version(struct rig *rig, uint32_t file, uint32_t version, uint64_t size)
{
	AUTO_FREE char *path = rig_path(rig, file);
	AUTO_FREE char *temp = NULL;
	AUTO_FREE uint8_t *bytes = malloc(size + 1);
	struct timespec times[2] = { { .tv_sec = 1000000 + version },
				     { .tv_sec = 1000000 + version } };
	AUTO_FD int fd = -1;

	/* The first version has none to replace, and there are thousands of them. */
	must(asprintf(&temp, "%s%s", path, version ? ".new" : "") > 0 && bytes, "memory");
	rig_fill(bytes, file, version, 0, size);
	fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	must(fd >= 0 && write(fd, bytes, size) == (ssize_t)size, temp);
	must(futimens(fd, times) == 0 && (!version || rename(temp, path) == 0), path);
}

void rig_replace(struct rig *rig, uint32_t file, uint64_t size)
{
	write_version(rig, file, atomic_load(&rig->version[file]) + 1, size);
	atomic_fetch_add(&rig->version[file], 1);
}

void rig_remove(struct rig *rig, uint32_t file)
{
	AUTO_FREE char *path = rig_path(rig, file);

	must(unlink(path) == 0, path);
}

struct entry_id rig_entry(struct rig *rig, uint32_t file)
{
	return file < rig->options.n ? (struct entry_id){ file } : rig->other;
}

static uint64_t initial_size(const struct rig_options *o, uint32_t file)
{
	return file == o->n ? o->other_size : o->sizes ? o->sizes[file] : o->size;
}

static void make_files(struct rig *rig)
{
	static _Atomic uint32_t n_rigs;
	char name[32];
	AUTO_FREE char *class_dir = NULL;

	snprintf(name, sizeof(name), "rig%u", atomic_fetch_add(&n_rigs, 1));
	rig->dir = check_tmpfile(name);
	must(mkdir(rig->dir, 0755) == 0 && asprintf(&class_dir, "%s/class", rig->dir) > 0,
	     rig->dir);
	must(mkdir(class_dir, 0755) == 0, class_dir);
	rig->version = calloc(rig->options.n + 1, sizeof(*rig->version));
	must(rig->version != NULL, "memory");
	for (uint32_t i = 0; i <= rig->options.n; i++)
		write_version(rig, i, 0, initial_size(&rig->options, i));
}

/* --- the stage --- */

static void log_event(struct rig *rig, struct rig_log event)
{
	mutex_lock(&rig->mu);
	if (rig->n_log == rig->log_size) {
		rig->log_size = rig->log_size ? rig->log_size * 2 : 256;
		rig->log = realloc(rig->log, rig->log_size * sizeof(*rig->log));
		must(rig->log != NULL, "memory");
	}
	rig->log[rig->n_log++] = event;
	cond_broadcast(&rig->cv);
	mutex_unlock(&rig->mu);
}

/* An operation on pages waits here, as it would for a page locked by a READ. */
static void wait_released(struct rig *rig)
{
	mutex_lock(&rig->mu);
	rig->n_held++;
	cond_broadcast(&rig->cv);
	while (rig->is_stage_held)
		cond_wait(&rig->cv, &rig->mu);
	rig->n_held--;
	mutex_unlock(&rig->mu);
}

static int stage_store(void *ctx, struct stage_file file, uint64_t offset, const void *data,
		       size_t length)
{
	struct rig *rig = ctx;
	int status = 0;

	(void)data;
	wait_released(rig);
	mutex_lock(&rig->mu);
	if (rig->fail_stores) {
		rig->fail_stores--;
		status = rig->stage_status;
	}
	mutex_unlock(&rig->mu);
	if (rig->on_store)
		rig->on_store(rig, file.entry.v);
	if (status == 0)
		log_event(rig, (struct rig_log){ RIG_STORE, file.entry.v, offset, length });
	return status;
}

static int stage_inval(void *ctx, struct stage_file file, uint64_t offset, uint64_t length)
{
	struct rig *rig = ctx;

	wait_released(rig);
	log_event(rig, (struct rig_log){ RIG_INVAL, file.entry.v, offset, length });
	return 0;
}

static int stage_inval_attr(void *ctx, struct entry_id entry)
{
	log_event(ctx, (struct rig_log){ .event = RIG_ATTR, .entry = entry.v });
	return 0;
}

static int stage_settle(void *ctx, struct entry_id entry)
{
	log_event(ctx, (struct rig_log){ .event = RIG_SETTLE, .entry = entry.v });
	return atomic_load(&((struct rig *)ctx)->settle_status);
}

static int stage_drop_name(void *ctx, struct entry_id entry)
{
	log_event(ctx, (struct rig_log){ .event = RIG_NAME, .entry = entry.v });
	return 0;
}

static int stage_lookup(void *ctx, struct entry_id entry)
{
	log_event(ctx, (struct rig_log){ .event = RIG_LOOKUP, .entry = entry.v });
	return 0;
}

static const struct stage_ops rig_stage_ops = {
	.store = stage_store,
	.inval = stage_inval,
	.inval_attr = stage_inval_attr,
	.settle = stage_settle,
	.drop_name = stage_drop_name,
	.lookup = stage_lookup,
};

void rig_hold_stage(struct rig *rig, bool is_held)
{
	mutex_lock(&rig->mu);
	rig->is_stage_held = is_held;
	cond_broadcast(&rig->cv);
	mutex_unlock(&rig->mu);
}

void rig_wait_held(struct rig *rig, uint32_t n)
{
	mutex_lock(&rig->mu);
	while (rig->n_held < n)
		cond_wait(&rig->cv, &rig->mu);
	mutex_unlock(&rig->mu);
}

int rig_find(struct rig *rig, enum rig_event event, uint32_t entry, uint32_t from)
{
	int found = -1;

	mutex_lock(&rig->mu);
	for (uint32_t i = from; i < rig->n_log && found < 0; i++)
		if (rig->log[i].event == event && rig->log[i].entry == entry)
			found = (int)i;
	mutex_unlock(&rig->mu);
	return found;
}

uint32_t rig_count(struct rig *rig, enum rig_event event, uint32_t entry)
{
	uint32_t n = 0;

	mutex_lock(&rig->mu);
	for (uint32_t i = 0; i < rig->n_log; i++)
		n += rig->log[i].event == event && rig->log[i].entry == entry;
	mutex_unlock(&rig->mu);
	return n;
}

/* --- making and freeing --- */

static void cut_records(struct rig *rig, const char *text, struct err *err)
{
	struct dataset_import *import;

	must(dataset_import_new(rig->dataset, rig->dir, &import, err) == 0, err->msg);
	must(dataset_import_add(import, "list", text, strlen(text), err) == 0, err->msg);
	must(dataset_import_finish(import, rig->dataset, err) == 0, err->msg);
	dataset_import_free(import);
	must(dataset_cut_records(rig->dataset, 4096, UINT64_MAX) == 0, "records");
}

static void open_tiers(struct rig *rig, struct err *err)
{
	const struct rig_options *o = &rig->options;
	struct dataset_params dataset = { .source = rig->dir,
					  .layout = LAYOUT_IMAGEFOLDER,
					  .is_shared = o->is_shared,
					  .scan_threads = 1 };
	struct io_params io = { .name = "rig", .max_inflight = o->threads ? o->threads : 8 };
	struct source_params source = { .open_files = o->keeps_files ? 4 : 0,
					.is_beneath = o->is_shared,
					.reopen_ns = NS_PER_S,
					.grain_ns = o->source_grain_ns };
	struct store_params store = { .dir = o->store_dir ? o->store_dir : rig->dir,
				      .is_persistent = o->store_dir != NULL,
				      .limit_bytes = o->store_limit ? o->store_limit : 64 << 20,
				      .segment_bytes = o->store_segment,
				      .retry_ns = o->store_retry_ns,
				      .engine = IO_ENGINE_POOL,
				      .max_inflight = 4 };
	struct io *pool;

	must(dataset_open(&dataset, &rig->dataset, err) == 0, err->msg);
	if (o->records)
		cut_records(rig, o->records, err);
	if (o->reserves)
		dataset_reserve_units(rig->dataset, 4096, UINT64_MAX);
	must(io_pool_new(&io, &pool, err) == 0, err->msg);
	rig->io = fault_io_new(pool);
	rig->metrics = metrics_new();
	must(rig->metrics != NULL, "memory");
	source.dirfd = dataset_source_fd(rig->dataset);
	source.io = rig->io;
	source.metrics = store.metrics = rig->metrics;
	must(source_new(&source, &rig->source, err) == 0, err->msg);
	must(arena_new(o->arena_limit, &rig->arena, err) == 0, err->msg);
	if (o->has_store)
		must(store_open(&store, &rig->store, err) == 0, err->msg);
	rig->other = dataset_resolve(rig->dataset, "labels.txt", 10);
}

static void open_order(struct rig *rig, struct err *err)
{
	struct order_params params = { .n = rig->options.n };

	if (!rig->options.order)
		return;
	must(order_spec_parse(rig->options.order, &rig->spec, err) == 0, err->msg);
	must(order_new(rig->spec, &params, &rig->order, err) == 0, err->msg);
}

struct rig *rig_new(const struct rig_options *options)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct err err = { 0 };
	struct rig_options *o = &rig->options;

	must(rig != NULL, "memory");
	*o = *options;
	o->arena_limit = o->arena_limit ? o->arena_limit : 64 << 20;
	o->arena_bytes = o->arena_bytes ? o->arena_bytes : o->arena_limit / 2;
	mutex_init(&rig->mu);
	cond_init(&rig->cv);
	make_files(rig);
	open_tiers(rig, &err);
	open_order(rig, &err);
	struct tier *tiers[] = { store_tier(rig->store), rig->source, o->peer };
	struct cache_params cache = {
		.dataset = rig->dataset,
		.tiers = tiers,
		.n_tiers = ARRAY_LEN(tiers),
		.arena = rig->arena,
		.metrics = rig->metrics,
		.clock = o->clock ? o->clock : clock_monotonic(),
		.arena_bytes = o->arena_bytes,
		.revalidate_ns = o->revalidate_ns,
		.probe = o->probe,
		.reads = o->reads,
	};
	struct drive_params params = {
		.cache = cache,
		.order = rig->order,
		.stage_bytes = o->stage_bytes ? o->stage_bytes : 16 << 20,
		.store_bytes = !o->has_store    ? 0
			       : o->store_bytes ? o->store_bytes
						: 32 << 20,
		.pin_rule = o->pin_rule,
		.inflight_min = 2,
		.inflight_max = 8,
		.stagers = o->stagers ? o->stagers : 2,
		.watch = o->watch,
		.probe = o->drive_probe,
	};
	must(drive_new(&params, &rig->drive, &err) == 0, err.msg);
	rig->cache = drive_cache(rig->drive);
	if (!o->is_stage_off)
		drive_set_stage(rig->drive, &rig_stage_ops, rig);
	if (!o->is_not_started)
		must(drive_start(rig->drive, &err) == 0, err.msg);
	return rig;
}

void rig_free(struct rig *rig)
{
	drive_stop(rig->drive);
	drive_free(rig->drive);
	tier_free(rig->source);
	store_close(rig->store);
	io_free(rig->io);
	CHECK_U64(arena_used(rig->arena), 0); /* nothing of a piece was lost */
	arena_free(rig->arena);
	order_free(rig->order);
	order_spec_free(rig->spec);
	metrics_free(rig->metrics);
	dataset_free(rig->dataset);
	cond_fini(&rig->cv);
	mutex_fini(&rig->mu);
	free(rig->log);
	free(rig->version);
	free(rig->dir);
	free(rig);
}

/* --- reads --- */

static void read_done(struct cache_read *read, int status, const struct iovec *iov, int n_iov)
{
	struct rig_read *r = container_of(read, struct rig_read, read);
	struct rig *rig = r->rig;
	uint64_t at = 0;

	for (int i = 0; i < n_iov; i++) {
		CHECK(at + iov[i].iov_len <= read->length);
		memcpy(r->bytes + at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	log_event(rig, (struct rig_log){ RIG_ANSWER, read->entry.v, read->offset, at });
	mutex_lock(&rig->mu);
	r->n_bytes = at;
	r->status = status;
	r->n_done++;
	cond_broadcast(&rig->cv);
	mutex_unlock(&rig->mu);
}

struct rig_read *rig_read_start(struct rig *rig, uint32_t file, uint64_t offset, uint32_t length)
{
	struct rig_read *r = calloc(1, sizeof(*r));

	must(r != NULL, "memory");
	r->bytes = malloc(length);
	must(r->bytes != NULL, "memory");
	r->rig = rig;
	r->file = file;
	r->read.entry = rig_entry(rig, file);
	r->read.offset = offset;
	r->read.length = length;
	r->read.renewal = dataset_renewal(rig->dataset, r->read.entry); /* opened just now */
	r->read.arrived_ns = clock_now(rig->options.clock ? rig->options.clock : clock_monotonic());
	r->read.is_direct = rig->is_direct;
	r->read.done = read_done;
	cache_read(rig->cache, &r->read);
	return r;
}

void rig_read_wait(struct rig_read *r)
{
	mutex_lock(&r->rig->mu);
	while (!r->n_done)
		cond_wait(&r->rig->cv, &r->rig->mu);
	mutex_unlock(&r->rig->mu);
}

void rig_read_free(struct rig_read *r)
{
	CHECK_INT(r->n_done, 1);
	free(r->bytes);
	free(r);
}

void rig_check_bytes(struct rig_read *r, uint32_t version, uint64_t size)
{
	uint64_t end = MIN(r->read.offset + r->read.length, size);
	uint64_t want = r->read.offset < end ? end - r->read.offset : 0;
	AUTO_FREE uint8_t *bytes = malloc(want + 1);

	rig_fill(bytes, r->file, version, r->read.offset, want);
	CHECK_INT(r->status, 0);
	CHECK_U64(r->n_bytes, want);
	CHECK_BYTES(r->bytes, bytes, want);
}

static uint64_t size_now(struct rig *rig, uint32_t file)
{
	AUTO_FREE char *path = rig_path(rig, file);
	struct stat st;

	must(stat(path, &st) == 0, path);
	return (uint64_t)st.st_size;
}

enum read_class rig_read_check(struct rig *rig, uint32_t file, uint64_t offset, uint32_t length)
{
	struct rig_read *r = rig_read_start(rig, file, offset, length);
	enum read_class class;

	rig_read_wait(r);
	if (r->status == -ESTALE) { /* replaced, and this READ has found out: opened once more */
		rig_read_free(r);
		r = rig_read_start(rig, file, offset, length);
		rig_read_wait(r);
	}
	rig_check_bytes(r, atomic_load(&rig->version[file]), size_now(rig, file));
	class = r->read.read_class;
	rig_read_free(r);
	return class;
}

int rig_read_status(struct rig *rig, uint32_t file, uint64_t offset, uint32_t length)
{
	struct rig_read *r = rig_read_start(rig, file, offset, length);
	int status;

	rig_read_wait(r);
	status = r->status;
	rig_read_free(r);
	return status;
}

/* --- waiting --- */

uint64_t rig_metric(struct rig *rig, enum metric id)
{
	return metrics_get(rig->metrics, id);
}

struct order *rig_order(uint32_t n, const char *text)
{
	struct order_params params = { .n = n };
	struct order_spec *spec;
	struct order *order;
	struct err err = { 0 };

	CHECK_INT(order_spec_parse(text, &spec, &err), 0);
	CHECK_INT(order_new(spec, &params, &order, &err), 0);
	order_spec_free(spec);
	return order;
}

uint64_t rig_deadline(void)
{
	return clock_now(clock_monotonic()) + 100 * NS_PER_S;
}

bool rig_pause(uint64_t until)
{
	struct timespec ms = { .tv_nsec = 1000000 };

	nanosleep(&ms, NULL);
	return clock_now(clock_monotonic()) < until;
}

void rig_wait_metric(struct rig *rig, enum metric id, uint64_t at_least)
{
	RIG_UNTIL(rig_metric(rig, id) >= at_least);
}
