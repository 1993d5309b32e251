/* SPDX-License-Identifier: Apache-2.0 */
/*
 * <mountpoint>/.clairfs/order, for shells: `echo SPEC > order`. The kernel refuses to open a
 * regular file of a read-only mount for writing without asking us, but not a FIFO: what is in that
 * is no business of the filesystem. So it is one, and who may write is said by its mode: the owner.
 *
 * A writer of a FIFO waits for a reader, which is this thread, through the mount as anybody else.
 * An open file keeps a mount busy, so nothing is held open for longer than somebody is there:
 *
 *   - a LOOKUP of the name is answered when a reader is in place, so that no writer ever waits; the
 *     reader goes away again when nobody has come within a moment. We come in through a second
 *     name of the inode, in another directory, which is answered at once: else we would wait for
 *     ourselves, or for the kernel's lock of a directory in which somebody looks the first one up;
 *   - who comes without a LOOKUP (a bind mount of the file, a descriptor of /proc) is found by a
 *     look once a second, from the first LOOKUP on;
 *   - who reads instead (cat) waits for a writer: that look finds them as well, and they get the
 *     order in force.
 *
 * Lines end with a newline, or when no writer is left. Of two writers at once, or one right behind
 * the other, nobody can say where the first one's text ends but by a newline.
 *
 * When the mount is not where we put it any more (umount -l) nobody could read, so the name gives
 * ENXIO. The one who writes gets no answer; it is in the log, in status and in .clairfs/answer.
 *
 * Threads: fs-order runs fs_fifo_main, lookups come from the reactor. It must never open a FIFO of
 * somebody else, and never hold the lock while it answers the kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clairfs/base/log.h"

#include "fs_priv.h"

#define PATIENCE_NS (20 * NS_PER_MS) /* from the answer of a LOOKUP to the open: microseconds */
#define SOON_NS (5 * NS_PER_MS)      /* a second writer may have come when the first one left */
#define LOOK_NS NS_PER_S

#define LOOKUPS_MAX 64

struct fifo_lookup {
	struct list node;
	fuse_req_t req;
};

void fs_fifo_init(struct fs *fs)
{
	struct fs_fifo *f = &fs->fifo;

	mutex_init(&f->mu);
	list_init(&f->lookups);
	f->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void fs_fifo_fini(struct fs *fs)
{
	struct fs_fifo *f = &fs->fifo;
	struct list *node;

	while ((node = list_pop_head(&f->lookups))) {
		struct fifo_lookup *lookup = container_of(node, struct fifo_lookup, node);

		fuse_reply_err(lookup->req, ENOTCONN);
		free(lookup);
	}
	if (f->wake_fd >= 0)
		close(f->wake_fd);
	mutex_fini(&f->mu);
}

static void wake(struct fs_fifo *f)
{
	uint64_t one = 1;
	ssize_t put = write(f->wake_fd, &one, sizeof(one)); /* fails only when it is raised */

	(void)put;
}

/* fs->is_quitting is set already. */
void fs_fifo_quit(struct fs *fs)
{
	wake(&fs->fifo);
	thr_join(&fs->fifo.thr);
}

void fs_fifo_stat(struct fs *fs, struct stat *ret)
{
	fs_vdir_stat(fs, ret);
	ret->st_ino = FS_INO_FIFO;
	ret->st_mode = S_IFIFO | 0600;
	ret->st_uid = geteuid();
	ret->st_gid = getegid();
	ret->st_nlink = 1;
	ret->st_size = 0;
	ret->st_blocks = 0;
}

static void reply(struct fs *fs, fuse_req_t req, double entry_timeout)
{
	struct fuse_entry_param param = { .ino = FS_INO_FIFO,
					  .entry_timeout = entry_timeout,
					  .attr_timeout = FS_DAY_S };

	fs_fifo_stat(fs, &param.attr);
	fuse_reply_entry(req, &param);
}

/* Who looked the name up was sent a signal (reactor). */
static void interrupted(fuse_req_t req, void *data)
{
	struct fs_fifo *f = data;
	struct fifo_lookup *found = NULL;

	mutex_lock(&f->mu);
	for (struct list *node = f->lookups.next; node != &f->lookups; node = node->next) {
		struct fifo_lookup *lookup = container_of(node, struct fifo_lookup, node);

		if (lookup->req == req)
			found = lookup;
	}
	if (found) {
		list_remove(&found->node);
		f->n_lookups--;
	}
	mutex_unlock(&f->mu);
	if (!found)
		return; /* the thread is answering it */
	fuse_reply_err(req, EINTR);
	free(found);
}

/* Answered when a reader is in place, which may be now. */
static void wait_for_reader(fuse_req_t req, struct fs *fs, struct fifo_lookup *take_lookup)
{
	struct fs_fifo *f = &fs->fifo;
	AUTO_FREE struct fifo_lookup *lookup = take_lookup;
	bool is_ready, is_full;

	lookup->req = req;
	fuse_req_interrupt_func(req, interrupted, f);
	mutex_lock(&f->mu);
	f->looked_ns = clock_now(fs->params.clock);
	is_ready = f->is_open;
	is_full = f->n_lookups >= LOOKUPS_MAX;
	if (is_ready) {
		f->n_answered++;
	} else if (!is_full) {
		list_push_tail(&f->lookups, &TAKE(lookup)->node);
		f->n_lookups++;
	}
	mutex_unlock(&f->mu);
	if (is_ready)
		reply(fs, req, 0);
	else if (is_full)
		fuse_reply_err(req, EBUSY);
	else
		wake(f);
}

void fs_fifo_lookup(fuse_req_t req, struct fs *fs, bool is_ours)
{
	struct fifo_lookup *lookup;

	if (is_ours || !fs_may_tell(fuse_req_ctx(req)->uid)) { /* its mode keeps others out */
		reply(fs, req, is_ours ? FS_DAY_S : 0);
		return;
	}
	lookup = fuse_req_interrupted(req) ? NULL : calloc(1, sizeof(*lookup));
	if (lookup)
		wait_for_reader(req, fs, lookup);
	else
		fuse_reply_err(req, fuse_req_interrupted(req) ? EINTR : ENOMEM);
}

/* The FIFO through the mount, if it is ours that is found there; else a negative errno. */
static int open_fifo(struct fs *fs, int flags)
{
	AUTO_FREE char *path = NULL;
	AUTO_FD int at = -1;
	char proc[64];
	struct stat st;
	int fd;

	if (asprintf(&path, "%s/%s", fs->mountpoint, FS_FIFO_OUR_NAME) < 0)
		return -ENOMEM;
	at = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (at < 0 || fstat(at, &st) < 0)
		return -errno;
	if (!S_ISFIFO(st.st_mode) || st.st_dev != fs->mount_dev || st.st_ino != FS_INO_FIFO)
		return -ENXIO;
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", at);
	fd = open(proc, flags | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Whoever has looked the name up goes on: to a reader, or to ENXIO when there is none. */
static void answer_lookups(struct fs *fs, bool is_open)
{
	struct fs_fifo *f = &fs->fifo;
	struct list lookups, *node;

	list_init(&lookups);
	mutex_lock(&f->mu);
	f->is_open = is_open;
	list_splice_tail(&lookups, &f->lookups);
	f->n_lookups = 0;
	for (node = lookups.next; node != &lookups; node = node->next)
		f->n_answered++;
	mutex_unlock(&f->mu);
	while ((node = list_pop_head(&lookups))) {
		struct fifo_lookup *lookup = container_of(node, struct fifo_lookup, node);

		if (is_open)
			reply(fs, lookup->req, 0);
		else
			fuse_reply_err(lookup->req, ENXIO);
		free(lookup);
	}
}

/* --- what is written --- */

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* One line is one announce; empty ones are none. Waits for it, so that a writer who is faster than
 * orders can be set up waits as well; whoever looks the name up meanwhile does not, since we are
 * in place (is_open). */
static void end_line(struct fs *fs)
{
	struct fs_fifo *f = &fs->fifo;
	size_t from = 0, size = f->line_size;
	bool is_cut = size == sizeof(f->line) - 1;

	f->line_size = 0;
	while (!is_cut && from < size && is_space(f->line[from]))
		from++;
	while (!is_cut && size > from && is_space(f->line[size - 1]))
		size--;
	f->line[size] = '\0';
	if (size > from)
		fs_announce_line(fs, f->line + from, size - from);
}

static void take(struct fs *fs, const char *data, size_t size)
{
	struct fs_fifo *f = &fs->fifo;

	for (size_t i = 0; i < size && !atomic_load(&fs->is_quitting); i++) {
		if (data[i] == '\n')
			end_line(fs);
		else if (f->line_size < sizeof(f->line) - 1) /* so long is refused as too long */
			f->line[f->line_size++] = data[i];
	}
}

/* False when the thread has to end. */
static bool wait_for_data(struct fs *fs, int fd, int timeout_ms, bool *ret_is_left)
{
	struct pollfd fds[2] = { { .fd = fs->fifo.wake_fd, .events = POLLIN },
				 { .fd = fd, .events = POLLIN } };
	uint64_t raised;
	ssize_t got;

	if (poll(fds, fd < 0 ? 1 : 2, timeout_ms) > 0 && fds[0].revents) {
		got = read(fs->fifo.wake_fd, &raised, sizeof(raised));
		(void)got;
	}
	if (fd >= 0 && fds[1].revents & POLLHUP)
		*ret_is_left = true;
	return !atomic_load(&fs->is_quitting);
}

/* How long somebody may still come who was told that there is a reader. When nobody may, there is
 * none from here on: under one lock, so that the next LOOKUP waits for the next reader. A writer
 * was here: it was the one of the first LOOKUP. */
static int left_ms(struct fs *fs, bool has_writer)
{
	struct fs_fifo *f = &fs->fifo;
	uint64_t now = clock_now(fs->params.clock), end;

	mutex_lock(&f->mu);
	end = f->looked_ns + PATIENCE_NS;
	if (has_writer && f->n_answered <= 1)
		end = now;
	if (now >= end)
		f->is_open = false;
	mutex_unlock(&f->mu);
	return now >= end ? 0 : (int)((end - now) / NS_PER_MS) + 1;
}

/* Reads until the last writer has left and nobody is about to come, or none has come. True when
 * there was one. What one open leaves without an end is a line: the next writer's is another one.
 */
static bool read_writers(struct fs *fs, int fd)
{
	bool has_writer = false, is_left = false, is_running = true, is_last = false;
	char data[4096];

	while (is_running) {
		ssize_t got = read(fd, data, sizeof(data));
		bool is_idle = got < 0 && errno == EAGAIN; /* a writer that has not written */
		bool is_over = got < 0 && !is_idle && errno != EINTR;
		int ms = -1;

		if (is_last && (got > 0 || is_idle)) { /* somebody has come after all: we stay */
			is_last = false;
			answer_lookups(fs, true);
		}
		if (got > 0) {
			has_writer = true;
			take(fs, data, (size_t)got);
			is_running = !atomic_load(&fs->is_quitting);
			continue;
		}
		has_writer = has_writer || is_left || is_idle;
		if ((got == 0 && is_last) || is_over)
			break;
		if (got == 0) {
			end_line(fs);
			ms = left_ms(fs, has_writer);
			is_last = ms == 0; /* and what came before that is read */
		}
		/* Once a writer has left, poll would not wait for the next one. */
		if (got < 0 || !is_last)
			is_running =
				wait_for_data(fs, got == 0 && has_writer ? -1 : fd, ms, &is_left);
	}
	end_line(fs);
	return has_writer;
}

/* Somebody may be waiting to read. */
static void serve_readers(struct fs *fs)
{
	AUTO_FD int fd = open_fifo(fs, O_WRONLY);
	struct buf_writer text;
	ssize_t put = 0;

	if (fd < 0) /* ENXIO: nobody */
		return;
	buf_writer_init(&text);
	if (fs->params.show_order && fs->params.show_order(fs->params.announce_ctx, &text) == 0 &&
	    !text.is_bad)
		put = write(fd, text.data, text.size); /* less than a pipe holds */
	(void)put;
	buf_writer_fini(&text);
}

/* How long until the next look. */
static uint64_t look(struct fs *fs)
{
	int fd = open_fifo(fs, O_RDONLY);
	bool has_writer = false;

	if (fd < 0) {
		log_limited(LOG_LEVEL_DEBUG, "%s/%s/order cannot be opened: %s", fs->mountpoint,
			    FS_VDIR_NAME, strerror(-fd));
		answer_lookups(fs, false);
		return LOOK_NS;
	}
	fs->fifo.n_answered = 0; /* nobody else counts while is_open is false */
	answer_lookups(fs, true);
	has_writer = read_writers(fs, fd);
	mutex_lock(&fs->fifo.mu);
	fs->fifo.is_open = false;
	mutex_unlock(&fs->fifo.mu);
	close(fd);
	if (!has_writer && !atomic_load(&fs->is_quitting))
		serve_readers(fs);
	return has_writer ? SOON_NS : LOOK_NS;
}

static bool is_wanted(struct fs_fifo *f)
{
	bool is_wanted;

	mutex_lock(&f->mu);
	is_wanted = !list_is_empty(&f->lookups);
	mutex_unlock(&f->mu);
	return is_wanted;
}

void *fs_fifo_main(void *arg)
{
	struct fs *fs = arg;
	uint64_t next_ns = 0;
	bool ignored;

	while (!is_wanted(&fs->fifo)) /* nobody knows of it before */
		if (!wait_for_data(fs, -1, -1, &ignored))
			return NULL;
	do {
		uint64_t pause = look(fs);

		next_ns = clock_now(fs->params.clock) + pause;
		while (!atomic_load(&fs->is_quitting) && !is_wanted(&fs->fifo)) {
			uint64_t now = clock_now(fs->params.clock);

			if (now >= next_ns)
				break;
			wait_for_data(fs, -1, (int)((next_ns - now) / NS_PER_MS) + 1, &ignored);
		}
	} while (!atomic_load(&fs->is_quitting));
	return NULL;
}
