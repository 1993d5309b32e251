/* SPDX-License-Identifier: Apache-2.0 */
/* Time: everything that needs it takes a struct clock, so that tests can own it. */
#ifndef CLAIRFS_BASE_CLOCK_H
#define CLAIRFS_BASE_CLOCK_H

#include <stdint.h>

struct clock {
	uint64_t (*now_ns)(struct clock *clock); /* monotonic; any thread */
};

#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull

/* CLOCK_MONOTONIC; one object for all. */
struct clock *clock_monotonic(void);
static inline uint64_t clock_now(struct clock *clock)
{
	return clock->now_ns(clock);
}

#endif
