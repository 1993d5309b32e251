/* SPDX-License-Identifier: Apache-2.0 */
/* One pass, judged: the function that derives the numbers stall.c defines.
 *
 * How long decoding takes is stall_decode.c's, and the loader replayed stall_fit.c's.
 *
 * Pure: reads a pass, adds to a rank's totals. Takes a few dozen times the number of batches. */
#include <assert.h>
#include <stdlib.h>

#include "clairfs/base/clock.h"
#include "stall_judge.h"

enum { SEEN_TIMES = 8, APART_MIN = 8 };
#define APART_NS NS_PER_MS
#define LINK_FULL 0.7

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

static void sum_without(const struct judge *j, struct without *w)
{
	const struct stall_pass *p = j->p;

	for (uint64_t i = p->from; i < p->end; i++) {
		const struct stall_slot *slot = &p->slot[i];

		if (!slot->flags)
			continue;
		w->again_ns += judge_times_again(j, w, slot) * judge_group(j, slot)->mean;
		if (judge_is_cached(j, w, slot))
			continue;
		if (slot->flags & SLOT_CREDIT) {
			w->n_credit[j->groups.of[slot->size_class]]++;
			w->s_credit_ns += (double)wait_of(slot);
		} else {
			w->own_ns += judge_own_wait(j, slot);
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

	stall_judge_batches(j);
	stall_judge_fit(j, play);
	stall_judge_play(j, play, j->with, &j->act);
	stall_judge_play_without(j, &j->cached, play, &j->act, &j->cached.cf);
	stall_judge_play_without(j, &j->bare, play, &j->act, &j->bare.cf);
	upper = MAX(judge_upper(j, &j->bare), j->bare.link_ns - (double)j->act.end_ns);
	bare = MIN(ends_apart(&j->bare.cf, &j->act), upper);
	estimate = MIN(ends_apart(&j->cached.cf, &j->act), upper);
	took = (double)j->reads_ns +
	       (double)(j->act.end_ns - MIN(j->act.fetched_ns, j->act.end_ns));
	if (j->next_ns)
		took = MIN(took, (double)j->next_ns);
	has_hook = stall_judge_hook(j, play, &hook, &hook_took);
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
	stall_judge_play(j, play, j->with, &free_reads);
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
	stall_judge_decode(&j);
	stall_judge_decode_limits(&j);
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
