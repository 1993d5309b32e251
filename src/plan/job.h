/* SPDX-License-Identifier: Apache-2.0 */
/* One job that reads samples in an order of its own: the two passes that are loaded, where its
 * readers are, and whether its reads are where the order says. Part of plan_priv.h, which says how
 * it belongs together; nothing else includes it. */
#ifndef CLAIRFS_PLAN_JOB_H
#define CLAIRFS_PLAN_JOB_H

#include "group.h"
#include "horizon.h"
#include "item.h"

#define SCORE_READS 256u /* reads that decide */

/* Of one read: how much earlier in the pass it came than a guess would have, against the middle of
 * what was not read (in 1/65536 of it), and the variance of that for guesses. */
struct proof {
	int32_t early;
	uint32_t variance;
};

struct plan_job {
	uint32_t index; /* in plan->jobs */
	struct order_info info;
	struct slot slots[2];
	uint32_t cur; /* the slot being read; the other one is the next pass */
	/* The epoch that was read before, until the reads prove that it is over: a job may read it
	 * once more. NULL: not kept. */
	struct order_epoch *before;

	enum plan_state state;
	enum plan_why why, note; /* note: what the last re-synchronisation found out */
	bool is_confirmed, is_span_given, is_repeat, has_epochs_end;
	uint32_t n_outside; /* samples that the job does not number */
	uint64_t span, span_cap;
	uint64_t reader_span; /* without what allows for readers that are not in step */
	uint32_t distance[64], n_distance; /* histogram of position - low, to learn the span */

	/* score.c: the last reads that counted */
	uint32_t history[SCORE_READS], history_count, history_head;
	uint64_t verdict[SCORE_READS / 64]; /* ring of bits: as expected */
	uint32_t verdict_count, verdict_head, verdict_in;
	uint64_t recent_out; /* a bit per read, the last one lowest */
	/* What of the order was read and what was left out of it, halved now and then. */
	uint32_t kept_positions, left_positions;
	bool is_shared; /* another reader is at work; the order is followed all the same */
	/* proof.c: whether the last reads can be told from reads in any order */
	struct proof proof[SCORE_READS]; /* ring */
	uint32_t proof_count, proof_head;
	int64_t proof_early;
	uint64_t proof_variance;
	bool is_proven, is_unprovable;
	uint32_t echo;        /* how much the job opens files again, of 1024 */
	uint32_t next_streak; /* reads of the next pass since one of the current pass */
	uint32_t blind_reads; /* reads left that prove nothing, after a BLIND */
	uint32_t pending[SCORE_READS],
		n_pending; /* opened before the epoch they belong to was known */
	uint32_t *tail;
	uint32_t n_tail;

	/* resync.c, epochs.c */
	bool is_searching, is_asked, has_failed_epoch;
	uint32_t candidate, epoch_tries;
	uint64_t far_next, far_round; /* while lost: later epochs, so many at a time */
	uint64_t asked_epoch, ask_not_before_ns;
	uint64_t reads, sync_at, search_at, search_pause; /* reads: that counted, ever */

	struct horizon horizon;
	struct group group;

	/* stage.c */
	uint64_t stage_end, stage_sum; /* stage_end: virtual position */
	bool is_stage_dirty;

	uint64_t mismatches, resyncs;
	uint64_t outside, outside_run, inside_run; /* runs: of reads outside of the order, and of
						    * others since */
	uint64_t lost, lost_opened;                /* times; opened at the last one */
};

#endif
