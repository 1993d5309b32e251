/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of faults. Jobs that are not hit go to the engine below as they are. A job that fails
 * or comes late goes to a thread of its own here, because submit() may not call done(). A job that
 * is shortened is carried out by a shadow, a copy with a smaller length whose results are copied
 * back.
 *
 * Order of locks: fault->mu is never held over a call of the engine below or of done().
 */
#include "fault_io.h"

#include <stdio.h>
#include <string.h>

#include "clairfs/base/clock.h"

struct late_job {
	struct list node;
	struct io_job *job;
	uint64_t due_ns;
	int status; /* 0: give it to the engine below */
};

struct shadow {
	struct io_job job;
	struct io_job *real;
};

struct fault_io {
	struct io io;
	struct io *below;
	struct mutex mu;
	struct cond cv;            /* anything below changed */
	struct fault_io_rule rule; /* mu */
	bool has_rule;             /* mu */
	unsigned passed, fired;    /* mu; of this rule */
	unsigned seen, n_held;     /* mu */
	bool is_paused;            /* mu */
	bool is_stopping;          /* mu */
	struct list held;          /* mu; jobs */
	struct list late;          /* mu; struct late_job */
	struct thr thr;
};

static void *must(void *memory)
{
	if (memory)
		return memory;
	puts("Bail out! fault_io: out of memory");
	exit(99);
}

static struct fault_io *from_io(struct io *io)
{
	return container_of(io, struct fault_io, io);
}

static void shadow_done(struct io_job *job)
{
	struct shadow *shadow = container_of(job, struct shadow, job);
	struct io_job *real = shadow->real;

	real->status = job->status;
	real->got = job->got;
	real->st = job->st;
	real->st_after = job->st_after;
	real->started_ns = job->started_ns;
	real->done_ns = job->done_ns;
	if (real->kind == IO_READ_PATH)
		real->fd = job->fd;
	free(shadow);
	real->done(real);
}

static void run_shortened(struct fault_io *f, struct io_job *job, uint32_t length)
{
	struct shadow *shadow = must(calloc(1, sizeof(*shadow)));

	shadow->job = *job;
	shadow->job.length = MIN(job->length, length);
	shadow->job.done = shadow_done;
	shadow->real = job;
	io_submit(f->below, &shadow->job);
}

static void run_late(struct fault_io *f, struct io_job *job, uint64_t delay_ns, int status)
{
	struct late_job *late = must(calloc(1, sizeof(*late)));

	late->job = job;
	late->due_ns = clock_now(clock_monotonic()) + delay_ns;
	late->status = status;
	mutex_lock(&f->mu);
	list_push_tail(&f->late, &late->node);
	cond_broadcast(&f->cv);
	mutex_unlock(&f->mu);
}

/* Whether the rule hits the job that is let through now. */
static bool is_hit_locked(struct fault_io *f, struct fault_io_rule *ret) REQUIRES(f->mu)
{
	*ret = f->rule;
	if (!f->has_rule || f->is_stopping || f->passed++ < f->rule.countdown)
		return false;
	if (f->rule.repeat > 0 && f->fired == f->rule.repeat)
		return false;
	f->fired++;
	return true;
}

static void hold_locked(struct fault_io *f, struct io_job *job) REQUIRES(f->mu)
{
	list_push_tail(&f->held, &job->node);
	f->n_held++;
	cond_broadcast(&f->cv);
}

static void let_through(struct fault_io *f, struct io_job *job)
{
	struct fault_io_rule rule;
	bool is_hit;

	mutex_lock(&f->mu);
	is_hit = is_hit_locked(f, &rule);
	if (is_hit && rule.kind == FAULT_IO_HOLD)
		hold_locked(f, job);
	mutex_unlock(&f->mu);
	if (!is_hit)
		io_submit(f->below, job);
	else if (rule.kind == FAULT_IO_FAIL)
		run_late(f, job, 0, rule.status);
	else if (rule.kind == FAULT_IO_DELAY)
		run_late(f, job, rule.delay_ns, 0);
	else if (rule.kind == FAULT_IO_SHORTEN)
		run_shortened(f, job, rule.length);
}

static void fault_submit(struct io *io, struct io_job *job)
{
	struct fault_io *f = from_io(io);
	bool is_paused;

	mutex_lock(&f->mu);
	f->seen++;
	is_paused = f->is_paused;
	if (is_paused)
		hold_locked(f, job);
	mutex_unlock(&f->mu);
	if (!is_paused)
		let_through(f, job);
}

/* The late job that is due first, whether it is due or not. */
static struct late_job *first_late_locked(struct fault_io *f) REQUIRES(f->mu)
{
	struct late_job *first = NULL;

	for (struct list *node = f->late.next; node != &f->late; node = node->next) {
		struct late_job *late = container_of(node, struct late_job, node);

		if (!first || late->due_ns < first->due_ns)
			first = late;
	}
	return first;
}

static void finish_late(struct fault_io *f, struct late_job *late)
{
	struct io_job *job = late->job;

	if (late->status == 0) {
		io_submit(f->below, job);
	} else {
		job->status = late->status;
		job->got = 0;
		if (job->kind == IO_READ_PATH)
			job->fd = -1;
		job->started_ns = job->done_ns = clock_now(clock_monotonic());
		job->done(job);
	}
	free(late);
}

static void *fault_main(void *arg)
{
	struct fault_io *f = arg;

	mutex_lock(&f->mu);
	for (;;) {
		struct late_job *late = first_late_locked(f);
		uint64_t now = clock_now(clock_monotonic());

		if (late && (f->is_stopping || late->due_ns <= now)) {
			list_remove(&late->node);
			mutex_unlock(&f->mu);
			finish_late(f, late);
			mutex_lock(&f->mu);
		} else if (late) {
			cond_wait_for(&f->cv, &f->mu, late->due_ns - now);
		} else if (f->is_stopping) {
			break;
		} else {
			cond_wait(&f->cv, &f->mu);
		}
	}
	mutex_unlock(&f->mu);
	return NULL;
}

static void fault_free(struct io *io)
{
	struct fault_io *f = from_io(io);

	mutex_lock(&f->mu);
	f->is_stopping = true; /* from now on every job goes straight to the engine below */
	cond_broadcast(&f->cv);
	mutex_unlock(&f->mu);
	fault_io_resume(io);
	thr_join(&f->thr);
	io_free(f->below);
	cond_fini(&f->cv);
	mutex_fini(&f->mu);
	free(f);
}

static const struct io_ops fault_ops = { .name = "fault",
					 .submit = fault_submit,
					 .free = fault_free };

struct io *fault_io_new(struct io *take_below)
{
	struct fault_io *f = must(calloc(1, sizeof(*f)));
	struct err err;

	f->io.ops = &fault_ops;
	f->below = take_below;
	mutex_init(&f->mu);
	cond_init(&f->cv);
	list_init(&f->held);
	list_init(&f->late);
	if (thr_start(&f->thr, "fault-io", fault_main, f, &err) < 0) {
		printf("Bail out! fault_io: %s\n", err.msg);
		exit(99);
	}
	return &f->io;
}

void fault_io_set(struct io *io, const struct fault_io_rule *rule)
{
	struct fault_io *f = from_io(io);

	mutex_lock(&f->mu);
	f->has_rule = rule != NULL;
	if (rule)
		f->rule = *rule;
	f->passed = f->fired = 0;
	mutex_unlock(&f->mu);
}

unsigned fault_io_fired(struct io *io)
{
	struct fault_io *f = from_io(io);
	unsigned n;

	mutex_lock(&f->mu);
	n = f->fired;
	mutex_unlock(&f->mu);
	return n;
}

unsigned fault_io_seen(struct io *io)
{
	struct fault_io *f = from_io(io);
	unsigned n;

	mutex_lock(&f->mu);
	n = f->seen;
	mutex_unlock(&f->mu);
	return n;
}

void fault_io_pause(struct io *io)
{
	struct fault_io *f = from_io(io);

	mutex_lock(&f->mu);
	f->is_paused = true;
	mutex_unlock(&f->mu);
}

void fault_io_resume(struct io *io)
{
	struct fault_io *f = from_io(io);
	struct list held, *node;

	list_init(&held);
	mutex_lock(&f->mu);
	f->is_paused = false;
	list_splice_tail(&held, &f->held);
	f->n_held = 0;
	mutex_unlock(&f->mu);
	while ((node = list_pop_head(&held)))
		let_through(f, container_of(node, struct io_job, node));
}

void fault_io_wait_held(struct io *io, unsigned n)
{
	struct fault_io *f = from_io(io);

	mutex_lock(&f->mu);
	while (f->n_held < n)
		cond_wait(&f->cv, &f->mu);
	mutex_unlock(&f->mu);
}
