/* SPDX-License-Identifier: Apache-2.0 */
/* The mount of side clairfs: this same program, in the foreground, as a child in a process group of
 * its own, on a mountpoint in a private directory. So Ctrl-C reaches the bench only, which then
 * takes it down in order; when the bench is killed outright, its guard does (guard.c).
 *
 * While other sides run the daemon is stopped (SIGSTOP): it would read the source ahead, which
 * would slow them down and give clairfs time that a job would not give it.
 *
 * It leaves a report behind in the same directory, for what is judged at the end only.
 *
 * Runs in the main process. Must never leave a mount or a directory behind. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "bench_priv.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/text.h"
#include "clairfs/client.h"

#define POLL_NS (10 * NS_PER_MS)
#define END_NS (60 * NS_PER_S)
#define VERDICT_NS (NS_PER_S + NS_PER_S / 2) /* for a pass to be judged once it is over */

static int make_directory(struct bench_mount *m, struct err *err)
{
	const char *tmp = getenv("TMPDIR");

	if (asprintf(&m->dir, "%s/clairfs-bench-XXXXXX", tmp && *tmp ? tmp : "/tmp") < 0)
		return err_set_errno(err, -ENOMEM, "bench");
	if (!mkdtemp(m->dir)) {
		int rc = err_set_errno(err, -errno, "%.512s", m->dir);

		free(TAKE(m->dir));
		return rc;
	}
	if (asprintf(&m->mountpoint, "%s/mnt", m->dir) < 0 ||
	    asprintf(&m->log, "%s/log", m->dir) < 0 ||
	    asprintf(&m->report, "%s/report.json", m->dir) < 0)
		return err_set_errno(err, -ENOMEM, "bench");
	return mkdir(m->mountpoint, 0700) == 0
		       ? 0
		       : err_set_errno(err, -errno, "%.512s", m->mountpoint);
}

static char *put_value(char *out, const char *value)
{
	for (; *value; value++) {
		if (*value == ',')
			*out++ = '\\';
		*out++ = *value;
	}
	*out = 0;
	return out;
}

/* What the mount is told, as -o takes it: commas escaped. Against the source alone the mount's own
 * account of stall removed must not subtract a page cache, which that side never has. Heap. */
static char *order_option(const struct bench_setup *s, const char *report)
{
	const char *spec = s->mount_spec ? s->mount_spec : "";
	char *text = malloc((strlen(spec) + strlen(report)) * 2 + 256), *out = text;
	uint64_t one_of = bench_control_reads(dataset_n_samples(s->ds), s->epochs);
	bool has_pagecache = false;

	if (!text)
		return NULL;
	for (uint32_t i = 0; i < s->args->n_sides; i++)
		has_pagecache = has_pagecache || s->args->side[i] == SIDE_PAGECACHE;
	out += sprintf(out, "snapshot_dir=none,log_level=warn,%s",
		       has_pagecache ? "" : "debug=ghost_bytes:0,");
	if (one_of)
		out += sprintf(out, "control_reads=1/%llu,", (unsigned long long)one_of);
	if (s->args->switchback)
		out += sprintf(out, "switchback=%.32s,", s->args->switchback);
	if (*spec) {
		out += sprintf(out, "order=");
		out = put_value(out, spec);
		*out++ = ',';
	}
	out += sprintf(out, "report=");
	put_value(out, report);
	return text;
}

static void run_daemon(const struct bench_setup *s, const struct bench_mount *m, const char *option,
		       pid_t parent) __attribute__((noreturn));
static void run_daemon(const struct bench_setup *s, const struct bench_mount *m, const char *option,
		       pid_t parent)
{
	int log = open(m->log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	const char *more = s->args->mount_options ? s->args->mount_options : "ro";

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (log < 0 || getppid() != parent || dup2(log, 1) < 0 || dup2(log, 2) < 0)
		_exit(1);
	sigprocmask(SIG_SETMASK, &s->signals, NULL);
	execl("/proc/self/exe", "clairfs", "mount", "-f", "-o", option, "-o", more, "--", s->path,
	      m->mountpoint, (char *)NULL);
	_exit(127);
}

/* The last line that the daemon has written, for the error that it is. */
static void last_line(const struct bench_mount *m, char *out, size_t size)
{
	AUTO_FILE FILE *f = fopen(m->log, "re");
	char line[BENCH_ERROR];

	snprintf(out, size, "its daemon ended");
	while (f && fgets(line, sizeof(line), f)) {
		const char *text = strncmp(line, "clairfs: ", 9) == 0 ? line + 9 : line;

		line[strcspn(line, "\n")] = 0;
		if (*text)
			text_escape(text, strlen(text), out, size);
	}
}

/* True once it serves, false while it does not; errors when it has ended. */
static int is_ready(struct bench_mount *m, bool *ret, struct err *err)
{
	struct mount_info info;
	struct bench_counts counts;
	char line[BENCH_ERROR];
	int status, rc;

	if (waitpid(m->pid, &status, WNOHANG) == m->pid) {
		m->pid = 0;
		last_line(m, line, sizeof(line));
		return err_set(err, -EIO, "mounting %.256s: %s", m->mountpoint, line);
	}
	rc = mounts_find(m->mountpoint, &info, err);
	if (rc < 0 || !info.is_ours)
		return rc;
	rc = bench_mount_counts(m, &counts, err);
	*ret = rc == 0;
	return rc;
}

int bench_mount_start(const struct bench_setup *s, struct bench_mount *m, struct err *err)
{
	AUTO_FREE char *option = NULL;
	pid_t me = getpid();
	bool ready = false;
	int rc = make_directory(m, err);

	if (rc < 0)
		return rc;
	option = order_option(s, m->report);
	if (!option)
		return err_set_errno(err, -ENOMEM, "bench");
	fflush(NULL);
	m->pid = fork();
	if (m->pid == 0)
		run_daemon(s, m, option, me);
	if (m->pid < 0) {
		m->pid = 0;
		return err_set_errno(err, -errno, "fork");
	}
	rc = bench_guard_start(m, err);
	while (rc == 0 && !ready) {
		rc = is_ready(m, &ready, err);
		if (rc == 0 && !ready && bench_wait(POLL_NS) < 0)
			rc = err_set(err, -EINTR, "interrupted");
	}
	return rc;
}

void bench_mount_pause(struct bench_mount *m)
{
	if (!m->pid || m->t_paused)
		return;
	m->t_paused = clock_now(clock_monotonic());
	kill(m->pid, SIGSTOP);
}

void bench_mount_resume(struct bench_mount *m)
{
	if (!m->pid || !m->t_paused)
		return;
	kill(m->pid, SIGCONT);
	m->t_paused = 0;
}

/* --- counters --- */

static double group_number(const json_t *root, const char *group, const char *key)
{
	return bench_number(json_object_get(root, group), key);
}

static void take_reads(const json_t *root, struct bench_counts *ret)
{
	for (int c = 0; c < READ_CLASSES; c++) {
		const json_t *one =
			json_object_get(json_object_get(root, "reads"), read_class_names[c]);

		ret->reads[c] = json_number_value(json_object_get(one, "reads"));
		ret->read_bytes[c] = json_number_value(json_object_get(one, "bytes"));
	}
}

static void keep_gpu_wait(struct bench_mount *m, const json_t *stats)
{
	json_t *gpu_wait = json_object_get(stats, "gpu_wait");

	if (!json_is_object(gpu_wait))
		return;
	json_decref(m->gpu_wait);
	m->gpu_wait = json_incref(gpu_wait);
}

/* CPU time of a process, to the nanosecond; NAN when it is not ours to know. */
static double cpu_of(pid_t pid)
{
	struct timespec t;
	clockid_t id;

	if (pid <= 0 || clock_getcpuclockid(pid, &id) != 0 || clock_gettime(id, &t) < 0)
		return NAN;
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int bench_mount_counts(struct bench_mount *m, struct bench_counts *ret, struct err *err)
{
	AUTO_FREE char *text = NULL;
	json_t *root;
	int rc;

	*ret = (struct bench_counts){ .is_known = false };
	if (!m->mountpoint)
		return 0;
	rc = mounts_read_vfile(m->mountpoint, "stats.json", &text, err);
	if (rc < 0)
		return rc;
	root = json_loads(text, 0, NULL);
	if (!root)
		return err_set(err, -EIO, "stats.json of %.256s is damaged", m->mountpoint);
	ret->is_known = true;
	take_reads(root, ret);
	ret->opens = group_number(root, "counters", "sample_opens");
	ret->source_reads = group_number(root, "counters", "source_reads");
	ret->source_bytes = group_number(root, "counters", "source_bytes");
	ret->cache_bytes = group_number(root, "gauges", "arena_limit_bytes") +
			   group_number(root, "gauges", "store_limit_bytes");
	ret->lead = group_number(root, "gauges", "lead");
	ret->passes = group_number(root, "gpu_wait", "passes_judged") +
		      group_number(root, "gpu_wait", "passes_unjudged");
	keep_gpu_wait(m, root);
	ret->cpu_seconds = cpu_of((pid_t)json_integer_value(json_object_get(root, "pid")));
	json_decref(root);
	return 0;
}

static double all_reads(const struct bench_counts *c)
{
	double sum = 0;

	for (int i = 0; i < READ_CLASSES; i++)
		sum += c->reads[i];
	return sum;
}

int bench_mount_settle(struct bench_mount *m, double passes, uint64_t most_ns,
		       struct bench_counts *ret, struct err *err)
{
	uint64_t end = clock_now(clock_monotonic()) + most_ns, verdict_end = 0;
	int rc;

	for (;;) {
		uint64_t now = clock_now(clock_monotonic());

		rc = bench_mount_counts(m, ret, err);
		if (rc < 0 || !ret->is_known || now >= end)
			return rc;
		if (all_reads(ret) >= ret->opens) {
			/* A mount that does not tell (NAN) has nothing to wait for, and one that
			 * has missed a read waits for what never comes. */
			verdict_end = verdict_end ? verdict_end : now + VERDICT_NS;
			if (!(ret->passes < passes) || now >= verdict_end)
				return rc;
		}
		if (bench_wait(POLL_NS) < 0)
			return err_set(err, -EINTR, "interrupted");
	}
}

/* --- the end --- */

/* Waits for the daemon, which has been unmounted; in the end it is killed. */
static int reap(struct bench_mount *m, struct err *err)
{
	uint64_t end = clock_now(clock_monotonic()) + END_NS;
	struct timespec pause = { .tv_nsec = (long)POLL_NS };
	bool is_late = false;
	int status = 0;

	while (waitpid(m->pid, &status, WNOHANG) == 0) {
		if (!is_late && clock_now(clock_monotonic()) > end) {
			is_late = true;
			kill(m->pid, SIGKILL);
		}
		nanosleep(&pause, NULL);
	}
	m->pid = 0;
	if (is_late)
		return err_set(err, -ETIMEDOUT, "the daemon did not end and was killed");
	if (status != 0)
		return err_set(err, -EIO, "the daemon ended with %s %d",
			       WIFSIGNALED(status) ? "signal" : "exit code",
			       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return 0;
}

static int unmount(struct bench_mount *m, struct err *err)
{
	struct mount_info info;
	int rc = mounts_find(m->mountpoint, &info, err);

	if (rc < 0 || !info.is_mounted)
		return rc;
	rc = mounts_umount(&(struct umount_params){ .mountpoint = m->mountpoint }, err);
	if (rc < 0) {
		struct umount_params detach = { .mountpoint = m->mountpoint, .is_lazy = true };
		struct err ignored = { 0 };
		int lazy = mounts_umount(&detach, &ignored);

		return lazy < 0 ? rc : 0;
	}
	return 0;
}

int bench_mount_remove(const struct bench_mount *m)
{
	DIR *dir = opendir(m->dir);
	struct dirent *entry;

	if (m->mountpoint)
		rmdir(m->mountpoint);
	while (dir && (entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.' || strstr(entry->d_name, "report.json"))
			unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir)
		closedir(dir);
	return rmdir(m->dir) < 0 ? -errno : 0;
}

/* What the last passes came to is known only now. Without a report, what was told before. */
static void take_report(struct bench_mount *m)
{
	json_t *root = m->report ? json_load_file(m->report, 0, NULL) : NULL;

	keep_gpu_wait(m, json_object_get(root, "stats"));
	json_decref(root);
}

void bench_mount_fini(struct bench_mount *m)
{
	json_decref(m->gpu_wait);
	m->gpu_wait = NULL;
}

int bench_mount_end(struct bench_mount *m, struct err *err)
{
	int rc = 0, rc2;

	bench_mount_resume(m);
	if (m->pid) {
		rc = unmount(m, err);
		if (rc < 0)
			kill(m->pid, SIGKILL);
		else
			kill(m->pid, SIGTERM); /* it may not have mounted yet */
		rc2 = reap(m, rc < 0 ? NULL : err);
		rc = rc < 0 ? rc : rc2;
	} else if (m->dir && m->mountpoint) {
		rc = unmount(m, err); /* it died and left a dead mount */
	}
	bench_guard_end(m);
	take_report(m);
	rc2 = m->dir ? bench_mount_remove(m) : 0;
	if (rc2 < 0 && rc == 0)
		rc = err_set_errno(err, rc2, "%.512s is left", m->dir);
	free(TAKE(m->log));
	free(TAKE(m->report));
	free(TAKE(m->dir));
	free(TAKE(m->mountpoint));
	return rc;
}
