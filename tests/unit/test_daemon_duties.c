/* SPDX-License-Identifier: Apache-2.0 */
/* What is done again and again is done when it is due: with a clock of our own, and on the thread
 * with descriptors, but never by waiting for a period. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "src/daemon/duties.h"

#define NEVER (UINT64_MAX / 2)

static void none_is_due_before_its_time(void)
{
	static const struct duty duties[] = { { .name = "a", .first_ns = 50, .period_ns = 7 },
					      { .name = "b", .first_ns = 20, .period_ns = 100 },
					      { .name = "c", .first_ns = UINT64_MAX } };
	struct duty_times t;

	duty_times_begin(&t, duties, 3, 1000);
	CHECK_INT(duty_times_due(&t, 1019), -1);
	CHECK_U64(duty_times_wait(&t, 1000), 20);
	CHECK_U64(duty_times_wait(&t, 1020), 0);
	CHECK_INT(duty_times_due(&t, 1020), 1);
	CHECK_INT(duty_times_due(&t, 5000), 1); /* due for longer than a */
	duty_times_done(&t, 1, 5000, 100);
	CHECK_INT(duty_times_due(&t, 5000), 0);
	duty_times_done(&t, 0, 5000, 7); /* what was missed is not made up for */
	CHECK_INT(duty_times_due(&t, 5000), -1);
	CHECK_U64(duty_times_wait(&t, 5000), 7);
	duty_times_done(&t, 0, 5007, UINT64_MAX); /* no overflow: never again */
	duty_times_done(&t, 1, 5007, UINT64_MAX - 5007);
	CHECK_INT(duty_times_due(&t, UINT64_MAX - 1), -1);
}

static void a_table_without_duties_waits_for_ever(void)
{
	struct duty_times t;

	duty_times_begin(&t, NULL, 0, 5);
	CHECK_INT(duty_times_due(&t, UINT64_MAX), -1);
	CHECK_U64(duty_times_wait(&t, 5), UINT64_MAX);
}

/* A day of a thread with random duties that take random times. */
static void no_duty_keeps_another_from_its_turn(void)
{
	uint64_t seed = check_seed(), now = 0, end = 24 * 3600 * NS_PER_S;
	struct duty duties[DUTIES_MAX] = { 0 };
	uint64_t done[DUTIES_MAX] = { 0 }, longest = 0, took[DUTIES_MAX];
	uint32_t n = 2 + (uint32_t)check_rand_below(&seed, DUTIES_MAX - 1);
	struct duty_times t;

	for (uint32_t i = 0; i < n; i++) {
		duties[i].period_ns = (1 + check_rand_below(&seed, 600)) * NS_PER_S;
		took[i] = check_rand_below(&seed, 4 * NS_PER_S); /* more than some periods */
		longest += took[i];
	}
	duty_times_begin(&t, duties, n, 0);
	while (now < end) {
		int at = duty_times_due(&t, now);

		if (at < 0) {
			uint64_t wait = duty_times_wait(&t, now);

			CHECK(wait > 0 && wait <= 600 * NS_PER_S);
			now += wait;
			CHECK(duty_times_due(&t, now) >= 0);
			continue;
		}
		/* Not before its period is over, and not later than all others take once. */
		if (done[at]) {
			CHECK(now >= done[at] + duties[at].period_ns);
			CHECK(now <= done[at] + duties[at].period_ns + longest);
		}
		now += took[at];
		done[at] = now;
		duty_times_done(&t, (uint32_t)at, now, duties[at].period_ns);
	}
	for (uint32_t i = 0; i < n; i++)
		CHECK(done[i] > 0);
}

/* --- the thread --- */

struct bell {
	int fd;      /* becomes ready with POLLPRI */
	int done_fd; /* an eventfd: raised when the duty was done */
	short revents;
	_Atomic int n;
};

static uint64_t ring(void *ctx, short revents)
{
	struct bell *b = ctx;
	char byte;

	b->revents = revents;
	if (revents)
		CHECK_INT(recv(b->fd, &byte, 1, MSG_OOB), 1);
	atomic_fetch_add(&b->n, 1);
	CHECK_INT(eventfd_write(b->done_fd, 1), 0);
	return NEVER;
}

static int bell_fd(void *ctx)
{
	const struct bell *b = ctx;

	return b->fd;
}

static void wait_done(struct bell *b)
{
	eventfd_t n;

	CHECK_INT(eventfd_read(b->done_fd, &n), 0);
	CHECK_U64(n, 1);
}

/* Two ends of a connection, for urgent bytes. */
static void connect_pair(int fds[2])
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(to);

	CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&to, len) == 0);
	CHECK(listen(listener, 1) == 0 &&
	      getsockname(listener, (struct sockaddr *)&to, &len) == 0);
	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_INT(connect(fds[0], (struct sockaddr *)&to, len), 0);
	fds[1] = accept(listener, NULL, NULL);
	CHECK(fds[1] >= 0);
	close(listener);
}

/* It would be due in centuries: only the descriptor, and the end, wake the thread. */
static void a_descriptor_calls_its_duty_before_its_time(void)
{
	struct bell called = { .done_fd = eventfd(0, 0) }, other = { .fd = -1,
								      .done_fd = eventfd(0, 0) };
	int fds[2];

	connect_pair(fds);
	called.fd = fds[1];
	struct duty table[] = { { .name = "called",
				  .first_ns = NEVER,
				  .period_ns = NEVER,
				  .run = ring,
				  .ctx = &called,
				  .listen = bell_fd },
				{ .name = "other",
				  .first_ns = NEVER,
				  .period_ns = NEVER,
				  .run = ring,
				  .ctx = &other,
				  .listen = bell_fd } };
	struct duties *d = NULL;
	struct err err = { 0 };

	CHECK_INT(duties_start(table, 2, &d, &err), 0);
	for (int i = 1; i <= 3; i++) {
		CHECK_INT(send(fds[0], "!", 1, MSG_OOB), 1);
		wait_done(&called);
		CHECK_INT(atomic_load(&called.n), i);
	}
	duties_stop(d);
	CHECK(called.revents != 0);
	CHECK_INT(atomic_load(&other.n), 0);
	close(fds[0]);
	close(fds[1]);
	close(called.done_fd);
	close(other.done_fd);
}

static void what_is_due_is_done_at_once_and_once(void)
{
	struct bell b = { .fd = -1, .done_fd = eventfd(0, 0) };
	struct duty duty = { .name = "now", .period_ns = 1, .run = ring, .ctx = &b };
	struct duties *d = NULL;
	struct err err = { 0 };

	CHECK_INT(duties_start(&duty, 1, &d, &err), 0);
	wait_done(&b);
	duties_stop(d); /* does not wait for what it asked for: NEVER */
	CHECK_INT(atomic_load(&b.n), 1);
	CHECK_INT(b.revents, 0);
	close(b.done_fd);
}

static void the_end_does_not_wait_for_a_period(void)
{
	struct bell b = { .fd = -1, .done_fd = eventfd(0, 0) };
	struct duty duty = { .name = "late", .first_ns = NEVER, .run = ring, .ctx = &b };
	struct duties *d = NULL;
	struct err err = { 0 };

	duties_stop(NULL);
	CHECK_INT(duties_start(&duty, 1, &d, &err), 0);
	duties_stop(d);
	CHECK_INT(atomic_load(&b.n), 0);
	CHECK_INT(duties_start(NULL, 0, &d, &err), 0);
	duties_stop(d);
	close(b.done_fd);
}

static const struct check_test tests[] = {
	{ "none_is_due_before_its_time", none_is_due_before_its_time },
	{ "a_table_without_duties_waits_for_ever", a_table_without_duties_waits_for_ever },
	{ "no_duty_keeps_another_from_its_turn", no_duty_keeps_another_from_its_turn },
	{ "a_descriptor_calls_its_duty_before_its_time",
	  a_descriptor_calls_its_duty_before_its_time },
	{ "what_is_due_is_done_at_once_and_once", what_is_due_is_done_at_once_and_once },
	{ "the_end_does_not_wait_for_a_period", the_end_does_not_wait_for_a_period },
};
CHECK_MAIN(tests)
