/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the deciding half has done (struct step_hands): requests to the cache, and jobs for threads that
 * may take their time. Planner thread; it must never wait for I/O.
 */
#include "drive_priv.h"

#include "clairfs/cache/reads.h"

#include <stdlib.h>

void drive_complete(struct drive *d, struct completion *take_done, enum plan_event_kind kind,
		    int status)
{
	assert(kind == PLAN_EV_FETCHED || kind == PLAN_EV_STAGED || kind == PLAN_EV_PINNED ||
	       kind == PLAN_EV_EPOCH);
	take_done->event.kind = kind;
	take_done->event.status = status;
	news_answer(d->news, &take_done->answer);
}

static struct entry_id unit_entry(const struct drive *d, struct unit_id unit)
{
	assert(unit.v < dataset_n_units(d->dataset));
	return dataset_unit_entry(d->dataset, unit);
}

/* --- actions --- */

static int hand_fetch(void *ctx, const struct plan_action *action)
{
	struct fetch_job *job = calloc(1, sizeof(*job));
	struct drive *d = ctx;
	int rc;

	assert(action->kind == PLAN_ACT_FETCH);
	if (!job)
		return -ENOMEM;
	job->completion.event = (struct plan_event){ .kind = PLAN_EV_FETCHED,
						     .unit = action->unit };
	job->fetch.is_adopting = action->is_adopted;
	job->fetch.is_kept = action->is_pinned;
	job->fetch.answer_to = &job->completion.answer;
	rc = cache_hold(d->cache, action->unit, &job->fetch);
	if (rc != 0)
		free(job);
	return rc;
}

static void hand_drop(void *ctx, const struct plan_action *action)
{
	const struct drive *d = ctx;

	assert(action->kind == PLAN_ACT_DROP);
	cache_release(d->cache, action->unit, action->is_left);
}

static int hand_stage(void *ctx, const struct plan_action *action)
{
	struct drive *d = ctx;
	struct push_job *job;

	if (cache_expects_direct(d->cache, unit_entry(d, action->unit)))
		return -EOPNOTSUPP;
	if (!d->stage) /* cannot be: the plan then has no budget for it */
		return -ENOSYS;
	job = calloc(1, sizeof(*job));
	if (!job)
		return -ENOMEM;
	job->completion.event.unit = action->unit;
	job->job.is_push = true;
	job->may_be_whole = action->may_be_whole;
	queue_push(&d->page_jobs, &job->job.node);
	return 0;
}

void drive_note_record(const struct drive *d, struct unit_id unit)
{
	struct read_note note = { .is_record = true };

	if (!d->p.cache.reads || !dataset_unit_is_found(d->dataset, unit))
		return;
	note.entry = dataset_unit_entry(d->dataset, unit);
	note.offset = dataset_found_start(d->dataset, unit);
	note.length = (uint32_t)dataset_unit_bytes(d->dataset, unit);
	note.at_ns = clock_now(d->clock);
	reads_note(d->p.cache.reads, &note);
}

static void hand_come(void *ctx, struct unit_id unit)
{
	const struct drive *d = ctx;

	drive_note_record(d, unit);
	cache_come(d->cache, unit);
}

static int hand_pin(void *ctx, const struct plan_action *action)
{
	struct pin_job *job = calloc(1, sizeof(*job));
	struct drive *d = ctx;

	assert(action->kind == PLAN_ACT_PIN && d->keeper); /* else nobody would take it */
	if (!job)
		return -ENOMEM;
	job->completion.event.unit = action->unit;
	queue_push(&d->pin_jobs, &job->node);
	return 0;
}

static int hand_epoch(void *ctx, const struct plan_action *action, struct order_ref *take_order)
{
	struct epoch_job *job = calloc(1, sizeof(*job));
	struct drive *d = ctx;

	assert(action->kind == PLAN_ACT_EPOCH && take_order);
	if (!job)
		return -ENOMEM;
	job->completion.event.epoch = action->epoch;
	job->completion.event.job = action->job;
	job->completion.event.version = action->version;
	job->order = take_order;
	queue_push(&d->epoch_jobs, &job->node);
	return 0;
}

static void hand_no_memory(void *ctx)
{
	const struct drive *d = ctx;

	cache_degrade(d->cache, "out of memory");
}

/* --- opens, and what is held back --- */

static struct probe_use use_of(const struct drive *d, const struct step_use *use)
{
	return (struct probe_use){ .unit = use->unit,
				   .bytes = cache_asked_of(d->cache, use->unit),
				   .pass = use->pass,
				   .position = use->position,
				   .order = use->order,
				   .job = use->job,
				   .is_ahead = use->is_ahead };
}

/* What a record took of the source is known of one READ. */
static bool is_measured(const struct drive *d, struct unit_id unit)
{
	return !dataset_unit_is_record(d->dataset, unit) || dataset_unit_is_small(d->dataset, unit);
}

static bool hand_hold_back(void *ctx, const struct step_use *use)
{
	struct drive *d = ctx;
	struct probe_use asked = use_of(d, use);
	uint8_t mark;

	if (!is_measured(d, use->unit))
		return false;
	mark = d->p.probe->hold_back(d->p.probe->ctx, &asked);
	if (mark || !use->is_ahead)
		cache_set_aside(d->cache, use->unit, mark);
	return mark != 0;
}

static uint64_t hand_used(void *ctx, const struct step_use *use, uint64_t now_ns, bool *ret_lets)
{
	struct drive *d = ctx;
	struct probe_use asked = use_of(d, use);

	return d->p.probe->opened(d->p.probe->ctx, &asked, now_ns, ret_lets);
}

static void hand_opened(void *ctx, struct unit_id unit, const struct step_place *place)
{
	struct drive *d = ctx;
	const struct unit_map *map = dataset_unit_map(d->dataset);
	struct drive_open open = { .sample = unit_sample(map, unit),
				   .job = place ? place->job : DRIVE_NO_JOB };
	bool has_place = place && place->is_measured && is_measured(d, unit);
	bool is_record = place && place->length && unit_is_in_records(map, open.sample);
	struct read_place at = { 0 };

	if (!d->p.watch && !d->p.cache.probe)
		return;
	if (has_place)
		at = (struct read_place){ .pass = place->pass,
					  .position = place->position,
					  .length = place->length };
	open.reader = cache_place_open(d->cache, unit, open.job, has_place ? &at : NULL);
	/* Of its other units nobody wants to know, nor of its records: of its opens. */
	if (d->p.watch && unit_is_first(map, unit) && !is_record)
		d->p.watch->opened(d->p.watch->ctx, &open);
}

static void hand_go(void *ctx)
{
	const struct drive *d = ctx;

	cache_prefetch_go(d->cache);
}

/* --- the store, and pages --- */

static bool hand_keeps_any(void *ctx)
{
	const struct drive *d = ctx;

	return cache_keeps_any(d->cache);
}

static bool hand_keeps(void *ctx, struct unit_id unit)
{
	const struct drive *d = ctx;

	return cache_keeps(d->cache, unit);
}

static void hand_unwant(void *ctx, struct unit_id unit)
{
	const struct drive *d = ctx;
	struct entry_id entry = unit_entry(d, unit);
	struct file_identity id, kept;
	struct piece_span pieces;

	dataset_identity(d->dataset, entry, &id);
	if (dataset_kept_identity(d->dataset, entry, &id, &kept) != 0)
		return;
	pieces = cache_unit_pieces(d->cache, unit, id.size);
	tier_unwant(d->keeper, &kept, pieces.first, pieces.end);
}

static uint32_t hand_n_found(void *ctx)
{
	const struct drive *d = ctx;

	return tier_n_found(d->keeper);
}

static bool hand_takes_more(void *ctx)
{
	const struct drive *d = ctx;

	return tier_takes_more(d->keeper);
}

static bool hand_give_back(void *ctx, uint32_t *at)
{
	const struct drive *d = ctx;

	return cache_give_back(d->cache, at);
}

static void hand_forget_pushed(void *ctx, uint32_t at)
{
	const struct drive *d = ctx;

	cache_forget_pushed(d->cache, at);
}

const struct step_hands drive_hands = { .fetch = hand_fetch,
					.stage = hand_stage,
					.pin = hand_pin,
					.epoch = hand_epoch,
					.drop = hand_drop,
					.come = hand_come,
					.no_memory = hand_no_memory,
					.hold_back = hand_hold_back,
					.opened = hand_opened,
					.used = hand_used,
					.go = hand_go,
					.keeps_any = hand_keeps_any,
					.keeps = hand_keeps,
					.unwant = hand_unwant,
					.n_found = hand_n_found,
					.takes_more = hand_takes_more,
					.give_back = hand_give_back,
					.forget_pushed = hand_forget_pushed };
