/* SPDX-License-Identifier: Apache-2.0 */
/* One job that reads units in an order of its own: the two passes that are loaded, where its
 * readers are, and whether its reads are where the order says. Part of plan_priv.h, which says how
 * it belongs together; nothing else includes it. */
#ifndef CLAIRFS_PLAN_JOB_H
#define CLAIRFS_PLAN_JOB_H

#include "group.h"
#include "horizon.h"
#include "item.h"
#include "valid.h"
#include "waste.h"

/* A key is one more than a place: a position, in slots[0] or, with the bit, slots[1]; or from
 * KEY_VALID on one in slots[2]. So memory that was never written to is keys of nothing. */
#define NO_KEY 0u
#define KEY_SLOT1 (1u << 31)
#define KEY_VALID (UINT32_MAX - 0x3ffff)
#define LENGTH_MAX (KEY_VALID - KEY_SLOT1) /* of an epoch */
#define SLOTS 3u
#define SCORE_READS 256u /* reads that decide */

/* Of one read: how much earlier in the pass it came than a guess would have, against the middle of
 * what was not read (in 1/65536 of it), and the variance of that for guesses. */
struct evidence {
	int32_t early;
	uint32_t variance;
};

/* Positions consumed per second, smoothed; pauses of the job do not count. */
struct pace {
	uint64_t since_ns, reads;
	double rate;
};

struct plan_job {
	uint32_t index; /* in plan->jobs, as long as it is there */
	/* In plan->keyed, as long as units may have keys of it; NO_HOME: all places are taken by
	 * others that were there before, and no epoch is computed for it before one is free. */
	uint32_t home;
	/* How many jobs had this index before: an epoch that is computed for one of those is
	 * nobody's when it comes. */
	uint32_t version;
	struct order_info info;
	/* Two passes; and the validation set that is expected between them, empty when none is. */
	struct slot slots[SLOTS];
	uint32_t cur; /* the slot being read, 0 or 1; the other one is the next pass */
	/* The epoch that was read before, until the reads prove that it is over: a job may read it
	 * once more. NULL: not kept. */
	struct order_epoch *before;
	uint32_t *key;        /* [n] of its units; NULL: they are in the items */
	uint32_t key_ready;   /* those below have memory */
	uint64_t *unnumbered; /* bitmap; NULL: none */
	uint64_t *inner;      /* bitmap: not the first unit of its sample; NULL: each is a sample */
	bool is_over;         /* not planned for any more; its keys are estimates until rekey.c
			       * has come by */
	bool is_ended;        /* and nobody asks for it: it goes with its last key */
	struct plan_job *next_buried;
	uint32_t rekeyed;     /* units looked at since it is over */
	uint64_t pushed_at;   /* likewise positions, of those that were pushed */
	uint64_t told_opened; /* plan->opened when it was added */
	bool is_heir;         /* there was something in the arena then */
	uint64_t doubt_pages; /* fetched before the order was confirmed */
	struct pace pace;

	enum plan_state state;
	enum plan_why why, note; /* note: what the last re-synchronisation found out */
	bool is_confirmed, is_span_given, is_repeat, has_epochs_end;
	uint32_t n_outside; /* units that are there and that the job does not number */
	uint64_t span, span_cap;
	uint32_t hold_reads;
	uint64_t reader_span; /* without what allows for readers that are not in step */
	uint64_t begin_apart, began_apart; /* readers, in the first reads of this pass; of the last */
	uint64_t begin_most[4];            /* of these the largest, ascending */
	uint32_t distance[64], n_distance; /* histogram of position - low, to learn the span */

	/* score.c: the last reads that counted */
	uint32_t history[SCORE_READS], history_count, history_head;
	uint64_t verdict[SCORE_READS / 64]; /* ring of bits: as expected */
	uint32_t verdict_count, verdict_head, verdict_in;
	/* Likewise for others: what is read where the job has read it before shows somebody else, too. */
	uint64_t strange[SCORE_READS / 64];
	uint32_t strange_count, strange_head, strange_in;
	uint64_t recent_out; /* a bit per read, the last one lowest */
	uint64_t recent_near; /* likewise: what was out, but only just, and not read yet */
	/* What of the order was read and what was left out of it, halved now and then. */
	uint32_t kept_positions, left_positions;
	bool is_shared; /* another reader is at work; the order is followed all the same */
	/* proof.c: whether the last reads can be told from reads in any order */
	struct evidence evidence[SCORE_READS]; /* ring */
	uint32_t evidence_count, evidence_head;
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
	bool is_for_later; /* the epoch that is being computed is for the masks of later.c */
	uint32_t candidate, epoch_tries;
	uint64_t tried_next, tried_round; /* while lost: later epochs, so many at a time */
	uint64_t asked_epoch, ask_not_before_ns;
	uint64_t reads, sync_at, search_at, search_pause; /* reads: that counted, ever */
	uint64_t reached;                                 /* units within samples, ever */

	struct valid valid;
	struct horizon horizon;
	struct group group;
	struct waste waste;

	/* stage.c */
	uint64_t stage_end, stage_sum; /* stage_end: virtual position */
	bool is_stage_dirty;
	uint64_t alone_at; /* alone.c: virtual position, looked at up to here */

	/* fetch.c, of this step */
	uint64_t ahead, near, ahead_store; /* horizons */
	bool is_blocked, is_grouped;

	uint64_t mismatches, resyncs;
	uint64_t placed, read_ns; /* reads where the order has them; the last of them */
	uint64_t outside, outside_run, inside_run; /* runs: of reads outside of the order, and of
						    * others since */
	uint64_t lost, lost_opened;                /* times; opened at the last one */
	uint64_t finished_opened; /* opens when all epochs had been read, 0: they never were */
};

/* Whether the unit continues a sample: then that it is read says nothing about the order. */
static inline bool job_is_inner(const struct plan_job *job, uint32_t unit)
{
	return job->inner && job->inner[unit / 64] >> unit % 64 & 1;
}
/* How many samples so many positions are, on average; and the positions of so many samples. The
 * same where no sample is cut. */
static inline uint64_t job_samples(const struct plan_job *job, uint64_t positions)
{
	const struct order_info *info = &job->info;

	return info->samples ? DIV_ROUND_UP(positions * info->samples, info->units) : positions;
}
static inline uint64_t job_positions(const struct plan_job *job, uint64_t samples)
{
	const struct order_info *info = &job->info;

	samples = MIN(samples, UINT32_MAX);
	return info->samples ? DIV_ROUND_UP(samples * info->units, info->samples) : samples;
}
/* Samples that were opened in this pass, or passed over. */
static inline uint64_t slot_opened(const struct slot *slot)
{
	return slot->consumed.count - slot->inner;
}
static inline struct slot *job_cur(const struct plan_job *job)
{
	return (struct slot *)&job->slots[job->cur];
}
static inline struct slot *job_next(const struct plan_job *job)
{
	return (struct slot *)&job->slots[!job->cur];
}
static inline struct slot *job_valid(const struct plan_job *job)
{
	return (struct slot *)&job->slots[2];
}
static inline bool key_is_valid(uint32_t key)
{
	return key > KEY_VALID;
}
static inline uint32_t key_make(const struct plan_job *job, const struct slot *slot, uint64_t pos)
{
	uint32_t place = (uint32_t)pos | (slot == &job->slots[1] ? KEY_SLOT1 : 0);

	return 1 + (slot == job_valid(job) ? KEY_VALID + (uint32_t)pos : place);
}
static inline uint32_t key_pos(uint32_t key)
{
	return key > KEY_VALID ? key - 1 - KEY_VALID : (key - 1) & ~KEY_SLOT1;
}
static inline struct slot *key_slot(const struct plan_job *job, uint32_t key)
{
	return (struct slot *)&job->slots[((key - 1) >> 31) + (key > KEY_VALID)];
}
/* What is read next in one line: the current pass, the validation set if one is expected, the next
 * pass. */
static inline uint64_t job_virtual(const struct plan_job *job, const struct slot *slot,
				   uint64_t pos)
{
	if (slot == job_cur(job))
		return pos;
	return job_cur(job)->length + (slot == job_valid(job) ? 0 : job_valid(job)->length) + pos;
}
/* And back: in which slot, and where there. The slot may be empty, or end before. */
static inline struct slot *job_slot_at(const struct plan_job *job, uint64_t at, uint64_t *ret_pos)
{
	uint64_t length = job_cur(job)->length;

	*ret_pos = at;
	if (at < length)
		return job_cur(job);
	*ret_pos = at - length;
	if (at < length + job_valid(job)->length)
		return job_valid(job);
	*ret_pos -= job_valid(job)->length;
	return job_next(job);
}
/* Where the readers are: the first place in the line that was not read. */
static inline uint64_t job_low(const struct plan_job *job)
{
	const struct slot *cur = job_cur(job), *valid = job_valid(job), *next = job_next(job);

	if (cur->low < cur->length)
		return cur->low;
	if (valid->low < valid->length)
		return cur->length + valid->low;
	return cur->length + valid->length + (next->ep ? next->low : 0);
}
/* The same without the validation set: whether a read is as the order says has nothing to do with
 * it. */
static inline uint64_t job_order_pos(const struct plan_job *job, const struct slot *slot,
				     uint64_t pos)
{
	return slot == job_cur(job) ? pos : job_cur(job)->length + pos;
}
static inline uint64_t job_order_low(const struct plan_job *job)
{
	const struct slot *cur = job_cur(job), *next = job_next(job);

	return cur->low < cur->length ? cur->low : cur->length + (next->ep ? next->low : 0);
}
/* By the order, or of the validation set behind its last epoch. */
static inline bool job_is_prefetching(const struct plan_job *job)
{
	if (job->state == PLAN_FINISHED)
		return job_valid(job)->low < job_valid(job)->length;
	return job->state >= PLAN_WAITING && job->state <= PLAN_SLOWED;
}

#endif
