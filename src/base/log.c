/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging. A line is formatted in a local buffer and leaves with one write(2), so that lines of
 * several threads do not mix and no lock is needed. Control characters become '?': a file name with
 * a newline must not forge a second line. The level and the destinations are the only globals of
 * this module. errno is preserved, so that a caller may log between a failed call and its use of
 * errno. Must never be called per read: see log_limited.
 */
#include "clairfs/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <syslog.h>

#include "clairfs/base/clock.h"

static _Atomic int log_level_max = LOG_LEVEL_INFO;
static _Atomic bool log_is_syslog, log_is_shown;

static const struct {
	const char *name;
	int priority;
} log_levels[] = {
	[LOG_LEVEL_ERROR] = { "error", LOG_ERR },
	[LOG_LEVEL_WARN] = { "warning", LOG_WARNING },
	[LOG_LEVEL_INFO] = { "info", LOG_INFO },
	[LOG_LEVEL_DEBUG] = { "debug", LOG_DEBUG },
};

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&log_level_max, (int)level, memory_order_relaxed);
}

void log_use_syslog(void)
{
	openlog("clairfs", LOG_PID | LOG_NDELAY, LOG_DAEMON);
	atomic_store(&log_is_syslog, true);
}

void log_show_warnings(bool is_shown)
{
	atomic_store(&log_is_shown, is_shown);
}

static void log_write(const char *line, size_t size)
{
	while (size > 0) {
		ssize_t n = write(STDERR_FILENO, line, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return; /* nobody left to tell */
		line += n;
		size -= (size_t)n;
	}
}

void log_line(enum log_level level, const char *fmt, ...)
{
	int saved_errno = errno;
	char line[1280]; /* a full struct err plus the head */
	size_t head, size;
	va_list ap;

	if ((int)level > atomic_load_explicit(&log_level_max, memory_order_relaxed))
		return;
	head = (size_t)snprintf(line, sizeof(line), "clairfs: %s: ", log_levels[level].name);
	va_start(ap, fmt);
	vsnprintf(line + head, sizeof(line) - head - 1, fmt, ap); /* leaves room for the newline */
	va_end(ap);
	size = strlen(line);
	for (size_t i = head; i < size; i++) {
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = '?';
	}
	if (atomic_load(&log_is_syslog))
		syslog(log_levels[level].priority, "%s", line + head);
	if (!atomic_load(&log_is_syslog) || (atomic_load(&log_is_shown) && level == LOG_LEVEL_WARN)) {
		line[size++] = '\n';
		log_write(line, size);
	}
	errno = saved_errno;
}

bool log_may(_Atomic uint64_t *state)
{
	uint64_t now = clock_now(clock_monotonic());
	uint64_t last = atomic_load_explicit(state, memory_order_relaxed);

	if (last != 0 && now - last < NS_PER_S)
		return false;
	/* Of several threads that get here at once, one wins and logs. */
	return atomic_compare_exchange_strong_explicit(state, &last, now, memory_order_relaxed,
						       memory_order_relaxed);
}
