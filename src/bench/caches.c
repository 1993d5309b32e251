/* SPDX-License-Identifier: Apache-2.0 */
/* Cold caches, and whether they are. Small datasets are dropped file by file (posix_fadvise), which
 * leaves other people's pages alone, and those that a mount of clairfs has pushed; large ones,
 * where an open of each file would take longer than the epoch, by drop_caches, which only root may.
 * What is really gone is looked at with mincore, on some of the files: it says so for files that
 * one owns or may write; for others nobody tells, and then we say that.
 *
 * Dirty pages are written first, they could not be dropped. Main process, between two blocks. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "bench_priv.h"

#define FEW_SAMPLES 20000
#define LOOKED_AT 256
#define WARM_SHARE 0.05

static int open_sample(const struct bench_setup *s, uint32_t sample)
{
	char path[PATH_MAX];

	if (dataset_path(s->ds, (struct entry_id){ sample }, path, sizeof(path)) < 0)
		return -1;
	return openat(dataset_source_fd(s->ds), path, O_RDONLY | O_CLOEXEC);
}

static bool drop_all(void)
{
	AUTO_FD int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, "1", 1) == 1;
}

static int advise(const struct bench_setup *s, struct err *err)
{
	for (uint32_t i = 0; i < dataset_n_samples(s->ds); i++) {
		AUTO_FD int fd = open_sample(s, i);

		if (fd >= 0)
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		if (i % 256 == 0 && bench_wait(0) < 0)
			return err_set(err, -EINTR, "interrupted");
	}
	return 0;
}

/* Pages of a file in memory, and all of them; false when the kernel would not say. */
static bool count_pages(int fd, size_t *resident, size_t *pages)
{
	unsigned char state[256];
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n;
	struct stat st;
	void *at;
	bool is_known;

	if (fstat(fd, &st) < 0 || (geteuid() != 0 && st.st_uid != geteuid()) || st.st_size == 0)
		return false;
	n = MIN(DIV_ROUND_UP((size_t)st.st_size, page), sizeof(state));
	at = mmap(NULL, n * page, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return false;
	is_known = mincore(at, n * page, state) == 0;
	munmap(at, n * page);
	for (size_t i = 0; i < n && is_known; i++)
		*resident += state[i] & 1;
	*pages += is_known ? n : 0;
	return is_known;
}

/* Share of the pages still in memory; below 0: nobody knows. */
static double resident_share(const struct bench_setup *s)
{
	uint32_t n = dataset_n_samples(s->ds), step = MAX(n / LOOKED_AT, 1);
	size_t resident = 0, pages = 0;

	for (uint32_t i = 0; i < n; i += step) {
		AUTO_FD int fd = open_sample(s, i);

		if (fd >= 0)
			count_pages(fd, &resident, &pages);
	}
	return pages ? (double)resident / (double)pages : -1;
}

int bench_caches_drop(const struct bench_setup *s, bool *ret_is_warm, char *note, size_t size,
		      struct err *err)
{
	bool is_few = dataset_n_samples(s->ds) <= FEW_SAMPLES, is_dropped = false;
	AUTO_FD int dir = openat(dataset_source_fd(s->ds), ".", O_RDONLY | O_CLOEXEC);
	double left;
	int rc = 0;

	if (dir >= 0)
		syncfs(dir);
	if (!is_few)
		is_dropped = drop_all();
	if (!is_dropped)
		rc = advise(s, err);
	if (rc < 0)
		return rc;
	left = resident_share(s);
	if (left > WARM_SHARE && !is_dropped) {
		is_dropped = drop_all();
		left = resident_share(s);
	}
	*ret_is_warm = left > WARM_SHARE;
	if (*ret_is_warm)
		snprintf(note, size, "NOT cold: %.0f %% of it is still in this machine's memory%s",
			 100 * left, is_dropped ? "" : " (only root may drop it)");
	else
		snprintf(note, size, "page cache dropped before (%s)%s",
			 is_dropped ? "drop_caches" : "posix_fadvise",
			 left < 0 ? "; whether it was, this filesystem does not tell" : "");
	return 0;
}
