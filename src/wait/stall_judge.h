/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that judge one pass show each other: stall_judge.c (the numbers), stall_decode.c and
 * stall_fit.c. Pure: one thread at a time. */
#ifndef CLAIRFS_WAIT_STALL_JUDGE_H
#define CLAIRFS_WAIT_STALL_JUDGE_H

#include "stall_priv.h"

/* What the reads would have taken without us: with the page cache that Linux would have had, or
 * without any (`bare`), which is what the upper bound needs. */
struct without {
	bool is_bare;
	struct stall_batch *batch;
	uint64_t n_credit[STALL_SIZE_CLASSES]; /* by group */
	double credit_ns, margin_ns; /* of the credited reads without us, and its 95 % margin */
	double s_credit_ns;          /* waits of the credited */
	double own_ns;               /* of the others, what the source took for them */
	double again_ns;             /* of samples that were opened again right away */
	double link_ns; /* the source's link needs that long; 0: it would not have been full */
	struct stall_schedule cf;
};

struct judge {
	struct stall *s;
	const struct stall_rank *r;
	const struct stall_pass *p;
	struct stall_groups groups;
	uint32_t workers, prefetch, batch; /* batch 0: not known */
	uint64_t n_batches;
	struct stall_batch *with;
	struct without cached, bare;

	uint64_t reads, ghosts;
	double s_ns;                     /* waits of all */
	double decode_ns, decode_low_ns; /* per sample, mean and the lesser of mean and median */
	double staged_ns; /* the same between reads that the kernel served; negative: too few */
	uint64_t reads_ns;               /* first open to the end of the last read */
	uint64_t next_ns;                /* first open to that of the next pass; 0: none yet */
	double floor_ns;                 /* the CPUs need that long */
	bool is_decode_on_top; /* of reads, for certain */
	bool is_twice;         /* the job opens every sample again */

	struct stall_schedule act;
	uint64_t compute_ns;
	double share;
	struct stall_waits *waits;
};

static inline uint64_t wait_of(const struct stall_slot *slot)
{
	return (uint64_t)slot->wait << STALL_WAIT_SHIFT;
}

static inline const struct stall_group *judge_group(const struct judge *j, const struct stall_slot *slot)
{
	assert(slot->size_class < STALL_SIZE_CLASSES);
	return &j->groups.group[j->groups.of[slot->size_class]];
}

/* Of a miss, without us. What prefetches made slow would have taken no longer than other reads. */
static inline double judge_own_wait(const struct judge *j, const struct stall_slot *slot)
{
	double wait = (double)wait_of(slot) * slot->own / STALL_OWN_ALL;

	if (!(slot->flags & SLOT_LOADED) || !j->groups.n)
		return wait;
	return MIN(wait, judge_group(j, slot)->mean);
}

/* Linux would have served it, in that world. */
static inline bool judge_is_cached(const struct judge *j, const struct without *w, const struct stall_slot *slot)
{
	return !w->is_bare && stall_is_ghost(j->s, slot->flags);
}

/* How often the source would have been read once more for it. What such an open reads is not known,
 * as the kernel serves it, so it is in no lower bound. A job that opens every sample again (see
 * is_twice_job) does so with each; of another only what was seen counts: a second reader, or a job
 * that looks at some again. */
static inline uint32_t judge_times_again(const struct judge *j, const struct without *w,
			    const struct stall_slot *slot)
{
	bool keeps_none = j->s->pages == STALL_PAGES_NOT_KEPT || !j->s->params.ghost_bytes;

	uint32_t n = MAX((uint32_t)slot->flags >> SLOT_AGAIN_SHIFT, (uint32_t)j->is_twice);

	return j->groups.n && (w->is_bare || keeps_none) ? n : 0;
}

static inline double ends_apart(const struct stall_schedule *cf, const struct stall_schedule *act)
{
	return cf->end_ns > act->end_ns ? (double)(cf->end_ns - act->end_ns) : 0;
}

/* --- stall_decode.c --- */
/* How long decoding takes: of what was seen; and then no longer than can have been. */
void stall_judge_decode(struct judge *j);
void stall_judge_decode_limits(struct judge *j);

/* --- stall_fit.c --- */
/* Fills the batches of what was, and of both worlds without us. */
void stall_judge_batches(struct judge *j);
void stall_judge_play(const struct judge *j, struct stall_play *play, const struct stall_batch *batch,
		struct stall_schedule *ret);
void stall_judge_play_without(const struct judge *j, const struct without *w, struct stall_play *play,
			const struct stall_schedule *act, struct stall_schedule *ret);
/* The largest compute with which the loader has fetched everything in time. */
void stall_judge_fit(struct judge *j, struct stall_play *play);
/* With the job's own compute times; false when it told none for this pass. */
bool stall_judge_hook(struct judge *j, struct stall_play *play, double *ret_ns, double *ret_took);

#endif
