/* SPDX-License-Identifier: Apache-2.0 */
/* When a search steps aside for those who wait for a CPU. */
#include <string.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/cgroup.h"
#include "clairfs/base/crowd.h"

static uint64_t us_of(const char *text)
{
	return cgroup_stalled_us(text, strlen(text));
}

static void sums_of_the_kernel(void)
{
	CHECK_U64(us_of("some avg10=0.00 avg60=0.12 avg300=1.00 total=123456789\n"
			"full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"),
		  123456789);
	CHECK_U64(us_of("full avg10=0.00 total=7\nsome avg10=0.00 total=8"), 8);
	CHECK_U64(us_of("some total=0"), 0);
	CHECK(us_of("full avg10=0.00 total=7\n") == CGROUP_NONE);
	CHECK(us_of("some avg10=0.00 total=\n") == CGROUP_NONE);
	CHECK(us_of("some avg10=0.00 total=7x\n") == CGROUP_NONE);
	CHECK(us_of("some") == CGROUP_NONE);
	CHECK(us_of("") == CGROUP_NONE);
}

/* A second in which this share of the time somebody waited. */
struct machine {
	struct crowd crowd;
	uint64_t now_ns, us;
};

static bool second(struct machine *m, unsigned percent)
{
	bool is_crowded = false;

	for (int i = 0; i < 5; i++) {
		m->now_ns += NS_PER_S / 5;
		m->us += percent * 2000;
		is_crowded = crowd_step(&m->crowd, m->us, m->now_ns);
	}
	return is_crowded;
}

static void those_who_wait_come_first(void)
{
	struct machine m = { .now_ns = 5 * NS_PER_S, .us = 1000 };

	(void)second(&m, 50);
	CHECK(second(&m, 50));
	CHECK(second(&m, 15)); /* no swinging */
	(void)second(&m, 0);
	CHECK(!second(&m, 0));
	(void)second(&m, 15);
	CHECK(!second(&m, 15));
}

static void nobody_is_held_for_ever(void)
{
	struct machine m = { .now_ns = NS_PER_S };
	unsigned held = 0, went = 0;

	for (int i = 0; i < 120; i++)
		if (second(&m, 90))
			held++;
		else
			went++;
	CHECK(held >= 100);
	CHECK(went >= 8);
}

/* The job has moved to another cgroup, whose sum is smaller. */
static void another_sum(void)
{
	struct machine m = { .now_ns = NS_PER_S, .us = 1000000000 };

	(void)second(&m, 0);
	CHECK(!second(&m, 0));
	m.us = 5;
	CHECK(!second(&m, 1));
	CHECK(!second(&m, 1));
}

static void this_machine_says_something(void)
{
	struct crowd crowd = { 0 };

	CHECK(!crowd_look(&crowd, 0)); /* the first look knows of no time before */
	CHECK(crowd.whose[0] == '/' || !crowd.at_ns);
	crowd = (struct crowd){ 0 };
	CHECK(!crowd_look(&crowd, 1));
}

static const struct check_test tests[] = {
	{ "sums_of_the_kernel", sums_of_the_kernel },
	{ "those_who_wait_come_first", those_who_wait_come_first },
	{ "nobody_is_held_for_ever", nobody_is_held_for_ever },
	{ "another_sum", another_sum },
	{ "this_machine_says_something", this_machine_says_something },
};

CHECK_MAIN(tests)
