/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what a simulation has to be told: the sizes of a directory's samples, from the dataset
 * index, and what its filesystem gives, by reading some files for about a second: first one after
 * the other for the latency, then sixteen at once for the bandwidth. Files are drawn at random and
 * their pages dropped before, so that the page cache has little to say; what a server has in its
 * own memory counts as the source. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/compare.h"
#include "clairfs/base/thr.h"
#include "clairfs/dataset.h"
#include "clairfs/simulate.h"

#define SCAN_THREADS 8
#define PROBE_THREADS 16
#define ALONE_READS 64u
#define ALONE_NS (NS_PER_S / 2)
#define TOGETHER_NS NS_PER_S
#define CHUNK (1u << 20)

struct probe {
	const struct dataset *ds;
	const char *dir;
	uint64_t until_ns, began_ns;
	_Atomic uint64_t bytes, reads, last_ns, errors;
	_Atomic uint64_t random;
};

static uint64_t probe_random(struct probe *p)
{
	uint64_t x = atomic_fetch_add(&p->random, 0x9e3779b97f4a7c15ull);

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* Bytes of one sample, or a negative errno. Stops in the middle of a huge file when time is up. */
static int64_t probe_read(struct probe *p, uint32_t sample, char *buffer)
{
	char name[PATH_MAX * 4], path[PATH_MAX * 5];
	int64_t total = 0;
	AUTO_FD int fd = -1;
	ssize_t n;

	if (dataset_path(p->ds, (struct entry_id){ sample }, name, sizeof(name)) < 0)
		return -ENAMETOOLONG;
	snprintf(path, sizeof(path), "%s/%s", p->dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while ((n = read(fd, buffer, CHUNK)) > 0) {
		total += n;
		if (clock_now(clock_monotonic()) > p->until_ns + TOGETHER_NS)
			break;
	}
	return n < 0 ? -errno : total;
}

static void probe_forget(struct probe *p, uint32_t sample)
{
	char name[PATH_MAX * 4], path[PATH_MAX * 5];
	AUTO_FD int fd = -1;

	if (dataset_path(p->ds, (struct entry_id){ sample }, name, sizeof(name)) < 0)
		return;
	snprintf(path, sizeof(path), "%s/%s", p->dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static void *probe_thread(void *arg)
{
	struct probe *p = arg;
	AUTO_FREE char *buffer = malloc(CHUNK);
	uint32_t n = dataset_n_samples(p->ds);

	while (buffer && clock_now(clock_monotonic()) < p->until_ns) {
		uint32_t sample = (uint32_t)(probe_random(p) % n);
		int64_t got;

		probe_forget(p, sample);
		got = probe_read(p, sample, buffer);
		if (got < 0) {
			atomic_fetch_add(&p->errors, 1);
			break;
		}
		atomic_fetch_add(&p->bytes, (uint64_t)got);
		atomic_fetch_add(&p->reads, 1);
		atomic_store(&p->last_ns, clock_now(clock_monotonic()));
	}
	return NULL;
}

/* Sixteen at once: bytes per second. */
static double probe_bandwidth(struct probe *p, struct err *err)
{
	struct thr threads[PROBE_THREADS] = { { .is_started = false } };
	double seconds;

	p->began_ns = clock_now(clock_monotonic());
	p->until_ns = p->began_ns + TOGETHER_NS;
	for (int i = 0; i < PROBE_THREADS; i++)
		if (thr_start(&threads[i], "probe", probe_thread, p, err) < 0)
			break;
	for (int i = 0; i < PROBE_THREADS; i++)
		thr_join(&threads[i]);
	if (!atomic_load(&p->reads))
		return 0;
	seconds = (double)(atomic_load(&p->last_ns) - p->began_ns) / (double)NS_PER_S;
	return (double)atomic_load(&p->bytes) / MAX(seconds, 1e-6);
}

/* One after the other: seconds per read beyond the transfer, sorted. */
static uint32_t probe_latency(struct probe *p, double *seconds, double bytes_per_s)
{
	AUTO_FREE char *buffer = malloc(CHUNK);
	uint64_t until = clock_now(clock_monotonic()) + ALONE_NS;
	uint32_t n = dataset_n_samples(p->ds), count = 0;

	p->until_ns = until;
	while (buffer && count < ALONE_READS && clock_now(clock_monotonic()) < until) {
		uint32_t sample = (uint32_t)(probe_random(p) % n);
		uint64_t began;
		int64_t got;

		probe_forget(p, sample);
		began = clock_now(clock_monotonic());
		got = probe_read(p, sample, buffer);
		if (got < 0)
			break;
		seconds[count] = (double)(clock_now(clock_monotonic()) - began) / (double)NS_PER_S -
				 (double)got / bytes_per_s;
		seconds[count] = MAX(seconds[count], 1e-6);
		count++;
	}
	qsort(seconds, count, sizeof(*seconds), compare_double);
	return count;
}

static int probe_source(const struct dataset *ds, struct simulate_args *args, struct err *err)
{
	struct probe p = { .ds = ds, .dir = args->dataset, .random = args->params.seed };
	double seconds[ALONE_READS], bytes_per_s, sum = 0;
	uint32_t n;

	if (args->has_latency && args->has_mbps)
		return 0;
	bytes_per_s = probe_bandwidth(&p, err);
	if (bytes_per_s <= 0)
		return err_set(err, -EIO, "%s: cannot read its files to measure the source",
			       args->dataset);
	n = probe_latency(&p, seconds, bytes_per_s);
	if (!args->has_mbps)
		args->params.source_mbps = bytes_per_s / 1e6;
	if (!args->has_latency && n) {
		for (uint32_t i = 0; i < n; i++)
			sum += seconds[i];
		args->params.source_latency_ms = 1e3 * sum / n;
		/* Of a lognormal distribution the 84th percentile is e^sigma times the median. */
		args->params.source_latency_sigma =
			MIN(log(seconds[n * 84 / 100] / seconds[n / 2]), 2);
	}
	fprintf(args->is_json ? stderr : stdout,
		"source    measured: %.0f MB/s, latency %.2f ms (sigma %.2f)\n",
		args->params.source_mbps, args->params.source_latency_ms,
		args->params.source_latency_sigma);
	return 0;
}

int simulate_measure(struct simulate_args *args, struct err *err)
{
	struct dataset_params params = { .source = args->dataset, .scan_threads = SCAN_THREADS };
	struct dataset *ds;
	uint32_t n;
	int rc = dataset_open(&params, &args->ds, err);

	if (rc < 0)
		return rc;
	ds = args->ds;
	n = dataset_n_samples(ds);
	if (!n)
		rc = err_set(err, -EINVAL, "--dataset: %s has no samples", args->dataset);
	args->size = n ? malloc(n * sizeof(*args->size)) : NULL;
	if (rc == 0 && !args->size)
		rc = err_set_errno(err, -ENOMEM, "sizes of %u samples", n);
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		args->size[i] = dataset_size(ds, (struct entry_id){ i });
	args->params.samples = n;
	if (rc == 0)
		rc = probe_source(ds, args, err);
	return rc;
}
