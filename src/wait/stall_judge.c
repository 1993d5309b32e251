/* SPDX-License-Identifier: Apache-2.0 */
/* One pass, judged: the function that derives the numbers stall.c defines.
 *
 * Decoding is what a worker does between two reads of one batch. With more workers at it than CPUs
 * it takes longer than its work, and without this mount, when workers wait for reads instead, it
 * would take less: so it is divided by how many workers share a CPU, as far as the CPUs were busy
 * all the time, and no schedule may be faster than the CPUs (such a pass gains nothing).
 *
 * What a gap behind a READ that this mount answered has more than one behind a read that the kernel
 * served is the way to this mount and back: without it there is none.
 *
 * Compute, unless told, is the most that lets the replayed loader fetch the last batch when the
 * real one did. That makes the replay of what was agree with what was measured, whatever the model
 * leaves out, and with no hits both replays are the same and the estimate is 0 exactly.
 *
 * Pure: reads a pass, adds to a rank's totals. Takes a few dozen times the number of batches. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clairfs/base/clock.h"
#include "stall_priv.h"

enum { FIT_STEPS = 24, SEEN_TIMES = 8, GAPS_MAX = 4096, STAGED_GAPS_MIN = 64, APART_MIN = 8 };
#define APART_NS NS_PER_MS
#define LINK_FULL 0.7
#define CPUS_SPARE 0.80
#define CPUS_FULL 0.95

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

static uint64_t wait_of(const struct stall_slot *slot)
{
	return (uint64_t)slot->wait << STALL_WAIT_SHIFT;
}

/* --- what is known --- */

static enum stall_why judge_shape(struct judge *j)
{
	const struct stall_pass *p = j->p;
	uint64_t length = p->end - p->from;

	if (p->has_no_memory)
		return STALL_NO_MEMORY;
	if (p->n_told == 0)
		return STALL_NOTHING_READ;
	if ((length - p->n_told) * 100 > length * STALL_HOLES_PERCENT)
		return STALL_HOLES;
	/* What ends with the mount, or with its order, may be no pass at all. */
	if (p->n_told < p->length && stall_is_stray(p))
		return STALL_HOLES;
	j->prefetch = p->order->job.prefetch ? p->order->job.prefetch : 2;
	j->batch = p->order->job.batch;
	j->workers = p->order->job.workers;
	if (!j->workers && p->n_readers && p->n_reader_reads >= (uint64_t)SEEN_TIMES * p->n_readers)
		j->workers = p->n_readers;
	if (!j->workers)
		j->workers = j->r->seen_workers;
	return j->workers ? STALL_JUDGED : STALL_NO_WORKERS;
}

static void judge_times(struct judge *j)
{
	const struct stall_pass *p = j->p;
	uint64_t next = UINT64_MAX;

	j->reads_ns = MAX(p->last_ns - p->first_ns, 1);
	for (uint32_t i = 0; i < j->r->n_passes; i++) {
		const struct stall_pass *q = j->r->pass[i];

		if (q->n_told && q->first_ns > p->first_ns && stall_pass_cmp(q, p) > 0)
			next = MIN(next, q->first_ns);
	}
	j->next_ns = next == UINT64_MAX ? 0 : MAX(next - p->first_ns, j->reads_ns);
}

static const struct stall_group *group_of(const struct judge *j, const struct stall_slot *slot)
{
	assert(slot->size_class < STALL_SIZE_CLASSES);
	return &j->groups.group[j->groups.of[slot->size_class]];
}

/* Of a miss, without us. What prefetches made slow would have taken no longer than other reads. */
static double own_wait(const struct judge *j, const struct stall_slot *slot)
{
	double wait = (double)wait_of(slot) * slot->own / STALL_OWN_ALL;

	if (!(slot->flags & SLOT_LOADED) || !j->groups.n)
		return wait;
	return MIN(wait, group_of(j, slot)->mean);
}

/* Linux would have served it, in that world. */
static bool is_cached(const struct judge *j, const struct without *w, const struct stall_slot *slot)
{
	return !w->is_bare && stall_is_ghost(j->s, slot->flags);
}

/* How often the source would have been read once more for it. What such an open reads is not known,
 * as the kernel serves it, so it is in no lower bound. A job that opens every sample again (see
 * is_twice_job) does so with each; of another only what was seen counts: a second reader, or a job
 * that looks at some again. */
static uint32_t times_again(const struct judge *j, const struct without *w,
			    const struct stall_slot *slot)
{
	bool keeps_none = j->s->pages == STALL_PAGES_NOT_KEPT || !j->s->params.ghost_bytes;

	uint32_t n = MAX((uint32_t)slot->flags >> SLOT_AGAIN_SHIFT, (uint32_t)j->is_twice);

	return j->groups.n && (w->is_bare || keeps_none) ? n : 0;
}

static void sum_without(const struct judge *j, struct without *w)
{
	const struct stall_pass *p = j->p;

	for (uint64_t i = p->from; i < p->end; i++) {
		const struct stall_slot *slot = &p->slot[i];

		if (!slot->flags)
			continue;
		w->again_ns += times_again(j, w, slot) * group_of(j, slot)->mean;
		if (is_cached(j, w, slot))
			continue;
		if (slot->flags & SLOT_CREDIT) {
			w->n_credit[j->groups.of[slot->size_class]]++;
			w->s_credit_ns += (double)wait_of(slot);
		} else {
			w->own_ns += own_wait(j, slot);
		}
	}
	stall_groups_sum(&j->groups, w->n_credit, &w->credit_ns, &w->margin_ns);
}

/* Whether the job opens every sample again. inotify merges opens in a row as long as nobody has heard
 * of the first: of samples that are read within microseconds one in twenty is seen to be opened
 * again, of those whose READ took milliseconds (control reads, misses) 98 % (both measured, in one
 * job). So these say it, where there are any. */
static bool is_twice_job(const struct judge *j)
{
	uint64_t n[2] = { 0 }, again[2] = { 0 };

	for (uint64_t i = j->p->from; i < j->p->end; i++) {
		const struct stall_slot *slot = &j->p->slot[i];
		bool is_apart = wait_of(slot) >= APART_NS;

		n[is_apart] += slot->flags != 0;
		again[is_apart] += slot->flags >> SLOT_AGAIN_SHIFT != 0;
	}
	if (n[true] >= APART_MIN)
		return again[true] * 2 > n[true];
	return (again[true] + again[false]) * 2 > n[true] + n[false];
}

static void judge_sums(struct judge *j)
{
	const struct stall_pass *p = j->p;

	for (uint64_t i = p->from; i < p->end; i++) {
		const struct stall_slot *slot = &p->slot[i];

		j->reads += slot->flags != 0;
		j->s_ns += slot->flags ? (double)wait_of(slot) : 0;
		j->ghosts += stall_is_ghost(j->s, slot->flags);
	}
	assert(j->reads == p->n_told && j->reads > 0);
	j->is_twice = is_twice_job(j);
	j->bare.is_bare = true;
	sum_without(j, &j->cached);
	sum_without(j, &j->bare);
}

static bool has_credit(const struct stall_pass *p)
{
	for (uint64_t i = p->from; i < p->end; i++)
		if (p->slot[i].flags & SLOT_CREDIT)
			return true;
	return false;
}

/* Whether the job's workers alone would have filled the source's link. With half as many requests
 * again in flight the source gave so many bytes a second, so it would not have given
 * the job more. If W workers that wait `alone` for each read, and decode, could take most of that
 * (and not two thirds, as of a source that answers more requests as fast as fewer), then reads take
 * as long as they do because they share the link, and it is the link that counts: what a worker
 * decodes meanwhile costs nothing. The lower bound has decoding on top of reads only if they would
 * not have filled it even without. */
static void judge_link(struct judge *j, struct without *w)
{
	double ranks = (double)j->p->order->job.n_ranks, at_once = (double)j->workers * ranks;
	double reads = 0, alone, least, most, samples;
	uint64_t first = j->p->first_ns, bytes = j->p->bytes;

	if (!w->is_bare && j->s->pages != STALL_PAGES_NOT_KEPT)
		bytes -= j->p->ghost_bytes;
	for (uint32_t i = 0; i < j->groups.n; i++)
		reads += (double)w->n_credit[i];
	if (!reads || !bytes ||
	    !stall_load_rates(j->s, first - MIN(first, STALL_LOAD_BEFORE_NS), first + j->reads_ns,
			      &least, &most))
		return;
	alone = MAX(w->credit_ns / reads, 1);
	samples = (double)j->reads / (double)bytes;
	if (!w->is_bare)
		j->is_decode_on_top = at_once / alone < LINK_FULL * least * samples;
	if (at_once / (alone + j->decode_ns) >= LINK_FULL * most * samples)
		w->link_ns = (double)bytes * ranks / most;
}

/* --- decoding --- */

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

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

/* Opens are heard of in gatherings of milliseconds: single gaps are rough, their mean is not. */
static void judge_decode(struct judge *j)
{
	uint64_t n = j->batch > 1 ? (j->p->end - j->p->from) / j->batch : 0;
	uint64_t step = n / GAPS_MAX + 1, count = 0, pairs = 0;
	double gap[GAPS_MAX], sum = 0, staged = 0;

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
	qsort(gap, count, sizeof(*gap), compare_doubles);
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
static void judge_decode_limits(struct judge *j)
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

/* --- the loader, replayed --- */

static uint64_t read_chance(const struct judge *j, uint64_t i)
{
	return j->p->pass * 0x9e3779b97f4a7c15u + (uint64_t)j->r->total.rank * 0xff51afd7ed558ccdu +
	       j->p->base + i;
}

static uint64_t time_without(const struct judge *j, const struct without *w,
			     const struct stall_slot *slot, uint64_t i)
{
	uint64_t again = (uint64_t)(times_again(j, w, slot) * group_of(j, slot)->mean);

	if (is_cached(j, w, slot))
		return again;
	if (slot->flags & SLOT_CREDIT)
		return again + stall_group_draw(j->s, group_of(j, slot), read_chance(j, i));
	return again + (uint64_t)own_wait(j, slot);
}

/* Of a sample: decoding, and with us the way to us. */
static uint64_t decode_without(const struct judge *j, const struct stall_slot *slot)
{
	double staged = j->staged_ns < 0 ? j->decode_ns : MIN(j->staged_ns, j->decode_ns);

	return (uint64_t)(slot->wait && (slot->flags & SLOT_CREDIT) ? staged : j->decode_ns);
}

static void judge_batches(struct judge *j)
{
	const struct stall_pass *p = j->p;

	for (uint64_t i = p->from; i < p->end; i++) {
		const struct stall_slot *slot = &p->slot[i];
		uint64_t k = (i - p->from) / j->batch, decode;

		if (!slot->flags)
			continue;
		assert(k < j->n_batches);
		decode = decode_without(j, slot);
		j->with[k].io_ns += wait_of(slot);
		j->with[k].decode_ns += (uint64_t)j->decode_ns;
		j->cached.batch[k].io_ns += time_without(j, &j->cached, slot, i);
		j->cached.batch[k].decode_ns += decode;
		j->bare.batch[k].io_ns += time_without(j, &j->bare, slot, i);
		j->bare.batch[k].decode_ns += decode;
	}
}

static void judge_play(const struct judge *j, struct stall_play *play,
		       const struct stall_batch *batch, struct stall_schedule *ret)
{
	play->batch = batch;
	stall_play_run(play, NULL, ret);
	ret->end_ns = MAX(ret->end_ns, (uint64_t)j->floor_ns);
}

static void judge_play_without(const struct judge *j, const struct without *w,
			       struct stall_play *play, const struct stall_schedule *act,
			       struct stall_schedule *ret)
{
	uint64_t last = play->compute_ns;

	judge_play(j, play, w->batch, ret);
	if (w->link_ns <= 0)
		return;
	if (last == STALL_NO_COMPUTE)
		last = w->batch[j->n_batches - 1].compute_ns;
	ret->end_ns = MAX(act->end_ns, (uint64_t)w->link_ns + last);
}

/* The largest value in [0, most] with which the loader has fetched everything in time. */
static void judge_fit(struct judge *j, struct stall_play *play)
{
	double low = 0, high = 1;
	uint64_t least = 0, most;

	play->decode_share = 1;
	play->compute_ns = 0;
	judge_play(j, play, j->with, &j->act);
	if (j->act.fetched_ns > j->reads_ns) {
		for (int i = 0; i < FIT_STEPS; i++) {
			play->decode_share = (low + high) / 2;
			judge_play(j, play, j->with, &j->act);
			*(j->act.fetched_ns > j->reads_ns ? &high : &low) = play->decode_share;
		}
		play->decode_share = low;
	}
	most = (j->next_ns ? j->next_ns : j->reads_ns) / j->n_batches;
	if (!j->next_ns && j->n_batches > 2ull * j->workers * j->prefetch)
		most = j->reads_ns / (j->n_batches - (uint64_t)j->workers * j->prefetch);
	for (int i = 0; i < FIT_STEPS; i++) {
		play->compute_ns = least + (most - least + 1) / 2;
		judge_play(j, play, j->with, &j->act);
		if (j->act.fetched_ns > j->reads_ns)
			most = play->compute_ns ? play->compute_ns - 1 : 0;
		else
			least = play->compute_ns;
	}
	play->compute_ns = least;
	assert(play->decode_share >= 0 && play->decode_share <= 1);
	j->share = play->decode_share;
	j->compute_ns = least;
}

static double ends_apart(const struct stall_schedule *cf, const struct stall_schedule *act)
{
	return cf->end_ns > act->end_ns ? (double)(cf->end_ns - act->end_ns) : 0;
}

/* The job's own compute times; false when it told none for this pass. */
static bool judge_hook(struct judge *j, struct stall_play *play, double *ret_ns, double *ret_took)
{
	const struct stall_run *run = stall_run_find(j->r, j->p->first_ns, j->p->last_ns);
	struct stall_schedule act, cf;
	double sum = 0;

	if (!run || run->n == 0 || (uint64_t)run->n + 1 < j->n_batches || j->p->part ||
	    run->n > j->n_batches + 1)
		return false;
	for (uint32_t i = 0; i < run->n; i++)
		sum += (double)run->compute[i];
	for (uint64_t k = 0; k < j->n_batches; k++) {
		double c = k < run->n ? (double)run->compute[k] : sum / run->n;

		j->with[k].compute_ns = j->cached.batch[k].compute_ns =
			(uint64_t)(c * (1 << STALL_STEP_SHIFT));
	}
	play->compute_ns = STALL_NO_COMPUTE;
	judge_play(j, play, j->with, &act);
	judge_play_without(j, &j->cached, play, &act, &cf);
	*ret_ns = ends_apart(&cf, &act);
	*ret_took = (double)(run->last_ns - MIN(j->p->first_ns, run->began_ns));
	return true;
}

/* --- the numbers --- */

/* Of each W batches in a row the one that saved most. */
static double judge_upper(const struct judge *j, const struct without *w)
{
	double sum = 0, saved, most = 0, more;

	if (!j->batch) {
		sum = MAX(w->credit_ns - w->s_credit_ns, 0) + w->again_ns;
	} else {
		for (uint64_t k = 0; k < j->n_batches; k++) {
			saved = (double)w->batch[k].io_ns - (double)j->with[k].io_ns;
			most = MAX(most, saved);
			if ((k + 1) % j->workers == 0 || k + 1 == j->n_batches) {
				sum += most;
				most = 0;
			}
		}
	}
	more = w->credit_ns > 0 ? w->margin_ns / w->credit_ns : 0;
	return sum * (1 + more);
}

/* Decoding only where it is known to come on top of the reads. */
static double judge_lower(const struct judge *j, double took_ns)
{
	double work = MAX(j->cached.credit_ns - j->cached.margin_ns, 0) + j->cached.own_ns;

	if (j->is_decode_on_top)
		work += j->decode_low_ns * j->share * (double)j->reads;

	return MAX(work / j->workers - took_ns, 0);
}

/* For each batch, what the loop waits for it; of no use when the CPUs are what it waits for. */
static void judge_waits(const struct judge *j, const struct stall_play *play)
{
	struct stall_play with = *play, without = *play;
	struct stall_waits w = { .n = j->n_batches };
	struct stall_schedule ignored;

	w.with_ns = malloc(w.n * sizeof(*w.with_ns));
	w.without_ns = malloc(w.n * sizeof(*w.without_ns));
	if (!w.with_ns || !w.without_ns) {
		free(w.with_ns);
		free(w.without_ns);
		return;
	}
	with.batch = j->with;
	without.batch = j->cached.batch;
	stall_play_run(&with, w.with_ns, &ignored);
	stall_play_run(&without, w.without_ns, &ignored);
	*j->waits = w;
}

static void add_ns(uint64_t *total, double ns)
{
	*total += ns > 0 ? (uint64_t)ns : 0;
}

static enum stall_why judge_with_batches(struct judge *j, struct stall_play *play,
					 struct stall_numbers *t)
{
	struct stall_schedule free_reads;
	double upper, estimate, bare, hook = 0, took, hook_took = 0;
	bool has_hook;

	judge_batches(j);
	judge_fit(j, play);
	judge_play(j, play, j->with, &j->act);
	judge_play_without(j, &j->cached, play, &j->act, &j->cached.cf);
	judge_play_without(j, &j->bare, play, &j->act, &j->bare.cf);
	upper = MAX(judge_upper(j, &j->bare), j->bare.link_ns - (double)j->act.end_ns);
	bare = MIN(ends_apart(&j->bare.cf, &j->act), upper);
	estimate = MIN(ends_apart(&j->cached.cf, &j->act), upper);
	took = (double)j->reads_ns +
	       (double)(j->act.end_ns - MIN(j->act.fetched_ns, j->act.end_ns));
	if (j->next_ns)
		took = MIN(took, (double)j->next_ns);
	has_hook = judge_hook(j, play, &hook, &hook_took);
	if (has_hook)
		took = MAX(hook_took, (double)j->reads_ns);
	add_ns(&t->upper_ns, upper);
	add_ns(&t->page_cache_ns, bare - estimate);
	add_ns(&t->estimate_ns, estimate);
	add_ns(&t->lower_ns, MIN(judge_lower(j, took), has_hook ? MIN(hook, estimate) : estimate));
	add_ns(&t->judged_ns, took);
	t->judged_replay++;
	if (has_hook) {
		add_ns(&t->estimate_hook_ns, MIN(hook, upper));
		t->judged_hook++;
		play->compute_ns = STALL_NO_COMPUTE;
	} else {
		play->compute_ns = j->compute_ns;
	}
	judge_waits(j, play);
	for (uint64_t k = 0; k < j->n_batches; k++)
		j->with[k].io_ns = 0;
	judge_play(j, play, j->with, &free_reads);
	t->prep_wait_ns += free_reads.wait_ns;
	return STALL_JUDGED;
}

static enum stall_why judge_replay(struct judge *j, struct stall_numbers *t)
{
	struct stall_play play = { .workers = j->workers, .prefetch = j->prefetch };
	enum stall_why why = STALL_NO_MEMORY;

	assert(j->batch > 0 && j->p->from < j->p->end && j->p->end <= j->p->capacity);
	j->n_batches = DIV_ROUND_UP(j->p->end - j->p->from, j->batch);
	j->with = calloc(j->n_batches, sizeof(*j->with));
	j->cached.batch = calloc(j->n_batches, sizeof(*j->with));
	j->bare.batch = calloc(j->n_batches, sizeof(*j->with));
	play.n = j->n_batches;
	if (j->with && j->cached.batch && j->bare.batch && stall_play_init(&play) == 0) {
		why = judge_with_batches(j, &play, t);
		stall_play_fini(&play);
	}
	free(j->with);
	free(j->cached.batch);
	free(j->bare.batch);
	return why;
}

/* Without batches it is not known how long the job went on after its last read, unless the next
 * pass tells. */
static void judge_sums_only(struct judge *j, struct stall_numbers *t)
{
	double upper = judge_upper(j, &j->bare);

	add_ns(&t->upper_ns, upper);
	add_ns(&t->page_cache_ns, upper - judge_upper(j, &j->cached));
	if (j->next_ns)
		add_ns(&t->lower_ns, MIN(judge_lower(j, (double)j->next_ns), upper));
	t->judged_ns += j->next_ns ? j->next_ns : j->reads_ns;
}

enum stall_why stall_judge_pass(struct stall *s, struct stall_rank *r, const struct stall_pass *p,
				struct stall_waits *ret)
{
	struct judge j = { .s = s, .r = r, .p = p, .share = 1, .waits = ret };
	enum stall_why why = judge_shape(&j);

	*ret = (struct stall_waits){ 0 };
	if (why != STALL_JUDGED)
		return why;
	if (stall_is_crowded(s, p->first_ns, MAX(p->last_ns, p->first_ns + 1)))
		return STALL_CROWDED;
	if (!stall_groups_make(s, &j.groups) && has_credit(p))
		return STALL_NO_CONTROLS;
	judge_times(&j);
	judge_sums(&j);
	judge_decode(&j);
	judge_decode_limits(&j);
	judge_link(&j, &j.cached);
	judge_link(&j, &j.bare);
	if (j.batch)
		why = judge_replay(&j, &r->total);
	else
		judge_sums_only(&j, &r->total);
	if (why != STALL_JUDGED)
		return why;
	add_ns(&r->total.latency_saved_ns, j.cached.credit_ns - j.cached.s_credit_ns);
	add_ns(&r->total.read_wait_ns, j.s_ns);
	r->total.judged++;
	r->total.reads += j.reads;
	r->total.ghost_reads += j.ghosts;
	r->total.workers = j.workers;
	if (p->order->shape == s->now->shape) /* not late, of a job that is gone */
		r->seen_workers = j.workers;
	r->total.prefetch = j.prefetch;
	r->total.batch = j.batch;
	return STALL_JUDGED;
}
