/* SPDX-License-Identifier: Apache-2.0 */
/* Named threads and annotated locks. All signals are blocked in threads started here, the main
 * thread takes them; but for those that say that the thread itself has gone wrong. */
#ifndef CLAIRFS_BASE_THR_H
#define CLAIRFS_BASE_THR_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/cleanup.h"
#include "clairfs/base/err.h"

#define THR_CRASHES SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT

struct thr {
	pthread_t id;
	bool is_started;
};

/* Starts fn(arg) as a thread named `name` (at most 15 characters are shown by ps). */
int thr_start(struct thr *thr, const char *name, void *(*fn)(void *), void *arg,
	      struct err *err) MUST_USE;
/* Waits for the end of the thread; nothing if it was never started. */
void thr_join(struct thr *thr);

struct CAPABILITY("mutex") mutex {
	pthread_mutex_t m;
};

struct cond {
	pthread_cond_t c; /* on CLOCK_MONOTONIC */
};

void mutex_init(struct mutex *mu);
void mutex_fini(struct mutex *mu);
void mutex_lock(struct mutex *mu) ACQUIRE(mu);
void mutex_unlock(struct mutex *mu) RELEASE(mu);
void cond_init(struct cond *cv);
void cond_fini(struct cond *cv);
void cond_wait(struct cond *cv, struct mutex *mu) REQUIRES(mu);
/* Waits until woken or until `timeout_ns` from now; true when the time ran out. */
bool cond_wait_for(struct cond *cv, struct mutex *mu, uint64_t timeout_ns) REQUIRES(mu);
void cond_signal(struct cond *cv);
void cond_broadcast(struct cond *cv);

#endif
