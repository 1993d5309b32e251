/* SPDX-License-Identifier: Apache-2.0 */
/* Tells fresh plans what a tape says the recorded ones were told, and compares what they decide:
 * every action, in order, and when they want to be called again. A plan is pure, so a difference
 * means that it was told something that is not on the tape, or keeps state outside of itself. */
#ifndef CLAIRFS_TESTS_TAPE_REPLAY_H
#define CLAIRFS_TESTS_TAPE_REPLAY_H

#include <stdint.h>

#include "clairfs/base/err.h"

struct tape_counts {
	uint64_t plans, events, steps, actions;
};

/* 0: all is as it was. -EBADE: the first difference, with its line; -EINVAL: no tape; errors of the
 * file. A last line without its end is left out: the daemon was killed. */
int tape_replay(const char *path, struct tape_counts *ret, struct err *err) MUST_USE;

#endif
