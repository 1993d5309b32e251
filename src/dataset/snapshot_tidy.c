/* SPDX-License-Identifier: Apache-2.0 */
/* What is left of sources that nobody mounts any more. A snapshot is removed
 *
 *  - at once, when its source is gone from a filesystem that is there: the nearest directory above
 *    it that exists is on the filesystem that the header names;
 *  - a week after its last use, when the source is not there but its filesystem is not either: it
 *    may only be unmounted;
 *  - a week after its last use, when it is of another version of the program, whose header says
 *    nothing to this one;
 *  - when there are too many or too large ones: the one that was used least recently.
 *
 * Only files that are snapshots by name, owner, size and header, and whose name is the one that
 * their header gives them, are touched, and never the one of this mount. Other mounts have read
 * theirs and hold nothing: the worst that removing one does is a scan. Last use is the access time,
 * which a mount sets when it reads one.
 *
 * Asking for a source may hang with its filesystem, so all of it is done by a thread that nobody
 * waits for; it has its own descriptor and copy of the key, and must never touch anything else. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>

#include "clairfs/base/log.h"
#include "clairfs/base/thr.h"
#include "dataset_priv.h"

#define UNMOUNTED_SECONDS (7 * 86400)
#define LEFTOVER_SECONDS 3600

struct found {
	char name[SNAPSHOT_NAME_SIZE];
	int64_t used;
	uint64_t bytes;
};

struct tidy {
	int dir_fd;
	struct snapshot_key key;
	char mine[SNAPSHOT_NAME_SIZE];
	int64_t now;
	struct snapshot_limits limits;
	struct found *found;
	size_t n_found, capacity;
	uint32_t n_removed;
};

/* 32 hex digits and what comes behind them. */
static bool has_digits(const char *name, const char **ret_rest)
{
	*ret_rest = name + 32;
	return strspn(name, "0123456789abcdef") == 32;
}

static void remove_file(struct tidy *t, const char *name)
{
	if (unlinkat(t->dir_fd, name, 0) == 0)
		t->n_removed++;
}

/* Whether the source is not there, and *ret_is_sure: though its filesystem is. */
static bool is_gone(const struct snapshot_key *key, bool *ret_is_sure)
{
	char path[DATASET_PATH_MAX + 1];
	struct statx stx;
	struct statfs fs;
	uint64_t fsid = 0;

	*ret_is_sure = false;
	memcpy(path, key->path, sizeof(path));
	if (path[0] != '/' || statx(AT_FDCWD, path, AT_NO_AUTOMOUNT, STATX_TYPE, &stx) == 0 ||
	    (errno != ENOENT && errno != ENOTDIR))
		return false;
	while (statfs(path, &fs) < 0) {
		char *slash = strrchr(path, '/');

		if ((errno != ENOENT && errno != ENOTDIR) || slash == path)
			return true;
		*slash = 0;
	}
	memcpy(&fsid, &fs.f_fsid, MIN(sizeof(fsid), sizeof(fs.f_fsid)));
	*ret_is_sure = fsid != 0 && fsid == key->fsid;
	return true;
}

static int remember(struct tidy *t, const char *name, const struct stat *st)
{
	if (t->n_found == t->capacity) {
		size_t capacity = t->capacity ? t->capacity * 2 : 64;
		void *bigger = realloc(t->found, capacity * sizeof(*t->found));

		if (!bigger)
			return -ENOMEM;
		t->found = bigger;
		t->capacity = capacity;
	}
	memcpy(t->found[t->n_found].name, name, sizeof(t->found->name));
	t->found[t->n_found].used = MAX(st->st_atim.tv_sec, st->st_mtim.tv_sec);
	t->found[t->n_found++].bytes = (uint64_t)st->st_size;
	return 0;
}

/* A file by the name of a snapshot. */
static int look_at_snapshot(struct tidy *t, const char *name)
{
	/* Looking is no use of it. Refused for files of others, which are left alone anyway. */
	AUTO_FD int fd = openat(t->dir_fd, name,
				O_RDONLY | O_NOATIME | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	struct snapshot_key key;
	char own_name[SNAPSHOT_NAME_SIZE];
	struct stat st;
	int64_t used;
	bool is_sure;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
		return 0;
	used = MAX(st.st_atim.tv_sec, st.st_mtim.tv_sec);
	if (!snapshot_read_key(fd, (uint64_t)st.st_size, &key)) {
		if (used < t->now - UNMOUNTED_SECONDS && snapshot_is_of_other_version(fd))
			remove_file(t, name);
		return 0;
	}
	snapshot_name(&key, own_name);
	if (strcmp(own_name, name) != 0)
		return 0;
	if (strcmp(name, t->mine) != 0 && is_gone(&key, &is_sure) &&
	    (is_sure || used < t->now - UNMOUNTED_SECONDS)) {
		remove_file(t, name);
		return 0;
	}
	return remember(t, own_name, &st);
}

/* What a daemon that was killed while it wrote has left. */
static void look_at_leftover(struct tidy *t, const char *name)
{
	struct stat st;

	if (fstatat(t->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	    st.st_uid == geteuid() && st.st_mtim.tv_sec < t->now - LEFTOVER_SECONDS)
		remove_file(t, name);
}

static int look_through(struct tidy *t)
{
	int fd = openat(t->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *d;
	const char *rest;

	if (!stream) {
		if (fd >= 0)
			close(fd);
		return -errno;
	}
	while (rc == 0 && (d = readdir(stream))) {
		if (!has_digits(d->d_name, &rest))
			continue;
		if (strcmp(rest, ".snapshot") == 0)
			rc = look_at_snapshot(t, d->d_name);
		else if (rest[0] == '.' && strcmp(rest + 1 + strspn(rest + 1, "0123456789"), ".tmp") == 0)
			look_at_leftover(t, d->d_name);
	}
	closedir(stream);
	return rc;
}

static int by_use(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return x->used != y->used ? (x->used < y->used ? -1 : 1) : strcmp(x->name, y->name);
}

static void keep_limits(struct tidy *t)
{
	size_t n = t->n_found;
	uint64_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += t->found[i].bytes;
	if (n > 0)
		qsort(t->found, n, sizeof(*t->found), by_use);
	for (size_t i = 0; i < t->n_found; i++) {
		if (n <= t->limits.files && bytes <= t->limits.bytes)
			return;
		if (strcmp(t->found[i].name, t->mine) == 0)
			continue;
		remove_file(t, t->found[i].name);
		bytes -= t->found[i].bytes;
		n--;
	}
}

static uint32_t tidy(struct tidy *t)
{
	snapshot_name(&t->key, t->mine);
	if (look_through(t) == 0)
		keep_limits(t);
	free(t->found);
	return t->n_removed;
}

uint32_t snapshot_tidy(int dir_fd, const struct snapshot_key *in_use,
		       const struct snapshot_limits *limits, int64_t now)
{
	struct tidy t = { .dir_fd = dir_fd, .key = *in_use, .now = now, .limits = *limits };

	return tidy(&t);
}

static void *tidy_main(void *take_tidy)
{
	AUTO_FREE struct tidy *t = take_tidy;
	uint32_t n = tidy(t);

	if (n > 0)
		log_info("%u old snapshots of other datasets were removed", n);
	close(t->dir_fd);
	return NULL;
}

void snapshot_tidy_start(int dir_fd, const struct snapshot_key *in_use)
{
	static const struct snapshot_limits limits = { SNAPSHOTS_MAX, SNAPSHOTS_BYTES_MAX };
	struct tidy *t = calloc(1, sizeof(*t));
	struct thr thr = { .is_started = false };

	if (!t)
		return;
	*t = (struct tidy){ .dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3),
			    .key = *in_use,
			    .now = time(NULL),
			    .limits = limits };
	if (t->dir_fd >= 0 && thr_start(&thr, "cl-tidy", tidy_main, t, NULL) == 0) {
		pthread_detach(thr.id);
		return;
	}
	if (t->dir_fd >= 0) /* UNTESTED: no thread can be started; the next mount may */
		close(t->dir_fd);
	free(t);
}
