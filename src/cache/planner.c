/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner thread: hands events to the plan and carries out what it decides. Events come from
 * many threads through a buffer of fixed size; answers to actions come as a list through the jobs
 * themselves, so an answer can neither be lost nor need memory. When the buffer is full an open is
 * dropped and the plan is told that it was blind; what else happened to a sample is kept as a bit
 * and told after the batch, because the plan would believe in a lost copy for ever.
 *
 * Pace: after a round the planner rests for a millisecond in which nobody wakes it. Waking a thread
 * of another CPU is what an event costs its sender, and a plan is no worse for being a millisecond
 * late.
 */
#include "cache_priv.h"

#include <string.h>

enum { REST_NS = 1000000, SWEEP_NS = 250000000 };

/* In the order in which change_file tells them. */
static const enum plan_event_kind late_kinds[LATE_KINDS] = { PLAN_EV_LOST_COPY, PLAN_EV_RESIZED,
							     PLAN_EV_UNPINNED, PLAN_EV_UNSTAGED };

static uint32_t late_words(const struct cache *c)
{
	return dataset_n_samples(c->p.dataset) / 64 + 1;
}

int notes_init(struct cache *c)
{
	struct notes *n = &c->notes;

	mutex_init(&n->mu);
	cond_init(&n->cv);
	cond_init(&n->answer_cv);
	list_init(&n->completions);
	n->fill = calloc(NOTES_MAX, sizeof(*n->fill));
	n->drain = calloc(NOTES_MAX, sizeof(*n->drain));
	n->unanswered = calloc(UNANSWERED_MAX, sizeof(*n->unanswered));
	n->resized = calloc(late_words(c), sizeof(*n->resized));
	for (int i = 0; i < LATE_KINDS; i++) {
		n->late_fill[i] = calloc(late_words(c), sizeof(uint64_t));
		n->late_drain[i] = calloc(late_words(c), sizeof(uint64_t));
		if (!n->late_fill[i] || !n->late_drain[i])
			return -ENOMEM;
	}
	return n->fill && n->drain && n->unanswered && n->resized ? 0 : -ENOMEM;
}

static void completion_free(struct completion *done)
{
	if (done->event.kind == PLAN_EV_EPOCH)
		order_epoch_free(done->event.order_epoch);
	free(done);
}

void notes_fini(struct cache *c)
{
	struct notes *n = &c->notes;
	struct list *node;

	while ((node = list_pop_head(&n->completions)))
		completion_free(container_of(node, struct completion, node));
	free(n->fill);
	free(n->drain);
	cond_fini(&n->answer_cv);
	free(n->unanswered);
	free(n->resized);
	for (int i = 0; i < LATE_KINDS; i++) {
		free(n->late_fill[i]);
		free(n->late_drain[i]);
	}
	cond_fini(&n->cv);
	mutex_fini(&n->mu);
}

void notes_wake_locked(struct notes *n)
{
	if (!n->is_waiting)
		return;
	n->is_waiting = false;
	cond_signal(&n->cv);
}

void cache_degrade(struct cache *c, const char *why)
{
	atomic_store(&c->is_degraded, true);
	log_limited(LOG_LEVEL_WARN, "cache: %s", why);
}

/* True for a kind that must not be lost. */
static bool note_late_locked(struct notes *n, const struct plan_event *event) REQUIRES(n->mu)
{
	for (int i = 0; i < LATE_KINDS; i++) {
		if (late_kinds[i] != event->kind)
			continue;
		n->late_fill[i][event->sample / 64] |= 1ull << (event->sample % 64);
		n->has_late = true;
		return true;
	}
	return false;
}

/* May be called with the lock of a shard held, so it logs nothing. */
void note_event(struct cache *c, const struct plan_event *event)
{
	struct notes *n = &c->notes;
	bool is_frequent = event->kind == PLAN_EV_OPENED || event->kind == PLAN_EV_DEMAND;

	mutex_lock(&n->mu);
	if (n->n_fill < (is_frequent ? NOTES_MAX - NOTES_RESERVE : NOTES_MAX))
		n->fill[n->n_fill++] = *event;
	else if (!note_late_locked(n, event) &&
		 event->kind != PLAN_EV_DEMAND) /* of those only a sum suffers */
		n->is_blind = n->has_lost = true;
	notes_wake_locked(n);
	mutex_unlock(&n->mu);
}

void note_sample(struct cache *c, enum plan_event_kind kind, struct entry_id entry, uint64_t bytes)
{
	struct plan_event ev = { .kind = kind, .sample = entry.v, .bytes = bytes };

	if (dataset_is_sample(c->p.dataset, entry))
		note_event(c, &ev);
}

void note_unanswered(struct cache *c, const struct plan_event *answer)
{
	struct notes *n = &c->notes;

	assert(n->n_unanswered < UNANSWERED_MAX);
	n->unanswered[n->n_unanswered++] = *answer;
}

void note_fetched_anew(struct cache *c, struct entry_id entry)
{
	struct notes *n = &c->notes;

	mutex_lock(&n->mu);
	if (n->has_late) /* [0]: LOST_COPY */
		n->late_fill[0][entry.v / 64] &= ~(1ull << (entry.v % 64));
	mutex_unlock(&n->mu);
}

void note_completion(struct cache *c, struct completion *take_completion)
{
	struct notes *n = &c->notes;

	mutex_lock(&n->mu);
	take_completion->at = n->n_fill;
	list_push_tail(&n->completions, &take_completion->node);
	notes_wake_locked(n);
	mutex_unlock(&n->mu);
}

/* How far ahead the prefetch was, at the first open only: a copy that is kept was not prefetched
 * for the next one. */
static void observe_lead(struct cache *c, struct entry_id entry, uint64_t now_ns)
{
	struct shard *s = shard_of(c, entry);
	struct object *obj;
	uint64_t ready_ns = 0;

	mutex_lock(&s->mu);
	obj = object_find_locked(c, s, entry, 0);
	if (obj) {
		ready_ns = obj->ready_ns;
		obj->ready_ns = 0;
	}
	mutex_unlock(&s->mu);
	if (ready_ns)
		metrics_observe(c->p.metrics, METRIC_HIST_PREFETCH_LEAD,
				now_ns > ready_ns ? now_ns - ready_ns : 0);
}

void cache_note_open(struct cache *c, struct entry_id entry)
{
	uint64_t now_ns = clock_now(c->p.clock);

	if (!dataset_is_sample(c->p.dataset, entry))
		return;
	/* A file that is empty so far is never asked for: this is all that is seen of its reader.
	 */
	entry_touch(c, entry);
	metrics_add(c->p.metrics, METRIC_SAMPLE_OPENS, 1);
	observe_lead(c, entry, now_ns);
	account_open(c, entry, now_ns);
	note_sample(c, PLAN_EV_OPENED, entry, 0);
}

void cache_note_blind(struct cache *c)
{
	struct notes *n = &c->notes;

	mutex_lock(&n->mu);
	n->is_blind = true;
	notes_wake_locked(n);
	mutex_unlock(&n->mu);
}

/* What has been noted since the last round. */
struct batch {
	uint32_t n_events;
	struct list completions;
	bool is_blind, has_lost, has_late, is_stopping;
	struct order_request *request;
};

static void swap_late_locked(struct notes *n) REQUIRES(n->mu)
{
	for (int i = 0; i < LATE_KINDS; i++) {
		uint64_t *full = n->late_fill[i];

		n->late_fill[i] = n->late_drain[i];
		n->late_drain[i] = full;
	}
}

static void take_batch(struct notes *n, uint64_t wait_ns, struct batch *ret)
{
	struct plan_event *full;

	list_init(&ret->completions);
	mutex_lock(&n->mu);
	if (!n->n_fill && list_is_empty(&n->completions) && !n->is_blind && !n->has_late &&
	    !n->is_stopping && !n->request) {
		n->is_waiting = true;
		cond_wait_for(&n->cv, &n->mu, wait_ns);
		n->is_waiting = false;
	}
	full = n->fill;
	n->fill = n->drain;
	n->drain = full;
	ret->n_events = n->n_fill;
	n->n_fill = 0;
	list_splice_tail(&ret->completions, &n->completions);
	ret->is_blind = n->is_blind;
	ret->has_lost = n->has_lost;
	ret->has_late = n->has_late;
	if (n->has_late)
		swap_late_locked(n);
	n->is_blind = n->has_lost = n->has_late = false;
	ret->is_stopping = n->is_stopping;
	ret->request = n->request;
	n->request = NULL;
	mutex_unlock(&n->mu);
}

static void rest(struct notes *n)
{
	mutex_lock(&n->mu);
	if (!n->is_stopping)
		cond_wait_for(&n->cv, &n->mu, REST_NS);
	mutex_unlock(&n->mu);
}

static void feed_plan(struct cache *c, const struct plan_event *ev, uint64_t now)
{
	if (ev->kind == PLAN_EV_RESIZED && atomic_load(&c->notes.is_making_plan))
		c->notes.resized[ev->sample / 64] |= 1ull << ev->sample % 64;
	plan_event(c->plan, now, ev);
}

static void tell_open(struct cache *c, const struct cache_open *open)
{
	if (c->p.watch)
		c->p.watch->opened(c->p.watch->ctx, open);
}

/* The plan has just been fed it. */
static void tell_fed(struct cache *c, uint32_t sample)
{
	struct cache_open open = { .sample = sample, .job = CACHE_NO_JOB };
	const struct planned_job *job;
	struct plan_use use;

	if (plan_last_use(c->plan, &use)) {
		recent_placed(c);
		job = planned_at(c, use.job);
		open.job = job ? job->id : CACHE_NO_JOB;
	}
	open.reader = account_place(c, (struct entry_id){ sample });
	tell_open(c, &open);
}

static void feed_event(struct cache *c, const struct plan_event *ev, uint64_t now)
{
	if (ev->kind == PLAN_EV_OPENED) {
		recent_opened(c, ev->sample);
		if (c->recent.is_replay_due) { /* it hears of them all, in order, a little later */
			tell_open(c, &(struct cache_open){ .sample = ev->sample,
							   .job = CACHE_NO_JOB });
			return;
		}
	}
	feed_plan(c, ev, now);
	if (ev->kind == PLAN_EV_OPENED) {
		tell_fed(c, ev->sample);
		probed_opened(c, ev->sample, now);
	}
}

static void feed_epoch(struct cache *c, struct completion *done, uint64_t now)
{
	struct plan_event *ev = &done->event;
	struct planned_job *job = planned_at(c, ev->job);
	bool is_elsewhere = false;

	if (c->recent.is_replay_due)
		is_elsewhere = recent_is_elsewhere(c, ev->order_epoch);
	else if (job && job->is_show_due)
		planned_look(c, job, ev->order_epoch);
	plan_event(c->plan, now, ev);
	ev->order_epoch = NULL; /* the plan's now */
	if (c->recent.is_replay_due)
		recent_replay(c, is_elsewhere, now);
	else if (job && job->is_show_due)
		planned_show(c, job, now);
}

static void feed_completion(struct cache *c, struct completion *done, uint64_t now)
{
	if (done->generation != atomic_load(&c->generation)) {
		switch_absorb(c, done, now);
	} else if (done->event.kind == PLAN_EV_EPOCH && done->event.status == 0) {
		feed_epoch(c, done, now);
	} else {
		plan_event(c->plan, now, &done->event);
		done->event.order_epoch = NULL;
	}
	completion_free(done);
}

/* After everything else of the batch: these came when the buffer was full. */
static void feed_late(struct cache *c, uint64_t now)
{
	for (int i = 0; i < LATE_KINDS; i++) {
		for (uint32_t w = 0; w < late_words(c); w++) {
			uint64_t bits = c->notes.late_drain[i][w];

			if (bits)
				c->notes.late_drain[i][w] = 0;
			for (; bits; bits &= bits - 1) {
				uint32_t sample = w * 64 + (uint32_t)__builtin_ctzll(bits);
				struct entry_id entry = { sample };
				struct plan_event ev = { .kind = late_kinds[i], .sample = sample };

				ev.bytes = dataset_size(c->p.dataset, entry); /* RESIZED's */
				feed_plan(c, &ev, now);
			}
		}
	}
}

static void feed(struct cache *c, struct batch *batch, uint64_t now)
{
	struct plan_event blind = { .kind = PLAN_EV_BLIND };
	uint32_t fed = 0;
	struct list *node;

	if (batch->has_lost)
		cache_degrade(c, "the planner cannot keep up: opens were not noted");
	if (batch->is_blind)
		plan_event(c->plan, now, &blind);
	while ((node = list_pop_head(&batch->completions))) {
		struct completion *done = container_of(node, struct completion, node);

		while (fed < done->at)
			feed_event(c, &c->notes.drain[fed++], now);
		feed_completion(c, done, now);
	}
	while (fed < batch->n_events)
		feed_event(c, &c->notes.drain[fed++], now);
	if (batch->has_late)
		feed_late(c, now);
}

/* No more actions are taken than can be answered without memory. */
static void carry_out(struct cache *c, uint64_t now)
{
	struct notes *n = &c->notes;
	struct plan_action action;

	while (n->n_unanswered < UNANSWERED_MAX && plan_next_action(c->plan, &action))
		apply_action(c, &action);
	for (uint32_t i = 0; i < n->n_unanswered; i++)
		plan_event(c->plan, now, &n->unanswered[i]);
	n->n_unanswered = 0;
}

/* The plan counts for itself; the metrics get the differences. */
static void publish(struct cache *c, uint64_t now_ns)
{
	struct plan_status now, *old = &c->counted;

	plan_get_status(c->plan, &now);
	metrics_add(c->p.metrics, METRIC_PREFETCH_ISSUED, now.asked - old->asked);
	metrics_add(c->p.metrics, METRIC_PREFETCH_USEFUL, now.useful - old->useful);
	metrics_add(c->p.metrics, METRIC_PREFETCH_LATE, now.late - old->late);
	metrics_add(c->p.metrics, METRIC_PREFETCH_WASTED, now.wasted - old->wasted);
	metrics_add(c->p.metrics, METRIC_PREFETCH_FAILED, now.failed - old->failed);
	*old = now;
	planned_publish(c, now_ns);
	atomic_store(&c->may_refuse_open, !c->n_jobs || plan_is_confirmed(c->plan));
	if (c->p.watch)
		c->p.watch->planned(c->p.watch->ctx, planned_state(c));
}

static void answer_request(struct cache *c, struct order_request *request, int status)
{
	mutex_lock(&c->notes.mu);
	request->status = status;
	request->is_done = true;
	cond_broadcast(&c->notes.answer_cv);
	mutex_unlock(&c->notes.mu);
}

static void take_request(struct cache *c, struct order_request *request, uint64_t now)
{
	switch (request->kind) {
	case REQUEST_OPENS:
		recent_tell(c, request);
		break;
	case REQUEST_SET:
		publish(c, now); /* what the old plan has counted */
		switch_order(c, request, now);
		break;
	case REQUEST_ADD:
		planned_add(c, request, now);
		break;
	case REQUEST_END:
		planned_end(c, request);
		break;
	}
	if (request->kind != REQUEST_OPENS)
		publish(c, now); /* who asked may look at once */
	answer_request(c, request, request->status);
}

/* Looked at now and then and not told once: an answer that is still on its way may say again that
 * the store takes no more. */
static void tell_room(struct cache *c, uint64_t now)
{
	static const struct plan_event ev = { .kind = PLAN_EV_PIN_ROOM };

	if (c->counted.is_pinning_over && tier_takes_more(c->keeper))
		plan_event(c->plan, now, &ev);
}

/* A plan begins with all the memory of the start. */
static void tell_memory(struct cache *c)
{
	uint64_t arena = atomic_load(&c->notes.arena_bytes),
		 stage = atomic_load(&c->notes.stage_bytes);

	if (arena == c->notes.planned_arena_bytes && stage == c->notes.planned_stage_bytes)
		return;
	plan_set_memory(c->plan, arena, stage);
	c->notes.planned_arena_bytes = arena;
	c->notes.planned_stage_bytes = stage;
}

/* The last thing the planner does: nobody is left waiting. */
static void end_planning(struct cache *c, struct order_request *request)
{
	mutex_lock(&c->notes.mu);
	c->notes.is_planning = false;
	if (!request)
		request = c->notes.request;
	c->notes.request = NULL;
	mutex_unlock(&c->notes.mu);
	if (request)
		answer_request(c, request, -ECANCELED);
}

void *planner_main(void *cache)
{
	struct cache *c = cache;
	uint64_t wake_ns = 0, swept_ns = 0;

	for (;;) {
		uint64_t now = clock_now(c->p.clock);
		struct batch batch;
		bool is_telling;

		take_batch(&c->notes, wake_ns > now ? MIN(wake_ns - now, SWEEP_NS) : REST_NS,
			   &batch);
		now = clock_now(c->p.clock);
		feed(c, &batch, now);
		if (batch.is_stopping) {
			end_planning(c, batch.request);
			return NULL;
		}
		if (batch.request)
			take_request(c, batch.request, now);
		tell_memory(c);
		is_telling = switch_tell_kept(c, now);
		is_telling |= switch_give_back(c);
		wake_ns = plan_step(c->plan, now);
		carry_out(c, now);
		if (is_telling)
			wake_ns = now;
		publish(c, now);
		if (now - swept_ns >= SWEEP_NS) {
			account_sweep(c, now, false);
			tell_room(c, now);
			probed_tick(c, now);
			swept_ns = now;
		}
		rest(&c->notes);
	}
}
