/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel counts of this process, and whose mount it is, for the metrics.
 *
 * The names are not those that client libraries use for their own process (process_cpu_seconds...):
 * in the textfile of a node exporter those would be counted to the exporter itself.
 *
 * The user is taken from the environment and not from the directory service, which may hang. Any
 * thread, also the reactor: only /proc is asked. A number that cannot be had stays as it was. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "clairfs/base/clock.h"
#include "daemon_priv.h"
#include "clairfs/base/proc_text.h"

static uint64_t timeval_ns(const struct timeval *tv)
{
	return (uint64_t)tv->tv_sec * NS_PER_S + (uint64_t)tv->tv_usec * 1000;
}

static void set_memory(struct metrics *m)
{
	AUTO_FILE FILE *f = fopen("/proc/self/statm", "re");
	char text[256] = "";
	uint64_t resident;

	if (f && fgets(text, sizeof(text), f) && proc_parse_statm(text, &resident))
		metrics_gauge_set(m, METRIC_PROCESS_RSS,
				  resident * (uint64_t)sysconf(_SC_PAGESIZE));
}

/* Since Linux 6.2 the directory's size is the number of descriptors; listing it, as before, would
 * take long with tens of thousands. */
static void set_descriptors(struct metrics *m)
{
	struct stat st;

	if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0)
		metrics_gauge_set(m, METRIC_PROCESS_FDS, (uint64_t)st.st_size);
}

void process_update_metrics(struct metrics *m)
{
	struct rusage use;

	if (getrusage(RUSAGE_SELF, &use) == 0)
		metrics_total_set(m, METRIC_PROCESS_CPU,
				  timeval_ns(&use.ru_utime) + timeval_ns(&use.ru_stime));
	set_memory(m);
	set_descriptors(m);
}

int process_describe_mount(struct wire *w, struct err *err)
{
	const char *job = getenv("SLURM_JOB_ID"), *user = getenv("SLURM_JOB_USER");
	struct timespec now;
	char uid[24];

	snprintf(uid, sizeof(uid), "%u", (unsigned)geteuid());
	if (!user)
		user = getenv("USER");
	clock_gettime(CLOCK_REALTIME, &now); /* a date to show; nothing is decided by it */
	metrics_gauge_set(w->metrics, METRIC_PROCESS_START,
			  (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec);
	if (metrics_set_mount(w->metrics, &(struct metrics_mount){ .job = job,
								   .user = user ? user : uid,
								   .source = w->source,
								   .mountpoint = w->mountpoint,
								   .version = CLAIRFS_VERSION }) <
	    0)
		return err_set(err, -ENOMEM, "out of memory");
	return 0;
}
