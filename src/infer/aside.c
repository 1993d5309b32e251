/* SPDX-License-Identifier: Apache-2.0 */
/* A long computation that starts no threads of its own, beside the search thread: there it may take
 * nobody's time (SCHED_IDLE, which a thread without privileges cannot leave again), while the job's
 * thread goes on telling how far it is, and asks the cheap questions of a new pass. */
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clairfs/base/thr.h"
#include "infer_priv.h"

#define TICK_NS (NS_PER_S / 5)
#define NICE 19

struct aside {
	aside_fn *fn;
	const struct infer_question *q;
	struct infer_answer *answer;
	struct mutex mu;
	struct cond changed;
	pid_t tid;    /* mu; 0: not running */
	bool is_over; /* mu */
	int rc;       /* mu */
};

static void *aside_main(void *arg)
{
	const struct sched_param none = { 0 };
	struct aside *a = arg;
	int rc;

	mutex_lock(&a->mu);
	a->tid = (pid_t)syscall(SYS_gettid);
	mutex_unlock(&a->mu);
	/* Both fail only where nothing may be changed. */
	(void)setpriority(PRIO_PROCESS, 0, NICE);
	(void)sched_setscheduler(0, SCHED_IDLE, &none);
	rc = a->fn(a->q, a->answer);
	mutex_lock(&a->mu);
	a->rc = rc;
	a->tid = 0;
	a->is_over = true;
	cond_signal(&a->changed);
	mutex_unlock(&a->mu);
	return NULL;
}

static bool wait_locked(struct aside *a) REQUIRES(a->mu);
static bool wait_locked(struct aside *a)
{
	const struct sched_param none = { 0 };

	if (!a->is_over)
		(void)cond_wait_for(&a->changed, &a->mu, TICK_NS);
	/* Without an idle CPU it would take seconds to see that. */
	if (a->tid && atomic_load(a->q->cancel))
		(void)sched_setscheduler(a->tid, SCHED_OTHER, &none);
	return a->is_over;
}

int aside_run(aside_fn *fn, const struct infer_question *q, struct infer_answer *ret)
{
	struct aside a = { .fn = fn, .q = q, .answer = ret };
	struct thr thr = { 0 };
	struct err err = { 0 };
	bool is_over = false;
	int rc;

	mutex_init(&a.mu);
	cond_init(&a.changed);
	rc = thr_start(&thr, "recover", aside_main, &a, &err);
	while (rc == 0 && !is_over) {
		mutex_lock(&a.mu);
		is_over = wait_locked(&a);
		mutex_unlock(&a.mu);
		if (!is_over && q->progress)
			q->progress(q->progress_ctx, 0, 0);
	}
	thr_join(&thr);
	cond_fini(&a.changed);
	mutex_fini(&a.mu);
	return rc < 0 ? rc : a.rc;
}
