/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One round of the drive: what is known goes into the plan, what the plan decides is sent, or answered
 * at once where there is nothing to send. Every action but DROP is answered by exactly one event. PURE:
 * see clairfs/step.h.
 */
#include "step_priv.h"

#include <assert.h>
#include <stdlib.h>

#include "clairfs/base/ids.h"

#define STEP_NOTHING PLAN_EV_EPOCH /* of no use to the plan */

/* What is NULL only together with others, as its contract says. */
static bool hands_are_whole(const struct step_hands *h)
{
	return h->fetch && h->stage && h->pin && h->epoch && h->drop &&
	       (!h->used || (h->hold_back && h->go)) && !h->keeps_any == !h->keeps &&
	       !h->keeps_any == !h->unwant && !h->give_back == !h->forget_pushed;
}

int step_init(struct step *s, const struct step_params *params, uint64_t now_ns)
{
	assert(hands_are_whole(params->hands));
	*s = (struct step){ .plan = params->plan,
			    .hands = params->hands,
			    .n = params->n,
			    .kept_at = UINT32_MAX,
			    .give_back_at = UINT32_MAX,
			    .arena_bytes = params->arena_bytes,
			    .stage_bytes = params->stage_bytes };
	step_jobs_start(s, params->order, now_ns);
	s->unanswered = calloc(STEP_UNANSWERED_MAX, sizeof(*s->unanswered));
	if (!s->unanswered) {
		step_fini(s);
		return -ENOMEM;
	}
	if (step_keeps_any(s))
		s->kept_at = 0; /* what jobs before have left */
	step_look(s, now_ns);
	return 0;
}

void step_fini(struct step *s)
{
	plan_free(s->plan);
	step_jobs_free(s);
	free(s->unanswered);
	*s = (struct step){ .plan = NULL };
}

/* --- taking in --- */

static bool is_inner(const struct order_info *info, struct unit_id unit)
{
	return info->inner && info->inner[unit.v / 64] >> unit.v % 64 & 1;
}

/* Of a sample of several units its open is, and the units behind the first are nobody's. Where many samples
 * are such, what reading one would have taken without us is not known: the source's own client reads ahead
 * in larger files. Nor is it of a file whose records are units. */
static bool is_measured_file(const struct order_ref *order, struct unit_id unit)
{
	if (unit_is_in_records(order->files, unit_sample(order->files, unit)))
		return false;
	return !is_inner(&order->info, unit) && !order_is_cut(&order->info);
}

/* Of those that were found nothing is said yet: the accounting's page cache has no place for them. */
static bool is_measured_record(const struct order_ref *order, struct unit_id unit)
{
	return unit_is_record(order->files, unit) && !unit_is_later(order->files, unit) &&
	       !is_inner(&order->info, unit);
}

/* Whether reads of the unit are measured: of every job, as it may be any one's. Who comes to a record does
 * what an open is of a file. */
static bool is_measured(const struct step *s, struct unit_id unit)
{
	for (uint32_t i = 0; i < s->n_jobs; i++) {
		const struct order_ref *order = s->job[i].order;

		if (order->is_of_records ? !is_measured_record(order, unit) : !is_measured_file(order, unit))
			return false;
	}
	return true;
}

/* The order, where there is one job that reads by it; of several none is spoken of. Nor where its
 * positions are units: blocks are counted in samples. */
static struct step_use use_at(const struct step *s, uint64_t pass, uint64_t position,
			      struct unit_id unit)
{
	struct step_use use = { .unit = unit, .pass = pass, .position = position };

	assert(unit.v < s->n);
	if (s->n_jobs != 1 || s->job[0].order->info.inner || s->job[0].order->is_of_records ||
	    !plan_is_confirmed(s->plan) ||
	    !unit_eq(plan_unit_at(s->plan, pass, position), unit))
		return use;
	use.order = order_info(s->job[0].order->order);
	use.job = s->job[0].id;
	return use;
}

static void look_ahead(struct step *s, uint64_t pass, uint64_t position)
{
	struct unit_id unit = plan_unit_at(s->plan, pass, position);
	struct step_use use;

	if (unit_eq(unit, UNIT_NONE) || !is_measured(s, unit))
		return;
	use = use_at(s, pass, position, unit);
	use.is_ahead = true;
	(void)s->hands->hold_back(s->hands->ctx, &use);
}

static void use_opened(struct step *s, struct unit_id unit, const struct plan_use *at, uint64_t now_ns)
{
	struct step_use use = use_at(s, at->pass, at->position, unit);
	bool is_let = false;
	uint64_t ahead = s->hands->used(s->hands->ctx, &use, now_ns, &is_let);

	if (ahead)
		look_ahead(s, at->pass, at->position + ahead);
	if (is_let)
		s->hands->go(s->hands->ctx);
}

/* The plan has just been fed it. */
static void feed_opened(struct step *s, struct unit_id unit, uint64_t now_ns)
{
	const struct step_job *job = NULL;
	struct step_place place;
	struct plan_use use;
	bool has_use;

	if (!s->hands->opened && !s->hands->used)
		return;
	has_use = plan_last_use(s->plan, &use);
	if (has_use)
		job = step_job_at(s, use.job);
	assert(!job || use.place < use.places);
	if (job)
		place = (struct step_place){ .job = job->id,
					     .is_measured = is_measured(s, unit),
					     .pass = use.pass,
					     .position = use.place,
					     .length = use.places };
	if (s->hands->opened)
		s->hands->opened(s->hands->ctx, unit, job ? &place : NULL);
	if (has_use && s->hands->used)
		use_opened(s, unit, &use, now_ns);
}

static void come(struct step *s, const struct plan_action *action)
{
	const struct step_job *job = step_job_at(s, action->job);
	struct step_place place;

	s->hands->come(s->hands->ctx, action->unit);
	if (!job || !s->hands->opened)
		return;
	assert(action->position < action->epoch);
	place = (struct step_place){ .job = job->id,
				     .is_measured = is_measured(s, action->unit),
				     .pass = action->pass,
				     .position = action->position,
				     .length = action->epoch };
	s->hands->opened(s->hands->ctx, action->unit, &place);
}

/* What a job that numbers records takes the event for: to come to a record is what an open is of a
 * file, and of the opens of a file with records nothing follows for it. */
static enum plan_event_kind kind_for(const struct step_job *job, const struct plan_event *event)
{
	const struct order_ref *order = job->order;
	struct sample_id file;

	if (!order->is_of_records)
		return event->kind;
	file = unit_sample(order->files, event->unit);
	if (!unit_is_in_records(order->files, file))
		return event->kind;
	/* Nor does anything of what the file was before its records were found. */
	if (event->kind == PLAN_EV_OPENED || !unit_is_record(order->files, event->unit))
		return STEP_NOTHING;
	return is_inner(&order->info, event->unit) ? PLAN_EV_REACHED : PLAN_EV_OPENED;
}

/* A file was opened whose records are what counts. */
static void feed_file_opened(struct step *s, struct unit_id unit)
{
	struct step_place place = { .job = s->job[0].id };

	assert(s->n_jobs);
	if (s->hands->opened)
		s->hands->opened(s->hands->ctx, unit, s->n_jobs == 1 ? &place : NULL);
}

static void feed_come(struct step *s, uint64_t now_ns, const struct plan_event *event)
{
	struct plan_event ev = *event;
	bool is_nothing = s->n_jobs > 0;

	assert(event->unit.v < s->n && s->n_jobs <= PLAN_JOBS);
	/* Of several jobs it may be any one's: what some take for an open is one. */
	for (uint32_t i = 0; i < s->n_jobs; i++) {
		enum plan_event_kind kind = kind_for(&s->job[i], event);

		is_nothing &= kind == STEP_NOTHING;
		if (kind == PLAN_EV_OPENED)
			ev.kind = kind;
	}
	if (is_nothing) {
		feed_file_opened(s, ev.unit);
		return;
	}
	plan_event(s->plan, now_ns, &ev);
	feed_opened(s, ev.unit, now_ns);
}

void step_event(struct step *s, uint64_t now_ns, const struct plan_event *event)
{
	if (event->kind == PLAN_EV_OPENED || event->kind == PLAN_EV_REACHED)
		feed_come(s, now_ns, event);
	else
		plan_event(s->plan, now_ns, event);
}

void step_memory(struct step *s, uint64_t arena_bytes, uint64_t stage_bytes)
{
	if (arena_bytes == s->arena_bytes && stage_bytes == s->stage_bytes)
		return;
	plan_set_memory(s->plan, arena_bytes, stage_bytes);
	s->arena_bytes = arena_bytes;
	s->stage_bytes = stage_bytes;
}

/* Looked at now and then and not told once: an answer that is still on its way may say again that
 * the store takes no more. */
void step_tick(struct step *s, uint64_t now_ns)
{
	static const struct plan_event ev = { .kind = PLAN_EV_PIN_ROOM };

	if (s->all.is_pinning_over && s->hands->takes_more && s->hands->takes_more(s->hands->ctx))
		plan_event(s->plan, now_ns, &ev);
}

void step_look(struct step *s, uint64_t now_ns)
{
	plan_get_status(s->plan, &s->all);
	step_jobs_look(s, now_ns);
}

/* --- deciding --- */

static enum plan_event_kind answer_of(enum plan_action_kind kind)
{
	static const enum plan_event_kind answers[] = { [PLAN_ACT_FETCH] = PLAN_EV_FETCHED,
							[PLAN_ACT_STAGE] = PLAN_EV_STAGED,
							[PLAN_ACT_PIN] = PLAN_EV_PINNED,
							[PLAN_ACT_EPOCH] = PLAN_EV_EPOCH };

	assert(kind < ARRAY_LEN(answers) && kind != PLAN_ACT_DROP && kind != PLAN_ACT_COME);
	return answers[kind];
}

static void answer_at_once(struct step *s, const struct plan_action *action, int status)
{
	assert(s->n_unanswered < STEP_UNANSWERED_MAX);
	s->unanswered[s->n_unanswered++] = (struct plan_event){ .kind = answer_of(action->kind),
								.unit = action->unit,
								.epoch = action->epoch,
								.job = action->job,
								.version = action->version,
								.status = status };
	if (status == -ENOMEM && s->hands->no_memory)
		s->hands->no_memory(s->hands->ctx);
}

/* The plan asks for every use of a sample with a FETCH or a STAGE, so that is where a use is held back.
 * What was kept from earlier is not asked for again: look_ahead. A sample that is read before its FETCH
 * is due (the readers are faster than the plan) is a miss anyhow. */
static bool is_held_back(struct step *s, const struct plan_action *action)
{
	struct step_use use;

	/* What a reader is at now is adopted for its next use: that use has its STAGE to be caught.
	 */
	if (!s->hands->hold_back || action->is_adopted || action->pass == UINT64_MAX ||
	    !is_measured(s, action->unit))
		return false;
	use = use_at(s, action->pass, action->position & UINT32_MAX, action->unit);
	return s->hands->hold_back(s->hands->ctx, &use);
}

/* Only where to come to a record is what an open is: of another job somebody may be at its file. */
static int send_stage(struct step *s, const struct plan_action *action)
{
	struct plan_action push = *action;

	push.may_be_whole &= s->n_jobs == 1 && s->job[0].order->is_of_records;
	return s->hands->stage(s->hands->ctx, &push);
}

/* 0, or what it is answered at once. */
static int send_epoch(struct step *s, const struct plan_action *action)
{
	const struct step_job *of = step_job_at(s, action->job);
	int rc;

	if (!of) /* the job has left since the plan asked */
		return -ECANCELED;
	assert(!of->order->is_over); /* only when the last job that has it lets go */
	atomic_fetch_add(&of->order->refs, 1);
	rc = s->hands->epoch(s->hands->ctx, action, of->order);
	if (rc != 0)
		order_ref_put(of->order);
	return rc;
}

static int send_action(struct step *s, const struct plan_action *action)
{
	const struct step_hands *h = s->hands;

	switch (action->kind) {
	case PLAN_ACT_FETCH:
		return is_held_back(s, action) ? PLAN_HELD_OUT : h->fetch(h->ctx, action);
	case PLAN_ACT_STAGE:
		return is_held_back(s, action) ? PLAN_HELD_OUT : send_stage(s, action);
	case PLAN_ACT_DROP:
		h->drop(h->ctx, action);
		break;
	case PLAN_ACT_COME:
		if (h->come)
			come(s, action);
		break;
	case PLAN_ACT_PIN:
		return h->pin(h->ctx, action);
	case PLAN_ACT_EPOCH:
		return send_epoch(s, action);
	}
	return 0;
}

/* No more actions are taken than can be answered without memory. True: one was refused, and what was to be
 * its room is there for others. Not for want of memory: that would come again at once. */
static bool carry_out(struct step *s, uint64_t now_ns)
{
	struct plan_action action;
	bool has_room = false;

	assert(!s->n_unanswered); /* an answer is fed in the round that it is of */
	while (s->n_unanswered < STEP_UNANSWERED_MAX && plan_next_action(s->plan, &action)) {
		int status = send_action(s, &action);

		if (status != 0)
			answer_at_once(s, &action, status);
		has_room |= status != 0 && status != -ENOMEM;
	}
	for (uint32_t i = 0; i < s->n_unanswered; i++)
		plan_event(s->plan, now_ns, &s->unanswered[i]);
	s->n_unanswered = 0;
	return has_room;
}

uint64_t step_round(struct step *s, uint64_t now_ns)
{
	bool is_telling = step_tell_kept(s, now_ns);
	uint64_t wake_ns;

	is_telling |= step_give_back(s);
	wake_ns = plan_step(s->plan, now_ns);
	is_telling |= carry_out(s, now_ns);
	return is_telling ? now_ns : wake_ns;
}
