/* SPDX-License-Identifier: Apache-2.0 */
/* The plan looked into, on small datasets: after every event each sample is in exactly the sets its
 * state says and every sum is right, whatever happens; and while a job follows its order every
 * single eviction is one that Belady's MIN may make. Nodes read all samples of each epoch, or a
 * part of them, another one each time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "src/plan/plan_priv.h"

#define N_MAX 70
#define WAITING 3000

struct world {
	uint32_t n, length, epochs;
	uint32_t n_order; /* samples that the order numbers, the first ones */
	uint64_t rnd, now, seed;
	struct plan *plan;
	struct order_info info;
	uint64_t size[N_MAX];
	bool is_there[N_MAX];
	struct plan_action todo[WAITING];
	uint32_t n_todo;
	uint64_t drops;
};

static uint64_t below(struct world *w, uint64_t n)
{
	return check_rand_below(&w->rnd, n);
}

static uint32_t sample_of(const struct world *w, uint32_t job, uint64_t epoch, uint32_t pos)
{
	uint64_t state = w->seed + epoch * 77 + job * 1234567ull;
	uint32_t all[N_MAX];

	for (uint32_t i = 0; i < w->n_order; i++)
		all[i] = i;
	for (uint32_t i = 0; i <= pos; i++) {
		uint32_t j = i + (uint32_t)check_rand_below(&state, w->n_order - i), t = all[i];

		all[i] = all[j];
		all[j] = t;
	}
	return all[pos];
}

static uint32_t sample_at(const struct world *w, uint64_t epoch, uint32_t pos)
{
	return sample_of(w, 0, epoch, pos);
}

static struct order_epoch *epoch_of(const struct world *w, uint32_t job, uint64_t epoch)
{
	struct order_epoch *ep = calloc(1, sizeof(*ep));

	*ep = (struct order_epoch){ .epoch = epoch, .length = w->length, .n = w->n };
	ep->sample = calloc(w->length, sizeof(uint32_t));
	ep->first = malloc(w->n * sizeof(uint32_t));
	memset(ep->first, 0xff, w->n * sizeof(uint32_t));
	for (uint32_t p = 0; p < w->length; p++) {
		ep->sample[p] = sample_of(w, job, epoch, p);
		ep->first[ep->sample[p]] = p;
	}
	return ep;
}

/* The sets of a sample, from its flags alone, said in another way than in the plan. */
static bool belongs_into(const struct plan *plan, const struct item *it, uint32_t set)
{
	uint32_t f = it->flags;
	bool is_free = !(f & (HELD | STAGED | STAGING | PINNING));
	bool may_come = !(f & (NO_FETCH | STAGING | PINNING)) && it->pages <= plan->max_pages;

	if (f & ALONE) /* the kernel has it: it is neither here nor missing */
		return false;
	switch (set) {
	case SET_WANT:
		return item_state(it) == ABSENT && may_come && !(f & PINNED);
	case SET_STORE:
		return item_state(it) == ABSENT && may_come && f & PINNED;
	case SET_GAP:
		return item_state(it) == FETCHING || (item_state(it) == ABSENT && !may_come);
	case SET_KEEP:
		return item_state(it) == ARENA && is_free;
	default:
		return item_state(it) == ARENA && !(f & (HELD | STAGED | STAGING | NO_STAGE)) &&
		       it->pages <= plan->stage_pages;
	}
}

struct members {
	uint64_t in[SLOTS][SET_COUNT];
};

/* Of one job; SET_KEEP is its home's only. */
static void audit_key(const struct plan *plan, const struct plan_job *job, uint32_t s,
		      struct members *members)
{
	const struct item *it = &plan->item[s];
	uint32_t key = *job_key(plan, job, s), pos = key_pos(key);
	const struct slot *slot = key_slot(job, key);

	CHECK(slot->ep && pos < slot->length);
	CHECK_U64(slot->ep->sample[pos], s);
	CHECK(!bitmap_get(&slot->consumed, pos));
	for (uint32_t set = 0; set < SET_COUNT; set++) {
		bool is_in = belongs_into(plan, it, set);

		if (set == SET_KEEP)
			is_in = is_in && (it->flags & HOME_MASK) >> HOME_SHIFT == job->home;
		CHECK_INT(tree_get(&slot->set[set], pos), is_in);
		members->in[slot - job->slots][set] += is_in;
	}
}

static void audit_sample(const struct plan *plan, uint32_t s, struct members *members,
			 uint64_t *n_far)
{
	const struct item *it = &plan->item[s];
	uint32_t bucket = (it->flags & BUCKET_MASK) >> BUCKET_SHIFT, keys = 0;
	uint32_t home = (it->flags & HOME_MASK) >> HOME_SHIFT;
	bool is_far, is_home = false;

	for (uint32_t j = 0; j < plan->top_home; j++) {
		if (!plan->keyed[j] || *job_key(plan, plan->keyed[j], s) == NO_KEY)
			continue;
		audit_key(plan, plan->keyed[j], s, &members[j]);
		is_home = is_home || home == j;
		keys++;
	}
	is_far = !keys && belongs_into(plan, it, SET_KEEP);
	CHECK(!keys || !belongs_into(plan, it, SET_KEEP) || is_home);
	CHECK_INT(tree_get(&plan->unkeyed, s), is_far && !bucket);
	for (uint32_t b = 0; b < LATER_EPOCHS && plan->later.mask; b++)
		CHECK_INT(tree_get(&plan->later.bucket[b], s), is_far && bucket == b + 1);
	*n_far += is_far && bucket;
}

static void audit_jobs(const struct plan *plan, const struct members *members)
{
	uint32_t n_jobs = 0, n_leaving = 0;

	for (uint32_t j = 0; j < KEYED_MAX; j++) {
		const struct plan_job *job = plan->keyed[j];

		if (!job)
			continue;
		CHECK(j < plan->top_home && job->home == j);
		CHECK(job->is_ended || plan->jobs[job->index] == job);
		n_jobs += !job->is_over;
		n_leaving += job->is_over;
		for (uint32_t i = 0; i < SLOTS; i++)
			for (uint32_t set = 0; set < SET_COUNT; set++)
				if (!job->is_over || set == SET_KEEP) /* nobody asks for others */
					CHECK_U64(job->slots[i].set[set].count,
						  members[j].in[i][set]);
	}
	CHECK_U64(plan->n_jobs, n_jobs);
	CHECK_U64(plan->n_leaving, n_leaving);
}

static void audit(const struct plan *plan)
{
	struct members members[KEYED_MAX] = { 0 };
	uint64_t used = 0, fresh = 0, fetching = 0, held = 0, staged = 0, pinned = 0;
	uint64_t far = 0, in_buckets = 0;

	for (uint32_t s = 0; s < plan->n; s++) {
		const struct item *it = &plan->item[s];

		audit_sample(plan, s, members, &far);
		if (it->flags & ALONE)
			CHECK(item_state(it) == ABSENT && it->flags & STAGED);
		CHECK(!(it->flags & ALONE_FRESH) || it->flags & ALONE);
		used += item_state(it) == ABSENT ? 0 : it->pages;
		fresh += it->flags & FRESH ? it->pages : 0;
		fetching += item_state(it) == FETCHING ? it->pages : 0;
		held += it->flags & HELD ? it->pages : 0;
		staged += it->flags & (STAGED | STAGING) ? it->pages : 0;
		pinned += it->flags & (PINNED | PINNING) ? it->pages : 0;
	}
	audit_jobs(plan, members);
	for (uint32_t b = 0; b < LATER_EPOCHS; b++) {
		in_buckets += plan->later.bucket[b].count;
		CHECK_INT(plan->later.filled >> b & 1, plan->later.bucket[b].count != 0);
	}
	CHECK_U64(in_buckets, far);
	CHECK_U64(plan->used_pages, used);
	CHECK_U64(plan->fresh_pages, fresh);
	CHECK_U64(plan->fetching_pages, fetching);
	CHECK_U64(plan->held_pages, held);
	CHECK_U64(plan->staged_pages, staged);
	CHECK_U64(plan->pinned_pages, pinned);
}

static void tell(struct world *w, struct plan_event ev)
{
	plan_event(w->plan, w->now, &ev);
	audit(w->plan);
}

static void answer(struct world *w, const struct plan_action *a, int status)
{
	struct plan_event ev = { .unit = a->unit,
				 .status = status,
				 .latency_ns = NS_PER_MS,
				 .bytes = w->size[a->unit.v % N_MAX] };

	switch (a->kind) {
	case PLAN_ACT_FETCH:
		w->is_there[a->unit.v] = status == 0;
		ev.kind = PLAN_EV_FETCHED;
		break;
	case PLAN_ACT_STAGE:
		ev.kind = PLAN_EV_STAGED;
		break;
	case PLAN_ACT_PIN:
		ev.kind = PLAN_EV_PINNED;
		break;
	default:
		ev.kind = PLAN_EV_EPOCH;
		ev.epoch = a->epoch;
		ev.job = a->job;
		ev.version = a->version;
		ev.order_epoch = status ? NULL : epoch_of(w, a->job, a->epoch);
	}
	tell(w, ev);
}

/* --- whatever happens --- */

static void chaos_step(struct world *w)
{
	struct plan_action a;

	plan_step(w->plan, w->now);
	while (plan_next_action(w->plan, &a)) {
		CHECK(w->n_todo < WAITING);
		if (a.kind != PLAN_ACT_DROP)
			w->todo[w->n_todo++] = a;
	}
	audit(w->plan);
	for (uint64_t k = below(w, 6); k && w->n_todo; k--) {
		uint32_t i = (uint32_t)below(w, w->n_todo);
		static const int failures[] = { -EIO, -ENOMEM, -ECANCELED, -ENOENT, -ENOSPC };

		a = w->todo[i];
		w->todo[i] = w->todo[--w->n_todo];
		answer(w, &a, below(w, 12) ? 0 : failures[below(w, ARRAY_LEN(failures))]);
	}
}

static void chaos_event(struct world *w)
{
	static const enum plan_event_kind kinds[] = { PLAN_EV_UNSTAGED, PLAN_EV_UNPINNED,
						      PLAN_EV_LOST_COPY, PLAN_EV_RESIZED,
						      PLAN_EV_KEPT };
	uint32_t s = (uint32_t)below(w, w->n);
	struct plan_event ev = { .unit = { s }, .kind = kinds[below(w, ARRAY_LEN(kinds))] };

	if (ev.kind == PLAN_EV_RESIZED)
		ev.bytes = w->size[s] = below(w, w->size[s] + 1);
	tell(w, ev);
}

/* A job comes, goes, or tells another order; it may have come before, then it starts again. */
static void chaos_job(struct world *w, uint32_t jobs, uint64_t *epoch, uint64_t *pos)
{
	uint32_t j = (uint32_t)below(w, jobs);
	struct plan_status st;

	if (plan_get_job_status(w->plan, j, &st) && below(w, 2)) {
		CHECK_INT(plan_change_job(w->plan, j, &w->info), 0);
		if (below(w, 2)) /* or it has begun by it before it told it */
			epoch[j] = pos[j] = 0;
	} else if (plan_get_job_status(w->plan, j, &st)) {
		plan_end_job(w->plan, j);
	} else {
		int index = plan_add_job(w->plan, &w->info);

		CHECK(index >= 0 && index < PLAN_JOBS);
		epoch[index] = pos[index] = 0;
	}
	audit(w->plan);
}

/* What no order numbers, between two epochs: all or a part of it, in one order or in any. */
static void chaos_validation(struct world *w)
{
	uint32_t rest = w->n - w->n_order, count = rest;
	bool is_shuffled = !below(w, 4);

	if (!below(w, 4))
		count = (uint32_t)below(w, rest + 1);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t s = w->n_order + (is_shuffled ? (uint32_t)below(w, rest) : i);

		w->now += below(w, NS_PER_MS);
		tell(w, (struct plan_event){ .kind = PLAN_EV_OPENED, .unit = { s } });
		chaos_step(w);
	}
}

/* Returns how many reads of validation sets were foreseen. */
static uint64_t chaos_run(uint64_t seed, uint32_t jobs)
{
	struct world w = { .rnd = seed, .seed = seed, .now = NS_PER_S };
	uint64_t epoch[PLAN_JOBS] = { 0 }, pos[PLAN_JOBS] = { 0 };
	uint64_t foreseen = 0;
	struct plan_status st;
	struct plan_params p;

	w.n = 2 + (uint32_t)below(&w, N_MAX - 2);
	w.n_order = below(&w, 2) ? w.n : 1 + (uint32_t)below(&w, w.n);
	w.length = 1 + (w.n_order - 1) / (1 + (uint32_t)below(&w, 5));
	w.info = (struct order_info){ .n = w.n, .world = 1, .n_ranks = 1, .epochs = below(&w, 30) };
	for (uint32_t i = 0; i < w.n; i++)
		w.size[i] = below(&w, 6 * 4096);
	p = (struct plan_params){ .n = w.n,
				  .size = w.size,
				  .order = &w.info,
				  .arena_bytes = (24 + below(&w, 3 * w.n)) * 4096,
				  .spare_bytes = below(&w, 8) * 4096,
				  .stage_bytes = below(&w, 40) * 4096,
				  .store_bytes = below(&w, 4) ? 0 : below(&w, 2 * w.n) * 4096,
				  .pin_rule = (enum plan_pin_rule)below(&w, 3),
				  .inflight_min = 1,
				  .inflight_max = 1 + (uint32_t)below(&w, 8),
				  .span = 1 + (uint32_t)below(&w, 12) };
	CHECK_INT(plan_new(&p, &w.plan), 0);
	if (below(&w, 2)) /* keys are given and taken over many steps */
		w.plan->work_most = 1 + (uint32_t)below(&w, 40);
	for (int i = 0; i < 1500; i++) {
		w.now += below(&w, 60) ? below(&w, 2 * NS_PER_MS) : below(&w, 2 * NS_PER_S);
		if (!below(&w, 15))
			chaos_event(&w);
		if (!below(&w, 200)) { /* a job jumps */
			uint64_t j = below(&w, jobs);

			epoch[j] = below(&w, 20);
			pos[j] = below(&w, w.length);
		}
		if (jobs > 1 && !below(&w, 60))
			chaos_job(&w, jobs, epoch, pos);
		if (below(&w, 3)) {
			uint32_t j = (uint32_t)below(&w, jobs);
			uint32_t s = sample_of(&w, j, epoch[j], (uint32_t)pos[j]);

			if (!below(&w, 30))
				s = (uint32_t)below(&w, w.n);
			tell(&w, (struct plan_event){ .kind = PLAN_EV_OPENED, .unit = { s } });
			epoch[j] += ++pos[j] == w.length;
			pos[j] %= w.length;
			if (!pos[j] && below(&w, 4))
				chaos_validation(&w);
		}
		chaos_step(&w);
	}
	while (w.n_todo) {
		struct plan_action a = w.todo[--w.n_todo];

		answer(&w, &a, 0);
	}
	for (uint32_t j = 0; j < PLAN_JOBS; j++)
		if (plan_get_job_status(w.plan, j, &st))
			foreseen += st.valid_foreseen;
	plan_free(w.plan);
	return foreseen;
}

static void sets_are_what_states_say_after_every_event(void)
{
	uint64_t seed = check_seed(), foreseen = 0;

	for (uint64_t run = 0; run < 16 || (!foreseen && run < 160); run++) /* in one of six */
		foreseen += chaos_run(seed + run * 7919, 1);
	CHECK(foreseen > 0);
}

static void so_they_are_when_jobs_come_and_go(void)
{
	uint64_t seed = check_seed();

	for (uint64_t run = 0; run < 16; run++)
		chaos_run(seed + run * 104729, 2 + run % 4);
}

/* --- a job that follows its order --- */

/* When a sample is read next after so many reads: exact within the passes that the plan has loaded,
 * else the epoch. */
static uint64_t next_use(const struct world *w, uint32_t sample, uint64_t reads)
{
	const struct slot *cur = job_cur(w->plan->jobs[0]), *next = job_next(w->plan->jobs[0]);
	uint64_t exact_until = next->ep ? next->epoch : cur->epoch;

	for (uint64_t at = reads; at < (uint64_t)w->epochs * w->length; at++) {
		if (sample_at(w, at / w->length, (uint32_t)(at % w->length)) != sample)
			continue;
		return at / w->length <= exact_until ? at : (at / w->length + 1) * w->length;
	}
	return UINT64_MAX;
}

/* The sample that was read last may still be at work. */
static void check_victim(struct world *w, uint32_t victim, uint64_t reads)
{
	uint64_t due = next_use(w, victim, reads);
	uint32_t last =
		reads ? sample_at(w, (reads - 1) / w->length, (uint32_t)((reads - 1) % w->length))
		      : SAMPLE_NONE;

	w->drops++;
	CHECK(w->is_there[victim]);
	for (uint32_t s = 0; s < w->n; s++)
		if (w->is_there[s] && s != last)
			CHECK(next_use(w, s, reads) <= due);
}

static void honest_step(struct world *w, uint64_t reads)
{
	struct plan_action a[ACTIONS_MAX];
	uint64_t wake;
	uint32_t n;

	do {
		uint64_t dropped = UINT64_MAX; /* the first that is needed of those dropped */

		wake = plan_step(w->plan, w->now);
		for (n = 0; n < ACTIONS_MAX && plan_next_action(w->plan, &a[n]); n++)
			;
		/* The plan decided all of it before any of it came true. */
		for (uint32_t i = 0; i < n; i++) {
			if (a[i].kind == PLAN_ACT_DROP && !job_next(w->plan->jobs[0])->is_rerun)
				check_victim(w, a[i].unit.v, reads);
			if (a[i].kind == PLAN_ACT_DROP) {
				dropped = MIN(dropped, next_use(w, a[i].unit.v, reads));
				w->is_there[a[i].unit.v] = false;
			}
			if (a[i].kind == PLAN_ACT_FETCH && !job_next(w->plan->jobs[0])->is_rerun)
				CHECK(next_use(w, a[i].unit.v, reads) < dropped);
		}
		for (uint32_t i = 0; i < n; i++)
			if (a[i].kind != PLAN_ACT_DROP)
				answer(w, &a[i], 0);
	} while (n || wake <= w->now);
}

static uint64_t honest_run(uint64_t seed, uint32_t n, uint32_t length, uint32_t capacity)
{
	struct world w = { .n = n,
			   .n_order = n,
			   .length = length,
			   .epochs = 12,
			   .seed = seed,
			   .rnd = seed,
			   .now = NS_PER_S };
	struct plan_params p;

	w.info = (struct order_info){ .n = n, .world = 1, .n_ranks = 1, .epochs = w.epochs };
	p = (struct plan_params){ .n = n,
				  .size = w.size,
				  .order = &w.info,
				  .arena_bytes = capacity * 4096ull,
				  .inflight_min = 1,
				  .inflight_max = 1,
				  .span = 1 };
	CHECK_INT(plan_new(&p, &w.plan), 0);
	honest_step(&w, 0);
	for (uint64_t reads = 0; reads < (uint64_t)w.epochs * length; reads++) {
		w.now += NS_PER_MS;
		tell(&w, (struct plan_event){ .kind = PLAN_EV_OPENED,
					      .unit = { sample_at(&w, reads / length,
								  (uint32_t)(reads % length)) } });
		honest_step(&w, reads + 1);
	}
	plan_free(w.plan);
	return w.drops;
}

static void every_eviction_is_beladys(void)
{
	uint64_t seed = check_seed(), drops = 0;

	for (uint64_t run = 0; run < 12; run++) {
		uint64_t rnd = seed + run;
		uint32_t n = 30 + (uint32_t)check_rand_below(&rnd, 40);
		uint32_t parts = 1 + (uint32_t)(run % 4);

		drops += honest_run(seed + run * 7919, n, n / parts,
				    8 + (uint32_t)check_rand_below(&rnd, n - 10));
	}
	CHECK(drops > 500);
}

static const struct check_test tests[] = {
	{ "sets_are_what_states_say_after_every_event",
	  sets_are_what_states_say_after_every_event },
	{ "so_they_are_when_jobs_come_and_go", so_they_are_when_jobs_come_and_go },
	{ "every_eviction_is_beladys", every_eviction_is_beladys },
};
CHECK_MAIN(tests)
