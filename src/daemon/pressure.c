/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives memory back while others need it. A duty looks, once a second and four times while it is
 * short, at each cgroup above us that has a limit: how much of it is used by processes and
 * cannot be reclaimed. That a cgroup is full says nothing, as page cache fills every one; so does
 * that its memory.high is passed. Between two looks it waits for the kernel's word that tasks stall
 * (PSI), by a trigger of our own cgroup or of the machine; where triggers are refused it reads the
 * average. Stalls of the machine may be those of somebody else's cgroup, to whom nothing of ours
 * would help, so they count only if the machine, or our cgroup, is not far from full.
 *
 * Short: a quarter of what the arena has goes, four times a second at most. A sixteenth of all
 * comes back in ten seconds without shortage. In between nothing changes, or it would swing. Down
 * to 16 MiB, with which reads go on; nothing else depends on it.
 */
#include "pressure.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "clairfs/base/cgroup.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "clairfs/drive.h"
#include "clairfs/metrics.h"
#include "memlimit.h"

#define MIB (1ull << 20)
#define LEAST_BYTES (16 * MIB)
#define STEP_NS (250 * NS_PER_MS)
#define RECOVER_NS (10 * NS_PER_S)
#define LOOK_SHORT_NS (250 * NS_PER_MS)
#define STALLED_PERCENT 10 /* of the time somebody waits */
#define MACHINE_SPARE (512 * MIB)

/* Windows of two seconds are allowed to everybody since Linux 6.5, others to CAP_SYS_RESOURCE. */
static const char trigger[] = "some 200000 2000000";

struct pressure {
	struct pressure_params p;
	int psi_fd;
	bool is_ours; /* psi_fd and psi_path are of our cgroup */
	char psi_path[PATH_MAX + 64];
	uint64_t n_high; /* of memory.events, the sum of all above */
	struct pressure_state state;
	const char *by;
	_Atomic uint64_t ram, stage, shrunk;
};

/* --- rules --- */

enum pressure_level pressure_judge(const struct pressure_sight *s)
{
	uint64_t room = s->limit > s->used ? s->limit - s->used : 0;
	uint64_t spare = MIN(s->machine / 16, MACHINE_SPARE);
	bool is_near = s->limit != MEMLIMIT_NONE && room < s->limit / 2;
	bool is_tight = s->limit != MEMLIMIT_NONE && room < s->limit / 4;
	bool is_full = s->limit != MEMLIMIT_NONE && room < s->limit / 8;

	if (is_full || s->available < spare)
		return PRESSURE_SHORT;
	if (s->is_stalled && (s->is_ours || is_near || s->available < s->machine / 4))
		return PRESSURE_SHORT;
	if (s->has_throttled && is_tight)
		return PRESSURE_SHORT;
	return is_tight || s->is_stalled || s->available < 2 * spare ? PRESSURE_SOME
								     : PRESSURE_NONE;
}

void pressure_begin(struct pressure_state *s, uint64_t ram)
{
	*s = (struct pressure_state){ .ram = ram, .now = ram, .least = MIN(ram, LEAST_BYTES) };
}

bool pressure_step(struct pressure_state *s, enum pressure_level level, uint64_t now_ns)
{
	uint64_t was = s->now;

	if (level != PRESSURE_NONE || s->now == s->ram)
		s->quiet_ns = now_ns;
	if (level == PRESSURE_SHORT && (!s->changed_ns || now_ns - s->changed_ns >= STEP_NS))
		s->now = MAX(s->now - s->now / 4, s->least);
	if (level == PRESSURE_NONE && now_ns - s->quiet_ns >= RECOVER_NS) {
		s->now = MIN(s->now + s->ram / 16, s->ram);
		s->quiet_ns = now_ns;
	}
	if (s->now == was)
		return false;
	s->changed_ns = now_ns;
	return true;
}

/* --- looking --- */

struct looking {
	struct pressure_sight sight;
	uint64_t n_high;
};

static void look_at_use(void *ctx, const char *dir)
{
	struct looking *l = ctx;
	const char *name;
	uint64_t limit = memlimit_of_cgroup(dir, &name), high, used;

	if (limit == MEMLIMIT_NONE)
		return;
	high = cgroup_stat(dir, "memory.events", "high");
	if (high != CGROUP_NONE)
		l->n_high += high;
	used = memlimit_used_in(dir);
	/* The first version writes a number for none, larger than any machine. */
	if (used == MEMLIMIT_NONE || limit > l->sight.machine)
		return;
	if (l->sight.limit != MEMLIMIT_NONE &&
	    (double)used / (double)limit <= (double)l->sight.used / (double)l->sight.limit)
		return;
	l->sight.limit = limit;
	l->sight.used = used;
}

static bool is_stalled_on_average(const struct pressure *p)
{
	AUTO_FD int fd = open(p->psi_path, O_RDONLY | O_CLOEXEC);
	char text[256];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));

	return n > 0 && cgroup_stalled(text, (size_t)n) >= STALLED_PERCENT * 100;
}

static enum pressure_level look_around(struct pressure *p, bool is_stalled)
{
	struct looking l = { .sight = { .limit = MEMLIMIT_NONE,
					.machine = memlimit_meminfo("MemTotal"),
					.available = memlimit_meminfo("MemAvailable"),
					.is_ours = p->is_ours } };

	cgroup_each(0, "memory", look_at_use, &l);
	l.sight.is_stalled = p->psi_fd >= 0 ? is_stalled : is_stalled_on_average(p);
	l.sight.has_throttled = l.n_high > p->n_high;
	p->n_high = l.n_high;
	return pressure_judge(&l.sight);
}

/* --- listening --- */

static int open_trigger(const char *path)
{
	int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0 && write(fd, trigger, sizeof(trigger)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* The innermost cgroup of the second version that knows its pressure: the first that is called. */
static void look_psi(void *ctx, const char *dir)
{
	char path[PATH_MAX + 64], type[PATH_MAX + 64];
	struct pressure *p = ctx;

	snprintf(path, sizeof(path), "%s/memory.pressure", dir);
	snprintf(type, sizeof(type), "%s/cgroup.type", dir); /* the root has none */
	if (p->psi_path[0] || access(path, R_OK) < 0 || access(type, F_OK) < 0)
		return;
	snprintf(p->psi_path, sizeof(p->psi_path), "%s", path);
	p->is_ours = true;
}

static void listen_for(struct pressure *p)
{
	cgroup_each(0, "memory", look_psi, p);
	if (!p->is_ours)
		snprintf(p->psi_path, sizeof(p->psi_path), "/proc/pressure/memory");
	p->psi_fd = open_trigger(p->psi_path);
	if (p->psi_fd >= 0)
		p->by = p->is_ours ? "stalls of the cgroup" : "stalls of the machine";
	else if (access(p->psi_path, R_OK) == 0)
		p->by = p->is_ours ? "average stalls of the cgroup"
				   : "average stalls of the machine";
	else
		p->by = "what is free";
}

/* --- the duty --- */

static void put_in_force(struct pressure *p, uint64_t was)
{
	uint64_t now = p->state.now;
	uint64_t stage = (uint64_t)((double)p->p.stage * (double)now / (double)p->p.ram);
	char from[32], to[32];

	atomic_store(&p->ram, now);
	atomic_store(&p->stage, stage);
	if (now < was) {
		atomic_fetch_add(&p->shrunk, 1);
		metrics_add(p->p.metrics, METRIC_MEMORY_SHRUNK, 1);
		if (was == p->p.ram)
			log_info("memory is short: the arena goes from %s to %s for now",
				 text_from_bytes(was, from, sizeof(from)),
				 text_from_bytes(now, to, sizeof(to)));
	}
	metrics_gauge_set(p->p.metrics, METRIC_MEMORY_GIVEN_UP, p->p.ram - now);
	drive_set_memory(p->p.drive, now, stage);
}

uint64_t pressure_run(void *pressure, short revents)
{
	struct pressure *p = pressure;
	uint64_t was = p->state.now;
	enum pressure_level level;

	if (revents & (POLLERR | POLLNVAL)) { /* our cgroup is gone */
		close(p->psi_fd);
		p->psi_fd = -1;
	}
	level = look_around(p, (revents & POLLPRI) != 0);
	if (pressure_step(&p->state, level, clock_now(clock_monotonic())))
		put_in_force(p, was);
	return level == PRESSURE_NONE ? 0 : LOOK_SHORT_NS;
}

int pressure_listen(void *pressure)
{
	const struct pressure *p = pressure;

	return p->psi_fd;
}

int pressure_new(const struct pressure_params *params, struct pressure **ret, struct err *err)
{
	AUTO_FREE struct pressure *p = calloc(1, sizeof(*p));

	if (!p)
		return err_set_errno(err, -ENOMEM, "watching memory");
	p->p = *params;
	atomic_init(&p->ram, params->ram);
	atomic_init(&p->stage, params->stage);
	pressure_begin(&p->state, params->ram);
	listen_for(p);
	*ret = TAKE(p);
	return 0;
}

void pressure_free(struct pressure *p)
{
	if (!p)
		return;
	if (p->psi_fd >= 0)
		close(p->psi_fd);
	free(p);
}

void pressure_look(struct pressure *p, struct pressure_view *ret)
{
	*ret = (struct pressure_view){ .ram = atomic_load(&p->ram),
				       .stage = atomic_load(&p->stage),
				       .shrunk = atomic_load(&p->shrunk),
				       .by = p->by };
}
