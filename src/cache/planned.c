/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jobs whose orders are in force. Each is one of the plan's, with its order and what is known
 * of its reads. The table has them in the order they came; the place of the first one stays with
 * that job when it tells its next order, so "the order" of status and accounting does not change
 * hands while its job is at work.
 *
 * A job that comes while others are at work is added to the plan as it is, and what is in the arena
 * stays: the plan is not made afresh, which would throw away what it knows of the others. That
 * takes the planner a while in a large dataset, in which reads go on and opens wait.
 *
 * A job may have begun before it told its order. The last opens that were where no other job was
 * expected are then its own, most likely; if they fit its first epoch it is shown them, else it
 * starts at the beginning.
 *
 * Planner thread, but for planned_set and planned_publish before it runs, and planned_free. It must
 * never wait for I/O, and never keep an order that an epoch may still be asked of without its
 * reference.
 */
#include <string.h>

#include "cache_priv.h"

enum { LOOK_READS = 256, LOOK_LEAST = 64 };

struct planned_job *planned_at(struct cache *c, uint32_t index)
{
	for (uint32_t i = 0; i < c->n_jobs; i++)
		if (c->jobs[i].index == index)
			return &c->jobs[i];
	return NULL;
}

static struct planned_job *planned_find(struct cache *c, uint32_t id)
{
	for (uint32_t i = 0; i < c->n_jobs; i++)
		if (c->jobs[i].id == id)
			return &c->jobs[i];
	return NULL;
}

static void planned_remove(struct cache *c, struct planned_job *job)
{
	uint32_t at = (uint32_t)(job - c->jobs);

	order_ref_put(job->order);
	memmove(job, job + 1, (c->n_jobs - at - 1) * sizeof(*job));
	c->n_jobs--;
}

void planned_free(struct cache *c)
{
	while (c->n_jobs)
		planned_remove(c, &c->jobs[c->n_jobs - 1]);
}

void planned_set(struct cache *c, struct order_ref *take_order, uint64_t now_ns)
{
	planned_free(c);
	if (take_order)
		c->jobs[c->n_jobs++] = (struct planned_job){ .order = take_order,
							     .id = atomic_load(&c->orders),
							     .told_ns = now_ns };
	atomic_store(&c->has_order, take_order != NULL);
}

/* The plan's index of a job more, in place of `old` if that is not NULL. While all places are taken
 * the old one has to go first. */
static int add_to_plan(struct cache *c, const struct order_ref *order, struct planned_job *old)
{
	int index = plan_add_job(c->plan, order_info(order->order));

	if (old && (index >= 0 || index == -ENOSPC))
		plan_end_job(c->plan, old->index);
	if (old && index == -ENOSPC)
		index = plan_add_job(c->plan, order_info(order->order));
	return index;
}

void planned_add(struct cache *c, struct order_request *request, uint64_t now_ns)
{
	struct planned_job *old = planned_find(c, request->job), *job;
	int index;

	if (c->recent.is_replay_due) /* there is more than one plan's worth of jobs from here on */
		recent_flush(c, now_ns);
	index = add_to_plan(c, request->order, old);
	if (index < 0) {
		if (old && index == -ENOSPC) /* it is gone, but an epoch of it is being computed */
			planned_remove(c, old);
		request->status = index;
		return;
	}
	job = old ? old : &c->jobs[c->n_jobs++];
	if (old)
		order_ref_put(old->order);
	atomic_fetch_add(&c->orders, 1);
	*job = (struct planned_job){ .order = TAKE(request->order),
				     .id = atomic_load(&c->orders),
				     .index = (uint32_t)index,
				     .is_show_due = c->recent.count > 0,
				     .told_ns = now_ns };
	atomic_store(&c->has_order, true);
	request->job = job->id;
	request->status = 0;
	if (cache_keeps_any(c)) { /* what only this order has was not told yet */
		c->kept_at = 0;
		c->kept_next_ns = MAX(c->kept_next_ns, 1);
	}
}

void planned_end(struct cache *c, struct order_request *request)
{
	struct planned_job *job = planned_find(c, request->job);

	request->status = job ? 0 : -ENOENT;
	if (!job)
		return;
	if (c->recent.is_replay_due)
		recent_flush(c, clock_now(c->p.clock));
	plan_end_job(c->plan, job->index);
	planned_remove(c, job);
}

/* --- what a job had read before it told its order --- */

void planned_look(struct cache *c, struct planned_job *job, const struct order_epoch *ep)
{
	const struct recent *r = &c->recent;
	uint32_t reads[LOOK_READS], n = 0;

	for (uint32_t ago = 0; ago < r->count && n < LOOK_READS; ago++)
		if (!recent_was_placed(r, ago))
			reads[LOOK_READS - ++n] = recent_ago(r, ago);
	job->is_show_due = n >= LOOK_LEAST && plan_epoch_fits(order_info(job->order->order), ep,
							      &reads[LOOK_READS - n], n);
}

void planned_show(struct cache *c, struct planned_job *job, uint64_t now_ns)
{
	struct recent *r = &c->recent;
	struct plan_status st;
	int index;

	job->is_show_due = false;
	for (uint32_t ago = r->count; ago-- > 0;)
		if (!recent_was_placed(r, ago))
			plan_show(c->plan, now_ns, job->index, recent_ago(r, ago));
	if (!plan_get_job_status(c->plan, job->index, &st))
		return;
	job->counted_mismatches = st.mismatches; /* found in hindsight, not by reads */
	if (recent_is_agreed(&st))
		return;
	plan_end_job(c->plan, job->index);
	index = plan_add_job(c->plan, order_info(job->order->order));
	if (index < 0) { /* it has just been given up: there is room but in theory */
		cache_degrade(c, "a job is not planned for any more: no room for its order");
		planned_remove(c, job);
		return;
	}
	job->index = (uint32_t)index;
	job->counted_mismatches = job->counted_resyncs = 0;
}

/* --- what is said of them --- */

/* Counters of the plan's job: the metrics get the differences. */
static void count(struct cache *c, struct planned_job *job, const struct plan_status *st,
		  uint64_t now_ns)
{
	metrics_add(c->p.metrics, METRIC_RESYNCS, st->resyncs - job->counted_resyncs);
	metrics_add(c->p.metrics, METRIC_ORDER_MISMATCHES,
		    st->mismatches - job->counted_mismatches);
	job->counted_resyncs = st->resyncs;
	job->counted_mismatches = st->mismatches;
	if (st->placed != job->placed)
		job->read_ns = now_ns;
	job->placed = st->placed;
}

void planned_publish(struct cache *c, uint64_t now_ns)
{
	struct cache_job shown[PLAN_JOBS];
	struct plan_status st, first;
	uint32_t i = 0;

	plan_get_status(c->plan, &first); /* also without any */
	atomic_store(&c->plan_bytes, plan_table_bytes(c->plan));
	while (i < c->n_jobs) {
		struct planned_job *job = &c->jobs[i];

		if (!plan_get_job_status(c->plan, job->index, &st) || st.is_over) {
			if (st.is_over) /* all its epochs are read, and others are at work */
				plan_end_job(c->plan, job->index);
			planned_remove(c, job);
			continue;
		}
		count(c, job, &st, now_ns);
		if (st.state == PLAN_WAITING && (c->recent.is_replay_due || job->is_show_due))
			st.why = "the order is new and its first epoch is being computed";
		shown[i++] = (struct cache_job){
			.id = job->id, .plan = st, .told_ns = job->told_ns, .read_ns = job->read_ns
		};
	}
	if (i)
		first = shown[0].plan;
	else if (c->why_none)
		first.why = c->why_none;
	mutex_lock(&c->status_mu);
	c->status = first;
	memcpy(c->shown, shown, i * sizeof(*shown));
	c->n_shown = i;
	mutex_unlock(&c->status_mu);
}

enum plan_state planned_state(const struct cache *c)
{
	for (uint32_t i = 1; i < c->n_jobs; i++)
		if (c->shown[i].plan.state == PLAN_FOLLOWING)
			return PLAN_FOLLOWING;
	return c->status.state;
}
