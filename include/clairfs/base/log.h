/* SPDX-License-Identifier: Apache-2.0 */
/* Logging: one line on stderr or syslog. Nothing is logged per read; repeated events use
 * log_limited. Any thread. */
#ifndef CLAIRFS_BASE_LOG_H
#define CLAIRFS_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/cleanup.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level level);
/* Sends lines to syslog (facility daemon, ident "clairfs") instead of stderr. */
void log_use_syslog(void);
/* While it is true warnings that go to syslog go to stderr as well: somebody is there to read them. */
void log_show_warnings(bool is_shown);
void log_line(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* True at most once per second and call site; *state starts as 0. */
bool log_may(_Atomic uint64_t *state);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_limited(level, ...)                                                                    \
	do {                                                                                       \
		static _Atomic uint64_t log_limited_state_;                                        \
		if (log_may(&log_limited_state_))                                                  \
			log_line(level, __VA_ARGS__);                                              \
	} while (0)

#endif
