/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Actions of the plan, carried out. The plan thinks in samples, the table in pieces: a sample_fetch
 * counts the pieces of one FETCH and answers it once, when the last one has ended. Every action but
 * DROP is answered by exactly one completion, whatever goes wrong. Runs on the planner thread
 * (apply_*) and, for the end of a piece, on I/O threads. It must never wait for I/O.
 */
#include "cache_priv.h"

static void answer(struct cache *c, struct completion *take_done, enum plan_event_kind kind,
		   int status)
{
	take_done->event.kind = kind;
	take_done->event.status = status;
	note_completion(c, take_done);
}

/* Out of memory before there was a job. The planner feeds it at the end of its round. */
static void answer_nomem(struct cache *c, enum plan_event_kind kind,
			 const struct plan_action *action)
{
	struct plan_event ev = {
		.kind = kind,
		.sample = action->sample,
		.epoch = action->epoch,
		.job = action->job,
		.version = action->version,
		.status = -ENOMEM,
	};

	cache_degrade(c, "out of memory");
	note_unanswered(c, &ev);
}

static void drop_planned_locked(struct cache *c, struct shard *s, struct entry_state *es,
				struct list *dead) REQUIRES(s->mu)
{
	struct list *node = es->objects.next, *next;

	for (; node != &es->objects; node = next) {
		struct object *obj = container_of(node, struct object, in_entry);

		next = node->next;
		if (obj->is_planned && obj->state == OBJECT_RESIDENT) {
			object_drop_locked(c, s, obj, dead);
			metrics_add(c->p.metrics, METRIC_EVICTIONS, 1);
		}
	}
}

/* Nobody plans for it any more: it serves whoever reads it, until its room is wanted. */
static void leave_planned_locked(struct cache *c, struct shard *s, struct entry_state *es)
	REQUIRES(s->mu)
{
	struct list *node = es->objects.next, *next;

	for (; node != &es->objects; node = next) {
		struct object *obj = container_of(node, struct object, in_entry);

		next = node->next;
		if (obj->is_planned && obj->state == OBJECT_RESIDENT)
			object_make_plain_locked(c, s, obj);
	}
}

/* All pieces have ended: the sample is held, or nothing of it is. */
static void sample_fetch_end_locked(struct cache *c, struct shard *s, struct entry_state *es,
				    struct sample_fetch *job, struct list *dead) REQUIRES(s->mu)
{
	assert(es->hold == HOLD_FETCHING && es->job == job);
	es->job = NULL;
	job->completion.event.bytes = job->bytes;
	job->completion.event.latency_ns = job->latency_ns;
	if (job->status == 0) {
		es->hold = HOLD_HELD; /* keeps the reference of FETCHING */
	} else {
		drop_planned_locked(c, s, es, dead);
		es->hold = HOLD_NONE;
		entry_put_locked(c, s, es);
	}
	answer(c, &job->completion, PLAN_EV_FETCHED, job->status);
}

void sample_fetch_hold_locked(struct shard *s, struct sample_fetch *job)
{
	(void)s;
	job->n_left++;
}

void sample_fetch_release_locked(struct cache *c, struct shard *s, struct entry_state *es,
				 struct sample_fetch *job, struct list *dead)
{
	assert(job->n_left > 0);
	if (--job->n_left)
		return;
	sample_fetch_end_locked(c, s, es, job, dead);
}

void sample_fetch_piece_locked(struct cache *c, struct shard *s, struct object *obj,
			       const struct fetch_result *result, struct list *dead)
{
	struct sample_fetch *job = obj->job;

	obj->job = NULL;
	job->bytes += result->bytes;
	job->latency_ns = MAX(job->latency_ns, result->latency_ns);
	if (job->status == 0)
		job->status = result->status;
	sample_fetch_release_locked(c, s, obj->state_of, job, dead);
}

static void fetch_piece_locked(struct cache *c, struct shard *s, struct entry_state *es,
			       struct sample_fetch *job, const struct file_identity *id,
			       uint32_t piece) REQUIRES(s->mu)
{
	struct object *obj = object_find_locked(c, s, es->entry, piece);

	if (obj && obj->state == OBJECT_RESIDENT) {
		object_make_planned_locked(c, s, obj);
		return;
	}
	if (!obj && job->is_adopting) {
		job->status = -EAGAIN;
		return;
	}
	if (!obj) {
		obj = object_new_locked(c, s, es, id, piece);
		if (!obj) {
			job->status = -ENOMEM;
			return;
		}
		obj->is_prefetch = true;
		obj->refs++; /* the queue's */
		prefetch_push(c, obj);
	}
	obj->is_planned = true;
	obj->job = job;
	job->n_left++;
}

/* The store may have lost it between two looks of the plan. */
static void tell_if_not_pinned(struct cache *c, const struct plan_action *action,
			       const struct file_identity *id)
{
	struct entry_id entry = { action->sample };

	if (action->is_pinned && id->size && !store_keeps(c, entry, id, 1))
		note_sample(c, PLAN_EV_UNPINNED, entry, 0);
}

/* No job is made for what is not carried out. */
static void answer_held_out(struct cache *c, enum plan_event_kind kind,
			    const struct plan_action *action)
{
	struct plan_event ev = { .kind = kind, .sample = action->sample, .status = PLAN_HELD_OUT };

	note_unanswered(c, &ev);
}

static void apply_fetch(struct cache *c, const struct plan_action *action)
{
	struct entry_id entry = { action->sample };
	struct shard *s = shard_of(c, entry);
	struct sample_fetch *job = calloc(1, sizeof(*job));
	struct entry_state *es = NULL;
	struct file_identity id;
	struct list dead;

	if (job && probed_hold_back(c, action)) {
		free(job);
		answer_held_out(c, PLAN_EV_FETCHED, action);
		return;
	}
	list_init(&dead);
	mutex_lock(&s->mu);
	if (job)
		es = entry_get_locked(c, s, entry);
	if (!es) {
		mutex_unlock(&s->mu);
		free(job);
		answer_nomem(c, PLAN_EV_FETCHED, action);
		return;
	}
	assert(es->hold == HOLD_NONE);
	note_fetched_anew(c, entry);
	es->hold = HOLD_FETCHING;
	es->job = job;
	job->is_adopting = action->is_adopted;
	job->completion.event.sample = action->sample;
	sample_fetch_hold_locked(s, job);
	dataset_identity(c->p.dataset, entry, &id);
	for (uint32_t i = 0; id.size && i < piece_count(id.size); i++)
		fetch_piece_locked(c, s, es, job, &id, i);
	sample_fetch_release_locked(c, s, es, job, &dead);
	mutex_unlock(&s->mu);
	objects_free(c, &dead);
	entry_touch(c, entry);
	tell_if_not_pinned(c, action, &id);
	prefetch_pump(c);
}

static void apply_drop(struct cache *c, const struct plan_action *action)
{
	struct entry_id entry = { action->sample };
	struct shard *s = shard_of(c, entry);
	struct entry_state *es;
	struct list dead;

	list_init(&dead);
	mutex_lock(&s->mu);
	es = entry_find_locked(c, s, entry);
	if (es &&
	    es->hold ==
		    HOLD_HELD) { /* else it is lost already and the plan is about to hear of it */
		if (action->is_left)
			leave_planned_locked(c, s, es);
		else
			drop_planned_locked(c, s, es, &dead);
		es->hold = HOLD_NONE;
		entry_put_locked(c, s, es);
	}
	mutex_unlock(&s->mu);
	objects_free(c, &dead);
}

static void apply_stage(struct cache *c, const struct plan_action *action)
{
	struct stage_push *push = calloc(1, sizeof(*push));

	if (!push) {
		answer_nomem(c, PLAN_EV_STAGED, action);
		return;
	}
	if (probed_hold_back(c, action)) {
		free(push);
		answer_held_out(c, PLAN_EV_STAGED, action);
		return;
	}
	push->job.kind = JOB_STAGE;
	push->job.entry.v = push->completion.event.sample = action->sample;
	if (direct_is_expected(c, push->job.entry)) {
		answer(c, &push->completion, PLAN_EV_STAGED, -EOPNOTSUPP);
		return;
	}
	if (!c->stage) { /* cannot be: the plan then has no budget for it */
		answer(c, &push->completion, PLAN_EV_STAGED, -ENOSYS);
		return;
	}
	queue_push(&c->stage_jobs, &push->job.node);
}

static void apply_pin(struct cache *c, const struct plan_action *action)
{
	struct completion *job = calloc(1, sizeof(*job));

	if (!job) {
		answer_nomem(c, PLAN_EV_PINNED, action);
		return;
	}
	job->event.sample = action->sample;
	queue_push(&c->pin_jobs, &job->node);
}

static void apply_epoch(struct cache *c, const struct plan_action *action)
{
	const struct planned_job *of = planned_at(c, action->job);
	struct epoch_job *job = calloc(1, sizeof(*job));
	struct plan_event gone = { .kind = PLAN_EV_EPOCH,
				   .epoch = action->epoch,
				   .job = action->job,
				   .version = action->version,
				   .status = -ECANCELED };

	if (!job) {
		answer_nomem(c, PLAN_EV_EPOCH, action);
		return;
	}
	if (!of) { /* the job has left since the plan asked */
		free(job);
		note_unanswered(c, &gone);
		return;
	}
	job->completion.event.epoch = action->epoch;
	job->completion.event.job = action->job;
	job->completion.event.version = action->version;
	job->order = of->order;
	atomic_fetch_add(&of->order->refs, 1);
	queue_push(&c->epoch_jobs, &job->completion.node);
}

void apply_action(struct cache *c, const struct plan_action *action)
{
	switch (action->kind) {
	case PLAN_ACT_FETCH:
		apply_fetch(c, action);
		break;
	case PLAN_ACT_STAGE:
		apply_stage(c, action);
		break;
	case PLAN_ACT_DROP:
		apply_drop(c, action);
		break;
	case PLAN_ACT_PIN:
		apply_pin(c, action);
		break;
	case PLAN_ACT_EPOCH:
		apply_epoch(c, action);
		break;
	}
}
