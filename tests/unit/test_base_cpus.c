/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc/stat may say, and what is made of it. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "clairfs/base/cpus.h"

static bool busy(const char *text, uint64_t *ret)
{
	FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
	bool is_known = cpus_busy(f, ret);

	fclose(f);
	return is_known;
}

static uint64_t tick_ns(void)
{
	return 1000000000ull / (uint64_t)sysconf(_SC_CLK_TCK);
}

/* The first CPU that this process may use. */
static int some_cpu(void)
{
	cpu_set_t set;
	int cpu = 0;

	CHECK_INT(sched_getaffinity(0, sizeof(set), &set), 0);
	while (!CPU_ISSET(cpu, &set))
		cpu++;
	return cpu;
}

static void all_but_idle_and_iowait_counts(void)
{
	char text[200];
	uint64_t ns;

	snprintf(text, sizeof(text),
		 "cpu  9 9 9 9 9 9 9 9 0 0\ncpu%d 1 2 4 1000 2000 8 16 32 64 128\nintr 5 6 7\n",
		 some_cpu());
	CHECK(busy(text, &ns));
	CHECK_U64(ns, 63 * tick_ns());
}

static void other_cpus_and_nonsense_are_left_out(void)
{
	uint64_t ns;

	CHECK(!busy("cpu 1 2 3 4 5 6 7 8\n", &ns));
	CHECK(!busy("cpu9999 1 2 3 4 5 6 7 8\n", &ns));
	CHECK(!busy("cpu0\ncpu0 1 2 3\ncpu0 x 2 3 4 5 6 7 8\ncpux 1 2 3 4 5 6 7 8\n", &ns));
	CHECK(!busy("cpu0 18446744073709551615 1 1 1 1 1 1 1\n", &ns));
	CHECK(!busy("\n", &ns));
	CHECK(!cpus_busy(NULL, &ns));
}

static void this_machine_is_known(void)
{
	FILE *f = fopen("/proc/stat", "re");
	uint64_t ns = 0;

	CHECK(f && cpus_busy(f, &ns));
	CHECK(ns > 0 && cpus_allowed() > 0);
	fclose(f);
}

static void quotas_are_rounded_up(void)
{
	CHECK_INT((int)cpus_quota("200000 100000\n"), 2);
	CHECK_INT((int)cpus_quota("250000 100000"), 3);
	CHECK_INT((int)cpus_quota("1000 100000"), 1);
	CHECK_INT((int)cpus_quota("0 100000"), 1);
	CHECK(cpus_quota("max 100000\n") == UINT32_MAX && cpus_quota("-1 100000") == UINT32_MAX);
	CHECK(cpus_quota("") == UINT32_MAX && cpus_quota("7") == UINT32_MAX);
	CHECK(cpus_quota("7 0") == UINT32_MAX && cpus_quota("99999999999 1") == UINT32_MAX);
}

static void process_has_the_cpus_it_may_use(void)
{
	cpu_set_t old, one;
	uint32_t all = cpus_of(0);

	CHECK(all >= 1 && all <= cpus_allowed());
	CHECK_INT(sched_getaffinity(0, sizeof(old), &old), 0);
	CPU_ZERO(&one);
	CPU_SET(some_cpu(), &one);
	CHECK_INT(sched_setaffinity(0, sizeof(one), &one), 0);
	CHECK_INT((int)cpus_of(getpid()), 1);
	CHECK_INT(sched_setaffinity(0, sizeof(old), &old), 0);
	CHECK_INT((int)cpus_of(-1), 0);
}

static const struct check_test tests[] = {
	{ "all_but_idle_and_iowait_counts", all_but_idle_and_iowait_counts },
	{ "other_cpus_and_nonsense_are_left_out", other_cpus_and_nonsense_are_left_out },
	{ "this_machine_is_known", this_machine_is_known },
	{ "quotas_are_rounded_up", quotas_are_rounded_up },
	{ "a_process_has_the_cpus_it_may_use", process_has_the_cpus_it_may_use },
};

CHECK_MAIN(tests)
