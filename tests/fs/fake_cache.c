/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache for tests of fs: no tiers, no plan, every read goes to the source directory. Linked into
 * the test program, it takes the place of the real one, so a test decides alone when OPEN may be
 * refused, which reads fail and which wait.
 *
 * Threads: cache_read and the notes come from threads of fs; the rest from the test.
 */
#include "fake_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "check.h"

#define WAIT_NS (60 * NS_PER_S)

static void answer(struct cache *c, struct cache_read *r)
{
	AUTO_FREE char *buf = malloc(r->length);
	AUTO_FD int fd = -1;
	char path[PATH_MAX];
	struct iovec iov = { .iov_base = buf };
	int error = atomic_load(&c->fail_with);
	ssize_t got;

	if (error) {
		r->done(r, -error, NULL, 0);
		return;
	}
	CHECK(dataset_path(c->dataset, r->entry, path, sizeof(path)) == 0);
	fd = openat(dataset_source_fd(c->dataset), path, O_RDONLY | O_CLOEXEC);
	got = fd < 0 ? -1 : pread(fd, buf, r->length, (off_t)r->offset);
	if (got < 0) {
		r->done(r, -errno, NULL, 0);
		return;
	}
	iov.iov_len = (size_t)got;
	r->done(r, 0, &iov, 1);
}

static void *worker_main(void *arg)
{
	struct cache *c = arg;
	struct list *node;

	while ((node = queue_pop(&c->jobs)))
		answer(c, container_of(node, struct cache_read, node));
	return NULL;
}

void fake_cache_init(struct cache *c, struct dataset *ds)
{
	memset(c, 0, sizeof(*c));
	c->dataset = ds;
	mutex_init(&c->mu);
	cond_init(&c->cv);
	list_init(&c->held);
	queue_init(&c->jobs);
	c->forgotten = calloc(dataset_n_entries(ds) + 1, sizeof(*c->forgotten));
	CHECK(c->forgotten != NULL);
	CHECK_INT(thr_start(&c->worker, "fake-cache", worker_main, c, NULL), 0);
}

void fake_cache_fini(struct cache *c)
{
	fake_cache_release(c);
	queue_close(&c->jobs);
	thr_join(&c->worker);
	queue_fini(&c->jobs);
	cond_fini(&c->cv);
	mutex_fini(&c->mu);
	free(c->opened);
	free(c->forgotten);
}

void fake_cache_release(struct cache *c)
{
	struct list out;
	struct list *node;

	list_init(&out);
	atomic_store(&c->is_holding, false);
	mutex_lock(&c->mu);
	list_splice_tail(&out, &c->held);
	c->n_held = 0;
	mutex_unlock(&c->mu);
	while ((node = list_pop_head(&out)))
		answer(c, container_of(node, struct cache_read, node));
}

void cache_read(struct cache *c, struct cache_read *r)
{
	atomic_fetch_add(&c->reads, 1);
	if (atomic_load(&c->is_holding)) {
		mutex_lock(&c->mu);
		list_push_tail(&c->held, &r->node);
		c->n_held++;
		cond_broadcast(&c->cv);
		mutex_unlock(&c->mu);
	} else if (atomic_load(&c->is_threaded)) {
		queue_push(&c->jobs, &r->node);
	} else {
		answer(c, r);
	}
}

void cache_note_open(struct cache *c, struct entry_id entry)
{
	mutex_lock(&c->mu);
	if (c->n_opened == c->room) {
		c->room = c->room ? 2 * c->room : 1024;
		c->opened = realloc(c->opened, c->room * sizeof(*c->opened));
		CHECK(c->opened != NULL);
	}
	c->opened[c->n_opened++] = entry.v;
	cond_broadcast(&c->cv);
	mutex_unlock(&c->mu);
}

void cache_note_forget(struct cache *c, struct entry_id entry)
{
	mutex_lock(&c->mu);
	c->forgotten[entry.v]++;
	cond_broadcast(&c->cv);
	mutex_unlock(&c->mu);
}

void cache_note_blind(struct cache *c)
{
	atomic_fetch_add(&c->blinds, 1);
}

bool cache_may_refuse_open(struct cache *c)
{
	return atomic_load(&c->may_refuse_open);
}

bool fake_cache_wait_opened(struct cache *c, size_t n)
{
	bool is_late = false;
	size_t seen;

	mutex_lock(&c->mu);
	while (c->n_opened < n && !is_late)
		is_late = cond_wait_for(&c->cv, &c->mu, WAIT_NS);
	seen = c->n_opened;
	mutex_unlock(&c->mu);
	return seen >= n;
}

bool fake_cache_wait_held(struct cache *c, uint32_t n)
{
	bool is_late = false;
	uint32_t seen;

	mutex_lock(&c->mu);
	while (c->n_held < n && !is_late)
		is_late = cond_wait_for(&c->cv, &c->mu, WAIT_NS);
	seen = c->n_held;
	mutex_unlock(&c->mu);
	return seen >= n;
}

bool fake_cache_wait_forgotten(struct cache *c, struct entry_id entry, uint32_t times)
{
	bool is_late = false;
	uint32_t seen;

	mutex_lock(&c->mu);
	while (c->forgotten[entry.v] < times && !is_late)
		is_late = cond_wait_for(&c->cv, &c->mu, WAIT_NS);
	seen = c->forgotten[entry.v];
	mutex_unlock(&c->mu);
	return seen >= times;
}

void fake_cache_forget_notes(struct cache *c)
{
	mutex_lock(&c->mu);
	c->n_opened = 0;
	memset(c->forgotten, 0, dataset_n_entries(c->dataset) * sizeof(*c->forgotten));
	mutex_unlock(&c->mu);
}

bool cache_must_look(struct cache *c, struct entry_id entry)
{
	return false;
}

void cache_look(struct cache *c, struct cache_read *look)
{
	look->done(look, 0, NULL, 0);
}
