/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache that nobody drives: it is linked without the plan, is told of no order, and has nobody to tell
 * what happens. It reads, keeps what it has read, and sees files change, as an ordinary cache.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "clairfs/cache.h"

enum { SIZE = 5000 };

struct alone {
	char *path;
	struct dataset *dataset;
	struct io *io;
	struct tier *source;
	struct arena *arena;
	struct metrics *metrics;
	struct cache *cache;
};

static void write_file(const char *path, char byte)
{
	char bytes[SIZE];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	memset(bytes, byte, sizeof(bytes));
	CHECK(fd >= 0 && write(fd, bytes, sizeof(bytes)) == SIZE);
	close(fd);
}

static void alone_begin(struct alone *a, const char *name)
{
	AUTO_FREE char *dir = check_tmpfile(name);
	struct dataset_params dataset = { .source = dir,
					  .layout = LAYOUT_FILES,
					  .scan_threads = 1 };
	struct io_params io = { .name = "alone", .max_inflight = 4 };
	struct source_params source = { .reopen_ns = NS_PER_S };
	struct cache_params params = { .clock = clock_monotonic(),
				       .n_tiers = 1,
				       .arena_bytes = 8 << 20 };
	struct err err = { 0 };

	CHECK_INT(mkdir(dir, 0755), 0);
	CHECK(asprintf(&a->path, "%s/a", dir) > 0);
	write_file(a->path, 'a');
	a->metrics = metrics_new();
	CHECK_INT(dataset_open(&dataset, &a->dataset, &err), 0);
	CHECK_INT(io_pool_new(&io, &a->io, &err), 0);
	source.dirfd = dataset_source_fd(a->dataset);
	source.io = a->io;
	source.metrics = a->metrics;
	CHECK_INT(source_new(&source, &a->source, &err), 0);
	CHECK_INT(arena_new(16 << 20, &a->arena, &err), 0);
	params.dataset = a->dataset;
	params.metrics = a->metrics;
	params.tiers = &a->source;
	params.arena = a->arena;
	CHECK_INT(cache_new(&params, &a->cache, &err), 0);
	CHECK_INT(cache_start(a->cache, &err), 0);
}

static void alone_end(struct alone *a)
{
	cache_stop(a->cache);
	cache_finish(a->cache);
	cache_free(a->cache);
	tier_free(a->source);
	io_free(a->io);
	CHECK_U64(arena_used(a->arena), 0);
	arena_free(a->arena);
	dataset_free(a->dataset);
	metrics_free(a->metrics);
	free(a->path);
}

struct waiting {
	struct cache_read read;
	struct mutex mu;
	struct cond cv;
	bool is_done; /* mu, like all below */
	int status;
	char first, last;
	uint64_t bytes;
};

static void read_done(struct cache_read *read, int status, const struct iovec *iov, int n_iov)
{
	struct waiting *w = container_of(read, struct waiting, read);

	mutex_lock(&w->mu);
	w->status = status;
	for (int i = 0; i < n_iov; i++)
		w->bytes += iov[i].iov_len;
	if (n_iov) {
		w->first = ((const char *)iov[0].iov_base)[0];
		w->last = ((const char *)iov[n_iov - 1].iov_base)[iov[n_iov - 1].iov_len - 1];
	}
	w->is_done = true;
	cond_broadcast(&w->cv);
	mutex_unlock(&w->mu);
}

/* Reads all of the file, which is full of that byte; how it was served. */
static enum read_class read_all(struct alone *a, char byte)
{
	struct entry_id entry = { 0 };
	struct waiting w = { .read = { .entry = entry,
				       .length = 8192,
				       .arrived_ns = clock_now(clock_monotonic()),
				       .renewal = dataset_renewal(a->dataset, entry),
				       .done = read_done } };

	mutex_init(&w.mu);
	cond_init(&w.cv);
	cache_note_open(a->cache, entry);
	cache_read(a->cache, &w.read);
	mutex_lock(&w.mu);
	while (!w.is_done)
		cond_wait(&w.cv, &w.mu);
	mutex_unlock(&w.mu);
	CHECK_INT(w.status, 0);
	CHECK_U64(w.bytes, SIZE);
	CHECK_INT(w.first, byte);
	CHECK_INT(w.last, byte);
	cond_fini(&w.cv);
	mutex_fini(&w.mu);
	return w.read.read_class;
}

static void what_was_read_is_kept(void)
{
	struct alone a;

	alone_begin(&a, "kept");
	CHECK(cache_may_refuse_open(a.cache)); /* nobody learns an order by it */
	CHECK_INT(read_all(&a, 'a'), READ_MISS);
	CHECK_INT(read_all(&a, 'a'), READ_ARENA);
	cache_note_blind(a.cache);
	cache_tick(a.cache, clock_now(clock_monotonic()));
	CHECK_INT(read_all(&a, 'a'), READ_ARENA);
	alone_end(&a);
}

static void file_that_was_replaced_is_read_anew(void)
{
	struct alone a;
	AUTO_FREE char *new_path = NULL;

	alone_begin(&a, "replaced");
	CHECK_INT(read_all(&a, 'a'), READ_MISS);
	CHECK(asprintf(&new_path, "%s.new", a.path) > 0);
	write_file(new_path, 'b');
	CHECK_INT(rename(new_path, a.path), 0);
	cache_fetch_again(a.cache, (struct unit_id){ 0 }); /* the copy is gone, and the source asked */
	CHECK_INT(read_all(&a, 'b'), READ_MISS);
	CHECK_INT(read_all(&a, 'b'), READ_ARENA);
	CHECK_U64(metrics_get(a.metrics, METRIC_SOURCE_CHANGED), 1);
	alone_end(&a);
}

static const struct check_test tests[] = {
	{ "what_was_read_is_kept", what_was_read_is_kept },
	{ "file_that_was_replaced_is_read_anew", file_that_was_replaced_is_read_anew },
};
CHECK_MAIN(tests)
