/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads and locks. A failing lock call is a bug of ours (an invalid or already destroyed object),
 * hence the asserts: no caller could do anything about it. Condition variables run on
 * CLOCK_MONOTONIC, so that setting the time of day neither stalls nor wakes anybody. The name of a
 * thread is set by the thread itself, before its function runs: ps and a core dump never show a
 * worker under its parent's name.
 */
#include "clairfs/base/thr.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "clairfs/base/clock.h"

/* Enough for what threads of ours keep on it (paths, buffers of some KiB), and no more: a hundred
 * stacks of the usual 8 MiB are most of the address space that a job may have. */
#define STACK_BYTES (1u << 20)

struct thr_start {
	char name[16]; /* the kernel's limit */
	void *(*fn)(void *);
	void *arg;
};

static void *thr_main(void *start_arg)
{
	struct thr_start start = *(struct thr_start *)start_arg;

	free(start_arg);
	pthread_setname_np(pthread_self(), start.name);
	return start.fn(start.arg);
}

static int thr_create(pthread_t *id, struct thr_start *start)
{
	pthread_attr_t attr;
	int rc = pthread_attr_init(&attr);

	if (rc != 0)
		return rc;
	rc = pthread_attr_setstacksize(&attr, STACK_BYTES);
	if (rc == 0)
		rc = pthread_create(id, &attr, thr_main, start);
	pthread_attr_destroy(&attr);
	return rc;
}

int thr_start(struct thr *thr, const char *name, void *(*fn)(void *), void *arg, struct err *err)
{
	static const int crashes[] = { THR_CRASHES };
	AUTO_FREE struct thr_start *start = calloc(1, sizeof(*start));
	sigset_t all, old;
	int rc;

	thr->is_started = false;
	if (!start)
		return err_set_errno(err, -ENOMEM, "thread %s", name);
	memcpy(start->name, name, strnlen(name, sizeof(start->name) - 1));
	start->fn = fn;
	start->arg = arg;
	/* The new thread inherits the mask: at no moment could it take a signal. */
	sigfillset(&all);
	for (size_t i = 0; i < ARRAY_LEN(crashes); i++)
		sigdelset(&all, crashes[i]);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = thr_create(&thr->id, start);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc != 0)
		return err_set_errno(err, -rc, "thread %s", name);
	(void)TAKE(start); /* thr_main frees it */
	thr->is_started = true;
	return 0;
}

void thr_join(struct thr *thr)
{
	int rc;

	if (!thr->is_started)
		return;
	rc = pthread_join(thr->id, NULL);
	assert(rc == 0);
	thr->is_started = false;
}

void mutex_init(struct mutex *mu)
{
	int rc = pthread_mutex_init(&mu->m, NULL);

	assert(rc == 0);
}

void mutex_fini(struct mutex *mu)
{
	int rc = pthread_mutex_destroy(&mu->m);

	assert(rc == 0);
}

NO_THREAD_SAFETY void mutex_lock(struct mutex *mu)
{
	int rc = pthread_mutex_lock(&mu->m);

	assert(rc == 0);
}

NO_THREAD_SAFETY void mutex_unlock(struct mutex *mu)
{
	int rc = pthread_mutex_unlock(&mu->m);

	assert(rc == 0);
}

void cond_init(struct cond *cv)
{
	pthread_condattr_t attr;
	int rc;

	rc = pthread_condattr_init(&attr);
	assert(rc == 0);
	rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	assert(rc == 0);
	rc = pthread_cond_init(&cv->c, &attr);
	assert(rc == 0);
	pthread_condattr_destroy(&attr);
}

void cond_fini(struct cond *cv)
{
	int rc = pthread_cond_destroy(&cv->c);

	assert(rc == 0);
}

void cond_wait(struct cond *cv, struct mutex *mu)
{
	int rc = pthread_cond_wait(&cv->c, &mu->m);

	assert(rc == 0);
}

bool cond_wait_for(struct cond *cv, struct mutex *mu, uint64_t timeout_ns)
{
	uint64_t now = clock_now(clock_monotonic());
	uint64_t until = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
	struct timespec ts = {
		.tv_sec = (time_t)(until / NS_PER_S),
		.tv_nsec = (long)(until % NS_PER_S),
	};
	int rc = pthread_cond_timedwait(&cv->c, &mu->m, &ts);

	assert(rc == 0 || rc == ETIMEDOUT);
	return rc == ETIMEDOUT;
}

void cond_signal(struct cond *cv)
{
	pthread_cond_signal(&cv->c);
}

void cond_broadcast(struct cond *cv)
{
	pthread_cond_broadcast(&cv->c);
}
