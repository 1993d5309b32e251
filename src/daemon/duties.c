/* SPDX-License-Identifier: Apache-2.0 */
/* One thread for what is done again and again: it waits until the first of a table of duties is due,
 * or until a descriptor calls one, and does it. When several are due, the one that has been for
 * longest comes first: however short its period, no duty keeps another one from its turn. Time that
 * was missed (a machine that slept) is not made up for: a duty is done once, and then after its
 * period.
 *
 * Threads: cl-duties runs duties_main and all duties; the rest is main's. */
#include "duties.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "clairfs/base/thr.h"

/* --- when --- */

static uint64_t time_after(uint64_t now_ns, uint64_t in_ns)
{
	return in_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + in_ns;
}

void duty_times_begin(struct duty_times *t, const struct duty *duties, uint32_t n, uint64_t now_ns)
{
	assert(n <= DUTIES_MAX);
	t->n = n;
	for (uint32_t i = 0; i < n; i++)
		t->next_ns[i] = time_after(now_ns, duties[i].first_ns);
}

/* The one with the earliest time, or -1. */
static int first_of(const struct duty_times *t)
{
	int first = -1;

	for (uint32_t i = 0; i < t->n; i++)
		if (first < 0 || t->next_ns[i] < t->next_ns[first])
			first = (int)i;
	return first;
}

int duty_times_due(const struct duty_times *t, uint64_t now_ns)
{
	int first = first_of(t);

	return first >= 0 && t->next_ns[first] <= now_ns ? first : -1;
}

uint64_t duty_times_wait(const struct duty_times *t, uint64_t now_ns)
{
	int first = first_of(t);

	if (first < 0)
		return UINT64_MAX;
	return t->next_ns[first] > now_ns ? t->next_ns[first] - now_ns : 0;
}

void duty_times_done(struct duty_times *t, uint32_t at, uint64_t now_ns, uint64_t in_ns)
{
	assert(at < t->n);
	t->next_ns[at] = time_after(now_ns, in_ns);
}

/* --- the thread --- */

struct duties {
	struct duty duty[DUTIES_MAX];
	struct duty_times times;
	struct thr thr;
	int stop_fd;
};

static uint64_t duties_now_ns(void)
{
	return clock_now(clock_monotonic());
}

static void run_duty(struct duties *d, uint32_t at, short revents)
{
	const struct duty *duty = &d->duty[at];
	uint64_t in_ns = duty->run(duty->ctx, revents);

	duty_times_done(&d->times, at, duties_now_ns(), in_ns ? in_ns : duty->period_ns);
}

/* Up to the millisecond after: never too early, which would be a loop without a pause. */
static int timeout_ms(uint64_t ns)
{
	return ns >= (uint64_t)INT_MAX * NS_PER_MS ? INT_MAX : (int)DIV_ROUND_UP(ns, NS_PER_MS);
}

/* Until one is due, called, or all is over (false). Done are those that were called. */
static bool wait_for_one(struct duties *d)
{
	struct pollfd fds[DUTIES_MAX + 1] = { { .fd = d->stop_fd, .events = POLLIN } };
	uint32_t n = d->times.n;

	for (uint32_t i = 0; i < n; i++) {
		const struct duty *duty = &d->duty[i];

		fds[i + 1].fd = duty->listen ? duty->listen(duty->ctx) : -1;
		fds[i + 1].events = POLLPRI;
	}
	if (poll(fds, n + 1, timeout_ms(duty_times_wait(&d->times, duties_now_ns()))) < 0) {
		if (errno != EINTR)
			log_limited(LOG_LEVEL_WARN, "poll: %s", strerror(errno));
		return true;
	}
	for (uint32_t i = 0; i < n && !fds[0].revents; i++)
		if (fds[i + 1].revents)
			run_duty(d, i, fds[i + 1].revents);
	return !fds[0].revents;
}

static void *duties_main(void *arg)
{
	struct duties *d = arg;

	duty_times_begin(&d->times, d->duty, d->times.n, duties_now_ns());
	while (wait_for_one(d)) {
		int due = duty_times_due(&d->times, duties_now_ns());

		if (due >= 0)
			run_duty(d, (uint32_t)due, 0);
	}
	return NULL;
}

int duties_start(const struct duty *duties, uint32_t n, struct duties **ret, struct err *err)
{
	AUTO_FREE struct duties *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return err_set_errno(err, -ENOMEM, "thread cl-duties");
	assert(n <= DUTIES_MAX);
	for (uint32_t i = 0; i < n; i++)
		d->duty[i] = duties[i];
	d->times.n = n;
	d->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->stop_fd < 0)
		return err_set_errno(err, -errno, "thread cl-duties");
	rc = thr_start(&d->thr, "cl-duties", duties_main, d, err);
	if (rc < 0) {
		close(d->stop_fd);
		return rc;
	}
	*ret = TAKE(d);
	return 0;
}

void duties_stop(struct duties *d)
{
	if (!d)
		return;
	(void)eventfd_write(d->stop_fd, 1); /* a counter that nobody else raises */
	thr_join(&d->thr);
	close(d->stop_fd);
	free(d);
}
