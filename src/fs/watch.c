/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watcher: sees every open of a sample although the kernel does not ask about it. inotify works
 * above FUSE, so one IN_OPEN watch on each directory that holds samples reports what is opened
 * there, in order, while the reader runs on at the speed of the page cache.
 *
 * Waking a thread is what costs the reader (microseconds, on the CPU that opens), not the event
 * (0.3 us). So after the first event this thread sleeps 5 ms without polling and then takes
 * everything that gathered; only when nothing came any more does it wait for the next event.
 *
 * The watches are set through the mount, so the reactor must run. Looking paths up and listing
 * directories makes no events that count; the daemon must never open a sample through its own
 * mount. Where a directory cannot be watched OPEN must stay answered, and the watches of the others are
 * for nothing. There is a limit per user, which everything that follows files or directories needs
 * its share of. So an eighth of it, and at least 1024, are not touched, and there are watches for all
 * directories or for none.
 *
 * Threads: fs-watch; fs_is_dir_watched any.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>

#include "clairfs/base/log.h"

#include "fs_priv.h"

#define GATHER_MS 5
#define EVENT_BUF_BYTES (64u << 10)
#define RESERVE_LEAST 1024u /* watches of the user that are left to others */

int fs_watch_init(struct fs *fs)
{
	struct fs_watch *w = &fs->watch;

	w->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	w->is_watched =
		calloc(dataset_n_entries(fs->params.dataset) / 32 + 1, sizeof(*w->is_watched));
	return w->is_watched ? 0 : -ENOMEM;
}

void fs_watch_fini(struct fs *fs)
{
	if (fs->watch.fd >= 0)
		close(fs->watch.fd);
	free(fs->watch.dir_of_wd);
	free((void *)fs->watch.is_watched);
}

bool fs_is_dir_watched(const struct fs *fs, struct entry_id dir)
{
	if (entry_eq(dir, ENTRY_ROOT))
		return atomic_load_explicit(&fs->watch.is_root_watched, memory_order_relaxed);
	return atomic_load_explicit(&fs->watch.is_watched[dir.v / 32], memory_order_relaxed) >>
		       dir.v % 32 &
	       1;
}

static int watch_remember(struct fs_watch *w, int wd, struct entry_id dir)
{
	if ((size_t)wd >= w->capacity) {
		size_t capacity = MAX((size_t)wd + 1, w->capacity * 2);
		struct entry_id *grown = realloc(w->dir_of_wd, capacity * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		for (size_t i = w->capacity; i < capacity; i++)
			grown[i] = ENTRY_NONE;
		w->dir_of_wd = grown;
		w->capacity = capacity;
	}
	w->dir_of_wd[wd] = dir;
	return 0;
}

static int watch_dir(struct fs *fs, struct entry_id dir)
{
	struct fs_watch *w = &fs->watch;
	char path[PATH_MAX];
	int wd, rc = fs_path(fs, dir, path, sizeof(path));

	if (rc < 0)
		return rc;
	wd = inotify_add_watch(w->fd, path, IN_OPEN | IN_ONLYDIR);
	if (wd < 0)
		return -errno;
	rc = watch_remember(w, wd, dir);
	if (rc < 0)
		return rc;
	if (entry_eq(dir, ENTRY_ROOT))
		atomic_store(&w->is_root_watched, true);
	else
		atomic_fetch_or(&w->is_watched[dir.v / 32], 1u << dir.v % 32);
	atomic_fetch_add(&w->count, 1);
	return 0;
}

struct dirs {
	struct entry_id *dir;
	uint32_t n, size;
};

static int dirs_add(struct dirs *dirs, struct entry_id dir)
{
	if (dirs->n == dirs->size) {
		uint32_t size = dirs->size * 2 + 64;
		struct entry_id *grown = realloc(dirs->dir, size * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		dirs->dir = grown;
		dirs->size = size;
	}
	dirs->dir[dirs->n++] = dir;
	return 0;
}

/* Every directory that holds samples. */
static int dirs_find(const struct fs *fs, struct dirs *dirs)
{
	const struct dataset *ds = fs->params.dataset;
	struct entry_id dir, last = ENTRY_NONE;
	struct bitmap seen;
	int rc = bitmap_init(&seen, (uint64_t)dataset_n_entries(ds) + 1);

	for (uint32_t s = 0; rc == 0 && s < dataset_n_samples(ds); s++) {
		dir = dataset_parent(ds, (struct entry_id){ s });
		if (entry_eq(dir, last))
			continue;
		last = dir;
		if (bitmap_set(&seen, entry_eq(dir, ENTRY_ROOT) ? dataset_n_entries(ds) : dir.v) &&
		    !fs_is_shadowed(fs, dir))
			rc = dirs_add(dirs, dir);
	}
	bitmap_fini(&seen);
	return rc;
}

/* How many of this many watches may be taken. */
static uint64_t fs_watch_room(uint64_t limit)
{
	return limit - MIN(MAX(limit / 8, RESERVE_LEAST), limit);
}

/* A set with holes is of no use, as OPEN then stays answered; so it is given back. */
static void watch_none(struct fs *fs)
{
	struct fs_watch *w = &fs->watch;

	atomic_store(&w->is_root_watched, false);
	for (uint32_t i = 0; i < dataset_n_entries(fs->params.dataset) / 32 + 1; i++)
		atomic_store(&w->is_watched[i], 0);
	atomic_store(&w->count, 0);
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}

/* Why there are no watches, for a person. */
static void watch_explain(struct fs *fs, uint32_t n_dirs, uint64_t limit, int rc)
{
	char why[FS_WATCH_WHY];

	if (rc == -EDQUOT)
		snprintf(why, sizeof(why),
			 "%u directories hold samples, fs.inotify.max_user_watches is %llu and "
			 "%llu of them are left to others",
			 n_dirs, (unsigned long long)limit,
			 (unsigned long long)(limit - fs_watch_room(limit)));
	else if (rc == -ENOSPC)
		snprintf(why, sizeof(why),
			 "%u directories hold samples, and others of this user have too many of "
			 "fs.inotify.max_user_watches",
			 n_dirs);
	else
		snprintf(why, sizeof(why), "%s",
			 rc == -EMFILE ? "raise fs.inotify.max_user_instances" : strerror(-rc));
	log_warn("opens cannot be watched (%s): OPEN stays answered, which costs every read an "
		 "upcall",
		 why);
	mutex_lock(&fs->mu);
	memcpy(fs->watch.why, why, sizeof(why));
	mutex_unlock(&fs->mu);
}

/* Watches every directory that holds samples, or none. */
static void watch_all(struct fs *fs)
{
	struct dirs dirs = { 0 };
	uint64_t limit = fs_caps_max_watches();
	int rc = dirs_find(fs, &dirs);

	if (rc == 0 && dirs.n && fs->watch.fd < 0)
		rc = -EMFILE;
	if (rc == 0 && dirs.n > fs_watch_room(limit))
		rc = -EDQUOT;
	for (uint32_t i = 0; rc == 0 && i < dirs.n && !atomic_load(&fs->is_quitting); i++)
		rc = watch_dir(fs, dirs.dir[i]);
	free(dirs.dir);
	if (rc == 0) {
		atomic_store(&fs->watch.is_complete, true);
		return;
	}
	watch_none(fs);
	if (!atomic_load(&fs->is_quitting))
		watch_explain(fs, dirs.n, limit, rc);
}

static void watch_note(struct fs *fs, const struct inotify_event *event, const char *name)
{
	struct entry_id entry;

	if (event->mask & IN_Q_OVERFLOW) {
		metrics_add(fs->params.metrics, METRIC_WATCH_OVERFLOWS, 1);
		cache_note_blind(fs->params.cache);
		return;
	}
	/* Directories are opened to be listed. */
	if (!(event->mask & IN_OPEN) || event->mask & IN_ISDIR || event->len == 0)
		return;
	if (event->wd < 0 || (size_t)event->wd >= fs->watch.capacity ||
	    entry_eq(fs->watch.dir_of_wd[event->wd], ENTRY_NONE))
		return;
	entry = dataset_lookup(fs->params.dataset, fs->watch.dir_of_wd[event->wd], name,
			       strnlen(name, event->len));
	if (entry_eq(entry, ENTRY_NONE) || !dataset_is_sample(fs->params.dataset, entry))
		return;
	fs_stage_caught_up(fs, entry);
	cache_note_open(fs->params.cache, entry);
}

/* True when there was something. */
static bool watch_drain(struct fs *fs, char *buf)
{
	bool is_any = false;
	ssize_t got;

	while ((got = read(fs->watch.fd, buf, EVENT_BUF_BYTES)) > 0) {
		struct buf_reader r;

		buf_reader_init(&r, buf, (size_t)got);
		while (r.at < r.size) {
			const void *head = buf_get_bytes(&r, sizeof(struct inotify_event));
			struct inotify_event event;
			const char *name;

			if (!head)
				break;
			memcpy(&event, head, sizeof(event));
			name = buf_get_bytes(&r, event.len);
			if (!name)
				break;
			watch_note(fs, &event, name);
		}
		is_any = true;
	}
	return is_any;
}

void *fs_watch_main(void *arg)
{
	struct fs *fs = arg;
	AUTO_FREE char *buf = malloc(EVENT_BUF_BYTES);
	struct pollfd fds[2] = { { .fd = fs->quit_fd, .events = POLLIN }, { .events = POLLIN } };

	if (buf)
		watch_all(fs);
	fds[1].fd = fs->watch.fd;
	mutex_lock(&fs->mu);
	fs->is_watching = true;
	cond_broadcast(&fs->cv);
	mutex_unlock(&fs->mu);
	while (buf && !atomic_load(&fs->is_quitting)) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		do {
			poll(fds, 1, GATHER_MS);
		} while (!fds[0].revents && watch_drain(fs, buf));
	}
	if (buf)
		watch_drain(fs, buf); /* what was opened until the unmount counts */
	return NULL;
}
