/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real clock. It is the only place that asks the kernel how time passes; everything else is
 * handed a struct clock, so that tests and the simulator can own time. Any thread; no state.
 */
#include "clairfs/base/clock.h"

#include <time.h>

static uint64_t clock_monotonic_now(struct clock *clock)
{
	struct timespec ts;

	/* Cannot fail: the clock exists on every Linux and ts is a valid address. */
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

struct clock *clock_monotonic(void)
{
	static struct clock clock = { .now_ns = clock_monotonic_now };

	return &clock;
}
