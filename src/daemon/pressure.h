/* SPDX-License-Identifier: Apache-2.0 */
/* What a mount does when memory gets short while it runs. */
#ifndef CLAIRFS_DAEMON_PRESSURE_H
#define CLAIRFS_DAEMON_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/err.h"

struct drive;
struct metrics;

/* What is seen at a moment. */
struct pressure_sight {
	uint64_t limit, used; /* of the cgroup that is nearest to its limit; used: see memlimit.h */
	uint64_t machine, available;
	bool is_stalled; /* tasks of our cgroup (is_ours), or of the machine, wait for memory */
	bool is_ours;
	bool has_throttled; /* memory.high was passed */
};
enum pressure_level {
	PRESSURE_NONE,  /* there is room: what was given up comes back, slowly */
	PRESSURE_SOME,  /* stays as it is */
	PRESSURE_SHORT, /* something must go */
};
/* Pure. */
enum pressure_level pressure_judge(const struct pressure_sight *sight);

/* How much of `ram` is used, over time. Pure. */
struct pressure_state {
	uint64_t ram, least, now; /* bytes */
	uint64_t changed_ns, quiet_ns;
};
void pressure_begin(struct pressure_state *s, uint64_t ram);
/* True: `now` has changed. */
bool pressure_step(struct pressure_state *s, enum pressure_level level, uint64_t now_ns);

struct pressure_params {
	struct drive *drive;
	struct metrics *metrics;
	uint64_t ram, stage; /* bytes */
};
struct pressure;
int pressure_new(const struct pressure_params *params, struct pressure **ret,
		 struct err *err) MUST_USE;
/* The duty: looks, and has the arena shrink or grow. One thread, between drive_start and drive_stop.
 */
#define PRESSURE_PERIOD_NS (1000 * NS_PER_MS)
uint64_t pressure_run(void *pressure, short revents);
int pressure_listen(void *pressure);
void pressure_free(struct pressure *p);

struct pressure_view {
	uint64_t ram, stage, shrunk; /* now; times ever */
	const char *by;              /* what it listens to, static */
};
void pressure_look(struct pressure *p, struct pressure_view *ret); /* any thread */

#endif
