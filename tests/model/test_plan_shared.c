/* SPDX-License-Identifier: Apache-2.0 */
/* Two jobs whose orders share samples, and one of them leaves. Each reads its own third of the
 * samples and the third that both read. What was kept for the job that left is kept for nobody and
 * leaves first; what the other one needs stays, in the order in which it needs it; and no call
 * looks at more than its share of the samples while they find their way from one to the other.
 *
 * The job that leaves reads what is shared last, so that its last ones are not what may go; and what
 * only it reads has the highest numbers, so that samples which are looked at by number come late. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "src/plan/plan_priv.h"


struct duo {
	struct plan *plan;
	uint32_t n;
	uint64_t seed, now;
	bool *is_there;
	bool *was_evictable; /* before this step; NULL: nobody looks */
	uint32_t n_own;      /* of those there, of job 0 only */
	uint64_t touched, most, drops;
	bool has_left; /* job 0 */
	bool is_known; /* before this step: what job 1 needs */
};

static bool is_own_of_0(const struct duo *d, uint32_t sample)
{
	return sample >= d->n / 3 * 2;
}

/* In any order. */
static void shuffle(uint32_t *sample, uint64_t n, uint64_t *rnd)
{
	for (uint64_t i = n; i > 1; i--) {
		uint64_t j = check_rand_below(rnd, i);
		uint32_t t = sample[j];

		sample[j] = sample[i - 1];
		sample[i - 1] = t;
	}
}

/* Job 0: the last third, then the first one, which are also those of job 1 with the second. */
static struct order_epoch *epoch_of(const struct duo *d, uint32_t job, uint64_t epoch)
{
	uint64_t rnd = d->seed + 1000003 * epoch + job;
	struct order_epoch *ep = calloc(1, sizeof(*ep));
	uint32_t third = d->n / 3;

	CHECK(ep != NULL);
	*ep = (struct order_epoch){ .epoch = epoch, .n = d->n, .length = 2 * third };
	ep->sample = malloc(ep->length * sizeof(uint32_t));
	ep->first = malloc(d->n * sizeof(uint32_t));
	CHECK(ep->sample && ep->first);
	memset(ep->first, 0xff, d->n * sizeof(uint32_t)); /* SAMPLE_NONE */
	for (uint32_t i = 0; i < third; i++) {
		ep->sample[i] = job ? i : 2 * third + i;
		ep->sample[third + i] = job ? third + i : i;
	}
	shuffle(ep->sample, job ? ep->length : third, &rnd);
	if (!job)
		shuffle(&ep->sample[third], third, &rnd);
	for (uint32_t i = 0; i < ep->length; i++)
		ep->first[ep->sample[i]] = i;
	return ep;
}

static void count_touched(struct duo *d)
{
	d->most = MAX(d->most, d->plan->touched - d->touched);
	d->touched = d->plan->touched;
}

/* While there is one that nobody needs, no other one goes; but while it is not known of all what
 * needs them. */
static void check_drop(struct duo *d, uint32_t sample)
{
	CHECK(d->is_there[sample]);
	d->is_there[sample] = false;
	d->n_own -= is_own_of_0(d, sample);
	d->drops += d->has_left;
	if (d->has_left && d->is_known && !is_own_of_0(d, sample))
		CHECK_U64(d->n_own, 0);
}

static void duo_act(struct duo *d, const struct plan_action *a)
{
	struct plan_event ev = { .unit = a->unit, .latency_ns = NS_PER_MS };

	if (a->kind == PLAN_ACT_DROP)
		return;
	if (a->kind == PLAN_ACT_EPOCH) {
		ev = (struct plan_event){ .kind = PLAN_EV_EPOCH,
					  .epoch = a->epoch,
					  .job = a->job,
					  .version = a->version,
					  .order_epoch = epoch_of(d, a->job, a->epoch) };
	} else {
		CHECK_INT(a->kind, PLAN_ACT_FETCH);
		ev.kind = PLAN_EV_FETCHED;
		ev.status = a->is_adopted ? -EAGAIN : 0; /* nobody has asked the source */
		if (!a->is_adopted && !d->is_there[a->unit.v]) {
			d->is_there[a->unit.v] = true;
			d->n_own += is_own_of_0(d, a->unit.v);
		}
	}
	plan_event(d->plan, d->now, &ev);
	count_touched(d);
}

/* Of those that could have left and did not, none is needed later than one that has left; but of
 * those kept for job 0 that is not asked before all is known. */
static void check_last(const struct duo *d, const struct plan_action *a, uint32_t n_actions)
{
	const struct plan_job *job = d->plan->jobs[1];
	uint64_t first = NO_POS;

	for (uint32_t i = 0; i < n_actions; i++)
		if (a[i].kind == PLAN_ACT_DROP)
			first = MIN(first, job_due(d->plan, job, a[i].unit.v));
	for (uint32_t s = 0; s < d->n && first != NO_POS; s++) {
		const struct item *it = &d->plan->item[s];
		uint64_t due = job_due(d->plan, job, s);

		if (d->was_evictable[s] && item_is_evictable(it) &&
		    (d->is_known || (due != NO_POS && item_home(d->plan, it) == job)))
			CHECK(due <= first);
	}
}

/* Returns whether it wants to be called again at once. */
static bool duo_step(struct duo *d)
{
	static struct plan_action a[ACTIONS_MAX];
	uint64_t wake;
	uint32_t n;

	for (uint32_t s = 0; d->was_evictable && s < d->n; s++)
		d->was_evictable[s] = item_is_evictable(&d->plan->item[s]);
	d->is_known = retain_knows_keys(d->plan);
	wake = plan_step(d->plan, d->now);
	count_touched(d);
	for (n = 0; n < ACTIONS_MAX && plan_next_action(d->plan, &a[n]); n++)
		if (a[n].kind == PLAN_ACT_DROP)
			check_drop(d, a[n].unit.v);
	if (d->was_evictable && d->has_left)
		check_last(d, a, n);
	for (uint32_t i = 0; i < n; i++)
		duo_act(d, &a[i]);
	return n || wake <= d->now;
}

static void duo_settle(struct duo *d)
{
	while (duo_step(d))
		;
}

static void duo_read(struct duo *d, uint32_t sample)
{
	struct plan_event ev = { .kind = PLAN_EV_OPENED, .unit = { sample } };

	d->now += NS_PER_MS / 4;
	plan_event(d->plan, d->now, &ev);
	count_touched(d);
	duo_settle(d);
}

static void duo_new(struct duo *d, uint32_t n, uint64_t arena_pages)
{
	struct order_info info = { .n = n, .world = 1, .n_ranks = 1, .start_epoch = 1 };
	struct plan_params p = { .n = n,
				 .size = calloc(n, sizeof(uint64_t)),
				 .order = &info,
				 .arena_bytes = arena_pages * PAGE_BYTES,
				 .inflight_min = 16,
				 .inflight_max = 16,
				 .span = 16 };

	d->n = n;
	d->now = NS_PER_S;
	d->is_there = calloc(n, sizeof(*d->is_there));
	CHECK(p.size && d->is_there);
	CHECK_INT(plan_new(&p, &d->plan), 0);
	free((void *)p.size);
	CHECK_INT(plan_add_job(d->plan, &info), 1);
}

static void duo_free(struct duo *d)
{
	plan_free(d->plan);
	free(d->is_there);
	free(d->was_evictable);
}

/* Both read so much of their first epoch, in turns. */
static void duo_begin(struct duo *d, uint64_t reads)
{
	struct order_epoch *ep[2] = { epoch_of(d, 0, 1), epoch_of(d, 1, 1) };

	duo_settle(d);
	for (uint64_t i = 0; i < reads; i++)
		for (uint32_t job = 0; job < 2; job++)
			duo_read(d, ep[job]->sample[i]);
	for (uint32_t job = 0; job < 2; job++) {
		CHECK_INT(d->plan->jobs[job]->state, PLAN_FOLLOWING);
		order_epoch_free(ep[job]);
	}
	d->now += 2 * NS_PER_S; /* what was read a moment ago is held */
	duo_settle(d);
}

static void duo_leave(struct duo *d)
{
	CHECK(d->n_own > 0);
	plan_end_job(d->plan, 0);
	count_touched(d);
	d->has_left = true;
	duo_settle(d);
}

static void leave_run(uint64_t seed, uint32_t work_most)
{
	struct duo d = { .seed = seed };
	struct order_epoch *ep;

	duo_new(&d, 600, 150 + seed % 100);
	d.was_evictable = calloc(d.n, sizeof(*d.was_evictable));
	CHECK(d.was_evictable != NULL);
	duo_begin(&d, 60);
	d.plan->work_most = work_most;
	d.most = 0;
	duo_leave(&d);
	CHECK_U64(d.plan->n_leaving, 0);
	CHECK(d.most <= 2 * (uint64_t)work_most + 64);
	ep = epoch_of(&d, 1, 1);
	for (uint64_t i = 60; i < ep->length; i++)
		duo_read(&d, ep->sample[i]);
	order_epoch_free(ep);
	CHECK(d.drops > 0);
	CHECK_U64(d.n_own, 0); /* nothing is kept for nobody */
	duo_free(&d);
}

/* In one step, and in many. */
static void what_another_job_needs_stays_when_one_leaves(void)
{
	uint64_t seed = check_seed();

	for (uint64_t run = 0; run < 8; run++)
		leave_run(seed + run, run % 2 ? WORK_MOST : 1 + (uint32_t)run * 4);
}

static void set_memory(struct duo *d, uint64_t pages)
{
	plan_set_memory(d->plan, pages * PAGE_BYTES, 0);
	CHECK_U64(d->plan->arena_pages, pages);
}

/* Before what the other one needs next is known: then it is MIN by what is. */
static void so_it_does_while_a_pass_is_taken_in(void)
{
	struct duo d = { .seed = check_seed() };
	struct order_epoch *ep;

	duo_new(&d, 600, 300);
	d.was_evictable = calloc(d.n, sizeof(*d.was_evictable));
	CHECK(d.was_evictable != NULL);
	duo_begin(&d, 60);
	ep = epoch_of(&d, 1, 1);
	for (uint64_t i = 60; i < ep->length; i++)
		duo_read(&d, ep->sample[i]);
	order_epoch_free(ep);
	ep = epoch_of(&d, 1, 2);
	d.plan->work_most = 8;
	d.now += 2 * NS_PER_S;
	duo_settle(&d);
	plan_event(d.plan, ++d.now,
		   &(struct plan_event){ .kind = PLAN_EV_OPENED, .unit = { ep->sample[0] } });
	while (d.plan->jobs[1]->cur == 0 || !job_next(d.plan->jobs[1])->ep)
		duo_step(&d);
	CHECK(!retain_knows_keys(d.plan));
	plan_end_job(d.plan, 0);
	d.has_left = true;
	set_memory(&d, 100);
	duo_settle(&d);
	CHECK(d.drops >= 200 && d.plan->used_pages <= 100);
	order_epoch_free(ep);
	duo_free(&d);
}

/* By paces as they are. */
static void find_homes(struct plan *plan)
{
	for (uint32_t s = 0; s < plan->n; s++) {
		item_out(plan, s);
		item_in(plan, s);
	}
}

/* Both are at work, but one of them is much slower than it was: what both read is needed first by the
 * other one now. */
static void memory_is_given_back_whoever_its_samples_were_kept_for(void)
{
	struct duo d = { .seed = check_seed() };

	duo_new(&d, 600, 300);
	duo_begin(&d, 60);
	d.plan->jobs[0]->pace.rate = 1e6;
	d.plan->jobs[1]->pace.rate = 1e3;
	find_homes(d.plan);
	d.plan->jobs[0]->pace.rate = 1;
	d.plan->work_most = 1;
	d.touched = d.plan->touched;
	d.most = 0;
	set_memory(&d, 60);
	duo_settle(&d);
	CHECK(d.plan->used_pages <= 60);
	CHECK(d.most <= 2 + 300); /* and those that leave */
	duo_free(&d);
}

/* Counted, as time says little on a machine that does other things. */
static void shared_samples_change_hands_a_share_at_a_time(void)
{
	struct duo d = { .seed = 1 };

	duo_new(&d, 600000, 150000);
	d.plan->work_most = WORK_MOST / 4; /* as of many millions */
	duo_begin(&d, 200);
	CHECK_U64(d.plan->used_pages, 150000);
	duo_leave(&d);
	CHECK(d.drops > 0);
	CHECK_U64(d.n_own, 0);
	CHECK_U64(d.plan->n_leaving, 0);
	CHECK(d.most >= d.plan->work_most);
	CHECK(d.most <= 2 * d.plan->work_most + 2 * ACTIONS_MAX);
	duo_free(&d);
}

static const struct check_test tests[] = {
	{ "what_another_job_needs_stays_when_one_leaves",
	  what_another_job_needs_stays_when_one_leaves },
	{ "so_it_does_while_a_pass_is_taken_in", so_it_does_while_a_pass_is_taken_in },
	{ "memory_is_given_back_whoever_its_samples_were_kept_for",
	  memory_is_given_back_whoever_its_samples_were_kept_for },
	{ "shared_samples_change_hands_a_share_at_a_time",
	  shared_samples_change_hands_a_share_at_a_time },
};
CHECK_MAIN(tests)
