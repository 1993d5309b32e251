/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to a mount, through its own files. A mount whose daemon hangs would hang whoever
 * touches it, and nothing can end that, so a child process touches it, writes what it got into a
 * pipe, and is given up on after a while. The child does nothing but system calls and exits. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clairfs/base/buf.h"
#include "clairfs/base/clock.h"
#include "clairfs/hint.h"
#include "clairfs/order.h"
#include "client_priv.h"

#define VFILE_PATIENCE_NS (10 * NS_PER_S)
#define ANNOUNCE_PATIENCE_NS (600 * NS_PER_S) /* a list of a billion lines has to be read */

/* How a child ends. */
enum { CHILD_OK, CHILD_FAILED, CHILD_DEAD_MOUNT, CHILD_REFUSED, CHILD_SAID_NO, CHILD_UNREADABLE };

struct question {
	const char *mountpoint;
	const char *text; /* name of a virtual file, or a spec */
	int (*child)(const struct question *q, int out);
	uint64_t patience_ns;
	/* A list that text names, or NULL, and its keys behind the path: "" or ":key=value"... */
	const char *list_path, *list_keys;
};

static int read_vfile_child(const struct question *q, int out)
{
	char path[PATH_MAX + 64], chunk[65536];
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "%s/.clairfs/%s", q->mountpoint, q->text);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOTCONN ? CHILD_DEAD_MOUNT
		       : errno == EACCES ? CHILD_REFUSED
					 : CHILD_FAILED;
	while ((got = read(fd, chunk, sizeof(chunk))) > 0)
		if (write(out, chunk, (size_t)got) != got)
			return CHILD_FAILED;
	return got < 0 ? CHILD_UNREADABLE : CHILD_OK;
}

static int say(int out, const char *line, int end)
{
	size_t n = strlen(line);

	return write(out, line, n) == (ssize_t)n ? end : CHILD_FAILED;
}

static int say_errno(int out, const char *what)
{
	char line[PATH_MAX + 128];

	snprintf(line, sizeof(line), "%s: %s", what, strerror(errno));
	return say(out, line, CHILD_SAID_NO);
}

static uint32_t width_flag(const char *path)
{
	size_t n = strlen(path);

	if (n >= 4 && strcmp(path + n - 4, ".u32") == 0)
		return CLAIRFS_LIST_U32;
	return n >= 4 && strcmp(path + n - 4, ".u64") == 0 ? CLAIRFS_LIST_U64 : 0;
}

/* An older mount knows no names, and is told without. */
static int send_part(int control, struct clairfs_list *part)
{
	int rc = ioctl(control, CLAIRFS_IOC_LIST, part) < 0 ? -errno : 0;

	if (rc != -EPROTO)
		return rc;
	part->flags &= ~CLAIRFS_LIST_NAMED;
	return ioctl(control, CLAIRFS_IOC_LIST, part) < 0 ? -errno : 0;
}

/* The file's bytes in parts; part->text is the answer. 0 or a negative errno. */
static int send_parts(int control, int file, uint32_t last_flags, const struct question *q,
		      struct clairfs_list *part)
{
	const char *keys = q->list_keys + (*q->list_keys == ':');
	int rc;

	*part = (struct clairfs_list){ .version = CLAIRFS_LIST_VERSION_BYTES };
	client_job_name(q->text, part->job);
	while (!(part->flags & CLAIRFS_LIST_LAST)) {
		size_t used = 0;
		ssize_t got = 1;

		while (got > 0 && used < sizeof(part->sample)) {
			got = read(file, (char *)part->sample + used, sizeof(part->sample) - used);
			if (got < 0)
				return -errno;
			used += (size_t)got;
		}
		part->count = (uint32_t)used;
		part->flags = CLAIRFS_LIST_BYTES | CLAIRFS_LIST_NAMED | (got == 0 ? last_flags : 0);
		snprintf(part->text, sizeof(part->text), "%s", got == 0 ? keys : "");
		rc = send_part(control, part);
		if (rc < 0)
			return rc;
		if (part->status < 0)
			break;
	}
	part->text[sizeof(part->text) - 1] = '\0';
	return 0;
}

/* Reads a list with our rights, and hands it over. */
static int send_list(const struct question *q, int out)
{
	const char *keys = q->list_keys + (*q->list_keys == ':');
	uint32_t flags = CLAIRFS_LIST_LAST | width_flag(q->list_path);
	static struct clairfs_list part;
	char control[PATH_MAX + 64];
	AUTO_FD int file = open(q->list_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	AUTO_FD int fd = -1;
	struct stat st;

	if (file < 0 || fstat(file, &st) < 0)
		return say_errno(out, q->list_path);
	if (!S_ISREG(st.st_mode))
		return say(out, "the list is not a regular file", CHILD_SAID_NO);
	if (strlen(keys) >= sizeof(part.text))
		return say(out, "the keys behind the list's path are too long", CHILD_SAID_NO);
	snprintf(control, sizeof(control), "%s/%s", q->mountpoint, CLAIRFS_HINT_FILE);
	fd = open(control, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return CHILD_FAILED;
	errno = -send_parts(fd, file, flags, q, &part);
	if (errno)
		return say_errno(out, "handing over the list");
	return say(out, part.text, part.status < 0 ? CHILD_SAID_NO : CHILD_OK);
}

static int announce_child(const struct question *q, int out)
{
	struct clairfs_hint hint = { .version = CLAIRFS_HINT_VERSION };
	int rc;

	/* A relative path is meant from here, not from the source. */
	if (q->list_path && *q->list_path != '/')
		return send_list(q, out);
	snprintf(hint.text, sizeof(hint.text), "%s", q->text);
	client_job_name(q->text, hint.job);
	rc = clairfs_hint_send(q->mountpoint, &hint);
	if (rc < 0)
		return rc == -ENOTCONN ? CHILD_DEAD_MOUNT
		       : rc == -EACCES ? CHILD_REFUSED
				       : CHILD_FAILED;
	if (hint.status == -EXDEV && q->list_path)
		return send_list(q, out);
	return say(out, hint.text, hint.status < 0 ? CHILD_SAID_NO : CHILD_OK);
}

static int collect(int fd, uint64_t patience_ns, struct buf_writer *w)
{
	uint64_t end = clock_now(clock_monotonic()) + patience_ns;

	for (;;) {
		struct pollfd pfd = { .fd = fd, .events = POLLIN };
		uint64_t now = clock_now(clock_monotonic());
		char chunk[65536];
		ssize_t got;

		if (now >= end || poll(&pfd, 1, (int)((end - now) / NS_PER_MS) + 1) == 0)
			return -ETIMEDOUT;
		got = read(fd, chunk, sizeof(chunk));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : 0;
		buf_put_bytes(w, chunk, (size_t)got);
		if (w->is_bad)
			return -ENOMEM;
	}
}

/* Runs the child; its text goes to w. *ret_end: how it ended. */
static int ask_question(const struct question *q, struct buf_writer *w, int *ret_end,
			struct err *err)
{
	int pipe_fds[2], status = 0, rc;
	pid_t pid;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return err_set_errno(err, -errno, "pipe");
	pid = fork();
	if (pid == 0)
		_exit(q->child(q, pipe_fds[1]));
	close(pipe_fds[1]);
	if (pid < 0) {
		close(pipe_fds[0]);
		return err_set_errno(err, -errno, "fork");
	}
	rc = collect(pipe_fds[0], q->patience_ns, w);
	close(pipe_fds[0]);
	if (rc == -ETIMEDOUT) {
		kill(pid, SIGKILL); /* it may be stuck in the kernel: do not wait for it */
		return err_set(err, rc,
			       "%s does not answer: its daemon hangs or waits for the source",
			       q->mountpoint);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	buf_put_u8(w, 0);
	if (rc < 0 || w->is_bad)
		return err_set_errno(err, rc < 0 ? rc : -ENOMEM, "asking %s", q->mountpoint);
	*ret_end = WIFEXITED(status) ? WEXITSTATUS(status) : CHILD_FAILED;
	return 0;
}

static int answer(const struct question *q, struct buf_writer *w, struct err *err)
{
	int end = CHILD_FAILED, rc = ask_question(q, w, &end, err);

	if (rc < 0)
		return rc;
	switch (end) {
	case CHILD_OK:
		return 0;
	case CHILD_DEAD_MOUNT:
		return err_set(err, -ENOTCONN, "%s is a dead mount: run clairfs umount",
			       q->mountpoint);
	case CHILD_REFUSED:
		return err_set(err, -EACCES, "%s: only the user who mounted it may look inside",
			       q->mountpoint);
	case CHILD_SAID_NO:
		return err_set(err, -EINVAL, "%s", (const char *)w->data);
	case CHILD_UNREADABLE:
		return err_set(err, -EIO, "%s/.clairfs/%s could not be read", q->mountpoint,
			       q->text);
	default:
		return err_set(err, -ENOENT, "%s is not a clairfs mount", q->mountpoint);
	}
}

static int answer_text(const struct question *q, char **ret, struct err *err)
{
	struct buf_writer w;
	int rc;

	buf_writer_init(&w);
	rc = answer(q, &w, err);
	if (rc < 0) {
		buf_writer_fini(&w);
		return rc;
	}
	*ret = (char *)w.data; /* from malloc, and w is not used again */
	return 0;
}

int mounts_ask_vfile(const char *mountpoint, const char *name, uint64_t patience_ns, char **ret,
		     struct err *err)
{
	struct question q = { .mountpoint = mountpoint,
			      .text = name,
			      .child = read_vfile_child,
			      .patience_ns = patience_ns };

	return answer_text(&q, ret, err);
}

int mounts_read_vfile(const char *mountpoint, const char *name, char **ret, struct err *err)
{
	return mounts_ask_vfile(mountpoint, name, VFILE_PATIENCE_NS, ret, err);
}

int mounts_announce(const char *mountpoint, const char *spec, char **ret_line, struct err *err)
{
	struct question q = { .mountpoint = mountpoint,
			      .text = spec,
			      .child = announce_child,
			      .patience_ns = ANNOUNCE_PATIENCE_NS };
	struct order_spec *parsed = NULL;
	int rc;

	if (strlen(spec) >= CLAIRFS_HINT_TEXT)
		return err_set(err, -EINVAL, "the order is longer than %d bytes",
			       CLAIRFS_HINT_TEXT - 1);
	if (order_spec_parse(spec, &parsed, NULL) == 0) { /* else the mount says what is wrong */
		q.list_path = order_spec_list_path(parsed);
		q.list_keys = order_spec_list_keys(parsed);
	}
	rc = answer_text(&q, ret_line, err);
	order_spec_free(parsed);
	return rc;
}
