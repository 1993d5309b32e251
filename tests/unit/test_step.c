/* SPDX-License-Identifier: Apache-2.0 */
/* The deciding half of the drive, a step at a time: no thread, no clock, no cache. What it asks and has
 * done ends in the hands of the test, which answers as a mount would, or would not. The program links
 * that half, the plan and what is below it: whatever else it came to need would be an undefined reference. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/ids.h"
#include "clairfs/step.h"

enum { PAGE = 4096, KINDS = 5, SENT_MAX = 65536 };

struct world {
	struct step step;
	struct step_hands hands;
	uint32_t n;
	uint64_t now;
	/* What was sent, and not answered yet; refs of epochs in the same place. */
	struct plan_action sent[SENT_MAX];
	struct order_ref *ref[SENT_MAX];
	uint32_t n_sent, n_answered;
	uint32_t count[KINDS]; /* sent, by enum plan_action_kind */
	int refuse[KINDS];     /* answered with that at once */
	int status[KINDS];     /* or with that later */
	uint64_t digest;       /* of all that was sent, in order */
	uint32_t n_no_memory, n_gone;
	/* hold_back: the sample that is held back, and what was asked ahead */
	uint32_t held, n_asked, n_ahead, last_ahead;
	uint64_t ahead;
	bool is_let;
	struct step_use last_use;
	struct step_place place; /* of the last open; length 0: none */
	uint32_t n_opened;
	/* the store */
	bool has_store, takes_more;
	uint32_t found, n_looked, n_unwanted;
	/* pages */
	uint32_t n_given, given_to, forgotten_from;
	uint32_t n_memory; /* the plan was told of memory */
};

/* --- hands --- */

static void note_sent(struct world *w, const struct plan_action *a, struct order_ref *ref)
{
	CHECK(w->n_sent < SENT_MAX);
	w->ref[w->n_sent] = ref;
	w->sent[w->n_sent++] = *a;
	w->count[a->kind]++;
	w->digest = (w->digest ^ (uint64_t)a->kind << 32 ^ a->unit.v ^ a->epoch << 40) *
		    0x9e3779b97f4a7c15ull;
}

static int send_it(void *ctx, const struct plan_action *a)
{
	struct world *w = ctx;

	if (w->refuse[a->kind])
		return w->refuse[a->kind];
	note_sent(w, a, NULL);
	return 0;
}

static int send_epoch(void *ctx, const struct plan_action *a, struct order_ref *take_order)
{
	struct world *w = ctx;

	if (w->refuse[a->kind])
		return w->refuse[a->kind];
	note_sent(w, a, take_order);
	return 0;
}

static void drop(void *ctx, const struct plan_action *a)
{
	note_sent(ctx, a, NULL);
}

static void no_memory(void *ctx)
{
	((struct world *)ctx)->n_no_memory++;
}

static bool hold_back(void *ctx, const struct step_use *use)
{
	struct world *w = ctx;

	if (use->is_ahead) {
		w->n_ahead++;
		w->last_ahead = use->unit.v;
		return false;
	}
	w->n_asked += use->unit.v == w->held;
	return use->unit.v == w->held;
}

static void opened(void *ctx, struct unit_id unit, const struct step_place *place)
{
	struct world *w = ctx;

	w->n_opened++;
	w->place = place ? *place : (struct step_place){ .length = 0 };
}

static uint64_t used(void *ctx, const struct step_use *use, uint64_t now_ns, bool *ret_lets)
{
	struct world *w = ctx;

	CHECK_U64(now_ns, w->now);
	w->last_use = *use;
	*ret_lets = w->is_let;
	return w->ahead;
}

static void go(void *ctx)
{
	((struct world *)ctx)->n_gone++;
}

static bool keeps_any(void *ctx)
{
	return ((struct world *)ctx)->has_store;
}

static bool keeps(void *ctx, struct unit_id unit)
{
	struct world *w = ctx;

	w->n_looked++;
	return unit.v % 2;
}

static void unwant(void *ctx, struct unit_id unit)
{
	struct world *w = ctx;

	w->n_unwanted++;
}

static uint32_t n_found(void *ctx)
{
	return ((struct world *)ctx)->found;
}

static bool takes_more(void *ctx)
{
	return ((struct world *)ctx)->takes_more;
}

static bool give_back(void *ctx, uint32_t *at)
{
	struct world *w = ctx;

	CHECK_U64(w->step.all.stage_bytes, 0); /* the plan has forgotten them */
	w->n_given++;
	return ++*at < w->given_to;
}

static void forget_pushed(void *ctx, uint32_t at)
{
	((struct world *)ctx)->forgotten_from = at;
}

static void called(void *ctx, const struct plan_call *call)
{
	((struct world *)ctx)->n_memory += call->kind == PLAN_CALL_MEMORY;
}

/* --- the world --- */

/* A job that numbers the first half only. */
static int number_half(void *ctx, const char *sort, const char *under, uint32_t **ret_sample,
		       uint64_t *ret_n, struct err *err)
{
	const uint32_t *n = ctx;

	*ret_n = *n / 2;
	*ret_sample = calloc(*ret_n, sizeof(**ret_sample));
	for (uint32_t i = 0; i < *ret_n; i++)
		(*ret_sample)[i] = i;
	return 0;
}

/* As the dataset has them: they live as long as the orders. */
static const struct unit_map *map_of(uint32_t n)
{
	static struct unit_map maps[8];
	uint32_t i = 0;

	while (maps[i].n_samples && maps[i].n_samples != n)
		CHECK(++i < ARRAY_LEN(maps));
	maps[i] = (struct unit_map){ .n_samples = n, .n_units = n };
	return &maps[i];
}

static struct order_ref *make_order(uint32_t n, const char *text)
{
	struct order_params params = { .n = n, .number = number_half, .number_ctx = &n };
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };
	struct order_ref *ref;

	CHECK_INT(order_spec_parse(text, &spec, &err), 0);
	CHECK_INT(order_new(spec, &params, &order, &err), 0);
	order_spec_free(spec);
	ref = order_ref_new(order, map_of(n), true);
	CHECK(ref != NULL);
	return ref;
}

static const struct step_hands all_hands = { .fetch = send_it,
					     .stage = send_it,
					     .pin = send_it,
					     .epoch = send_epoch,
					     .drop = drop,
					     .no_memory = no_memory,
					     .hold_back = hold_back,
					     .opened = opened,
					     .used = used,
					     .go = go,
					     .keeps_any = keeps_any,
					     .keeps = keeps,
					     .unwant = unwant,
					     .n_found = n_found,
					     .takes_more = takes_more,
					     .give_back = give_back,
					     .forget_pushed = forget_pushed };

/* text NULL: no order. All samples are a page, and as many fit as `fit`. */
static struct world *world_new(uint32_t n, uint32_t fit, const char *text, bool has_store)
{
	struct world *w = calloc(1, sizeof(*w));
	struct order_ref *order = text ? make_order(n, text) : NULL;
	AUTO_FREE uint64_t *size = calloc(n, sizeof(*size));
	struct plan_params pp = { .n = n,
				  .size = size,
				  .order = order ? order_info(order->order) : NULL,
				  .arena_bytes = (uint64_t)fit * PAGE,
				  .stage_bytes = 64 * PAGE,
				  .store_bytes = has_store ? (uint64_t)n * PAGE : 0,
				  .inflight_min = 8,
				  .inflight_max = 8,
				  .span = 16 };
	struct step_params params = { .order = order,
				      .n = n,
				      .arena_bytes = pp.arena_bytes,
				      .stage_bytes = pp.stage_bytes };

	for (uint32_t i = 0; i < n; i++)
		size[i] = PAGE;
	w->n = n;
	w->now = NS_PER_S;
	w->held = SAMPLE_NONE;
	w->forgotten_from = UINT32_MAX;
	w->has_store = has_store;
	w->takes_more = true;
	w->hands = all_hands;
	w->hands.ctx = w;
	params.hands = &w->hands;
	CHECK_INT(plan_new(&pp, &params.plan), 0);
	plan_set_watch(params.plan, &(struct plan_watch){ .called = called, .ctx = w });
	CHECK_INT(step_init(&w->step, &params, w->now), 0);
	return w;
}

static void answer(struct world *w, uint32_t at)
{
	const struct plan_action *a = &w->sent[at];
	struct plan_event ev = { .unit = a->unit,
				 .epoch = a->epoch,
				 .job = a->job,
				 .version = a->version,
				 .status = w->status[a->kind] };
	struct err err = { 0 };

	switch (a->kind) {
	case PLAN_ACT_FETCH:
		ev.kind = PLAN_EV_FETCHED;
		ev.bytes = PAGE;
		ev.latency_ns = NS_PER_MS;
		break;
	case PLAN_ACT_STAGE:
		ev.kind = PLAN_EV_STAGED;
		break;
	case PLAN_ACT_PIN:
		ev.kind = PLAN_EV_PINNED;
		break;
	case PLAN_ACT_EPOCH:
		ev.kind = PLAN_EV_EPOCH;
		ev.status = atomic_load(&w->ref[at]->is_over) ? -ECANCELED : 0;
		if (ev.status == 0)
			ev.status = order_epoch_new(w->ref[at]->order, a->epoch, &ev.order_epoch, &err);
		order_ref_put(w->ref[at]);
		break;
	case PLAN_ACT_DROP:
	case PLAN_ACT_COME:
		return;
	}
	step_event(&w->step, w->now, &ev);
}

static void answer_all(struct world *w)
{
	while (w->n_answered < w->n_sent)
		answer(w, w->n_answered++);
	w->n_answered = w->n_sent = 0;
}

/* A millisecond later. Returns when the step wants to be called again. */
static uint64_t round_of(struct world *w)
{
	uint64_t wake;

	w->now += NS_PER_MS;
	wake = step_round(&w->step, w->now);
	step_look(&w->step, w->now);
	return wake;
}

/* Until nothing more is sent. */
static void settle(struct world *w)
{
	do {
		answer_all(w);
		round_of(w);
	} while (w->n_sent);
}

static void open_sample(struct world *w, uint32_t sample)
{
	struct plan_event ev = { .kind = PLAN_EV_OPENED, .unit = { sample } };

	step_event(&w->step, w->now, &ev);
}

static void read_from(struct world *w, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		open_sample(w, i);
		settle(w);
	}
}

static void world_free(struct world *w)
{
	for (uint32_t i = w->n_answered; i < w->n_sent; i++)
		order_ref_put(w->ref[i]);
	step_fini(&w->step);
	free(w);
}

/* --- tests --- */

static void what_the_plan_wants_is_sent_and_the_job_followed(void)
{
	struct world *w = world_new(200, 400, "sequential:epochs=3", false);

	settle(w);
	CHECK_INT(step_state(&w->step), PLAN_WAITING);
	CHECK(w->count[PLAN_ACT_EPOCH] >= 1);
	CHECK(w->count[PLAN_ACT_FETCH] >= 64); /* the start is there before anybody reads */
	CHECK(w->count[PLAN_ACT_STAGE] >= 64);
	read_from(w, 0, 100);
	CHECK_INT(step_state(&w->step), PLAN_FOLLOWING);
	CHECK_U64(w->n_opened, 100);
	CHECK_U64(w->place.job, 0);
	CHECK_U64(w->place.position, 99);
	CHECK_U64(w->place.length, 200);
	CHECK_U64(w->step.first.position, 100);
	CHECK_U64(w->step.job[0].read_ns <= w->now && w->step.job[0].read_ns > 0, 1);
	CHECK_U64(w->step.all.failed, 0);
	world_free(w);
}

/* Nothing is left open in the plan, and it asks again. */
static void what_is_not_sent_is_answered_in_the_same_round(void)
{
	struct world *w = world_new(100, 200, "sequential", false);
	uint32_t n;

	w->refuse[PLAN_ACT_FETCH] = -ENOMEM;
	settle(w);
	settle(w);
	CHECK_U64(w->count[PLAN_ACT_FETCH], 0);
	CHECK(w->n_no_memory > 0);
	CHECK_U64(w->step.all.inflight, 0);
	CHECK_U64(w->step.n_unanswered, 0);
	w->refuse[PLAN_ACT_FETCH] = 0;
	n = w->n_no_memory;
	for (uint32_t i = 0; i < 100 && !w->count[PLAN_ACT_FETCH]; i++) {
		w->now += NS_PER_S;
		settle(w);
	}
	CHECK(w->count[PLAN_ACT_FETCH] > 0);
	CHECK_U64(w->n_no_memory, n);
	world_free(w);
}

static void pages_that_cannot_be_pushed_take_no_room(void)
{
	struct world *w = world_new(100, 200, "sequential", false);

	w->refuse[PLAN_ACT_STAGE] = -EOPNOTSUPP;
	settle(w);
	CHECK(w->count[PLAN_ACT_FETCH] > 0);
	CHECK_U64(w->count[PLAN_ACT_STAGE], 0);
	CHECK_U64(w->step.all.stage_bytes, 0);
	CHECK_U64(w->n_no_memory, 0);
	world_free(w);
}

/* The plan hears of it as nobody's failure, and it is asked with each use. */
static void sample_that_is_held_back_is_not_sent(void)
{
	struct world *w = world_new(50, 100, "sequential:epochs=3", false);

	w->held = 7;
	settle(w);
	CHECK_U64(w->n_asked, 1);
	for (uint32_t i = 0; i < w->n_sent; i++)
		CHECK(w->sent[i].unit.v != 7 || w->sent[i].kind == PLAN_ACT_EPOCH);
	CHECK_U64(w->step.all.failed, 0);
	read_from(w, 0, 50);
	CHECK(w->n_asked >= 2); /* for the next pass */
	CHECK_U64(w->step.all.failed, 0);
	w->hands.hold_back = NULL; /* nobody measures: nothing is asked */
	w->n_asked = 0;
	read_from(w, 0, 20);
	CHECK_U64(w->n_asked, 0);
	world_free(w);
}

static void what_is_kept_is_looked_at_ahead_of_who_reads(void)
{
	struct world *w = world_new(200, 400, "sequential:epochs=2", false);

	settle(w);
	w->ahead = 30;
	read_from(w, 0, 90);
	CHECK(w->last_use.order && w->last_use.unit.v == 89 && w->last_use.position == 89);
	CHECK(w->n_ahead > 0);
	CHECK_U64(w->last_ahead, 119);
	CHECK_U64(w->n_gone, 0);
	w->is_let = true;
	open_sample(w, 90);
	CHECK_U64(w->n_gone, 1);
	w->n_ahead = 0;
	w->ahead = 0;
	open_sample(w, 91);
	CHECK_U64(w->n_ahead, 0);
	w->hands.used = NULL;
	open_sample(w, 92);
	CHECK_U64(w->n_gone, 2);
	world_free(w);
}

/* Of several jobs the order of none is spoken of, but each open is placed in its own. */
static void open_is_placed_in_the_order_of_its_job(void)
{
	struct world *w = world_new(400, 800, "sequential:epochs=2", false);
	struct order_ref *other = make_order(400, "torch-randperm:seed=5:epochs=2");
	struct order_epoch *ep = NULL;
	struct err err = { 0 };
	uint32_t id = 0, placed[2] = { 0 };

	CHECK_INT(order_epoch_new(other->order, 0, &ep, &err), 0);
	CHECK_INT(step_add_order(&w->step, &other, STEP_NO_JOB, w->now, &id), 0);
	CHECK(other == NULL && id == 1);
	settle(w);
	for (uint32_t i = 0; i < 100; i++) {
		open_sample(w, i);
		placed[0] += w->place.length && w->place.job == 0 && w->place.position == i;
		settle(w);
		open_sample(w, ep->sample[i]);
		placed[1] += w->place.length && w->place.job == 1 && w->place.position == i;
		CHECK(w->last_use.order == NULL);
		settle(w);
	}
	CHECK(placed[0] >= 80 && placed[1] >= 80);
	order_epoch_free(ep);
	world_free(w);
}

/* --- jobs --- */

static void jobs_come_change_and_go(void)
{
	struct world *w = world_new(100, 200, "sequential", false);
	struct order_ref *order;
	uint32_t id = 0, first_id = 0;

	for (uint32_t i = 1; i < PLAN_JOBS; i++) {
		order = make_order(100, "sequential");
		CHECK_INT(step_add_order(&w->step, &order, STEP_NO_JOB, w->now, &id), 0);
		CHECK_U64(id, i);
	}
	order = make_order(100, "sequential");
	CHECK_INT(step_add_order(&w->step, &order, STEP_NO_JOB, w->now, &id), -ENOSPC);
	CHECK(order != NULL); /* its owner's still */
	CHECK_INT(step_add_order(&w->step, &order, 0, w->now, &first_id), 0);
	CHECK_U64(first_id, PLAN_JOBS);
	CHECK_U64(w->step.job[0].id, PLAN_JOBS); /* it keeps its place */
	CHECK_INT(step_end_order(&w->step, 0, NULL), -ENOENT);
	CHECK_INT(step_end_order(&w->step, 3, NULL), 0);
	CHECK_U64(w->step.n_jobs, PLAN_JOBS - 1);
	step_look(&w->step, w->now);
	CHECK_U64(w->step.n_jobs, PLAN_JOBS - 1);
	order = make_order(100, "torch-randperm:seed=1");
	CHECK_INT(step_set_order(&w->step, &order, w->now), 0); /* the only one from here on */
	CHECK_U64(w->step.n_jobs, 1);
	CHECK_U64(w->step.job[0].id, PLAN_JOBS + 1);
	settle(w);
	CHECK_INT(step_end_order(&w->step, PLAN_JOBS + 1, "it is gone"), 0);
	settle(w);
	CHECK_STR(w->step.first.why, "it is gone");
	CHECK(!w->step.has_order);
	CHECK_U64(w->step.generation, PLAN_JOBS + 2);
	CHECK_INT(step_end_order(&w->step, 5, NULL), 0); /* there is none, as is wanted */
	world_free(w);
}

/* An epoch that is being computed keeps its order, and is nobody's. */
static void epoch_of_an_order_that_was_replaced_is_not_wanted(void)
{
	struct world *w = world_new(100, 200, "torch-randperm:seed=1", false);
	struct order_ref *order = make_order(100, "sequential"), *asked = NULL;
	uint32_t id = 0, at = 0;

	round_of(w);
	while (at < w->n_sent && w->sent[at].kind != PLAN_ACT_EPOCH)
		at++;
	CHECK(at < w->n_sent);
	asked = w->ref[at];
	CHECK(!atomic_load(&asked->is_over));
	CHECK_INT(step_add_order(&w->step, &order, 0, w->now, &id), 0);
	CHECK(atomic_load(&asked->is_over));
	CHECK_U64(atomic_load(&asked->refs), 1); /* ours */
	settle(w);
	read_from(w, 0, 90);
	CHECK_INT(step_state(&w->step), PLAN_FOLLOWING); /* of the next one */
	world_free(w);
}

/* --- the store --- */

static void store_is_told_a_share_at_a_time(void)
{
	uint32_t n = 2 * STEP_KEPT_EACH + 100;
	struct world *w = world_new(n, 64, "sequential", true);

	CHECK(round_of(w) == NS_PER_S + NS_PER_MS); /* at once again */
	CHECK_U64(w->n_looked, STEP_KEPT_EACH);
	CHECK(round_of(w) == NS_PER_S + 2 * NS_PER_MS);
	CHECK_U64(w->n_looked, 2 * STEP_KEPT_EACH);
	CHECK(round_of(w) != NS_PER_S + 3 * NS_PER_MS);
	CHECK_U64(w->n_looked, n);
	CHECK_U64(w->step.first.pinned_bytes, (uint64_t)(n / 2) * PAGE);
	round_of(w);
	CHECK_U64(w->n_looked, n);
	/* Others have put something there: at once, and then not for a while. */
	for (uint32_t i = 0; i < 2; i++) {
		w->n_looked = 0;
		w->found++;
		round_of(w);
		CHECK_U64(w->n_looked, i ? 0 : STEP_KEPT_EACH);
		for (uint32_t k = 0; k < 3; k++)
			round_of(w);
	}
	w->now += STEP_KEPT_REST_NS;
	round_of(w);
	CHECK_U64(w->n_looked, STEP_KEPT_EACH);
	world_free(w);
}

/* What no order reads is let go, but only at first: later it may be read. */
static void what_no_order_reads_is_not_wanted(void)
{
	struct world *w = world_new(100, 50, "sequential:under=train", true);
	struct order_ref *all = make_order(100, "sequential");
	uint32_t id;

	round_of(w);
	CHECK_U64(w->n_unwanted, 50);
	CHECK_U64(w->n_looked, 50);
	w->found++;
	w->now += STEP_KEPT_REST_NS;
	round_of(w);
	CHECK_U64(w->n_unwanted, 50);
	w->now += STEP_KEPT_REST_NS;
	w->found++;
	round_of(w);
	CHECK_U64(w->n_unwanted, 50);
	CHECK_U64(w->n_looked, 150);
	/* Another job reads it. */
	CHECK_INT(step_add_order(&w->step, &all, STEP_NO_JOB, w->now, &id), 0);
	round_of(w);
	CHECK_U64(w->n_looked, 250);
	CHECK_U64(w->n_unwanted, 50);
	world_free(w);
}

static void store_that_is_full_is_asked_for_room_now_and_then(void)
{
	struct world *w = world_new(100, 50, "sequential:epochs=9", true);

	w->status[PLAN_ACT_PIN] = -ENOSPC;
	w->takes_more = false;
	settle(w);
	read_from(w, 0, 40);
	CHECK(w->step.all.is_pinning_over);
	step_tick(&w->step, w->now);
	settle(w);
	CHECK(w->step.all.is_pinning_over);
	w->status[PLAN_ACT_PIN] = 0;
	w->takes_more = true;
	w->count[PLAN_ACT_PIN] = 0;
	read_from(w, 40, 50);
	CHECK_U64(w->count[PLAN_ACT_PIN], 0); /* nobody has said so yet */
	step_tick(&w->step, w->now);
	read_from(w, 50, 100);
	CHECK(!w->step.all.is_pinning_over);
	CHECK(w->count[PLAN_ACT_PIN] > 0);
	world_free(w);
}

/* --- pages --- */

static void pages_are_given_back_a_share_at_a_time_after_the_last_job(void)
{
	struct world *w = world_new(100, 200, "sequential", false);
	struct order_ref *order = make_order(100, "sequential");
	uint32_t id = 0;

	settle(w);
	CHECK(w->step.all.stage_bytes > 0);
	w->given_to = 5;
	CHECK_INT(step_end_order(&w->step, 0, NULL), 0);
	for (uint32_t i = 0; i < 3 || w->n_given < 3; i++) {
		CHECK(i < 100);
		round_of(w); /* give_back checks that the plan has forgotten them */
	}
	CHECK_U64(w->step.give_back_at, 3);
	CHECK_INT(step_add_order(&w->step, &order, STEP_NO_JOB, w->now, &id), 0);
	CHECK_U64(w->forgotten_from, 3); /* the rest stays with the kernel */
	settle(w);
	CHECK_U64(w->n_given, 3);
	CHECK_INT(step_end_order(&w->step, id, NULL), 0);
	for (uint32_t i = 0; i < 100; i++)
		round_of(w);
	CHECK_U64(w->n_given, 3 + 5); /* from the beginning, and no more than there is */
	world_free(w);
}

/* --- memory --- */

static void plan_is_told_of_memory_when_it_changes(void)
{
	struct world *w = world_new(200, 400, "sequential", false);
	uint64_t before;

	settle(w);
	step_memory(&w->step, 400 * PAGE, 64 * PAGE);
	CHECK_U64(w->n_memory, 0);
	before = w->step.all.arena_bytes;
	step_memory(&w->step, 80 * PAGE, 16 * PAGE);
	step_memory(&w->step, 80 * PAGE, 16 * PAGE);
	CHECK_U64(w->n_memory, 1);
	settle(w);
	CHECK(w->count[PLAN_ACT_DROP] > 0);
	CHECK(w->step.all.arena_bytes < before && w->step.all.arena_bytes <= 80 * PAGE);
	step_memory(&w->step, 400 * PAGE, 64 * PAGE);
	CHECK_U64(w->n_memory, 2);
	world_free(w);
}

/* As the simulator's. Nothing else is asked instead, and all goes on. */
static void what_there_is_not_has_no_hands(void)
{
	struct world *w = world_new(100, 200, "sequential:epochs=2", false);
	struct order_ref *order = make_order(100, "sequential");
	uint32_t id = 0;

	w->hands = (struct step_hands){ w, send_it, send_it, send_it, send_epoch, drop, .go = NULL };
	w->refuse[PLAN_ACT_STAGE] = -ENOMEM;
	read_from(w, 0, 50);
	CHECK_INT(step_state(&w->step), PLAN_FOLLOWING);
	CHECK(w->count[PLAN_ACT_FETCH] >= 50 && !w->n_opened && !w->n_no_memory);
	w->step.all.is_pinning_over = true;
	step_tick(&w->step, w->now);
	CHECK_INT(step_end_order(&w->step, 0, NULL), 0);
	settle(w);
	CHECK_INT(step_add_order(&w->step, &order, STEP_NO_JOB, w->now, &id), 0);
	settle(w);
	CHECK(w->step.n_jobs == 1 && !w->n_given && !w->n_looked);
	world_free(w);
}

/* --- all of it --- */

static void do_something(struct world *w, uint64_t *seed, uint32_t *pos)
{
	uint32_t what = (uint32_t)check_rand_below(seed, 40), id;
	struct order_ref *order;

	if (what == 0) {
		order = make_order(w->n, "torch-randperm:seed=3");
		(void)!step_add_order(&w->step, &order,
				      check_rand_below(seed, 2) && w->step.n_jobs
					      ? w->step.job[0].id
					      : STEP_NO_JOB,
				      w->now, &id);
		order_ref_put(order);
	} else if (what == 1 && w->step.n_jobs) {
		CHECK_INT(step_end_order(&w->step, w->step.job[0].id, NULL), 0);
	} else if (what == 2) {
		step_memory(&w->step, (40 + check_rand_below(seed, 60)) * PAGE,
			    (1 + check_rand_below(seed, 64)) * PAGE);
	} else if (what == 3) {
		w->refuse[check_rand_below(seed, KINDS)] = -ENOMEM;
	} else if (what == 4) {
		memset(w->refuse, 0, sizeof(w->refuse));
	} else if (what == 5) {
		w->status[PLAN_ACT_STAGE] = check_rand_below(seed, 2) ? -ENOENT : 0;
	} else if (what < 30) {
		open_sample(w, (*pos)++ % w->n);
	} else {
		open_sample(w, (uint32_t)check_rand_below(seed, w->n));
	}
}

static uint64_t play(uint64_t seed, uint64_t *ret_now)
{
	struct world *w = world_new(300, 100, "sequential:epochs=4", true);
	uint32_t pos = 0;
	uint64_t digest;

	w->given_to = 3;
	w->held = 11;
	for (uint32_t i = 0; i < 3000; i++) {
		do_something(w, &seed, &pos);
		/* Answers come in the order of what was sent, but not all of them yet. */
		for (uint64_t n = check_rand_below(&seed, 6); n && w->n_answered < w->n_sent; n--)
			answer(w, w->n_answered++);
		if (w->n_answered == w->n_sent)
			w->n_answered = w->n_sent = 0;
		if (check_rand_below(&seed, 3) == 0) {
			round_of(w);
			CHECK_U64(w->step.n_unanswered, 0);
			CHECK(w->step.all.inflight <= w->n_sent - w->n_answered);
		}
		step_tick(&w->step, w->now);
	}
	memset(w->refuse, 0, sizeof(w->refuse));
	for (uint32_t i = 0; i < 100; i++)
		settle(w);
	CHECK_U64(w->step.all.inflight, 0); /* every action was answered */
	digest = w->digest;
	*ret_now = w->now;
	world_free(w);
	return digest;
}

/* Whatever happens every action is answered, and the same happens again: nothing else is asked. */
static void same_story_is_the_same_decisions(void)
{
	uint64_t seed = check_seed(), now[2] = { 0 };

	for (uint32_t i = 0; i < 5; i++) {
		uint64_t first = play(seed + i, &now[0]), second = play(seed + i, &now[1]);

		CHECK_U64(first, second);
		CHECK_U64(now[0], now[1]);
	}
}

static const struct check_test tests[] = {
	{ "what_the_plan_wants_is_sent_and_the_job_followed", what_the_plan_wants_is_sent_and_the_job_followed },
	{ "what_is_not_sent_is_answered_in_the_same_round",
	  what_is_not_sent_is_answered_in_the_same_round },
	{ "pages_that_cannot_be_pushed_take_no_room", pages_that_cannot_be_pushed_take_no_room },
	{ "sample_that_is_held_back_is_not_sent", sample_that_is_held_back_is_not_sent },
	{ "what_is_kept_is_looked_at_ahead_of_who_reads", what_is_kept_is_looked_at_ahead_of_who_reads },
	{ "open_is_placed_in_the_order_of_its_job", open_is_placed_in_the_order_of_its_job },
	{ "jobs_come_change_and_go", jobs_come_change_and_go },
	{ "epoch_of_an_order_that_was_replaced_is_not_wanted",
	  epoch_of_an_order_that_was_replaced_is_not_wanted },
	{ "store_is_told_a_share_at_a_time", store_is_told_a_share_at_a_time },
	{ "what_no_order_reads_is_not_wanted", what_no_order_reads_is_not_wanted },
	{ "store_that_is_full_is_asked_for_room_now_and_then", store_that_is_full_is_asked_for_room_now_and_then },
	{ "pages_are_given_back_a_share_at_a_time_after_the_last_job",
	  pages_are_given_back_a_share_at_a_time_after_the_last_job },
	{ "plan_is_told_of_memory_when_it_changes", plan_is_told_of_memory_when_it_changes },
	{ "what_there_is_not_has_no_hands", what_there_is_not_has_no_hands },
	{ "same_story_is_the_same_decisions", same_story_is_the_same_decisions },
};
CHECK_MAIN(tests)
