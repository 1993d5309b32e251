/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Do tasks of the job wait for a CPU (PSI)? A search for an order has no business there then, not
 * even as SCHED_IDLE: it shares caches, memory and the turbo of the cores with them. The sum of the
 * kernel is compared over a second at least, since averages lag by ten.
 *
 * Where the search's own threads are in that cgroup, or the machine is asked, their waiting counts
 * as well: a search on a full machine is held, and then what is counted is others'. Whoever is held
 * for long is let go on for a second in ten, for a machine may be crowded for days: as SCHED_IDLE
 * that gets what nobody wants.
 */
#include "clairfs/base/crowd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clairfs/base/cgroup.h"
#include "clairfs/base/cleanup.h"
#include "clairfs/base/clock.h"

#define LOOK_NS NS_PER_S
#define HELD_NS (10 * NS_PER_S)
#define CROWDED_PERCENT 20 /* of the time, to be held */
#define FREE_PERCENT 10    /* to go on */

bool crowd_step(struct crowd *c, uint64_t stalled_us, uint64_t now_ns)
{
	uint64_t ns = now_ns - c->at_ns, percent;
	bool was_crowded = c->is_crowded;

	if (!c->at_ns || stalled_us < c->stalled_us || now_ns < c->at_ns) {
		/* The first look, or another cgroup. */
		c->at_ns = now_ns;
		c->stalled_us = stalled_us;
		return c->is_crowded;
	}
	if (ns < LOOK_NS)
		return c->is_crowded;
	percent = MIN((stalled_us - c->stalled_us) / MAX(ns / 100000, 1), 100);
	c->is_crowded = percent >= (was_crowded ? FREE_PERCENT : CROWDED_PERCENT);
	if (was_crowded && now_ns - c->since_ns >= HELD_NS)
		c->is_crowded = false;
	if (c->is_crowded != was_crowded)
		c->since_ns = now_ns;
	c->at_ns = now_ns;
	c->stalled_us = stalled_us;
	return c->is_crowded;
}

uint64_t crowd_sum_in(const char *file)
{
	AUTO_FD int fd = open(file, O_RDONLY | O_CLOEXEC);
	char text[512];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));

	return n > 0 ? cgroup_stalled_us(text, (size_t)n) : CGROUP_NONE;
}

struct sum {
	uint64_t us;
	char path[PATH_MAX + 64];
};

/* The innermost cgroup that says: the first that is called. */
static void look_at_pressure(void *ctx, const char *dir)
{
	struct sum *sum = ctx;

	if (sum->us != CGROUP_NONE)
		return;
	snprintf(sum->path, sizeof(sum->path), "%s/cpu.pressure", dir);
	sum->us = crowd_sum_in(sum->path);
}

bool crowd_file_of(pid_t reader, char *file, size_t size)
{
	struct sum sum = { .us = CGROUP_NONE };

	cgroup_each(reader, "cpu", look_at_pressure, &sum);
	return sum.us != CGROUP_NONE && (size_t)snprintf(file, size, "%s", sum.path) < size;
}

static bool is_sum_of(const struct crowd *c, const struct sum *sum)
{
	return strncmp(c->whose, sum->path, sizeof(c->whose) - 1) == 0;
}

bool crowd_look(struct crowd *c, pid_t reader)
{
	uint64_t now_ns = clock_now(clock_monotonic());
	struct sum sum = { .us = CGROUP_NONE };

	if (c->at_ns && now_ns - c->at_ns < LOOK_NS) /* reading mounts is not free */
		return c->is_crowded;
	if (reader > 0)
		cgroup_each(reader, "cpu", look_at_pressure, &sum);
	if (sum.us == CGROUP_NONE) {
		snprintf(sum.path, sizeof(sum.path), CROWD_MACHINE);
		sum.us = crowd_sum_in(sum.path);
	}
	if (sum.us == CGROUP_NONE) {
		*c = (struct crowd){ 0 };
		return false;
	}
	if (!is_sum_of(c, &sum)) { /* sums of two cgroups cannot be compared */
		*c = (struct crowd){ 0 };
		snprintf(c->whose, sizeof(c->whose), "%.*s", (int)sizeof(c->whose) - 1, sum.path);
	}
	return crowd_step(c, sum.us, now_ns);
}
