/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding is what a worker does between two reads of one batch. With more workers at it than CPUs
 * it takes longer than its work, and without this mount, when workers wait for reads instead, it
 * would take less: so it is divided by how many workers share a CPU, as far as the CPUs were busy
 * all the time, and no schedule may be faster than the CPUs (such a pass gains nothing).
 *
 * What a gap behind a READ that this mount answered has more than one behind a read that the kernel
 * served is the way to this mount and back: without it there is none.
 *
 * Pure: reads a pass. */
#include "stall_judge.h"

#include <assert.h>
#include <stdlib.h>

#include "clairfs/base/compare.h"

enum { GAPS_MAX = 4096, STAGED_GAPS_MIN = 64, LATE_SHARE = 20 };
#define CPUS_SPARE 0.80
#define CPUS_FULL 0.95

/* Between the opens of one batch, without the waits for its reads: per sample; negative: not seen.
 */
static double batch_gap(const struct judge *j, uint64_t batch)
{
	const struct stall_slot *slot = &j->p->slot[j->p->from + batch * j->batch];
	const struct stall_slot *last = &slot[j->batch - 1];
	double gap = ((double)last->opened - (double)slot->opened) * (1 << STALL_OPEN_SHIFT);

	for (uint32_t i = 0; i < j->batch; i++) {
		if (!slot[i].flags)
			return -1;
		gap -= i + 1 < j->batch ? (double)wait_of(&slot[i]) : 0;
	}
	return MAX(gap, 0) / (j->batch - 1);
}

/* Between reads of one batch for which nobody asked this mount: the way to it and back is in no such
 * gap, and a job that reads the source itself does not have it. */
static void add_staged_gaps(const struct judge *j, uint64_t batch, double *sum, uint64_t *n)
{
	const struct stall_slot *slot = &j->p->slot[j->p->from + batch * j->batch];

	for (uint32_t i = 0; i + 1 < j->batch; i++) {
		if (!slot[i].flags || !slot[i + 1].flags || slot[i].wait || slot[i + 1].wait ||
		    slot[i + 1].opened < slot[i].opened)
			continue;
		*sum += (double)(slot[i + 1].opened - slot[i].opened) * (1 << STALL_OPEN_SHIFT);
		++*n;
	}
}

/* With batches of one sample: from a read's end to the next one of the same worker. */
static double single_gap(const struct judge *j, uint64_t batch)
{
	const struct stall_slot *slot = &j->p->slot[j->p->from + batch];
	const struct stall_slot *next = &slot[j->workers];
	double gap = ((double)next->opened - (double)slot->opened) * (1 << STALL_OPEN_SHIFT);

	return slot->flags && next->flags ? MAX(gap - (double)wait_of(slot), 0) : -1;
}

/* A worker may have had to wait for its turn between two such batches; not at the start, where it
 * is given `prefetch` of them at once. That is too little to base a lower bound on. */
static void judge_decode_singles(struct judge *j)
{
	uint64_t n = (uint64_t)j->workers * (j->prefetch - 1), length = j->p->end - j->p->from;
	double sum = 0, gap;
	uint64_t count = 0;

	assert(j->prefetch > 0 && j->workers > 0);
	for (uint64_t k = 0; k < n && k + j->workers < length; k++) {
		gap = single_gap(j, k);
		if (gap < 0)
			continue;
		sum += gap;
		count++;
	}
	j->decode_ns = count ? sum / (double)count : 0;
}

/* Opens are heard of in gatherings of milliseconds: single gaps are rough, their mean is not. Where many are
 * known by later ones only, gaps are those of batches, and nothing is known of decoding: as if it took no
 * time, which claims less. */
void stall_judge_decode(struct judge *j)
{
	uint64_t n = j->batch > 1 ? (j->p->end - j->p->from) / j->batch : 0;
	uint64_t step = n / GAPS_MAX + 1, count = 0, pairs = 0;
	double gap[GAPS_MAX], sum = 0, staged = 0;

	j->staged_ns = -1;
	if (j->p->n_late * LATE_SHARE > j->p->n_told)
		return;
	if (j->batch == 1)
		judge_decode_singles(j);
	for (uint64_t k = 0; k < n && count < GAPS_MAX; k += step) {
		double g = batch_gap(j, k);

		if (g < 0)
			continue;
		gap[count++] = g;
		sum += g;
		add_staged_gaps(j, k, &staged, &pairs);
	}
	j->staged_ns = pairs >= STAGED_GAPS_MIN ? staged / (double)pairs : -1;
	if (!count)
		return;
	qsort(gap, count, sizeof(*gap), compare_double);
	j->decode_ns = sum / (double)count;
	j->decode_low_ns = MIN(j->decode_ns, gap[count / 2]);
	if (j->staged_ns >= 0)
		j->decode_low_ns = MIN(j->decode_low_ns, j->staged_ns);
}

/* Whether the CPUs were busy all the time: 0 no, 1 yes, or not known. A little idle time is left by
 * the crowd's own comings and goings. */
static double judge_crowd(const struct judge *j)
{
	double share = stall_cpu_share(j->s, j->p->first_ns, j->p->first_ns + j->reads_ns);

	if (j->s->job_cpus && j->s->job_cpus < j->s->params.cpus)
		return 1; /* the others' idle time is none of the job's */
	return share < 0 ? 1 : MIN(MAX((share - CPUS_SPARE) / (CPUS_FULL - CPUS_SPARE), 0), 1);
}

/* The model must not know of more work than the workers had time for; and what they lost to each
 * other on too few CPUs is no work. */
void stall_judge_decode_limits(struct judge *j)
{
	double n = (double)j->reads, most, at_work, ranks = (double)j->p->order->job.n_ranks;
	double cpus = j->s->job_cpus ? j->s->job_cpus : j->s->params.cpus;

	most = MAX((double)j->workers * (double)j->reads_ns - j->s_ns, 0) / n;
	j->decode_ns = MIN(j->decode_ns, most);
	j->decode_low_ns = MIN(j->decode_low_ns, most);
	if (cpus <= 0)
		return;
	at_work = j->decode_ns * n * ranks / (double)j->reads_ns / cpus;
	if (at_work > 1) {
		j->decode_low_ns /= at_work; /* the cautious side, whatever the CPUs did */
		j->decode_ns /= 1 + (at_work - 1) * judge_crowd(j);
	}
	/* The pass itself shows that they do not need longer. */
	if (judge_crowd(j) > 0)
		j->floor_ns = MIN(j->decode_ns * n * ranks / cpus, (double)j->reads_ns);
}
