/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report that a mount leaves behind (option report): what the job read and how, what that cost,
 * how long its ranks waited. One JSON file for each node; `clairfs report` puts a job's together.
 * src/report/FORMAT.md says what is in it.
 *
 * It is written when everything has stopped but before anything is freed, under another name first,
 * so that whoever sees the file sees all of it. A report that cannot be written is a warning: the
 * mount did its work. It may be on a filesystem that hangs; by then the mount is gone already.
 *
 * Main thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "daemon_priv.h"

#define REPORT_VERSION 1

static bool is_below(const char *dir, const char *top)
{
	size_t len = strlen(top);

	return strncmp(dir, top, len) == 0 && (dir[len] == '\0' || dir[len] == '/');
}

int wire_report_check(struct wire *w, struct err *err)
{
	AUTO_FREE char *dir = NULL, *name = NULL;
	const char *path = w->opts->report;
	struct stat st;

	if (!path || !*path || w->report_fd)
		return 0;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		w->report_dir = realpath(path, NULL);
	} else {
		dir = strdup(path);
		name = strdup(path);
		if (!dir || !name)
			return err_set(err, -ENOMEM, "out of memory");
		w->report_dir = realpath(dirname(dir), NULL);
		w->report_name = strdup(basename(name));
	}
	if (!w->report_dir || (name && !w->report_name))
		return err_set_errno(err, -errno, "option report: %s", path);
	if (access(w->report_dir, W_OK) < 0)
		return err_set_errno(err, -errno, "option report: %s", w->report_dir);
	if (is_below(w->report_dir, w->mountpoint))
		return err_set(err, -EPERM, "option report: %s is within the mount", path);
	return 0;
}

void wire_report_fini(struct wire *w)
{
	free(w->report_dir);
	free(w->report_name);
	if (w->report_fd)
		close(w->report_fd);
}

/* The hook's word for the job, else its batch system's. */
static void job_name(struct wire *w, char out[64])
{
	static const char *const names[] = { "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID" };

	mutex_lock(&w->hook.mu);
	snprintf(out, 64, "%s", w->hook.job);
	mutex_unlock(&w->hook.mu);
	for (size_t i = 0; !out[0] && i < ARRAY_LEN(names); i++) {
		const char *value = getenv(names[i]);

		if (value)
			job_name_clean(value, strlen(value), out, 64);
	}
}

static void host_name(char out[256])
{
	char name[256] = "";

	gethostname(name, sizeof(name) - 1);
	job_name_clean(name, sizeof(name), out, 256);
}

/* The least bytes that any cache of this size had to read from the source, where that can be said:
 * the node reads whole passes over the dataset. The first one reads what was not in the store, each
 * later one what had no room. */
static json_t *least_json(struct wire *w, uint64_t read_bytes)
{
	uint64_t all = dataset_sample_bytes(w->dataset);
	struct cache_status st;
	double room, first;

	cache_get_status(w->cache, &st);
	if (all == 0 || st.plan.length < dataset_n_samples(w->dataset))
		return json_null();
	room = (double)metrics_get(w->metrics, METRIC_ARENA_LIMIT_BYTES) +
	       (double)metrics_get(w->metrics, METRIC_STAGE_LIMIT_BYTES) + (double)w->store_bytes;
	first = (double)MIN(all, read_bytes) - (double)w->store_held_bytes;
	first = MAX(first, 0);
	if (read_bytes > all)
		first += (double)(read_bytes - all) * MAX(0, 1 - room / (double)all);
	return json_integer((json_int_t)first);
}

static json_t *data_json(struct wire *w)
{
	uint64_t reads = 0, bytes = 0;

	for (int c = 0; c < READ_CLASSES; c++) {
		reads += metrics_get(w->metrics, METRIC_READS_STAGED + c);
		bytes += metrics_get(w->metrics, METRIC_READ_BYTES_STAGED + c);
	}
	return json_pack("{s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:o}", "control_reads",
			 (json_int_t)metrics_get(w->metrics, METRIC_CONTROL_READS),
			 "control_seconds",
			 (double)metrics_get(w->metrics, METRIC_CONTROL_WAIT) / 1e9, "reads",
			 (json_int_t)reads, "read_bytes", (json_int_t)bytes, "missed_reads",
			 (json_int_t)metrics_get(w->metrics, METRIC_READS_MISS), "source_reads",
			 (json_int_t)metrics_get(w->metrics, METRIC_SOURCE_READS), "source_bytes",
			 (json_int_t)metrics_get(w->metrics, METRIC_SOURCE_BYTES),
			 "least_source_bytes", least_json(w, bytes));
}

/* --- GPU wait removed, as the accounting judged it --- */

/* An estimate of some of the passes is none of all. */
static json_t *estimate_json(const struct stall_numbers *n, uint64_t passes, uint64_t ns)
{
	return n->judged && passes == n->judged ? json_real((double)ns / 1e9) : json_null();
}

static json_t *removed_json(const struct stall_numbers *n)
{
	return json_pack("{s:f, s:f, s:f, s:f, s:o, s:o, s:I, s:I}", "judged_seconds",
			 (double)n->judged_ns / 1e9, "at_least_seconds", (double)n->lower_ns / 1e9,
			 "at_most_seconds", (double)n->upper_ns / 1e9, "page_cache_seconds",
			 (double)n->page_cache_ns / 1e9, "replay_seconds",
			 estimate_json(n, n->judged_replay, n->estimate_ns), "hook_seconds",
			 estimate_json(n, n->judged_hook, n->estimate_hook_ns), "passes_judged",
			 (json_int_t)n->judged, "passes_unjudged", (json_int_t)n->unjudged);
}

/* World of the order in force, 0 when it has none. */
static uint32_t order_world(struct wire *w)
{
	AUTO_FREE char *text = orders_text(w->orders);
	const char *at = text ? strstr(text, ":world=") : NULL;

	return at ? (uint32_t)strtoul(at + strlen(":world="), NULL, 10) : 0;
}

/* The rank that the numbers are of: by its number if the order has a world; the only rank of the
 * node if the order knows no ranks; else NULL, they are the node's. */
static json_t *rank_of(json_t *ranks, uint32_t rank, uint32_t world)
{
	json_t *one;
	size_t i;

	if (!world)
		return json_array_size(ranks) == 1 ? json_array_get(ranks, 0) : NULL;
	json_array_foreach(ranks, i, one)
	{
		if (json_integer_value(json_object_get(one, "rank")) == (json_int_t)rank)
			return one;
	}
	one = json_pack("{s:I, s:I}", "rank", (json_int_t)rank, "world", (json_int_t)world);
	return json_array_append_new(ranks, one) < 0 ? NULL : one;
}

static void add_removed(struct wire *w, json_t *root)
{
	json_t *ranks = json_object_get(root, "ranks"), *data = json_object_get(root, "data");
	uint32_t world = order_world(w);
	struct wait_view v;

	wait_look(w->wait, &v);
	for (uint32_t i = 0; i < v.n_ranks; i++) {
		json_t *place = rank_of(ranks, v.rank[i].rank, world);

		json_t *replay = wait_replay_json(w->wait, v.rank[i].rank);

		if (v.rank[i].judged)
			json_object_set_new(place ? place : root, "removed",
					    removed_json(&v.rank[i]));
		if (replay)
			json_object_set_new(place ? place : root, "replay", replay);
	}
	free(v.rank);
	json_object_set_new(data, "control_reads", json_integer((json_int_t)v.node.control_reads));
	json_object_set_new(data, "control_seconds",
			    json_real((double)v.node.control_cost_ns / 1e9));
}

static double seconds(struct timeval tv)
{
	return (double)tv.tv_sec + (double)tv.tv_usec / 1e6;
}

static json_t *daemon_json(void)
{
	struct rusage use = { 0 };

	getrusage(RUSAGE_SELF, &use);
	return json_pack("{s:f, s:f, s:f, s:I}", "cpu_seconds",
			 seconds(use.ru_utime) + seconds(use.ru_stime), "cpu_user_seconds",
			 seconds(use.ru_utime), "cpu_system_seconds", seconds(use.ru_stime),
			 "max_memory_bytes", (json_int_t)use.ru_maxrss * 1024);
}

static json_t *report_json(struct wire *w)
{
	double mounted = (double)(clock_now(clock_monotonic()) - w->start_ns) / 1e9;
	char job[64], host[256], source[PATH_MAX * 4];
	json_t *ranks = hook_report_json(&w->hook);
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now); /* dates to show; nothing is decided by them */
	job_name(w, job);
	host_name(host);
	text_escape(w->source, strlen(w->source), source, sizeof(source));
	return json_pack("{s:s, s:i, s:s, s:s, s:i, s:I, s:I, s:f, s:s, s:o, s:o, s:o, s:o}",
			 "format", "clairfs-report", "version", REPORT_VERSION, "job", job, "host",
			 host, "pid", (int)getpid(), "begun",
			 (json_int_t)(now.tv_sec - (time_t)mounted), "ended",
			 (json_int_t)now.tv_sec, "mounted_seconds", mounted, "source", source,
			 "data", data_json(w), "daemon", daemon_json(), "ranks", ranks, "stats",
			 stats_json(w));
}

static int write_all(int fd, const char *text, size_t size)
{
	while (size > 0) {
		ssize_t put = write(fd, text, size);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put < 0 ? -errno : -EIO;
		text += put;
		size -= (size_t)put;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

/* Under another name first. */
static int put_file(int dir, const char *name, const char *text)
{
	AUTO_FREE char *temp = NULL;
	AUTO_FD int fd = -1;
	int rc;

	if (asprintf(&temp, ".%s.%d", name, (int)getpid()) < 0)
		return -ENOMEM;
	fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	rc = write_all(fd, text, strlen(text));
	if (rc == 0 && renameat(dir, temp, dir, name) < 0)
		rc = -errno;
	if (rc < 0)
		unlinkat(dir, temp, 0);
	return rc;
}

static char *made_up_name(struct wire *w)
{
	char job[64], host[256], *name;

	job_name(w, job);
	host_name(host);
	if (asprintf(&name, "clairfs-%s-%s-%d.json", job[0] ? job : "nojob", host, (int)getpid()) <
	    0)
		return NULL;
	return name;
}

void wire_report_write(struct wire *w)
{
	AUTO_FREE char *name = NULL, *text = NULL;
	AUTO_FD int dir = -1;
	json_t *root;
	int rc = -ENOMEM;

	if (!w->report_dir && !w->report_fd)
		return;
	name = w->report_name ? strdup(w->report_name) : made_up_name(w);
	root = report_json(w);
	add_removed(w, root);
	text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	if (text && w->report_fd) {
		rc = write_all(w->report_fd, text, strlen(text));
		if (rc < 0)
			log_warn("no report: %s", strerror(-rc));
		return;
	}
	if (name && text) {
		dir = open(w->report_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = dir < 0 ? -errno : put_file(dir, name, text);
	}
	if (rc < 0)
		log_warn("no report in %s: %s", w->report_dir, strerror(-rc));
	else
		log_info("report: %s/%s", w->report_dir, name);
}
