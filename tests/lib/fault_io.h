/* SPDX-License-Identifier: Apache-2.0 */
/* An I/O engine for tests that stacks on another one and makes jobs fail, end early, come late or
 * wait. The product has no hooks for tests; faults are a layer.
 *
 *	struct io *io = fault_io_new(below);
 *	struct fault_io_rule rule = { FAULT_IO_FAIL, .countdown = 2, .repeat = 1, .status = -EIO };
 *	fault_io_set(io, &rule);
 *	... the third job from now fails; fault_io_fired(io) says whether it came to that ...
 *	io_free(io);
 */
#ifndef CLAIRFS_TESTS_FAULT_IO_H
#define CLAIRFS_TESTS_FAULT_IO_H

#include <stdint.h>

#include "clairfs/io.h"

enum fault_io_kind {
	FAULT_IO_FAIL,    /* done() with status; nothing is read */
	FAULT_IO_SHORTEN, /* at most `length` bytes are read, as if the file ended there */
	FAULT_IO_DELAY,   /* given to the engine below `delay_ns` later */
	FAULT_IO_HOLD,    /* waits for fault_io_resume; wants a `repeat`, or it is hit again */
};

struct fault_io_rule {
	enum fault_io_kind kind;
	unsigned countdown; /* jobs let through before the first that is hit */
	unsigned repeat;    /* jobs that are hit from then on; 0 = all */
	int status;         /* negative errno */
	uint32_t length;
	uint64_t delay_ns;
};

/* Takes over `take_below`: io_free frees it too, after it has let everything through that waits.
 * Bails out of the test program when out of memory. */
struct io *fault_io_new(struct io *take_below);
/* Replaces the rule and starts its countdown and fault_io_fired afresh; NULL: no faults. Any
 * thread. */
void fault_io_set(struct io *io, const struct fault_io_rule *rule);
/* Jobs hit since the rule was set. */
unsigned fault_io_fired(struct io *io);
/* Jobs submitted in all. */
unsigned fault_io_seen(struct io *io);
/* From now on jobs wait here. They meet the rule when they are let through. */
void fault_io_pause(struct io *io);
/* Lets them through in the order they came, urgent or not. */
void fault_io_resume(struct io *io);
/* Waits until n jobs wait here: the way for a test to know that what it started has come to its
 * read. */
void fault_io_wait_held(struct io *io, unsigned n);

#endif
