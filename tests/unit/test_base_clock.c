/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real clock: runs forward, at the speed of CLOCK_MONOTONIC, and is one object. A struct clock
 * of a test's own is what everything else is driven by, so that is tried too.
 */
#include "clairfs/base/clock.h"

#include <time.h>

#include "check.h"

static void never_goes_back(void)
{
	uint64_t last = clock_now(clock_monotonic());

	for (int i = 0; i < 100000; i++) {
		uint64_t now = clock_now(clock_monotonic());

		CHECK(now >= last);
		last = now;
	}
}

static void counts_nanoseconds(void)
{
	struct timespec pause = { .tv_nsec = 20 * NS_PER_MS };
	uint64_t before = clock_now(clock_monotonic()), passed;

	nanosleep(&pause, NULL);
	passed = clock_now(clock_monotonic()) - before;
	CHECK(passed >= 20 * NS_PER_MS);
	CHECK(passed < 60 * NS_PER_S);
}

static void is_the_monotonic_clock(void)
{
	struct timespec before, after;
	uint64_t now;

	clock_gettime(CLOCK_MONOTONIC, &before);
	now = clock_now(clock_monotonic());
	clock_gettime(CLOCK_MONOTONIC, &after);
	CHECK(now >= (uint64_t)before.tv_sec * NS_PER_S + (uint64_t)before.tv_nsec);
	CHECK(now <= (uint64_t)after.tv_sec * NS_PER_S + (uint64_t)after.tv_nsec);
}

static void is_one_object(void)
{
	CHECK(clock_monotonic() == clock_monotonic());
}

struct my_clock {
	struct clock clock;
	uint64_t ns;
};

static uint64_t my_now(struct clock *clock)
{
	return container_of(clock, struct my_clock, clock)->ns;
}

static void can_be_replaced(void)
{
	struct my_clock mine = { .clock.now_ns = my_now, .ns = 5 };

	CHECK_U64(clock_now(&mine.clock), 5);
	mine.ns = UINT64_MAX;
	CHECK_U64(clock_now(&mine.clock), UINT64_MAX);
}

static const struct check_test tests[] = {
	{ "never_goes_back", never_goes_back },
	{ "counts_nanoseconds", counts_nanoseconds },
	{ "is_the_monotonic_clock", is_the_monotonic_clock },
	{ "is_one_object", is_one_object },
	{ "can_be_replaced", can_be_replaced },
};

CHECK_MAIN(tests)
