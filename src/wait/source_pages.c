/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the source's client keeps pages: what a job read once, would it have had it in memory the
 * next time? A FUSE filesystem drops them at every open unless it says otherwise, direct I/O has
 * none, NFS keeps them while the file is the same. That is not to be known by name, so a file is
 * opened, a byte of it read, and opened again, as a second reader would: are the pages there? That
 * they are not counts only if they were seen by the descriptor that has just read them: overlayfs
 * and ZFS keep them where nobody sees them by the file, so there, as of direct I/O, it is not known.
 * Asked of three files; and of some more, without reading them, whether they are there already, as
 * after a job that has just ended.
 *
 * cachestat(2) says so without side effects (Linux 6.5; since 6.13 or so of one's own files only),
 * else a read that must not wait (RWF_NOWAIT), which not all filesystems have. mincore(2) says that
 * all is there of files that it must not speak of, so it is not asked. Where neither answers it is
 * not known.
 *
 * On a thread of its own, once, when the mount begins and nobody reads; the source may hang, then
 * the thread is left behind. It is detached and owns a reference to what is here. */
#include "source_pages.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clairfs/base/beneath.h"
#include "clairfs/base/thr.h"
#include "clairfs/dataset.h"

#define PAGE 4096u
enum { READ_FILES = 3, LOOK_FILES = 32, LOOK_LEAST = 8 };
enum { SYS_CACHESTAT = 451 }; /* of all machines that count their calls alike */

struct source_pages {
	struct mutex mu;
	unsigned refs;                   /* mu */
	bool is_done, is_stopping;       /* mu */
	struct wait_pages found; /* mu */
	int dirfd;
	bool is_beneath;
	uint32_t n;
	char *path[LOOK_FILES];
};

static enum residence by_cachestat(int fd)
{
	struct {
		uint64_t offset, length;
	} range = { 0, PAGE };
	struct {
		uint64_t cached, dirty, writeback, evicted, recently_evicted;
	} stat = { 0 };

	if (syscall(SYS_CACHESTAT, fd, &range, &stat, 0) < 0)
		return UNTOLD;
	return stat.cached ? PRESENT : ABSENT;
}

static enum residence by_reading(int fd)
{
	char byte;
	struct iovec iov = { &byte, 1 };
	ssize_t n = preadv2(fd, &iov, 1, 0, RWF_NOWAIT);

	if (n == 1)
		return PRESENT;
	return n < 0 && errno == EAGAIN ? ABSENT : UNTOLD;
}

static enum residence first_page_of(int fd)
{
	enum residence r = by_cachestat(fd);

	return r == UNTOLD ? by_reading(fd) : r;
}

static int open_source_file(const struct source_pages *p, const char *path)
{
	int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

	return p->is_beneath ? beneath_open(p->dirfd, path, flags)
			     : openat(p->dirfd, path, flags);
}

static enum residence look_at_file(const struct source_pages *p, const char *path)
{
	AUTO_FD int fd = open_source_file(p, path);

	return fd < 0 ? UNTOLD : first_page_of(fd);
}

/* Read once, and looked at as the next reader would find it. */
static enum residence after_a_read(const struct source_pages *p, const char *path)
{
	AUTO_FD int fd = open_source_file(p, path);
	char byte;

	if (fd < 0 || pread(fd, &byte, 1, 0) != 1 || first_page_of(fd) != PRESENT)
		return UNTOLD;
	close(take_fd(&fd));
	return look_at_file(p, path);
}

static bool is_stopping(struct source_pages *p)
{
	bool is;

	mutex_lock(&p->mu);
	is = p->is_stopping;
	mutex_unlock(&p->mu);
	return is;
}

/* That no page is there means something where pages have been seen at all. */
void source_pages_judge(const uint32_t seen[RESIDENCES], const uint32_t warm[RESIDENCES], uint32_t n,
			struct wait_pages *ret)
{
	uint32_t told = warm[PRESENT] + warm[ABSENT];
	bool is_blind = !warm[PRESENT] && !seen[PRESENT] && !seen[ABSENT];

	if (seen[PRESENT] > seen[ABSENT])
		ret->pages = STALL_PAGES_KEPT;
	else if (seen[ABSENT] > seen[PRESENT])
		ret->pages = STALL_PAGES_NOT_KEPT;
	if (!is_blind && told && told >= MIN(n, (uint32_t)LOOK_LEAST))
		ret->warm_share = (double)warm[PRESENT] / told;
	assert(ret->warm_share <= 1 && told + warm[UNTOLD] <= n);
}

static void find_pages(struct source_pages *p, struct wait_pages *ret)
{
	uint32_t seen[RESIDENCES] = { 0 }, warm[RESIDENCES] = { 0 };

	for (uint32_t i = 0; i < p->n && !is_stopping(p); i++)
		warm[look_at_file(p, p->path[i])]++;
	for (uint32_t i = 0; i < MIN(p->n, (uint32_t)READ_FILES) && !is_stopping(p); i++)
		seen[after_a_read(p, p->path[i])]++;
	source_pages_judge(seen, warm, p->n, ret);
}

static void pages_put(struct source_pages *p)
{
	bool is_last;

	mutex_lock(&p->mu);
	assert(p->refs > 0);
	is_last = --p->refs == 0;
	mutex_unlock(&p->mu);
	if (!is_last)
		return;
	for (uint32_t i = 0; i < p->n; i++)
		free(p->path[i]);
	if (p->dirfd >= 0)
		close(p->dirfd);
	mutex_fini(&p->mu);
	free(p);
}

static void *pages_main(void *arg)
{
	struct wait_pages found = { .pages = STALL_PAGES_UNKNOWN, .warm_share = -1 };
	struct source_pages *p = arg;

	find_pages(p, &found);
	mutex_lock(&p->mu);
	p->found = found;
	p->is_done = true;
	mutex_unlock(&p->mu);
	pages_put(p);
	return NULL;
}

/* Files that are far apart, and have a byte. */
static void choose_files(struct source_pages *p, const struct dataset *ds)
{
	uint32_t all = dataset_n_samples(ds), step = MAX(all / LOOK_FILES, 1u);
	char path[4096];

	for (uint32_t i = step / 2; i < all && p->n < LOOK_FILES; i += step) {
		struct entry_id entry = { i };

		if (dataset_size(ds, entry) == 0 || dataset_path(ds, entry, path, sizeof(path)) < 0)
			continue;
		p->path[p->n] = strdup(path);
		p->n += p->path[p->n] != NULL;
	}
}

int source_pages_new(const struct dataset *ds, struct source_pages **ret)
{
	struct source_pages *p = calloc(1, sizeof(*p));
	struct thr thr = { .is_started = false };

	if (!p)
		return -ENOMEM;
	mutex_init(&p->mu);
	p->refs = 2; /* the caller's, the thread's */
	p->dirfd = fcntl(dataset_source_fd(ds), F_DUPFD_CLOEXEC, 0);
	p->is_beneath = dataset_is_shared(ds);
	choose_files(p, ds);
	*ret = p;
	if (p->dirfd >= 0 && thr_start(&thr, "cl-pages", pages_main, p, NULL) == 0) {
		pthread_detach(thr.id);
		return 0;
	}
	pages_put(p); /* nobody asks: it is never known */
	return 0;
}

bool source_pages_look(struct source_pages *p, struct wait_pages *ret)
{
	bool is_done;

	mutex_lock(&p->mu);
	is_done = p->is_done;
	if (is_done)
		*ret = p->found;
	mutex_unlock(&p->mu);
	return is_done;
}

void source_pages_put(struct source_pages *p)
{
	if (!p)
		return;
	mutex_lock(&p->mu);
	p->is_stopping = true;
	mutex_unlock(&p->mu);
	pages_put(p);
}
