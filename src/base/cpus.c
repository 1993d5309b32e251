/* SPDX-License-Identifier: Apache-2.0 */
/* For how long the CPUs that this process may use have been busy, as the kernel counts it: a job
 * that is started beside it mostly has the same ones. Time that a hypervisor took away counts as
 * busy. Lines that say something else than expected are left out; when all of them do, nothing is
 * known. Any thread. */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clairfs/base/cgroup.h"
#include "clairfs/base/cleanup.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/cpus.h"
#include "clairfs/base/text.h"

enum { FIELDS = 8, FIELD_IDLE = 3, FIELD_IOWAIT = 4 }; /* user ... steal */

uint32_t cpus_allowed(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 0;
}

uint32_t cpus_quota(const char *text)
{
	char words[64], *save = NULL, *quota, *period;
	uint64_t of, per;

	snprintf(words, sizeof(words), "%s", text);
	quota = strtok_r(words, " \n", &save);
	period = strtok_r(NULL, " \n", &save);
	if (!quota || !period || text_to_u64(quota, &of) < 0 || text_to_u64(period, &per) < 0 ||
	    !per || of > UINT32_MAX || per > UINT32_MAX)
		return UINT32_MAX; /* "max" is no number, nor is -1 */
	return (uint32_t)MAX(DIV_ROUND_UP(of, per), 1u);
}

/* The first line of a file, or nothing. */
static void line_of(const char *dir, const char *name, char *out, size_t size)
{
	char path[PATH_MAX + 128];
	AUTO_FILE FILE *f = NULL;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "re");
	if (!f || !fgets(out, (int)size, f))
		out[0] = 0;
	out[strcspn(out, "\n")] = 0;
}

static void look_quota(void *ctx, const char *dir)
{
	char text[64], quota[30], period[30];
	uint32_t *least = ctx;

	line_of(dir, "cpu.max", text, sizeof(text));
	*least = MIN(*least, cpus_quota(text));
	line_of(dir, "cpu.cfs_quota_us", quota, sizeof(quota));
	line_of(dir, "cpu.cfs_period_us", period, sizeof(period));
	snprintf(text, sizeof(text), "%s %s", quota, period);
	*least = MIN(*least, cpus_quota(text));
}

uint32_t cpus_of(pid_t pid)
{
	uint32_t least;
	cpu_set_t set;

	if (sched_getaffinity(pid, sizeof(set), &set) < 0)
		return 0;
	least = (uint32_t)CPU_COUNT(&set);
	cgroup_each(pid, "cpu", look_quota, &least);
	return least;
}

/* "cpu7 1 2 3 ...": ticks of CPU 7; false: another line. */
static bool take_cpu_line(char *line, uint64_t *ret_cpu, uint64_t *ret_ticks)
{
	char *save = NULL, *word = strtok_r(line, " \n", &save);
	uint64_t n;

	*ret_ticks = 0;
	if (!word || strncmp(word, "cpu", 3) != 0 || text_to_u64(word + 3, ret_cpu) < 0)
		return false;
	for (int i = 0; i < FIELDS; i++) {
		word = strtok_r(NULL, " \n", &save);
		if (!word || text_to_u64(word, &n) < 0 || n > UINT64_MAX / FIELDS / NS_PER_S)
			return false;
		if (i != FIELD_IDLE && i != FIELD_IOWAIT)
			*ret_ticks += n;
	}
	return true;
}

bool cpus_busy(FILE *stat, uint64_t *ret_ns)
{
	long per_s = sysconf(_SC_CLK_TCK);
	uint64_t cpu, ticks, sum = 0;
	bool is_known = false;
	char line[512];
	cpu_set_t set;

	if (!stat || per_s <= 0 || sched_getaffinity(0, sizeof(set), &set) < 0)
		return false;
	while (fgets(line, sizeof(line), stat)) {
		if (!take_cpu_line(line, &cpu, &ticks) || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &set))
			continue;
		sum += ticks;
		is_known = true;
	}
	*ret_ns = sum * (NS_PER_S / (uint64_t)per_s);
	return is_known;
}
