/* SPDX-License-Identifier: Apache-2.0 */
/* A tape: all that plans are told and all that they decide, in a file of text lines, so that it can
 * be told to a fresh plan once more (tests/lib/tape_replay.h) and a mount be compared with the
 * simulator. For who looks for a fault; nothing is written unless somebody asks for it. */
#ifndef CLAIRFS_TAPE_H
#define CLAIRFS_TAPE_H

#include "clairfs/base/err.h"
#include "clairfs/plan.h"

/* Lines are words and numbers between single blanks; the second word is the number of the plan:
 *
 *	clairfs-tape 4
 *	sizes PLAN COUNT BYTES                so many more samples have this size
 *	order PLAN N START_EPOCH EPOCHS START_STEP WORLD BATCH WORKERS PREFETCH IS_SAME
 *	      MAY_BE_LEFT N_RANKS RANK... N_WORDS WORD... SAMPLES UNITS N_WORDS WORD...
 *	                                      what the next line of this plan is about
 *	plan PLAN N NAME=VALUE...             made of these sizes, the order, and TAPE_PARAMS
 *	event PLAN NOW KIND UNIT STATUS BYTES LATENCY EPOCH JOB
 *	epoch PLAN NOW STATUS EPOCH JOB VERSION -     the answer without an epoch
 *	epoch PLAN NOW STATUS EPOCH JOB VERSION LENGTH START UNIT...
 *	step PLAN NOW WAKE
 *	action PLAN KIND UNIT IS_PINNED IS_ADOPTED POSITION PASS EPOCH JOB VERSION IS_LEFT MAY_BE_WHOLE
 *	enough PLAN                           no more actions
 *	memory PLAN ARENA STAGE
 *	join PLAN RESULT                      plan_add_job of the last order
 *	change PLAN JOB RESULT                plan_change_job to the last order
 *	leave PLAN JOB
 *	free PLAN
 */
#define TAPE_MAGIC "clairfs-tape 4"
/* The numbers in struct plan_params: all but n. */
#define TAPE_PARAMS(X)                                                                             \
	X(arena_bytes)                                                                             \
	X(spare_bytes)                                                                             \
	X(stage_bytes)                                                                             \
	X(store_bytes)                                                                             \
	X(pin_rule)                                                                                \
	X(inflight_min)                                                                            \
	X(inflight_max)                                                                            \
	X(source_bytes_per_s)                                                                      \
	X(span)
extern const char *const tape_event_names[];  /* [enum plan_event_kind], NULL-terminated */
extern const char *const tape_action_names[]; /* [enum plan_action_kind], NULL-terminated */

struct tape;
/* A new file, of mode 0600; what is there already is left alone (-EEXIST). */
int tape_open(const char *path, struct tape **ret, struct err *err) MUST_USE;
/* From the first call of a plan on, which was made of these. Any thread; -ENOMEM. The tape must
 * outlive the plan. */
int tape_record(struct tape *tape, struct plan *plan, const struct plan_params *params) MUST_USE;
/* Says in the log when not all of it could be written. NULL allowed. */
void tape_close(struct tape *take_tape);

#endif
