/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A memory cgroup of the daemon's own. Started by the prolog it would be charged to slurmd (or,
 * with PrologFlags=RunInJob, to the job, and killed with it). So it is moved to clairfs/job_ID_PID
 * at the top of the hierarchy, of the first version if that has the memory controller, else of the
 * second. There the site may limit it; the mount's budgets follow the limit, as they do anywhere
 * (daemon/memlimit.c). Else the limit follows the budgets, as soon as these are known: it is there
 * for what nobody foresaw, so it is twice what the mount is meant to need. Half of that is for page
 * cache of its source. Where no cgroup can be made it stays where it is: that is no error.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "clairfs/base/span.h"
#include "slurm_priv.h"

#define OURS "clairfs"
#define REMOVE_TRIES 100 /* 10 ms each */
#define MAKE_TRIES 10
#define NEED_LEAST (64ull << 20)

/* "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory". Only whole hierarchies: in a
 * container nothing is ours to make. */
static bool take_hierarchy(struct span line, bool *ret_is_v2, char out[PATH_MAX])
{
	struct mountinfo m;

	if (!mountinfo_parse(line, &m) || !span_is(m.root, "/") || !m.at.len || *m.at.at != '/' ||
	    memchr(m.at.at, '\\', m.at.len) || m.at.len >= PATH_MAX - 64)
		return false;
	*ret_is_v2 = span_is(m.type, "cgroup2");
	if (!*ret_is_v2 && !(span_is(m.type, "cgroup") && span_has(m.options, "memory")))
		return false;
	return span_path(m.at, out);
}

bool slurm_cgroup_hierarchy(const char *mountinfo, size_t len, bool *ret_is_v2, char out[PATH_MAX])
{
	struct span rest = { mountinfo, len }, line;
	char found[PATH_MAX];
	bool is_v2, has_one = false;

	while (span_take(&rest, '\n', &line)) {
		if (!take_hierarchy(line, &is_v2, found) || (has_one && is_v2))
			continue;
		strcpy(out, found);
		*ret_is_v2 = is_v2;
		has_one = true;
		if (!is_v2)
			break;
	}
	return has_one;
}

static int cgroup_put(const char *dir, const char *name, const char *text)
{
	char path[PATH_MAX + 64];
	AUTO_FD int fd = -1;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -errno;
}

static bool find_hierarchy(bool *ret_is_v2, char out[PATH_MAX])
{
	AUTO_FILE FILE *f = fopen("/proc/self/mountinfo", "re");
	AUTO_FREE char *text = NULL;
	size_t size = 0;
	ssize_t len = f ? getdelim(&text, &size, 0, f) : -1;

	return len > 0 && slurm_cgroup_hierarchy(text, (size_t)len, ret_is_v2, out);
}

static int make_once(const char *top, bool is_v2, uint32_t job, uint64_t all, char out[PATH_MAX])
{
	char dir[PATH_MAX], text[32];
	int rc = 0;

	snprintf(dir, sizeof(dir), "%.*s/" OURS, PATH_MAX - 64, top);
	if (is_v2 && cgroup_put(top, "cgroup.subtree_control", "+memory") < 0)
		return -ENOENT;
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return -errno;
	if (is_v2 && cgroup_put(dir, "cgroup.subtree_control", "+memory") < 0)
		return -ENOENT;
	snprintf(text, sizeof(text), "%" PRIu64, all);
	if (all)
		rc = cgroup_put(dir, is_v2 ? "memory.max" : "memory.limit_in_bytes", text);
	if (rc < 0)
		log_warn("memory_all: the limit of %s is not set: %s", dir, strerror(-rc));
	if (snprintf(out, PATH_MAX, "%s/job_%u_%d", dir, job, (int)getpid()) >= PATH_MAX)
		return -ENAMETOOLONG;
	return mkdir(out, 0755) < 0 ? -errno : 0;
}

/* Who ends in this moment takes the one above away when it is empty. */
static int cgroup_make(const char *top, bool is_v2, uint32_t job, uint64_t all, char out[PATH_MAX])
{
	int rc = -ENOENT;

	for (int i = 0; i < MAKE_TRIES && rc == -ENOENT; i++)
		rc = make_once(top, is_v2, job, all, out);
	return rc;
}

/* The second version throttles before it kills. */
static int limit_to(const char *dir, bool is_v2, uint64_t high, uint64_t limit)
{
	char text[32];
	int rc;

	snprintf(text, sizeof(text), "%" PRIu64, limit);
	if (!is_v2)
		return cgroup_put(dir, "memory.limit_in_bytes", text);
	rc = cgroup_put(dir, "memory.max", text);
	snprintf(text, sizeof(text), "%" PRIu64, high);
	return rc < 0 ? rc : cgroup_put(dir, "memory.high", text);
}

void slurm_cgroup_limits(uint64_t need, uint64_t *ret_high, uint64_t *ret_max)
{
	need = MIN(MAX(need, NEED_LEAST), (uint64_t)INT64_MAX / 2);
	*ret_high = need + need / 2;
	*ret_max = need * 2;
}

void slurm_cgroup_fit(uint32_t job, const char *dir, uint64_t need)
{
	char probe[PATH_MAX + 32];
	uint64_t high, limit;
	int rc;

	if (!*dir)
		return;
	slurm_cgroup_limits(need, &high, &limit);
	snprintf(probe, sizeof(probe), "%s/memory.max", dir);
	rc = limit_to(dir, access(probe, F_OK) == 0, high, limit);
	if (rc < 0)
		log_warn("job %u: the limit of %s is not set: %s", job, dir, strerror(-rc));
}

void slurm_cgroup_enter(uint32_t job, uint64_t limit, uint64_t all, char out[PATH_MAX])
{
	char top[PATH_MAX];
	bool is_v2 = false;
	int rc = find_hierarchy(&is_v2, top) ? cgroup_make(top, is_v2, job, all, out) : -ENOENT;

	if (rc < 0) {
		*out = 0;
		if (limit)
			log_warn("job %u: memory_max is not applied: no cgroup of its own (%s)",
				 job, strerror(-rc));
		else
			log_info("job %u: no cgroup of its own (%s)", job, strerror(-rc));
		return;
	}
	if (limit)
		rc = limit_to(out, is_v2, limit - limit / 16, limit);
	if (rc == 0)
		rc = cgroup_put(out, "cgroup.procs", "0");
	if (rc < 0) {
		log_warn("job %u: cgroup %s: %s", job, out, strerror(-rc));
		slurm_cgroup_remove(out);
		*out = 0;
	}
}

void slurm_cgroup_remove(const char *dir)
{
	struct timespec pause = { .tv_nsec = 10 * NS_PER_MS };
	char parent[PATH_MAX];
	const char *name = strrchr(dir, '/');

	if (!name || strncmp(name, "/job_", 5) != 0 || (size_t)(name - dir) >= sizeof(parent))
		return;
	memcpy(parent, dir, (size_t)(name - dir));
	parent[name - dir] = 0;
	/* The last process may still be on its way out. */
	for (int i = 0; i < REMOVE_TRIES && rmdir(dir) < 0 && errno == EBUSY; i++)
		nanosleep(&pause, NULL);
	rmdir(parent); /* fails while another job has one in it */
}
