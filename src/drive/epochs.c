/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes epochs of the order ahead of time: seconds of one CPU for a hundred million samples,
 * hence its own thread with a low priority: the training job comes first. One epoch at a time, so
 * that there is one transient array at a time.
 */
#include "drive_priv.h"

#include <sys/resource.h>
#include <sys/syscall.h>

enum { EPOCH_NICE = 10 };

static void compute(struct drive *d, struct epoch_job *job)
{
	struct plan_event *ev = &job->completion.event;
	bool is_stale = atomic_load(&job->order->is_over);
	struct err err = { 0 };

	ev->status =
		atomic_load(&d->is_stopping) || is_stale
			? -ECANCELED
			: order_ref_epoch(job->order, ev->epoch, &ev->order_epoch, &err);
	if (ev->status != 0)
		ev->order_epoch = NULL;
	if (ev->status != 0 && ev->status != -ECANCELED) {
		log_warn("epoch %llu of the order: %s", (unsigned long long)ev->epoch, err.msg);
		cache_degrade(d->cache, "an epoch of the order could not be computed");
	}
}

void *epochs_main(void *drive)
{
	struct drive *d = drive;
	struct list *node;

	/* The thread's own number: niceness is per thread in Linux. A refusal costs nothing but
	 * politeness. */
	(void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), EPOCH_NICE);
	while ((node = queue_pop(&d->epoch_jobs))) {
		struct epoch_job *job = container_of(node, struct epoch_job, node);

		compute(d, job);
		order_ref_put(job->order);
		drive_complete(d, &job->completion, PLAN_EV_EPOCH, job->completion.event.status);
	}
	return NULL;
}
