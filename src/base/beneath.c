/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths that must not lead out of a directory, whatever others do to it meanwhile.
 *
 * openat2(RESOLVE_BENEATH) is that in one call. Kernels before 5.6 and some seccomp filters do not
 * have it; then, and where somebody wants to know which directories a symlink leads through, the
 * path is walked here: each component is opened O_PATH|O_NOFOLLOW below the one before, symlinks
 * are read and their text is walked in their place, and ".." goes back to the descriptor that we
 * came from. It never asks the kernel for "..": a directory that was moved elsewhere would answer
 * with its new parent.
 *
 * One descriptor for each level of the path while it is walked. No thread of its own, no state but
 * the answer to "is there openat2".
 */
#include "clairfs/base/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clairfs/base/mem.h"

enum { TEXT_MAX = 8192, TRIES = 16 };

/* --- openat2 --- */

static int openat2_beneath(int root_fd, const char *path, int flags)
{
	struct open_how how = { .flags = (uint64_t)(unsigned)flags,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
	long fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

/* A filter may answer with any errno, so it is tried on what must work. */
static bool has_openat2(void)
{
	static _Atomic int known; /* 0: not asked yet, 1: yes, -1: no */
	int is = atomic_load_explicit(&known, memory_order_relaxed);
	int root_fd, fd = -1;

	if (is != 0)
		return is > 0;
	root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0)
		return false;
	fd = openat2_beneath(root_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	is = fd >= 0 ? 1 : -1;
	if (fd >= 0)
		close(fd);
	close(root_fd);
	atomic_store_explicit(&known, is, memory_order_relaxed);
	return is > 0;
}

bool beneath_how(int flags, struct open_how *ret)
{
	*ret = (struct open_how){ .flags = (uint64_t)(unsigned)flags,
				  .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
	return has_openat2();
}

/* --- step by step --- */

struct level {
	int fd;
	struct stat st; /* only with a visit */
};

struct place { /* a directory of the path itself */
	dev_t dev;
	ino_t ino;
};

struct walk {
	const struct beneath_visit *visit;
	struct level *levels; /* [0] is the root, whose descriptor is borrowed */
	struct place *places;
	uint32_t n_levels, levels_room, n_places, places_room;
	struct beneath_found file; /* fd -1 while we stand in a directory */
	unsigned n_links;
	bool is_last;   /* the component in hand is the path's last */
	bool is_detour; /* a symlink has been met */
	char rest[TEXT_MAX];
	char name[NAME_MAX + 1]; /* of the last thing that was opened */
};

static void walk_fini(struct walk *w)
{
	for (uint32_t i = 1; i < w->n_levels; i++)
		close(w->levels[i].fd);
	if (w->file.fd >= 0)
		close(w->file.fd);
	free(w->levels);
	free(w->places);
}

static int walk_push(struct walk *w, int fd, const struct stat *st)
{
	if (w->n_levels == w->levels_room) {
		uint32_t room = MAX(16u, 2 * w->levels_room);
		struct level *more = realloc(w->levels, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->levels = more;
		w->levels_room = room;
	}
	w->levels[w->n_levels].fd = fd;
	if (w->visit)
		w->levels[w->n_levels].st = *st;
	w->n_levels++;
	return 0;
}

/* Here we stand after a component that is not the last: a directory of the path itself, unless a
 * symlink has led here. */
static int add_place(struct walk *w)
{
	const struct stat *st = &w->levels[w->n_levels - 1].st;

	if (!w->visit || w->is_detour)
		return 0;
	if (w->n_places == w->places_room) {
		uint32_t room = MAX(16u, 2 * w->places_room);
		struct place *more = realloc(w->places, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->places = more;
		w->places_room = room;
	}
	w->places[w->n_places++] = (struct place){ st->st_dev, st->st_ino };
	return 0;
}

/* A name is about to be looked up where we stand. */
static void tell_crossed(const struct walk *w)
{
	const struct level *here = &w->levels[w->n_levels - 1];

	if (!w->visit || !w->is_detour)
		return;
	for (uint32_t i = 0; i < w->n_places; i++)
		if (w->places[i].dev == here->st.st_dev && w->places[i].ino == here->st.st_ino)
			return;
	w->visit->crossed(w->visit->ctx, here->fd, &here->st);
}

/* The next component of w->rest into w->name; false when there is none. */
static bool walk_take_name(struct walk *w, int *error)
{
	const char *from = w->rest + strspn(w->rest, "/");
	size_t len = strcspn(from, "/");

	*error = 0;
	if (len == 0)
		return false;
	if (len > NAME_MAX) {
		*error = -ENAMETOOLONG;
		return false;
	}
	memcpy(w->name, from, len);
	w->name[len] = '\0';
	memmove(w->rest, from + len, strlen(from + len) + 1);
	return true;
}

/* Puts a symlink's text in front of what is left. */
static int put_link(struct walk *w, int fd)
{
	char text[TEXT_MAX];
	ssize_t n = readlinkat(fd, "", text, sizeof(text));
	size_t rest = strlen(w->rest);

	if (n < 0)
		return -errno;
	if (n == 0)
		return -ENOENT;
	if (++w->n_links > BENEATH_LINKS_MAX)
		return -ELOOP;
	if (text[0] == '/')
		return -EXDEV;
	if ((size_t)n + rest + 1 > sizeof(w->rest))
		return -ENAMETOOLONG;
	memmove(w->rest + n, w->rest, rest + 1); /* it begins with a slash or is empty */
	memcpy(w->rest, text, (size_t)n);
	w->is_detour = true;
	if (w->is_last)
		w->file.is_link = true;
	return 0;
}

/* O_DIRECTORY where a directory is expected: it mounts what is to be mounted there on demand. */
static int open_step(const struct walk *w, struct stat *st)
{
	int at = w->levels[w->n_levels - 1].fd, flags = O_PATH | O_NOFOLLOW | O_CLOEXEC, fd = -1;

	if (!w->is_last || w->rest[0] == '/')
		fd = openat(at, w->name, flags | O_DIRECTORY);
	if (fd < 0 && (w->is_last || errno == ENOTDIR || errno == ELOOP))
		fd = openat(at, w->name, flags);
	if (fd < 0)
		return -errno;
	if (fstat(fd, st) == 0)
		return fd;
	close(fd);
	return -errno;
}

/* One name below where we stand. */
static int walk_step(struct walk *w)
{
	AUTO_FD int fd = -1;
	struct stat st;
	int rc;

	if (strcmp(w->name, ".") == 0)
		return 0;
	tell_crossed(w);
	if (strcmp(w->name, "..") == 0) {
		if (w->n_levels == 1)
			return -EXDEV;
		close(w->levels[--w->n_levels].fd);
		return 0;
	}
	fd = open_step(w, &st);
	if (fd < 0)
		return fd;
	if (S_ISLNK(st.st_mode))
		return put_link(w, fd);
	if (S_ISDIR(st.st_mode)) {
		rc = walk_push(w, fd, &st);
		if (rc == 0)
			take_fd(&fd);
		return rc;
	}
	if (w->rest[0] != '\0' || !w->is_last)
		return -ENOTDIR;
	w->file.st = st;
	w->file.fd = take_fd(&fd);
	return 0;
}

/* One component of the path, with everything a symlink there leads through. */
static int walk_component(struct walk *w, const char *name, size_t len, bool is_last)
{
	int rc = 0;

	if (len > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(w->rest, name, len);
	w->rest[len] = '\0';
	w->is_last = is_last;
	while (rc == 0 && walk_take_name(w, &rc))
		rc = walk_step(w);
	return rc;
}

static int walk_path(struct walk *w, const char *path)
{
	const char *at = path + strspn(path, "/");
	int rc = path[0] == '/' ? -EXDEV : 0;

	while (rc == 0 && *at) {
		size_t len = strcspn(at, "/");
		const char *next = at + len + strspn(at + len, "/");

		rc = add_place(w);
		if (rc == 0)
			rc = walk_component(w, at, len, *next == '\0');
		at = next;
	}
	if (rc == 0 && w->file.fd >= 0 && at[-1] == '/')
		rc = -ENOTDIR;
	return rc;
}

static int walk_init(struct walk *w, int root_fd, const struct beneath_visit *visit)
{
	struct stat st = { 0 };

	w->visit = visit;
	w->levels = NULL;
	w->places = NULL;
	w->n_levels = w->levels_room = w->n_places = w->places_room = w->n_links = 0;
	w->file = (struct beneath_found){ .fd = -1 };
	w->rest[0] = w->name[0] = '\0';
	w->is_last = w->is_detour = false;
	if (visit && fstat(root_fd, &st) < 0)
		return -errno;
	return walk_push(w, root_fd, &st);
}

/* Takes what was found out of the walk. */
static int walk_found(struct walk *w, struct beneath_found *ret)
{
	*ret = w->file;
	if (ret->fd >= 0) {
		w->file.fd = -1;
		return 0;
	}
	ret->fd = fcntl(w->levels[w->n_levels - 1].fd, F_DUPFD_CLOEXEC, 0);
	if (ret->fd < 0)
		return -errno;
	if (fstat(ret->fd, &ret->st) == 0)
		return 0;
	close(take_fd(&ret->fd));
	return -errno;
}

int beneath_look(int root_fd, const char *path, const struct beneath_visit *visit,
		 struct beneath_found *ret)
{
	struct walk w;
	int rc = walk_init(&w, root_fd, visit);

	if (rc == 0)
		rc = walk_path(&w, path);
	if (rc == 0)
		rc = walk_found(&w, ret);
	walk_fini(&w);
	return rc;
}

static int open_found(const struct walk *w, int flags)
{
	int at = w->levels[w->n_levels - 1].fd;
	int fd = w->file.fd < 0 ? openat(at, ".", flags) : openat(at, w->name, flags | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}

int beneath_open_by_steps(int root_fd, const char *path, int flags)
{
	int rc = -ELOOP;

	/* A file may become a symlink between the walk and its opening: then it is walked again. */
	for (int i = 0; i < TRIES && rc == -ELOOP; i++) {
		struct walk w;

		rc = walk_init(&w, root_fd, NULL);
		if (rc == 0)
			rc = walk_path(&w, path);
		if (rc == -ELOOP)
			i = TRIES; /* of the symlinks themselves */
		if (rc == 0)
			rc = open_found(&w, flags);
		walk_fini(&w);
	}
	return rc;
}

int beneath_open(int root_fd, const char *path, int flags)
{
	int rc = -EAGAIN;

	if (!has_openat2())
		return beneath_open_by_steps(root_fd, path, flags);
	/* Also EAGAIN: something was renamed while it looked at "..". */
	for (int i = 0; i < TRIES && rc == -EAGAIN; i++)
		rc = openat2_beneath(root_fd, path, flags);
	return rc == -EAGAIN ? beneath_open_by_steps(root_fd, path, flags) : rc;
}
