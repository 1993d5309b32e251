/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads and locks: name, signal mask, join, exclusion, and the two ways to wait. No test depends
 * on how fast the machine is: a wait is either ended by what is tested or the test runs into its
 * time limit.
 */
#include "clairfs/base/thr.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/clock.h"

static void *store_name(void *arg)
{
	pthread_getname_np(pthread_self(), arg, 16);
	return NULL;
}

static void thread_has_its_name(void)
{
	char name[16] = "";
	struct thr thr;

	CHECK_INT(thr_start(&thr, "planner", store_name, name, NULL), 0);
	CHECK(thr.is_started);
	thr_join(&thr);
	CHECK(!thr.is_started);
	CHECK_STR(name, "planner");
}

static void long_name_is_cut_at_15(void)
{
	char name[16] = "";
	struct thr thr;

	CHECK_INT(thr_start(&thr, "a-very-long-thread-name", store_name, name, NULL), 0);
	thr_join(&thr);
	CHECK_STR(name, "a-very-long-thr");
}

static void *store_mask(void *arg)
{
	pthread_sigmask(SIG_SETMASK, NULL, arg);
	return NULL;
}

static void signals_are_blocked_in_the_thread_only(void)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE, SIGALRM };
	sigset_t mask, before, after;
	struct thr thr;

	pthread_sigmask(SIG_SETMASK, NULL, &before);
	CHECK_INT(thr_start(&thr, "t", store_mask, &mask, NULL), 0);
	thr_join(&thr);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
		CHECK_INT(sigismember(&mask, signals[i]), 1);
		CHECK_INT(sigismember(&after, signals[i]), sigismember(&before, signals[i]));
		CHECK_INT(sigismember(&after, signals[i]), 0);
	}
}

static void joining_a_thread_never_started_is_fine(void)
{
	struct thr thr = { .is_started = false };

	thr_join(&thr);
	thr_join(&thr);
}

struct counter {
	struct mutex mu;
	struct cond cv;
	uint64_t count; /* mu */
	bool is_ready;  /* mu */
	int n_awake;    /* mu */
};

static void counter_init(struct counter *c)
{
	memset(c, 0, sizeof(*c));
	mutex_init(&c->mu);
	cond_init(&c->cv);
}

static void counter_fini(struct counter *c)
{
	cond_fini(&c->cv);
	mutex_fini(&c->mu);
}

static void *count_up(void *arg)
{
	struct counter *c = arg;

	for (int i = 0; i < 20000; i++) {
		mutex_lock(&c->mu);
		c->count++;
		mutex_unlock(&c->mu);
	}
	return NULL;
}

static void mutex_excludes(void)
{
	struct thr threads[4];
	struct counter c;

	counter_init(&c);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		CHECK_INT(thr_start(&threads[i], "count", count_up, &c, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		thr_join(&threads[i]);
	CHECK_U64(c.count, 80000);
	counter_fini(&c);
}

static void *wait_ready(void *arg)
{
	struct counter *c = arg;

	mutex_lock(&c->mu);
	c->count++;
	cond_signal(&c->cv); /* only the main thread waits for count */
	while (!c->is_ready)
		cond_wait(&c->cv, &c->mu);
	c->n_awake++;
	mutex_unlock(&c->mu);
	return NULL;
}

static void signal_wakes_a_waiter(void)
{
	struct counter c;
	struct thr thr;

	counter_init(&c);
	CHECK_INT(thr_start(&thr, "wait", wait_ready, &c, NULL), 0);
	mutex_lock(&c.mu);
	while (c.count == 0)
		cond_wait(&c.cv, &c.mu);
	c.is_ready = true;
	cond_signal(&c.cv);
	mutex_unlock(&c.mu);
	thr_join(&thr);
	CHECK_INT(c.n_awake, 1);
	counter_fini(&c);
}

static void broadcast_wakes_all(void)
{
	struct thr threads[5];
	struct counter c;
	bool is_ready = false;

	counter_init(&c);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		CHECK_INT(thr_start(&threads[i], "wait", wait_ready, &c, NULL), 0);
	while (!is_ready) {
		mutex_lock(&c.mu);
		is_ready = c.is_ready = c.count == ARRAY_LEN(threads); /* all of them wait now */
		if (is_ready)
			cond_broadcast(&c.cv);
		mutex_unlock(&c.mu);
		usleep(1000);
	}
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		thr_join(&threads[i]);
	CHECK_INT(c.n_awake, ARRAY_LEN(threads));
	counter_fini(&c);
}

static void wait_for_runs_out_of_time(void)
{
	uint64_t before = clock_now(clock_monotonic());
	struct counter c;
	bool is_timeout;

	counter_init(&c);
	mutex_lock(&c.mu);
	do {
		is_timeout = cond_wait_for(&c.cv, &c.mu, 30 * NS_PER_MS);
	} while (!is_timeout); /* a wake-up without reason is allowed */
	mutex_unlock(&c.mu);
	CHECK(clock_now(clock_monotonic()) - before >= 30 * NS_PER_MS);
	counter_fini(&c);
}

static void *signal_later(void *arg)
{
	struct counter *c = arg;

	usleep(20000); /* time enough for a deadline in the past to show */
	mutex_lock(&c->mu);
	c->count++;
	cond_signal(&c->cv);
	mutex_unlock(&c->mu);
	return NULL;
}

static void wait_for_ever_is_woken(void)
{
	struct counter c;
	struct thr thr;

	counter_init(&c);
	mutex_lock(&c.mu);
	CHECK_INT(thr_start(&thr, "later", signal_later, &c, NULL), 0);
	while (c.count == 0)
		CHECK(!cond_wait_for(&c.cv, &c.mu, UINT64_MAX)); /* no overflow into the past */
	mutex_unlock(&c.mu);
	thr_join(&thr);
	counter_fini(&c);
}

static const struct check_test tests[] = {
	{ "thread_has_its_name", thread_has_its_name },
	{ "long_name_is_cut_at_15", long_name_is_cut_at_15 },
	{ "signals_are_blocked_in_the_thread_only", signals_are_blocked_in_the_thread_only },
	{ "joining_a_thread_never_started_is_fine", joining_a_thread_never_started_is_fine },
	{ "mutex_excludes", mutex_excludes },
	{ "signal_wakes_a_waiter", signal_wakes_a_waiter },
	{ "broadcast_wakes_all", broadcast_wakes_all },
	{ "wait_for_runs_out_of_time", wait_for_runs_out_of_time },
	{ "wait_for_ever_is_woken", wait_for_ever_is_woken },
};

CHECK_MAIN(tests)
