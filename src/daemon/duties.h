/* SPDX-License-Identifier: Apache-2.0 */
/* What a mount does again and again, on one thread (cl-duties) with a table of it. */
#ifndef CLAIRFS_DAEMON_DUTIES_H
#define CLAIRFS_DAEMON_DUTIES_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/err.h"

/* One duty holds up all others for as long as it takes, so none may wait for the source, for a
 * filesystem or for another thread that does, nor compute for more than milliseconds. What must has
 * a thread of its own: for good if that is what it does all the time (revalidate, cl-store,
 * cl-stall), or one that the duty starts and leaves alone, as long as it runs (metrics-file, which
 * is not started again before it is back). */
struct duty {
	const char *name;
	uint64_t first_ns, period_ns; /* from the start; between two times */
	/* revents: of its descriptor when that called it before its time, else 0. Returns when it
	 * wants to be done again, in ns from its end; 0: after its period. */
	uint64_t (*run)(void *ctx, short revents);
	void *ctx;
	/* NULL, or a descriptor whose POLLPRI calls it; -1: none now. Asked before each wait. */
	int (*listen)(void *ctx);
};
#define DUTIES_MAX 16

/* --- when what is due: pure --- */
struct duty_times {
	uint64_t next_ns[DUTIES_MAX];
	uint32_t n;
};
void duty_times_begin(struct duty_times *t, const struct duty *duties, uint32_t n, uint64_t now_ns);
/* The one that has been due for longest, or -1. */
int duty_times_due(const struct duty_times *t, uint64_t now_ns);
/* Until the first is due; 0: one is. UINT64_MAX: there are none. */
uint64_t duty_times_wait(const struct duty_times *t, uint64_t now_ns);
/* It was done, and is to be done again in `in_ns`. */
void duty_times_done(struct duty_times *t, uint32_t at, uint64_t now_ns, uint64_t in_ns);

/* --- the thread --- */
struct duties;
/* n: at most DUTIES_MAX; copied. What they refer to must live until duties_stop. */
int duties_start(const struct duty *duties, uint32_t n, struct duties **ret,
		 struct err *err) MUST_USE;
/* Ends the thread: after the duty that it is at, without waiting for any period. NULL is fine. */
void duties_stop(struct duties *take_duties);

#endif
