/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What df shows: the numbers of the source. A source that does not answer may keep statfs waiting
 * for ever, so nobody of ours ever waits for it without a limit: the question is asked by a thread
 * of its own, seldom and only after somebody asked us, and everybody else gets the last answer
 * (zeros before the first). fs_start waits a second for the first one, fs_free a second for the
 * last; then they go on, and a thread that is still waiting is left behind.
 *
 * That thread is detached and must never touch struct fs: it owns a reference to what is here, and
 * a descriptor of its own, and whoever is last frees them. When the process exits it goes with it.
 *
 * Threads: fs_statfs_get on the reactor; the rest on the thread of fs_new, fs_start and fs_free;
 * one fs-statfs at a time.
 */
#include <errno.h>
#include <fcntl.h>

#include "fs_priv.h"

#define STATFS_OLD_NS (5 * NS_PER_S)
#define STATFS_PATIENCE_NS (1 * NS_PER_S)
#define BLOCK_BYTES 4096

struct fs_statfs {
	struct mutex mu;
	struct cond cv;
	struct clock *clock;
	int source_fd;
	unsigned refs;     /* mu */
	bool is_asking;    /* mu: there is a thread */
	bool is_answered;  /* mu */
	struct statvfs st; /* mu */
	uint64_t at_ns;    /* mu */
};

static void statfs_put(struct fs_statfs *s)
{
	bool is_last;

	mutex_lock(&s->mu);
	is_last = --s->refs == 0;
	mutex_unlock(&s->mu);
	if (!is_last)
		return;
	if (s->source_fd >= 0)
		close(s->source_fd);
	cond_fini(&s->cv);
	mutex_fini(&s->mu);
	free(s);
}

/* Must not use the clock: it is the caller's, and may be gone. */
static void *statfs_main(void *arg)
{
	struct fs_statfs *s = arg;
	struct statvfs st;
	bool is_good = fstatvfs(s->source_fd, &st) == 0;

	mutex_lock(&s->mu);
	if (is_good)
		s->st = st;
	s->st.f_namemax = FS_NAME_MAX;
	s->is_answered = true;
	s->is_asking = false;
	cond_broadcast(&s->cv);
	mutex_unlock(&s->mu);
	statfs_put(s);
	return NULL;
}

static void ask_locked(struct fs_statfs *s) REQUIRES(&s->mu)
{
	struct thr thr = { .is_started = false };

	s->at_ns = clock_now(s->clock);
	if (thr_start(&thr, "fs-statfs", statfs_main, s, NULL) < 0)
		return; /* the last answer will do */
	pthread_detach(thr.id);
	s->is_asking = true;
	s->refs++;
}

int fs_statfs_init(struct fs *fs)
{
	struct fs_statfs *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	mutex_init(&s->mu);
	cond_init(&s->cv);
	s->clock = fs->params.clock;
	s->refs = 1;
	s->st = (struct statvfs){ .f_bsize = BLOCK_BYTES,
				  .f_frsize = BLOCK_BYTES,
				  .f_namemax = FS_NAME_MAX };
	s->source_fd = fcntl(dataset_source_fd(fs->params.dataset), F_DUPFD_CLOEXEC, 0);
	fs->statfs = s;
	if (s->source_fd < 0)
		return -errno;
	mutex_lock(&s->mu);
	ask_locked(s);
	mutex_unlock(&s->mu);
	return 0;
}

void fs_statfs_wait_first(struct fs *fs)
{
	struct fs_statfs *s = fs->statfs;
	bool is_late = false;

	mutex_lock(&s->mu);
	while (s->is_asking && !s->is_answered && !is_late)
		is_late = cond_wait_for(&s->cv, &s->mu, STATFS_PATIENCE_NS);
	mutex_unlock(&s->mu);
}

void fs_statfs_fini(struct fs *fs)
{
	struct fs_statfs *s = fs->statfs;
	bool is_late = false;

	if (!s)
		return;
	mutex_lock(&s->mu);
	while (s->is_asking && !is_late)
		is_late = cond_wait_for(&s->cv, &s->mu, STATFS_PATIENCE_NS);
	mutex_unlock(&s->mu);
	statfs_put(s);
}

void fs_statfs_get(struct fs *fs, struct statvfs *ret)
{
	struct fs_statfs *s = fs->statfs;

	mutex_lock(&s->mu);
	*ret = s->st;
	if (!s->is_asking && clock_now(s->clock) - s->at_ns > STATFS_OLD_NS)
		ask_locked(s);
	mutex_unlock(&s->mu);
}
