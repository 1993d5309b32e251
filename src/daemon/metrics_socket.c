/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics on a unix socket, over as much of HTTP as `curl --unix-socket` and proxies need:
 * GET or HEAD of /metrics, one answer per connection. No TCP: several mounts of a node would fight
 * for a port, and everybody on the node could ask.
 *
 * Whoever connects is hostile: at most CLIENTS at once, the others wait in the kernel's
 * queue; a request has to be here within REQUEST_NS and within 4 KiB, its answer taken within
 * ANSWER_NS. Nothing of a request but its first line is looked at. One thread with poll; nobody can
 * make it wait for one client.
 *
 * The file: mode 0600 from the beginning. One that is left from a killed daemon, where nobody
 * answers, is replaced; anything else that is in the place is left alone. At the end it is removed
 * if it is still ours.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "clairfs/base/thr.h"
#include "publish.h"

enum { CLIENTS = 8, QUEUE = 64, REQUEST_BYTES = 4096 };
#define REQUEST_NS (2 * NS_PER_S)
#define ANSWER_NS (5 * NS_PER_S)
#define PAUSE_NS (1 * NS_PER_S)

struct client {
	int fd; /* -1: free */
	uint64_t deadline_ns;
	bool is_answering;
	size_t got, sent;
	struct buf_writer out;
	char in[REQUEST_BYTES + 1];
};

struct metrics_socket {
	struct thr thr;
	struct publish_source source;
	int fd, stop_fd;
	char *path;
	uint64_t pause_until_ns; /* out of descriptors: nobody is taken until then */
	dev_t dev;
	ino_t ino;
	struct client clients[CLIENTS];
};

int metrics_socket_path(const char *option, char **ret, struct err *err)
{
	char cwd[PATH_MAX];
	struct sockaddr_un addr;

	if (*option == '/')
		*ret = strdup(option);
	else if (!getcwd(cwd, sizeof(cwd)))
		return err_set_errno(err, -errno, "current directory");
	else if (asprintf(ret, "%s/%s", cwd, option) < 0)
		*ret = NULL;
	if (!*ret)
		return err_set(err, -ENOMEM, "out of memory");
	if (strlen(*ret) < sizeof(addr.sun_path))
		return 0;
	free(TAKE(*ret));
	return err_set(err, -EINVAL, "option metrics_socket: a path has %zu bytes at most",
		       sizeof(addr.sun_path) - 1);
}

static void client_close(struct client *c)
{
	if (c->fd >= 0)
		close(take_fd(&c->fd));
	buf_writer_fini(&c->out);
}

static void answer(struct metrics_socket *s, struct client *c, const char *status, bool has_body,
		   bool is_head)
{
	struct buf_writer body;

	buf_writer_init(&body);
	if (!has_body)
		buf_printf(&body, "%s\n", status);
	else if (s->source.render(s->source.ctx, "", &body) < 0)
		body.is_bad = true;
	if (body.is_bad) {
		buf_writer_fini(&body);
		client_close(c);
		return;
	}
	buf_printf(&c->out,
		   "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
		   "Content-Length: %zu\r\nConnection: close\r\n\r\n",
		   status, body.size);
	if (!is_head)
		buf_put_bytes(&c->out, body.data, body.size);
	buf_writer_fini(&body);
	if (c->out.is_bad)
		client_close(c);
	c->is_answering = true;
	c->deadline_ns = clock_now(clock_monotonic()) + ANSWER_NS;
}

/* The whole head of a request is in c->in, with a zero behind. */
static void take_request(struct metrics_socket *s, struct client *c)
{
	char *save = NULL, *method, *target, *version;

	c->in[strcspn(c->in, "\r\n")] = 0;
	method = strtok_r(c->in, " ", &save);
	target = strtok_r(NULL, " ", &save);
	version = strtok_r(NULL, " ", &save);
	if (!method || !target || !version || strncmp(version, "HTTP/1.", 7) != 0 ||
	    strtok_r(NULL, " ", &save)) {
		answer(s, c, "400 Bad Request", false, false);
		return;
	}
	target[strcspn(target, "?#")] = 0;
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		answer(s, c, "405 Method Not Allowed", false, false);
	else if (strcmp(target, "/metrics") != 0 && strcmp(target, "/") != 0)
		answer(s, c, "404 Not Found", false, *method == 'H');
	else
		answer(s, c, "200 OK", true, *method == 'H');
}

static void client_read(struct metrics_socket *s, struct client *c)
{
	ssize_t n = recv(c->fd, c->in + c->got, REQUEST_BYTES - c->got, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		client_close(c);
		return;
	}
	c->got += (size_t)n;
	c->in[c->got] = 0;
	if (memmem(c->in, c->got, "\r\n\r\n", 4) || memmem(c->in, c->got, "\n\n", 2))
		take_request(s, c);
	else if (c->got == REQUEST_BYTES)
		answer(s, c, "431 Request Header Fields Too Large", false, false);
}

static void client_write(struct client *c)
{
	ssize_t n = send(c->fd, c->out.data + c->sent, c->out.size - c->sent,
			 MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		c->sent += (size_t)n;
	if (n <= 0 || c->sent == c->out.size)
		client_close(c);
}

static void take_client(struct metrics_socket *s)
{
	int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct client *c = s->clients;

	if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
		s->pause_until_ns = clock_now(clock_monotonic()) + PAUSE_NS;
	if (fd < 0)
		return;
	while (c->fd >= 0)
		c++; /* there is one: else the listener was not polled */
	memset(c, 0, offsetof(struct client, in));
	c->fd = fd;
	buf_writer_init(&c->out);
	c->deadline_ns = clock_now(clock_monotonic()) + REQUEST_NS;
}

/* Closes who is too late. Returns how long poll may wait, in ms, -1 for ever. */
static int end_late(struct metrics_socket *s)
{
	uint64_t now = clock_now(clock_monotonic()), next = UINT64_MAX;

	for (int i = 0; i < CLIENTS; i++) {
		struct client *c = &s->clients[i];

		if (c->fd >= 0 && c->deadline_ns <= now)
			client_close(c);
		if (c->fd >= 0)
			next = MIN(next, c->deadline_ns);
	}
	if (s->pause_until_ns > now)
		next = MIN(next, s->pause_until_ns);
	else
		s->pause_until_ns = 0;
	return next == UINT64_MAX ? -1 : (int)((next - now) / NS_PER_MS) + 1;
}

static void *socket_main(void *arg)
{
	struct metrics_socket *s = arg;

	for (;;) {
		struct pollfd fds[CLIENTS + 2];
		int timeout = end_late(s), n_free = 0;

		for (int i = 0; i < CLIENTS; i++) {
			struct client *c = &s->clients[i];

			n_free += c->fd < 0;
			fds[i] = (struct pollfd){ .fd = c->fd,
						  .events = c->is_answering ? POLLOUT : POLLIN };
		}
		fds[CLIENTS] = (struct pollfd){ .fd = n_free && !s->pause_until_ns ? s->fd : -1,
						.events = POLLIN };
		fds[CLIENTS + 1] = (struct pollfd){ .fd = s->stop_fd, .events = POLLIN };
		if (poll(fds, CLIENTS + 2, timeout) <= 0)
			continue;
		if (fds[CLIENTS + 1].revents)
			return NULL;
		for (int i = 0; i < CLIENTS; i++) {
			struct client *c = &s->clients[i];

			if (c->fd < 0 || !fds[i].revents)
				continue;
			if (c->is_answering)
				client_write(c);
			else
				client_read(s, c);
		}
		if (fds[CLIENTS].revents & POLLIN)
			take_client(s);
	}
}

/* Removes a socket where nobody listens any more. */
static void remove_dead(const struct sockaddr_un *addr)
{
	AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat st;

	if (fd >= 0 && lstat(addr->sun_path, &st) == 0 && S_ISSOCK(st.st_mode) &&
	    st.st_uid == geteuid() &&
	    connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0 && errno == ECONNREFUSED)
		unlink(addr->sun_path);
}

static int listen_at(struct metrics_socket *s)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct stat st;

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", s->path);
	s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->fd < 0 || s->stop_fd < 0)
		return -errno;
	if (fchmod(s->fd, 0600) < 0) /* bind gives this mode to the file */
		return -errno;
	remove_dead(&addr);
	if (bind(s->fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
		return -errno;
	if (lstat(s->path, &st) == 0) {
		s->dev = st.st_dev;
		s->ino = st.st_ino;
	}
	return listen(s->fd, QUEUE) < 0 ? -errno : 0;
}

static void socket_free(struct metrics_socket *s)
{
	struct stat st;

	for (int i = 0; i < CLIENTS; i++)
		client_close(&s->clients[i]);
	if (s->ino && lstat(s->path, &st) == 0 && st.st_dev == s->dev && st.st_ino == s->ino)
		unlink(s->path);
	if (s->fd >= 0)
		close(s->fd);
	if (s->stop_fd >= 0)
		close(s->stop_fd);
	free(s->path);
	free(s);
}

int metrics_socket_start(const char *path, const struct publish_source *source,
			 struct metrics_socket **ret, struct err *err)
{
	struct metrics_socket *s = calloc(1, sizeof(*s));
	int rc = -ENOMEM;

	if (!s)
		return err_set(err, -ENOMEM, "out of memory");
	s->source = *source;
	s->fd = s->stop_fd = -1;
	for (int i = 0; i < CLIENTS; i++)
		s->clients[i].fd = -1;
	s->path = strdup(path);
	if (s->path)
		rc = listen_at(s);
	if (rc < 0)
		rc = err_set_errno(err, rc, "metrics_socket: %s", path);
	else
		rc = thr_start(&s->thr, "metrics-socket", socket_main, s, err);
	if (rc < 0) {
		socket_free(s);
		return rc;
	}
	*ret = s;
	return 0;
}

void metrics_socket_stop(struct metrics_socket *s)
{
	uint64_t one = 1;
	ssize_t put;

	if (!s)
		return;
	put = write(s->stop_fd, &one, sizeof(one)); /* fails only when it is raised */
	(void)put;
	thr_join(&s->thr);
	socket_free(s);
}
