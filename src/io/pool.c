/* SPDX-License-Identifier: Apache-2.0 */
/* The thread pool: a job is carried out by one thread with open, fstat, pread, fstat, close.
 *
 * This is the engine for network filesystems: they have no non-blocking reads, so a ring would hand
 * each step of a job to a kernel thread of its own.
 *
 * A wake-up across CPUs costs more than reading a small cached file. So threads are woken one at a
 * time, in a chain: a submit wakes one thread if none is on its way, and that thread, having taken
 * a job, wakes the next if there is more work. Threads that are awake go on taking jobs without any
 * wake-up, and a burst of short jobs is done by few threads. The thread that went idle last is
 * woken first (its cache is warm). Threads are started by the same rule, only when nobody is idle;
 * the first is started with the pool, so that a job can always be carried out.
 *
 * done() is called without the lock and before close(). Must never hold the lock over a system
 * call other than a wait. */
#include "io_priv.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clairfs/base/log.h"

struct pool;
struct pool_worker {
	struct pool *pool;
	struct thr thr; /* of whoever started it, until it is joined */
	struct cond cv;
	struct list node; /* pool->mu: in pool->idle while it waits */
	bool is_woken;    /* pool->mu */
};

struct pool {
	struct io io;
	struct mutex mu;
	struct io_queue queue; /* mu */
	struct list idle;      /* mu; went idle last first */
	unsigned n_threads;    /* mu; workers[0..n_threads-1] are started or being started */
	bool is_wake_pending;  /* mu; one thread is woken or started and has not come here yet */
	bool is_stopping;      /* mu */
	unsigned n_kicking;    /* mu; threads in pool_submit that are not done with the pool */
	struct cond kicked;    /* none of these is left */
	unsigned max_threads;
	char name[9];
	struct pool_worker workers[];
};

/* A thread to be woken or started once the lock is released. */
struct pool_kick {
	struct pool_worker *worker; /* NULL: nobody */
	bool is_new;
};

static void *pool_main(void *arg);

static struct pool_kick pool_kick_locked(struct pool *p) REQUIRES(p->mu)
{
	struct pool_kick kick = { NULL, false };
	struct list *node;

	if (p->is_wake_pending || io_queue_is_empty(&p->queue))
		return kick;
	node = list_pop_head(&p->idle);
	if (node) {
		kick.worker = container_of(node, struct pool_worker, node);
		assert(!kick.worker->is_woken);
		kick.worker->is_woken = true;
	} else if (p->n_threads < p->max_threads) {
		kick.worker = &p->workers[p->n_threads++];
		kick.is_new = true;
	}
	assert(p->n_threads <= p->max_threads);
	p->is_wake_pending = kick.worker != NULL;
	return kick;
}

static int pool_start(struct pool *p, struct pool_worker *w, struct err *err)
{
	char name[IO_THREAD_NAME_SIZE];

	snprintf(name, sizeof(name), "%s-%u", p->name, (unsigned)(w - p->workers));
	return thr_start(&w->thr, name, pool_main, w, err);
}

static void pool_kick(struct pool *p, struct pool_kick kick)
{
	struct err err;

	if (!kick.worker)
		return;
	if (!kick.is_new) {
		cond_signal(&kick.worker->cv);
		return;
	}
	if (pool_start(p, kick.worker, &err) == 0)
		return;
	/* The threads there are carry out the job. Only one wake-up is ever pending, so this
	 * worker is the last one. */
	log_limited(LOG_LEVEL_WARN, "%s: going on with fewer threads: %s", p->name, err.msg);
	mutex_lock(&p->mu);
	assert(p->is_wake_pending && kick.worker == &p->workers[p->n_threads - 1]);
	p->n_threads--;
	p->is_wake_pending = false;
	mutex_unlock(&p->mu);
}

static void pool_submit(struct io *io, struct io_job *job)
{
	struct pool *p = container_of(io, struct pool, io);
	struct pool_kick kick;

	mutex_lock(&p->mu);
	io_queue_push(&p->queue, job);
	kick = pool_kick_locked(p);
	p->n_kicking += kick.worker != NULL;
	mutex_unlock(&p->mu);
	if (!kick.worker)
		return;
	pool_kick(p, kick);
	mutex_lock(&p->mu);
	assert(p->n_kicking > 0);
	if (--p->n_kicking == 0)
		cond_signal(&p->kicked);
	mutex_unlock(&p->mu);
}

static void pool_run(struct io_job *job)
{
	int fd, status;

	io_job_begin(job);
	fd = job->kind == IO_READ_PATH ? io_job_open(job) : job->fd;
	status = fd < 0 && job->kind == IO_READ_PATH ? fd : io_job_stat(job, fd);
	if (status == 0)
		io_job_advise(job, fd);
	if (status == 0)
		status = io_job_read(job, fd);
	if (status == 0)
		status = io_job_check(job, fd);
	fd = io_job_finish(job, fd, status);
	if (fd >= 0)
		close(fd);
}

/* Waits until woken or until the pool ends. */
static void pool_idle_locked(struct pool *p, struct pool_worker *w) REQUIRES(p->mu)
{
	list_push_head(&p->idle, &w->node);
	while (!w->is_woken && !p->is_stopping)
		cond_wait(&w->cv, &p->mu);
	if (w->is_woken)
		p->is_wake_pending = false;
	else
		list_remove(&w->node);
	w->is_woken = false;
}

static void *pool_main(void *arg)
{
	struct pool_worker *w = arg;
	struct pool *p = w->pool;

	mutex_lock(&p->mu);
	p->is_wake_pending = false;
	for (;;) {
		struct io_job *job = io_queue_pop(&p->queue);
		struct pool_kick kick;

		if (!job) {
			if (p->is_stopping)
				break;
			pool_idle_locked(p, w);
			continue;
		}
		kick = pool_kick_locked(p);
		mutex_unlock(&p->mu);
		pool_kick(p, kick);
		pool_run(job);
		mutex_lock(&p->mu);
	}
	mutex_unlock(&p->mu);
	return NULL;
}

/* Worker i, or NULL when there are not so many. A worker is only started by one with a smaller
 * number or by submit, so once the workers below i have ended, the answer for i is final. */
static struct pool_worker *pool_worker_at(struct pool *p, unsigned i)
{
	struct pool_worker *w;

	mutex_lock(&p->mu);
	w = i < p->n_threads ? &p->workers[i] : NULL;
	mutex_unlock(&p->mu);
	return w;
}

static void pool_destroy(struct pool *p)
{
	unsigned i;

	assert(io_queue_is_empty(&p->queue) && list_is_empty(&p->idle)); /* every job was done */
	for (i = 0; i < p->max_threads; i++)
		cond_fini(&p->workers[i].cv);
	cond_fini(&p->kicked);
	mutex_fini(&p->mu);
	free(p);
}

static void pool_free(struct io *io)
{
	struct pool *p = container_of(io, struct pool, io);
	struct pool_worker *w;
	unsigned i;

	mutex_lock(&p->mu);
	p->is_stopping = true;
	while (p->n_kicking) /* their jobs may be done already */
		cond_wait(&p->kicked, &p->mu);
	for (i = 0; i < p->n_threads; i++)
		cond_signal(&p->workers[i].cv);
	mutex_unlock(&p->mu);
	for (i = 0; (w = pool_worker_at(p, i)); i++)
		thr_join(&w->thr);
	pool_destroy(p);
}

static const struct io_ops pool_ops = { .name = "pool", .submit = pool_submit, .free = pool_free };

int io_pool_new(const struct io_params *params, struct io **ret, struct err *err)
{
	struct pool *p;
	unsigned i;
	int r;

	r = io_params_check(params, err);
	if (r < 0)
		return r;
	p = calloc(1, sizeof(*p) + params->max_inflight * sizeof(p->workers[0]));
	if (!p)
		return err_set(err, -ENOMEM, "thread pool: out of memory");
	p->io.ops = &pool_ops;
	p->max_threads = params->max_inflight;
	snprintf(p->name, sizeof(p->name), "%s", params->name);
	mutex_init(&p->mu);
	cond_init(&p->kicked);
	io_queue_init(&p->queue);
	list_init(&p->idle);
	for (i = 0; i < p->max_threads; i++) {
		p->workers[i].pool = p;
		cond_init(&p->workers[i].cv);
		list_init(&p->workers[i].node);
	}
	p->n_threads = 1;
	p->is_wake_pending = true;
	r = pool_start(p, &p->workers[0], err);
	if (r < 0) {
		err_prefix(err, "thread pool");
		pool_destroy(p);
		return r;
	}
	*ret = &p->io;
	return 0;
}
