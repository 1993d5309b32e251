/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner thread: hands what the cache has to tell, and what was answered, to the deciding half,
 * and leaves a copy of what it says for who asks.
 *
 * Pace: after a round the planner rests for a millisecond in which nobody wakes it. Waking a thread
 * of another CPU is what an event costs its sender, and a plan is no worse for being a millisecond
 * late.
 */
#include "drive_priv.h"

#include <stdlib.h>
#include <string.h>

enum { REST_NS = 1000000, SWEEP_NS = 250000000 };

static void completion_free(struct completion *done)
{
	if (done->event.kind == PLAN_EV_EPOCH)
		order_epoch_free(done->event.order_epoch);
	free(done);
}

void planner_drop_answers(struct drive *d)
{
	struct news_batch batch;
	struct list *node;

	news_take(d->news, 0, &batch);
	while ((node = list_pop_head(&batch.answers)))
		completion_free(container_of(node, struct completion, answer.node));
}

/* --- feeding --- */

static void feed_item(struct drive *d, const struct news_item *item, uint64_t now)
{
	static const enum plan_event_kind kinds[] = { [NEWS_LOST_COPY] = PLAN_EV_LOST_COPY,
						      [NEWS_RESIZED] = PLAN_EV_RESIZED,
						      [NEWS_UNPINNED] = PLAN_EV_UNPINNED,
						      [NEWS_UNSTAGED] = PLAN_EV_UNSTAGED,
						      [NEWS_OPENED] = PLAN_EV_OPENED,
						      [NEWS_REACHED] = PLAN_EV_REACHED,
						      [NEWS_DEMAND] = PLAN_EV_DEMAND };
	struct plan_event ev = { .kind = kinds[item->kind],
				 .unit = item->unit,
				 .bytes = item->bytes,
				 .latency_ns = item->latency_ns };

	assert((size_t)item->kind < ARRAY_LEN(kinds));
	step_event(&d->step, now, &ev);
	/* Who opens a file with records has the first one's unit told as well, and has come to none yet. */
	if (item->kind == NEWS_REACHED)
		drive_note_record(d, item->unit);
}

static void feed_answer(struct drive *d, struct completion *done, uint64_t now)
{
	struct plan_event *ev = &done->event;

	if (ev->kind == PLAN_EV_FETCHED) {
		const struct fetch_job *job = container_of(done, struct fetch_job, completion);

		assert(job->fetch.n_left == 0 && unit_eq(job->fetch.unit, ev->unit));
		ev->status = job->fetch.status;
		ev->bytes = job->fetch.bytes;
		ev->latency_ns = job->fetch.latency_ns;
	}
	step_event(&d->step, now, ev);
	ev->order_epoch = NULL; /* the plan's now */
	completion_free(done);
}

/* After everything else of the batch: these came when the buffer was full. */
static void feed_late(struct drive *d, uint64_t now)
{
	struct news_item item;

	while (news_next_late(d->news, &item)) {
		item.bytes = dataset_unit_extent(d->dataset, item.unit).length; /* RESIZED's */
		feed_item(d, &item, now);
	}
}

static void feed_batch(struct drive *d, struct news_batch *batch, uint64_t now)
{
	struct plan_event blind = { .kind = PLAN_EV_BLIND };
	uint32_t fed = 0;
	struct list *node;

	if (batch->has_lost)
		cache_degrade(d->cache, "the planner cannot keep up: opens were not noted");
	if (batch->is_blind)
		step_event(&d->step, now, &blind);
	while ((node = list_pop_head(&batch->answers))) {
		struct completion *done = container_of(node, struct completion, answer.node);

		assert(done->answer.at <= batch->n_items);
		while (fed < done->answer.at)
			feed_item(d, &batch->items[fed++], now);
		feed_answer(d, done, now);
	}
	while (fed < batch->n_items)
		feed_item(d, &batch->items[fed++], now);
	if (batch->has_late)
		feed_late(d, now);
}

/* --- what is said --- */

/* The plan counts for itself; the metrics get the differences. */
static void publish_counters(struct drive *d)
{
	const struct step *s = &d->step;
	const struct plan_status *now = &s->all, *old = &d->counted;
	struct metrics *m = d->metrics;

	metrics_add(m, METRIC_PREFETCH_ISSUED, now->asked - old->asked);
	metrics_add(m, METRIC_PREFETCH_USEFUL, now->useful - old->useful);
	metrics_add(m, METRIC_PREFETCH_LATE, now->late - old->late);
	metrics_add(m, METRIC_PREFETCH_WASTED, now->wasted - old->wasted);
	metrics_add(m, METRIC_PREFETCH_FAILED, now->failed - old->failed);
	metrics_add(m, METRIC_RESYNCS, s->resyncs - d->counted_resyncs);
	metrics_add(m, METRIC_ORDER_MISMATCHES, s->mismatches - d->counted_mismatches);
	d->counted = *now;
	d->counted_resyncs = s->resyncs;
	d->counted_mismatches = s->mismatches;
}

void planner_publish(struct drive *d)
{
	const struct step *s = &d->step;

	publish_counters(d);
	atomic_store(&d->plan_bytes, plan_table_bytes(s->plan));
	atomic_store(&d->generation, s->generation);
	atomic_store(&d->has_order, s->has_order);
	cache_set_ordered(d->cache, s->has_order);
	mutex_lock(&d->status_mu);
	d->status = s->first;
	d->n_shown = s->n_jobs;
	for (uint32_t i = 0; i < s->n_jobs; i++)
		d->shown[i] = (struct drive_job){ .id = s->job[i].id,
						  .plan = s->job[i].plan,
						  .told_ns = s->job[i].told_ns,
						  .read_ns = s->job[i].read_ns };
	mutex_unlock(&d->status_mu);
	cache_set_may_refuse_open(d->cache, !s->n_jobs || plan_is_confirmed(s->plan));
}

static void look_and_publish(struct drive *d, uint64_t now)
{
	step_look(&d->step, now);
	planner_publish(d);
	if (d->p.watch)
		d->p.watch->planned(d->p.watch->ctx, step_state(&d->step));
}

/* --- the thread --- */

static int carry_out_request(struct drive *d, struct order_request *request, uint64_t now)
{
	switch (request->kind) {
	case REQUEST_OPENS:
		request->n_opens =
			plan_last_opens(d->step.plan, request->opens, request->max_opens);
		break;
	case REQUEST_SET:
		return step_set_order(&d->step, &request->order, now);
	case REQUEST_ADD:
		return step_add_order(&d->step, &request->order, request->job, now, &request->job);
	case REQUEST_END:
		return step_end_order(&d->step, request->job, request->why);
	}
	return 0;
}

static void take_request(struct drive *d, uint64_t now)
{
	struct order_request *request = request_take(d, false);
	int status;

	if (!request)
		return;
	status = carry_out_request(d, request, now);
	if (request->kind != REQUEST_OPENS)
		look_and_publish(d, now); /* who asked may look at once */
	request_answer(d, request, status);
}

/* The last thing the planner does: nobody is left waiting. */
static void end_planning(struct drive *d)
{
	struct order_request *request = request_take(d, true);

	if (request)
		request_answer(d, request, -ECANCELED);
}

/* Returns when the next one is due, even without news. */
static uint64_t planner_round(struct drive *d, bool is_asked, uint64_t now)
{
	uint64_t wake_ns;

	if (is_asked)
		take_request(d, now);
	wake_ns = step_round(&d->step, now);
	look_and_publish(d, now);
	return wake_ns;
}

void *planner_main(void *drive)
{
	struct drive *d = drive;
	uint64_t wake_ns = 0, swept_ns = 0;

	for (;;) {
		/* Looked at before: what came until then is in the batch, and must not be lost. */
		bool is_last = atomic_load(&d->is_stopping);
		uint64_t now = clock_now(d->clock), most = REST_NS;
		struct news_batch batch;

		if (wake_ns > now)
			most = MIN(wake_ns - now, SWEEP_NS);
		news_take(d->news, is_last ? 0 : most, &batch);
		now = clock_now(d->clock);
		/* Before the answers: a smaller arena may have refused some. */
		step_memory(&d->step, atomic_load(&d->arena_bytes), atomic_load(&d->stage_bytes));
		feed_batch(d, &batch, now);
		if (is_last) {
			end_planning(d);
			return NULL;
		}
		wake_ns = planner_round(d, batch.is_asked, now);
		if (now - swept_ns >= SWEEP_NS) {
			cache_tick(d->cache, now);
			step_tick(&d->step, now);
			swept_ns = now;
		}
		news_rest(d->news, REST_NS);
	}
}
